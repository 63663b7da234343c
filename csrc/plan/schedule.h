// The order of steps: what runs when decides how much memory is in use at once.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/steps.h"

namespace mithril::plan {

/// Lets outputs of a run take the memory of inputs: afterwards the steps that wrote `first` write
/// `second`, an input. Legal where one step alone writes the output, nothing reads it, and all
/// others that read the input can run before; pairs where it is not are returned, unchanged.
/// Steps may stand in a wrong order until `schedule`.
std::vector<std::pair<BufferId, BufferId>> overwrite_inputs(
    Steps& steps, const std::vector<std::pair<BufferId, BufferId>>& pairs);

/// An order of execution, as indices. Steps run after those that write what they read; those that
/// write over an input, after all others that read it, and after those that may refuse the data.
/// A step that frees more than it takes runs as soon as it can, if that makes the peak lower than
/// the order given; one whose result lies idle at the peak runs just before that is read, if that
/// makes it lower by much.
std::vector<int32_t> schedule(const Steps& steps);

}  // namespace mithril::plan
