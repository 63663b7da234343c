#include "passes/bind_sizes.h"

#include <algorithm>
#include <optional>

#include <fmt/ranges.h>

#include "ir/builder.h"
#include "ir/infer_types.h"
#include "ir/region.h"
#include "ir/registry.h"
#include "ir/text.h"
#include "passes/regions.h"

namespace mithril::passes {

using core::Code;
using core::ErrorKind;
using core::HostValue;
using core::Status;
using infer::Dim;

namespace {

Status clash(const ir::Graph& graph, ir::ValueId input, const std::vector<int64_t>& sizes) {
  const ir::ValueInfo& info = graph.value(input);
  return core::fail(ErrorKind::kShape, Code::kShapeData, "'{}' must have shape {}, got [{}]",
                    info.name, ir::to_string(info.type.shape, graph.dims), fmt::join(sizes, ", "));
}

// Sizes that are a plain a·x + b give x; the others are checked when every symbol is known.
Status solve_input(const ir::Graph& graph, ir::ValueId input, const std::vector<int64_t>& sizes,
                   std::vector<int64_t>& symbols) {
  const ir::Shape& shape = graph.type(input).shape;
  if (shape.size() != sizes.size()) return clash(graph, input, sizes);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i].known()) {
      if (shape[i].value() != sizes[i]) return clash(graph, input, sizes);
      continue;
    }
    const auto solution = graph.dims.solve(shape[i], sizes[i]);
    if (!solution) continue;
    if (!solution->exact || solution->value < 0) return clash(graph, input, sizes);
    int64_t& symbol = symbols[graph.dims.symbol_index(solution->symbol)];
    if (symbol >= 0 && symbol != solution->value) return clash(graph, input, sizes);
    symbol = solution->value;
  }
  return {};
}

// Products of sizes (`k*g` heads of queries beside `k` of keys) follow when all but one are known.
Status solve_products(const ir::Graph& graph, std::span<const std::vector<int64_t>> sizes,
                      std::vector<int64_t>& symbols) {
  infer::DimTable dims = graph.dims;
  const auto known = [&](Dim symbol) {
    const int64_t size = symbols[dims.symbol_index(symbol)];
    return size < 0 ? symbol : Dim(size);
  };
  for (bool learned = true; learned;) {
    learned = false;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const ir::Type& type = graph.type(graph.inputs[i]);
      for (size_t axis = 0; type.is_tensor && axis < type.rank(); ++axis) {
        if (type.shape[axis].known() || dims.evaluate(type.shape[axis], symbols)) continue;
        const auto solution = dims.solve(dims.substitute(type.shape[axis], known), sizes[i][axis]);
        if (!solution) continue;
        if (!solution->exact || solution->value < 0) return clash(graph, graph.inputs[i], sizes[i]);
        symbols[dims.symbol_index(solution->symbol)] = solution->value;
        learned = true;
      }
    }
  }
  return {};
}

Status check_input(const ir::Graph& graph, ir::ValueId input, const std::vector<int64_t>& sizes,
                   const std::vector<int64_t>& symbols) {
  const ir::Shape& shape = graph.type(input).shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto size = graph.dims.evaluate(shape[i], symbols);
    if (size && *size != sizes[i]) return clash(graph, input, sizes);
  }
  return {};
}

class Binder {
 public:
  /// `all`: a symbol without a value is an error; else it stays.
  Binder(const ir::Graph& graph, std::span<const int64_t> symbols, bool all)
      : from_(graph), symbols_(symbols), all_(all) {}

  core::Result<ir::Graph> run() {
    ir::Graph out = from_;
    table_ = &out.dims;
    for (ir::ValueInfo& info : out.values) {
      for (Dim& dim : info.type.shape) MITHRIL_RETURN_IF_ERROR(bind(dim, info));
      if (info.host) info.host = bind(*info.host, 0);
    }
    for (ir::Node& node : out.nodes) {
      ir::Attrs attrs;
      for (const auto& [name, value] : node.attrs) attrs.set(name, bind(value, 0));
      node.attrs = std::move(attrs);
      if (!all_ || node.regions.empty()) continue;
      for (std::shared_ptr<const ir::Graph>& region : node.regions) {
        MITHRIL_ASSIGN(ir::Graph inside, bound_region(out, node, *region));
        MITHRIL_RETURN_IF_ERROR(check_results(out, node, inside));
        region = std::make_shared<const ir::Graph>(std::move(inside));
      }
    }
    MITHRIL_RETURN_IF_ERROR(std::move(status_));
    return out;
  }

 private:
  Status bind(Dim& dim, const ir::ValueInfo& info) {
    if (dim.known()) return {};
    const auto size = from_.dims.evaluate(dim, symbols_);
    if (!size && !all_) {
      dim = partly(dim);
      return {};
    }
    if (!size || *size < 0) return unknown(dim, info.name);
    dim = Dim(*size);
    return {};
  }

  // With what is known: broadcast(2, k) is 2.
  Dim partly(Dim dim) const {
    return table_->substitute(dim, [&](Dim symbol) {
      const uint32_t index = from_.dims.symbol_index(symbol);
      return index < symbols_.size() && symbols_[index] >= 0 ? Dim(symbols_[index]) : symbol;
    });
  }

  // Sizes of a region are those that its operands show, then those of the same name out here.
  core::Result<ir::Graph> bound_region(const ir::Graph& bound, const ir::Node& node,
                                       const ir::Graph& region) const {
    const ir::RegionParts parts = ir::region_parts(node);
    std::vector<std::vector<int64_t>> sizes;
    for (size_t i = 0; i < parts.inputs(); ++i) {
      sizes.push_back(ir::static_dims(bound.type(node.operands[i]).shape));
      if (parts.is_x(i)) sizes.back().erase(sizes.back().begin());
    }
    MITHRIL_ASSIGN(std::vector<int64_t> symbols, solve_symbols(region, sizes));
    for (uint32_t i = 0; i < symbols.size(); ++i) {
      const Dim symbol = region.dims.symbol_at(i);
      if (symbols[i] >= 0 || !region.dims.is_named(symbol)) continue;
      const auto outer = from_.dims.find_symbol(region.dims.name_of(symbol));
      if (outer) symbols[i] = from_.dims.evaluate(*outer, symbols_).value_or(-1);
    }
    return bind_sizes(region, symbols);
  }

  // Sizes that were open may differ between branches, and between a carry and what it becomes.
  Status check_results(const ir::Graph& bound, const ir::Node& node,
                       const ir::Graph& inside) const {
    if (inside.outputs.size() != node.results.size()) return {};  // a condition
    for (size_t i = 0; i < node.results.size(); ++i) {
      const ir::Shape& outer = bound.type(node.results[i]).shape;
      const ir::Shape& inner = inside.type(inside.outputs[i].value).shape;
      if (std::equal(inner.rbegin(), inner.rend(), outer.rbegin())) continue;
      const std::string& name = ir::Registry::global().get(node.op).name;
      core::Error error = core::fail(
          ErrorKind::kShape, Code::kShapeData, "{}: {}, got {} and {}", name,
          ir::is_cond(node) ? "branches must agree in shape" : "a state must keep its shape",
          ir::to_string(outer, bound.dims), ir::to_string(inner, inside.dims));
      error.location = from_.location_of(node);
      return error;
    }
    return {};
  }

  Status unknown(Dim dim, const std::string& where) const {
    if (const ir::Node* node = maker_of(dim)) return sized_by_data(*node);
    return core::fail(ErrorKind::kShape, Code::kShapeUnknown,
                      "the size '{}'{} has no valid value for these inputs", from_.dims.print(dim),
                      where.empty() ? "" : " of '" + where + "'");
  }

  // Segments of the graph itself have such sizes for inputs (cut_at_sizes).
  Status sized_by_data(const ir::Node& node) const {
    const ir::OpDef& op = ir::Registry::global().get(node.op);
    core::Error error =
        op.bounded.empty()
            ? core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                         "{}: the size of its result depends on the data, and this backend needs "
                         "every size before it runs",
                         op.name)
            : core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                         "the size of a result depends on the data, in a loop or a branch, which "
                         "needs every size before it runs");
    error.location = from_.location_of(node);
    error.hint = "put ml.where in the place of a mask, or run it on the NumPy backend";
    return error;
  }

  bool mentions(ir::ValueId id, Dim symbol) const {
    const ir::Shape& shape = from_.type(id).shape;
    return std::any_of(shape.begin(), shape.end(),
                       [&](Dim dim) { return !dim.known() && from_.dims.contains(dim, symbol); });
  }

  // The node that brings in a symbol of the size that no input has; null if all have one.
  const ir::Node* maker_of(Dim dim) const {
    for (const Dim symbol : from_.dims.symbols_of(dim)) {
      const auto mentioned = [&](ir::ValueId id) { return mentions(id, symbol); };
      if (std::any_of(from_.inputs.begin(), from_.inputs.end(), mentioned)) continue;
      const auto maker =
          std::find_if(from_.nodes.begin(), from_.nodes.end(), [&](const ir::Node& node) {
            return std::any_of(node.results.begin(), node.results.end(), mentioned);
          });
      if (maker != from_.nodes.end()) return &*maker;
    }
    return nullptr;
  }

  // Depth is bounded by HostValue::kMaxDepth.
  HostValue bind(const HostValue& value, int depth) {
    if (value.is_symbolic()) {
      const Dim dim = Dim::expression(value.as_symbolic().expr);
      const auto size = from_.dims.evaluate(dim, symbols_);
      if (size) return HostValue(*size);
      if (!all_) return ir::size_value(partly(dim));
      if (status_.ok()) status_ = unknown(dim, "");
      return value;
    }
    if (value.is_slice()) {
      const core::Slice& s = value.as_slice();
      return HostValue(
          core::Slice{bind(s.start, depth + 1), bind(s.stop, depth + 1), bind(s.step, depth + 1)});
    }
    if (!value.is_sequence()) return value;
    HostValue::Tuple items;
    for (const HostValue& item : value.items()) items.push_back(bind(item, depth + 1));
    return value.is_list() ? HostValue::list(std::move(items)) : HostValue::tuple(std::move(items));
  }

  const ir::Graph& from_;
  std::span<const int64_t> symbols_;
  bool all_;
  infer::DimTable* table_ = nullptr;  // of the graph that is made
  Status status_;
};

/// Sizes that only results have (`x[n:]` while n is open) follow once their operands are bound.
Status learn_from_results(const ir::Graph& graph, std::vector<int64_t>& symbols) {
  const auto is_open = [&](ir::ValueId id) {
    const ir::Shape& shape = graph.type(id).shape;
    return std::any_of(shape.begin(), shape.end(),
                       [&](Dim dim) { return !dim.known() && !graph.dims.evaluate(dim, symbols); });
  };
  std::optional<ir::Graph> bound;  // as far as sizes are known
  for (const ir::Node& node : graph.nodes) {
    if (!node.regions.empty()) continue;
    if (std::none_of(node.results.begin(), node.results.end(), is_open)) continue;
    if (!bound) {
      MITHRIL_ASSIGN(bound, Binder(graph, symbols, false).run());
    }
    const ir::Attrs& attrs = bound->nodes[static_cast<size_t>(&node - graph.nodes.data())].attrs;
    const auto inferred =
        ir::infer_types(ir::Registry::global().get(node.op), *bound, node.operands, attrs);
    if (!inferred.ok()) return {};  // told with its place when the whole graph is checked
    for (size_t i = 0; i < node.results.size(); ++i) {
      const ir::Shape &open = graph.type(node.results[i]).shape, &found = inferred->types[i].shape;
      for (size_t axis = 0; axis < open.size() && open.size() == found.size(); ++axis) {
        if (open[axis].known() || !found[axis].known()) continue;
        const auto solution = graph.dims.solve(open[axis], found[axis].value());
        if (!solution || !solution->exact || solution->value < 0) continue;
        int64_t& symbol = symbols[graph.dims.symbol_index(solution->symbol)];
        if (symbol >= 0) continue;
        symbol = solution->value;
        bound.reset();
      }
    }
  }
  return {};
}

}  // namespace

core::Result<std::vector<int64_t>> solve_symbols(const ir::Graph& graph,
                                                 std::span<const std::vector<int64_t>> sizes) {
  std::vector<int64_t> symbols(graph.dims.symbol_count(), -1);
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (!graph.type(graph.inputs[i]).is_tensor) continue;
    MITHRIL_RETURN_IF_ERROR(solve_input(graph, graph.inputs[i], sizes[i], symbols));
  }
  const bool all_known =
      std::none_of(symbols.begin(), symbols.end(), [](int64_t size) { return size < 0; });
  if (!all_known) MITHRIL_RETURN_IF_ERROR(solve_products(graph, sizes, symbols));
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (!graph.type(graph.inputs[i]).is_tensor) continue;
    MITHRIL_RETURN_IF_ERROR(check_input(graph, graph.inputs[i], sizes[i], symbols));
  }
  MITHRIL_RETURN_IF_ERROR(learn_from_results(graph, symbols));
  return symbols;
}

core::Result<ir::Graph> bind_sizes(const ir::Graph& graph, std::span<const int64_t> symbols) {
  if (graph.dims.symbol_count() == 0 && !has_regions(graph)) return graph;
  auto out = Binder(graph, symbols, true).run();
  if (!out.ok()) return out;
  MITHRIL_RETURN_IF_ERROR(ir::verify(*out));
  return out;
}

Status check_sizes(const ir::Graph& graph, std::span<const int64_t> symbols) {
  if (graph.dims.symbol_count() == 0) return ir::check_addresses(graph);
  std::vector<int64_t> all(symbols.begin(), symbols.end());
  MITHRIL_RETURN_IF_ERROR(learn_from_results(graph, all));
  const bool is_known = std::none_of(all.begin(), all.end(), [](int64_t size) { return size < 0; });
  MITHRIL_ASSIGN(const ir::Graph bound, Binder(graph, all, has_regions(graph) && is_known).run());
  MITHRIL_RETURN_IF_ERROR(ir::verify(bound));
  return ir::check_addresses(bound);
}

}  // namespace mithril::passes
