// Arrays of devices as DLPack hands them over: https://dmlc.github.io/dlpack/latest/
#pragma once
#include <memory>

#include "bindings/device_array.h"

namespace mithril::bindings {

/// (kind, number) of the device that `__dlpack__` gives the values on: that of the array where
/// other libraries can be let at its memory, else the CPU.
py::tuple dlpack_device(const DeviceArray& array);

/// A capsule with the array's own memory, in which all values are computed, or with a copy of the
/// host's. BufferError for a device, a dtype or a way of sharing that it cannot be had in.
py::object to_dlpack(const py::object& array, const py::object& max_version,
                     const py::object& dl_device, const py::object& copy);

/// An array over the memory of another library's, for a backend; None where the values lie on
/// another device, or with gaps. The other library waits for its own queue first.
py::object from_dlpack(const std::shared_ptr<device::Driver>& driver, const py::object& source,
                       const py::object& backend);

}  // namespace mithril::bindings
