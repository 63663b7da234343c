#include "backends/cpu/loops/block_loop.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "backends/cpu/loops/tile_code.h"
#include "backends/cpu/random_program.h"
#include "backends/cpu/run_program.h"

namespace mithril::cpu::testing {
namespace {

using core::DType;
using tile::Level;

// An operand of rows x cols somewhere in memory, between guards of its own.
struct BlockMatrix {
  Bytes bytes;
  BlockStrides strides;
};

constexpr size_t kMargin = 3;  // elements before and behind

class BlockCase {
 public:
  BlockCase(std::mt19937& rng, const tile::Program& program, int64_t rows, int64_t cols)
      : rng_(rng), program_(program), rows_(rows), cols_(cols) {
    for (uint32_t k = 0; k < program.inputs.size(); ++k) {
      inputs_.push_back(input(program.inputs[k], input_level(program, k)));
    }
    for (const DType dtype : program.outputs) {
      const BlockStrides strides{cols + static_cast<int64_t>(rng() % 3), 1};
      outputs_.push_back({Bytes(bytes(dtype, strides), std::byte{0xee}), strides});
    }
  }

  // What the interpreter without vectors makes of the same elements, side by side.
  std::vector<Bytes> expected() const {
    std::vector<Bytes> dense;
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const Level level = input_level(program_, static_cast<uint32_t>(k));
      dense.push_back(gathered(program_.inputs[k], inputs_[k], level));
    }
    const Domain rows{{rows_}, {cols_}}, points{{rows_, cols_}, {}};
    return testing::run(program_, Isa::kGeneric, is_reducing(program_) ? rows : points, dense);
  }

  std::vector<Bytes> run(Engine engine, bool& in_place) {
    const auto kernel = TileKernel::make(program_, engine.isa, engine.compiled).or_throw();
    std::vector<BlockStrides> strides;
    std::vector<void*> buffers;
    const auto place = [&](std::vector<BlockMatrix>& matrices, const std::vector<DType>& dtypes) {
      for (size_t k = 0; k < matrices.size(); ++k) {
        strides.push_back(matrices[k].strides);
        buffers.push_back(matrices[k].bytes.data() + kMargin * core::size_of(dtypes[k]));
      }
    };
    std::vector<BlockMatrix> outputs = outputs_;
    place(inputs_, program_.inputs);
    place(outputs, program_.outputs);
    const BlockLoop loop(kernel, strides);
    in_place = loop.is_in_place();
    const std::unique_ptr<void, decltype(&std::free)> scratch(
        std::aligned_alloc(64, (loop.scratch_bytes() + 63) / 64 * 64), &std::free);
    std::memset(scratch.get(), 0xee, loop.scratch_bytes());
    const FloatEnvironment environment;
    loop.run(buffers.data(), rows_, cols_, scratch.get());
    std::vector<Bytes> out;
    for (size_t k = 0; k < outputs.size(); ++k) {
      out.push_back(gathered(program_.outputs[k], outputs[k], Level::kLane));
      expect_untouched(program_.outputs[k], outputs[k]);
    }
    return out;
  }

 private:
  BlockMatrix input(DType dtype, Level level) {
    BlockStrides strides{cols_ + static_cast<int64_t>(rng_() % 3), 1};
    if (rng_() % 4 == 0) strides = {0, 1};
    if (rng_() % 8 == 0) strides = {1, rows_ + 1};
    if (level == Level::kRow) strides = {1 + static_cast<int64_t>(rng_() % 2), 0};
    if (level == Level::kUniform) strides = {0, 0};
    const size_t count = bytes(dtype, strides) / core::size_of(dtype);
    return {random_elements(rng_, dtype, count), strides};
  }

  size_t bytes(DType dtype, const BlockStrides& strides) const {
    const int64_t last = (rows_ - 1) * strides.row + (cols_ - 1) * strides.col;
    return (static_cast<size_t>(last) + 1 + 2 * kMargin) * core::size_of(dtype);
  }

  size_t offset(DType dtype, const BlockMatrix& from, int64_t row, int64_t col) const {
    const int64_t at = row * from.strides.row + col * from.strides.col;
    return (static_cast<size_t>(at) + kMargin) * core::size_of(dtype);
  }

  Bytes gathered(DType dtype, const BlockMatrix& from, Level level) const {
    Bytes out;
    for (int64_t row = 0; row < (level == Level::kUniform ? 1 : rows_); ++row) {
      for (int64_t col = 0; col < (level == Level::kLane ? cols_ : 1); ++col) {
        const auto at = from.bytes.begin() + static_cast<int64_t>(offset(dtype, from, row, col));
        out.insert(out.end(), at, at + static_cast<int64_t>(core::size_of(dtype)));
      }
    }
    return out;
  }

  void expect_untouched(DType dtype, BlockMatrix& written) const {
    const size_t size = core::size_of(dtype);
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col) {
        std::fill_n(written.bytes.begin() + static_cast<int64_t>(offset(dtype, written, row, col)),
                    size, std::byte{0xee});
      }
    }
    EXPECT_EQ(written.bytes, Bytes(written.bytes.size(), std::byte{0xee}));
  }

  std::mt19937& rng_;
  const tile::Program& program_;
  int64_t rows_, cols_;
  std::vector<BlockMatrix> inputs_, outputs_;
};

// How many of the runs were in place.
int check_block(std::mt19937& rng, const tile::Program& program, int64_t rows, int64_t cols) {
  BlockCase block(rng, program, rows, cols);
  const std::vector<Bytes> expected = block.expected();
  int count = 0;
  for (const Engine engine : engines()) {
    bool in_place = false;
    const std::vector<Bytes> got = block.run(engine, in_place);
    count += in_place ? 1 : 0;
    for (size_t k = 0; k < expected.size(); ++k) {
      EXPECT_EQ(first_difference(program.outputs[k], got[k], expected[k]), -1)
          << name(engine) << (in_place ? " in place, " : ", ") << rows << " x " << cols
          << ", output " << k << "\n"
          << tile::print(program);
    }
  }
  return count;
}

// Programs that blocks may have: no scalars that a run gives, no places.
tile::Program random_block_program(std::mt19937& rng) {
  for (;;) {
    tile::Program program = random_program(
        rng, {.instructions = 1 + static_cast<int>(rng() % 12), .everything = rng() % 4 == 0});
    if (tile::reads_position(program)) continue;
    for (tile::Instruction& i : program.code) {
      if (i.opcode == tile::Opcode::kScalar) i.opcode = tile::Opcode::kConstant, i.index = 0;
    }
    program.scalars = 0;
    return program;
  }
}

TEST(BlockLoop, RandomProgramsGiveTheBitsOfOtherLoops) {
  std::mt19937 rng(11);
  int in_place = 0;
  for (int trial = 0; trial < 1000 && !::testing::Test::HasFailure(); ++trial) {
    const auto rows = 1 + static_cast<int64_t>(rng() % 20);
    const auto columns = static_cast<int64_t>(rng() % 70) + 1;  // in one order in every compiler
    in_place += check_block(rng, random_block_program(rng), rows, columns);
  }
  const std::vector<Engine> all = engines();
  const auto compiled = std::count_if(all.begin(), all.end(), [](Engine e) { return e.compiled; });
  EXPECT_GE(in_place, 20 * compiled);  // each set of instructions has its share of them
}

// Bias of the columns, number of the row, one number for all, residual; two results.
tile::Program layer_of_block() {
  tile::Builder t;
  const tile::Reg x = t.load(DType::kFloat32), bias = t.load(DType::kFloat32),
                  row = t.load_row(DType::kFloat32), one = t.load_uniform(DType::kFloat32),
                  residual = t.load(DType::kFloat32);
  const tile::Reg z = x * one + bias + t.emit(tile::Opcode::kExp, {row}) + row;
  t.store(z);
  t.store(t.emit(tile::Opcode::kTanh, {z}) + residual);
  return t.finish();
}

TEST(BlockLoop, TailsAndHeights) {
  std::mt19937 rng(12);
  const tile::Program program = layer_of_block();
  for (int64_t cols = 1; cols <= 130 && !::testing::Test::HasFailure(); ++cols) {
    check_block(rng, program, 1 + cols % 5, cols);
  }
  for (const int64_t rows : {1, 2, 255, 256, 257, 600}) check_block(rng, program, rows, 19);
  check_block(rng, program, 3, 5000);
}

// A single op is compiled as well: gathering would cost more than it.
TEST(BlockLoop, SingleOpsRunInPlace) {
  tile::Builder t;
  t.store(t.load(DType::kFloat64) + t.load(DType::kFloat64));
  const tile::Program program = t.finish();
  for (const Engine engine : engines()) {
    const auto kernel = TileKernel::make(program, engine.isa, engine.compiled).or_throw();
    const BlockStrides rows{7, 1}, turned{1, 7};
    EXPECT_EQ(BlockLoop(kernel, std::vector{rows, rows, rows}).is_in_place(), engine.compiled);
    EXPECT_FALSE(BlockLoop(kernel, std::vector{rows, turned, rows}).is_in_place());
  }
  std::mt19937 rng(13);
  for (int64_t cols = 1; cols < 20; ++cols) check_block(rng, program, 4, cols);
}

// The result may take the place of an operand, in place and gathered.
TEST(BlockLoop, MayOverwriteItsOperand) {
  for (const auto opcode : {tile::Opcode::kExp, tile::Opcode::kSin}) {
    tile::Builder t;
    const tile::Reg x = t.load(DType::kFloat32), y = t.load(DType::kFloat32);
    t.store(t.emit(opcode, {x + y}) * x);
    t.store(x + y);
    const tile::Program program = t.finish();
    std::vector<double> numbers;
    for (int i = 0; i < 5 * 40; ++i) numbers.push_back(0.01 * i - 1);
    const Bytes given = encode(DType::kFloat32, numbers);
    const auto expected = run(program, Isa::kGeneric, {{5, 40}, {}}, {given, given});
    for (const Engine engine : engines()) {
      const auto kernel = TileKernel::make(program, engine.isa, engine.compiled).or_throw();
      ASSERT_TRUE(kernel->can_alias(0, 0));
      Bytes x0 = given, y0 = given, second(given.size());
      const std::vector<BlockStrides> strides(4, {40, 1});
      const BlockLoop loop(kernel, strides);
      const std::unique_ptr<void, decltype(&std::free)> scratch(
          std::aligned_alloc(64, (loop.scratch_bytes() + 63) / 64 * 64), &std::free);
      void* buffers[] = {x0.data(), y0.data(), x0.data(), second.data()};
      loop.run(buffers, 5, 40, scratch.get());
      EXPECT_EQ(x0, expected[0]) << name(engine);
      EXPECT_EQ(second, expected[1]) << name(engine);
    }
  }
}

}  // namespace
}  // namespace mithril::cpu::testing
