// Python's lock, let go and taken back while C++ runs. A daemon thread that wants it while Python
// ends is ended by Python: its stack is unwound without the lock, and destructors on it would touch
// objects that the main thread is freeing. gil.cc parks such a thread as soon as the unwinding
// reaches a frame of this extension.
#pragma once
#include <pybind11/pybind11.h>

namespace mithril::bindings {

/// Without the lock for as long as the scope lasts. A device is always waited for so
/// (device::Driver::lock).
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()), outer_(released_) { released_ = state_; }
  ~GilRelease() {
    released_ = outer_;
    PyEval_RestoreThread(state_);
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  friend class GilAcquire;
  static thread_local PyThreadState* released_;  // of the innermost scope
  PyThreadState* state_;
  PyThreadState* outer_;
};

/// With the lock, on any thread. One that has let it go takes it back as the thread that it was: it
/// does not ask Python who it is, which has forgotten that while it ends.
class GilAcquire {
 public:
  GilAcquire() : released_(GilRelease::released_) {
    if (released_ == nullptr) {
      state_ = PyGILState_Ensure();
    } else {
      GilRelease::released_ = nullptr;
      PyEval_RestoreThread(released_);
    }
  }
  ~GilAcquire() {
    if (released_ == nullptr) {
      PyGILState_Release(state_);
    } else {
      GilRelease::released_ = PyEval_SaveThread();
    }
  }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyThreadState* released_;
  PyGILState_STATE state_{};
};

}  // namespace mithril::bindings
