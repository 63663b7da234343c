#include "backends/cpu/target.h"

#include "backends/cpu/kernels.h"
#include "select/kernel_table.h"

namespace mithril::cpu {

ir::Target target(core::DType default_float) {
  static const ir::OpNames composites = select::composites_of(kernel_table());
  return select::native_target("cpu", default_float, composites);
}

}  // namespace mithril::cpu
