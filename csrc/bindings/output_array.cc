#include "bindings/output_array.h"

#include <new>

#include <pybind11/numpy.h>

#include "bindings/interrupt.h"
#include "runtime/buffer.h"

namespace mithril::bindings {
namespace {

/// The base of an array: a share of the memory that its elements are in.
struct Memory {
  PyObject ob_base;  // what PyObject_HEAD says
  runtime::Buffer buffer;
};

void destroy_memory(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<Memory*>(self)->buffer.~Buffer();
  PyObject_Free(self);
  Py_DECREF(type);
}

PyType_Slot memory_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(destroy_memory)},
                              {0, nullptr}};

PyType_Spec memory_spec = {"mithril._core.Memory", sizeof(Memory), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, memory_slots};

PyTypeObject* memory_type = nullptr;

// Large ones are touched page by page.
runtime::Buffer make_buffer(size_t bytes) {
  constexpr size_t kBrief = size_t{64} << 20;
  const auto make = [&] { return runtime::Buffer::make(bytes).or_throw(); };
  return bytes < kBrief ? make() : interruptible(make);
}

py::object own(runtime::Buffer buffer) {
  Memory* const memory = PyObject_New(Memory, memory_type);
  if (memory == nullptr) throw py::error_already_set();
  new (&memory->buffer) runtime::Buffer(std::move(buffer));
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(memory));
}

}  // namespace

py::object make_output_array(PyObject* dtype, std::span<const int64_t> shape, size_t bytes) {
  static_assert(sizeof(int64_t) == sizeof(Py_intptr_t));
  using Numpy = py::detail::npy_api;
  constexpr int kFlags = int{Numpy::NPY_ARRAY_C_CONTIGUOUS_} | int{Numpy::NPY_ARRAY_ALIGNED_} |
                         int{Numpy::NPY_ARRAY_WRITEABLE_};
  const Numpy& numpy = Numpy::get();
  runtime::Buffer buffer = make_buffer(bytes);
  void* const data = buffer.data();
  py::object memory = own(std::move(buffer));
  Py_INCREF(dtype);  // the array takes it
  auto array = py::reinterpret_steal<py::object>(numpy.PyArray_NewFromDescr_(
      numpy.PyArray_Type_, dtype, static_cast<int>(shape.size()),
      reinterpret_cast<const Py_intptr_t*>(shape.data()), nullptr, data, kFlags, nullptr));
  if (!array) throw py::error_already_set();
  if (numpy.PyArray_SetBaseObject_(array.ptr(), memory.release().ptr()) != 0) {
    throw py::error_already_set();
  }
  return array;
}

void bind_output_arrays() {
  memory_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&memory_spec));
  if (memory_type == nullptr) throw py::error_already_set();
}

}  // namespace mithril::bindings
