#include "backends/cpu/gemm/gemm.h"

#include <unistd.h>
#include <vector>

#if defined(__linux__)
#include <sys/prctl.h>
#include <sys/wait.h>
#endif

#include "backends/cpu/gemm/gemm_cache.h"
#include "reference/support.h"

namespace mithril::testing_support {
namespace {

using cpu::GemmConstant;
using cpu::GemmDims;
using cpu::GemmRange;
using cpu::GemmSource;
using cpu::GemmTiling;
using cpu::Isa;
using cpu::tile_gemm;

TEST(GemmTiling, CoversEachElementOnce) {
  for (const int64_t m : {0, 1, 83, 84, 85, 500}) {
    for (const int64_t n : {0, 1, 255, 256, 257, 1000}) {
      for (const int threads : {1, 2, 7}) {
        const GemmDims d{m, n, 500, 500, 1, n, 1, n};
        std::vector<int> count(static_cast<size_t>(m * n));
        const GemmTiling tiling = tile_gemm(d, threads);
        for (int64_t unit = 0; unit < tiling.units(); ++unit) {
          const GemmRange range = tiling.range(d, unit);
          ASSERT_LT(range.row_begin, range.row_end);
          ASSERT_LT(range.col_begin, range.col_end);
          for (int64_t i = range.row_begin; i < range.row_end; ++i) {
            for (int64_t j = range.col_begin; j < range.col_end; ++j) {
              ++count[static_cast<size_t>(i * n + j)];
            }
          }
        }
        EXPECT_EQ(count, std::vector<int>(count.size(), 1)) << m << " " << n << " " << threads;
      }
    }
  }
}

TEST(GemmTiling, SmallProductsAreOneUnit) {
  EXPECT_EQ(tile_gemm({32, 10, 32, 32, 1, 10, 1, 10}, 16).units(), 1);
  EXPECT_EQ(tile_gemm({512, 512, 512, 512, 1, 512, 1, 512}, 1).units(), 1);
  EXPECT_GE(tile_gemm({512, 512, 512, 512, 1, 512, 1, 512}, 2).units(), 2);
  EXPECT_GE(tile_gemm({1, 4096, 4096, 4096, 1, 4096, 1, 4096}, 4).units(), 4);
}

// ---------------------------------------------------------------- products

// How an operand of `rows` x `cols` lies in memory.
enum class Layout { kRows, kColumns, kGaps, kBackwards, kRepeatedRows, kPageRows };
constexpr Layout kLayouts[] = {Layout::kRows,      Layout::kColumns,      Layout::kGaps,
                               Layout::kBackwards, Layout::kRepeatedRows, Layout::kPageRows};

struct Placed {
  int64_t row, col;  // steps
  int64_t origin;    // where element (0, 0) is
  int64_t count;     // elements from the first to the last one in memory
};

Placed place(Layout layout, int64_t rows, int64_t cols) {
  const bool empty = rows == 0 || cols == 0;
  const auto reach = [&](int64_t row, int64_t col) {
    return empty ? 0 : (rows - 1) * std::abs(row) + (cols - 1) * std::abs(col) + 1;
  };
  switch (layout) {
    case Layout::kRows: return {cols, 1, 0, reach(cols, 1)};
    case Layout::kColumns: return {1, rows + 3, 0, reach(1, rows + 3)};
    case Layout::kGaps: return {2 * cols + 1, 2, 0, reach(2 * cols + 1, 2)};
    case Layout::kBackwards: {
      const int64_t count = reach(cols + 2, 1);
      return {-(cols + 2), 1, empty ? 0 : (rows - 1) * (cols + 2), count};
    }
    case Layout::kRepeatedRows: return {0, 1, 0, empty ? 0 : cols};
    default: {
      const int64_t step = (cols + 511) / 512 * 512;
      return {step, 1, 0, reach(step, 1)};
    }
  }
}

std::vector<Isa> fast_isas() {
  std::vector<Isa> out = supported_isas();
  std::erase(out, Isa::kGeneric);
  if (out.size() < 2) std::printf("skipped: this machine lacks AVX2 or AVX-512\n");
  return out;
}

struct Product {
  int64_t m, n, k;
  Layout left = Layout::kRows, right = Layout::kRows;
  int64_t c_gap = 0;
};

template <class T>
class Gemm : public ::testing::Test {
 protected:
  // Every instruction set and source against the reference; operands end at guard pages.
  void check_all(const Product& p, int threads = 1) {
    const Placed left = place(p.left, p.m, p.k), right = place(p.right, p.k, p.n);
    const GemmDims d{p.m, p.n, p.k, left.row, left.col, right.row, right.col, p.n + p.c_gap};
    const int64_t c_count = p.m == 0 || p.n == 0 ? 0 : (p.m - 1) * d.c_row + p.n;
    const bool at_end = random_() % 4 != 0;
    const Guarded<T> a(static_cast<size_t>(left.count), at_end),
        b(static_cast<size_t>(right.count), at_end), c(static_cast<size_t>(c_count), at_end);
    fill_random(a, random_);
    fill_random(b, random_);
    fill_nan(c);
    by_reference(d, a.data() + left.origin, b.data() + right.origin, c.data());
    const std::vector<T> expected = c.copy();
    for (const Isa isa : fast_isas()) {
      for (const GemmSource source : {GemmSource::kEmitted, GemmSource::kCompiled}) {
        for (const GemmConstant constant :
             {GemmConstant::kNone, GemmConstant::kLeft, GemmConstant::kRight}) {
          const cpu::Gemm<T> gemm(isa, d, {threads, source, constant});
          ASSERT_EQ(gemm.is_emitted(), source == GemmSource::kEmitted && gemm.units() > 0);
          fill_nan(c);
          run_backwards(gemm, constant, a.data() + left.origin, b.data() + right.origin, c.data());
          ASSERT_EQ(first_difference(c.copy(), expected), -1)
              << name(isa) << (gemm.is_emitted() ? " emitted" : " compiled")
              << (gemm.packed_size() == 0 ? ": " : " packed: ") << p.m << " " << p.n << " " << p.k
              << " layouts " << static_cast<int>(p.left) << " " << static_cast<int>(p.right)
              << " threads " << threads;
        }
      }
    }
  }

  // The last unit first; the constant is packed before if that is wanted.
  static void run_backwards(const cpu::Gemm<T>& gemm, GemmConstant constant, const T* a, const T* b,
                            T* c) {
    const Guarded<T> packed(static_cast<size_t>(gemm.packed_size()));
    if (gemm.packed_size() > 0) {
      const T*& operand = constant == GemmConstant::kLeft ? a : b;
      gemm.pack_constant(operand, packed.data());
      operand = packed.data();
    }
    const Guarded<char> scratch((gemm.scratch_bytes() + 63) / 64 * 64);
    for (int64_t unit = gemm.units() - 1; unit >= 0; --unit) {
      gemm.run(unit, a, b, c, {}, scratch.data());
    }
  }

  static void by_reference(const GemmDims& d, const T* a, const T* b, T* c) {
    ref_matmul_dims r{};
    r.m = d.m, r.n = d.n, r.k = d.k;
    r.a_row = d.a_row, r.a_col = d.a_col, r.b_row = d.b_row, r.b_col = d.b_col;
    r.c_row = d.c_row, r.c_col = 1;
    const cpu::ReferenceKernels& kernels = cpu::reference_kernels(cpu::detect_isa());
    if constexpr (std::is_same_v<T, float>) {
      kernels.f32.matmul(&r, a, b, c, 0, d.m);
    } else {
      kernels.f64.matmul(&r, a, b, c, 0, d.m);
    }
  }

  int64_t below(int64_t bound) { return static_cast<int64_t>(random_() % bound); }
  Layout any_layout() { return kLayouts[below(std::size(kLayouts))]; }

  std::mt19937_64 random_{9};
};
TYPED_TEST_SUITE(Gemm, Reals);

TYPED_TEST(Gemm, EveryTailEqualsTheReference) {
  for (const int64_t m : {1, 2, 3, 5, 6, 7, 12, 13, 14, 15, 28, 29}) {
    for (int64_t n = 1; n <= 67; n += n < 34 ? 1 : 5) {
      this->check_all({m, n, 1 + this->below(20)});
      if (this->HasFailure()) return;
    }
  }
}

TYPED_TEST(Gemm, EveryLayoutEqualsTheReference) {
  for (const Layout left : kLayouts) {
    for (const Layout right : kLayouts) {
      for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{9, 37, 70},
                                    {1, 300, 40},
                                    {5, 65, 257},
                                    {40, 1, 33},
                                    {50, 130, 300}}) {
        this->check_all({m, n, k, left, right, n % 3});
        if (this->HasFailure()) return;
      }
    }
  }
}

// Columns of B along k, as in x Wt, which few rows read where they lie.
TYPED_TEST(Gemm, FewRowsAndLongColumnsEqualTheReference) {
  for (int64_t m = 1; m <= 5; ++m) {
    for (int64_t n = 1; n <= 67; n += n < 34 ? 1 : 11) {
      this->check_all({m, n, 1 + this->below(40), Layout::kRows, Layout::kColumns});
    }
    for (const int64_t k : {0, 255, 256, 257, 700}) {
      this->check_all({m, 300, k, Layout::kPageRows, Layout::kColumns, 3}, m % 3 + 1);
    }
    if (this->HasFailure()) return;
  }
}

TYPED_TEST(Gemm, EveryBlockOfKEqualsTheReference) {
  for (const int64_t k : {0, 1, 255, 256, 257, 512, 700}) {
    this->check_all({9, 37, k});
    this->check_all({30, 70, k, Layout::kColumns, Layout::kColumns});
  }
}

TYPED_TEST(Gemm, RandomOnesEqualTheReference) {
  for (int trial = 0; trial < 300; ++trial) {
    const Product product{1 + this->below(100), 1 + this->below(140), this->below(600),
                          this->any_layout(),   this->any_layout(),   this->below(5)};
    this->check_all(product, 1 + static_cast<int>(this->below(3)));
    if (this->HasFailure()) return;
  }
}

// What is packed ends at a guard page.
TYPED_TEST(Gemm, PackingTransposesAndFillsUpWithZeros) {
  using T = TypeParam;
  for (const Isa isa : fast_isas()) {
    for (int64_t lanes = 1; lanes <= 33; ++lanes) {
      for (const int64_t depth : {1, 7, 8, 16, 17, 24, 32, 40}) {
        const int64_t step = depth + 3, width = lanes + lanes % 3;
        const Guarded<T> from(static_cast<size_t>((lanes - 1) * step + depth));
        const Guarded<T> to(static_cast<size_t>(depth * width));
        fill_random(from, this->random_);
        fill_nan(to);
        gemm_parts<T>(isa)->pack({from.data(), step, 1, lanes, depth, to.data(), width, width});
        for (int64_t p = 0; p < depth; ++p) {
          for (int64_t l = 0; l < width; ++l) {
            const T expected = l < lanes ? from[l * step + p] : T(0);
            ASSERT_EQ(to[p * width + l], expected) << lanes << " " << depth << " " << p << " " << l;
          }
        }
      }
    }
  }
}

// The same of lanes that are neighbours: rows of any step lie between guard pages.
TYPED_TEST(Gemm, PackingCopiesNeighboursAndFillsUpWithZeros) {
  using T = TypeParam;
  for (const Isa isa : fast_isas()) {
    for (int64_t lanes = 1; lanes <= 33; ++lanes) {
      for (const int64_t depth : {1, 2, 7, 16, 19, 40}) {
        for (const int64_t step : {lanes, lanes + 3, -lanes - 2, int64_t{1}}) {
          const int64_t width = lanes + depth % 2, way = (depth - 1) * std::abs(step);
          const Guarded<T> from(static_cast<size_t>(way + lanes));
          const Guarded<T> to(static_cast<size_t>(depth * width));
          fill_random(from, this->random_);
          fill_nan(to);
          const T* const first = from.data() + (step > 0 ? 0 : way);
          gemm_parts<T>(isa)->pack({first, 1, step, lanes, depth, to.data(), width, width, 64});
          for (int64_t p = 0; p < depth; ++p) {
            for (int64_t l = 0; l < width; ++l) {
              const T expected = l < lanes ? first[p * step + l] : T(0);
              ASSERT_EQ(to[p * width + l], expected)
                  << lanes << " " << depth << " " << step << " " << p << " " << l;
            }
          }
        }
      }
    }
  }
}

// Several groups of rows, several passes over k, B packed in parts.
TYPED_TEST(Gemm, LargeOnesEqualTheReference) {
  for (const int threads : {1, 2, 3}) {
    this->check_all({300, 260, 512, Layout::kRows, Layout::kRows}, threads);
    this->check_all({200, 140, 1100, Layout::kPageRows, Layout::kBackwards}, threads);
    this->check_all({400, 530, 90, Layout::kColumns, Layout::kColumns}, threads);
    this->check_all({90, 70, 6500, Layout::kRows, Layout::kRows}, threads);
    this->check_all({150, 40, 3500, Layout::kGaps, Layout::kRows}, threads);
    this->check_all({45, 700, 600, Layout::kRows, Layout::kColumns, 3}, threads);
    this->check_all({45, 300, 3200, Layout::kRows, Layout::kColumns}, threads);
  }
  this->check_all({130, 3000, 1600});
}

// Rows of C whole pages apart are summed elsewhere, pass by pass.
TYPED_TEST(Gemm, RowsOfPagesEqualTheReference) {
  for (const int threads : {1, 2}) {
    this->check_all({30, 1024, 700}, threads);
    this->check_all({150, 1000, 3500, Layout::kRows, Layout::kColumns, 24}, threads);
  }
}

TYPED_TEST(Gemm, EmptyOnesDoNothing) {
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{0, 5}, {5, 0}, {0, 0}}) {
    this->check_all({m, n, 3});
  }
}

TYPED_TEST(Gemm, GenericIsTheReference) {
  using T = TypeParam;
  const GemmDims d{20, 33, 300, 300, 1, 33, 1, 33};
  const Guarded<T> a(20 * 300), b(300 * 33), c(20 * 33), expected(20 * 33);
  fill_random(a, this->random_);
  fill_random(b, this->random_);
  const cpu::Gemm<T> gemm(Isa::kGeneric, d, {.threads = 2});
  EXPECT_EQ(gemm.scratch_bytes(), 0U);
  gemm.run(a.data(), b.data(), c.data(), nullptr);
  this->by_reference(d, a.data(), b.data(), expected.data());
  EXPECT_EQ(first_difference(c.copy(), expected.copy()), -1);
}

// A sum of two blocks of k, the second one added, is the product of both.
TYPED_TEST(Gemm, BlocksMayBeAdded) {
  using T = TypeParam;
  const int64_t first = 256;
  for (const auto& [m, n, second] : {std::tuple<int64_t, int64_t, int64_t>{12, 40, 44},
                                     {30, 288, 256},  // right rows along k, as of taps
                                     {3, 37, 20},     // of few left rows
                                     {100, 1, 3},     // as one row
                                     {9, 65, 1}}) {
    const int64_t k = first + second;
    const GemmDims both{m, n, k, k, 1, 1, k, n + 2};
    const Guarded<T> a(m * k), b(k * n), c((m - 1) * (n + 2) + n);
    fill_random(a, this->random_);
    fill_random(b, this->random_);
    fill_nan(c);
    this->by_reference(both, a.data(), b.data(), c.data());
    const std::vector<T> expected = c.copy();
    for (const Isa isa : supported_isas()) {
      for (const GemmSource source : {GemmSource::kEmitted, GemmSource::kCompiled}) {
        const cpu::GemmOptions options{.source = source, .may_add = true};
        GemmDims one = both;
        one.k = first;
        const cpu::Gemm<T> store(isa, one, options);
        one.k = second;
        const cpu::Gemm<T> add(isa, one, options);
        const size_t bytes = std::max(store.scratch_bytes(), add.scratch_bytes());
        const Guarded<char> scratch((bytes + 63) / 64 * 64);
        fill_nan(c);
        store.run(a.data(), b.data(), c.data(), scratch.data());
        add.add(a.data() + first, b.data() + first, c.data(), scratch.data());
        ASSERT_EQ(first_difference(c.copy(), expected), -1) << name(isa) << " " << m << " " << n;
      }
    }
  }
}

#if defined(__linux__)

// A process that may not make memory executable runs the compiled micro-kernels.
TEST(GemmSources, WithoutExecutableMemoryTheCompiledOnesRun) {
  constexpr int kSetMemoryDenyWriteExecute = 65, kRefuseExecGain = 1;  // prctl, Linux 6.3
  constexpr int kPassed = 0, kCannotAsk = 77;
  const std::vector<Isa> isas = fast_isas();
  if (isas.empty()) GTEST_SKIP() << "no micro-kernels here";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (prctl(kSetMemoryDenyWriteExecute, kRefuseExecGain, 0, 0, 0) != 0) _exit(kCannotAsk);
    cpu::jit::GemmCache::shared().clear();
    const GemmDims d{22, 40, 30, 30, 1, 40, 1, 40};
    const std::vector<float> a(22 * 30, 2), b(30 * 40, 3);
    std::vector<float> c(22 * 40);
    const cpu::Gemm<float> gemm(isas.back(), d);
    alignas(64) static std::byte scratch[1 << 16];
    gemm.run(a.data(), b.data(), c.data(), scratch);
    const bool right = c == std::vector<float>(c.size(), 180);
    _exit(!gemm.is_emitted() && gemm.scratch_bytes() <= sizeof(scratch) && right ? kPassed : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannotAsk) GTEST_SKIP() << "this kernel cannot refuse it";
  EXPECT_EQ(WEXITSTATUS(status), kPassed);
}

#endif

template <class T>
struct Seen {
  std::vector<int> count;
  int64_t n;
  const T* c;
  bool placed = true;

  // Counts its block's elements and negates them.
  static void note(const cpu::EpiArgs* args, T* tile, int64_t ldt, int64_t rows, int64_t cols,
                   int64_t row0, int64_t col0) {
    auto* s = const_cast<Seen*>(reinterpret_cast<const Seen*>(args));
    s->placed = s->placed && tile == s->c + row0 * s->n + col0 && ldt == s->n;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        ++s->count[static_cast<size_t>((row0 + i) * s->n + col0 + j)];
        tile[i * ldt + j] = -tile[i * ldt + j];
      }
    }
  }
};

TYPED_TEST(Gemm, EpilogueSeesEachFinishedElementOnce) {
  using T = TypeParam;
  const int64_t k = 301;
  const GemmDims cases[] = {
      {140, 275, k, k, 1, 275, 1, 275},  // in place
      {140, 1, k, k, 1, 1, 1, 1},        // as one row
      {50, 275, k, k, 1, 1, k, 275},     // transposed when it is finished
  };
  for (const Isa isa : supported_isas()) {
    for (const GemmDims& d : cases) {
      const Guarded<T> a(d.m * k), b(k * d.n), c(d.m * d.n), plain(d.m * d.n);
      fill_random(a, this->random_);
      fill_random(b, this->random_);
      this->by_reference(d, a.data(), b.data(), plain.data());
      std::vector<T> expected = plain.copy();
      for (T& value : expected) value = -value;
      Seen<T> seen{std::vector<int>(expected.size()), d.n, c.data()};
      const cpu::Epilogue<T> epilogue{Seen<T>::note, reinterpret_cast<const cpu::EpiArgs*>(&seen)};
      const cpu::Gemm<T> gemm(isa, d, {.threads = 3});
      const Guarded<char> scratch((gemm.scratch_bytes() + 63) / 64 * 64);
      for (int64_t unit = 0; unit < gemm.units(); ++unit) {
        gemm.run(unit, a.data(), b.data(), c.data(), epilogue, scratch.data());
      }
      EXPECT_EQ(first_difference(c.copy(), expected), -1);
      EXPECT_EQ(seen.count, std::vector<int>(expected.size(), 1));
      EXPECT_TRUE(seen.placed);
    }
  }
}

}  // namespace
}  // namespace mithril::testing_support
