#include "bindings/device_array.h"

#include "bindings/dlpack.h"
#include "bindings/interrupt.h"
#include "bindings/output_array.h"
#include "core/checked.h"
#include "core/env.h"

namespace mithril::bindings {
namespace {

using device::Storage;

PyTypeObject* array_type = nullptr;

size_t itemsize_of(const py::object& dtype) {
  return static_cast<size_t>(py::reinterpret_borrow<py::dtype>(dtype).itemsize());
}

// A transfer lets others have the interpreter.
template <class Work>
void transfer(const Work& work) {
  core::Status status;
  {
    const GilRelease release;
    status = work();
  }
  std::move(status).or_throw();
}

py::object from_host_array(const std::shared_ptr<device::Driver>& driver, const py::array& values,
                           const py::object& backend) {
  MITHRIL_CHECK((values.flags() & py::array::c_style) != 0, "values must be row-major");
  const auto bytes = static_cast<int64_t>(values.nbytes());
  auto storage = Storage::make(driver, bytes).or_throw();
  transfer([&] { return storage->write(0, values.data(), bytes); });
  const std::vector<int64_t> shape(values.shape(), values.shape() + values.ndim());
  return py::cast(DeviceArray{std::move(storage), 0, shape, values.dtype(), backend});
}

py::dict peak_of(const device::Peak& peak) {
  py::dict out;
  out["float32"] = peak.float32;
  out["float64"] = peak.float64;
  out["bandwidth"] = peak.bandwidth;
  return out;
}

DeviceArray refuse_to_make(const py::args&, const py::kwargs&) {
  const py::object type = py::module_::import("mithril.errors").attr("SignatureError");
  const py::object error = type("Array: a backend of a device makes it of values",
                                py::arg("hint") = "backend.to_device(values)");
  PyErr_SetObject(type.ptr(), error.ptr());
  throw py::error_already_set();
}

// ---------------------------------------------------------------- methods

py::tuple sizes_tuple(const DeviceArray& array) { return py::tuple(py::cast(array.shape)); }

py::object as_array(const DeviceArray& array, const py::object& dtype, const py::object& copy) {
  if (copy.ptr() == Py_False) {
    PyErr_SetString(PyExc_ValueError,
                    "the values are on a device: without a copy there is no NumPy array of them");
    throw py::error_already_set();
  }
  const py::object values = host_array(array);
  return dtype.is_none() ? values : values.attr("astype")(dtype, py::arg("copy") = false);
}

py::object of_item(const DeviceArray& array, const char* method) {
  return host_array(array).attr(method)();
}

int64_t length_of(const DeviceArray& array) {
  if (array.shape.empty()) throw py::type_error("an array without axes has no length");
  return array.shape[0];
}

// The rows that an integer or a slice without gaps names; nothing for any other index.
py::object rows_at(const DeviceArray& array, const py::object& index) {
  if (array.shape.empty()) return {};
  const int64_t length = array.shape[0];
  if (PyLong_CheckExact(index.ptr())) {
    int overflow = 0;
    int64_t at = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (at < 0) at += length;
    if (overflow != 0 || at < 0 || at >= length) {
      throw py::index_error(fmt::format("index {} is out of bounds for axis 0 with size {}",
                                        py::str(index).cast<std::string>(), length));
    }
    const py::object row = rows_of(array, at, 1);
    std::vector<int64_t>& shape = row.cast<DeviceArray&>().shape;
    shape.erase(shape.begin());
    return row;
  }
  if (!PySlice_Check(index.ptr())) return {};
  Py_ssize_t start = 0, stop = 0, step = 0;
  if (PySlice_Unpack(index.ptr(), &start, &stop, &step) != 0) throw py::error_already_set();
  const Py_ssize_t count = PySlice_AdjustIndices(length, &start, &stop, step);
  return step == 1 ? rows_of(array, start, count) : py::object();
}

py::object index_of(const DeviceArray& array, const py::object& index) {
  if (py::object rows = rows_at(array, index)) return rows;
  return array.backend.attr("index")(array, index);
}

std::string text_of(const DeviceArray& array) {
  const std::string device = array.backend.attr("get_device")().cast<std::string>();
  const std::string values =
      py::module_::import("numpy")
          .attr("array2string")(host_array(array), py::arg("separator") = ", ",
                                py::arg("prefix") = "Array(")
          .cast<std::string>();
  return fmt::format("Array({}, dtype={}, device='{}')", values,
                     py::str(array.dtype).cast<std::string>(), device);
}

// As NumPy's functions and users call methods of arrays: `x.sum(axis=0, dtype=None, out=None)`,
// `x.reshape(2, 3)`.
py::object call_method(const char* method, const py::object& self, const py::args& args,
                       const py::kwargs& given) {
  py::dict named;
  for (const auto& [name, value] : given) {
    const std::string key = name.cast<std::string>();
    if (value.is_none() && (key == "dtype" || key == "out")) continue;
    named[py::str(key == "keepdims" ? "keepdim" : key)] = value;
  }
  const bool has_sizes = args.size() > 1 && py::isinstance<py::int_>(args[0]);
  const py::object own = self.attr("backend").attr(method);
  return has_sizes ? own(self, args, **named) : own(self, *args, **named);
}

constexpr const char* kClassDoc =
    R"(An array in the memory of a device of OpenCL or CUDA; `backend.to_device` makes it.

Models, operators and methods of the backend that get one leave their results on the device and do
not wait for them; `to_numpy`, `np.asarray`, `float` and printing do, and copy the values. `dtype`
is NumPy's. Values do not change; rows (`x[2]`, `x[1:3]`) are of the same memory.

Raises
------
DeviceNotAvailable : where the driver fails, also of what nobody has waited for; in a fork
OutOfMemoryError : the device has no memory left
)";

using BoundArray = py::class_<DeviceArray>;

void def_methods(BoundArray& bound) {
  static constexpr std::pair<const char*, const char*> kMethods[] = {
      {"sum", "sum"},         {"mean", "mean"},       {"max", "max"},
      {"min", "min"},         {"prod", "prod"},       {"any", "any"},
      {"all", "all"},         {"argmax", "argmax"},   {"argmin", "argmin"},
      {"astype", "cast"},     {"reshape", "reshape"}, {"transpose", "transpose"},
      {"squeeze", "squeeze"}, {"flatten", "flatten"}, {"clip", "clamp"},
  };
  for (const auto& [name, method] : kMethods) {
    bound.def(name, [method = method](const py::object& self, const py::args& args,
                                      const py::kwargs& named) {
      return call_method(method, self, args, named);
    });
  }
  bound.def_property_readonly(
      "T", [](const py::object& self) { return self.attr("backend").attr("transpose")(self); });
  bound.def_property_readonly("mT", [](const py::object& self) {
    return self.attr("backend").attr("swapaxes")(self, -1, -2);
  });
}

void def_operators(BoundArray& bound) {
  // By name and method of the backend; reflected ones turn their operands round.
  static constexpr std::pair<const char*, const char*> kBinary[] = {
      {"add", "add"},        {"sub", "subtract"},          {"mul", "multiply"},
      {"truediv", "divide"}, {"floordiv", "floor_divide"}, {"mod", "remainder"},
      {"pow", "power"},      {"matmul", "matmul"},         {"and", "bitwise_and"},
      {"or", "bitwise_or"},  {"xor", "bitwise_xor"},
  };
  const auto forward = [&](const std::string& name, const char* method) {
    const bool takes_none = name == "__eq__" || name == "__ne__";  // which is no array
    bound.def(name.c_str(), [=](const py::object& self, const py::object& other) -> py::object {
      if (takes_none && other.is_none()) {
        return py::reinterpret_borrow<py::object>(Py_NotImplemented);
      }
      return self.attr("backend").attr(method)(self, other);
    });
  };
  for (const auto& [name, method] : kBinary) {
    forward(fmt::format("__{}__", name), method);
    bound.def(fmt::format("__r{}__", name).c_str(),
              [method = method](const py::object& self, const py::object& other) {
                return self.attr("backend").attr(method)(other, self);
              });
  }
  static constexpr std::pair<const char*, const char*> kComparisons[] = {
      {"__eq__", "equal"},      {"__ne__", "not_equal"}, {"__lt__", "less"},
      {"__le__", "less_equal"}, {"__gt__", "greater"},   {"__ge__", "greater_equal"},
  };
  for (const auto& [name, method] : kComparisons) forward(name, method);
  static constexpr std::pair<const char*, const char*> kUnary[] = {
      {"__neg__", "negate"}, {"__abs__", "absolute"}, {"__invert__", "logical_not"}};
  for (const auto& [name, method] : kUnary) {
    bound.def(name, [method = method](const py::object& self) {
      return self.attr("backend").attr(method)(self);
    });
  }
  bound.attr("__hash__") = py::none();
}

}  // namespace

size_t DeviceArray::bytes() const {
  return static_cast<size_t>(core::product(shape)) * itemsize_of(dtype);
}

namespace {

// Of device::Driver::lock().
void check_unlocked() {
  MITHRIL_CHECK(PyGILState_Check() == 0, "a device is waited for with Python's lock held");
}

void bind_drivers(py::module_& module) {
  py::class_<device::Driver, std::shared_ptr<device::Driver>>(module, "DeviceDriver",
                                                              "The queue of a device.")
      .def("array", &from_host_array, py::arg("values"), py::arg("backend"),
           "An array with the values of a row-major one of NumPy.")
      .def("from_dlpack", &from_dlpack, py::arg("source"), py::arg("backend"))
      .def("finish",
           [](device::Driver& driver) { transfer([&] { return driver.wait_for_all(); }); })
      .def("release_spare",
           [](device::Driver& driver) {
             const GilRelease release;
             driver.check_process().or_throw();
             driver.release_spare().or_throw();
           })
      .def_property_readonly("used_bytes", &device::Driver::used_bytes)
      .def_property_readonly("peak_bytes", &device::Driver::peak_bytes)
      .def(
          "peak",
          [](device::Driver& driver) {
            device::Peak peak;
            transfer([&]() -> core::Status {
              MITHRIL_ASSIGN(peak, driver.peak());
              return {};
            });
            return peak_of(peak);
          },
          "What the device does in a second at best, measured once.")
      .def_property_readonly("known_peak",
                             [](device::Driver& driver) {
                               std::optional<device::Peak> peak;
                               {
                                 const GilRelease release;
                                 peak = driver.known_peak();
                               }
                               return peak ? py::object(peak_of(*peak)) : py::none();
                             })
      .def_property_readonly("has_exact_bits", [](device::Driver& driver) {
        const GilRelease release;
        return driver.has_exact_bits().or_throw();
      });
}

void def_properties(BoundArray& bound) {
  bound.def_property_readonly("shape", &sizes_tuple)
      .def_property_readonly("ndim", [](const DeviceArray& array) { return array.shape.size(); })
      .def_property_readonly("size",
                             [](const DeviceArray& array) { return core::product(array.shape); })
      .def_property_readonly("nbytes", &DeviceArray::bytes)
      .def_property_readonly("itemsize",
                             [](const DeviceArray& array) { return itemsize_of(array.dtype); })
      .def_readonly("dtype", &DeviceArray::dtype)
      .def_readonly("backend", &DeviceArray::backend)
      .def_property_readonly(
          "device", [](const DeviceArray& array) { return array.backend.attr("get_device")(); })
      .def("to_numpy", &host_array)
      .def("item", [](const DeviceArray& array) { return of_item(array, "item"); })
      .def("tolist", [](const DeviceArray& array) { return of_item(array, "tolist"); })
      .def("is_on", [](const DeviceArray& array, const device::Driver& driver) {
        return &array.storage->driver() == &driver;
      });
}

// Defines the methods by which other libraries, devices and processes get the values.
void def_exchange(BoundArray& bound) {
  bound.def("__array__", &as_array, py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack_device__", &dlpack_device)
      .def(
          "__dlpack__",
          [](const py::object& array, const py::object& stream, const py::object& max_version,
             const py::object& dl_device, const py::object& copy) {
            return to_dlpack(array, stream, max_version, dl_device, copy);
          },
          py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
          py::arg("dl_device") = py::none(), py::arg("copy") = py::none())
      .def(
          "__array_namespace__",
          [](const DeviceArray& array, const py::object& api_version) {
            return array.backend.attr("_array_namespace")(api_version);
          },
          py::kw_only(), py::arg("api_version") = py::none())
      .def(
          "to_device",
          [](const py::object& self, const py::object& device, const py::object& /*stream*/) {
            return self.attr("backend").attr("to_device")(self, device);
          },
          py::arg("device"), py::pos_only(), py::kw_only(), py::arg("stream") = py::none())
      .def("__reduce__", [](const DeviceArray& array) {
        return py::make_tuple(array.backend.attr("to_device"), py::make_tuple(host_array(array)));
      });
}

// Defines the methods that lists and numbers have, too.
void def_protocols(BoundArray& bound) {
  bound.def("__len__", &length_of)
      .def("__getitem__", &index_of)
      .def("__setitem__",
           [](const DeviceArray&, const py::object&, const py::object&) {
             throw py::type_error(
                 "an array on a device does not change: make another one, as by "
                 "backend.where(mask, x, y), or change a copy, np.array(x)");
           })
      .def("__iter__",
           [](const py::object& self) {
             if (self.cast<const DeviceArray&>().shape.empty()) {
               throw py::type_error("an array without axes has nothing to iterate over");
             }
             return py::reinterpret_steal<py::object>(PySeqIter_New(self.ptr()));
           })
      .def("__format__",
           [](const py::object& self, const py::str& spec) -> py::object {
             if (py::len(spec) == 0) return py::str(self);
             return host_array(self.cast<const DeviceArray&>()).attr("__format__")(spec);
           })
      .def("__repr__", &text_of);
  for (const char* name : {"__float__", "__int__", "__bool__", "__index__", "__complex__"}) {
    bound.def(name, [name](const DeviceArray& array) { return of_item(array, name); });
  }
}

}  // namespace

DeviceArray* device_array(PyObject* object) {
  return Py_TYPE(object) == array_type ? py::handle(object).cast<DeviceArray*>() : nullptr;
}

py::object make_device_array(const DeviceArray& like, py::object dtype,
                             std::span<const int64_t> shape, size_t bytes) {
  auto storage =
      Storage::make(like.storage->shared_driver(), static_cast<int64_t>(bytes)).or_throw();
  return py::cast(DeviceArray{
      std::move(storage), 0, {shape.begin(), shape.end()}, std::move(dtype), like.backend});
}

py::object rows_of(const DeviceArray& array, int64_t first, int64_t count) {
  DeviceArray out = array;
  const int64_t rows = array.shape.at(0);
  if (rows > 0) out.offset += static_cast<int64_t>(array.bytes()) / rows * first;
  out.shape[0] = count;
  return py::cast(std::move(out));
}

py::object host_array(const DeviceArray& array) {
  const size_t bytes = array.bytes();
  py::object out = make_output_array(array.dtype.ptr(), array.shape, bytes);
  void* const to = py::reinterpret_borrow<py::array>(out).mutable_data();
  transfer([&] { return array.storage->read(array.offset, to, static_cast<int64_t>(bytes)); });
  return out;
}

void bind_device_arrays(py::module_& module) {
  if (core::env().verify) device::Driver::check_before_locks(&check_unlocked);
  bind_drivers(module);
  BoundArray bound(module, "Array", kClassDoc);
  bound.def(py::init(&refuse_to_make));
  def_properties(bound);
  def_exchange(bound);
  def_protocols(bound);
  def_methods(bound);
  def_operators(bound);
  bound.attr("__module__") = "mithril";
  bound.attr("__array_priority__") = 1000;  // NumPy's operators leave it to ours
  array_type = reinterpret_cast<PyTypeObject*>(bound.ptr());
}

}  // namespace mithril::bindings
