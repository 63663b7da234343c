// Cycles between ops. Models may feed each other's disjoint parts. Internal to model/.
#pragma once
#include <vector>

#include "model/tree/tree.h"

namespace mithril::model {

/// Tells whether an op reads what is computed from its own result, on the ways back from the
/// writers of `wires`. A loop counts as one op, and so does a choice between branches.
bool feeds_itself(const ModelTree& tree, const std::vector<ConnId>& wires);

}  // namespace mithril::model
