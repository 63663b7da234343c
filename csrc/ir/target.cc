#include "ir/target.h"

#include "ir/op_def.h"

namespace mithril::ir {

bool Target::keeps(const OpDef& op) const {
  if (binds_sizes && op.checks_sizes) return true;
  return !decompose_all && keeps_whole.contains(op.name);
}

}  // namespace mithril::ir
