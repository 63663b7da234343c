#include "select/kernel_table.h"

namespace mithril::select {

const KernelDef* KernelTable::find(const KernelRequest& request) const {
  for (const KernelDef* kernel : rows_of(request.op.name)) {
    if (kernel->packed != request.has_packed()) continue;
    if (request.epilogue != nullptr && kernel->finishing == Finishing::kNothing) continue;
    if (kernel->matches(request)) return kernel;
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
  return out;
}

bool KernelTable::has(std::string_view op) const { return !rows_of(op).empty(); }

}  // namespace mithril::select
