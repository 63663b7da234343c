// Covers: backends/cpu/conv/winograd_isa.cc backends/cpu/conv/window_kernels.cc
// Covers: backends/cpu/conv/winograd_patches.cc
#include "backends/cpu/conv/winograd.h"

#include <cmath>
#include <random>

#include "backends/cpu/conv/winograd_case.h"
#include "backends/cpu/conv/winograd_parts.h"
#include "backends/cpu/reference/reference.h"

namespace mithril::testing_support {
namespace {

using cpu::WinogradDims;

// y and dx in float64.
std::vector<double> forward(const WinogradCase& c, const std::vector<double>& x,
                            const std::vector<double>& w) {
  std::vector<double> y(c.dy.size());
  cpu::reference_kernels(cpu::detect_isa())
      .f64.conv2d(&c.d, x.data(), w.data(), y.data(), 0, c.d.batch * c.d.c_out * c.d.h_out);
  return y;
}
std::vector<double> input_gradient(const WinogradCase& c, const std::vector<double>& dy,
                                   const std::vector<double>& w) {
  std::vector<double> dx(c.x.size());
  cpu::reference_kernels(cpu::detect_isa())
      .f64.conv2d_dx(&c.d, dy.data(), w.data(), dx.data(), 0, c.d.batch * c.d.c_in * c.d.h_in);
  return dx;
}

void check(const WinogradCase& c, const WinogradDims& dims, int64_t tile,
           const std::vector<float>& x, const std::vector<double>& expected,
           const std::vector<double>& magnitude) {
  SCOPED_TRACE(tile);
  const plan::Step raw = cpu::make_winograd(dims, tile, 1, nullptr, nullptr).or_throw();
  const plan::Step packed = cpu::make_winograd(dims, tile, 1, c.w.data(), nullptr).or_throw();
  const auto whole = run(raw, x, c.w, expected.size(), raw.units);
  expect_near(whole, expected, magnitude);
  EXPECT_EQ(run(raw, x, c.w, expected.size(), 1), whole);
  EXPECT_EQ(run(raw, x, c.w, expected.size(), raw.units, true), whole);
  EXPECT_EQ(run(packed, x, c.w, expected.size(), packed.units), whole);
  EXPECT_EQ(run(packed, x, c.w, expected.size(), 1), whole);
  for (const int threads : {2, 3, 4}) {
    const plan::Step shared = cpu::make_winograd(dims, tile, threads, nullptr, nullptr).or_throw();
    EXPECT_EQ(run(shared, x, c.w, expected.size(), 1), whole) << threads;
  }
}

TEST(Winograd, LiesWithinItsBoundInAnyUnits) {
  if (cpu::default_isa() == cpu::Isa::kGeneric) GTEST_SKIP() << "no vectors";
  const WinogradCase cases[] = {
      make_case(1, 16, 8, 8, 16, 1, 1, 1, 1, 1),    // whole tiles
      make_case(2, 17, 9, 7, 19, 1, 1, 1, 1, 2),    // ends of tiles, of vectors
      make_case(3, 5, 6, 11, 3, 0, 0, 0, 0, 3),     // no padding
      make_case(1, 20, 5, 6, 40, 2, 3, 1, 0, 4),    // uneven padding
      make_case(2, 33, 3, 3, 128, 1, 1, 1, 1, 5),   // one tile an image, shares of filters
      make_case(1, 8, 1, 30, 8, 1, 1, 1, 1, 6),     // one row
      make_case(1, 50, 44, 44, 48, 1, 1, 1, 1, 7),  // several blocks
      make_case(40, 16, 6, 6, 64, 1, 1, 1, 1, 8),   // blocks over images
      make_case(1, 16, 4, 4, 16, 5, 5, 5, 5, 9),    // windows of padding alone
      make_case(2, 96, 7, 7, 256, 1, 1, 1, 1, 10),  // shares of filters for one block
  };
  for (const WinogradCase& c : cases) {
    SCOPED_TRACE(c.d.c_in);
    const auto w = widened(c.w), w_magnitude = magnitudes(c.w);
    const auto y = forward(c, widened(c.x), w), most_y = forward(c, magnitudes(c.x), w_magnitude);
    const auto dx = input_gradient(c, widened(c.dy), w);
    const auto most_dx = input_gradient(c, magnitudes(c.dy), w_magnitude);
    for (const int64_t tile : {4, 2}) {
      check(c, cpu::forward_dims(c.d), tile, c.x, y, most_y);
      check(c, cpu::input_gradient_dims(c.d), tile, c.dy, dx, most_dx);
    }
  }
}

using Matrix = std::vector<std::vector<double>>;

struct Matrices {
  Matrix input, output, filter;
};

// Written out.
Matrices matrices(int64_t tile) {
  if (tile == 2) {
    return {{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
            {{1, 1, 1, 0}, {0, 1, -1, -1}},
            {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}}};
  }
  const double r = std::sqrt(2.0);
  return {{{1, 0, -2.5, 0, 1, 0},
           {0, -r, -2, r / 2, 1, 0},
           {0, r, -2, -r / 2, 1, 0},
           {0, -r / 2, -0.5, r, 1, 0},
           {0, r / 2, -0.5, -r, 1, 0},
           {0, 1, 0, -2.5, 0, 1}},
          {{1, 1, 1, 1, 1, 0},
           {0, r / 2, -r / 2, r, -r, 0},
           {0, 0.5, 0.5, 2, 2, 0},
           {0, r / 4, -r / 4, 2 * r, -2 * r, 1}},
          {{1, 0, 0},
           {-2. / 3, -r / 3, -1. / 3},
           {-2. / 3, r / 3, -1. / 3},
           {1. / 6, r / 6, 1. / 3},
           {1. / 6, -r / 6, 1. / 3},
           {0, 0, 1}}};
}

Matrix transposed(const Matrix& m) {
  Matrix out(m[0].size(), std::vector<double>(m.size()));
  for (size_t i = 0; i < m.size(); ++i) {
    for (size_t j = 0; j < m[0].size(); ++j) out[j][i] = m[i][j];
  }
  return out;
}

// outᵢⱼ = Σ Mᵢₖ xₖₗ Mⱼₗ for one lane; elements are 16 apart.
void expect_product(const Matrix& m, const float* x, const float* got) {
  const size_t rows = m.size(), cols = m[0].size();
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < rows; ++j) {
      double sum = 0;
      for (size_t k = 0; k < cols; ++k) {
        for (size_t l = 0; l < cols; ++l) sum += m[i][k] * m[j][l] * x[(k * cols + l) * 16];
      }
      ASSERT_NEAR(got[(i * rows + j) * 16], sum, 1e-5) << i << j;
    }
  }
}

// Of one tile of 16 channels of random numbers: patches, results, filters.
std::vector<std::vector<float>> transform(const cpu::WinogradParts& parts) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  const int64_t lanes = parts.lanes, tile = parts.tile, patch = parts.patch;
  const auto room = [](int64_t count) {
    return std::vector<float>(static_cast<size_t>(count * 16));
  };
  auto x = room(patch * patch), v = room(patch * patch), u = room(patch * patch);
  auto y = room(tile * tile);
  for (float& value : x) value = uniform(random);
  parts.input({x.data(), patch * 16, 16, 1, v.data(), 16});
  bool broken = true;
  EXPECT_FALSE(parts.output({x.data(), 16, 16, 1, y.data(), tile * 16, &broken}));
  EXPECT_FALSE(broken);
  std::vector<float> taps(static_cast<size_t>(9 * lanes));
  for (int64_t lane = 0; lane < 16; lane += lanes) {
    for (int64_t t = 0; t < 9; ++t) {
      std::copy_n(x.data() + t * 16 + lane, lanes, taps.data() + t * lanes);
    }
    parts.filters({taps.data(), false, u.data() + lane, 16});
  }
  const Matrices by = matrices(tile);
  for (int64_t lane = 0; lane < 16; ++lane) {
    expect_product(by.input, x.data() + lane, v.data() + lane);
    expect_product(by.output, x.data() + lane, y.data() + lane);
    expect_product(by.filter, x.data() + lane, u.data() + lane);
  }
  return {v, y, u};
}

// Both instruction sets round alike.
TEST(Winograd, TransformsAreMatrices) {
#if defined(__x86_64__)
  const bool narrow = cpu::supports(cpu::Isa::kAvx2), wide = cpu::supports(cpu::Isa::kAvx512);
  if (!narrow || !wide) std::printf("skipped: this machine lacks AVX2 or AVX-512\n");
  const std::pair<const cpu::WinogradParts*, const cpu::WinogradParts*> sets[] = {
      {&cpu::avx2::kTilesOf4, &cpu::avx512::kTilesOf4},
      {&cpu::avx2::kTilesOf2, &cpu::avx512::kTilesOf2}};
  for (const auto& [with_avx2, with_avx512] : sets) {
    std::vector<std::vector<float>> first, second;
    if (narrow) first = transform(*with_avx2);
    if (wide) second = transform(*with_avx512);
    if (narrow && wide) {
      EXPECT_EQ(first, second);
    }
  }
#endif
}

// Of one tile of 16 channels: cotangents, and gradients of filters.
std::vector<std::vector<float>> transform_back(const cpu::WinogradGradientParts& parts,
                                               int64_t lanes) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(size_t{36 * 16}), z(size_t{36 * 16}), w(size_t{9 * 16});
  for (float& value : x) value = uniform(random);
  parts.cotangents({x.data(), 4 * 16, 16, 1, z.data(), 16});
  std::vector<float> taps(static_cast<size_t>(9 * lanes));
  for (int64_t lane = 0; lane < 16; lane += lanes) {
    parts.sums({x.data() + lane, 16, taps.data()});
    for (int64_t t = 0; t < 9; ++t) {
      std::copy_n(taps.data() + t * lanes, lanes, w.data() + t * 16 + lane);
    }
  }
  const Matrices by = matrices(4);
  for (int64_t lane = 0; lane < 16; ++lane) {
    expect_product(transposed(by.output), x.data() + lane, z.data() + lane);
    expect_product(transposed(by.filter), x.data() + lane, w.data() + lane);
  }
  return {z, w};
}

TEST(Winograd, TransformsOfTheGradientAreTransposedMatrices) {
#if defined(__x86_64__)
  const bool narrow = cpu::supports(cpu::Isa::kAvx2), wide = cpu::supports(cpu::Isa::kAvx512);
  if (!narrow || !wide) std::printf("skipped: this machine lacks AVX2 or AVX-512\n");
  std::vector<std::vector<float>> first, second;
  if (narrow) first = transform_back(cpu::avx2::kGradientOf4, 8);
  if (wide) second = transform_back(cpu::avx512::kGradientOf4, 16);
  if (narrow && wide) {
    EXPECT_EQ(first, second);
  }
#endif
}

TEST(Winograd, IsPreferredWhereItSavesTime) {
  if (cpu::default_isa() == cpu::Isa::kGeneric) GTEST_SKIP() << "no vectors";
  const auto tile = [](int64_t channels, int64_t size, int64_t images, bool constant) {
    const WinogradDims d{images, channels, size, size, channels, size, size, 1, 1, false};
    return cpu::winograd_tile(d, constant);
  };
  EXPECT_EQ(tile(64, 56, 1, false), 4);
  EXPECT_EQ(tile(256, 14, 1, true), 4);
  EXPECT_EQ(tile(512, 7, 1, true), 2);  // 36 numbers a filter take too long to read
  EXPECT_EQ(tile(512, 7, 8, true), 4);
  EXPECT_EQ(tile(512, 3, 1, true), 0);  // one tile of 4x4, four of 2x2
  EXPECT_EQ(tile(3, 224, 1, true), 0);  // too few channels for whole vectors
}

}  // namespace
}  // namespace mithril::testing_support
