#include "backends/c/target.h"

#include "backends/c/kernels.h"
#include "select/kernel_table.h"

namespace mithril::c {

ir::Target target(core::DType default_float) {
  static const ir::OpNames composites = select::composites_of(kernel_table());
  return select::native_target("c", default_float, composites);
}

}  // namespace mithril::c
