// `public`: a callable without a Python frame of its own. When the function in it raises a
// MithrilError and every frame of the traceback is ours, the traceback is cut there, so that it
// ends in the user's code. A method may have a shortcut: an attribute of its object that is called
// first, and takes the call or returns NotImplemented. Plain C API: pybind11 has no vectorcall.
#include <Python.h>
#include <cstddef>
#include <structmember.h>

#include "bindings/python.h"
#include "core/env.h"

namespace mithril::bindings {
namespace {

struct Public {
  PyObject ob_base;  // what PyObject_HEAD says
  PyObject* function;
  PyObject* attributes;
  PyObject* shortcut;  // the attribute's name, or null
  vectorcallfunc vectorcall;
};

PyObject* take_exception() {
#if PY_VERSION_HEX >= 0x030C0000
  return PyErr_GetRaisedException();
#else
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace != nullptr) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  return value;
#endif
}

void raise_again(PyObject* exception) {
#if PY_VERSION_HEX >= 0x030C0000
  PyErr_SetRaisedException(exception);
#else
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(exception));
  Py_INCREF(type);
  PyErr_Restore(type, exception, PyException_GetTraceback(exception));
#endif
}

bool is_mithril_error(PyObject* exception) {
  static PyObject* base = nullptr;
  if (base == nullptr) {
    PyObject* module = PyImport_ImportModule("mithril.errors");
    base = module == nullptr ? nullptr : PyObject_GetAttrString(module, "MithrilError");
    Py_XDECREF(module);
  }
  if (base == nullptr) {
    PyErr_Clear();
    return false;
  }
  return PyObject_IsInstance(exception, base) == 1;
}

void cut_traceback() {
  if (core::env().full_traceback) return;
  PyObject* exception = take_exception();
  if (is_mithril_error(exception)) {
    PyObject* trace = PyException_GetTraceback(exception);
    if (only_our_frames(trace)) PyException_SetTraceback(exception, Py_None);
    Py_XDECREF(trace);
  }
  raise_again(exception);
}

// NotImplemented where there is none, or it does not take the call. It is found without the class's
// `__getattr__`, whose look-up Python pays for at every attribute.
PyObject* take_shortcut(PyObject* name, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  PyObject* shortcut = count == 0 ? nullptr : PyObject_GenericGetAttr(args[0], name);
  if (shortcut == nullptr) PyErr_Clear();
  PyObject* result = Py_NotImplemented;
  if (shortcut == nullptr || shortcut == Py_None) {
    Py_INCREF(result);
  } else {
    result = PyObject_Vectorcall(shortcut, args + 1, static_cast<size_t>(count - 1), names);
  }
  Py_XDECREF(shortcut);
  return result;
}

PyObject* call(PyObject* self, PyObject* const* args, size_t count, PyObject* names) {
  const auto* own = reinterpret_cast<Public*>(self);
  PyObject* result = nullptr;
  if (own->shortcut != nullptr) {
    result = take_shortcut(own->shortcut, args, PyVectorcall_NARGS(count), names);
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  result = PyObject_Vectorcall(own->function, args, count, names);
  if (result == nullptr) cut_traceback();
  return result;
}

PyObject* bind_method(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) {
    Py_INCREF(self);
    return self;
  }
  return PyMethod_New(self, object);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<Public*>(self)->function);
  Py_VISIT(reinterpret_cast<Public*>(self)->attributes);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(reinterpret_cast<Public*>(self)->function);
  Py_CLEAR(reinterpret_cast<Public*>(self)->attributes);
  Py_CLEAR(reinterpret_cast<Public*>(self)->shortcut);
  return 0;
}

void destroy(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

PyObject* make(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  PyObject *function = nullptr, *shortcut = nullptr;
  static const char* names[] = {"function", "shortcut", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|U", const_cast<char**>(names), &function,
                                   &shortcut)) {
    return nullptr;
  }
  Public* self = PyObject_GC_New(Public, type);
  if (self == nullptr) return nullptr;
  Py_INCREF(function);
  self->function = function;
  self->attributes = nullptr;
  Py_XINCREF(shortcut);
  if (shortcut != nullptr) PyUnicode_InternInPlace(&shortcut);
  self->shortcut = shortcut;
  self->vectorcall = call;
  PyObject_GC_Track(reinterpret_cast<PyObject*>(self));
  PyObject* functools = PyImport_ImportModule("functools");
  PyObject* updated = functools == nullptr
                          ? nullptr
                          : PyObject_CallMethod(functools, "update_wrapper", "OO", self, function);
  Py_XDECREF(functools);
  if (updated == nullptr) Py_CLEAR(self);
  Py_XDECREF(updated);
  return reinterpret_cast<PyObject*>(self);
}

PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(Public, attributes), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Public, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

PyGetSetDef getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_descr_get, reinterpret_cast<void*>(bind_method)},
                       {Py_tp_members, members},
                       {Py_tp_getset, getset},
                       {0, nullptr}};

PyType_Spec spec = {"mithril._core.public", sizeof(Public), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                        Py_TPFLAGS_METHOD_DESCRIPTOR,
                    slots};

}  // namespace

void bind_public(py::module_& module) {
  PyObject* type = PyType_FromSpec(&spec);
  if (type == nullptr) throw py::error_already_set();
  module.attr("public") = py::reinterpret_steal<py::object>(type);
  module.def(
      "plugins_disabled", [] { return core::env().disable_plugins; },
      "Whether MITHRIL_DISABLE_PLUGINS is set.");
  module.def(
      "ggml_library", [] { return core::env().ggml_lib; }, "MITHRIL_GGML_LIB, or nothing.");
  module.def(
      "nvrtc_library", [] { return core::env().nvrtc_lib; }, "MITHRIL_NVRTC_LIB, or nothing.");
  module.def(
      "cublaslt_library", [] { return core::env().cublaslt_lib; },
      "MITHRIL_CUBLASLT_LIB, or nothing.");
  module.def(
      "cudnn_library", [] { return core::env().cudnn_lib; }, "MITHRIL_CUDNN_LIB, or nothing.");
  module.def(
      "cache_dir", [] { return core::env().cache_dir; },
      "The folder in MITHRIL_CACHE_DIR, or an empty string.");
}

}  // namespace mithril::bindings
