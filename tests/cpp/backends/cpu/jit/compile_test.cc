// Covers: backends/cpu/jit/assembler.cc backends/cpu/jit/body.cc backends/cpu/jit/can_lower.cc
// Covers: backends/cpu/jit/function.cc backends/cpu/jit/fuse_steps.cc backends/cpu/jit/lower.cc
// Covers: backends/cpu/jit/memory.cc
#include "backends/cpu/jit/compile.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include "backends/cpu/jit/code_memory.h"
#include "backends/cpu/jit/fuse_steps.h"
#include "backends/cpu/loops/tile_code.h"
#include "backends/cpu/random_program.h"
#include "tile/evaluate.h"

namespace mithril::cpu::jit {
namespace {

using core::DType;
using testing::Bytes;
using testing::bytes_of;
using testing::Domain;
using testing::Engine;
using tile::Builder;
using tile::Reg;

const std::vector<double> kScalars{1.75};

std::vector<Isa> compiled_sets() {
  std::vector<Isa> out;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (supports(isa)) out.push_back(isa);
  }
  return out;
}

void expect_equal(const tile::Program& program, const std::vector<Bytes>& got,
                  const std::vector<Bytes>& wanted, const std::string& where) {
  for (size_t k = 0; k < wanted.size(); ++k) {
    const int64_t at = testing::first_difference(program.outputs[k], got[k], wanted[k]);
    ASSERT_EQ(at, -1) << where << ": output " << k << "\n" << print(program);
  }
}

int64_t compiled_steps(const tile::Program& program, Isa isa, Layout layout) {
  const auto kernel = TileKernel::make(program, isa).or_throw();
  return static_cast<int64_t>(kernel->code().schedule(layout, false).compiled.size());
}

std::vector<Bytes> random_inputs(std::mt19937& rng, const tile::Program& program,
                                 const Domain& domain) {
  std::vector<Bytes> out;
  for (uint32_t k = 0; k < program.inputs.size(); ++k) {
    const size_t n = testing::elements(domain, input_level(program, k));
    out.push_back(testing::random_elements(rng, program.inputs[k], n));
  }
  return out;
}

/// Equal to the evaluator in every engine.
void check(const tile::Program& program, const Domain& domain, const std::vector<Bytes>& inputs) {
  const auto wanted =
      tile::evaluate(program, domain.kept_points(), domain.reduced_points(), inputs, kScalars);
  for (const Engine engine : testing::engines()) {
    expect_equal(program, testing::run(program, engine, domain, inputs, kScalars), wanted,
                 name(engine));
  }
}

/// Lane inputs with the kept dim innermost, so that tiles lie across rows.
void check_across(const tile::Program& program, int64_t rows, int64_t r,
                  const std::vector<Bytes>& inputs) {
  const auto wanted = tile::evaluate(program, rows, r, inputs, kScalars);
  std::vector<Bytes> moved = inputs;
  std::vector<testing::Strides> strides;
  for (uint32_t k = 0; k < program.inputs.size(); ++k) {
    const tile::Level level = input_level(program, k);
    const bool lane = level == tile::Level::kLane;
    strides.push_back(lane ? testing::Strides{{1}, {rows}} : testing::dense({{rows}, {r}}, level));
    const auto size = static_cast<int64_t>(core::size_of(program.inputs[k]));
    for (int64_t i = 0; i < rows && lane; ++i) {
      for (int64_t j = 0; j < r; ++j) {
        std::memcpy(&moved[k][static_cast<size_t>((j * rows + i) * size)],
                    &inputs[k][static_cast<size_t>((i * r + j) * size)], static_cast<size_t>(size));
      }
    }
  }
  const std::vector<int64_t> base(inputs.size(), 0);
  for (const Engine engine : testing::engines()) {
    expect_equal(
        program,
        testing::run_strided(program, engine, {{rows}, {r}}, moved, strides, base, kScalars),
        wanted, name(engine));
  }
}

testing::RandomShape random_shape(std::mt19937& rng, bool reducing, tile::Order order) {
  testing::RandomShape shape;
  shape.reducing = reducing;
  shape.order = order;
  shape.halves = rng() % 2 == 0;
  shape.wide = rng() % 2 == 0;
  shape.instructions = 3 + static_cast<int>(rng() % 40);
  return shape;
}

constexpr uint32_t kSeed = 20261123;

// ---- random programs

TEST(Jit, RandomPointwiseProgramsEqualTheEvaluator) {
  int64_t compiled = 0;
  for (uint32_t round = 0; round < 2000; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed + round));
    std::mt19937 rng(kSeed + round);
    const auto program = random_program(rng, random_shape(rng, false, tile::Order::kLanes));
    const int64_t n =
        round % 4 == 0 ? static_cast<int64_t>(rng() % 3000) : static_cast<int64_t>(rng() % 131);
    const Domain domain{{n}, {}};
    check(program, domain, random_inputs(rng, program, domain));
    if (HasFatalFailure()) return;
    for (const Isa isa : compiled_sets())
      compiled += compiled_steps(program, isa, Layout::kPointwise);
  }
  EXPECT_GT(compiled, compiled_sets().empty() ? -1 : 1200);
}

TEST(Jit, RandomReductionsAlongRowsEqualTheEvaluator) {
  for (uint32_t round = 0; round < 1200; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed + round));
    std::mt19937 rng(kSeed + round);
    const auto program = random_program(rng, random_shape(rng, true, tile::Order::kLanes));
    if (!is_reducing(program)) continue;
    const int64_t r = round % 16 == 0 ? 4000 + static_cast<int64_t>(rng() % 300)
                                      : static_cast<int64_t>(rng() % 131);
    const Domain domain{{1 + static_cast<int64_t>(rng() % 7)}, {r}};
    check(program, domain, random_inputs(rng, program, domain));
    if (HasFatalFailure()) return;
  }
}

TEST(Jit, RandomReductionsAcrossRowsEqualTheEvaluator) {
  for (uint32_t round = 0; round < 1200; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed + round));
    std::mt19937 rng(kSeed + round);
    const auto program = random_program(rng, random_shape(rng, true, tile::Order::kRows));
    if (!is_reducing(program)) continue;
    const auto rows = 1 + static_cast<int64_t>(rng() % 131);
    const auto r = static_cast<int64_t>(rng() % (round % 8 == 0 ? 300 : 20));
    check_across(program, rows, r, random_inputs(rng, program, {{rows}, {r}}));
    if (HasFatalFailure()) return;
  }
}

// Every length, so that a tail of any size touches nothing outside of its arrays (guard pages).
TEST(Jit, EveryTail) {
  Builder t;
  const Reg a = t.load(DType::kFloat32), b = t.load(DType::kUInt8), c = t.load(DType::kFloat16),
            d = t.load(DType::kBool), e = t.load(DType::kInt16), f = t.load(DType::kBFloat16);
  const Reg sum = a + cast(b, DType::kFloat32) * cast(c, DType::kFloat32);
  t.store(select(d, sum, cast(e, DType::kFloat32)));
  t.store(cast(sum, DType::kBFloat16) * f);
  t.store(cast(sum, DType::kInt8));
  t.store(sum < 1.0);
  t.store(cast(sum, DType::kInt16) + e);
  const auto narrow = t.finish();
  const Reg x = t.load(DType::kFloat64), y = t.load(DType::kInt64), z = t.load(DType::kBool),
            w = t.load(DType::kUInt8), h = t.load(DType::kFloat16);
  t.store(select(z, x * 2.0, x - 1.0));
  t.store(y + cast(w, DType::kInt64));
  t.store((cast(x, DType::kFloat32) < 1.0) & z);
  t.store(cast(cast(h, DType::kFloat64) + x, DType::kUInt8));
  t.store(select(z, h, cast(cast(x, DType::kFloat32), DType::kFloat16)));
  const auto wide = t.finish();
  std::mt19937 rng(kSeed);
  for (int64_t n = 0; n <= 130; ++n) {
    for (const auto& program : {narrow, wide}) {
      const Domain domain{{n}, {}};
      check(program, domain, random_inputs(rng, program, domain));
    }
  }
}

TEST(Jit, EveryTailOfRows) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64}) {
    for (const auto order : {tile::Order::kLanes, tile::Order::kRows}) {
      Builder t;
      const Reg x = t.load(dtype), scale = t.load_row(dtype), z = x * scale;
      for (const auto opcode : {tile::Opcode::kReduceSum, tile::Opcode::kReduceProd,
                                tile::Opcode::kReduceMax, tile::Opcode::kReduceMin}) {
        t.store(t.reduce(opcode, z, order));
      }
      t.store(z - t.reduce(tile::Opcode::kReduceMax, z));
      const auto program = t.finish();
      std::mt19937 rng(kSeed);
      for (int64_t r = 0; r <= 130; r += r < 40 ? 1 : 7) {
        const Domain domain{{3}, {r}};
        check(program, domain, random_inputs(rng, program, domain));
        if (order == tile::Order::kRows && r > 0) {
          check_across(program, r, 5, random_inputs(rng, program, {{r}, {5}}));
        }
      }
    }
  }
}

// More values alive than there are registers, vectors as well as masks.
TEST(Jit, SpillsAndReturns) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), y = t.load(DType::kFloat32);
  std::vector<Reg> values, masks;
  for (int k = 0; k < 60; ++k) values.push_back(t.fma(x, t.constant(DType::kFloat32, k + 0.5), y));
  for (int k = 0; k < 20; ++k) masks.push_back(values[static_cast<size_t>(k)] < y * (k - 9.0));
  Reg sum = x;
  for (const Reg mask : masks) sum = select(mask, sum + 1.0, sum * 0.5);
  for (size_t k = values.size(); k-- > 0;) sum = sum * 0.75 + values[k];
  Reg all = masks[0];
  for (const Reg mask : masks) all = all ^ mask;
  t.store(sum);
  t.store(all);
  const auto program = t.finish();
  std::mt19937 rng(kSeed);
  for (const int64_t n : {1, 16, 100, 1000}) {
    check(program, {{n}, {}}, random_inputs(rng, program, {{n}, {}}));
  }
}

TEST(Jit, MoreInputsThanPointers) {
  Builder t;
  std::vector<Reg> inputs;
  for (int k = 0; k < 12; ++k)
    inputs.push_back(t.load(k % 3 == 0 ? DType::kInt8 : DType::kFloat32));
  Reg sum = cast(inputs[0], DType::kFloat32);
  for (const Reg input : inputs) sum = sum * 0.5 + cast(input, DType::kFloat32);
  for (int k = 0; k < 5; ++k) t.store(sum * (k + 1.0));
  const auto program = t.finish();
  std::mt19937 rng(kSeed);
  for (const int64_t n : {1, 15, 33, 500}) {
    check(program, {{n}, {}}, random_inputs(rng, program, {{n}, {}}));
  }
}

// ---- in place

// Outputs that lie on inputs, wherever the kernel allows it.
void check_in_place(const tile::Program& program, const Domain& domain,
                    const std::vector<Bytes>& inputs) {
  const auto wanted =
      tile::evaluate(program, domain.kept_points(), domain.reduced_points(), inputs, kScalars);
  for (const Engine engine : testing::engines()) {
    const auto kernel = TileKernel::make(program, engine.isa, engine.compiled).or_throw();
    std::vector<Bytes> arrays = inputs;
    std::vector<size_t> at;
    std::vector<bool> taken(inputs.size(), false);
    for (uint32_t k = 0; k < program.outputs.size(); ++k) {
      at.push_back(arrays.size());
      for (uint32_t i = 0; i < program.inputs.size() && at[k] >= inputs.size(); ++i) {
        const bool fits = !taken[i] && program.inputs[i] == program.outputs[k] &&
                          inputs[i].size() == wanted[k].size() && kernel->can_alias(i, k);
        if (fits) taken[at[k] = i] = true;
      }
      if (at[k] >= inputs.size()) arrays.emplace_back(wanted[k].size());
    }
    std::vector<void*> buffers;
    std::vector<testing::Strides> strides;
    std::vector<OperandStrides> operands;
    for (size_t i = 0; i < inputs.size(); ++i) buffers.push_back(arrays[i].data());
    for (const size_t k : at) buffers.push_back(arrays[k].data());
    for (uint32_t k = 0; k < program.inputs.size(); ++k) {
      strides.push_back(dense(domain, input_level(program, k)));
    }
    for (uint32_t k = 0; k < program.outputs.size(); ++k) {
      strides.push_back(dense(domain, output_level(program, k)));
    }
    for (const auto& s : strides) operands.push_back({s.kept, s.reduced});
    const LoopCall loop = make_loop(*kernel, domain.kept, domain.reduced, operands);
    std::vector<std::max_align_t> scratch(loop.scratch_bytes / sizeof(std::max_align_t) + 8);
    const plan::KernelArgs args{buffers.data(),  loop.params.data(),
                                kScalars.data(), kernel.get(),
                                scratch.data(),  0,
                                nullptr,         nullptr};
    const FloatEnvironment environment;
    kernel->function()(args, 0, loop.units);
    std::vector<Bytes> got;
    for (const size_t k : at) got.push_back(arrays[k]);
    expect_equal(program, got, wanted, name(engine));
  }
}

TEST(Jit, RandomProgramsInPlaceEqualTheEvaluator) {
  for (uint32_t round = 0; round < 800; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed + round));
    std::mt19937 rng(kSeed + round);
    const bool reducing = round % 2 == 0;
    auto shape = random_shape(rng, reducing, tile::Order::kLanes);
    shape.halves = shape.wide = false;
    const auto program = random_program(rng, shape);
    if (is_reducing(program) != reducing) continue;
    const auto n = static_cast<int64_t>(rng() % 200);
    const Domain domain = reducing ? Domain{{3}, {n}} : Domain{{n}, {}};
    check_in_place(program, domain, random_inputs(rng, program, domain));
    if (HasFatalFailure()) return;
  }
}

// ---- code

TEST(Jit, RunsWhatIsInSealedMemory) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), e = exp(x - reduce_max(x));
  t.store(e / reduce_sum(e));
  const auto program = t.finish();
  for (const Isa isa : compiled_sets()) {
    const auto kernel = TileKernel::make(program, isa).or_throw();
    const TileSchedule& schedule = kernel->code().schedule(Layout::kRowInside, false);
    ASSERT_NE(schedule.code, nullptr);
    EXPECT_EQ(schedule.compiled.size(), 2u);  // maxima alone are no more than a call
    for (const CompiledStep& step : schedule.compiled) {
      EXPECT_TRUE(schedule.code->contains(reinterpret_cast<const void*>(step.fn)));
    }
  }
}

// What has no machine code of its own stands between compiled steps.
TEST(Jit, CallsWhatItCannotCompile) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), y = t.load(DType::kFloat32);
  t.store(sin(x * y + 1.0) * 2.0 + x);
  const auto program = t.finish();
  for (const Isa isa : compiled_sets()) {
    EXPECT_EQ(compiled_steps(program, isa, Layout::kPointwise), 2);
  }
}

// Rare lanes are computed by a call, which must leave every other register as it was: masks, sums
// in registers, constants, inputs, and what the loop counts with.
TEST(Jit, CallsForRareLanesOnly) {
  for (const int64_t far : {-1, 0, 5, 16, 40}) {  // the place of the only one
    for (const int64_t n : {1, 7, 16, 33, 100}) {
      std::vector<float> x(static_cast<size_t>(3 * n));
      for (size_t k = 0; k < x.size(); ++k) {
        const bool is_far = far >= 0 && static_cast<int64_t>(k) % n == far;
        x[k] = is_far ? -7.5f : std::sin(static_cast<float>(k)) * 4;
      }
      Builder t;
      const Reg a = t.load(DType::kFloat32), b = t.load(DType::kFloat32);
      const Reg is_less = a < b, y = gelu(a), z = gelu_tanh(b * 0.5 + y);
      Reg sum = a * 1.25 + b;
      for (int k = 0; k < 20; ++k) sum = sum * a + (0.01 * k - 1.0);
      t.store(t.select(is_less, y, z) + sum);
      t.store(reduce_sum(y - sum));
      t.store(reduce_max(z));
      std::vector<float> reversed(x.rbegin(), x.rend());
      check(t.finish(), {{3}, {n}}, {bytes_of(x), bytes_of(reversed)});
    }
  }
}

TEST(Jit, LeavesASingleCallAsItIs) {
  for (const bool two : {false, true}) {
    Builder t;
    const Reg x = t.load(DType::kFloat32), y = gelu(x);
    t.store(two ? y + x : y);
    const auto program = t.finish();
    for (const Isa isa : compiled_sets()) {
      EXPECT_EQ(compiled_steps(program, isa, Layout::kPointwise), two ? 1 : 0);
    }
  }
}

TEST(Jit, InterpretsOnRequestAndWithoutVectors) {
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.store(x * x + 1.0);
  const auto program = t.finish();
  const auto interpreted = TileKernel::make(program, detect_isa(), false).or_throw();
  EXPECT_TRUE(interpreted->code().schedule(Layout::kPointwise, false).compiled.empty());
  EXPECT_EQ(compiled_steps(program, Isa::kGeneric, Layout::kPointwise), 0);
  EXPECT_FALSE(is_refused());
}

/// Of each compiled step: values for which the next tile is asked for.
std::vector<int64_t> fetched_ahead(const tile::Program& program, const CodeTarget& target) {
  const auto kernel = TileKernel::make(program, target.isa).or_throw();
  const TileSchedule schedule =
      make_fused_schedule(program, *kernel->code().table, target, jit::fuse_steps);
  std::vector<int64_t> out;
  for (const CompiledStep& step : schedule.compiled) {
    const auto& values = step.program.values;
    out.push_back(
        std::count_if(values.begin(), values.end(), [](const Value& v) { return v.ahead; }));
  }
  return out;
}

// While the second section works on a tile of rows, memory would rest.
TEST(Jit, AsksForTheNextRowsOfWhatNoCacheHolds) {
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  const Reg centred = x - t.reduce(tile::Opcode::kReduceMax, abs(x));
  t.store(centred * t.reduce(tile::Opcode::kReduceSum, centred * centred));
  const auto program = t.finish();
  for (const Isa isa : compiled_sets()) {
    CodeTarget target{isa, Layout::kRowInside, false, true};
    EXPECT_EQ(fetched_ahead(program, target), (std::vector<int64_t>{0, 1, 0}));
    target.recompute = true;  // chunks of a row
    EXPECT_EQ(fetched_ahead(program, target), (std::vector<int64_t>{0, 1, 0}));
    target.streams = false;
    EXPECT_EQ(fetched_ahead(program, target), (std::vector<int64_t>{0, 0, 0}));
  }
}

// In a process of its own, as neither can be taken back.
[[noreturn]] void run_without_executable_memory() {
  constexpr int kSetMdwe = 65, kRefuseExecGain = 1;  // Linux 6.3
  if (prctl(kSetMdwe, kRefuseExecGain, 0, 0, 0) != 0) std::_Exit(0);
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.store(x * 1.0625 + 3.0);
  const auto program = t.finish();
  const std::vector<Bytes> inputs{testing::bytes_of<float>({1, 2, 3})};
  const bool equal = testing::run(program, Engine(detect_isa(), true), {{3}, {}}, inputs) ==
                     tile::evaluate(program, 3, 1, inputs);
  const bool told_once = take_jit_denied() && !take_jit_denied();
  std::_Exit(equal && is_refused() && told_once && !is_on(detect_isa()) ? 0 : 1);
}

TEST(JitDeathTest, InterpretsWhereMemoryForCodeIsRefused) {
  if (!is_on(detect_isa())) GTEST_SKIP() << "nothing is compiled here";
  EXPECT_EXIT(run_without_executable_memory(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mithril::cpu::jit
