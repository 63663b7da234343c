#include "emit/python_literal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/tensor_data.h"

namespace mithril::emit {

using core::DType;
using core::HostValue;

namespace {

constexpr std::array kKeywords = {
    "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
    "class", "continue", "def",   "del",    "elif", "else",   "except", "finally",  "for",
    "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
    "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};

std::string float_text(double value, DType dtype) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Digits that name one float32 are enough, because the framework rounds them to it. But the
  // largest one's are above it, and PyTorch refuses what would overflow.
  const bool largest = std::abs(value) == static_cast<double>(std::numeric_limits<float>::max());
  const bool narrow = dtype == DType::kFloat32 && !largest;
  std::string text =
      narrow ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

class LiteralPrinter {
 public:
  explicit LiteralPrinter(const PythonLiterals& literals) : literals_(literals) {}

  // Depth is bounded by HostValue::kMaxDepth.
  std::string print(const HostValue& value) {
    if (value.is_none()) return "None";
    if (value.is_bool()) return value.as_bool() ? "True" : "False";
    if (value.is_int()) return fmt::format("{}", value.as_int());
    if (value.is_double()) return float_text(value.as_double(), DType::kFloat64);
    if (value.is_dtype()) return python_dtype(value.as_dtype());
    if (value.is_symbolic()) return literals_.size(value.as_symbolic());
    if (value.is_ellipsis()) return "...";
    if (value.is_slice()) return slice(value.as_slice());
    if (value.is_sequence()) return sequence(value);
    return literals_.constant(value);
  }

 private:
  std::string slice(const core::Slice& slice) {
    return fmt::format("slice({}, {}, {})", print(slice.start), print(slice.stop),
                       print(slice.step));
  }

  std::string sequence(const HostValue& value) {
    std::string out = value.is_list() ? "[" : "(";
    bool first = true;
    for (const HostValue& item : value.items()) {
      out += (first ? "" : ", ") + print(item);
      first = false;
    }
    if (value.is_list()) return out + "]";
    return out + (value.items().size() == 1 ? ",)" : ")");
  }

  const PythonLiterals& literals_;
};

}  // namespace

bool is_python_name(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (name.empty() || !is_letter(name[0])) return false;
  for (const char c : name) {
    if (!is_letter(c) && !(c >= '0' && c <= '9')) return false;
  }
  return std::find(kKeywords.begin(), kKeywords.end(), name) == kKeywords.end();
}

std::string python_number(const HostValue& number, DType dtype) {
  core::TensorData data{dtype, {}, {}};
  core::append_element(data, number);
  const HostValue value = core::element(data, 0);
  if (value.is_bool()) return value.as_bool() ? "True" : "False";
  if (value.is_int()) return fmt::format("{}", value.as_int());
  return float_text(value.as_double(), dtype);
}

std::string python_dtype(DType dtype) {
  if (dtype == DType::kBool) return "ops.bool_";
  return fmt::format("ops.{}", core::name(dtype));
}

std::string python_literal(const HostValue& value, const PythonLiterals& literals) {
  return LiteralPrinter(literals).print(value);
}

}  // namespace mithril::emit
