#include "backends/c/target.h"

#include "backends/c/kernels.h"
#include "select/kernel_table.h"

namespace mithril::c {

ir::Target target(core::DType default_float) {
  return select::native_target("c", default_float, kernel_table());
}

}  // namespace mithril::c
