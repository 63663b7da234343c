// Python's lock, let go and taken back while C++ runs. A thread that wants it while Python ends is
// ended by Python, which would unwind C++ that may not be unwound: such a thread is parked instead.
#pragma once
#include <cxxabi.h>
#include <utility>

#include <pybind11/pybind11.h>

namespace mithril::bindings {

/// Waits for the end of the process.
[[noreturn]] void park_thread() noexcept;

/// Calls what may wait for the lock.
template <class Call>
auto parked_at_exit(const Call& call) {
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    park_thread();
  }
}

/// Without the lock for as long as the scope lasts.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    parked_at_exit([&] { PyEval_RestoreThread(state_); });
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

/// With the lock, on any thread.
class GilAcquire {
 public:
  GilAcquire() : state_(parked_at_exit([] { return PyGILState_Ensure(); })) {}
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace mithril::bindings
