// Reductions and scans over elements that lie side by side (a row) or at strides (many rows).
#include <cmath>
#include <type_traits>

#include "backends/cpu/isa/tables.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

using core::DType;
using tile::Opcode;
using tile::Order;

template <class T>
using Wrapping = std::conditional_t<std::is_floating_point_v<T>, T,
                                    std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Prod {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
// Sign-aware: +0 is above -0; a NaN stays once it is in.
struct Largest {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const bool zero_sign = a == b && std::signbit(a);
      const bool take_b = b > a || b != b || zero_sign;
      return a == a && take_b ? b : a;
    } else {
      return b > a ? b : a;
    }
  }
};
struct Smallest {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      const bool zero_sign = a == b && std::signbit(b);
      const bool take_b = b < a || b != b || zero_sign;
      return a == a && take_b ? b : a;
    } else {
      return b < a ? b : a;
    }
  }
};
struct Any {
  static uint8_t apply(uint8_t a, uint8_t b) { return a | b; }
};
struct All {
  static uint8_t apply(uint8_t a, uint8_t b) { return a & b; }
};

constexpr int64_t kWidth = tile::kLanesWidth;

template <class Op, class T>
T reduce_lanes(const T* x, int64_t n) {
  T lane[kWidth] = {};
  const int64_t filled = n < kWidth ? n : kWidth;
  for (int64_t l = 0; l < filled; ++l) lane[l] = x[l];
  int64_t r = kWidth;
  for (; r + kWidth <= n; r += kWidth) {
    for (int64_t l = 0; l < kWidth; ++l) lane[l] = Op::apply(lane[l], x[r + l]);
  }
  for (int64_t l = 0; r + l < n; ++l) lane[l] = Op::apply(lane[l], x[r + l]);
  for (int64_t s = kWidth / 2; s > 0; s /= 2) {
    for (int64_t l = 0; l < s; ++l) {
      if (l + s < filled) lane[l] = Op::apply(lane[l], lane[l + s]);
    }
  }
  return lane[0];
}

// Blocks of 64, then neighbours pairwise.
template <class Op, class T>
T reduce_rows(const T* x, int64_t n) {
  T block[tile::kLanesBlock / tile::kRowsBlock];
  int64_t blocks = 0;
  for (int64_t at = 0; at < n; at += tile::kRowsBlock) {
    const int64_t end = at + tile::kRowsBlock < n ? at + tile::kRowsBlock : n;
    T sum = x[at];
    for (int64_t r = at + 1; r < end; ++r) sum = Op::apply(sum, x[r]);
    block[blocks++] = sum;
  }
  while (blocks > 1) {
    const int64_t pairs = blocks / 2;
    for (int64_t k = 0; k < pairs; ++k) block[k] = Op::apply(block[2 * k], block[2 * k + 1]);
    if (blocks % 2 == 1) block[pairs] = block[blocks - 1];
    blocks = (blocks + 1) / 2;
  }
  return block[0];
}

template <class Op, class T>
void row_reduce(void* out, const void* x, int64_t n, Order order) {
  const auto* values = static_cast<const T*>(x);
  *static_cast<T*>(out) =
      order == Order::kLanes ? reduce_lanes<Op>(values, n) : reduce_rows<Op>(values, n);
}

// Order does not matter: four vectors at a time hide the latency of compare and blend.
template <class Op, class T>
void row_extreme(void* out, const void* x, int64_t n, Order) {
  constexpr int64_t width = 4 * kWidth;
  const auto* values = static_cast<const T*>(x);
  T lane[width];
  for (int64_t l = 0; l < width; ++l) lane[l] = values[l < n ? l : 0];
  int64_t r = width;
  for (; r + width <= n; r += width) {
    for (int64_t l = 0; l < width; ++l) lane[l] = Op::apply(lane[l], values[r + l]);
  }
  for (int64_t l = 0; r + l < n; ++l) lane[l] = Op::apply(lane[l], values[r + l]);
  for (int64_t s = width / 2; s > 0; s /= 2) {
    for (int64_t l = 0; l < s; ++l) lane[l] = Op::apply(lane[l], lane[l + s]);
  }
  *static_cast<T*>(out) = lane[0];
}

template <class T, bool largest>
void extreme(const ExtremeArgs& args) {
  auto* values = static_cast<T*>(args.values);
  const auto* x = static_cast<const T*>(args.x);
  for (int64_t row = 0; row < args.rows; ++row) {
    const T* at = x + row * args.row_stride;
    if (args.r0 == 0) {
      values[row] = *at;
      args.indices[row] = 0;
    }
    T best = values[row];
    int64_t index = args.indices[row];
    for (int64_t r = 0; r < args.count; ++r, at += args.r_stride) {
      const T v = *at;
      const bool better = (largest ? v > best : v < best) || (v != v && best == best);
      index = better ? args.r0 + r : index;
      best = better ? v : best;
    }
    values[row] = best;
    args.indices[row] = index;
  }
}

template <class T>
void scan(const ScanArgs& args) {
  auto* out = static_cast<T*>(args.out);
  auto* carry = static_cast<T*>(args.carry);
  const auto* x = static_cast<const T*>(args.x);
  for (int64_t row = 0; row < args.rows; ++row) {
    int64_t at = row * args.row_stride;
    T sum = carry[row];
    for (int64_t r = 0; r < args.count; ++r, at += args.r_stride) {
      sum = args.r0 + r == 0 ? x[at] : Sum::apply(sum, x[at]);
      out[at] = sum;
    }
    carry[row] = sum;
  }
}

template <class T>
RowReduceFn find_number(Opcode opcode) {
  switch (opcode) {
    case Opcode::kReduceSum: return row_reduce<Sum, T>;
    case Opcode::kReduceProd: return row_reduce<Prod, T>;
    case Opcode::kReduceMax: return row_extreme<Largest, T>;
    case Opcode::kReduceMin: return row_extreme<Smallest, T>;
    default: return nullptr;
  }
}

template <class T>
ExtremeFn extreme_of(Opcode opcode) {
  return opcode == Opcode::kReduceArgMax ? extreme<T, true> : extreme<T, false>;
}

}  // namespace

RowReduceFn find_row_reduce(Opcode opcode, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return opcode == Opcode::kReduceAny ? row_extreme<Any, uint8_t> : row_extreme<All, uint8_t>;
    case DType::kUInt8: return find_number<uint8_t>(opcode);
    case DType::kInt8: return find_number<int8_t>(opcode);
    case DType::kInt16: return find_number<int16_t>(opcode);
    case DType::kInt32: return find_number<int32_t>(opcode);
    case DType::kInt64: return find_number<int64_t>(opcode);
    case DType::kFloat32: return find_number<float>(opcode);
    case DType::kFloat64: return find_number<double>(opcode);
    default: return nullptr;
  }
}

ExtremeFn find_extreme(Opcode opcode, DType dtype) {
  switch (dtype) {
    case DType::kUInt8: return extreme_of<uint8_t>(opcode);
    case DType::kInt8: return extreme_of<int8_t>(opcode);
    case DType::kInt16: return extreme_of<int16_t>(opcode);
    case DType::kInt32: return extreme_of<int32_t>(opcode);
    case DType::kInt64: return extreme_of<int64_t>(opcode);
    case DType::kFloat32: return extreme_of<float>(opcode);
    case DType::kFloat64: return extreme_of<double>(opcode);
    default: return nullptr;
  }
}

ScanFn find_scan(DType dtype) {
  switch (dtype) {
    case DType::kUInt8: return scan<uint8_t>;
    case DType::kInt8: return scan<int8_t>;
    case DType::kInt16: return scan<int16_t>;
    case DType::kInt32: return scan<int32_t>;
    case DType::kInt64: return scan<int64_t>;
    case DType::kFloat32: return scan<float>;
    case DType::kFloat64: return scan<double>;
    default: return nullptr;
  }
}

}  // namespace mithril::cpu::MITHRIL_ISA
