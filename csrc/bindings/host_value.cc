// Python objects and core::HostValue, both ways. Imports neither numpy nor a framework: what an
// array holds is copied by the Python side into a TensorData.
#include <fmt/format.h>

#include "bindings/gil.h"
#include "bindings/python.h"
#include "core/status.h"
#include "core/tensor_data.h"

namespace mithril::bindings {
namespace {

using core::Code;
using core::DType;
using core::ErrorKind;
using core::HostValue;

constexpr const char* kPythonObject = "a Python object";
constexpr size_t kMostItems = 10'000'000;  // more are an array's business

core::Error refuse(const char* what, py::handle object) {
  return core::fail(ErrorKind::kValue, Code::kValueArgument,
                    "{}: requires a number, string, tuple, list, slice, dtype, tensor or none, got "
                    "an object of type {}",
                    what, Py_TYPE(object.ptr())->tp_name);
}

/// A class of mithril.types, looked up once (classes of modules live as long as the process).
py::handle type_class(const char* name) {
  return py::object(py::module_::import("mithril.types").attr(name)).release();
}

bool is_dtype(py::handle object) {
  static const py::handle dtype = type_class("Dtype");
  return Py_TYPE(object.ptr()) == reinterpret_cast<PyTypeObject*>(dtype.ptr());
}

bool is_padding(py::handle object) {
  static const py::handle padding = type_class("PaddingType");
  return Py_TYPE(object.ptr()) == reinterpret_cast<PyTypeObject*>(padding.ptr());
}

HostValue int_value(py::handle object, const char* what) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow != 0) {
    throw core::ErrorException(core::fail(ErrorKind::kOverflow, Code::kOverflow,
                                          "{}: requires an integer of 64 bits, got a larger one",
                                          what));
  }
  if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
  return HostValue(static_cast<int64_t>(value));
}

std::string utf8(py::handle object) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (text == nullptr) {  // lone surrogates
    PyErr_Clear();
    throw core::ErrorException(core::fail(ErrorKind::kValue, Code::kValueArgument,
                                          "text must be valid unicode without surrogates"));
  }
  return {text, static_cast<size_t>(size)};
}

HostValue convert(py::handle object, const char* what, int depth);

HostValue sequence(py::handle object, const char* what, int depth, bool is_list) {
  if (depth >= HostValue::kMaxDepth) {
    throw core::ErrorException(core::fail(ErrorKind::kValue, Code::kValueArgument,
                                          "{}: nested more than {} levels deep", what,
                                          HostValue::kMaxDepth));
  }
  const size_t count = py::len(object);
  if (count > kMostItems) {
    throw core::ErrorException(core::fail(ErrorKind::kValue, Code::kValueArgument,
                                          "{}: requires at most {} items, got {}", what, kMostItems,
                                          count));
  }
  HostValue::Tuple items;
  items.reserve(count);
  for (const py::handle item : py::reinterpret_borrow<py::sequence>(object)) {
    items.push_back(convert(item, what, depth + 1));
  }
  return is_list ? HostValue::list(std::move(items)) : HostValue::tuple(std::move(items));
}

/// Numbers of numpy and 0-d arrays of anything: what `item()` or `__index__` makes of them.
std::optional<HostValue> foreign_number(py::handle object, const char* what) {
  if (PyIndex_Check(object.ptr())) {
    const py::object number = py::reinterpret_steal<py::object>(PyNumber_Index(object.ptr()));
    if (number) return int_value(number, what);
    PyErr_Clear();
  }
  if (!py::hasattr(object, "item") || !py::hasattr(object, "dtype")) return std::nullopt;
  if (py::hasattr(object, "ndim") && object.attr("ndim").cast<int>() != 0) return std::nullopt;
  const py::object number = object.attr("item")();
  if (PyBool_Check(number.ptr())) return HostValue(number.ptr() == Py_True);
  if (PyFloat_Check(number.ptr())) return HostValue(PyFloat_AS_DOUBLE(number.ptr()));
  return std::nullopt;
}

/// A bound of a slice: true counts as 1, as in Python.
HostValue slice_bound(py::handle object, const char* what) {
  if (object.is_none()) return HostValue();
  if (PyLong_Check(object.ptr())) return int_value(object, what);
  if (auto number = foreign_number(object, what); number && number->is_int()) return *number;
  throw core::ErrorException(
      core::fail(ErrorKind::kValue, Code::kValueArgument,
                 "{}: the bounds of a slice must be integers or none, got an object of type {}",
                 what, Py_TYPE(object.ptr())->tp_name));
}

HostValue convert(py::handle object, const char* what, int depth) {
  PyObject* p = object.ptr();
  if (p == Py_None) return HostValue();
  if (PyBool_Check(p)) return HostValue(p == Py_True);
  if (PyFloat_Check(p)) return HostValue(PyFloat_AS_DOUBLE(p));
  if (PyUnicode_CheckExact(p)) return HostValue(utf8(object));
  if (PyTuple_Check(p)) return sequence(object, what, depth, false);
  if (PyList_Check(p)) return sequence(object, what, depth, true);
  if (is_dtype(object)) return HostValue(*core::parse_dtype(utf8(object)));
  if (is_padding(object)) {
    return HostValue(PyLong_AsLong(p) == 0 ? std::string("valid") : std::string("same"));
  }
  if (PyLong_Check(p)) return int_value(object, what);
  if (PyUnicode_Check(p)) return HostValue(utf8(object));
  if (p == Py_Ellipsis) return HostValue(core::EllipsisValue{});
  if (PySlice_Check(p)) {
    return HostValue(core::Slice{slice_bound(object.attr("start"), what),
                                 slice_bound(object.attr("stop"), what),
                                 slice_bound(object.attr("step"), what)});
  }
  if (PyRange_Check(p)) return sequence(object, what, depth, false);
  if (py::isinstance<TensorLiteral>(object)) {
    return HostValue(object.cast<TensorLiteral&>().data);
  }
  if (auto number = foreign_number(object, what)) return *number;
  throw core::ErrorException(refuse(what, object));
}

}  // namespace

HostValue to_host(py::handle object, const char* what) { return convert(object, what, 0); }

py::object from_dtype(core::DType dtype) {
  if (core::is_abstract(dtype)) return py::str(std::string(core::name(dtype)));
  static const py::handle members = type_class("Dtype");
  return members(py::str(std::string(core::name(dtype))));
}

namespace {

struct FromHost {
  py::object operator()(core::NoneValue) const { return py::none(); }
  py::object operator()(bool v) const { return py::bool_(v); }
  py::object operator()(int64_t v) const { return py::int_(v); }
  py::object operator()(double v) const { return py::float_(v); }
  py::object operator()(const std::string& v) const { return py::str(v); }
  py::object operator()(DType v) const { return from_dtype(v); }
  py::object operator()(core::SymbolicInt) const { return py::none(); }
  py::object operator()(core::EllipsisValue) const { return py::ellipsis(); }
  py::object operator()(const std::shared_ptr<const core::Slice>& v) const {
    const py::object start = from_host(v->start), stop = from_host(v->stop),
                     step = from_host(v->step);
    return py::reinterpret_steal<py::object>(PySlice_New(start.ptr(), stop.ptr(), step.ptr()));
  }
  py::object operator()(const HostValue::Sequence& v) const {
    py::list items;
    for (const HostValue& item : *v.items) items.append(from_host(item));
    return v.is_list ? py::object(items) : py::object(py::tuple(items));
  }
  py::object operator()(const std::shared_ptr<const core::TensorData>& v) const {
    return py::cast(TensorLiteral{v});
  }
  py::object operator()(const core::Opaque& v) const {
    if (v.tag != kPythonObject) return py::none();
    return py::reinterpret_borrow<py::object>(
        static_cast<PyObject*>(const_cast<void*>(v.pointer.get())));
  }
};

}  // namespace

HostValue to_opaque(py::object object) {
  // The engine may drop it on any thread, and after Python's end.
  const auto drop = [](const void* pointer) {
    if (Py_IsInitialized() == 0) return;
    const GilAcquire gil;
    Py_DECREF(static_cast<PyObject*>(const_cast<void*>(pointer)));
  };
  const std::shared_ptr<const void> kept(object.release().ptr(), drop);
  return HostValue(core::Opaque{kept, kPythonObject});
}

py::object from_host(const HostValue& value) { return std::visit(FromHost{}, value.variant()); }

}  // namespace mithril::bindings
