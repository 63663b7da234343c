// Arrays that lie in the memory of a device: ml.Array.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <pybind11/numpy.h>

#include "backends/device/storage.h"
#include "bindings/python.h"

namespace mithril::bindings {

/// Row-major elements in memory of a device, which several arrays may share. Its values do not
/// change but where a program was given leave to write over them.
struct DeviceArray {
  std::shared_ptr<const device::Storage> storage;
  int64_t offset = 0;  // of the first element, in bytes
  std::vector<int64_t> shape;
  py::object dtype;           // NumPy's
  py::object backend;         // whose methods compute with it
  bool is_read_only = false;  // another library's memory, which it does not want to be written over

  size_t bytes() const;
  /// The address that the driver takes for the first element; nothing of the host is there.
  const std::byte* data() const { return storage->address() + offset; }
};

/// The array that an object is; null for any other object.
DeviceArray* device_array(PyObject* object);

/// An array with unspecified values, for the backend and on the device of `like`.
py::object make_device_array(const DeviceArray& like, py::object dtype,
                             std::span<const int64_t> shape, size_t bytes);

/// `count` rows from `first` on, of the same memory.
py::object rows_of(const DeviceArray& array, int64_t first, int64_t count);

/// A new NumPy array with the values, once they are computed.
py::object host_array(const DeviceArray& array);

}  // namespace mithril::bindings
