// What the bindings share: pybind11, the user's place in his code, conversion of host values.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "core/error.h"
#include "core/host_value.h"
#include "core/location.h"
#include "ir/graph.h"

namespace mithril::bindings {

namespace py = pybind11;

/// Tells where the user called from: the innermost Python frame outside of the mithril package.
core::Location user_location();

/// Tells whether no frame of a traceback is the user's.
bool only_our_frames(PyObject* traceback);

/// core::HostValue of a Python object; a typed error that names `what` for anything that no host
/// value can hold (an int beyond 64 bits, a nest deeper than HostValue::kMaxDepth, an object).
core::HostValue to_host(py::handle object, const char* what);

py::object from_host(const core::HostValue& value);

/// The attribute of opaque ops of users: what is called.
inline constexpr const char* kFunctionAttr = "__function__";
/// Any object as an attribute: whatever has the value keeps the object.
core::HostValue to_opaque(py::object object);

/// A tensor literal as Python holds it.
struct TensorLiteral {
  std::shared_ptr<const core::TensorData> data;
};

/// ml.Dtype member for an element type; a string "int" or "float" for the abstract ones.
py::object from_dtype(core::DType dtype);

/// Makes ErrorException the Python class that its kind names.
void bind_errors(py::module_& module);
/// `public(function)`: calls of it leave no frames of ours in the traceback of a MithrilError.
void bind_public(py::module_& module);
void bind_literals(py::module_& module);
/// Traces, sinks, the table of variables, the profile. Before what has traces as arguments.
void bind_trace(py::module_& module);
void bind_graph(py::module_& module);
void bind_model(py::module_& module);
void bind_constraint(py::module_& module);
void bind_primitive(py::module_& module);
void bind_files(py::module_& module);
void bind_runtime(py::module_& module);
/// Recorders, and what the machine has. Before what has recorders as arguments.
void bind_inspection(py::module_& module);
void bind_segments(py::module_& module);
void bind_ggml(py::module_& module);
/// Arrays of devices, and the base of devices. Before the devices.
void bind_device_arrays(py::module_& module);

}  // namespace mithril::bindings
