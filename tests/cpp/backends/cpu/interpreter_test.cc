#include "backends/cpu/interpreter.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "backends/cpu/run_program.h"
#include "tile/builder.h"
#include "tile/evaluate.h"
#include "tile/expand.h"

namespace mithril::cpu {
namespace {

using core::DType;
using testing::Bytes;
using testing::bytes_of;
using testing::Domain;
using testing::values_of;
using tile::Builder;
using tile::Reg;

void expect_equal(const tile::Program& program, const std::vector<Bytes>& got,
                  const std::vector<Bytes>& wanted, const std::string& where) {
  for (size_t k = 0; k < wanted.size(); ++k) {
    const int64_t at = testing::first_difference(program.outputs[k], got[k], wanted[k]);
    ASSERT_EQ(at, -1) << where << ": output " << k << "\n" << print(program);
  }
}

/// Runs everywhere and compares with the evaluator.
void check(const tile::Program& program, const Domain& domain, const std::vector<Bytes>& inputs,
           const std::vector<double>& scalars = {}) {
  const auto wanted =
      tile::evaluate(program, domain.kept_points(), domain.reduced_points(), inputs, scalars);
  for (const Isa isa : testing::isas()) {
    expect_equal(program, testing::run(program, isa, domain, inputs, scalars), wanted,
                 std::string(name(isa)));
  }
}

std::vector<float> random_floats(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

TEST(Interpreter, AddsABias) {
  Builder t;
  t.store(t.load(DType::kFloat32) + t.load(DType::kFloat32));
  const auto program = t.finish();
  const Bytes a = bytes_of<float>({1, 2, 3}), b = bytes_of<float>({10, 20, 30});
  for (const Isa isa : testing::isas()) {
    const auto out = testing::run(program, isa, {{3}, {}}, {a, b});
    EXPECT_EQ(values_of<float>(out[0]), (std::vector<float>{11, 22, 33}));
  }
}

TEST(Interpreter, PointwiseOfManySizes) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), y = t.load(DType::kFloat32);
  const Reg s = gelu(x + y);
  t.store(s * 2.0);
  t.store(select(x < y, s, 0.0));
  t.store(cast(x * 100.0, DType::kInt32));
  t.store(t.position());
  const auto program = t.finish();
  for (const int64_t n : {0, 1, 15, 16, 17, 63, 64, 65, 320, 1023, 1024, 1025, 5000, 100000}) {
    const auto count = static_cast<size_t>(n);
    check(program, {{n}, {}},
          {bytes_of(random_floats(count, 1)), bytes_of(random_floats(count, 2))});
  }
}

TEST(Interpreter, Softmax) {
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  const Reg e = exp(x - reduce_max(x));
  t.store(e / reduce_sum(e));
  const auto program = t.finish();
  for (const int64_t n : {1, 5, 128, 1000, 4096, 4097, 20000}) {
    const auto count = static_cast<size_t>(7 * n);
    check(program, {{7}, {n}}, {bytes_of(random_floats(count, 3))});
  }
}

TEST(Interpreter, ReductionOrders) {
  for (const auto order : {tile::Order::kLanes, tile::Order::kRows}) {
    Builder t;
    const Reg x = t.load(DType::kFloat32), h = t.cast(x, DType::kFloat16);
    t.store(t.reduce(tile::Opcode::kReduceSum, x, order));
    t.store(t.reduce(tile::Opcode::kReduceProd, 1.0 + x * 1e-3, order));
    t.store(t.reduce(tile::Opcode::kReduceSum, h, order));
    t.store(t.reduce(tile::Opcode::kReduceMax, x));
    t.store(t.reduce(tile::Opcode::kReduceMin, h));
    t.store(t.reduce(tile::Opcode::kReduceArgMax, x));
    t.store(t.reduce(tile::Opcode::kReduceArgMin, h));
    t.store(t.reduce(tile::Opcode::kReduceAny, x > 3.0));
    t.store(t.reduce(tile::Opcode::kReduceAll, x > -3.0));
    t.store(t.reduce(tile::Opcode::kReduceSum, t.cast(x * 1e8, DType::kInt32), order));
    const auto program = t.finish();
    for (const int64_t n : {0, 1, 15, 16, 17, 63, 64, 65, 300, 4095, 4096, 4097, 50000}) {
      const auto count = static_cast<size_t>(3 * n);
      check(program, {{3}, {n}}, {bytes_of(random_floats(count, 4))});
    }
  }
}

}  // namespace
}  // namespace mithril::cpu
