// Stands before kernels of CUDA C that g++ compiles for the emulator: a test double, no part of
// mithril. Blocks run one at a time, so that shared memory may be static.
#pragma once

struct emulated_dim {
  unsigned x, y, z;
};
// What a thread sees of a launch; driver.cc switches it from thread to thread.
struct emulated_launch {
  emulated_dim thread, block, block_size, grid;
  void (*meet)();
};
extern "C" {
__attribute__((visibility("default"))) emulated_launch* emulated_cuda = nullptr;
}

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(threads)
#define threadIdx (emulated_cuda->thread)
#define blockIdx (emulated_cuda->block)
#define blockDim (emulated_cuda->block_size)
#define gridDim (emulated_cuda->grid)
#define __syncthreads() emulated_cuda->meet()

// Threads take turns, and none is interrupted.
static inline int atomicCAS(int* at, int compare, int value) {
  const int before = *at;
  if (before == compare) *at = value;
  return before;
}

#define floorf __builtin_floorf
#define floor __builtin_floor
#define ceilf __builtin_ceilf
#define ceil __builtin_ceil
#define rintf __builtin_rintf
#define rint __builtin_rint
#define truncf __builtin_truncf
#define trunc __builtin_trunc
#define expf __builtin_expf
#define exp __builtin_exp
#define logf __builtin_logf
#define log __builtin_log
#define fmodf __builtin_fmodf
#define fmod __builtin_fmod
#define __fmaf_rn __builtin_fmaf
#define __fma_rn __builtin_fma
#define __fsqrt_rn __builtin_sqrtf
#define __dsqrt_rn __builtin_sqrt

template <class To, class From>
static inline To emulated_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are those of a type of the same size");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
#define __float_as_uint(x) emulated_bits<unsigned>((float)(x))
#define __uint_as_float(x) emulated_bits<float>((unsigned)(x))
#define __double_as_longlong(x) emulated_bits<long long>((double)(x))
#define __longlong_as_double(x) emulated_bits<double>((long long)(x))
