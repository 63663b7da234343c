// For tests: calls of drivers that fail, and what of drivers is alive.
#pragma once
#include <cstdint>
#include <string>

namespace mithril::device {

/// Lets the `nth` call (1 is the next one) of a driver's function, of all threads, fail with
/// `status` instead of being made; `lasts`: and all those behind it. Status 0 takes that back.
void inject_failure(const std::string& symbol, int64_t nth, int status, bool lasts = false);
/// The status that was injected for this call of `symbol`, or 0.
int injected(const char* symbol);
/// Counts the calls of a function that failed so.
int64_t injected_failures(const std::string& symbol);

/// Calls a function of a driver that gives something back. What it says is nobody's: no error that
/// is on its way is lost, nothing is called twice, and what is given back is not used again.
template <class Function, class... Arguments>
void give_back(Function function, const char* symbol, Arguments... arguments) {
  if (injected(symbol) == 0) static_cast<void>(function(arguments...));
}

/// Counts the contexts, queues, programs, kernels and buffers that there are.
int64_t live_objects();
/// Counts one that was made (1) or released (-1).
void count_object(int64_t change);

}  // namespace mithril::device
