#include "backends/cpu/target.h"

#include "backends/cpu/kernels.h"
#include "select/kernel_table.h"

namespace mithril::cpu {

ir::Target target(core::DType default_float) {
  return select::native_target("cpu", default_float, kernel_table());
}

}  // namespace mithril::cpu
