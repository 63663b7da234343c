// What a wire may carry: sets of kinds, a lattice that inference only narrows.
#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/host_value.h"

namespace mithril::infer {

/// One kind of content. Tensor kinds say the element kind, never its width.
enum class ValueKind : uint8_t {
  kTensorBool,
  kTensorInt,
  kTensorFloat,
  kBool,
  kInt,
  kFloat,
  kNone,
  kStr,
  kSlice,
  kEllipsis,
  kDType,
  kTuple,
  kList,
  kPaddingType,
  kConstant,
  kDict,
  kOpaque,
};
inline constexpr int kValueKindCount = 17;

/// A set of kinds. Empty means conflict. "Decided" = not both tensor and something else.
class KindSet {
 public:
  constexpr KindSet() = default;
  constexpr KindSet(ValueKind kind) : bits_(1u << static_cast<int>(kind)) {}  // NOLINT
  constexpr explicit KindSet(uint32_t bits) : bits_(bits) {}

  constexpr uint32_t bits() const { return bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool single() const { return std::has_single_bit(bits_); }
  constexpr int count() const { return std::popcount(bits_); }
  /// The kind of a single-kind set.
  constexpr ValueKind only() const { return static_cast<ValueKind>(std::countr_zero(bits_)); }
  constexpr bool has(ValueKind kind) const { return (bits_ >> static_cast<int>(kind)) & 1u; }
  constexpr bool subset_of(KindSet other) const { return (bits_ & ~other.bits_) == 0; }
  constexpr bool meets(KindSet other) const { return (bits_ & other.bits_) != 0; }

  constexpr KindSet operator|(KindSet o) const { return KindSet(bits_ | o.bits_); }
  constexpr KindSet operator&(KindSet o) const { return KindSet(bits_ & o.bits_); }
  constexpr KindSet operator-(KindSet o) const { return KindSet(bits_ & ~o.bits_); }
  constexpr bool operator==(const KindSet&) const = default;

  constexpr bool is_tensor() const { return bits_ != 0 && (bits_ & ~7u) == 0; }
  constexpr bool is_scalar() const { return bits_ != 0 && (bits_ & ~(7u << 3)) == 0; }
  constexpr bool may_be_tensor() const { return (bits_ & 7u) != 0; }
  /// Tensor for sure, or no tensor for sure.
  constexpr bool decided() const { return is_tensor() || !may_be_tensor(); }

 private:
  uint32_t bits_ = 0;
};

inline constexpr KindSet kNoKind{};
inline constexpr KindSet kTensorBool = ValueKind::kTensorBool;
inline constexpr KindSet kTensorInt = ValueKind::kTensorInt;
inline constexpr KindSet kFloating = ValueKind::kTensorFloat;             // Tf
inline constexpr KindSet kNumeric = kTensorInt | kFloating;               // Tif
inline constexpr KindSet kIntegral = kTensorBool | kTensorInt;            // Tib
inline constexpr KindSet kTensor = kTensorBool | kTensorInt | kFloating;  // T
inline constexpr KindSet kScalarBool = ValueKind::kBool;
inline constexpr KindSet kScalarInt = ValueKind::kInt;
inline constexpr KindSet kScalarFloat = ValueKind::kFloat;
inline constexpr KindSet kScalar = kScalarBool | kScalarInt | kScalarFloat;
inline constexpr KindSet kNum = kTensor | kScalar;                             // tensor or scalar
inline constexpr KindSet kIntegralNum = kIntegral | kScalarBool | kScalarInt;  // IB
inline constexpr KindSet kNoneKind = ValueKind::kNone;
inline constexpr KindSet kStrKind = ValueKind::kStr;
inline constexpr KindSet kSliceKind = ValueKind::kSlice;
inline constexpr KindSet kEllipsisKind = ValueKind::kEllipsis;
inline constexpr KindSet kDTypeKind = ValueKind::kDType;
inline constexpr KindSet kTupleKind = ValueKind::kTuple;
inline constexpr KindSet kListKind = ValueKind::kList;
inline constexpr KindSet kSequence = kTupleKind | kListKind;
inline constexpr KindSet kPaddingKind = ValueKind::kPaddingType;
inline constexpr KindSet kConstantKind = ValueKind::kConstant;
inline constexpr KindSet kOpaqueKind = ValueKind::kOpaque;
inline constexpr KindSet kAny{(1u << kValueKindCount) - 1};
inline constexpr KindSet kHost = kAny - kTensor;

/// The kinds that a host value can be. A string is also a padding type ("same"); a tensor
/// literal is a tensor of its element kind.
KindSet kind_of(const core::HostValue& value);
constexpr KindSet tensor_of(core::Kind kind) { return KindSet(1u << static_cast<int>(kind)); }
/// The element kinds that a set of tensor and scalar kinds allows, as tensor kinds / scalars.
constexpr KindSet as_tensor(KindSet set) { return KindSet(((set.bits() >> 3) | set.bits()) & 7u); }
constexpr KindSet as_scalar(KindSet set) {
  return KindSet((((set.bits() >> 3) | set.bits()) & 7u) << 3);
}

/// "tensor_float": how files and Python spell a kind.
std::string_view spelling(ValueKind kind);
std::optional<ValueKind> parse_kind(std::string_view spelling);

/// "float tensor", "int tensor or int", "tensor", "any".
std::string to_string(KindSet set);

}  // namespace mithril::infer
