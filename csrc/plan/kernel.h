// The ABI between a plan and its kernels: what a kernel is handed, and how it reports trouble.
// Nothing here knows ops, names or models; nothing called through it throws or allocates.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace mithril::plan {

/// Says what is wrong with data that a kernel was given.
enum class BadData : int8_t { kIndex, kSingular, kNotPositiveDefinite };

/// Notes the first bad element of a run; the executable turns it into a typed error.
/// Written once: later reports are dropped.
struct ErrorSlot {
  std::atomic<int32_t> set{0};
  BadData what = BadData::kIndex;
  int32_t step = -1;     // which part of the step (Step::parts)
  int32_t operand = -1;  // which buffer of that step
  int64_t position = 0;  // row-major index in that operand, of an element or a matrix
  int64_t value = 0;     // the index that stood there
  int64_t bound = 0;     // the size that it must be below

  void report(int32_t at_operand, int64_t at_position, int64_t bad_value, int64_t at_bound) {
    if (set.exchange(1) != 0) return;
    operand = at_operand;
    position = at_position;
    value = bad_value;
    bound = at_bound;
  }
  void report_matrix(BadData why, int64_t matrix) {
    if (set.exchange(1) != 0) return;
    what = why;
    operand = 0;
    position = matrix;
  }
};

/// One call of a kernel. All pointers outlive the call; sizes and strides are in elements.
struct KernelArgs {
  void* const* buffers;   // operands: inputs, then outputs, in the kernel's own order
  const int64_t* params;  // extents, strides, flags: layout fixed by who made the step
  const double* scalars;  // run-time scalars in the kernel's own order, or null
  const void* data;       // the kernel's constant data (a program); lives with the step
  void* scratch;          // this worker's `scratch_bytes`, 64-byte aligned, or null
  int32_t worker;         // 0 is the calling thread
  ErrorSlot* error;
  const std::atomic<bool>* cancel;  // looked at at least every 20 ms
};

enum class KernelStatus : int32_t {
  kOk = 0,
  kBadData = 1,  // the error slot says what and where
  kCancelled = 2,
  kNoMemory = 3,  // scratch could not be had; kernels themselves never allocate
  kFailed = 4,    // an exception where none may be: a bug in mithril
};

/// Does the units [begin, end) of the step's work. A unit is what may run on another thread:
/// results never depend on how units are split.
using KernelFn = KernelStatus (*)(const KernelArgs& args, int64_t begin, int64_t end);

}  // namespace mithril::plan
