// Arrays of devices as DLPack hands them over: https://dmlc.github.io/dlpack/latest/
#pragma once
#include <memory>

#include "bindings/device_array.h"

namespace mithril::bindings {

/// (kind, number) of the device that `__dlpack__` gives the values on: that of the array where
/// other libraries can be let at its memory, else the CPU.
py::tuple dlpack_device(const DeviceArray& array);

/// A capsule with the array's own memory, or with a copy of the host's. `stream`, as the array API
/// standard has it for CUDA: None: all values are computed; -1: the consumer waits by itself; any
/// other number but 0 is a stream that is made to wait, and the host does not. BufferError for a
/// device, a dtype or a way of sharing that it cannot be had in.
py::object to_dlpack(const py::object& array, const py::object& stream,
                     const py::object& max_version, const py::object& dl_device,
                     const py::object& copy);

/// An array over the memory of another library's, for a backend; None where the values lie on
/// another device, or with gaps. The other library makes ours wait for its own queue. Memory that
/// it calls read-only is never written over.
py::object from_dlpack(const std::shared_ptr<device::Driver>& driver, const py::object& source,
                       const py::object& backend);

}  // namespace mithril::bindings
