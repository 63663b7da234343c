#include "tile/expand.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "backends/cpu/run_program.h"
#include "tile/builder.h"
#include "tile/evaluate.h"

namespace mithril::tile {
namespace {

using core::DType;
using cpu::testing::Bytes;
using cpu::testing::bytes_of;

/// Bit patterns over all exponents and both signs, in rising order, with the specials.
template <class T, class U>
std::vector<T> patterns(size_t n) {
  const U step = std::numeric_limits<U>::max() / static_cast<U>(n) | 1;
  std::vector<T> out;
  for (size_t i = 0; i < n; ++i) out.push_back(std::bit_cast<T>(static_cast<U>(i * step)));
  for (const T x : {T{0}, -T{0}, T{1}, -T{1}, T{INFINITY}, -T{INFINITY}, T{NAN}}) out.push_back(x);
  for (int e = -20; e <= 8; ++e) {
    for (const T m : {T(1.1), T(1.7)}) {
      out.push_back(std::ldexp(m, e));
      out.push_back(-std::ldexp(m, e));
    }
  }
  return out;
}

std::vector<Opcode> macros() {
  std::vector<Opcode> out;
  for (int k = 0; k < kOpcodeCount; ++k) {
    const auto opcode = static_cast<Opcode>(k);
    if (info(opcode).family == Family::kMacro) out.push_back(opcode);
  }
  return out;
}

Program one(Opcode opcode, DType dtype) {
  Builder t;
  const Reg x = t.load(dtype);
  if (info(opcode).arity == 1) {
    t.store(t.emit(opcode, {x}));
  } else {
    t.store(t.emit(opcode, {x, t.load(dtype)}));
  }
  return t.finish();
}

void expect_expansion_equal(Opcode opcode, DType dtype, const std::vector<Bytes>& inputs, size_t n,
                            Expansion expansion = {}) {
  const Program program = one(opcode, dtype), expanded = expand(program, expansion);
  ASSERT_TRUE(verify(expanded).ok()) << verify(expanded).error().message << print(expanded);
  for (const Instruction& i : expanded.code) {
    ASSERT_NE(info(i.opcode).family, Family::kMacro);
    ASSERT_TRUE(expansion.scale || i.opcode != Opcode::kScale);
  }
  const auto kept = static_cast<int64_t>(n);
  const auto a = evaluate(program, kept, 1, inputs), b = evaluate(expanded, kept, 1, inputs);
  const int64_t at = cpu::testing::first_difference(dtype, a[0], b[0]);
  EXPECT_EQ(at, -1) << info(opcode).text << " of " << core::short_name(dtype);
}

template <class T>
std::vector<Bytes> inputs_for(Opcode opcode, const std::vector<T>& x) {
  if (info(opcode).arity == 1) return {bytes_of(x)};
  std::vector<T> y(x.rbegin(), x.rend());
  for (size_t i = 0; i < y.size(); i += 3) y[i] = static_cast<T>(i % 7) - 3;
  return {bytes_of(x), bytes_of(y)};
}

TEST(Expand, LeavesSinesAsTheyAre) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), a = sin(x), b = cos(x);
  t.store(a + b + exp(x));
  const Program expanded = expand(t.finish(), {.trigonometric = false});
  std::vector<Opcode> left;
  for (const Instruction& i : expanded.code) {
    ASSERT_NE(info(i.opcode).family, Family::kExtern);
    if (info(i.opcode).family == Family::kMacro) left.push_back(i.opcode);
  }
  EXPECT_EQ(left, (std::vector<Opcode>{Opcode::kSin, Opcode::kCos}));
}

TEST(Expand, MacrosEqualTheirExpansions) {
  const auto f32 = patterns<float, uint32_t>(1001);
  const auto f64 = patterns<double, uint64_t>(501);
  for (const Opcode opcode : macros()) {
    for (const bool scale : {true, false}) {
      const Expansion expansion{.scale = scale, .extern_far = scale};
      expect_expansion_equal(opcode, DType::kFloat32, inputs_for(opcode, f32), f32.size(),
                             expansion);
      expect_expansion_equal(opcode, DType::kFloat64, inputs_for(opcode, f64), f64.size(),
                             expansion);
    }
  }
}

TEST(Expand, HalvesComputeInFloat32AndRoundEachTime) {
  std::vector<uint16_t> x, y;
  for (uint32_t h = 0; h < 0x10000; h += 37) {
    x.push_back(static_cast<uint16_t>(h));
    y.push_back(static_cast<uint16_t>(h * 40503u));
  }
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Builder t;
    const Reg a = t.load(dtype), b = t.load(dtype);
    t.store(exp(a * b + 0.1) / (a - b));
    t.store(max(select(a < b, -a, b), 0.5));
    t.store(gelu(a));
    t.store(t.cast(a, DType::kInt16));
    const Program program = t.finish(), wide = widen_halves(program);
    ASSERT_TRUE(verify(wide).ok());
    const std::vector<Bytes> inputs{bytes_of(x), bytes_of(y)};
    const auto n = static_cast<int64_t>(x.size());
    const auto p = evaluate(program, n, 1, inputs), q = evaluate(wide, n, 1, inputs);
    for (size_t k = 0; k < p.size(); ++k) {
      EXPECT_EQ(cpu::testing::first_difference(program.outputs[k], p[k], q[k]), -1) << k;
    }
  }
}

TEST(Expand, KeepsWhatHasNoMacro) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), r = t.load_row(DType::kInt32);
  t.store(reduce_sum(x, Order::kRows));
  t.store(t.cumsum(x + t.cast(r, DType::kFloat32)), Level::kLane);
  t.store(t.threefry(r, r, t.position(), 1));
  const Program program = t.finish();
  EXPECT_EQ(print(expand(program)).size(), print(program).size());
}

}  // namespace
}  // namespace mithril::tile
