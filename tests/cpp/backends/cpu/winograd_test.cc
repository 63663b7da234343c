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

void check(const Case& c, const WinogradDims& dims, const std::vector<float>& x,
           const std::vector<double>& expected, const std::vector<double>& magnitude) {
  const plan::Step raw = cpu::make_winograd(dims, nullptr).or_throw();
  const plan::Step packed = cpu::make_winograd(dims, c.w.data()).or_throw();
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
    check(c, cpu::forward_dims(c.d), c.x, forward(c, widened(c.x), w),
          forward(c, magnitudes(c.x), w_magnitude));
    check(c, cpu::input_gradient_dims(c.d), c.dy, input_gradient(c, widened(c.dy), w),
          input_gradient(c, magnitudes(c.dy), w_magnitude));
  }
}

// The matrices, written out; both instruction sets round alike.
TEST(Winograd, TransformsAreMatrices) {
  const double r = std::sqrt(2.0);
  const double input[6][6] = {{1, 0, -2.5, 0, 1, 0},      {0, -r, -2, r / 2, 1, 0},
                              {0, r, -2, -r / 2, 1, 0},   {0, -r / 2, -0.5, r, 1, 0},
                              {0, r / 2, -0.5, -r, 1, 0}, {0, 1, 0, -2.5, 0, 1}};
  const double output[4][6] = {{1, 1, 1, 1, 1, 0},
                               {0, r / 2, -r / 2, r, -r, 0},
                               {0, 0.5, 0.5, 2, 2, 0},
                               {0, r / 4, -r / 4, 2 * r, -2 * r, 1}};
  const double filter[6][3] = {{1, 0, 0},
                               {-2. / 3, -r / 3, -1. / 3},
                               {-2. / 3, r / 3, -1. / 3},
                               {1. / 6, r / 6, 1. / 3},
                               {1. / 6, -r / 6, 1. / 3},
                               {0, 0, 1}};
  // outᵢⱼ = Σ Mᵢₖ xₖₗ Mⱼₗ for one lane
  const auto expect = [](const auto& m, size_t rows, size_t cols, const float* x, int64_t x_step,
                         const float* got, int64_t got_step) {
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < rows; ++j) {
        double sum = 0;
        for (size_t k = 0; k < cols; ++k) {
          for (size_t l = 0; l < cols; ++l) {
            sum += m[i][k] * m[j][l] * x[static_cast<int64_t>(k * cols + l) * x_step];
          }
        }
        ASSERT_NEAR(got[static_cast<int64_t>(i * rows + j) * got_step], sum, 1e-5) << i << j;
      }
    }
  };
  std::vector<const cpu::WinogradParts*> sets;
#if defined(__x86_64__)
  if (cpu::supports(cpu::Isa::kAvx2)) sets.push_back(&cpu::avx2::kWinograd);
  if (cpu::supports(cpu::Isa::kAvx512)) sets.push_back(&cpu::avx512::kWinograd);
#endif
  if (sets.size() < 2) std::printf("skipped: this machine lacks AVX2 or AVX-512\n");
  std::mt19937 random(1);
  std::vector<float> first[3];
  for (const cpu::WinogradParts* parts : sets) {
    random.seed(1);
    const int64_t lanes = parts->lanes;
    std::vector<float> x(static_cast<size_t>(36 * 16)), v(static_cast<size_t>(36 * 16)),
        y(static_cast<size_t>(16 * 16)), u(static_cast<size_t>(36 * 16));
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& value : x) value = uniform(random);
    // One tile of 16 channels.
    parts->input({x.data(), 6 * 16, 16, 1, v.data(), 16});
    parts->output({x.data(), 16, 16, 1, y.data(), 4 * 16});
    std::vector<float> taps(static_cast<size_t>(9 * lanes));
    for (int64_t lane = 0; lane < 16; lane += lanes) {
      for (int64_t t = 0; t < 9; ++t) {
        std::copy_n(x.data() + t * 16 + lane, lanes, taps.data() + t * lanes);
      }
      parts->filters({taps.data(), false, u.data() + lane, 16});
    }
    for (int64_t lane = 0; lane < 16; ++lane) {
      expect(input, 6, 6, x.data() + lane, 16, v.data() + lane, 16);
      expect(output, 4, 6, x.data() + lane, 16, y.data() + lane, 16);
      expect(filter, 6, 3, x.data() + lane, 16, u.data() + lane, 16);
    }
    if (first[0].empty()) {
      first[0] = v, first[1] = y, first[2] = u;
    } else {
      EXPECT_EQ(first[0], v);
      EXPECT_EQ(first[1], y);
      EXPECT_EQ(first[2], u);
    }
  }
}

TEST(Winograd, IsPreferredWhereItSavesTime) {
  if (cpu::default_isa() == cpu::Isa::kGeneric) GTEST_SKIP() << "no vectors";
  const auto prefers = [](int64_t channels, int64_t size, int64_t images, bool constant) {
    const WinogradDims d{images, channels, size, size, channels, size, size, 1, 1, false};
    return cpu::prefers_winograd(d, constant);
  };
  EXPECT_TRUE(prefers(64, 56, 1, false));
  EXPECT_TRUE(prefers(256, 14, 1, true));
  EXPECT_FALSE(prefers(512, 7, 1, true));  // reading the filters takes longer
  EXPECT_TRUE(prefers(512, 7, 8, true));
  EXPECT_FALSE(prefers(3, 224, 1, true));  // too few channels for whole vectors
}

}  // namespace
}  // namespace mithril::testing_support
