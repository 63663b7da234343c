#include "backends/cpu/target.h"

#include "backends/cpu/kernels.h"
#include "ir/registry.h"

namespace mithril::cpu {

ir::Target target(core::DType default_float) {
  ir::Target out;
  out.name = "cpu";
  out.default_float = default_float;
  out.is_native = true;
  for (const ir::OpDef* op : ir::Registry::global().all()) {
    if (op->body == ir::BodyKind::kCompose && kernel_table().has(op->name)) {
      out.keeps_whole.insert(op->name);
    }
  }
  return out;
}

}  // namespace mithril::cpu
