// Covers: backends/cpu/gemm/gemm_cache.cc
#include "backends/cpu/gemm/gemm_emitter.h"

#include <cstdio>
#include <thread>

#include "backends/cpu/gemm/gemm_cache.h"
#include "reference/support.h"

namespace mithril::cpu::jit {
namespace {

using mithril::testing_support::canonical_sum;
using mithril::testing_support::fill_random;
using mithril::testing_support::first_difference;
using mithril::testing_support::Guarded;
using mithril::testing_support::Reals;

// The sets that have an emitter, and this machine; the others are named.
std::vector<Isa> emitted_isas() {
  std::vector<Isa> out;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
#if defined(__x86_64__)
    if (supports(isa)) {
      out.push_back(isa);
      continue;
    }
#endif
    std::printf("skipped: this machine has no %s\n", std::string(name(isa)).c_str());
  }
  return out;
}

GemmCode emit(const GemmTileSpec& spec) {
  const std::vector<GemmCode> code = emit_gemm_tiles({&spec, 1});
  return code.empty() ? GemmCode{} : code[0];
}

enum class Before : uint8_t { kNothing, kInC, kApart };  // the sum of the blocks before

template <class T>
class GemmTiles : public ::testing::Test {
 protected:
  // One tile on guarded operands that are no larger than the tile: what it writes to C and, when
  // it packs, beside C.
  void check(const GemmTileSpec& spec, int64_t depth, Before before) {
    SCOPED_TRACE(::testing::Message()
                 << name(spec.isa) << " " << spec.rows << "x" << spec.vectors << " by rows "
                 << spec.by_rows << " packs " << spec.packs << " masked " << spec.masked
                 << " depth " << depth << " before " << static_cast<int>(before));
    const GemmCode code = emit(spec);
    ASSERT_NE(code.run, nullptr);
    EXPECT_TRUE(code.memory->contains(reinterpret_cast<const void*>(code.run)));
    const int64_t lanes = gemm_lanes(spec.isa, sizeof(T));
    const int64_t width = lanes * spec.vectors, rows = spec.rows;
    const int64_t last = spec.masked ? 1 + static_cast<int64_t>(random_() % (lanes - 1)) : lanes;
    const int64_t cols = width - lanes + last;
    // Rows end where the last one does: gaps lie between them only.
    const int64_t a_row = spec.by_rows ? depth + 3 : 1, a_col = spec.by_rows ? 1 : rows + 2;
    const int64_t b_row = cols + 5, c_row = cols + 1, sum_row = cols + 3;
    const Guarded<T> a(reach(rows, a_row, depth, a_col)), b(reach(depth, b_row, cols, 1)),
        c(reach(rows, c_row, cols, 1)), sum(reach(rows, sum_row, cols, 1)),
        packed(spec.packs ? depth * width : 0);
    fill_random(a, random_);
    fill_random(b, random_);
    fill_random(c, random_);
    fill_random(sum, random_);
    std::vector<T> expected = c.copy();
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        std::vector<std::pair<T, T>> products;
        for (int64_t p = 0; p < depth; ++p) {
          products.emplace_back(a[i * a_row + p * a_col], b[p * b_row + j]);
        }
        T& at = expected[static_cast<size_t>(i * c_row + j)];
        const T own = canonical_sum(products);
        const T old = before == Before::kApart ? sum[i * sum_row + j] : at;
        at = before == Before::kNothing ? own : old + own;
      }
    }
    const auto bytes = [](int64_t elements) { return elements * static_cast<int64_t>(sizeof(T)); };
    GemmTile tile{};
    tile.depth = depth;
    tile.a = a.data(), tile.a_step = bytes(spec.by_rows ? a_row : a_col);
    tile.b = b.data(), tile.b_step = bytes(b_row);
    tile.c = c.data(), tile.c_step = bytes(c_row);
    tile.last_columns = last;
    if (before == Before::kInC) tile.sum = tile.c, tile.sum_step = tile.c_step;
    if (before == Before::kApart) tile.sum = sum.data(), tile.sum_step = bytes(sum_row);
    tile.packed = packed.data();
    tile.next = b.data(), tile.next_step = bytes(b_row);
    code.run(&tile);
    EXPECT_EQ(first_difference(c.copy(), expected), -1);
    if (!spec.packs) return;
    for (int64_t p = 0; p < depth; ++p) {
      for (int64_t j = 0; j < width; ++j) {
        ASSERT_EQ(packed[p * width + j], j < cols ? b[p * b_row + j] : T(0)) << p << " " << j;
      }
    }
  }

  static size_t reach(int64_t rows, int64_t row, int64_t cols, int64_t col) {
    const bool empty = rows == 0 || cols == 0;
    return empty ? 0 : static_cast<size_t>((rows - 1) * row + (cols - 1) * col + 1);
  }

  std::mt19937_64 random_{11};
};
TYPED_TEST_SUITE(GemmTiles, Reals);

TYPED_TEST(GemmTiles, EveryShapeEqualsTheCanonicalSum) {
  for (const Isa isa : emitted_isas()) {
    for (int vectors = 1; vectors <= 8; ++vectors) {
      for (int rows = 1; rows <= gemm_most_rows(isa, vectors); ++rows) {
        for (int variant = 0; variant < 8; ++variant) {
          const GemmTileSpec spec{isa,
                                  sizeof(TypeParam) == 8,
                                  rows,
                                  vectors,
                                  (variant & 1) != 0,
                                  (variant & 2) != 0,
                                  (variant & 4) != 0,
                                  1 + (rows + variant) % 3};
          const auto depth = static_cast<int64_t>(this->random_() % 40);
          this->check(spec, depth, static_cast<Before>((rows + vectors + variant) % 3));
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TYPED_TEST(GemmTiles, EveryDepthIsSummedWhole) {
  for (const Isa isa : emitted_isas()) {
    for (const auto& [rows, vectors] : {std::pair{6, 2}, {1, 1}, {5, 2}}) {  // unroll 4, 8, 4
      for (int64_t depth = 0; depth <= 20; ++depth) {
        this->check({isa, sizeof(TypeParam) == 8, rows, vectors, depth % 2 == 0}, depth,
                    Before::kNothing);
      }
      this->check({isa, sizeof(TypeParam) == 8, rows, vectors, true, true}, 256, Before::kInC);
    }
  }
}

TEST(GemmCache, GivesTheSameCodeAgain) {
  const std::vector<Isa> isas = emitted_isas();
  if (isas.empty()) GTEST_SKIP() << "no instruction set of the emitter here";
  GemmCache cache;
  const GemmTileSpec one{isas[0], false, 3, 2}, two{isas[0], false, 4, 2};
  const auto first = cache.find(std::vector{one, two, one});
  ASSERT_EQ(first.size(), 3U);
  EXPECT_EQ(first[0].run, first[2].run);
  EXPECT_NE(first[0].run, first[1].run);
  EXPECT_EQ(first[0].memory, first[1].memory);  // one mapping for what is made at once
  const auto again = cache.find(std::vector{two});
  EXPECT_EQ(again[0].run, first[1].run);
  EXPECT_EQ(cache.size(), 2U);
}

TEST(GemmCache, ThreadsGetOneCode) {
  const std::vector<Isa> isas = emitted_isas();
  if (isas.empty()) GTEST_SKIP() << "no instruction set of the emitter here";
  GemmCache cache;
  std::vector<GemmTileSpec> specs;
  for (int rows = 1; rows <= 6; ++rows) specs.push_back({isas[0], true, rows, 2});
  std::vector<std::vector<GemmCode>> found(4);
  std::vector<std::thread> threads;
  for (auto& own : found) threads.emplace_back([&] { own = cache.find(specs); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& own : found) {
    for (size_t i = 0; i < specs.size(); ++i) EXPECT_EQ(own[i].run, found[0][i].run);
  }
  EXPECT_EQ(cache.size(), specs.size());
}

}  // namespace
}  // namespace mithril::cpu::jit
