// OpenCL: devices, and programs whose plans run on one of them.
#include "backends/cpu/kernels.h"
#include "backends/opencl/device.h"
#include "backends/opencl/executable.h"
#include "backends/opencl/select.h"
#include "bindings/gil.h"
#include "bindings/inspection.h"
#include "bindings/native_program.h"
#include "bindings/opencl_kernels.h"

namespace mithril::bindings {
namespace {

using opencl::Device;

py::dict described(const opencl::DeviceInfo& info) {
  py::dict out;
  out["platform"] = info.platform_name;
  out["name"] = info.name;
  out["id"] = info.id;
  out["vendor"] = info.vendor;
  out["version"] = info.version;
  out["driver"] = info.driver;
  out["kind"] = info.id.substr(0, info.id.find(':'));
  out["compute_units"] = info.compute_units;
  out["memory"] = info.memory;
  out["largest_allocation"] = info.largest_allocation;
  return out;
}

ProgramOptions opencl_options(const std::shared_ptr<Device>& device, std::shared_ptr<Trace> trace,
                              std::vector<std::string> off, bool exact_conv, bool exact_linalg,
                              const passes::RecomputeOptions& recompute) {
  ProgramOptions out = program_options(std::move(trace), std::move(off), recompute);
  const int threads = runtime::ThreadPool::shared().thread_count();
  out.backend = std::make_shared<const opencl::Backend>(opencl_kernels(), threads);
  out.select.exact_conv = exact_conv;
  out.select.exact_linalg = exact_linalg;
  out.make_executable =
      [device](plan::Plan plan) -> core::Result<std::shared_ptr<const runtime::Executable>> {
    MITHRIL_ASSIGN(auto made, opencl::Executable::make(device, std::move(plan)));
    return std::shared_ptr<const runtime::Executable>(std::move(made));
  };
  return out;
}

bool is_of_device(std::string_view kernel) {
  if (kernel == "loop" || kernel == "view" || kernel == "constant") return true;
  for (const select::KernelFamily family : opencl::kernel_families()) {
    for (const select::KernelDef& row : family()) {
      if (kernel == row.name) return true;
    }
  }
  return false;
}

// Says of each step that falls back to the engine that it does.
void note_fallbacks(std::vector<select::Story>& stories) {
  for (select::Story& story : stories) {
    if (story.inner.empty() && !is_of_device(story.kernel)) {
      story.notes.emplace_back("It runs on the host: OpenCL has no kernel of its own for it.");
    }
    for (auto& inner : story.inner) note_fallbacks(inner);
  }
}

class OpenClProgram final : public NativeProgram {
 public:
  OpenClProgram(ir::Graph graph, std::shared_ptr<Device> device, std::shared_ptr<Trace> trace,
                std::vector<std::string> off, bool exact_conv, bool exact_linalg,
                std::shared_ptr<runtime::Recorder> recorder, const Overwrites& overwrites,
                std::optional<int64_t> memory_limit, bool shrinks)
      : NativeProgram(std::move(graph),
                      opencl_options(device, std::move(trace), std::move(off), exact_conv,
                                     exact_linalg, {memory_limit, shrinks}),
                      overwrites, nullptr, std::move(recorder)),
        device_(std::move(device)) {}

  py::list story(const Sizes& sizes) const {
    std::vector<select::Story> out;
    preview(sizes, &out);
    note_fallbacks(out);
    return story_of(out);
  }

  /// The source for these sizes, and how many steps run on the host.
  py::dict source(const Sizes& sizes) const {
    const plan::Plan plan = preview(sizes, nullptr);
    const opencl::DeviceInfo& info = device_->info();
    const auto printed = opencl::print_plan(plan, {info.is_cpu, info.compute_units}).or_throw();
    py::dict out;
    out["text"] = printed.text;
    out["steps"] = plan.steps.size();
    out["host_steps"] = printed.host_steps;
    return out;
  }

 private:
  std::shared_ptr<Device> device_;
};

}  // namespace

const select::KernelTable& opencl_kernels() {
  static const select::KernelTable table(opencl::kernel_families(), &cpu::kernel_table());
  return table;
}

void bind_opencl(py::module_& module) {
  module.def("opencl_devices", [] {
    py::list out;
    for (const auto& info : opencl::list_devices().or_throw()) out.append(described(info));
    return out;
  });
  module.def("opencl_has_kernel", [](std::string_view op) {
    return select::KernelTable(opencl::kernel_families()).has(op);
  });
  // For tests: failures of the loader's functions, and what is alive.
  module.def("opencl_inject_failure", &opencl::inject_failure, py::arg("symbol"), py::arg("nth"),
             py::arg("status"));
  module.def("opencl_functions", &opencl::injectable_symbols);
  module.def("opencl_live_objects", &opencl::live_objects);
  py::class_<Device, std::shared_ptr<Device>>(module, "OpenClDevice", "A device of OpenCL.")
      .def(py::init([](const std::string& wanted, bool as_gpu) {
             return Device::open(wanted, as_gpu).or_throw();
           }),
           py::arg("wanted") = "", py::arg("as_gpu") = false)
      .def_property_readonly("info", [](const Device& device) { return described(device.info()); })
      .def_property_readonly("has_exact_bits", [](Device& device) {
        const GilRelease release;
        return device.has_exact_bits().or_throw();
      });
  py::class_<OpenClProgram, ArrayProgram, std::shared_ptr<OpenClProgram>> bound(
      module, "OpenClProgram", "A graph that runs on a device of OpenCL.");
  bound.def(py::init<ir::Graph, std::shared_ptr<Device>, std::shared_ptr<Trace>,
                     std::vector<std::string>, bool, bool, std::shared_ptr<runtime::Recorder>,
                     const Overwrites&, std::optional<int64_t>, bool>(),
            py::arg("graph"), py::arg("device"), py::arg("trace") = nullptr,
            py::arg("passes_off") = std::vector<std::string>(), py::arg("exact_conv") = false,
            py::arg("exact_linalg") = false,
            py::arg("recorder") = std::make_shared<runtime::Recorder>(),
            py::arg("overwrites") = Overwrites(), py::arg("memory_limit") = std::nullopt,
            py::arg("shrinks") = false);
  def_native_program(bound);
  bound.def("source", &OpenClProgram::source, py::arg("sizes"));
}

}  // namespace mithril::bindings
