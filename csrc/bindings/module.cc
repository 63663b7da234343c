// The extension module mithril._core.
#include "bindings/native_backends.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The engine of mithril; its public face is the package around it.";
  mithril::bindings::bind_errors(module);
  mithril::bindings::bind_public(module);
  mithril::bindings::bind_trace(module);
  mithril::bindings::bind_literals(module);
  mithril::bindings::bind_graph(module);
  mithril::bindings::bind_constraint(module);
  mithril::bindings::bind_primitive(module);
  mithril::bindings::bind_model(module);
  mithril::bindings::bind_files(module);
  mithril::bindings::bind_runtime(module);
  mithril::bindings::bind_inspection(module);
  mithril::bindings::bind_device_arrays(module);
  for (const auto& backend : mithril::bindings::native_backends()) backend.bind(module);
  mithril::bindings::bind_segments(module);
  mithril::bindings::bind_ggml(module);
}
