// Loops of backends that print their plans: steps say what they compute (plan/call.h).
#pragma once
#include <memory>

#include "select/backend.h"

namespace mithril::select {

/// Makes steps with a plan::LoopCall. Fails with the error of tile::verify() only.
core::Result<std::unique_ptr<const LoopKernel>> printed_loop(const tile::Program& program);

}  // namespace mithril::select
