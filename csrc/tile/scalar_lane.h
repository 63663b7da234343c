// The lane type of one element: what tile/math.h computes with where there are no vectors.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tile/extern_lane.h"
#include "tile/math.h"

namespace mithril::tile {

template <class T_>
struct ScalarLane {
  using T = T_;
  using B = typename math::Format<T>::Bits;
  struct I {
    B v;
    I(B b) : v(b) {}
    friend I operator+(I a, I b) { return static_cast<B>(a.v + b.v); }
    friend I operator-(I a, I b) { return static_cast<B>(a.v - b.v); }
    friend I operator&(I a, I b) { return static_cast<B>(a.v & b.v); }
    friend I operator|(I a, I b) { return static_cast<B>(a.v | b.v); }
    friend I operator^(I a, I b) { return static_cast<B>(a.v ^ b.v); }
  };
  using M = bool;
  static constexpr int width = 1;
  T v;
  ScalarLane(T x) : v(x) {}
  static ScalarLane load(const T* p) { return *p; }
  void store(T* p) const { *p = v; }
  friend ScalarLane operator+(ScalarLane a, ScalarLane b) { return a.v + b.v; }
  friend ScalarLane operator-(ScalarLane a, ScalarLane b) { return a.v - b.v; }
  friend ScalarLane operator*(ScalarLane a, ScalarLane b) { return a.v * b.v; }
  friend ScalarLane operator/(ScalarLane a, ScalarLane b) { return a.v / b.v; }
  friend M operator<(ScalarLane a, ScalarLane b) { return a.v < b.v; }
  friend M operator==(ScalarLane a, ScalarLane b) { return a.v == b.v; }
  friend ScalarLane fma(ScalarLane a, ScalarLane b, ScalarLane c) {
    return std::fma(a.v, b.v, c.v);
  }
  friend ScalarLane fms(ScalarLane a, ScalarLane b, ScalarLane c) {
    return std::fma(a.v, b.v, -c.v);
  }
  friend ScalarLane fnma(ScalarLane a, ScalarLane b, ScalarLane c) {
    return std::fma(-a.v, b.v, c.v);
  }
  friend ScalarLane sqrt(ScalarLane a) { return std::sqrt(a.v); }
  friend ScalarLane select(M m, ScalarLane a, ScalarLane b) { return m ? a.v : b.v; }
  friend I bits(ScalarLane a) {
    B b;
    std::memcpy(&b, &a.v, sizeof b);
    return b;
  }
  static ScalarLane from_bits(I i) {
    T x;
    std::memcpy(&x, &i.v, sizeof x);
    return x;
  }
  template <int n>
  static I shl(I a) {
    return static_cast<B>(a.v << n);
  }
  template <int n>
  static I shr(I a) {
    return static_cast<B>(a.v >> n);
  }
  friend ScalarLane at_least(ScalarLane x, ScalarLane c) { return c.v > x.v ? c.v : x.v; }
  friend ScalarLane at_most(ScalarLane x, ScalarLane c) { return c.v < x.v ? c.v : x.v; }
  static ScalarLane lookup(Table table, I index) {
    return look_up(table, static_cast<uint32_t>(index.v));
  }
  template <class F>
  friend ScalarLane otherwise(M m, ScalarLane a, F f) {
    return m ? a : f();
  }
  friend math::Reduced<ScalarLane> replace_huge(ScalarLane x, math::Reduced<ScalarLane> fast) {
    if (!(std::fabs(x.v) > math::Limits<T>::trig_hi)) return fast;
    const auto turns = reduce_turns(x.v);
    return {turns.n, turns.r, turns.low};
  }
};

}  // namespace mithril::tile
