#include "ir/region.h"

#include <algorithm>

#include "ir/registry.h"
#include "ir/scan.h"

namespace mithril::ir {

using core::Code;
using core::ErrorKind;
using core::Status;

namespace {

const OpDef& op_named(std::string_view name) { return *Registry::global().find(name); }
const OpDef& op_of(const Node& node) { return Registry::global().get(node.op); }

}  // namespace

bool is_cond(const Node& node) {
  static const OpId id = op_named("cond").id;
  return node.op == id;
}

bool is_while(const Node& node) {
  static const OpId id = op_named("while_loop").id;
  return node.op == id;
}

RegionParts region_parts(const Node& node) {
  const auto count = [&](const char* name) {
    const HostValue* value = node.attrs.find(name);
    return value == nullptr ? size_t{0} : static_cast<size_t>(value->as_int());
  };
  RegionParts out;
  out.carries = count("carries");
  out.xs = count("xs");
  out.constants = node.operands.size() - out.carries - out.xs - (is_cond(node) ? 1 : 0);
  out.ys = node.results.size() - out.carries;
  return out;
}

bool gives_results(const Node& node, size_t region) { return !is_while(node) || region == 1; }

const Graph& body_of(const Node& node) { return *node.regions.back(); }

void name_parts(Graph& region, const RegionParts& parts, bool gives_results) {
  for (size_t i = 0; i < region.inputs.size(); ++i) {
    ValueInfo& input = region.value(region.inputs[i]);
    input.role = Role::kData;
    input.name = i < parts.x(0)          ? fmt::format("c{}", i)
                 : i < parts.constant(0) ? fmt::format("x{}", i - parts.x(0))
                                         : fmt::format("k{}", i - parts.constant(0));
  }
  for (size_t i = 0; i < region.outputs.size(); ++i) {
    region.outputs[i].name = !gives_results      ? "go"
                             : i < parts.carries ? fmt::format("c{}", i)
                                                 : fmt::format("y{}", i - parts.carries);
  }
}

std::vector<Value> call_cond(Builder& builder, std::span<const Value> constants, Value predicate,
                             Regions regions, std::vector<Type> types) {
  std::vector<Value> operands(constants.begin(), constants.end());
  operands.push_back(predicate);
  return builder.call_regions(op_named("cond"), operands, {}, std::move(regions), std::move(types));
}

std::vector<Value> call_while(Builder& builder, size_t carries, std::span<const Value> operands,
                              Regions regions) {
  std::vector<Type> types;
  for (size_t i = 0; i < carries; ++i) types.push_back(operands[i].type());
  const Attrs attrs{{"carries", HostValue(static_cast<int64_t>(carries))}};
  return builder.call_regions(op_named("while_loop"), operands, attrs, std::move(regions),
                              std::move(types));
}

namespace {

// `leading`: the outer type has the axis of places in front. Sizes of a region are its own: only
// known ones are compared.
bool agrees(const Type& outer, const Type& inner, const std::optional<Dim>& leading) {
  const size_t offset = leading ? 1 : 0;
  if (!outer.is_tensor || !inner.is_tensor) return false;
  if (outer.rank() != inner.rank() + offset) return false;
  if (leading && leading->known() && outer.shape[0].known() && outer.shape[0] != *leading) {
    return false;
  }
  for (size_t i = 0; i < inner.rank(); ++i) {
    const Dim a = outer.shape[i + offset], b = inner.shape[i];
    if (a.known() && b.known() && a != b) return false;
  }
  return true;
}

bool is_flag(const Type& type) {
  return type.is_tensor && type.dtype == DType::kBool && type.rank() == 0;
}

/// One use of check_regions.
class Check {
 public:
  Check(const Graph& graph, const Node& node) : graph_(graph), node_(node), op_(op_of(node)) {}

  Status run() const {
    MITHRIL_RETURN_IF_ERROR(counts());
    if (is_scan(node_)) MITHRIL_RETURN_IF_ERROR(steps());
    const RegionParts parts = region_parts(node_);
    for (const ValueId id : node_.operands) {
      if (id == kNoValue) return broken("an operand is absent");
    }
    for (size_t at = 0; at < node_.regions.size(); ++at) {
      MITHRIL_RETURN_IF_ERROR(sizes(at, parts));
      MITHRIL_RETURN_IF_ERROR(types(at, parts));
    }
    const bool chooses = !is_cond(node_) || is_flag(graph_.type(node_.operands.back()));
    return chooses ? Status() : broken("the predicate must be bool[]");
  }

 private:
  Status broken(const std::string& what) const {
    return core::fail(ErrorKind::kInternal, Code::kInternal, "{}: {}", op_.name, what);
  }

  // Of an op without the attribute it is none.
  bool is_count(const char* name) const {
    if (!op_.has_attr(name)) return true;
    const HostValue* value = node_.attrs.find(name);
    return value != nullptr && value->is_int() && value->as_int() >= 0 &&
           static_cast<uint64_t>(value->as_int()) <= node_.operands.size();
  }

  Status counts() const {
    const auto is_none = [](const auto& region) { return region == nullptr; };
    const bool owns = node_.regions.size() == static_cast<size_t>(op_.regions) &&
                      std::none_of(node_.regions.begin(), node_.regions.end(), is_none);
    if (!owns) return broken(fmt::format("it needs {} bodies", op_.regions));
    const size_t own = is_cond(node_) ? 1 : 0;
    const auto count = [&](const char* name) {
      return op_.has_attr(name) ? static_cast<size_t>(node_.attrs.find(name)->as_int()) : 0;
    };
    if (!is_count("carries") || !is_count("xs") ||
        count("carries") + count("xs") + own > node_.operands.size()) {
      return broken("more carries and xs than operands");
    }
    const bool too_few = node_.results.size() < count("carries");
    if (too_few || (is_while(node_) && node_.results.size() != count("carries"))) {
      return broken(
          fmt::format("{} results of {} carries", node_.results.size(), count("carries")));
    }
    return {};
  }

  Status steps() const {
    const HostValue *reverse = node_.attrs.find("reverse"), *length = node_.attrs.find("length");
    if (reverse == nullptr || !reverse->is_bool()) return broken("reverse must be a bool");
    const bool is_size =
        length != nullptr && (length->is_symbolic() || (length->is_int() && length->as_int() >= 0));
    return is_size ? Status() : broken("length must be a size");
  }

  Status sizes(size_t at, const RegionParts& parts) const {
    const Graph& region = *node_.regions[at];
    if (region.inputs.size() != parts.inputs()) {
      return broken(
          fmt::format("{} operands for a body of {} inputs", parts.inputs(), region.inputs.size()));
    }
    const size_t outputs = gives_results(node_, at) ? node_.results.size() : 1;
    if (region.outputs.size() != outputs) {
      return broken(
          fmt::format("{} results of a body of {} outputs", outputs, region.outputs.size()));
    }
    if (!region.states.empty()) return broken("a body has no state");
    if (region.is_concrete() == graph_.is_concrete()) return {};
    return broken("dtypes are chosen in half of it");
  }

  Status types(size_t at, const RegionParts& parts) const {
    const Graph& region = *node_.regions[at];
    const std::optional<Dim> length =
        is_scan(node_) ? std::optional(length_of(scan_parts(node_))) : std::nullopt;
    const auto check = [&](ValueId outer, ValueId inner, bool is_stacked, std::string_view what,
                           bool same_dtype = true) -> Status {
      const Type &type = graph_.type(outer), &inside = region.type(inner);
      const bool fits = agrees(type, inside, is_stacked ? length : std::nullopt);
      if (fits && (!same_dtype || type.dtype == inside.dtype)) return {};
      return broken(fmt::format("{} is {} outside of the body and {} inside", what,
                                to_string(graph_.type(outer), graph_.dims),
                                to_string(region.type(inner), region.dims)));
    };
    for (size_t i = 0; i < parts.inputs(); ++i) {
      MITHRIL_RETURN_IF_ERROR(
          check(node_.operands[i], region.inputs[i], parts.is_x(i), fmt::format("operand {}", i)));
    }
    if (!gives_results(node_, at)) {
      const bool decides = is_flag(region.type(region.outputs[0].value));
      return decides ? Status() : broken("the condition must be bool[]");
    }
    // Choosing dtypes promotes results of branches, and what a loop starts from and makes.
    for (size_t i = 0; i < node_.results.size(); ++i) {
      const bool is_stacked = is_scan(node_) && i >= parts.carries;
      MITHRIL_RETURN_IF_ERROR(check(node_.results[i], region.outputs[i].value, is_stacked,
                                    fmt::format("result {}", i), graph_.is_concrete()));
    }
    return {};
  }

  const Graph& graph_;
  const Node& node_;
  const OpDef& op_;
};

}  // namespace

bool agree(const Type& a, const Type& b) { return agrees(a, b, {}); }

Status check_regions(const Graph& graph, const Node& node) { return Check(graph, node).run(); }

}  // namespace mithril::ir
