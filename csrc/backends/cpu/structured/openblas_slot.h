// The right to call OpenBLAS.
#pragma once
#include "plan/kernel.h"

namespace mithril::cpu {

/// A thread holds one while it calls OpenBLAS, which ends the process where more threads than it
/// has buffers call it or memory for a new buffer cannot be had, and gives its buffers back when
/// the process ends: at exit nobody gets a slot any more.
class OpenBlasSlot {
 public:
  OpenBlasSlot() = default;
  OpenBlasSlot(const OpenBlasSlot&) = delete;
  OpenBlasSlot& operator=(const OpenBlasSlot&) = delete;
  ~OpenBlasSlot();

  /// Waits for a slot. kCancelled if this thread is interrupted first (core::is_interrupted),
  /// kNoMemory where OpenBLAS would lack a buffer.
  plan::KernelStatus take();

 private:
  bool is_taken_ = false;
};

}  // namespace mithril::cpu
