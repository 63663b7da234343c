#include "core/host_value.h"

#include <bit>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/packed_matrix.h"
#include "core/tensor_data.h"

namespace mithril::core {

HostValue::HostValue(Slice v) : v_(std::make_shared<const Slice>(std::move(v))) {}

HostValue HostValue::tuple(Tuple items) {
  HostValue out;
  out.v_ = Sequence{std::make_shared<const Tuple>(std::move(items)), false};
  return out;
}

HostValue HostValue::list(Tuple items) {
  HostValue out;
  out.v_ = Sequence{std::make_shared<const Tuple>(std::move(items)), true};
  return out;
}

HostValue HostValue::ints(const std::vector<int64_t>& items) {
  return tuple(Tuple(items.begin(), items.end()));
}

double HostValue::as_number() const {
  if (is_double()) return as_double();
  if (is_bool()) return as_bool() ? 1.0 : 0.0;
  return static_cast<double>(as_int());
}

bool HostValue::operator==(const HostValue& other) const {
  if (v_.index() != other.v_.index()) return false;
  if (is_double()) {
    return std::bit_cast<uint64_t>(as_double()) == std::bit_cast<uint64_t>(other.as_double());
  }
  if (is_slice()) {
    const Slice& a = as_slice();
    const Slice& b = other.as_slice();
    return a.start == b.start && a.stop == b.stop && a.step == b.step;
  }
  if (is_sequence()) return is_list() == other.is_list() && items() == other.items();
  if (is_tensor()) return as_tensor() == other.as_tensor() || *as_tensor() == *other.as_tensor();
  return std::visit(
      [&](const auto& a) {
        using T = std::decay_t<decltype(a)>;
        if constexpr (std::is_same_v<T, std::shared_ptr<const Slice>> ||
                      std::is_same_v<T, Sequence> ||
                      std::is_same_v<T, std::shared_ptr<const TensorData>>) {
          return false;  // handled above
        } else {
          return a == std::get<T>(other.v_);
        }
      },
      v_);
}

namespace {

size_t mix(size_t seed, size_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2));
}

}  // namespace

size_t HostValue::hash() const {
  const size_t seed = v_.index();
  if (is_bool()) return mix(seed, as_bool() ? 1 : 0);
  if (is_int()) return mix(seed, static_cast<size_t>(as_int()));
  if (is_double()) return mix(seed, std::bit_cast<uint64_t>(as_double()));
  if (is_string()) return mix(seed, std::hash<std::string>{}(as_string()));
  if (is_dtype()) return mix(seed, static_cast<size_t>(as_dtype()));
  if (is_symbolic()) return mix(seed, as_symbolic().expr);
  if (is_slice()) {
    const Slice& s = as_slice();
    return mix(mix(mix(seed, s.start.hash()), s.stop.hash()), s.step.hash());
  }
  if (is_sequence()) {
    size_t out = mix(seed, is_list() ? 1 : 0);
    for (const HostValue& item : items()) out = mix(out, item.hash());
    return out;
  }
  if (is_tensor()) {
    const TensorData& data = *as_tensor();
    const std::string_view bytes(reinterpret_cast<const char*>(data.bytes.data()),
                                 data.bytes.size());
    return mix(mix(seed, static_cast<size_t>(data.dtype)), std::hash<std::string_view>{}(bytes));
  }
  if (is_opaque()) return mix(seed, reinterpret_cast<size_t>(as_opaque().pointer.get()));
  return seed;
}

namespace {

using PrintSymbol = std::function<std::string(SymbolicInt)>;

template <class T>
std::string print_real(T value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  const bool looks_integral = text.find_first_of(".en") == std::string::npos;
  return looks_integral ? text + ".0" : text;
}

std::string print_string(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string print_tensor(const TensorData& data) {
  std::string out =
      fmt::format("tensor<{}[{}]>(", short_name(data.dtype), fmt::join(data.shape, ", "));
  if (data.packed.matrix) return fmt::format("{}{})", out, name(data.packed.matrix->format()));
  const size_t count = data.bytes.size() / literal_size(data.dtype);
  for (size_t i = 0; i < count; ++i) {
    if (i != 0) out += ", ";
    // A float prints with its own shortest digits, so 0.1f is 0.1.
    out += data.dtype == DType::kFloat32
               ? print_real(static_cast<float>(element(data, i).as_double()))
               : to_string(element(data, i));
  }
  return out + ")";
}

// Depth is bounded by HostValue::kMaxDepth, which constructors from user data enforce.
std::string print(const HostValue& value, const PrintSymbol& symbol);

std::string print_sequence(const HostValue& value, const PrintSymbol& symbol) {
  std::string out = value.is_list() ? "[" : "(";
  const auto& items = value.items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (i != 0) out += ", ";
    out += print(items[i], symbol);
  }
  if (!value.is_list() && items.size() == 1) out += ",";
  return out + (value.is_list() ? "]" : ")");
}

std::string print_slice(const Slice& slice, const PrintSymbol& symbol) {
  const auto part = [&](const HostValue& v) { return v.is_none() ? "" : print(v, symbol); };
  std::string out = part(slice.start) + ":" + part(slice.stop);
  if (!slice.step.is_none()) out += ":" + part(slice.step);
  return out;
}

std::string print(const HostValue& value, const PrintSymbol& symbol) {
  if (value.is_none()) return "none";
  if (value.is_bool()) return value.as_bool() ? "true" : "false";
  if (value.is_int()) return fmt::format("{}", value.as_int());
  if (value.is_double()) return print_real(value.as_double());
  if (value.is_string()) return print_string(value.as_string());
  if (value.is_dtype()) return std::string(short_name(value.as_dtype()));
  if (value.is_symbolic()) {
    return symbol ? symbol(value.as_symbolic()) : fmt::format("?{}", value.as_symbolic().expr);
  }
  if (value.is_ellipsis()) return "...";
  if (value.is_slice()) return print_slice(value.as_slice(), symbol);
  if (value.is_sequence()) return print_sequence(value, symbol);
  if (value.is_tensor()) return print_tensor(*value.as_tensor());
  return fmt::format("<{}>", value.as_opaque().tag);
}

}  // namespace

std::string to_string(const HostValue& value, const PrintSymbol& print_symbol) {
  return print(value, print_symbol);
}

}  // namespace mithril::core
