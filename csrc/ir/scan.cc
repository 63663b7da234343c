#include "ir/scan.h"

#include "ir/registry.h"

namespace mithril::ir {

bool is_scan(const Node& node) {
  static const OpId id = Registry::global().find("scan")->id;
  return node.op == id;
}

ScanParts scan_parts(const Node& node) {
  ScanParts out{region_parts(node)};
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
  return builder.call_regions(*Registry::global().find("scan"), operands, attrs, {std::move(body)},
                              std::move(types));
}

Dim length_of(const ScanParts& parts) {
  if (parts.length.is_symbolic()) return Dim::expression(parts.length.as_symbolic().expr);
  return Dim(parts.length.as_int());
}

}  // namespace mithril::ir
