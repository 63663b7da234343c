#include "core/packed_matrix.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "core/tensor_data.h"

namespace mithril::core {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kBFloat16, WeightFormat::kInt8,
                                     WeightFormat::kInt4, WeightFormat::kInt16};

std::shared_ptr<const PackedMatrix> packed(WeightFormat format, const std::vector<float>& values,
                                           int64_t rows, int64_t columns, bool transposed = false) {
  const MatrixView view = transposed ? MatrixView{values.data(), rows, columns, 1, rows}
                                     : MatrixView{values.data(), rows, columns, columns, 1};
  return PackedMatrix::pack(format, view).or_throw();
}

std::vector<float> normals(int64_t count, float scale = 1) {
  std::mt19937 random(static_cast<unsigned>(count));
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& value : out) value = normal(random);
  return out;
}

// The largest magnitude among the elements that share a scale.
float largest(const std::vector<float>& values, int64_t rows, int64_t columns, int64_t row,
              int64_t column) {
  float out = 0;
  for (int64_t r = row / 32 * 32; r < std::min(rows, row / 32 * 32 + 32); ++r) {
    out = std::max(out, std::fabs(values[static_cast<size_t>(r * columns + column)]));
  }
  return out;
}

TEST(PackedMatrix, NamesReadBack) {
  for (const WeightFormat format : kFormats) EXPECT_EQ(parse_weight_format(name(format)), format);
  EXPECT_EQ(parse_weight_format("float16"), std::nullopt);
}

TEST(PackedMatrix, StaysWithinTheBoundOfItsFormat) {
  for (const float scale : {1.F, 1e-30F, 1e-42F, 1e30F}) {
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {32, 16}, {70, 37}}) {
      const auto values = normals(rows * columns, scale);
      for (const WeightFormat format : kFormats) {
        const auto matrix = packed(format, values, rows, columns);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < columns; ++c) {
            const float value = values[static_cast<size_t>(r * columns + c)];
            const float most = largest(values, rows, columns, r, c);
            // Scales are at most 2^-7 too large, and no less than the least bfloat16.
            const float step = std::max(most * (1 + 0x1p-7F), 0x1p-120F);
            const float bound = format == WeightFormat::kBFloat16 ? std::fabs(value) * 0x1p-8F
                                : format == WeightFormat::kInt8   ? step / 254
                                : format == WeightFormat::kInt16  ? step / 65534
                                                                  : step / 8;
            ASSERT_LE(std::fabs(matrix->at(r, c) - value), std::max(bound, 0x1p-133F))
                << name(format) << " " << rows << " " << columns << " " << value;
          }
        }
      }
    }
  }
}

// Integers whose extreme is the format's own come back as they were.
TEST(PackedMatrix, KeepsWhatTheFormatCanSay) {
  std::vector<float> bytes(64 * 3), nibbles(64 * 3);
  for (int64_t i = 0; i < 64 * 3; ++i) {
    bytes[static_cast<size_t>(i)] = static_cast<float>(i * 37 % 255 - 127);
    nibbles[static_cast<size_t>(i)] = static_cast<float>(i * 5 % 16 - 8);
  }
  for (int64_t c = 0; c < 3; ++c) {
    bytes[static_cast<size_t>(c)] = bytes[static_cast<size_t>(32 * 3 + c)] = -127;
    nibbles[static_cast<size_t>(c)] = nibbles[static_cast<size_t>(32 * 3 + c)] = -8;
  }
  const auto eight = packed(WeightFormat::kInt8, bytes, 64, 3);
  const auto four = packed(WeightFormat::kInt4, nibbles, 64, 3);
  for (int64_t i = 0; i < 64 * 3; ++i) {
    EXPECT_EQ(eight->at(i / 3, i % 3), bytes[static_cast<size_t>(i)]);
    EXPECT_EQ(four->at(i / 3, i % 3), nibbles[static_cast<size_t>(i)]);
  }
  // The side of the extreme has one step more.
  for (float& value : nibbles) value = -value;
  const auto turned = packed(WeightFormat::kInt4, nibbles, 64, 3);
  for (int64_t i = 0; i < 64 * 3; ++i) {
    EXPECT_EQ(turned->at(i / 3, i % 3), nibbles[static_cast<size_t>(i)]);
  }
}

TEST(PackedMatrix, ReadsEitherOrientation) {
  const auto values = normals(70 * 37);
  std::vector<float> turned(values.size());
  for (int64_t i = 0; i < 70; ++i) {
    for (int64_t j = 0; j < 37; ++j) {
      turned[static_cast<size_t>(j * 70 + i)] = values[static_cast<size_t>(i * 37 + j)];
    }
  }
  for (const WeightFormat format : kFormats) {
    const auto a = packed(format, values, 70, 37), b = packed(format, turned, 70, 37, true);
    ASSERT_EQ(a->bytes(), b->bytes());
    EXPECT_EQ(std::memcmp(a->panel(0), b->panel(0), static_cast<size_t>(a->bytes())), 0);
  }
}

TEST(PackedMatrix, TakesSoManyBytes) {
  EXPECT_EQ(PackedMatrix::bytes(WeightFormat::kBFloat16, 768, 768), 768 * 768 * 2);
  EXPECT_EQ(PackedMatrix::bytes(WeightFormat::kInt8, 768, 768), 768 * 768 + 768 * 768 / 32 * 2);
  EXPECT_EQ(PackedMatrix::bytes(WeightFormat::kInt4, 768, 768), 768 * 768 / 2 + 768 * 768 / 32 * 2);
  EXPECT_EQ(PackedMatrix::bytes(WeightFormat::kInt8, int64_t{1} << 40, int64_t{1} << 40),
            std::nullopt);
  EXPECT_FALSE(PackedMatrix::pack(WeightFormat::kInt8, {nullptr, int64_t{1} << 62, 3, 3, 1}).ok());
}

TEST(PackedMatrix, BlocksThatAreNotFiniteAreNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    auto values = normals(64 * 2);
    values[2 * 5] = bad;  // row 5 of column 0
    for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
      const auto matrix = packed(format, values, 64, 2);
      for (int64_t r = 0; r < 64; ++r) {
        EXPECT_EQ(std::isnan(matrix->at(r, 0)), r < 32);
        EXPECT_FALSE(std::isnan(matrix->at(r, 1)));
      }
    }
    const float kept = packed(WeightFormat::kBFloat16, values, 64, 2)->at(5, 0);
    EXPECT_TRUE(kept == bad || (std::isnan(kept) && std::isnan(bad)));
  }
}

TEST(PackedMatrix, RoundsToNearestEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    float value;
    std::memcpy(&value, &bits, sizeof value);
    const uint16_t rounded = round_to_bfloat16(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(widen_bfloat16(rounded)));
    } else {
      EXPECT_EQ(rounded, to_bfloat16(value));
    }
  }
}

TEST(PackedMatrix, LiteralsAreUnpackedInTheirOwnOrientation) {
  const auto matrix = packed(WeightFormat::kInt8, normals(40 * 33), 40, 33);
  for (const bool transposed : {false, true}) {
    auto data = std::make_shared<TensorData>();
    data->shape = {40, 33};
    if (transposed) data->shape = {33, 40};
    data->packed = {matrix, transposed};
    const auto dense = unpacked(data);
    EXPECT_EQ(dense->packed.matrix, nullptr);
    EXPECT_EQ(dense->shape, data->shape);
    for (int64_t i = 0; i < 40; ++i) {
      for (int64_t j = 0; j < 33; ++j) {
        const auto at = static_cast<size_t>(transposed ? j * 40 + i : i * 33 + j);
        EXPECT_EQ(element(*dense, at), HostValue(static_cast<double>(matrix->at(i, j))));
      }
    }
    EXPECT_EQ(unpacked(dense), dense);
    EXPECT_EQ(cast_literal(data, DType::kFloat64)->bytes.size(), size_t{40 * 33 * 8});
  }
}

}  // namespace
}  // namespace mithril::core
