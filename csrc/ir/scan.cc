#include "ir/scan.h"

#include <algorithm>

#include "ir/registry.h"

namespace mithril::ir {

using core::Code;
using core::ErrorKind;
using core::Status;

bool is_scan(const Node& node) {
  static const OpId id = Registry::global().find("scan")->id;
  return node.op == id;
}

ScanParts scan_parts(const Node& node) {
  ScanParts out;
  out.carries = static_cast<size_t>(node.attrs.find("carries")->as_int());
  out.xs = static_cast<size_t>(node.attrs.find("xs")->as_int());
  out.constants = node.operands.size() - out.carries - out.xs;
  out.ys = node.results.size() - out.carries;
  out.reverse = node.attrs.find("reverse")->as_bool();
  out.length = *node.attrs.find("length");
  return out;
}

std::vector<Value> call_scan(Builder& builder, const ScanParts& parts,
                             std::span<const Value> operands, std::shared_ptr<const Graph> body,
                             std::vector<Type> y_types) {
  std::vector<Type> types;
  for (size_t i = 0; i < parts.carries; ++i) types.push_back(operands[i].type());
  for (Type& type : y_types) types.push_back(std::move(type));
  const Attrs attrs{{"carries", HostValue(static_cast<int64_t>(parts.carries))},
                    {"xs", HostValue(static_cast<int64_t>(parts.xs))},
                    {"reverse", HostValue(parts.reverse)},
                    {"length", parts.length}};
  return builder.call_region(Registry::global().get(Registry::global().find("scan")->id), operands,
                             attrs, std::move(body), std::move(types));
}

void name_parts(Graph& body, const ScanParts& parts) {
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    ValueInfo& input = body.value(body.inputs[i]);
    input.role = Role::kData;
    input.name = i < parts.x(0)          ? fmt::format("c{}", i)
                 : i < parts.constant(0) ? fmt::format("x{}", i - parts.x(0))
                                         : fmt::format("k{}", i - parts.constant(0));
  }
  for (size_t i = 0; i < body.outputs.size(); ++i) {
    body.outputs[i].name =
        i < parts.carries ? fmt::format("c{}", i) : fmt::format("y{}", i - parts.carries);
  }
}

Dim length_of(const ScanParts& parts) {
  if (parts.length.is_symbolic()) return Dim::expression(parts.length.as_symbolic().expr);
  return Dim(parts.length.as_int());
}

namespace {

Status broken(const std::string& what) {
  return core::fail(ErrorKind::kInternal, Code::kInternal, "scan: {}", what);
}

bool is_count(const HostValue* value, size_t most) {
  return value != nullptr && value->is_int() && value->as_int() >= 0 &&
         static_cast<uint64_t>(value->as_int()) <= most;
}

Status check_counts(const Node& node) {
  if (node.regions.size() != 1 || node.regions[0] == nullptr) return broken("it needs one body");
  const Graph& body = *node.regions[0];
  const HostValue *carries = node.attrs.find("carries"), *xs = node.attrs.find("xs");
  if (!is_count(carries, node.operands.size()) || !is_count(xs, node.operands.size()) ||
      static_cast<size_t>(carries->as_int() + xs->as_int()) > node.operands.size()) {
    return broken("more carries and xs than operands");
  }
  const HostValue *reverse = node.attrs.find("reverse"), *length = node.attrs.find("length");
  if (reverse == nullptr || !reverse->is_bool()) return broken("reverse must be a bool");
  const bool is_size =
      length != nullptr && (length->is_symbolic() || (length->is_int() && length->as_int() >= 0));
  if (!is_size) return broken("length must be a size");
  if (body.inputs.size() != node.operands.size()) {
    return broken(fmt::format("{} operands for a body of {} inputs", node.operands.size(),
                              body.inputs.size()));
  }
  if (body.outputs.size() != node.results.size() ||
      body.outputs.size() < static_cast<size_t>(carries->as_int())) {
    return broken(fmt::format("{} results of a body of {} outputs", node.results.size(),
                              body.outputs.size()));
  }
  if (!body.states.empty()) return broken("a body has no state");
  return {};
}

// `leading`: the outer type has the axis of places in front. Sizes of the body are its own: only
// known ones are compared.
bool agrees(const Type& outer, const Type& inner, const std::optional<Dim>& leading) {
  const size_t offset = leading ? 1 : 0;
  if (!outer.is_tensor || !inner.is_tensor || outer.dtype != inner.dtype) return false;
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

}  // namespace

Status check_scan(const Graph& graph, const Node& node) {
  MITHRIL_RETURN_IF_ERROR(check_counts(node));
  const ScanParts parts = scan_parts(node);
  const Graph& body = *node.regions[0];
  if (body.is_concrete() != graph.is_concrete()) return broken("dtypes are chosen in half of it");
  const Dim length = length_of(parts);
  const auto check = [&](ValueId outer, ValueId inner, bool is_stacked,
                         std::string_view what) -> Status {
    if (outer == kNoValue) return broken("an operand is absent");
    const std::optional<Dim> leading = is_stacked ? std::optional(length) : std::nullopt;
    if (agrees(graph.type(outer), body.type(inner), leading)) return {};
    return broken(fmt::format("{} is {} outside of the body and {} inside", what,
                              to_string(graph.type(outer), graph.dims),
                              to_string(body.type(inner), body.dims)));
  };
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const bool is_x = i >= parts.carries && i < parts.carries + parts.xs;
    MITHRIL_RETURN_IF_ERROR(
        check(node.operands[i], body.inputs[i], is_x, fmt::format("operand {}", i)));
  }
  for (size_t i = 0; i < node.results.size(); ++i) {
    MITHRIL_RETURN_IF_ERROR(check(node.results[i], body.outputs[i].value, i >= parts.carries,
                                  fmt::format("result {}", i)));
  }
  return {};
}

}  // namespace mithril::ir
