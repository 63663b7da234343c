// The backends that run the engine's plans: a line each in native_backends.cc.
#pragma once
#include <span>

#include "bindings/python.h"
#include "ir/target.h"

namespace mithril::bindings {

struct NativeBackend {
  std::string_view name;  // as its Python class says in `engine_target`
  ir::Target (*target)(core::DType default_float);
  void (*bind)(py::module_&);
};

std::span<const NativeBackend> native_backends();

ir::Target opencl_target(core::DType default_float);
ir::Target cuda_target(core::DType default_float);

void bind_cpu(py::module_& module);
void bind_c(py::module_& module);
void bind_opencl(py::module_& module);
void bind_cuda(py::module_& module);

}  // namespace mithril::bindings
