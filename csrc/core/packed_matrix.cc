#include "core/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "core/checked.h"
#include "core/rounding.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace mithril::core {
namespace {

constexpr int64_t kPanel = PackedMatrix::kPanel;
constexpr int64_t kBlock = PackedMatrix::kBlock;
constexpr std::array kFormats = {WeightFormat::kBFloat16, WeightFormat::kInt8, WeightFormat::kInt4,
                                 WeightFormat::kInt16};
constexpr uint16_t kNaN = 0x7FC0;

// A block of a panel in float32.
using Tile = float[kBlock][kPanel];

void read_tile(const MatrixView& from, int64_t row, int64_t column, Tile& to) {
  const int64_t rows = std::min(kBlock, from.rows - row);
  const int64_t columns = std::min(kPanel, from.columns - column);
  if (rows < kBlock || columns < kPanel) std::memset(to, 0, sizeof to);
  const float* at = from.data + row * from.row_step + column * from.column_step;
  for (int64_t c = 0; c < columns; ++c, at += from.column_step) {
    for (int64_t r = 0; r < rows; ++r) to[r][c] = at[r * from.row_step];
  }
}

// To nearest even, of magnitudes up to 2^22: adding moves the fraction out of the significand.
float nearest(float value) {
  constexpr float kShift = 12582912.F;  // 1.5 * 2^23
  return (value + kShift) - kShift;
}

// The least bfloat16 that is not below a magnitude.
uint16_t round_up_to_bfloat16(float magnitude) {
  uint32_t bits;
  std::memcpy(&bits, &magnitude, sizeof bits);
  return static_cast<uint16_t>((bits + 0xFFFF) >> 16);
}

// The elements of largest magnitude of each column, with their signs; NaN where some are not
// finite.
void find_extremes(const Tile& tile, float (&extreme)[kPanel]) {
  float zero[kPanel] = {};  // NaN as soon as an element is not finite
  std::fill(extreme, extreme + kPanel, 0.F);
  for (const auto& row : tile) {
    for (int64_t c = 0; c < kPanel; ++c) {
      zero[c] += row[c] * 0.F;
      extreme[c] = std::fabs(row[c]) > std::fabs(extreme[c]) ? row[c] : extreme[c];
    }
  }
  for (int64_t c = 0; c < kPanel; ++c) extreme[c] += zero[c];
}

// Integers between `least` and `most`, and the scales that they are multiplied by.
void quantize(Tile& tile, float least, float most, const float (&extreme)[kPanel],
              uint16_t* scales) {
  float scale[kPanel], divisor[kPanel];
  for (int64_t c = 0; c < kPanel; ++c) {
    const bool is_finite = extreme[c] == extreme[c];
    const uint16_t magnitude = round_up_to_bfloat16(is_finite ? std::fabs(extreme[c] / least) : 0);
    // The extreme itself is `least` times the scale where the range is not symmetric.
    const bool negative = least != -most && extreme[c] > 0;
    scales[c] = is_finite ? static_cast<uint16_t>(magnitude | (negative ? 0x8000 : 0)) : kNaN;
    scale[c] = widen_bfloat16(scales[c]);
    divisor[c] = magnitude == 0 ? 1.F : scale[c];
  }
  for (auto& row : tile) {
    for (int64_t c = 0; c < kPanel; ++c) {
      const float ratio = extreme[c] == extreme[c] ? row[c] / divisor[c] : 0.F;
      row[c] = nearest(std::min(std::max(ratio, least), most));
    }
  }
}

void write_bfloat16(const Tile& tile, std::byte* to) {
  uint16_t out[kBlock / 2][kPanel][2];
  for (int64_t r = 0; r < kBlock; ++r) {
    for (int64_t c = 0; c < kPanel; ++c) out[r / 2][c][r % 2] = round_to_bfloat16(tile[r][c]);
  }
  std::memcpy(to, out, sizeof out);
}

template <class T>
void write_integers(const Tile& tile, std::byte* to) {
  T out[kBlock][kPanel];
  for (int64_t r = 0; r < kBlock; ++r) {
    for (int64_t c = 0; c < kPanel; ++c) out[r][c] = static_cast<T>(tile[r][c]);
  }
  std::memcpy(to, out, sizeof out);
}

void write_int4(const Tile& tile, std::byte* to) {
  uint32_t out[kBlock / 8][kPanel] = {};
  for (int64_t r = 0; r < kBlock; ++r) {
    for (int64_t c = 0; c < kPanel; ++c) {
      const auto bits = static_cast<uint32_t>(static_cast<int32_t>(tile[r][c])) & 15;
      out[r / 8][c] |= bits << (r % 8 * 4);
    }
  }
  std::memcpy(to, out, sizeof out);
}

template <class T>
T load(const std::byte* at, int64_t index) {
  T out;
  std::memcpy(&out, at + index * static_cast<int64_t>(sizeof out), sizeof out);
  return out;
}

// In huge pages where it is large: a product reads it from the front to the end.
std::byte* allocate(int64_t bytes) {
  constexpr int64_t kHugePage = int64_t{2} << 20;
  const int64_t alignment = bytes >= kHugePage ? kHugePage : 64;
  const auto size = static_cast<size_t>(round_up(std::max<int64_t>(bytes, 1), alignment));
  void* out = std::aligned_alloc(static_cast<size_t>(alignment), size);
#if defined(MADV_HUGEPAGE)
  if (out != nullptr && bytes >= kHugePage) madvise(out, size, MADV_HUGEPAGE);
#endif
  return static_cast<std::byte*>(out);
}

Error too_large(int64_t rows, int64_t columns) {
  return fail(ErrorKind::kMemory, Code::kOutOfMemory,
              "memory: a matrix of {} by {} elements cannot be packed", rows, columns);
}

}  // namespace

std::string_view name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kBFloat16: return "bfloat16";
    case WeightFormat::kInt8: return "int8";
    case WeightFormat::kInt16: return "int16";
    default: return "int4";
  }
}

std::optional<WeightFormat> parse_weight_format(std::string_view text) {
  for (const WeightFormat format : kFormats) {
    if (name(format) == text) return format;
  }
  return std::nullopt;
}

uint16_t round_to_bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

int64_t PackedMatrix::bits(WeightFormat format) {
  if (format == WeightFormat::kInt4) return 4;
  return format == WeightFormat::kInt8 ? 8 : 16;
}

int64_t PackedMatrix::scale_bytes() const {
  if (format_ == WeightFormat::kBFloat16) return 0;
  return round_up(blocks() * kPanel * static_cast<int64_t>(sizeof(uint16_t)), 64);
}

std::optional<int64_t> PackedMatrix::bytes(WeightFormat format, int64_t rows, int64_t columns) {
  constexpr int64_t kMost = int64_t{1} << 46;  // as much as addresses reach
  if (rows > kMost || columns > kMost) return std::nullopt;
  const PackedMatrix empty(format, rows, columns);
  const auto bytes = checked_mul(empty.panels(), empty.panel_bytes());
  return bytes && *bytes <= kMost ? bytes : std::nullopt;
}

Result<std::shared_ptr<const PackedMatrix>> PackedMatrix::pack(WeightFormat format,
                                                               const MatrixView& from) {
  const auto size = bytes(format, from.rows, from.columns);
  if (!size) return too_large(from.rows, from.columns);
  std::shared_ptr<PackedMatrix> out(new PackedMatrix(format, from.rows, from.columns));
  out->data_.reset(allocate(*size));
  if (out->data_ == nullptr) return too_large(from.rows, from.columns);
  for (int64_t i = 0; i < out->panels(); ++i) out->pack_panel(i, from);
  return std::shared_ptr<const PackedMatrix>(std::move(out));
}

Result<std::shared_ptr<const PackedMatrix>> PackedMatrix::restore(WeightFormat format, int64_t rows,
                                                                  int64_t columns,
                                                                  std::span<const std::byte> data) {
  const auto size = rows >= 0 && columns >= 0 ? bytes(format, rows, columns) : std::nullopt;
  if (size != static_cast<int64_t>(data.size())) {
    return fail(ErrorKind::kValue, Code::kValueArgument,
                "a packed matrix of {} by {} has not {} bytes", rows, columns, data.size());
  }
  std::shared_ptr<PackedMatrix> out(new PackedMatrix(format, rows, columns));
  out->data_.reset(allocate(*size));
  if (out->data_ == nullptr) return too_large(rows, columns);
  std::copy(data.begin(), data.end(), out->data_.get());
  return std::shared_ptr<const PackedMatrix>(std::move(out));
}

void PackedMatrix::pack_panel(int64_t index, const MatrixView& from) {
  std::byte* const to = data_.get() + index * panel_bytes();
  std::memset(to, 0, static_cast<size_t>(scale_bytes()));
  Tile tile;
  float extreme[kPanel];
  uint16_t scales[kPanel];
  for (int64_t b = 0; b < blocks(); ++b) {
    read_tile(from, b * kBlock, index * kPanel, tile);
    std::byte* const block = to + scale_bytes() + b * block_bytes();
    if (format_ == WeightFormat::kBFloat16) {
      write_bfloat16(tile, block);
      continue;
    }
    find_extremes(tile, extreme);
    if (format_ == WeightFormat::kInt16) {
      quantize(tile, -32767, 32767, extreme, scales);
      write_integers<int16_t>(tile, block);
    } else if (format_ == WeightFormat::kInt8) {
      quantize(tile, -127, 127, extreme, scales);
      write_integers<int8_t>(tile, block);
    } else {
      quantize(tile, -8, 7, extreme, scales);
      write_int4(tile, block);
    }
    std::memcpy(to + b * static_cast<int64_t>(sizeof scales), scales, sizeof scales);
  }
}

float PackedMatrix::at(int64_t row, int64_t column) const {
  if (format_ == WeightFormat::kBFloat16) {
    const int64_t r = row % kBlock, c = column % kPanel;
    return widen_bfloat16(load<uint16_t>(block_of(row, column), (r / 2 * kPanel + c) * 2 + r % 2));
  }
  return widen_bfloat16(scale(row / kBlock, column)) * static_cast<float>(integer(row, column));
}

const std::byte* PackedMatrix::block_of(int64_t row, int64_t column) const {
  return panel(column / kPanel) + scale_bytes() + row / kBlock * block_bytes();
}

uint16_t PackedMatrix::scale(int64_t block, int64_t column) const {
  return load<uint16_t>(panel(column / kPanel), block * kPanel + column % kPanel);
}

int32_t PackedMatrix::integer(int64_t row, int64_t column) const {
  const std::byte* const block = block_of(row, column);
  const int64_t r = row % kBlock, c = column % kPanel;
  if (format_ == WeightFormat::kInt8) return load<int8_t>(block, r * kPanel + c);
  if (format_ == WeightFormat::kInt16) return load<int16_t>(block, r * kPanel + c);
  const uint32_t eight = load<uint32_t>(block, r / 8 * kPanel + c);
  return static_cast<int32_t>(eight << (28 - r % 8 * 4)) >> 28;
}

std::shared_ptr<const TensorData> unpacked(std::shared_ptr<const TensorData> data) {
  if (data->packed.matrix == nullptr) return data;
  const PackedMatrix& matrix = *data->packed.matrix;
  auto out = std::make_shared<TensorData>();
  out->dtype = data->dtype;
  out->shape = data->shape;
  out->bytes.resize(static_cast<size_t>(matrix.rows() * matrix.columns()) * sizeof(float));
  std::byte* to = out->bytes.data();
  for (int64_t i = 0; i < data->shape[0]; ++i) {
    for (int64_t j = 0; j < data->shape[1]; ++j, to += sizeof(float)) {
      const float value = data->packed.transposed ? matrix.at(j, i) : matrix.at(i, j);
      std::memcpy(to, &value, sizeof value);
    }
  }
  return out;
}

}  // namespace mithril::core
