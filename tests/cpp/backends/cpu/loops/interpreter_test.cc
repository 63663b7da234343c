// Covers: backends/cpu/*/*_isa.cc backends/cpu/schedule/schedule.cc
#include "backends/cpu/loops/interpreter.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu/run_program.h"
#include "tile/builder.h"
#include "tile/convert.h"
#include "tile/evaluate.h"
#include "tile/expand.h"

namespace mithril::cpu {
namespace {

using core::DType;
using testing::Bytes;
using testing::bytes_of;
using testing::Domain;
using testing::encode;
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
  for (const testing::Engine engine : testing::engines()) {
    expect_equal(program, testing::run(program, engine, domain, inputs, scalars), wanted,
                 name(engine));
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
  for (const testing::Engine engine : testing::engines()) {
    const auto out = testing::run(program, engine, {{3}, {}}, {a, b});
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

// Outputs above 16 MiB go past the caches; rows do or do not end with lines.
TEST(Interpreter, StreamsWhatNoCacheHolds) {
  Builder t;
  const Reg x = t.load(DType::kFloat64);
  t.store(x * 2.0 - t.reduce(tile::Opcode::kReduceMax, x));
  t.store(x + 1.0);
  const auto program = t.finish();
  const std::pair<int64_t, int64_t> shapes[] = {
      {3, 1'000'003}, {3, 1'000'000}, {150'000, 18}, {70'000, 32}};
  for (const auto& [rows, length] : shapes) {
    const auto count = static_cast<size_t>(rows * length);
    std::vector<double> in(count), first(count), second(count);
    for (size_t at = 0; at < count; ++at) {
      in[at] = static_cast<double>(at % static_cast<size_t>(length));
      first[at] = 2 * in[at] - static_cast<double>(length - 1);
      second[at] = in[at] + 1;
    }
    for (const testing::Engine engine : testing::engines()) {
      const auto out = testing::run(program, engine, {{rows}, {length}}, {bytes_of(in)});
      EXPECT_TRUE(values_of<double>(out[0]) == first) << name(engine);
      EXPECT_TRUE(values_of<double>(out[1]) == second) << name(engine);
    }
  }
}

// Of several types, one of which is never streamed; and one is read again.
TEST(Interpreter, StreamsSeveralOutputsThatAreLargeTogether) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), shift = t.load_uniform(DType::kFloat32);
  const Reg moved = x * 0.5 + shift, wide = t.cast(x, DType::kFloat64) * 3.0;
  t.store(moved);
  t.store(wide);
  t.store(x < shift);
  t.store(t.cast(moved - x, DType::kInt32));
  const auto program = t.finish();
  constexpr int64_t kCount = (int64_t{1} << 20) + 65;
  check(program, {{kCount}, {}},
        {bytes_of(random_floats(kCount, 5)), bytes_of(std::vector<float>{0.25F})});
}

// Where outputs lie on no line's beginning, they are copied.
TEST(Interpreter, StreamsToPlacesBetweenLines) {
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.store(x * x + 1.0);
  const auto program = t.finish();
  constexpr int64_t kCount = (int64_t{5} << 20) + 32;
  const auto in = random_floats(kCount, 6);
  std::vector<float> out(kCount + 32);
  for (const testing::Engine engine : testing::engines()) {
    const auto kernel = TileKernel::make(program, engine.isa, engine.compiled).or_throw();
    const int64_t dims[] = {kCount}, one[] = {1};
    const std::vector<OperandStrides> operands(2, OperandStrides{one, {}});
    const LoopCall loop = make_loop(*kernel, dims, {}, operands);
    std::vector<std::max_align_t> scratch(loop.scratch_bytes / sizeof(std::max_align_t) + 8);
    void* aligned = scratch.data();
    size_t room = scratch.size() * sizeof(std::max_align_t);
    std::align(64, loop.scratch_bytes, aligned, room);
    for (const size_t offset : {size_t{0}, size_t{1}, size_t{4}}) {
      const size_t line = (64 - reinterpret_cast<uintptr_t>(out.data()) % 64) % 64 / 4;
      float* const to = out.data() + line + offset;
      void* buffers[] = {const_cast<float*>(in.data()), to};
      const plan::KernelArgs args{
          buffers, loop.params.data(), nullptr, kernel.get(), aligned, 0, nullptr, nullptr};
      EXPECT_EQ(kernel->function()(args, 0, loop.units), plan::KernelStatus::kOk);
      for (size_t i = 0; i < in.size(); ++i) {
        ASSERT_EQ(to[i], in[i] * in[i] + 1.0F) << name(engine) << " at " << i;
      }
    }
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

// ---- every instruction on every type

template <class T>
void add_specials(std::vector<double>& out) {
  using L = std::numeric_limits<T>;
  for (const double x : {static_cast<double>(L::max()), static_cast<double>(L::lowest()), 0.0, 1.0,
                         2.0, 3.0, 5.0, 7.0, 8.0, 15.0, 31.0, 32.0, 33.0, 63.0, 64.0, 100.0}) {
    out.push_back(x);
    out.push_back(-x);
  }
}

std::vector<double> special_numbers(DType dtype) {
  std::vector<double> out;
  switch (dtype) {
    case DType::kInt8: add_specials<int8_t>(out); break;
    case DType::kUInt8: add_specials<uint8_t>(out); break;
    case DType::kInt16: add_specials<int16_t>(out); break;
    case DType::kInt32: add_specials<int32_t>(out); break;
    case DType::kInt64: add_specials<int64_t>(out); break;
    case DType::kFloat64: add_specials<double>(out); break;
    default: add_specials<float>(out);
  }
  if (!core::is_float(dtype)) return out;
  for (const double x :
       {0.5,   1.5,    2.5,     -0.5, -1.5, 0.3,  1e-3,         -1e-3,  1e-40, -1e-310, 6e-8,
        300.7, -127.2, 65504.0, 1e10, -3e9, 1e19, 2147483648.0, 9.3e18, 1e30,  -1e300}) {
    out.push_back(x);
  }
  out.insert(out.end(), {INFINITY, -INFINITY, NAN});
  return out;
}

constexpr DType kAllTypes[] = {DType::kBool,    DType::kUInt8,  DType::kInt8,    DType::kInt16,
                               DType::kInt32,   DType::kInt64,  DType::kFloat16, DType::kBFloat16,
                               DType::kFloat32, DType::kFloat64};

/// All pairs of special numbers, as two columns.
std::pair<Bytes, Bytes> all_pairs(DType dtype) {
  std::vector<double> a, b;
  for (const double x : special_numbers(dtype)) {
    for (const double y : special_numbers(dtype)) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  return {encode(dtype, a), encode(dtype, b)};
}

// In both operand shapes: two columns, and a constant on either side.
void check_instruction(tile::Opcode opcode, DType dtype) {
  const auto [a, b] = all_pairs(dtype);
  const auto n = static_cast<int64_t>(a.size() / core::size_of(dtype));
  Builder t;
  const Reg x = t.load(dtype), y = t.load(dtype), three = t.constant(dtype, 3);
  const size_t arity = info(opcode).arity;
  if (arity == 1) {
    t.store(t.emit(opcode, {x}));
    t.store(t.emit(opcode, {three}));
  } else if (arity == 2) {
    t.store(t.emit(opcode, {x, y}));
    t.store(t.emit(opcode, {x, three}));
    t.store(t.emit(opcode, {three, y}));
    t.store(t.emit(opcode, {three, three}));
  } else if (opcode == tile::Opcode::kSelect) {
    const Reg c = t.emit(tile::Opcode::kNotEqual, {x, y});
    t.store(t.select(c, x, y));
    t.store(t.select(c, three, y));
    t.store(t.select(c, x, three));
  } else {
    t.store(t.emit(opcode, {x, y, y}));
    t.store(t.emit(opcode, {x, three, y}));
    t.store(t.emit(opcode, {three, x, three}));
  }
  check(t.finish(), {{n}, {}}, {a, b});
}

TEST(Interpreter, EveryInstructionOnEveryType) {
  int checked = 0;
  for (int k = 0; k < tile::kOpcodeCount; ++k) {
    const auto opcode = static_cast<tile::Opcode>(k);
    const tile::OpcodeInfo& op = info(opcode);
    const bool plain = op.family == tile::Family::kPointwise || op.family == tile::Family::kMacro ||
                       op.family == tile::Family::kExtern;
    if (!plain || op.rule == tile::Rule::kConvert || op.rule == tile::Rule::kThreefry ||
        op.rule == tile::Rule::kLookup) {
      continue;
    }
    for (const DType dtype : kAllTypes) {
      if (!accepts(op.domain, dtype)) continue;
      SCOPED_TRACE(std::string(op.text) + " of " + std::string(core::short_name(dtype)));
      check_instruction(opcode, dtype);
      ++checked;
    }
  }
  EXPECT_GT(checked, 300);
}

TEST(Interpreter, EveryTable) {
  std::vector<int32_t> x(100);
  std::iota(x.begin(), x.end(), -33);
  x.push_back(INT32_MIN);
  Builder t;
  const Reg a = t.load(DType::kInt32);
  for (uint32_t k = 0; k < tile::kTableCount; ++k)
    t.store(t.lookup(a, static_cast<tile::Table>(k)));
  t.store(t.lookup(t.constant_int(DType::kInt32, 35), tile::Table::kGelu), tile::Level::kLane);
  check(t.finish(), {{static_cast<int64_t>(x.size())}, {}}, {bytes_of(x)});
}

TEST(Interpreter, EveryCast) {
  for (const DType from : kAllTypes) {
    const Bytes x = encode(from, special_numbers(from));
    Builder t;
    const Reg a = t.load(from);
    for (const DType to : kAllTypes) {
      t.store(t.cast(a, to));
      if (core::size_of(to) == core::size_of(from)) t.store(t.bitcast(a, to));
    }
    check(t.finish(), {{static_cast<int64_t>(x.size() / core::size_of(from))}, {}}, {x});
  }
}

TEST(Interpreter, IntegersOf64BitsRoundOnceToFloats) {
  std::vector<int64_t> x;
  for (int shift = 0; shift < 63; ++shift) {
    for (const int64_t d : {-1, 0, 1}) x.push_back((int64_t{3} << shift) / 2 + d);
    for (const int64_t d : {-1, 0, 1}) x.push_back(-(int64_t{0x101} << std::max(0, shift - 9)) + d);
  }
  Builder t;
  const Reg a = t.load(DType::kInt64);
  for (const DType to : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    t.store(t.cast(a, to));
  }
  check(t.finish(), {{static_cast<int64_t>(x.size())}, {}}, {bytes_of(x)});
}

// The instruction sets agree over all exponents; the evaluator runs a part of it.
TEST(Interpreter, MacrosAgreeAcrossInstructionSets) {
  std::vector<float> f32;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 65537) {
    f32.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  std::vector<double> f64;
  for (uint64_t k = 0; k < 20000; ++k) f64.push_back(std::bit_cast<double>(k * 922337203685477u));
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const bool narrow = dtype == DType::kFloat32;
    const Bytes x = narrow ? bytes_of(f32) : bytes_of(f64);
    const auto n = static_cast<int64_t>(narrow ? f32.size() : f64.size());
    Builder t;
    const Reg a = t.load(dtype);
    for (int k = 0; k < tile::kOpcodeCount; ++k) {
      const auto opcode = static_cast<tile::Opcode>(k);
      if (info(opcode).family != tile::Family::kMacro) continue;
      t.store(info(opcode).arity == 1 ? t.emit(opcode, {a}) : t.pow(abs(a), 1.7));
    }
    const auto program = t.finish();
    const auto wanted = testing::run(program, Isa::kGeneric, {{n}, {}}, {x});
    for (const testing::Engine engine : testing::engines()) {
      expect_equal(program, testing::run(program, engine, {{n}, {}}, {x}), wanted, name(engine));
    }
    const int64_t part = 2000;
    Bytes head(x.begin(), x.begin() + part * static_cast<int64_t>(core::size_of(dtype)));
    check(program, {{part}, {}}, {head});
  }
}

// ---- domains and strides

TEST(Interpreter, ReadsAnyStrides) {
  Builder t;
  const Reg a = t.load(DType::kFloat32), b = t.load(DType::kInt16), c = t.load(DType::kFloat64);
  t.store(a + cast(b, DType::kFloat32));
  t.store(c * 2.0);
  t.store(t.position());
  const auto program = t.finish();
  const Domain domain{{5, 7, 300}, {}};
  // a transposed, b broadcast over the middle and reversed along the last, c a single number.
  const std::vector<testing::Strides> strides{
      {{1, 5, 35}, {}}, {{300, 0, -1}, {}}, {{0, 0, 0}, {}}};
  const std::vector<float> x = random_floats(5 * 7 * 300, 5);
  std::vector<int16_t> y(5 * 300);
  for (size_t i = 0; i < y.size(); ++i) y[i] = static_cast<int16_t>(i * 7);
  for (const testing::Engine engine : testing::engines()) {
    const auto out = testing::run_strided(program, engine, domain,
                                          {bytes_of(x), bytes_of(y), bytes_of<double>({1.5})},
                                          strides, {0, 299, 0});
    const auto sum = values_of<float>(out[0]);
    const auto position = values_of<int64_t>(out[2]);
    size_t at = 0;
    for (size_t i = 0; i < 5; ++i) {
      for (size_t j = 0; j < 7; ++j) {
        for (size_t k = 0; k < 300; ++k, ++at) {
          ASSERT_EQ(sum[at], x[i + 5 * j + 35 * k] + y[i * 300 + 299 - k]);
          ASSERT_EQ(position[at], static_cast<int64_t>(at));
        }
      }
    }
    for (const double v : values_of<double>(out[1])) ASSERT_EQ(v, 3.0);
  }
}

// A bias over rows of every length, read forwards and backwards, in pointwise and row programs.
TEST(Interpreter, RepeatsOperandsOverRows) {
  for (const int64_t n : {2, 10, 300, 1024, 1025}) {
    for (const int64_t step : {1, -1, 3}) {
      const int64_t rows = 3000 / n + 2;
      const std::vector<float> x = random_floats(static_cast<size_t>(rows * n), 17);
      const std::vector<float> bias = random_floats(static_cast<size_t>(3 * n), 18);
      std::vector<float> repeated;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t k = 0; k < n; ++k) {
          repeated.push_back(bias[static_cast<size_t>((step < 0 ? n - 1 : 0) + k * step)]);
        }
      }
      const int64_t base = step < 0 ? n - 1 : 0;
      Builder t;
      t.store(t.load(DType::kFloat32) * t.load(DType::kFloat32));
      const auto product = t.finish();
      const auto wanted = tile::evaluate(product, rows * n, 1, {bytes_of(x), bytes_of(repeated)});
      const Reg a = t.load(DType::kFloat32), b = t.load(DType::kFloat32);
      t.store(reduce_sum(a * b) + a);
      const auto sum = t.finish();
      const auto wanted_sum = tile::evaluate(sum, rows, n, {bytes_of(x), bytes_of(repeated)});
      for (const testing::Engine engine : testing::engines()) {
        const std::vector<Bytes> inputs{bytes_of(x), bytes_of(bias)};
        const std::string where = name(engine);
        expect_equal(product,
                     testing::run_strided(product, engine, {{rows, n}, {}}, inputs,
                                          {{{n, 1}, {}}, {{0, step}, {}}}, {0, base}),
                     wanted, where);
        expect_equal(sum,
                     testing::run_strided(sum, engine, {{rows}, {n}}, inputs,
                                          {{{n}, {1}}, {{0}, {step}}}, {0, base}),
                     wanted_sum, where);
      }
    }
  }
}

// Dims merge only where every operand, not just the first, walks through them alike.
TEST(Interpreter, KeepsApartWhatOneOperandTransposes) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), y = t.load(DType::kFloat32);
  t.store(x - y);
  const auto program = t.finish();
  const std::vector<float> a = random_floats(20 * 30, 19), b = random_floats(20 * 30, 20);
  for (const testing::Engine engine : testing::engines()) {
    const auto out =
        testing::run_strided(program, engine, {{20, 30}, {}}, {bytes_of(a), bytes_of(b)},
                             {{{30, 1}, {}}, {{1, 20}, {}}}, {0, 0});
    const auto difference = values_of<float>(out[0]);
    for (size_t i = 0; i < 20; ++i) {
      for (size_t j = 0; j < 30; ++j) {
        ASSERT_EQ(difference[i * 30 + j], a[i * 30 + j] - b[j * 20 + i]);
      }
    }
  }
}

TEST(Interpreter, BothOrdersInOneProgram) {
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.store(reduce_sum(x, tile::Order::kRows));
  t.store(reduce_sum(x, tile::Order::kLanes));
  const auto program = t.finish();
  for (const int64_t n : {0, 1, 63, 64, 65, 200, 4096, 4097, 13000}) {
    check(program, {{3}, {n}}, {bytes_of(random_floats(static_cast<size_t>(3 * n), 21))});
  }
}

TEST(Interpreter, SumsOfBlocksKeepTheirRests) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    Builder t;
    const Reg x = t.load(dtype);
    t.store(reduce_sum(x, tile::Order::kRows));
    t.store(reduce_sum(x, tile::Order::kLanes));
    const auto program = t.finish();
    for (const int64_t n : testing::kHardSizes) {
      check(program, {{testing::kHardSums}, {n}}, {testing::encode(dtype, testing::hard_sums(n))});
    }
  }
}

TEST(Interpreter, ReducesOverSeveralDimsAtAnyStrides) {
  // sum over axes 0 and 2 of a [6, 5, 70] array: kept [5], reduced [6, 70].
  const std::vector<float> x = random_floats(6 * 5 * 70, 6);
  std::vector<float> moved;
  for (size_t j = 0; j < 5; ++j) {
    for (size_t i = 0; i < 6; ++i) {
      for (size_t k = 0; k < 70; ++k) moved.push_back(x[(i * 5 + j) * 70 + k]);
    }
  }
  for (const auto order : {tile::Order::kLanes, tile::Order::kRows}) {
    Builder t;
    const Reg a = t.load(DType::kFloat32), scale = t.load_row(DType::kFloat32);
    t.store(t.reduce(tile::Opcode::kReduceSum, a * scale, order));
    t.store(reduce_max(a));
    t.store(t.reduce(tile::Opcode::kReduceArgMin, a));
    t.store(a - reduce_max(a));
    t.store(t.reduced_position() + t.row_position() + t.position());
    const auto program = t.finish();
    const Domain domain{{5}, {6, 70}};
    const Bytes scales = bytes_of<float>({1, 2, 3, 4, 5});
    const auto wanted = tile::evaluate(program, 5, 420, {bytes_of(moved), scales});
    for (const testing::Engine engine : testing::engines()) {
      const auto got = testing::run_strided(program, engine, domain, {bytes_of(x), scales},
                                            {{{70}, {350, 1}}, {{1}, {0, 0}}}, {0, 0});
      expect_equal(program, got, wanted, name(engine));
    }
  }
}

TEST(Interpreter, ReducesManyRowsAcross) {
  for (const int64_t rows : {1, 3, 255, 256, 257, 700}) {
    for (const int64_t r : {0, 1, 2, 63, 64, 65, 129, 4100}) {
      if (rows * r > 700 * 200) continue;
      Builder t;
      const Reg x = t.load(DType::kFloat32);
      const Reg mean = t.reduce(tile::Opcode::kReduceSum, x, tile::Order::kRows) * 0.01;
      t.store(t.reduce(tile::Opcode::kReduceSum, (x - mean) * (x - mean), tile::Order::kRows));
      t.store(x * mean);
      t.store(t.reduce(tile::Opcode::kReduceArgMax, x));
      const auto program = t.finish();
      const std::vector<float> values = random_floats(static_cast<size_t>(rows * r), 8);
      std::vector<float> across(values.size());
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t k = 0; k < r; ++k) {
          across[static_cast<size_t>(k * rows + i)] = values[static_cast<size_t>(i * r + k)];
        }
      }
      const auto wanted = tile::evaluate(program, rows, r, {bytes_of(values)});
      for (const testing::Engine engine : testing::engines()) {
        const auto got = testing::run_strided(program, engine, {{rows}, {r}}, {bytes_of(across)},
                                              {{{1}, {rows}}}, {0});
        expect_equal(program, got, wanted, name(engine));
      }
    }
  }
}

TEST(Interpreter, NormalisesLongAndShortRows) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), gain = t.load(DType::kFloat32);
  const Reg mean = reduce_sum(x) * t.scalar(DType::kFloat32, 0);
  const Reg d = x - mean;
  const Reg inverse = rsqrt(reduce_sum(d * d) * t.scalar(DType::kFloat32, 0) + 1e-5);
  t.store(d * inverse * gain);
  t.store(mean);
  t.store(inverse);
  const auto program = t.finish();
  for (const int64_t n : {1, 3, 768, 5000, 9000}) {
    const auto count = static_cast<size_t>(5 * n);
    check(program, {{5}, {n}},
          {bytes_of(random_floats(count, 9)), bytes_of(random_floats(count, 10))},
          {1.0 / static_cast<double>(n)});
  }
}

TEST(Interpreter, Scans) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt8}) {
    Builder t;
    const Reg x = t.cast(t.load(DType::kFloat32), dtype);
    const Reg sum = t.cumsum(x);
    t.store(sum);
    t.store(sum - reduce_max(sum));
    const auto program = t.finish();
    for (const int64_t n : {1, 100, 9000}) {
      check(program, {{3}, {n}}, {bytes_of(random_floats(static_cast<size_t>(3 * n), 11))});
    }
  }
}

// -0, NaN and infinities in every position of short rows.
TEST(Interpreter, ReducesSpecialNumbers) {
  const float specials[] = {0.0f, -0.0f, NAN, INFINITY, -INFINITY, 1.0f, -1.0f};
  std::vector<float> x;
  int64_t rows = 0;
  for (const int64_t n : {int64_t{20}}) {
    for (const float base : specials) {
      for (const float other : specials) {
        for (int64_t at = 0; at < n; ++at, ++rows) {
          for (int64_t r = 0; r < n; ++r) x.push_back(r == at ? other : base);
        }
      }
    }
  }
  for (const auto order : {tile::Order::kLanes, tile::Order::kRows}) {
    Builder t;
    const Reg a = t.load(DType::kFloat32);
    for (const auto opcode :
         {tile::Opcode::kReduceSum, tile::Opcode::kReduceProd, tile::Opcode::kReduceMax,
          tile::Opcode::kReduceMin, tile::Opcode::kReduceArgMax, tile::Opcode::kReduceArgMin}) {
      t.store(t.reduce(opcode, a, order));
      t.store(t.reduce(opcode, t.cast(a, DType::kFloat64), order));
    }
    check(t.finish(), {{rows}, {20}}, {bytes_of(x)});
  }
}

TEST(Interpreter, ReducesIntegersOfEveryType) {
  for (const DType dtype :
       {DType::kUInt8, DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64}) {
    Builder t;
    const Reg a = t.cast(t.load(DType::kInt64), dtype);
    for (const auto opcode :
         {tile::Opcode::kReduceSum, tile::Opcode::kReduceProd, tile::Opcode::kReduceMax,
          tile::Opcode::kReduceMin, tile::Opcode::kReduceArgMax, tile::Opcode::kReduceArgMin}) {
      t.store(t.reduce(opcode, a));
      t.store(t.reduce(opcode, a, tile::Order::kRows));
    }
    const auto program = t.finish();
    std::mt19937_64 rng(12);
    for (const int64_t n : {0, 1, 10, 40, 100, 5000}) {
      std::vector<int64_t> x(static_cast<size_t>(4 * n));
      for (int64_t& v : x) v = static_cast<int64_t>(rng());
      check(program, {{4}, {n}}, {bytes_of(x)});
    }
  }
}

// ---- in place

TEST(Interpreter, WritesOverItsInputsWhereThatIsAllowed) {
  // p and m are updated in place; m's new value is ready before p is read for the last time.
  Builder t;
  const Reg p = t.load(DType::kFloat32), m = t.load(DType::kFloat32), g = t.load(DType::kFloat32);
  const Reg next = m * 0.9 + g;
  t.store(next);
  t.store(p - next * 0.1 + m);
  const auto program = t.finish();
  const int64_t n = 3000;
  const auto p0 = random_floats(n, 13), m0 = random_floats(n, 14), g0 = random_floats(n, 15);
  const auto wanted = tile::evaluate(program, n, 1, {bytes_of(p0), bytes_of(m0), bytes_of(g0)});
  for (const testing::Engine engine : testing::engines()) {
    const auto kernel = TileKernel::make(program, engine.isa, engine.compiled).or_throw();
    EXPECT_TRUE(kernel->can_alias(0, 1));
    EXPECT_TRUE(kernel->can_alias(1, 0));
    std::vector<float> a = p0, b = m0, c = g0;
    void* buffers[] = {a.data(), b.data(), c.data(), b.data(), a.data()};
    const int64_t dims[] = {n}, one[] = {1};
    const std::vector<OperandStrides> operands(5, OperandStrides{one, {}});
    const LoopCall loop = make_loop(*kernel, dims, {}, operands);
    std::vector<std::max_align_t> scratch(loop.scratch_bytes / sizeof(std::max_align_t) + 8);
    const plan::KernelArgs args{
        buffers, loop.params.data(), nullptr, kernel.get(), scratch.data(), 0, nullptr, nullptr};
    EXPECT_EQ(kernel->function()(args, 0, loop.units), plan::KernelStatus::kOk);
    expect_equal(program, {bytes_of(b), bytes_of(a)}, wanted, name(engine));
  }
}

TEST(Interpreter, SaysWhereAnInputIsReadAgain) {
  Builder t;
  const Reg x = t.load(DType::kFloat32), y = t.load(DType::kFloat32);
  t.store(x + 1.0);            // section 0
  t.store(x * reduce_sum(y));  // section 1 reads x again
  const auto kernel = TileKernel::make(t.finish(), Isa::kGeneric).or_throw();
  EXPECT_FALSE(kernel->can_alias(0, 0));
  EXPECT_TRUE(kernel->can_alias(0, 1));
  EXPECT_TRUE(kernel->can_alias(1, 0));
}

TEST(Interpreter, KeepsInputsThatAreStoredAsTheyAre) {
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  t.store(t.constant(DType::kFloat32, 2.0), tile::Level::kLane);
  t.store(x);
  const auto kernel = TileKernel::make(t.finish(), Isa::kGeneric).or_throw();
  EXPECT_FALSE(kernel->can_alias(0, 0));
  EXPECT_TRUE(kernel->can_alias(0, 1));
}

// Row outputs are written before the lanes of their section.
TEST(Interpreter, KeepsRowsThatLanesRead) {
  Builder t;
  const Reg scale = t.load_row(DType::kFloat32), x = t.load(DType::kFloat32);
  const Reg bits = t.bitcast(t.bitcast(scale, DType::kInt32), DType::kFloat32);
  t.store(sqrt(scale));
  t.store(x * bits);
  t.store(scale / reduce_sum(x));  // section 1
  const auto kernel = TileKernel::make(t.finish(), Isa::kGeneric).or_throw();
  EXPECT_FALSE(kernel->can_alias(0, 0));
  EXPECT_TRUE(kernel->can_alias(0, 2));
}

// A row that was loaded is read where it lies, in later sections, too.
TEST(Interpreter, KeepsRowsThatLaterSectionsRead) {
  Builder t;
  const Reg x = t.load(DType::kFloat32);
  const Reg a = t.load_row(DType::kFloat32), b = t.load_row(DType::kFloat32);
  const Reg largest = reduce_max(x);
  t.store(a * largest);                  // section 1
  t.store(b / reduce_sum(x - largest));  // section 2
  const auto program = t.finish();
  const auto kernel = TileKernel::make(program, Isa::kGeneric).or_throw();
  EXPECT_TRUE(kernel->can_alias(1, 0));
  EXPECT_FALSE(kernel->can_alias(2, 0));
  EXPECT_TRUE(kernel->can_alias(2, 1));
}

// ---- random programs

/// Runs with each output on each input that it may overwrite.
void check_in_place(const tile::Program& program, const Domain& domain,
                    const std::vector<Bytes>& inputs, const std::vector<double>& scalars) {
  const auto wanted =
      tile::evaluate(program, domain.kept_points(), domain.reduced_points(), inputs, scalars);
  for (const testing::Engine engine : testing::engines()) {
    const auto kernel = TileKernel::make(program, engine.isa, engine.compiled).or_throw();
    for (uint32_t input = 0; input < program.inputs.size(); ++input) {
      for (uint32_t output = 0; output < program.outputs.size(); ++output) {
        if (!kernel->can_alias(input, output)) continue;
        std::vector<int> on(program.outputs.size(), -1);
        on[output] = static_cast<int>(input);
        expect_equal(program, testing::run_in_place(program, engine, domain, inputs, on, scalars),
                     wanted, fmt::format("{}, {} on {}", name(engine), output, input));
      }
    }
  }
}

tile::Program random_program(std::mt19937& rng, bool reducing) {
  Builder t;
  std::vector<Reg> values{t.load(DType::kFloat32), t.load(DType::kFloat32),
                          t.constant(DType::kFloat32, 0.7), t.scalar(DType::kFloat32, 0)};
  for (int k = 0; reducing && k < 3; ++k) values.push_back(t.load_row(DType::kFloat32));
  const auto pick = [&] { return values[rng() % values.size()]; };
  const tile::Opcode two[] = {tile::Opcode::kAdd, tile::Opcode::kSub, tile::Opcode::kMul,
                              tile::Opcode::kMax, tile::Opcode::kMin, tile::Opcode::kDiv};
  const tile::Opcode one[] = {tile::Opcode::kTanh,    tile::Opcode::kNeg, tile::Opcode::kAbs,
                              tile::Opcode::kSigmoid, tile::Opcode::kSin, tile::Opcode::kExp};
  for (int k = 0; k < 20; ++k) {
    const Reg a = pick(), b = pick(), c = pick();
    switch (rng() % (reducing ? 7 : 5)) {
      case 0: values.push_back(t.emit(one[rng() % 6], {a})); break;
      case 1: values.push_back(t.select(a < b, b, c)); break;
      case 2: values.push_back(t.fma(a, b, c)); break;
      case 3:
        values.push_back(
            t.cast(t.cast(a, DType::kFloat16) * t.cast(b, DType::kFloat16), DType::kFloat32));
        break;
      case 4: values.push_back(t.emit(two[rng() % 6], {a, b})); break;
      case 5: values.push_back(reduce_sum(a)); break;
      default: values.push_back(reduce_max(a)); break;
    }
  }
  for (int k = 0; k < 4; ++k) t.store(values[values.size() - 1 - rng() % 12]);
  return t.finish();
}

TEST(Interpreter, RandomProgramsEqualTheEvaluator) {
  std::mt19937 rng(16);
  for (int round = 0; round < 300; ++round) {
    const bool reducing = round % 2 == 1;
    const tile::Program program = random_program(rng, reducing);
    if (is_reducing(program) != reducing) continue;
    const int64_t kept = 1 + static_cast<int64_t>(rng() % (reducing ? 9 : 900));
    const int64_t sizes[] = {1, 7, 16, 130, 600, 4500};
    const int64_t reduced = reducing ? sizes[rng() % 6] : 1;
    std::vector<Bytes> inputs;
    for (uint32_t k = 0; k < program.inputs.size(); ++k) {
      const bool row = input_level(program, k) == tile::Level::kRow;
      inputs.push_back(
          bytes_of(random_floats(static_cast<size_t>(row ? kept : kept * reduced), rng())));
    }
    SCOPED_TRACE(round);
    const Domain domain{{kept}, reducing ? std::vector<int64_t>{reduced} : std::vector<int64_t>{}};
    check(program, domain, inputs, {1.25});
    check_in_place(program, domain, inputs, {1.25});
  }
}

}  // namespace
}  // namespace mithril::cpu
