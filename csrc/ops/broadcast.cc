#include "ops/broadcast.h"

#include "infer/relation.h"

namespace mithril::ops {
namespace {

// Terms: from, to.
core::Status relate_spread(infer::Relation& relation) {
  const auto own = relation.rank(0), all = relation.rank(1);
  if (!own || !all) return {};
  if (*own > *all) {
    return core::fail(core::ErrorKind::kShape, core::Code::kShapeBroadcast,
                      "shapes must broadcast, got rank {} for a tensor of rank {}", *own, *all);
  }
  for (int i = 0; i < *own; ++i) {
    const int axis = i + *all - *own;
    const auto from = relation.size(0, i), to = relation.size(1, axis);
    if (from && to && *from != 1 && *from != *to) {
      return core::fail(core::ErrorKind::kShape, core::Code::kShapeBroadcast,
                        "shapes must broadcast, got size {} for axis {} of size {}", *from, axis,
                        *to);
    }
    if (from && *from != 1) MITHRIL_RETURN_IF_ERROR(relation.set_size(1, axis, *from));
    if (to && *to == 1) MITHRIL_RETURN_IF_ERROR(relation.set_size(0, i, 1));
  }
  return {};
}

}  // namespace

void state_broadcasts_to(RuleBuilder& r, Term from, Term to) {
  r.custom({from, to}, relate_spread);
}

}  // namespace mithril::ops
