#include "passes/places_of_masks.h"

#include <algorithm>

#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using core::HostValue;
using ir::Node;
using ir::Value;
using ir::ValueId;

namespace {

bool is_mask(const ir::Graph& graph, ValueId id) {
  return id != ir::kNoValue && graph.type(id).is_tensor && graph.type(id).dtype == ir::DType::kBool;
}

/// Finds where the index of a node begins among its operands; -1: it has none.
int first_item(const Node& node) {
  return ir::Registry::global().get(node.op).input_index("index");
}

bool has_mask(const ir::Graph& graph, const Node& node) {
  const int first = first_item(node);
  return first >= 0 && std::any_of(node.operands.begin() + first, node.operands.end(),
                                   [&](ValueId id) { return is_mask(graph, id); });
}

/// Counts the axes that a nested list of bools takes; one of integers takes one.
size_t axes_of_list(const HostValue& list) {
  size_t depth = 0;
  const HostValue* at = &list;
  for (; at->is_sequence(); at = &at->items()[0]) {
    ++depth;
    if (at->items().empty()) break;
  }
  return at->is_bool() ? depth : 1;
}

/// Counts the axes of the operand that an item takes; nothing where it is a host value of which too
/// little is known.
std::optional<size_t> axes_of(const ir::ValueInfo& item) {
  using Tag = ir::HostType::Tag;
  if (item.type.is_tensor) return item.type.dtype == ir::DType::kBool ? item.type.rank() : 1;
  switch (item.type.host.tag) {
    case Tag::kInt:
    case Tag::kSlice: return 1;
    case Tag::kNone:
    case Tag::kEllipsis:
    case Tag::kBool: return 0;
    default: break;
  }
  if (!item.host || !item.host->is_sequence()) return std::nullopt;
  return axes_of_list(*item.host);
}

/// The axis of the operand that a mask begins at.
std::optional<size_t> first_axis(const ir::Graph& graph, const std::vector<ValueId>& items,
                                 size_t mask, size_t rank) {
  size_t before = 0, behind = 0;
  bool is_behind_ellipsis = false;
  for (size_t i = 0; i < items.size(); ++i) {
    const ir::ValueInfo& item = graph.value(items[i]);
    const auto taken = axes_of(item);
    if (!taken) return std::nullopt;
    const bool is_ellipsis =
        !item.type.is_tensor && item.type.host.tag == ir::HostType::Tag::kEllipsis;
    is_behind_ellipsis = is_behind_ellipsis || (is_ellipsis && i < mask);
    (i < mask ? before : behind) += *taken;
  }
  return is_behind_ellipsis ? rank - behind : before;
}

/// The size that indexing brings in: a symbol which the operand does not have; nothing where there
/// are several.
std::optional<ir::Dim> new_size(const ir::Graph& graph, const ir::Type& result,
                                const ir::Type& operand) {
  std::optional<ir::Dim> out;
  for (const ir::Dim dim : result.shape) {
    const bool is_old =
        std::find(operand.shape.begin(), operand.shape.end(), dim) != operand.shape.end();
    if (dim.known() || !graph.dims.is_symbol(dim) || is_old) continue;
    if (out) return std::nullopt;
    out = dim;
  }
  return out;
}

/// Puts expressions in the place of symbols.
class Substitution {
 public:
  void add(ir::Dim symbol, ir::Dim expression) { map_.emplace_back(symbol, expression); }

  void apply(ir::Graph& graph) const {
    if (map_.empty()) return;
    for (ir::ValueInfo& info : graph.values) {
      for (ir::Dim& dim : info.type.shape) dim = replaced(graph, dim);
      if (info.host) info.host = replaced(graph, *info.host);
    }
    for (Node& node : graph.nodes) {
      ir::Attrs attrs;
      for (const auto& [name, value] : node.attrs) attrs.set(name, replaced(graph, value));
      node.attrs = std::move(attrs);
    }
  }

 private:
  ir::Dim replaced(ir::Graph& graph, ir::Dim dim) const {
    return dim.known() ? dim : graph.dims.substitute(dim, map_);
  }
  // Depth is bounded by HostValue::kMaxDepth.
  HostValue replaced(ir::Graph& graph, const HostValue& value) const {
    if (value.is_symbolic()) {
      return ir::size_value(replaced(graph, ir::Dim::expression(value.as_symbolic().expr)));
    }
    if (value.is_slice()) {
      const core::Slice& s = value.as_slice();
      return HostValue(
          core::Slice{replaced(graph, s.start), replaced(graph, s.stop), replaced(graph, s.step)});
    }
    if (!value.is_sequence()) return value;
    HostValue::Tuple items;
    for (const HostValue& item : value.items()) items.push_back(replaced(graph, item));
    return value.is_list() ? HostValue::list(std::move(items)) : HostValue::tuple(std::move(items));
  }

  std::vector<std::pair<ir::Dim, ir::Dim>> map_;
};

class Replacer {
 public:
  explicit Replacer(const ir::Graph& graph) : rewriter_(graph) {}

  core::Result<ir::Graph> run() {
    const ir::Graph& from = rewriter_.from();
    for (const Node& node : from.nodes) {
      has_mask(from, node) ? replace(node) : rewriter_.copy(node);
    }
    MITHRIL_ASSIGN(ir::Graph out, rewriter_.finish());
    sizes_.apply(out);  // what was copied speaks of the old ones
    return out;
  }

 private:
  ir::Graph& graph() { return rewriter_.graph(); }

  // Summands at an index have the sizes of the selection.
  std::optional<ir::Dim> size_of_mask(const Node& node) const {
    const ir::Graph& from = rewriter_.from();
    const auto first = static_cast<size_t>(first_item(node));
    const auto is_array = [&](ValueId id) {
      const ir::ValueInfo& item = from.value(id);
      return item.type.is_tensor || !item.host || item.host->is_sequence();
    };
    const auto begin = node.operands.begin() + static_cast<ptrdiff_t>(first);
    if (std::count_if(begin, node.operands.end(), is_array) > 1) return std::nullopt;
    const ValueId selected = first > 1 ? node.operands[1] : node.results[0];
    return new_size(from, from.type(selected), from.type(node.operands[0]));
  }

  /// `axes` are the sizes that the mask must have, `size` how many places the result must have.
  Value places(Value mask, const ir::Shape& axes, std::optional<ir::Dim> size) {
    for (const Places& made : made_) {
      const bool fits = !size || *size == graph().type(made.value).shape[0];
      if (made.mask == mask.id && made.axes == axes && fits) return {mask.builder, made.value};
    }
    ir::Attrs attrs;
    if (mask.shape() != axes) attrs.set("sizes", ir::shape_value(axes));
    const Value out = ir::apply("true_places", {mask}, std::move(attrs));
    if (out && size) graph().value(out.id).type.shape[0] = *size;
    if (out) made_.push_back({mask.id, axes, out.id});
    return out;
  }

  Value with_one_axis(Value x, size_t axis, size_t count) {
    if (!x || count == 1) return x;
    ir::Shape shape = x.shape();
    const auto begin = shape.begin() + static_cast<ptrdiff_t>(axis);
    const auto end = begin + static_cast<ptrdiff_t>(count);
    const ir::Dim size = graph().dims.product(std::span(shape.data() + axis, count));
    shape.insert(shape.erase(begin, end), size);
    return ir::reshape(x, ir::shape_value(shape));
  }

  void replace(const Node& node) {
    const auto first = static_cast<size_t>(first_item(node));
    const std::optional<ir::Dim> size = size_of_mask(node);
    const Node mapped = rewriter_.mapped(node);
    rewriter_.builder().set_location(node.location);
    std::vector<ValueId> items(mapped.operands.begin() + static_cast<ptrdiff_t>(first),
                               mapped.operands.end());
    const Value operand = rewriter_.mapped(node.operands[0]);
    Value x = operand;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!is_mask(graph(), items[i])) continue;
      const size_t count = graph().type(items[i]).rank();
      const auto axis = x ? first_axis(graph(), items, i, x.rank()) : std::nullopt;
      if (!axis || *axis + count > x.rank()) return rewriter_.copy(node);  // told when it runs
      const auto begin = x.shape().begin() + static_cast<ptrdiff_t>(*axis);
      const ir::Shape axes(begin, begin + static_cast<ptrdiff_t>(count));
      x = with_one_axis(x, *axis, count);
      items[i] = places(rewriter_.builder().value(items[i]), axes, size).id;
    }
    emit(node, x, items);
  }

  void emit(const Node& node, Value x, const std::vector<ValueId>& items) {
    const auto first = static_cast<size_t>(first_item(node));
    ir::Builder& builder = rewriter_.builder();
    std::vector<ir::Operand> operands = {x};
    for (size_t i = 1; i < first; ++i) operands.emplace_back(rewriter_.mapped(node.operands[i]));
    for (const ValueId id : items) operands.emplace_back(builder.value(id));
    if (first > 1) learn_sizes(from_type(node.operands[1]), selected(x, items));
    const auto results =
        builder.call_all(ir::Registry::global().get(node.op), std::move(operands), node.attrs);
    if (!builder.status().ok()) return;
    const ir::Type& wanted = from_type(node.results[0]);
    const bool has_axes_of_x = first > 1 && results[0].shape() != wanted.shape;
    const Value out =
        has_axes_of_x ? ir::reshape(results[0], ir::shape_value(wanted.shape)) : results[0];
    if (!out) return;
    rewriter_.map(node.results[0], out);
    learn_sizes(wanted, out);
  }

  const ir::Type& from_type(ValueId id) const { return rewriter_.from().type(id); }

  // Nothing reads it but for its sizes.
  Value selected(Value x, const std::vector<ValueId>& items) {
    std::vector<ir::Operand> operands = {x};
    for (const ValueId id : items) operands.emplace_back(rewriter_.builder().value(id));
    return rewriter_.builder().call("index", std::move(operands));
  }

  // Symbols of the old shape are what stands in their place now.
  void learn_sizes(const ir::Type& old, Value made) {
    if (!made || made.rank() != old.rank()) return;
    const ir::Shape shape = made.shape();
    bool has_learned = false;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == old.shape[i] || !graph().dims.is_symbol(old.shape[i])) continue;
      sizes_.add(old.shape[i], shape[i]);
      has_learned = true;
    }
    if (has_learned) sizes_.apply(graph());
  }

  /// The places of a mask over axes of these sizes.
  struct Places {
    ValueId mask;
    ir::Shape axes;
    ValueId value;
  };

  Rewriter rewriter_;
  std::vector<Places> made_;
  Substitution sizes_;  // of several arrays in one index: what they broadcast to
};

}  // namespace

core::Result<ir::Graph> places_of_masks(const ir::Graph& graph) {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                               [&](const Node& node) { return has_mask(graph, node); });
  if (!any) return graph;
  return Replacer(graph).run();
}

}  // namespace mithril::passes
