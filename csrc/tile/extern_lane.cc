// Payne-Hanek reduction and double-double power (extern_lane.inc), exact remainders.
#include "tile/extern_lane.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "tile/scalar_lane.h"

namespace mithril::tile {
namespace {

using m_f32 = float;
using m_f64 = double;
using m_w32 = uint32_t;
using m_w64 = uint64_t;
using m_i64 = int64_t;
#define M_FN static
#define M_TABLE constexpr
#define M_NAN NAN
#define M_INFINITY INFINITY
#define M_U64(x) x##ull
#define m_c_fma_f32 std::fma
#define m_c_fma_f64 std::fma
#define m_abs_f32 std::fabs
#define m_abs_f64 std::fabs
#define m_trunc_f64 std::trunc
uint32_t m_bits_f32(float x) { return std::bit_cast<uint32_t>(x); }
uint64_t m_bits_f64(double x) { return std::bit_cast<uint64_t>(x); }
double m_of_bits_f64(uint64_t u) { return std::bit_cast<double>(u); }
#include "tile/extern_lane.inc"
// The bounds in that text.
static_assert(math::Limits<float>::trig_hi == 131072 && math::Limits<double>::trig_hi == 8388608);

// fmod is exact by definition, so every implementation gives the same bits.
template <class T>
T mod(T x, T y) {
  T r = std::fmod(x, y);
  if (r == 0) return std::copysign(r, y);
  return (r < 0) != (y < 0) ? r + y : r;
}

// As CPython's float_floor_div: (x - x % y) / y is within rounding of an integer.
template <class T>
T floordiv(T x, T y) {
  if (y == 0) return x / y;
  T r = std::fmod(x, y);
  T q = (x - r) / y;
  if (r != 0 && (r < 0) != (y < 0)) q -= 1;
  if (q == 0) return std::copysign(T{0}, x / y);
  T f = std::floor(q);
  return q - f > T{0.5} ? f + 1 : f;
}

}  // namespace

TurnsF32 reduce_turns(float x) {
  const m_turns_f32 turns = m_reduce_turns_f32(x);
  return {turns.n, turns.r, turns.low};
}

TurnsF64 reduce_turns(double x) {
  const m_turns_f64 turns = m_reduce_turns_f64(x);
  return {turns.n, turns.r, turns.low};
}

double pow_lane(double x, double y) { return m_pow_lane_f64(x, y); }

float python_mod(float x, float y) { return mod(x, y); }
double python_mod(double x, double y) { return mod(x, y); }
float python_floordiv(float x, float y) { return floordiv(x, y); }
double python_floordiv(double x, double y) { return floordiv(x, y); }

}  // namespace mithril::tile
