// Host values: what a wire carries when it is no tensor, and what attributes hold.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "core/dtype.h"

namespace mithril::core {

class HostValue;

class PackedMatrix;

/// Dense row-major tensor literal: constants of a model, never run-time data.
struct TensorData {
  /// A matrix of float32 in fewer bits instead of `bytes` (core/packed_matrix.h); transposed: it
  /// is [columns, rows] of the packed one.
  struct Packed {
    std::shared_ptr<const PackedMatrix> matrix;
    bool transposed = false;
    bool operator==(const Packed&) const = default;  // the same matrix, not an equal one
  };

  DType dtype = DType::kFloat32;  // concrete, or kAnyInt/kAnyFloat stored as int64/float64
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
  std::string constant;  // a number that depends on the precision; the bytes hold its 64-bit value
  Packed packed;
  bool operator==(const TensorData&) const = default;  // bitwise
};

/// A size that is known as an expression only: an id in the owner's infer::DimTable.
struct SymbolicInt {
  uint32_t expr = 0;
  bool operator==(const SymbolicInt&) const = default;
};

struct Slice;

/// Anything else that rides on a node: a tile program, a user's callback. Compared by pointer.
struct Opaque {
  std::shared_ptr<const void> pointer;
  const char* tag = "";
  bool operator==(const Opaque& o) const { return pointer == o.pointer; }
};

struct NoneValue {
  bool operator==(const NoneValue&) const = default;
};
struct EllipsisValue {
  bool operator==(const EllipsisValue&) const = default;
};

/// Immutable value; tuples and lists share their storage. Nesting is at most kMaxDepth.
class HostValue {
 public:
  static constexpr int kMaxDepth = 64;
  using Tuple = std::vector<HostValue>;
  struct Sequence {
    std::shared_ptr<const Tuple> items;
    bool is_list = false;
  };
  using Variant = std::variant<NoneValue, bool, int64_t, double, std::string, DType, SymbolicInt,
                               EllipsisValue, std::shared_ptr<const Slice>, Sequence,
                               std::shared_ptr<const TensorData>, Opaque>;

  HostValue() = default;
  HostValue(bool v) : v_(v) {}                                          // NOLINT
  HostValue(int v) : v_(static_cast<int64_t>(v)) {}                     // NOLINT
  HostValue(int64_t v) : v_(v) {}                                       // NOLINT
  HostValue(double v) : v_(v) {}                                        // NOLINT
  HostValue(const char* v) : v_(std::string(v)) {}                      // NOLINT
  HostValue(std::string v) : v_(std::move(v)) {}                        // NOLINT
  HostValue(DType v) : v_(v) {}                                         // NOLINT
  HostValue(SymbolicInt v) : v_(v) {}                                   // NOLINT
  HostValue(EllipsisValue v) : v_(v) {}                                 // NOLINT
  HostValue(Slice v);                                                   // NOLINT
  HostValue(std::shared_ptr<const TensorData> v) : v_(std::move(v)) {}  // NOLINT
  HostValue(Opaque v) : v_(std::move(v)) {}                             // NOLINT
  static HostValue tuple(Tuple items);
  static HostValue list(Tuple items);
  static HostValue ints(const std::vector<int64_t>& items);

  bool is_none() const { return std::holds_alternative<NoneValue>(v_); }
  bool is_bool() const { return std::holds_alternative<bool>(v_); }
  bool is_int() const { return std::holds_alternative<int64_t>(v_); }
  bool is_double() const { return std::holds_alternative<double>(v_); }
  bool is_string() const { return std::holds_alternative<std::string>(v_); }
  bool is_dtype() const { return std::holds_alternative<DType>(v_); }
  bool is_symbolic() const { return std::holds_alternative<SymbolicInt>(v_); }
  bool is_ellipsis() const { return std::holds_alternative<EllipsisValue>(v_); }
  bool is_slice() const { return std::holds_alternative<std::shared_ptr<const Slice>>(v_); }
  bool is_sequence() const { return std::holds_alternative<Sequence>(v_); }
  bool is_tensor() const { return std::holds_alternative<std::shared_ptr<const TensorData>>(v_); }
  bool is_opaque() const { return std::holds_alternative<Opaque>(v_); }
  bool is_list() const { return is_sequence() && std::get<Sequence>(v_).is_list; }

  bool as_bool() const { return std::get<bool>(v_); }
  int64_t as_int() const { return std::get<int64_t>(v_); }
  double as_double() const { return std::get<double>(v_); }
  /// int, bool or double as double.
  double as_number() const;
  const std::string& as_string() const { return std::get<std::string>(v_); }
  DType as_dtype() const { return std::get<DType>(v_); }
  SymbolicInt as_symbolic() const { return std::get<SymbolicInt>(v_); }
  const Slice& as_slice() const { return *std::get<std::shared_ptr<const Slice>>(v_); }
  const Tuple& items() const { return *std::get<Sequence>(v_).items; }
  const std::shared_ptr<const TensorData>& as_tensor() const {
    return std::get<std::shared_ptr<const TensorData>>(v_);
  }
  const Opaque& as_opaque() const { return std::get<Opaque>(v_); }
  const Variant& variant() const { return v_; }

  bool operator==(const HostValue& other) const;  // doubles by bits, so NaN equals itself
  size_t hash() const;

 private:
  Variant v_;
};

struct Slice {
  HostValue start, stop, step;  // int, symbolic or none
};

/// Graph-text form: 1, 0.5 (shortest that reads back, inf, nan), true, "s", none, f32, (1, 2),
/// [1, 2], 1:2:3, tensor literals as tensor<f32[2]>(1, 2); symbolic sizes by `print_symbol`.
std::string to_string(const HostValue& value,
                      const std::function<std::string(SymbolicInt)>& print_symbol = nullptr);

}  // namespace mithril::core
