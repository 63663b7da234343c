#include "backends/cpu/gemm.h"

#include "reference/support.h"

namespace mithril::testing_support {
namespace {

template <class T>
struct Builds {
  static cpu::GemmFn<T> gemm(cpu::Isa isa) {
    if constexpr (std::is_same_v<T, float>) {
      return cpu::gemm_kernels(isa).f32;
    } else {
      return cpu::gemm_kernels(isa).f64;
    }
  }
  static auto reference(cpu::Isa isa) {
    if constexpr (std::is_same_v<T, float>) {
      return cpu::reference_kernels(isa).f32.matmul;
    } else {
      return cpu::reference_kernels(isa).f64.matmul;
    }
  }
};

template <class T>
class Gemm : public ::testing::Test {
 protected:
  Gemm() : scratch_(cpu::kGemmScratchBytes) {}

  // One product against the reference, every operand between guard pages, C in row stride n + pad.
  void check(cpu::Isa isa, int64_t m, int64_t n, int64_t k, int layout, bool at_end) {
    cpu::GemmDims d{m, n, k, k, 1, n, 1, n};
    int64_t gap = 1;
    if ((layout & 1) != 0) d.a_row = 1, d.a_col = m;
    if ((layout & 2) != 0) d.b_row = 1, d.b_col = k;
    if ((layout & 4) != 0) gap = 2, d.a_row *= 2, d.a_col *= 2;  // no unit stride in A at all
    const Guarded<T> a(m * k * gap, at_end), b(k * n, at_end), c(m * n, at_end);
    fill_random(a, random_);
    fill_random(b, random_);
    fill_nan(c);
    const std::vector<T> expected = by_reference(isa, d, a, b);
    const cpu::GemmTiling tiling = cpu::tile_gemm(d, 1 + static_cast<int>(random_() % 4));
    for (int64_t unit = 0; unit < tiling.units(); ++unit) {
      Builds<T>::gemm(isa)(d, a.data(), b.data(), c.data(), tiling.range(d, unit), {},
                           scratch_.data());
    }
    ASSERT_EQ(first_difference(c.copy(), expected), -1)
        << static_cast<int>(isa) << ": " << m << " " << n << " " << k << " layout " << layout;
  }

  static std::vector<T> by_reference(cpu::Isa isa, const cpu::GemmDims& d, const Guarded<T>& a,
                                     const Guarded<T>& b) {
    ref_matmul_dims r{};
    r.m = d.m, r.n = d.n, r.k = d.k;
    r.a_row = d.a_row, r.a_col = d.a_col, r.b_row = d.b_row, r.b_col = d.b_col;
    r.c_row = d.n, r.c_col = 1;
    std::vector<T> out(static_cast<size_t>(d.m * d.n));
    Builds<T>::reference(isa)(&r, a.data(), b.data(), out.data(), 0, d.m);
    return out;
  }

  Guarded<char> scratch_;
  std::mt19937_64 random_{9};
};
TYPED_TEST_SUITE(Gemm, Reals);

TYPED_TEST(Gemm, EveryTailEqualsTheReference) {
  for (const cpu::Isa isa : supported_isas()) {
    for (const int64_t m : {1, 5, 6, 7, 13, 14, 15, 29}) {
      for (const int64_t n : {1, 7, 8, 15, 16, 17, 31, 32, 33, 48, 65}) {
        for (const int64_t k : {0, 1, 9}) this->check(isa, m, n, k, n % 8, (m + n) % 2 == 0);
      }
    }
  }
}

TYPED_TEST(Gemm, EveryBlockOfKEqualsTheReference) {
  for (const cpu::Isa isa : supported_isas()) {
    for (const int64_t k : {255, 256, 257, 512, 700}) {
      for (int layout = 0; layout < 8; ++layout) {
        this->check(isa, 9, 37, k, layout, layout % 2 == 0);
      }
    }
  }
}

TYPED_TEST(Gemm, LargeOnesArePackedAndEqual) {
  for (const cpu::Isa isa : supported_isas()) {
    if (isa == cpu::Isa::kGeneric) continue;  // that is the reference itself
    for (int layout = 0; layout < 8; ++layout) {
      this->check(isa, 300, 260, 512, layout, true);
      this->check(isa, 33, 600, 130, layout, false);
      this->check(isa, 400, 20, 90, layout, true);
    }
  }
}

TYPED_TEST(Gemm, EmptyRangesDoNothing) {
  for (const cpu::Isa isa : supported_isas()) {
    for (const auto& [m, n] : {std::pair<int64_t, int64_t>{0, 5}, {5, 0}, {0, 0}}) {
      this->check(isa, m, n, 3, 0, true);
    }
  }
}

TYPED_TEST(Gemm, EpilogueSeesEachFinishedElementOnce) {
  using T = TypeParam;
  struct Seen {
    std::vector<int> count;
    int64_t n;
    const T* c;
    bool placed = true;
  };
  for (const cpu::Isa isa : supported_isas()) {
    const int64_t m = 40, n = 75, k = 300;
    const cpu::GemmDims d{m, n, k, k, 1, n, 1, n};
    const Guarded<T> a(m * k), b(k * n), c(m * n);
    fill_random(a, this->random_);
    fill_random(b, this->random_);
    Seen seen{std::vector<int>(static_cast<size_t>(m * n)), n, c.data()};
    cpu::Epilogue<T> epilogue;
    epilogue.args = reinterpret_cast<const cpu::EpiArgs*>(&seen);
    epilogue.run = [](const cpu::EpiArgs* args, T* tile, int64_t ldt, int64_t rows, int64_t cols,
                      int64_t row0, int64_t col0) {
      auto* s = const_cast<Seen*>(reinterpret_cast<const Seen*>(args));
      s->placed = s->placed && tile == s->c + row0 * s->n + col0 && ldt == s->n;
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) {
          ++s->count[static_cast<size_t>((row0 + i) * s->n + col0 + j)];
          tile[i * ldt + j] = -tile[i * ldt + j];
        }
      }
    };
    std::vector<T> expected = this->by_reference(isa, d, a, b);
    for (T& value : expected) value = -value;
    const cpu::GemmTiling tiling = cpu::tile_gemm(d, 3);
    for (int64_t unit = 0; unit < tiling.units(); ++unit) {
      Builds<T>::gemm(isa)(d, a.data(), b.data(), c.data(), tiling.range(d, unit), epilogue,
                           this->scratch_.data());
    }
    EXPECT_EQ(first_difference(c.copy(), expected), -1);
    EXPECT_EQ(seen.count, std::vector<int>(static_cast<size_t>(m * n), 1));
    EXPECT_TRUE(seen.placed);
  }
}

}  // namespace
}  // namespace mithril::testing_support
