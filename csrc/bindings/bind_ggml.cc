// ggml: what its graphs call of ours without Python.
#include "backends/ggml/row_guard.h"
#include "bindings/python.h"

namespace mithril::bindings {
namespace {

using ggml::RowGuard;

template <class Pointer>
Pointer at(uintptr_t address) {
  return reinterpret_cast<Pointer>(address);
}

// ggml_custom_op_t: of the node, the thread's number, how many there are, and the node's data.
void prepare(void*, int thread, int threads, void* guard) {
  static_cast<RowGuard*>(guard)->prepare(thread, threads);
}

void finish(void*, int thread, int threads, void* guard) {
  static_cast<RowGuard*>(guard)->finish(thread, threads);
}

std::unique_ptr<RowGuard> made(uintptr_t rows, uintptr_t scaled, uintptr_t results,
                               uintptr_t blocks, uintptr_t factor, uintptr_t to_float,
                               int64_t count, int64_t width, int64_t weights, int64_t row_bytes) {
  return std::make_unique<RowGuard>(ggml::Product{
      at<const float* const*>(rows), at<float* const*>(scaled), at<float* const*>(results),
      at<const std::byte* const*>(blocks), at<const double*>(factor), count, width, weights,
      row_bytes, at<void (*)(const void*, float*, int64_t)>(to_float)});
}

}  // namespace

void bind_ggml(py::module_& module) {
  py::class_<RowGuard>(module, "GGMLRowGuard",
                       "Stands around a product of ggml; arguments ending in _at are addresses.")
      .def(py::init(&made), py::kw_only(), py::arg("rows_at"), py::arg("scaled_at"),
           py::arg("results_at"), py::arg("blocks_at"), py::arg("factor_at"),
           py::arg("to_float_at"), py::arg("count"), py::arg("width"), py::arg("weights"),
           py::arg("row_bytes"))
      .def_property_readonly(
          "address", [](const RowGuard& guard) { return reinterpret_cast<uintptr_t>(&guard); })
      .def_property_readonly_static(
          "prepare_at", [](const py::object&) { return reinterpret_cast<uintptr_t>(&prepare); })
      .def_property_readonly_static(
          "finish_at", [](const py::object&) { return reinterpret_cast<uintptr_t>(&finish); });
}

}  // namespace mithril::bindings
