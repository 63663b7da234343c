#include "passes/dequantize.h"

#include <cstring>

namespace mithril::passes {
namespace {

using core::DType;
using core::HostValue;
using core::PackedMatrix;
using core::WeightFormat;
using ir::Value;

// A literal whose elements `element(i, j, k)` gives.
template <class T, class Element>
Value literal_of_elements(ir::Builder& builder, DType dtype, std::vector<int64_t> shape,
                          const Element& element) {
  auto data = std::make_shared<core::TensorData>();
  data->dtype = dtype;
  data->shape = std::move(shape);
  const auto& sizes = data->shape;
  data->bytes.resize(static_cast<size_t>(sizes[0] * sizes[1] * sizes[2]) * sizeof(T));
  std::byte* to = data->bytes.data();
  for (int64_t i = 0; i < sizes[0]; ++i) {
    for (int64_t j = 0; j < sizes[1]; ++j) {
      for (int64_t k = 0; k < sizes[2]; ++k, to += sizeof(T)) {
        const T value = element(i, j, k);
        std::memcpy(to, &value, sizeof value);
      }
    }
  }
  return builder.constant(std::move(data));
}

Value as_float32(Value value) {
  return value.builder->call("cast", {value}, {{"dtype", HostValue(DType::kFloat32)}});
}

Value number(ir::Builder& builder, double value) { return builder.scalar(value, DType::kFloat32); }

Value as_matrix(Value value, int64_t rows, int64_t columns) {
  return value.builder->call("reshape", {value}, {{"shape", HostValue::ints({rows, columns})}});
}

// Rows [first, first + blocks * height) of a matrix in blocks of `height` rows.
struct Rows {
  int64_t first, blocks, height;
};

template <class T>
Value integers(ir::Builder& builder, const PackedMatrix& matrix, const Rows& rows, DType dtype) {
  const auto element = [&](int64_t block, int64_t row, int64_t column) {
    return static_cast<T>(matrix.integer(rows.first + block * rows.height + row, column));
  };
  return as_float32(literal_of_elements<T>(builder, dtype,
                                           {rows.blocks, rows.height, matrix.columns()}, element));
}

// Row r and row r + half of a block are one byte, whose upper four bits are the former.
Value nibbles(ir::Builder& builder, const PackedMatrix& matrix, const Rows& rows) {
  const int64_t half = rows.height / 2;
  const auto element = [&](int64_t block, int64_t row, int64_t column) {
    const int64_t at = rows.first + block * rows.height + row;
    return static_cast<int8_t>(16 * matrix.integer(at, column) + matrix.integer(at + half, column) +
                               8);
  };
  const Value both = as_float32(literal_of_elements<int8_t>(
      builder, DType::kInt8, {rows.blocks, half, matrix.columns()}, element));
  const Value upper = builder.call("floor_divide", {both, number(builder, 16)});
  const Value lower = builder.call(
      "subtract",
      {builder.call("subtract", {both, builder.call("multiply", {upper, number(builder, 16)})}),
       number(builder, 8)});
  return builder.call("concat", {HostValue(1), upper, lower});
}

Value scaled(ir::Builder& builder, const PackedMatrix& matrix, const Rows& rows) {
  const auto scale = [&](int64_t block, int64_t, int64_t column) {
    return matrix.scale(rows.first / PackedMatrix::kBlock + block, column);
  };
  const bool is_pair = matrix.format() == WeightFormat::kInt4 && rows.height % 2 == 0;
  const Value values = is_pair ? nibbles(builder, matrix, rows)
                       : matrix.format() == WeightFormat::kInt16
                           ? integers<int16_t>(builder, matrix, rows, DType::kInt16)
                           : integers<int8_t>(builder, matrix, rows, DType::kInt8);
  const Value scales = as_float32(literal_of_elements<uint16_t>(
      builder, DType::kBFloat16, {rows.blocks, 1, matrix.columns()}, scale));
  const Value out = builder.call("multiply", {values, scales});
  return as_matrix(out, rows.blocks * rows.height, matrix.columns());
}

Value from_bfloat16(ir::Builder& builder, const PackedMatrix& matrix) {
  const auto element = [&](int64_t, int64_t row, int64_t column) {
    return core::round_to_bfloat16(matrix.at(row, column));
  };
  const Value bits = literal_of_elements<uint16_t>(builder, DType::kBFloat16,
                                                   {1, matrix.rows(), matrix.columns()}, element);
  return as_matrix(as_float32(bits), matrix.rows(), matrix.columns());
}

}  // namespace

Value dequantized(ir::Builder& builder, const PackedMatrix& matrix) {
  if (matrix.format() == WeightFormat::kBFloat16) return from_bfloat16(builder, matrix);
  const int64_t whole = matrix.rows() / PackedMatrix::kBlock;
  const int64_t first = whole * PackedMatrix::kBlock, rest = matrix.rows() - first;
  if (rest == 0) return scaled(builder, matrix, {0, whole, PackedMatrix::kBlock});
  const Value last = scaled(builder, matrix, {first, 1, rest});
  if (whole == 0) return last;
  const Value blocks = scaled(builder, matrix, {0, whole, PackedMatrix::kBlock});
  return builder.call("concat", {HostValue(0), blocks, last});
}

}  // namespace mithril::passes
