// How parameters start (Model::set_initializers). Internal to model/.
#pragma once
#include "model/tree/naming.h"
#include "model/tree/tree.h"

namespace mithril::model {

/// Throws for what is neither the name of an initializer nor a number.
void check_initializer(const HostValue& value, const Location& where);

/// Finds how a parameter that a leaf reads starts: the outermost model that speaks of it counts.
/// Null where none does.
const HostValue* find_initializer(const Arena& arena, Paths& paths, NodeId leaf, EdgeId parameter);

}  // namespace mithril::model
