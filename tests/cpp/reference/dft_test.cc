#include <numbers>

#include "reference/support.h"

namespace mithril::testing_support {
namespace {

/// Every build of the kernels, the C99 one among them.
std::vector<cpu::DftKernels> builds() {
  std::vector<cpu::DftKernels> out{{ref_dft_table, ref_dft_scratch, ref_dft_width, ref_dft_prepare,
                                    ref_dft_f32, ref_dft_f64, ref_rdft_f32, ref_rdft_f64}};
  for (const cpu::Isa isa : supported_isas()) out.push_back(cpu::reference_kernels(isa).dft);
  return out;
}

struct Parts {
  std::vector<double> re, im;
};

/// Lines in `pieces` of that many units, every buffer between guards.
Parts run(const cpu::DftKernels& kernels, const ref_axis_dims& d, const Parts& x, int64_t piece,
          bool at_end) {
  const auto size = [](int64_t count) { return static_cast<size_t>(count); };
  const Guarded<double> table(size(kernels.table(d.n)), at_end);
  const Guarded<double> scratch(size(kernels.scratch(d.n)), at_end);
  fill_nan(table);
  fill_nan(scratch);
  kernels.prepare(d.n, table.data(), scratch.data());
  fill_nan(scratch);
  const Guarded<double> re(x.re.size(), at_end), im(x.re.size(), at_end);
  const Guarded<double> yre(x.re.size(), at_end), yim(x.re.size(), at_end);
  std::copy(x.re.begin(), x.re.end(), re.data());
  std::copy(x.im.begin(), x.im.end(), im.data());
  fill_nan(yre);
  fill_nan(yim);
  for (int64_t unit = 0; unit < d.outer * d.inner; unit += piece) {
    kernels.f64(&d, table.data(), re.data(), x.im.empty() ? nullptr : im.data(), yre.data(),
                yim.data(), scratch.data(), unit, std::min(unit + piece, d.outer * d.inner));
  }
  return {yre.copy(), yim.copy()};
}

Parts random_parts(size_t count, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  Parts out{std::vector<double>(count), std::vector<double>(count)};
  for (size_t i = 0; i < count; ++i) {
    out.re[i] = uniform(random);
    out.im[i] = uniform(random);
  }
  return out;
}

/// The largest difference to the definition, relative to the root of n.
double distance(const ref_axis_dims& d, const Parts& x, const Parts& y) {
  long double worst = 0;
  for (int64_t unit = 0; unit < d.outer * d.inner; ++unit) {
    const int64_t base = unit / d.inner * d.n * d.inner + unit % d.inner;
    for (int64_t k = 0; k < d.n; ++k) {
      long double re = 0, im = 0;
      for (int64_t j = 0; j < d.n; ++j) {
        const auto at = static_cast<size_t>(base + j * d.inner);
        const long double angle = 2 * std::numbers::pi_v<long double> *
                                  static_cast<long double>(j * k % d.n) /
                                  static_cast<long double>(d.n) * (d.falling != 0 ? 1 : -1);
        const long double c = std::cos(angle), s = std::sin(angle);
        const long double xi = x.im.empty() ? 0 : x.im[at];
        re += x.re[at] * c - xi * s;
        im += x.re[at] * s + xi * c;
      }
      const auto at = static_cast<size_t>(base + k * d.inner);
      worst = std::max({worst, std::abs(re - y.re[at]), std::abs(im - y.im[at])});
    }
  }
  return static_cast<double>(worst / std::sqrt(static_cast<long double>(d.n)));
}

TEST(ReferenceDft, EqualsItsDefinitionForEverySmallSize) {
  std::mt19937_64 random(1);
  for (int64_t n = 1; n <= 130; ++n) {
    for (const int inverse : {0, 1}) {
      const ref_axis_dims d = {2, n, 1, inverse};
      const Parts x = random_parts(static_cast<size_t>(2 * n), random);
      EXPECT_LE(distance(d, x, run(builds()[0], d, x, 2, true)), 2e-15) << n;
    }
  }
}

TEST(ReferenceDft, LongLinesOfEveryKind) {
  std::mt19937_64 random(2);
  for (const int64_t n : {1009, 1024, 1500, 2304}) {
    const ref_axis_dims d = {1, n, 2, 0};
    const Parts x = random_parts(static_cast<size_t>(2 * n), random);
    EXPECT_LE(distance(d, x, run(builds()[0], d, x, 2, false)), 2e-15) << n;
  }
}

TEST(ReferenceDft, BitsDependOnNoBuildAndNoSplit) {
  std::mt19937_64 random(3);
  for (const int64_t n : {1, 2, 8, 12, 31, 53, 60, 97}) {
    for (const ref_axis_dims d : {ref_axis_dims{11, n, 1, 0}, ref_axis_dims{3, n, 5, 1}}) {
      const Parts x = random_parts(static_cast<size_t>(d.outer * n * d.inner), random);
      const Parts want = run(builds()[0], d, x, d.outer * d.inner, true);
      for (const cpu::DftKernels& kernels : builds()) {
        for (const int64_t piece : {1, 3, 8, 16}) {
          const Parts got = run(kernels, d, x, piece, piece == 3);
          EXPECT_EQ(first_difference(got.re, want.re), -1) << n;
          EXPECT_EQ(first_difference(got.im, want.im), -1) << n;
        }
      }
    }
  }
}

TEST(ReferenceDft, WithoutImaginaryPartsTheyAreZero) {
  std::mt19937_64 random(4);
  const ref_axis_dims d = {3, 10, 2, 0};
  Parts x = random_parts(60, random);
  x.im.assign(60, 0.0);
  const Parts want = run(builds()[0], d, x, 6, true);
  x.im.clear();
  const Parts got = run(builds()[0], d, x, 6, true);
  EXPECT_EQ(first_difference(got.re, want.re), -1);
  EXPECT_EQ(first_difference(got.im, want.im), -1);
}

/// The first half of a real transform, every buffer between guards.
Parts run_real(const cpu::DftKernels& kernels, const ref_axis_dims& d, const std::vector<double>& x,
               int64_t piece, bool at_end) {
  const auto size = [](int64_t count) { return static_cast<size_t>(count); };
  const Guarded<double> table(size(kernels.table(d.n)), at_end);
  const Guarded<double> scratch(size(kernels.scratch(d.n)), at_end);
  kernels.prepare(d.n, table.data(), scratch.data());
  fill_nan(scratch);
  const Guarded<double> input(x.size(), at_end);
  const size_t kept = size(d.outer * (d.n / 2 + 1) * d.inner);
  const Guarded<double> yre(kept, at_end), yim(kept, at_end);
  std::copy(x.begin(), x.end(), input.data());
  for (int64_t unit = 0; unit < d.outer * d.inner; unit += piece) {
    kernels.real_f64(&d, table.data(), input.data(), yre.data(), yim.data(), scratch.data(), unit,
                     std::min(unit + piece, d.outer * d.inner));
  }
  return {yre.copy(), yim.copy()};
}

TEST(ReferenceDft, RealLinesHaveTheFirstHalf) {
  std::mt19937_64 random(6);
  for (const int64_t n : {1, 2, 3, 4, 6, 7, 12, 16, 53, 60, 97, 106, 1024}) {
    for (const ref_axis_dims d : {ref_axis_dims{11, n, 1, 0}, ref_axis_dims{3, n, 5, 0}}) {
      Parts x = random_parts(static_cast<size_t>(d.outer * n * d.inner), random);
      x.im.clear();
      const Parts whole = run(builds()[0], d, x, 16, true);
      const Parts first = run_real(builds()[0], d, x.re, 16, true);
      const int64_t kept = n / 2 + 1;
      for (int64_t unit = 0; unit < d.outer * d.inner; ++unit) {
        const int64_t outer = unit / d.inner, inner = unit % d.inner;
        for (int64_t k = 0; k < kept; ++k) {
          const auto at = static_cast<size_t>((outer * kept + k) * d.inner + inner);
          const auto in = static_cast<size_t>((outer * n + k) * d.inner + inner);
          const double bound = 2e-15 * std::sqrt(static_cast<double>(n));
          EXPECT_NEAR(first.re[at], whole.re[in], bound) << n << " " << k;
          EXPECT_NEAR(first.im[at], whole.im[in], bound) << n << " " << k;
        }
      }
      for (const cpu::DftKernels& kernels : builds()) {
        for (const int64_t piece : {1, 3}) {
          const Parts got = run_real(kernels, d, x.re, piece, piece == 3);
          EXPECT_EQ(first_difference(got.re, first.re), -1) << n;
          EXPECT_EQ(first_difference(got.im, first.im), -1) << n;
        }
      }
    }
  }
}

TEST(ReferenceDft, FloatsAreTransformedInDouble) {
  std::mt19937_64 random(5);
  const ref_axis_dims d = {1, 300, 1, 0};
  Parts x = random_parts(300, random);
  const Guarded<float> re(300), im(300), yre(300), yim(300);
  for (int64_t i = 0; i < 300; ++i) {
    const auto at = static_cast<size_t>(i);
    x.re[at] = re[i] = static_cast<float>(x.re[at]);
    x.im[at] = im[i] = static_cast<float>(x.im[at]);
  }
  const Parts want = run(builds()[0], d, x, 1, true);
  for (const cpu::DftKernels& kernels : builds()) {
    std::vector<double> table(static_cast<size_t>(kernels.table(300)));
    std::vector<double> scratch(static_cast<size_t>(kernels.scratch(300)));
    kernels.prepare(300, table.data(), scratch.data());
    kernels.f32(&d, table.data(), re.data(), im.data(), yre.data(), yim.data(), scratch.data(), 0,
                1);
    for (int64_t i = 0; i < 300; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ(yre[i], static_cast<float>(want.re[at]));
      EXPECT_EQ(yim[i], static_cast<float>(want.im[at]));
    }
  }
}

TEST(ReferenceDft, RootsOfUnityAreExactAtQuarterTurns) {
  const ref_axis_dims d = {1, 4, 1, 0};
  const Parts y = run(builds()[0], d, {{1, 2, 3, 4}, {}}, 1, true);
  EXPECT_EQ(y.re, (std::vector<double>{10, -2, -2, -2}));
  EXPECT_EQ(y.im, (std::vector<double>{0, 2, 0, -2}));
  std::vector<double> table(static_cast<size_t>(ref_dft_table(8)));
  std::vector<double> scratch(static_cast<size_t>(ref_dft_scratch(8)));
  ref_dft_prepare(8, table.data(), scratch.data());
  const double root = std::sqrt(0.5);
  const double want[] = {1, root, 0, -root, -1, -root, 0, root};
  for (size_t k = 0; k < 8; ++k) {
    EXPECT_DOUBLE_EQ(table[k], want[k]);
    EXPECT_DOUBLE_EQ(table[8 + k], want[(k + 2) % 8]);
  }
}

}  // namespace
}  // namespace mithril::testing_support
