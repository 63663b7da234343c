#include "select/kernel_table.h"

#include <algorithm>
#include <utility>

#include "ir/registry.h"

namespace mithril::select {

const KernelDef* KernelTable::find(const KernelRequest& request) const {
  for (const KernelDef* kernel : rows_of(request.op.name)) {
    if (kernel->packed != request.has_packed()) continue;
    if (request.epilogue != nullptr && kernel->epilogue_support == EpilogueSupport::kNothing)
      continue;
    if (is_allowed(*kernel, request) && lacks(*kernel, request) == nullptr &&
        kernel->matches(request)) {
      return kernel;
    }
  }
  return nullptr;
}

const char* KernelTable::lacks(const KernelDef& kernel, const KernelRequest& request) const {
  if (machine_(request)) return nullptr;
  for (const KernelFamily family : families_) {
    const std::span<const KernelDef> rows = family();
    const auto is_it = [&](const KernelDef& row) { return &row == &kernel; };
    if (std::any_of(rows.begin(), rows.end(), is_it)) return machine_.text;
  }
  return nullptr;
}

std::vector<const KernelDef*> KernelTable::rows_of(std::string_view op) const {
  std::vector<const KernelDef*> out;
  for (const KernelFamily family : families_) {
    for (const KernelDef& kernel : family()) {
      if (op == kernel.op) out.push_back(&kernel);
    }
  }
  if (rest_ != nullptr) {
    const auto more = rest_->rows_of(op);
    out.insert(out.end(), more.begin(), more.end());
  }
  return out;
}

bool KernelTable::has(std::string_view op) const { return !rows_of(op).empty(); }

bool is_allowed(const KernelDef& kernel, const KernelRequest& request) {
  return !request.canonical || kernel.order == OrderClass::kCanonical || kernel.packed;
}

ir::OpNames composites_of(const KernelTable& kernels) {
  ir::OpNames out;
  for (const ir::OpDef* op : ir::Registry::global().all()) {
    if (op->body == ir::BodyKind::kCompose && kernels.has(op->name)) out.insert(op->name);
  }
  return out;
}

ir::Target native_target(std::string name, core::DType default_float, ir::OpNames composites) {
  ir::Target out;
  out.name = std::move(name);
  out.default_float = default_float;
  out.keeps_whole = std::move(composites);
  out.binds_sizes = out.binds_numbers = out.shares_bodies = true;
  return out;
}

}  // namespace mithril::select
