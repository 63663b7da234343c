// The floating-point environment that kernels run in.
#pragma once
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace mithril::cpu {

/// Round to nearest even, no flushing of subnormals, exceptions masked (MXCSR 0x1F80) while it
/// lives; the thread's former state afterwards. Bits class A needs one around every task.
class FloatEnvironment {
 public:
#if defined(__x86_64__)
  FloatEnvironment() : saved_(_mm_getcsr()) {
    if (saved_ != kDefault) _mm_setcsr(kDefault);
  }
  ~FloatEnvironment() { _mm_setcsr(saved_); }
#else
  FloatEnvironment() = default;
#endif
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kDefault = 0x1F80;
  unsigned saved_;
#endif
};

}  // namespace mithril::cpu
