#include "backends/c/target.h"

#include "backends/c/kernels.h"
#include "ir/registry.h"

namespace mithril::c {

ir::Target target(core::DType default_float) {
  ir::Target out;
  out.name = std::string("c");  // gcc 12 warns of the assignment of one character
  out.default_float = default_float;
  out.is_native = true;
  for (const ir::OpDef* op : ir::Registry::global().all()) {
    if (op->body == ir::BodyKind::kCompose && kernel_table().has(op->name)) {
      out.keeps_whole.insert(op->name);
    }
  }
  return out;
}

}  // namespace mithril::c
