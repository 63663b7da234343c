// Stands before kernels of CUDA C that g++ compiles for the emulator: a test double, no part of
// mithril. Blocks run one at a time, so that shared memory may be static.
#pragma once

struct emulated_dim {
  unsigned x, y, z;
};
// A thread hands this to the others of its warp.
struct emulated_lane {
  unsigned words[6];
  float results[4];
  const unsigned short* row;
};
// A thread sees this of a launch; driver.cc switches it from thread to thread. `meet` waits for the
// block, `meet_warp` for the warp.
struct emulated_launch {
  emulated_dim thread, block, block_size, grid;
  void (*meet)();
  void (*meet_warp)();
  void (*fail)(const char* why);
  emulated_lane* warp;  // its threads
};
extern "C" {
__attribute__((visibility("default"))) emulated_launch* emulated_cuda = nullptr;
}

// Calls a kernel with parameters that lie side by side, of 8 bytes each.
template <int... I>
struct emulated_places {};
template <class To>
static inline To emulated_parameter(const unsigned long long* from) {
  static_assert(sizeof(To) == sizeof(*from), "parameters have 8 bytes");
  To to;
  __builtin_memcpy(&to, from, sizeof to);
  return to;
}
template <class... Parameters, int... I>
static inline void emulated_call_by(void (*kernel)(Parameters...), const unsigned long long* from,
                                    emulated_places<I...>) {
  kernel(emulated_parameter<Parameters>(from + I)...);
}
template <class... Parameters>
static inline void emulated_call(void (*kernel)(Parameters...), const unsigned long long* from) {
  emulated_call_by(kernel, from, emulated_places<__integer_pack(sizeof...(Parameters))...>());
}
#define EMULATED_CALL(NAME, COUNT)                                                                \
  extern "C" __attribute__((visibility("default"))) const int emulated_parameters_##NAME = COUNT; \
  extern "C" __attribute__((visibility("default"))) void emulated_call_##NAME(                    \
      const unsigned long long* from) {                                                           \
    emulated_call(NAME, from);                                                                    \
  }

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
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

#define fmaxf __builtin_fmaxf
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

struct __align__(16) uint4 {
  unsigned x, y, z, w;
};

// Votes of a block: nobody votes before all have read the last ones.
static int emulated_votes = 0;
static inline int __syncthreads_or(int vote) {
  emulated_cuda->meet();
  emulated_votes = 0;
  emulated_cuda->meet();
  emulated_votes |= vote != 0;
  emulated_cuda->meet();
  return emulated_votes;
}

// ---------------------------------------------------------------- warps

static inline int emulated_lane_id() { return (int)(emulated_cuda->thread.x % 32); }

static inline float __shfl_xor_sync(unsigned mask, float value, int with) {
  if (mask != 0xffffffffu) emulated_cuda->fail("a shuffle of some threads of a warp");
  emulated_lane* const lanes = emulated_cuda->warp;
  const int own = emulated_lane_id();
  lanes[own].words[0] = __float_as_uint(value);
  emulated_cuda->meet_warp();
  const float out = __uint_as_float(lanes[own ^ with].words[0]);
  emulated_cuda->meet_warp();
  return out;
}

// ---------------------------------------------------------------- tiles, for csrc's m_tile_…

// NVIDIA, PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type": row and column of
// element i of what a lane holds. groupID is lane / 4, threadID_in_group lane % 4.
struct emulated_place {
  int row, column;
};
static inline emulated_place emulated_place_in_a(int lane, int i) {
  const bool is_upper = i < 2 || (4 <= i && i < 6);
  return {is_upper ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + i % 2 + (i < 4 ? 0 : 8)};
}
static inline emulated_place emulated_place_in_b(int lane, int i) {
  return {lane % 4 * 2 + i % 2 + (i < 2 ? 0 : 8), lane / 4};
}
static inline emulated_place emulated_place_in_c(int lane, int i) {
  return {i < 2 ? lane / 4 : lane / 4 + 8, lane % 4 * 2 + i % 2};
}

static inline float emulated_of_bf16(unsigned bits) { return __uint_as_float(bits << 16); }
static inline float emulated_of_f16(unsigned bits) {
  const unsigned exponent = bits >> 10 & 31, rest = bits & 1023;
  const float size = exponent == 31  ? (rest != 0 ? __builtin_nanf("") : __builtin_inff())
                     : exponent == 0 ? __builtin_ldexpf((float)rest, -24)
                                     : __builtin_ldexpf((float)(rest + 1024), (int)exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}
// To nearest, ties to even: by the numbers that have so many bits behind the point.
static inline unsigned emulated_to_f16(float x) {
  const unsigned sign = __float_as_uint(x) >> 16 & 0x8000;
  const float size = __builtin_fabsf(x);
  if (size != size) return 0x7fff;
  if (size >= 65520.0f) return sign | 0x7c00;
  int exponent = -14;
  if (size >= 0x1p-14f) exponent = __builtin_ilogbf(size);
  const float steps = __builtin_nearbyintf(__builtin_ldexpf(size, 10 - exponent));
  return sign | ((unsigned)(exponent + 14) * 1024 + (unsigned)steps);
}
static inline unsigned emulated_to_bf16(float x) {
  if (x != x) return 0x7fff;
  const unsigned bits = __float_as_uint(x), rest = bits & 0xffff, whole = bits >> 16;
  return rest > 0x8000 || (rest == 0x8000 && whole % 2 == 1) ? whole + 1 : whole;
}

// D = A B + C. What PTX leaves open, the order of the sums, is one after the other here.
static inline void emulated_multiply(float* c, const unsigned* a, unsigned b0, unsigned b1,
                                     float (*number)(unsigned)) {
  emulated_lane* const lanes = emulated_cuda->warp;
  const int own = emulated_lane_id();
  for (int i = 0; i < 4; ++i) lanes[own].words[i] = a[i], lanes[own].results[i] = c[i];
  lanes[own].words[4] = b0, lanes[own].words[5] = b1;
  emulated_cuda->meet_warp();
  if (own == 0) {
    float left[16][16], right[16][8];
    const auto half = [&](int lane, int i) {
      return number(lanes[lane].words[i / 2] >> i % 2 * 16 & 0xffff);
    };
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 8; ++i) {
        const emulated_place at = emulated_place_in_a(lane, i);
        left[at.row][at.column] = half(lane, i);
      }
      for (int i = 0; i < 4; ++i) {
        const emulated_place at = emulated_place_in_b(lane, i);
        right[at.row][at.column] = half(lane, 8 + i);
      }
    }
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const emulated_place at = emulated_place_in_c(lane, i);
        for (int k = 0; k < 16; ++k) {
          lanes[lane].results[i] += left[at.row][k] * right[k][at.column];
        }
      }
    }
  }
  emulated_cuda->meet_warp();
  for (int i = 0; i < 4; ++i) c[i] = lanes[own].results[i];
  emulated_cuda->meet_warp();
}
static inline void m_tile_multiply_f16(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  emulated_multiply(c, a, b0, b1, emulated_of_f16);
}
static inline void m_tile_multiply_bf16(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  emulated_multiply(c, a, b0, b1, emulated_of_bf16);
}

// PTX ISA, ldmatrix with .x4: lane 8 i + r has the address of row r of matrix i; a lane gets of
// each matrix the elements 2 (lane % 4) and the next one of row lane / 4, with .trans of that
// column.
static inline void emulated_load(unsigned* to, const unsigned short* row, bool is_transposed) {
  emulated_lane* const lanes = emulated_cuda->warp;
  const int own = emulated_lane_id(), major = own / 4, minor = own % 4 * 2;
  if (((unsigned long long)row & 15) != 0) emulated_cuda->fail("a row of ldmatrix is not aligned");
  lanes[own].row = row;
  emulated_cuda->meet_warp();
  for (int i = 0; i < 4; ++i) {
    const auto element = [&](int r, int c) { return (unsigned)lanes[8 * i + r].row[c]; };
    const unsigned first = is_transposed ? element(minor, major) : element(major, minor);
    const unsigned second = is_transposed ? element(minor + 1, major) : element(major, minor + 1);
    to[i] = first | second << 16;
  }
  emulated_cuda->meet_warp();
}
static inline void m_tile_load(unsigned* to, const unsigned short* row) {
  emulated_load(to, row, false);
}
static inline void m_tile_load_transposed(unsigned* to, const unsigned short* row) {
  emulated_load(to, row, true);
}

static inline unsigned m_tile_pair_f16(float low, float high) {
  return emulated_to_f16(low) | emulated_to_f16(high) << 16;
}
static inline unsigned m_tile_pair_bf16(float low, float high) {
  return emulated_to_bf16(low) | emulated_to_bf16(high) << 16;
}
static inline float m_tile_low_f16(unsigned pair) { return emulated_of_f16(pair & 0xffff); }
static inline float m_tile_high_f16(unsigned pair) { return emulated_of_f16(pair >> 16); }
static inline float m_tile_low_bf16(unsigned pair) { return emulated_of_bf16(pair & 0xffff); }
static inline float m_tile_high_bf16(unsigned pair) { return emulated_of_bf16(pair >> 16); }
