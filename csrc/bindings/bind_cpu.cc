// The engine's CPU: a program that takes and returns NumPy arrays.
#include "backends/cpu/kernels.h"
#include "backends/cpu/machine/cpuid.h"
#include "bindings/native_backends.h"
#include "bindings/native_program.h"
#include "bindings/output_array.h"
#include "passes/pack_weights.h"

namespace mithril::bindings {
namespace {

/// For each literal the packed one, or None (passes/pack_weights.h).
py::list pack_literals(const ir::Graph& graph, const std::vector<TensorLiteral>& literals,
                       const std::string& format) {
  std::vector<std::shared_ptr<const core::TensorData>> given;
  for (const TensorLiteral& literal : literals) given.push_back(literal.data);
  py::list out;
  for (const auto& made : passes::pack_literals(graph, given, weight_format(format)).or_throw()) {
    out.append(made == nullptr ? py::object(py::none()) : py::cast(TensorLiteral{made}));
  }
  return out;
}

SpecializationOptions cpu_options(const runtime::ThreadPool* pool, std::shared_ptr<Trace> trace,
                                  std::vector<std::string> off, Exact exact,
                                  const passes::RematerializeOptions& rematerialize) {
  SpecializationOptions out =
      program_options(std::move(trace), std::move(off), rematerialize, exact);
  out.select.threads = pool == nullptr ? 0 : pool->thread_count();
  return out;
}

class CpuProgram final : public NativeProgram {
 public:
  CpuProgram(ir::Graph graph, std::shared_ptr<runtime::ThreadPool> pool,
             std::shared_ptr<Trace> trace, std::vector<std::string> off, bool exact_conv,
             bool canonical, std::shared_ptr<runtime::Recorder> recorder,
             const std::string& weights, const Donations& overwrites,
             std::optional<int64_t> memory_limit, bool rematerializes)
      : NativeProgram(std::move(graph),
                      cpu_options(pool.get(), std::move(trace), std::move(off),
                                  {exact_conv, canonical}, {memory_limit, rematerializes}),
                      overwrites, pool, std::move(recorder), weights) {}
};

}  // namespace

void bind_cpu(py::module_& module) {
  bind_output_arrays();
  bind_native_calls(module);
  module.def(
      "cpu_isa", [] { return std::string(cpu::name(cpu::default_isa())); },
      "The instruction set whose kernels run: generic, avx2 or avx512.");
  module.def(
      "cpu_has_kernel", [](std::string_view op) { return cpu::kernel_table().has(op); },
      py::arg("op"));
  module.def("pack_literals", &pack_literals, py::arg("graph"), py::arg("literals"),
             py::arg("format"));
  py::class_<runtime::ThreadPool, std::shared_ptr<runtime::ThreadPool>>(
      module, "ThreadPool", "Threads of a backend's own.")
      .def(py::init<int>(), py::arg("threads"))
      .def_property_readonly("thread_count", &runtime::ThreadPool::thread_count);
  py::class_<CpuProgram, ArrayProgram, std::shared_ptr<CpuProgram>> bound(
      module, "CpuProgram", "A graph that the CPU runs.");
  bound.def(py::init<ir::Graph, std::shared_ptr<runtime::ThreadPool>, std::shared_ptr<Trace>,
                     std::vector<std::string>, bool, bool, std::shared_ptr<runtime::Recorder>,
                     std::string, const Donations&, std::optional<int64_t>, bool>(),
            py::arg("graph"), py::arg("pool") = nullptr, py::arg("trace") = nullptr,
            py::arg("passes_off") = std::vector<std::string>(), py::arg("exact_conv") = false,
            py::arg("canonical") = false,
            py::arg("recorder") = std::make_shared<runtime::Recorder>(), py::arg("weights") = "",
            py::arg("overwrites") = Donations(), py::arg("memory_limit") = std::nullopt,
            py::arg("rematerializes") = false);
  def_native_program(bound);
}

}  // namespace mithril::bindings
