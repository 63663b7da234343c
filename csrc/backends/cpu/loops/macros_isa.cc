// The elementary functions as single instructions of the interpreter: tile/math.h on vector lanes.
#include <utility>

#include "backends/cpu/loops/isa_parts.h"
#include "backends/cpu/machine/lanes.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

namespace math = tile::math;
using tile::Opcode;

constexpr int64_t kPadded = 16;  // elements; no lane type is wider

/// Whole vectors in place, the rest through a padded copy.
template <class V, class F>
MITHRIL_TILE_INLINE void map(void* out, const void* in, int64_t n, F f) {
  using T = typename V::T;
  auto* y = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(in);
  int64_t i = 0;
  for (; i + V::width <= n; i += V::width) f(V::load(x + i)).store(y + i);
  if (i == n) return;
  alignas(64) T rest[kPadded] = {};
  for (int64_t k = i; k < n; ++k) rest[k - i] = x[k];
  f(V::load(rest)).store(rest);
  for (int64_t k = i; k < n; ++k) y[k] = rest[k - i];
}

/// Two vectors, or two of these, in step: while one waits for an operand, the other goes on.
template <class V>
struct Twin {
  using T = typename V::T;
  struct I {
    typename V::I a, b;
    I(typename V::I x, typename V::I y) : a(x), b(y) {}
    I(typename math::Format<T>::Bits x) : a(x), b(x) {}
    friend I operator&(I x, I y) { return {x.a & y.a, x.b & y.b}; }
  };
  V a, b;
  Twin(V x, V y) : a(x), b(y) {}
  Twin(T x) : a(x), b(x) {}
  friend Twin operator-(Twin x, Twin y) { return {x.a - y.a, x.b - y.b}; }
  friend Twin fma(Twin x, Twin y, Twin z) { return {fma(x.a, y.a, z.a), fma(x.b, y.b, z.b)}; }
  friend Twin fnma(Twin x, Twin y, Twin z) { return {fnma(x.a, y.a, z.a), fnma(x.b, y.b, z.b)}; }
  friend I bits(Twin x) { return {bits(x.a), bits(x.b)}; }
  static Twin from_bits(I x) { return {V::from_bits(x.a), V::from_bits(x.b)}; }
  friend Twin at_least(Twin x, Twin c) { return {at_least(x.a, c.a), at_least(x.b, c.b)}; }
  friend Twin at_most(Twin x, Twin c) { return {at_most(x.a, c.a), at_most(x.b, c.b)}; }
  static Twin lookup(tile::Table table, I index) {
    return {V::lookup(table, index.a), V::lookup(table, index.b)};
  }
};

#define X(opcode, text, arity, family, rule, domain, python, name)                    \
  template <class V>                                                                  \
  void run_##name(void* out, const void* a, const void*, const void*, int64_t n) {    \
    map<V>(                                                                           \
        out, a, n, [](V x) __attribute__((always_inline)) { return math::name(x); }); \
  }
MITHRIL_TILE_FORMULAS(X)
#undef X

template <bool tanh, class V>
MITHRIL_TILE_INLINE V gelu_far(V x, V near) {
  return tanh ? math::gelu_tanh_far(x, near) : math::gelu_far(x, near);
}

template <class V, bool tanh>
void run_gelu(void* out, const void* in, const void*, const void*, int64_t n) {
  using T = typename V::T;
  const auto whole = [](V x) __attribute__((always_inline)) {
    return tanh ? math::gelu_tanh(x) : math::gelu(x);
  };
  auto* y = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(in);
  int64_t i = 0;
  if constexpr (sizeof(T) == 4) {
    constexpr auto table = tanh ? tile::Table::kGeluTanh : tile::Table::kGelu;
    const auto load = [](const T* from) {
      return Twin<V>(V::load(from), V::load(from + V::width));
    };
    for (; i + 4 * V::width <= n; i += 4 * V::width) {
      const Twin<Twin<V>> at(load(x + i), load(x + i + 2 * V::width));
      const Twin<Twin<V>> near = math::gelu_near(at, table);
      gelu_far<tanh>(at.a.a, near.a.a).store(y + i);
      gelu_far<tanh>(at.a.b, near.a.b).store(y + i + V::width);
      gelu_far<tanh>(at.b.a, near.b.a).store(y + i + 2 * V::width);
      gelu_far<tanh>(at.b.b, near.b.b).store(y + i + 3 * V::width);
    }
  }
  map<V>(y + i, x + i, n - i, whole);
}

// float32 powers are computed in float64 lanes and rounded once.
template <int step_a, int step_b>
void run_pow_f32(void* out, const void* a, const void* b, const void*, int64_t n) {
  using V = DoubleLane;
  auto* z = static_cast<float*>(out);
  const auto* x = static_cast<const float*>(a);
  const auto* y = static_cast<const float*>(b);
  for (int64_t i = 0; i < n; i += kPadded) {
    alignas(64) double base[kPadded] = {}, exponent[kPadded] = {};
    const int64_t m = n - i < kPadded ? n - i : kPadded;
    for (int64_t k = 0; k < m; ++k) base[k] = static_cast<double>(x[(i + k) * step_a]);
    for (int64_t k = 0; k < m; ++k) exponent[k] = static_cast<double>(y[(i + k) * step_b]);
    for (int64_t k = 0; k < kPadded; k += V::width) {
      math::pow_f32(V::load(base + k), V::load(exponent + k)).store(base + k);
    }
    for (int64_t k = 0; k < m; ++k) z[i + k] = static_cast<float>(base[k]);
  }
}

template <int step_a, int step_b>
void run_pow_f64(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* z = static_cast<double*>(out);
  const auto* x = static_cast<const double*>(a);
  const auto* y = static_cast<const double*>(b);
  for (int64_t i = 0; i < n; ++i) z[i] = tile::pow_lane(x[i * step_a], y[i * step_b]);
}

template <class V, bool tanh, int step_a, int step_b>
void run_gelu_far(void* out, const void* a, const void* b, const void*, int64_t n) {
  using T = typename V::T;
  auto* z = static_cast<T*>(out);
  const auto* x = static_cast<const T*>(a);
  const auto* y = static_cast<const T*>(b);
  for (int64_t i = 0; i < n; i += V::width) {
    alignas(64) T far[kPadded] = {}, near[kPadded] = {};
    const int64_t m = n - i < V::width ? n - i : V::width;
    for (int64_t k = 0; k < m; ++k) far[k] = x[(i + k) * step_a];
    for (int64_t k = 0; k < m; ++k) near[k] = y[(i + k) * step_b];
    gelu_far<tanh>(V::load(far), V::load(near)).store(far);
    for (int64_t k = 0; k < m; ++k) z[i + k] = far[k];
  }
}

template <class V, bool tanh>
LaneFn pick_gelu_far(Shape shape) {
  switch (shape) {
    case Shape::kFirstSingle: return run_gelu_far<V, tanh, 0, 1>;
    case Shape::kSecondSingle: return run_gelu_far<V, tanh, 1, 0>;
    default: return run_gelu_far<V, tanh, 1, 1>;
  }
}

template <uint32_t table>
void run_lookup(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* y = static_cast<float*>(out);
  const auto* x = static_cast<const uint32_t*>(a);
  for (int64_t i = 0; i < n; ++i) y[i] = tile::look_up(static_cast<tile::Table>(table), x[i]);
}

template <uint32_t... tables>
LaneFn pick_lookup(uint32_t table, std::integer_sequence<uint32_t, tables...>) {
  static constexpr LaneFn functions[] = {run_lookup<tables>...};
  return functions[table];
}

LaneFn find_pow(core::DType dtype, Shape shape) {
  const bool f32 = dtype == core::DType::kFloat32;
  switch (shape) {
    case Shape::kFirstSingle: return f32 ? run_pow_f32<0, 1> : run_pow_f64<0, 1>;
    case Shape::kSecondSingle: return f32 ? run_pow_f32<1, 0> : run_pow_f64<1, 0>;
    default: return f32 ? run_pow_f32<1, 1> : run_pow_f64<1, 1>;
  }
}

}  // namespace

LaneFn find_macro(Opcode opcode, core::DType dtype, Shape shape) {
  const bool f32 = dtype == core::DType::kFloat32;
  switch (opcode) {
#define X(opcode, text, arity, family, rule, domain, python, name) \
  case Opcode::opcode: return f32 ? run_##name<FloatLane> : run_##name<DoubleLane>;
    MITHRIL_TILE_FORMULAS(X)
#undef X
    case Opcode::kGelu: return f32 ? run_gelu<FloatLane, false> : run_gelu<DoubleLane, false>;
    case Opcode::kGeluTanh: return f32 ? run_gelu<FloatLane, true> : run_gelu<DoubleLane, true>;
    case Opcode::kPow: return find_pow(dtype, shape);
    case Opcode::kGeluFar:
      return f32 ? pick_gelu_far<FloatLane, false>(shape) : pick_gelu_far<DoubleLane, false>(shape);
    case Opcode::kGeluTanhFar:
      return f32 ? pick_gelu_far<FloatLane, true>(shape) : pick_gelu_far<DoubleLane, true>(shape);
    default: return nullptr;
  }
}

LaneFn find_lookup(uint32_t table) {
  return pick_lookup(table, std::make_integer_sequence<uint32_t, tile::kTableCount>());
}

}  // namespace mithril::cpu::MITHRIL_ISA
