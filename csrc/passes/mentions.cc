#include "passes/mentions.h"

#include <algorithm>

namespace mithril::passes {

using core::HostValue;
using infer::Dim;

void Mentions::add(const ir::Node& node) {
  for (const auto& [name, value] : node.attrs) add_host(value);
  for (const ir::ValueId id : node.results) add(id);
  for (const auto& region : node.regions) add_region(*region);
}

void Mentions::add(ir::ValueId value) {
  const ir::ValueInfo& info = graph_.value(value);
  for (const Dim dim : info.type.shape) add_dim(dim);
  if (info.host) add_host(*info.host);
}

bool Mentions::has(Dim symbol) const {
  return std::find(symbols_.begin(), symbols_.end(), symbol) != symbols_.end();
}

// Depth is at most HostValue::kMaxDepth.
void Mentions::add_host(const HostValue& value) {
  if (value.is_symbolic()) add_dim(Dim::expression(value.as_symbolic().expr));
  if (value.is_slice()) {
    const core::Slice& slice = value.as_slice();
    for (const HostValue* part : {&slice.start, &slice.stop, &slice.step}) add_host(*part);
  }
  if (!value.is_sequence()) return;
  for (const HostValue& item : value.items()) add_host(item);
}

void Mentions::add_dim(Dim dim) {
  if (dim.known()) return;
  for (const Dim symbol : graph_.dims.symbols_of(dim)) add_symbol(symbol);
}

// Symbols of a region are those of the same name out here. Depth is at most ir::kMaxRegionDepth.
void Mentions::add_region(const ir::Graph& region) {
  for (uint32_t i = 0; i < region.dims.symbol_count(); ++i) {
    const Dim symbol = region.dims.symbol_at(i);
    if (!region.dims.is_named(symbol)) continue;
    if (const auto outer = graph_.dims.find_symbol(region.dims.name_of(symbol))) add_symbol(*outer);
  }
  for (const ir::Node& node : region.nodes) {
    for (const auto& inner : node.regions) add_region(*inner);
  }
}

void Mentions::add_symbol(Dim symbol) {
  if (!has(symbol)) symbols_.push_back(symbol);
}

}  // namespace mithril::passes
