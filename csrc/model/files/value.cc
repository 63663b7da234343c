#include "model/files/value.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/checked.h"
#include "core/packed_matrix.h"
#include "core/tensor_data.h"

namespace mithril::model {

using core::Code;
using core::DType;
using core::ErrorKind;
using core::JsonReader;
using core::JsonWriter;
using core::TensorData;

// --- writing ------------------------------------------------------------------------------------

namespace {

constexpr size_t kMostPlainElements = 64;  // larger tensors are written as bytes

std::string_view word(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

void write_float(JsonWriter& out, double value) {
  if (std::isfinite(value)) return out.number(value);
  out.begin_object();
  out.key("float");
  out.string(word(value));
  out.end_object();
}

bool is_scalar(const HostValue& value) {
  return !value.is_sequence() && !value.is_slice() && !value.is_tensor() && !value.is_dtype() &&
         !value.is_ellipsis() && !(value.is_double() && !std::isfinite(value.as_double()));
}

struct ValueWriter {
  JsonWriter& out;
  std::string_view what;

  template <class Write>
  void tagged(std::string_view tag, Write write) const {
    out.begin_object();
    out.key(tag);
    write();
    out.end_object();
  }
  void items(const HostValue::Tuple& values) const {
    out.begin_array(std::all_of(values.begin(), values.end(), is_scalar));
    for (const HostValue& item : values) std::visit(*this, item.variant());
    out.end_array();
  }
  void element(const HostValue& value) const {
    if (value.is_bool()) return out.boolean(value.as_bool());
    if (value.is_int()) return out.integer(value.as_int());
    if (std::isfinite(value.as_double())) return out.number(value.as_double());
    out.string(word(value.as_double()));
  }

  void operator()(core::NoneValue) const { out.null(); }
  void operator()(bool v) const { out.boolean(v); }
  void operator()(int64_t v) const { out.integer(v); }
  void operator()(double v) const { write_float(out, v); }
  void operator()(const std::string& v) const { out.string(v); }
  void operator()(DType v) const {
    tagged("dtype", [&] { out.string(core::name(v)); });
  }
  void operator()(core::EllipsisValue) const {
    tagged("ellipsis", [&] { out.boolean(true); });
  }
  void operator()(const std::shared_ptr<const core::Slice>& v) const {
    tagged("slice", [&] { items({v->start, v->stop, v->step}); });
  }
  void operator()(const HostValue::Sequence& v) const {
    if (v.is_list) return items(*v.items);
    tagged("tuple", [&] { items(*v.items); });
  }
  void operator()(const std::shared_ptr<const TensorData>& v) const;
  void operator()(core::SymbolicInt) const { refuse("a size that is not known yet"); }
  void operator()(const core::Opaque& v) const { refuse(v.tag); }
  void refuse(std::string_view kind) const {
    throw core::ErrorException(core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                                          "{} holds an object of this process ({}) and cannot be "
                                          "written to a file",
                                          what, *kind.data() == '\0' ? "opaque" : kind));
  }
};

// Numbers do not tell one NaN from another, bytes do.
bool is_plain(const TensorData& data, size_t count) {
  if (count > kMostPlainElements) return false;
  for (size_t i = 0; i < count; ++i) {
    const HostValue element = core::element(data, i);
    if (element.is_double() && std::isnan(element.as_double())) return false;
  }
  return true;
}

void ValueWriter::operator()(const std::shared_ptr<const TensorData>& value) const {
  const auto v = core::unpacked(value);
  const size_t count = v->bytes.size() / core::literal_size(v->dtype);
  tagged("tensor", [&] {
    out.begin_object();
    out.key("dtype");
    out.string(core::name(v->dtype));
    out.key("shape");
    out.begin_array(true);
    for (const int64_t size : v->shape) out.integer(size);
    out.end_array();
    if (is_plain(*v, count)) {
      out.key("data");
      out.begin_array(true);
      for (size_t i = 0; i < count; ++i) element(core::element(*v, i));
      out.end_array();
    } else {
      out.key("bytes");
      out.string(core::to_base64(v->bytes));
    }
    out.end_object();
  });
}

}  // namespace

void write_value(JsonWriter& out, const HostValue& value, std::string_view what) {
  std::visit(ValueWriter{out, what}, value.variant());
}

void write_kinds(JsonWriter& out, infer::KindSet kinds) {
  out.begin_array(true);
  for (int i = 0; i < infer::kValueKindCount; ++i) {
    const auto kind = static_cast<infer::ValueKind>(i);
    if (kinds.has(kind)) out.string(infer::spelling(kind));
  }
  out.end_array();
}

void write_shape(JsonWriter& out, const infer::ShapeTemplate& shape) {
  using Type = infer::TemplateItem::Type;
  const bool has_variadic = std::any_of(
      shape.begin(), shape.end(), [](const auto& item) { return item.type == Type::kVariadic; });
  out.begin_array(!has_variadic);
  for (const infer::TemplateItem& item : shape) {
    switch (item.type) {
      case Type::kSize: out.integer(item.size); break;
      case Type::kSymbol: out.string(item.name); break;
      case Type::kUnknown: out.null(); break;
      case Type::kVariadic:
        out.begin_object();
        out.key("variadic");
        out.string(item.name);
        out.end_object();
        break;
    }
  }
  out.end_array();
}

// --- reading ------------------------------------------------------------------------------------

HostValue ValueReader::read(int depth) {
  using Type = JsonReader::Type;
  if (depth > HostValue::kMaxDepth || ++count_ > kMost) {
    in_.fail(depth > HostValue::kMaxDepth ? "a value that is nested too deep" : "too many values",
             Code::kFileLimit);
    return {};
  }
  switch (in_.peek()) {
    case Type::kBool: return HostValue(in_.read_bool());
    case Type::kNumber:
      return in_.is_integer() ? HostValue(in_.read_integer()) : HostValue(in_.read_number());
    case Type::kString: return HostValue(std::string(in_.read_string()));
    case Type::kArray: return HostValue::list(read_items(depth));
    case Type::kObject: return read_tagged(depth);
    case Type::kNull: in_.read_null(); return {};
    case Type::kNone: return {};
  }
  return {};
}

HostValue::Tuple ValueReader::read_items(int depth) {
  HostValue::Tuple out;
  in_.begin_array();
  while (in_.next_item()) out.push_back(read(depth + 1));
  return out;
}

HostValue ValueReader::read_tagged(int depth) {
  HostValue out;
  std::string_view tag;
  in_.begin_object();
  if (!in_.next_key(tag)) {
    in_.fail("requires a value, got an empty object");
    return out;
  }
  if (tag == "tuple") {
    out = HostValue::tuple(read_items(depth));
  } else if (tag == "slice") {
    out = read_slice(depth);
  } else if (tag == "tensor") {
    out = read_tensor();
  } else if (tag == "dtype") {
    const auto dtype = core::parse_dtype(in_.read_string());
    dtype ? void(out = HostValue(*dtype)) : in_.fail("requires the name of a dtype");
  } else if (tag == "ellipsis") {
    if (!in_.read_bool()) in_.fail("requires true");
    out = HostValue(core::EllipsisValue{});
  } else if (tag == "float") {
    const std::string_view which = in_.read_string();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (which != "inf" && which != "-inf" && which != "nan") in_.fail("requires inf, -inf or nan");
    out = which == "nan"   ? HostValue(std::numeric_limits<double>::quiet_NaN())
          : which == "inf" ? HostValue(kInfinity)
                           : HostValue(-kInfinity);
  } else {
    in_.fail(fmt::format("no kind of value is called '{}'", tag.substr(0, 40)));
  }
  if (in_.next_key(tag)) in_.fail("a value has one key");
  return out;
}

HostValue ValueReader::read_slice(int depth) {
  HostValue::Tuple bounds = read_items(depth);
  const bool good = bounds.size() == 3 && std::all_of(bounds.begin(), bounds.end(), [](auto& b) {
                      return b.is_int() || b.is_none();
                    });
  if (!good) {
    in_.fail("a slice has three bounds, integers or null");
    return {};
  }
  return HostValue(core::Slice{bounds[0], bounds[1], bounds[2]});
}

namespace {
bool all_bools(const std::vector<std::byte>& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b <= std::byte{1}; });
}
}  // namespace

HostValue ValueReader::read_tensor() {
  auto data = std::make_shared<TensorData>();
  bool has_dtype = false, has_shape = false, has_data = false;
  in_.begin_object();
  for (std::string_view key; in_.next_key(key);) {
    if (key == "dtype" && !has_dtype) {
      const auto dtype = core::parse_dtype(in_.read_string());
      if (!dtype) in_.fail("requires the name of a dtype");
      data->dtype = dtype.value_or(DType::kBool);
      has_dtype = true;
    } else if (key == "shape" && !has_shape) {
      in_.begin_array();
      while (in_.next_item()) {
        data->shape.push_back(in_.read_integer(0, std::numeric_limits<int64_t>::max()));
        if (data->shape.size() > HostValue::kMaxDepth) in_.fail("a shape of too many dims");
      }
      has_shape = true;
    } else if (key == "data" && has_dtype && !has_data) {
      read_elements(*data);
      has_data = true;
    } else if (key == "bytes" && has_dtype && !has_data) {
      auto bytes = core::from_base64(in_.read_string());
      bytes.ok() ? void(data->bytes = std::move(*bytes)) : in_.fail("malformed base64 text");
      if (data->dtype == DType::kBool && !all_bools(data->bytes)) in_.fail("requires bools");
      has_data = true;
    } else {
      in_.fail("a tensor has dtype, shape, and then data or bytes, each once");
    }
  }
  const auto count = core::element_count(data->shape);
  const auto size = static_cast<int64_t>(core::literal_size(data->dtype));
  const auto total = count ? core::checked_mul(*count, size) : std::nullopt;
  if (!has_shape || !has_data || total != static_cast<int64_t>(data->bytes.size())) {
    in_.fail("the elements of a tensor do not fill its shape");
  }
  return HostValue(std::shared_ptr<const TensorData>(std::move(data)));
}

void ValueReader::read_elements(TensorData& data) {
  in_.begin_array();
  while (in_.next_item()) read_element(data);
}

void ValueReader::read_element(TensorData& data) {
  using Type = JsonReader::Type;
  const Type type = in_.peek();
  if (data.dtype == DType::kBool) return core::append_element(data, HostValue(in_.read_bool()));
  if (!core::is_float(data.dtype)) {
    return core::append_element(data, HostValue(in_.read_integer()));
  }
  if (type != Type::kString) return core::append_element(data, HostValue(in_.read_number()));
  const std::string_view which = in_.read_string();
  if (which != "inf" && which != "-inf") in_.fail("requires a number, inf or -inf");
  const double infinity = std::numeric_limits<double>::infinity();
  core::append_element(data, HostValue(which == "inf" ? infinity : -infinity));
}

infer::KindSet ValueReader::read_kinds() {
  infer::KindSet out;
  in_.begin_array();
  while (in_.next_item()) {
    const std::string_view spelling = in_.read_string();
    const auto kind = infer::parse_kind(spelling);
    if (!kind) in_.fail(fmt::format("no type is called '{}'", spelling.substr(0, 40)));
    if (kind) out = out | *kind;
  }
  if (out.empty()) in_.fail("requires at least one type");
  return out;
}

infer::ShapeTemplate ValueReader::read_shape() {
  using Type = JsonReader::Type;
  infer::ShapeTemplate out;
  in_.begin_array();
  while (in_.next_item()) {
    switch (in_.peek()) {
      case Type::kNumber:
        out.push_back(
            infer::TemplateItem::of(in_.read_integer(0, std::numeric_limits<int64_t>::max())));
        break;
      case Type::kString:
        out.push_back(infer::TemplateItem::symbol(std::string(in_.read_string())));
        break;
      case Type::kNull:
        in_.read_null();
        out.push_back(infer::TemplateItem::unknown());
        break;
      default: {
        std::string_view key;
        in_.begin_object();
        if (!in_.next_key(key) || key != "variadic") in_.fail("requires the key 'variadic'");
        out.push_back(infer::TemplateItem::variadic(std::string(in_.read_string())));
        if (in_.next_key(key)) in_.fail("requires one key");
      }
    }
  }
  return out;
}

}  // namespace mithril::model
