#include "infer/kind.h"

#include <algorithm>
#include <iterator>

namespace mithril::infer {
namespace {

struct Overload {
  KindSet operator()(const core::NoneValue&) const { return kNoneKind; }
  KindSet operator()(bool) const { return kScalarBool; }
  KindSet operator()(int64_t) const { return kScalarInt; }
  KindSet operator()(double) const { return kScalarFloat; }
  KindSet operator()(const std::string&) const { return kStrKind | kPaddingKind | kConstantKind; }
  KindSet operator()(core::DType) const { return kDTypeKind; }
  KindSet operator()(const core::SymbolicInt&) const { return kScalarInt; }
  KindSet operator()(const core::EllipsisValue&) const { return kEllipsisKind; }
  KindSet operator()(const std::shared_ptr<const core::Slice>&) const { return kSliceKind; }
  KindSet operator()(const core::HostValue::Sequence& s) const {
    return s.is_list ? kListKind : kTupleKind;
  }
  KindSet operator()(const std::shared_ptr<const core::TensorData>& t) const {
    return tensor_of(core::kind(t->dtype));
  }
  KindSet operator()(const core::Opaque&) const { return kOpaqueKind | kDict; }

 private:
  static constexpr KindSet kDict = ValueKind::kDict;
};

constexpr const char* kNames[kValueKindCount] = {
    "bool tensor", "int tensor", "float tensor", "bool",     "int",    "float",
    "none",        "str",        "slice",        "ellipsis", "dtype",  "tuple",
    "list",        "padding",    "constant",     "dict",     "opaque",
};

constexpr std::string_view kSpellings[] = {
    "tensor_bool", "tensor_int",   "tensor_float", "bool",     "int",    "float",
    "none",        "str",          "slice",        "ellipsis", "dtype",  "tuple",
    "list",        "padding_type", "constant",     "dict",     "opaque",
};
static_assert(std::size(kSpellings) == kValueKindCount);

}  // namespace

std::string_view spelling(ValueKind kind) { return kSpellings[static_cast<int>(kind)]; }

std::optional<ValueKind> parse_kind(std::string_view spelling) {
  const auto* found = std::find(std::begin(kSpellings), std::end(kSpellings), spelling);
  if (found == std::end(kSpellings)) return std::nullopt;
  return static_cast<ValueKind>(found - std::begin(kSpellings));
}

KindSet kind_of(const core::HostValue& value) { return std::visit(Overload{}, value.variant()); }

std::string to_string(KindSet set) {
  if (set == kAny) return "any";
  if (set.empty()) return "nothing";
  std::string out;
  const auto add = [&out](const char* name) {
    if (!out.empty()) out += " or ";
    out += name;
  };
  if (kTensor.subset_of(set)) {
    add("tensor");
    set = set - kTensor;
  }
  for (int i = 0; i < kValueKindCount; ++i) {
    if (set.has(static_cast<ValueKind>(i))) add(kNames[i]);
  }
  return out;
}

}  // namespace mithril::infer
