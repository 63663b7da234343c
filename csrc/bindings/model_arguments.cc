// What models take from Python: arguments of a connect, facts about keys, shape templates.
#include "bindings/model_arguments.h"

#include "core/status.h"

namespace mithril::bindings {
namespace {

using core::Code;
using core::ErrorKind;
using model::Argument;
using model::KeySpec;

py::handle singleton(const char* name) {
  return py::object(py::module_::import("mithril.types").attr(name)).release();
}

bool is_not_given(py::handle object) {
  static const py::handle not_given = singleton("NOT_GIVEN");
  return object.is(not_given);
}

bool is_missing(py::handle object) {
  static const py::handle missing = singleton("MISSING");
  return object.is(missing);
}

bool is_sequence(py::handle object) {
  return PyTuple_Check(object.ptr()) || PyList_Check(object.ptr());
}

bool contains_wire(py::handle object, int depth) {
  if (py::isinstance<Connection>(object)) return true;
  if (!is_sequence(object) || depth == core::HostValue::kMaxDepth) return false;
  for (const py::handle item : py::reinterpret_borrow<py::sequence>(object)) {
    if (contains_wire(item, depth + 1)) return true;
  }
  return false;
}

Argument nested_argument(py::handle object, const char* what) {
  if (py::isinstance<Connection>(object)) return Argument::of(object.cast<Connection&>());
  if (PyUnicode_CheckExact(object.ptr())) {
    core::Error error = core::fail(ErrorKind::kDType, Code::kValueArgument,
                                   "{}: a name in a tuple or list stands for no wire", what);
    error.hint = "use model[name] or an IOKey";
    throw core::ErrorException(std::move(error));
  }
  if (!contains_wire(object, 0)) return Argument::of(to_host(object, what));
  std::vector<Argument> items;
  for (const py::handle item : py::reinterpret_borrow<py::sequence>(object)) {
    items.push_back(nested_argument(item, what));
  }
  return Argument::sequence(std::move(items), PyList_Check(object.ptr()));
}

core::Error bad_template(const std::string& message) {
  return core::fail(ErrorKind::kShape, Code::kShapeTemplate, "shape: {}", message);
}

infer::TemplateItem template_item(py::handle object) {
  if (object.is_none()) return infer::TemplateItem::unknown();
  if (PyUnicode_Check(object.ptr())) return infer::TemplateItem::symbol(object.cast<std::string>());
  if (PyTuple_Check(object.ptr()) && py::len(object) == 2) {
    const py::tuple pair = py::reinterpret_borrow<py::tuple>(object);
    if (py::object(pair[1]).ptr() == Py_Ellipsis && PyUnicode_Check(py::object(pair[0]).ptr())) {
      return infer::TemplateItem::variadic(pair[0].cast<std::string>());
    }
  }
  if (object.ptr() == Py_Ellipsis) return infer::TemplateItem::variadic("");
  if (PyIndex_Check(object.ptr()) && !PyBool_Check(object.ptr())) {
    const core::HostValue size = to_host(object, "shape");
    if (size.is_int() && size.as_int() >= 0) return infer::TemplateItem::of(size.as_int());
    throw core::ErrorException(
        bad_template("sizes must not be negative, got " + core::to_string(size)));
  }
  throw core::ErrorException(
      bad_template(std::string("items are sizes, names, none or (name, ...), got ") +
                   Py_TYPE(object.ptr())->tp_name));
}

}  // namespace

Argument to_argument(py::handle object, const char* what) {
  if (is_not_given(object)) return Argument::omitted();
  if (PyUnicode_CheckExact(object.ptr())) {
    const core::HostValue name = to_host(object, what);  // refuses broken unicode
    return Argument::named(name.as_string());
  }
  return nested_argument(object, what);
}

Connections to_connections(const py::dict& arguments) {
  Connections out;
  out.reserve(arguments.size());
  for (const auto& [key, value] : arguments) {
    const std::string name = key.cast<std::string>();
    out.emplace_back(name, to_argument(value, name.c_str()));
  }
  return out;
}

infer::ShapeTemplate to_template(py::handle object) {
  if (!is_sequence(object)) {
    throw core::ErrorException(bad_template(std::string("requires a list or tuple, got ") +
                                            Py_TYPE(object.ptr())->tp_name));
  }
  infer::ShapeTemplate out;
  for (const py::handle item : py::reinterpret_borrow<py::sequence>(object)) {
    out.push_back(template_item(item));
  }
  return out;
}

model::KeyRef to_key(py::handle object) {
  if (py::isinstance<Connection>(object)) return {object.cast<Connection&>()};
  const core::HostValue name = to_host(object, "key");
  if (name.is_string()) return {name.as_string()};
  throw core::ErrorException(core::fail(ErrorKind::kDType, Code::kValueArgument,
                                        "key: requires a name or a connection, got {}",
                                        core::to_string(name)));
}

std::vector<model::KeyRef> to_keys(const py::iterable& objects) {
  std::vector<model::KeyRef> out;
  for (const py::handle object : objects) out.push_back(to_key(object));
  return out;
}

infer::Type to_type(py::handle object) {
  if (py::isinstance<py::int_>(object)) return infer::KindSet(object.cast<uint32_t>());
  const auto fields = py::reinterpret_borrow<py::tuple>(object);
  infer::Type out(infer::KindSet(fields[0].cast<uint32_t>()));
  for (const py::handle given : fields[1]) {
    const auto container = py::reinterpret_borrow<py::tuple>(given);
    infer::Container& made = out.containers.emplace_back();
    made.is_list = container[0].cast<bool>();
    made.any_length = container[1].cast<bool>();
    for (const py::handle item : container[2]) made.items.push_back(to_type(item));
  }
  return out;
}

std::optional<core::HostValue> to_optional_host(py::handle object, const char* what) {
  if (is_missing(object)) return std::nullopt;
  return to_host(object, what);
}

KeySpec to_spec(py::handle object) {
  const auto fields = py::reinterpret_borrow<py::tuple>(object);
  const auto is_set = [&](size_t i) { return !fields[i].is_none(); };
  KeySpec spec;
  spec.name = fields[0].cast<std::string>();
  spec.value = to_optional_host(fields[1], "value");
  spec.initial = fields[2].cast<bool>();
  if (is_set(3)) spec.shape = to_template(fields[3]);
  if (is_set(4)) spec.type = to_type(fields[4]);
  if (is_set(5)) spec.differentiable = fields[5].cast<bool>();
  if (is_set(6)) {
    const auto ends = py::reinterpret_borrow<py::tuple>(fields[6]);
    spec.interval = infer::Interval{to_host(ends[0], "interval"), to_host(ends[1], "interval")};
  }
  return spec;
}

}  // namespace mithril::bindings
