// Matrices of float32 kept in fewer bits: how the weights of products are stored on request.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/host_value.h"
#include "core/status.h"

namespace mithril::core {

enum class WeightFormat : uint8_t {
  kBFloat16,  // each element to nearest even
  kInt8,      // 32 elements of a column share a scale: scale * -127 … 127
  kInt4,      // likewise: scale * -8 … 7
  kInt16,     // likewise: scale * -32767 … 32767
};

/// "bfloat16", "int8", "int4", "int16".
std::string_view name(WeightFormat format);
std::optional<WeightFormat> parse_weight_format(std::string_view text);

/// Elements of float32 by steps, in elements.
struct MatrixView {
  const float* data = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t row_step = 0, column_step = 0;
};

/// The right operand of a product, laid out to be read once from the front. Columns stand in
/// panels of 16, rows in blocks of 32; what is missing in the last ones is 0. A panel begins with
/// the scales of its blocks (of the integer formats; bfloat16, [block][column], up to the next 64
/// bytes), then come the blocks:
///   bfloat16  [pair of rows][column][2]
///   int8      [row][column]
///   int16     [row][column]
///   int4      [8 rows][column]: 32 bits, of which 4 are a row, the first row lowest
/// A scale is the least bfloat16 that keeps the block's extreme in range, so that scale * integer
/// is exact in float32. A column's part of a block that is not finite has the scale NaN.
class PackedMatrix {
 public:
  static constexpr int64_t kPanel = 16;
  static constexpr int64_t kBlock = 32;

  static Result<std::shared_ptr<const PackedMatrix>> pack(WeightFormat format,
                                                          const MatrixView& from);
  /// The matrix whose data() are these bytes.
  static Result<std::shared_ptr<const PackedMatrix>> restore(WeightFormat format, int64_t rows,
                                                             int64_t columns,
                                                             std::span<const std::byte> data);
  /// Counts the bytes of a matrix of that size; nullopt where they do not fit an address space.
  static std::optional<int64_t> bytes(WeightFormat format, int64_t rows, int64_t columns);

  WeightFormat format() const { return format_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t blocks() const { return (rows_ + kBlock - 1) / kBlock; }
  int64_t panels() const { return (columns_ + kPanel - 1) / kPanel; }
  int64_t bytes() const { return panels() * panel_bytes(); }

  int64_t block_bytes() const { return kBlock * kPanel * bits(format_) / 8; }
  int64_t scale_bytes() const;  // of a panel, with what fills up the last 64 bytes
  int64_t panel_bytes() const { return scale_bytes() + blocks() * block_bytes(); }
  std::span<const std::byte> data() const { return {data_.get(), static_cast<size_t>(bytes())}; }
  const std::byte* panel(int64_t index) const { return data_.get() + index * panel_bytes(); }

  /// Gives the number that stands for an element.
  float at(int64_t row, int64_t column) const;
  /// The integer of an element, and the bits of the scale of its block; not of bfloat16.
  int32_t integer(int64_t row, int64_t column) const;
  uint16_t scale(int64_t block, int64_t column) const;

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  PackedMatrix(WeightFormat format, int64_t rows, int64_t columns)
      : format_(format), rows_(rows), columns_(columns) {}
  static int64_t bits(WeightFormat format);
  void pack_panel(int64_t panel, const MatrixView& from);
  const std::byte* block_of(int64_t row, int64_t column) const;

  WeightFormat format_;
  int64_t rows_, columns_;
  std::unique_ptr<std::byte, Free> data_;
};

/// The bits of a bfloat16 as float32, and back to nearest even (NaN stays NaN).
inline float widen_bfloat16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float out;
  std::memcpy(&out, &wide, sizeof out);
  return out;
}
uint16_t round_to_bfloat16(float value);

/// The literal with the elements that its packed matrix stands for; itself where it has none.
std::shared_ptr<const TensorData> unpacked(std::shared_ptr<const TensorData> data);

}  // namespace mithril::core
