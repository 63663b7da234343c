// NumPy arrays for results: fresh memory of the engine's, which goes back when the array dies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/python.h"

namespace mithril::bindings {

/// A new row-major array of a dtype (a NumPy dtype object); `bytes` is what its elements take.
/// Throws where there is no memory.
py::object make_output_array(PyObject* dtype, std::span<const int64_t> shape, size_t bytes);

/// Before the first array.
void bind_output_arrays();

}  // namespace mithril::bindings
