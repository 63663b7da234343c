// Tensor literals of Python: nested sequences of numbers, or bytes of an array.
#include <span>

#include "bindings/python.h"
#include "core/checked.h"
#include "core/packed_matrix.h"
#include "core/status.h"
#include "core/tensor_data.h"

namespace mithril::bindings {
namespace {

using core::Code;
using core::DType;
using core::ErrorKind;
using core::HostValue;
using core::TensorData;

[[noreturn]] void refuse_literal(std::string message) {
  throw core::ErrorException(
      core::fail(ErrorKind::kValue, Code::kValueArgument, "tensor: {}", message));
}

bool is_row(py::handle object) {
  return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()) || PyRange_Check(object.ptr());
}

/// The shape that the first items suggest; `read` checks that all others agree.
std::vector<int64_t> shape_of(py::object object) {
  std::vector<int64_t> shape;
  while (is_row(object)) {
    if (shape.size() == HostValue::kMaxDepth) refuse_literal("nested more than 64 levels deep");
    const auto size = static_cast<int64_t>(py::len(object));
    shape.push_back(size);
    if (size == 0) break;
    object = object[py::int_(0)];
  }
  return shape;
}

void read(py::handle object, const std::vector<int64_t>& shape, size_t axis,
          std::vector<HostValue>& out) {
  if (axis == shape.size()) {
    const HostValue value = is_row(object) ? HostValue() : to_host(object, "tensor");
    if (!value.is_bool() && !value.is_int() && !value.is_double()) {
      refuse_literal(is_row(object) ? "rows must have equal lengths"
                                    : "elements must be bool, int or float");
    }
    out.push_back(value);
    return;
  }
  if (!is_row(object) || static_cast<int64_t>(py::len(object)) != shape[axis]) {
    refuse_literal("rows must have equal lengths");
  }
  for (const py::handle item : py::reinterpret_borrow<py::sequence>(object)) {
    read(item, shape, axis + 1, out);
  }
}

DType dominant(const std::vector<HostValue>& elements) {
  bool has_int = false, has_float = elements.empty();
  for (const HostValue& element : elements) {
    has_int = has_int || element.is_int();
    has_float = has_float || element.is_double();
  }
  return has_float ? DType::kAnyFloat : has_int ? DType::kAnyInt : DType::kBool;
}

DType parse(const std::string& name) {
  const std::optional<DType> dtype = core::parse_dtype(name);
  if (!dtype) refuse_literal("no dtype named '" + name + "'");
  return *dtype;
}

TensorLiteral from_nested(const py::object& nested) {
  auto data = std::make_shared<TensorData>();
  data->shape = shape_of(nested);
  std::vector<HostValue> elements;
  read(nested, data->shape, 0, elements);
  data->dtype = dominant(elements);
  for (const HostValue& element : elements) core::append_element(*data, element);
  return {std::move(data)};
}

TensorLiteral of_constant(const std::string& name) {
  auto data = core::constant_literal(name);
  if (!data) refuse_literal("no constant named '" + name + "'");
  return {std::make_shared<TensorData>(std::move(*data))};
}

TensorLiteral from_bytes(const std::string& dtype, const std::vector<int64_t>& shape,
                         const py::bytes& bytes) {
  auto data = std::make_shared<TensorData>();
  data->dtype = parse(dtype);
  data->shape = shape;
  const std::string_view view = bytes;
  data->bytes.resize(view.size());
  std::copy(view.begin(), view.end(), reinterpret_cast<char*>(data->bytes.data()));
  const auto count = core::element_count(shape);
  const auto size = static_cast<int64_t>(core::literal_size(data->dtype));
  const auto total = count ? core::checked_mul(*count, size) : std::nullopt;
  if (total != static_cast<int64_t>(view.size())) {
    refuse_literal("bytes do not fill the shape");
  }
  const auto is_bool = [](char byte) { return byte == 0 || byte == 1; };
  if (data->dtype == DType::kBool && !std::all_of(view.begin(), view.end(), is_bool)) {
    refuse_literal("the bytes of a tensor are no bools");
  }
  return {std::move(data)};
}

TensorLiteral from_packed(const std::vector<int64_t>& shape, const std::string& format,
                          bool transposed, const py::bytes& bytes) {
  const auto parsed = core::parse_weight_format(format);
  if (!parsed || shape.size() != 2) refuse_literal("no packed matrix");
  const std::string_view view = bytes;
  auto data = std::make_shared<TensorData>();
  data->shape = shape;
  data->packed = {
      core::PackedMatrix::restore(*parsed, shape[transposed ? 1 : 0], shape[transposed ? 0 : 1],
                                  std::as_bytes(std::span(view.data(), view.size())))
          .or_throw(),
      transposed};
  return {std::move(data)};
}

py::object packed_parts(const TensorLiteral& literal) {
  const auto& [matrix, transposed] = literal.data->packed;
  if (matrix == nullptr) return py::none();
  const auto data = matrix->data();
  return py::make_tuple(std::string(core::name(matrix->format())), transposed,
                        py::bytes(reinterpret_cast<const char*>(data.data()), data.size()));
}

}  // namespace

void bind_literals(py::module_& module) {
  py::class_<TensorLiteral>(module, "TensorLiteral",
                            "A dense constant: what `ml.Tensor(value)` hands to the engine.")
      .def_static("from_nested", &from_nested, py::arg("nested"))
      .def_static("from_bytes", &from_bytes, py::arg("dtype"), py::arg("shape"), py::arg("bytes"))
      .def_static("from_packed", &from_packed, py::arg("shape"), py::arg("format"),
                  py::arg("transposed"), py::arg("data"))
      .def_property_readonly("packed", &packed_parts)
      .def_static("of_constant", &of_constant, py::arg("name"))
      .def_property_readonly("constant", [](const TensorLiteral& t) { return t.data->constant; })
      .def_property_readonly("dtype",
                             [](const TensorLiteral& t) { return from_dtype(t.data->dtype); })
      .def_property_readonly(
          "shape", [](const TensorLiteral& t) { return py::tuple(py::cast(t.data->shape)); })
      .def_property_readonly("bytes", [](const TensorLiteral& t) {
        const auto data = core::unpacked(t.data);
        return py::bytes(reinterpret_cast<const char*>(data->bytes.data()), data->bytes.size());
      });
}

}  // namespace mithril::bindings
