// Calls of libraries that cannot be interrupted, on threads that a run need not wait for.
#pragma once
#include <functional>

namespace mithril::runtime {

/// Runs `work`, which may not throw, on a thread of its own and waits for it. Returns false if this
/// thread is interrupted first (core::is_interrupted): the work then goes on alone with what it
/// owns, and is halted when the process ends; while several do, further calls wait for one of them.
/// Runs it here where no thread can be had.
bool run_detached(std::function<void()> work);

}  // namespace mithril::runtime
