// Covers: backends/cpu/isa/winograd.cc
// Covers: backends/cpu/windows.cc
#include "backends/cpu/winograd.h"

#include <cmath>
#include <random>

#include "backends/cpu/reference.h"
#include "backends/cpu/winograd_parts.h"
#include "reference/support.h"

namespace mithril::testing_support {
namespace {

using cpu::WinogradDims;

struct Case {
  ref_conv2d_dims d;
  std::vector<float> x, w, dy;
};

// 3x3, step 1: images channels h w filters pads.
Case make_case(int64_t images, int64_t channels, int64_t h, int64_t w, int64_t filters, int64_t top,
               int64_t left, int64_t below, int64_t right, unsigned seed) {
  const int64_t h_out = h + top + below - 2, w_out = w + left + right - 2;
  Case c{
      {images, 1, channels, h, w, filters, h_out, w_out, 3, 3, 1, 1, top, left, 1, 1}, {}, {}, {}};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& out, int64_t count) {
    out.resize(static_cast<size_t>(count));
    for (float& value : out) value = normal(random);
  };
  fill(c.x, images * channels * h * w);
  fill(c.w, filters * channels * 9);
  fill(c.dy, images * filters * h_out * w_out);
  return c;
}

std::vector<double> widened(const std::vector<float>& x) { return {x.begin(), x.end()}; }

std::vector<double> magnitudes(const std::vector<float>& x) {
  std::vector<double> out = widened(x);
  for (double& value : out) value = std::abs(value);
  return out;
}

// y and dx in float64.
std::vector<double> forward(const Case& c, const std::vector<double>& x,
                            const std::vector<double>& w) {
  std::vector<double> y(c.dy.size());
  cpu::reference_kernels(cpu::detect_isa())
      .f64.conv2d(&c.d, x.data(), w.data(), y.data(), 0, c.d.batch * c.d.c_out * c.d.h_out);
  return y;
}
std::vector<double> input_gradient(const Case& c, const std::vector<double>& dy,
                                   const std::vector<double>& w) {
  std::vector<double> dx(c.x.size());
  cpu::reference_kernels(cpu::detect_isa())
      .f64.conv2d_dx(&c.d, dy.data(), w.data(), dx.data(), 0, c.d.batch * c.d.c_in * c.d.h_in);
  return dx;
}

// In ranges of `chunk` units, the last range first.
std::vector<float> run(const plan::Step& step, const std::vector<float>& x,
                       const std::vector<float>& w, size_t count, int64_t chunk) {
  const Guarded<float> out(count), input(x.size()), filters(w.size());
  std::copy(x.begin(), x.end(), input.data());
  std::copy(w.begin(), w.end(), filters.data());
  fill_nan(out);
  const Guarded<char> scratch((step.scratch_bytes + 63) / 64 * 64);
  void* buffers[] = {input.data(), filters.data(), out.data()};
  plan::ErrorSlot slot;
  const plan::KernelArgs args{buffers,        nullptr, nullptr, step.data.get(),
                              scratch.data(), 0,       &slot,   nullptr};
  for (int64_t end = step.units; end > 0; end -= chunk) {
    EXPECT_EQ(step.kernel(args, std::max<int64_t>(0, end - chunk), end), plan::KernelStatus::kOk);
  }
  return out.copy();
}

// The stated bound: 16 roundings of the sum of magnitudes, the largest of all results.
void expect_near(const std::vector<float>& got, const std::vector<double>& expected,
                 const std::vector<double>& magnitude) {
  ASSERT_EQ(got.size(), expected.size());
  const double most = *std::max_element(magnitude.begin(), magnitude.end());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 16 * 0x1p-24 * most) << i;
  }
}

void check(const Case& c, const WinogradDims& dims, int64_t tile, const std::vector<float>& x,
           const std::vector<double>& expected, const std::vector<double>& magnitude) {
  SCOPED_TRACE(tile);
  const plan::Step raw = cpu::make_winograd(dims, tile, nullptr).or_throw();
  const plan::Step packed = cpu::make_winograd(dims, tile, c.w.data()).or_throw();
  const auto whole = run(raw, x, c.w, expected.size(), raw.units);
  expect_near(whole, expected, magnitude);
  EXPECT_EQ(run(raw, x, c.w, expected.size(), 1), whole);
  EXPECT_EQ(run(packed, x, c.w, expected.size(), packed.units), whole);
  EXPECT_EQ(run(packed, x, c.w, expected.size(), 1), whole);
}

TEST(Winograd, LiesWithinItsBoundInAnyUnits) {
  if (cpu::default_isa() == cpu::Isa::kGeneric) GTEST_SKIP() << "no vectors";
  const Case cases[] = {
      make_case(1, 16, 8, 8, 16, 1, 1, 1, 1, 1),    // whole tiles
      make_case(2, 17, 9, 7, 19, 1, 1, 1, 1, 2),    // ends of tiles, of vectors
      make_case(3, 5, 6, 11, 3, 0, 0, 0, 0, 3),     // no padding
      make_case(1, 20, 5, 6, 40, 2, 3, 1, 0, 4),    // uneven padding
      make_case(2, 33, 3, 3, 128, 1, 1, 1, 1, 5),   // one tile an image, shares of filters
      make_case(1, 8, 1, 30, 8, 1, 1, 1, 1, 6),     // one row
      make_case(1, 50, 44, 44, 48, 1, 1, 1, 1, 7),  // several blocks
      make_case(40, 16, 6, 6, 64, 1, 1, 1, 1, 8),   // blocks over images
      make_case(1, 16, 4, 4, 16, 5, 5, 5, 5, 9),    // windows of padding alone
  };
  for (const Case& c : cases) {
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
  parts.output({x.data(), 16, 16, 1, y.data(), tile * 16});
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
