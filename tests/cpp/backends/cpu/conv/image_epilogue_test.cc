#include "backends/cpu/conv/image_epilogue.h"

#include <gtest/gtest.h>

#include "reference/support.h"
#include "tile/builder.h"

namespace mithril::testing_support {
namespace {

using core::DType;
using cpu::ImageBlock;
using cpu::ImageEpilogue;
using cpu::Isa;

// (y + bias) * wave - residual for y [2, 5, 4, 7], bias [5, 1, 1] and residual like y; `wave` by
// the strides of the case.
struct Images {
  static constexpr int64_t kImages = 2, kFilters = 5, kHeight = 4, kWidth = 7;
  static constexpr int64_t kPlane = kHeight * kWidth, kCount = kImages * kFilters * kPlane;
  std::vector<int64_t> wave_strides;

  std::vector<select::Operand> operands() const {
    const std::vector<int64_t> whole = {kFilters * kPlane, kPlane, kWidth, 1};
    std::vector<select::Operand> out(5);  // y, bias, wave, residual, result
    const std::vector<std::vector<int64_t>> strides = {
        whole, {0, 1, 0, 0}, wave_strides, whole, whole};
    for (size_t i = 0; i < out.size(); ++i) {
      out[i].dtype = DType::kFloat32;
      out[i].shape = {kImages, kFilters, kHeight, kWidth};
      out[i].strides = strides[i];
    }
    return out;
  }
};

tile::Program program() {
  tile::Builder t;
  const tile::Reg y = t.load(DType::kFloat32), bias = t.load_row(DType::kFloat32),
                  wave = t.load(DType::kFloat32), residual = t.load(DType::kFloat32);
  t.store((y + bias) * wave - residual);
  return t.finish();
}

class ImageEpilogues : public ::testing::Test {
 protected:
  void check(const std::vector<int64_t>& wave_strides, bool takes_positions) {
    const Images images{wave_strides};
    for (const Guarded<float>* of : {&y_, &bias_, &wave_, &residual_}) fill_random(*of, random_);
    const std::vector<float> before = y_.copy();
    std::vector<float> expected(before);
    for (int64_t i = 0; i < Images::kCount; ++i) {
      const int64_t at[] = {i / (Images::kFilters * Images::kPlane),
                            i / Images::kPlane % Images::kFilters,
                            i / Images::kWidth % Images::kHeight, i % Images::kWidth};
      int64_t wave = 0;
      for (size_t axis = 0; axis < 4; ++axis) wave += at[axis] * wave_strides[axis];
      float& one = expected[static_cast<size_t>(i)];
      one = (one + bias_[at[1]]) * wave_[wave] - residual_[i];
    }
    const tile::Program code = program();
    const auto operands = images.operands();
    const select::Epilogue epilogue{code, operands, 0};
    void* const buffers[] = {y_.data(), bias_.data(), wave_.data(), residual_.data(), y_.data()};
    for (const Isa isa : supported_isas()) {
      SCOPED_TRACE(name(isa));
      const auto made = ImageEpilogue::make(epilogue, 0, isa).or_throw();
      EXPECT_EQ(made.takes_positions(), takes_positions);
      const Guarded<char> scratch((made.scratch_bytes() + 63) / 64 * 64);
      std::copy(before.begin(), before.end(), y_.data());
      for (int64_t image = 1; image >= 0; --image) {  // blocks of uneven sizes
        for (const ImageBlock& block :
             {ImageBlock{image, 3, 2, 1, 3}, ImageBlock{image, 0, 3, 1, 3},
              ImageBlock{image, 0, 5, 0, 1}}) {
          made.run(buffers, block, scratch.data());
        }
      }
      EXPECT_EQ(first_difference(y_.copy(), expected), -1);
      if (!takes_positions) continue;
      std::copy(before.begin(), before.end(), y_.data());
      for (int64_t image = 0; image < Images::kImages; ++image) {
        // A product of the filters from 2 on and the positions from 9 on, and what that leaves.
        const auto inside = made.of_product<float>(buffers, image, 2, 9, scratch.data());
        inside.run(inside.args, nullptr, 0, 3, Images::kPlane - 9, 0, 0);
        const auto whole = made.of_product<float>(buffers, image, 0, 0, scratch.data());
        whole.run(whole.args, nullptr, 0, 2, Images::kPlane, 0, 0);
        whole.run(whole.args, nullptr, 0, 3, 9, 2, 0);
      }
      EXPECT_EQ(first_difference(y_.copy(), expected), -1);
    }
  }

  Guarded<float> y_{Images::kCount}, bias_{Images::kFilters}, wave_{Images::kCount},
      residual_{Images::kCount};
  std::mt19937_64 random_{33};
};

TEST_F(ImageEpilogues, AreTheProgramOnEveryElement) {
  using I = Images;
  check({0, 0, 0, 0}, true);
  check({1, 0, 0, 0}, true);                                          // one number an image
  check({I::kPlane, 0, I::kWidth, 1}, true);                          // the same for all filters
  check({0, 0, I::kWidth, 1}, true);                                  // and images
  check({0, 0, 0, 1}, false);                                         // one row for all
  check({0, 0, 1, 0}, false);                                         // one column for all
  check({I::kFilters * I::kPlane, I::kPlane, 1, I::kHeight}, false);  // turned planes
}

}  // namespace
}  // namespace mithril::testing_support
