// OpenCL: devices, and programs whose plans run on one of them.
#include <algorithm>
#include <climits>

#include "backends/cpu/kernels.h"
#include "backends/cpu/select.h"
#include "backends/device/injection.h"
#include "backends/device/select.h"
#include "backends/device/winograd.h"
#include "backends/opencl/device.h"
#include "backends/opencl/kernel_families.h"
#include "bindings/device_program.h"
#include "bindings/native_backends.h"

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
  out["parameter_bytes"] = info.parameter_bytes;
  out["has_float64"] = info.has_doubles;
  return out;
}

select::KernelTable table(bool is_cpu, const select::Condition& machine) {
  return select::KernelTable(opencl::kernel_families(is_cpu), &cpu::kernel_table(), machine);
}

const select::KernelTable& kernels(bool is_cpu, bool has_doubles = true) {
  static const select::KernelTable of_cpus = table(true, {}), of_others = table(false, {}),
                                   of_narrow_cpus = table(true, device::kWithoutDoubles),
                                   of_narrow_others = table(false, device::kWithoutDoubles);
  if (has_doubles) return is_cpu ? of_cpus : of_others;
  return is_cpu ? of_narrow_cpus : of_narrow_others;
}

std::shared_ptr<const device::Backend> backend_of(const Device& device, int threads) {
  const opencl::DeviceInfo& info = device.info();
  return std::make_shared<const device::Backend>(
      "opencl", kernels(info.is_cpu, info.has_doubles), threads,
      device.print_options().parameter_bytes,
      info.has_doubles ? nullptr : std::make_shared<const cpu::Backend>());
}

class OpenClProgram final : public DeviceProgram {
 public:
  OpenClProgram(ir::Graph graph, const std::shared_ptr<Device>& device,
                std::shared_ptr<runtime::ThreadPool> pool, std::shared_ptr<Trace> trace,
                std::vector<std::string> off, bool exact_conv, bool canonical,
                std::shared_ptr<runtime::Recorder> recorder, const Donations& overwrites,
                std::optional<int64_t> memory_limit, bool rematerializes)
      : DeviceProgram(
            std::move(graph), device, opencl::kernel_families(device->info().is_cpu),
            backend_of(*device, (pool ? *pool : runtime::ThreadPool::shared()).thread_count()),
            [device](const std::string& text) { return device->build(text); },
            program_options(std::move(trace), std::move(off), {memory_limit, rematerializes},
                            {exact_conv, canonical}),
            overwrites, std::move(recorder), pool) {}
};

void def_functions_of_tests(py::module_& module) {
  // Failures of drivers' functions, and what is alive.
  module.def("device_inject_failure", &device::inject_failure, py::arg("symbol"), py::arg("nth"),
             py::arg("status"), py::arg("lasts") = false);
  module.def("device_injected_failures", &device::injected_failures, py::arg("symbol"));
  // Tiles of convolutions, for measurements, too.
  module.def("device_force_winograd_tile", [](std::optional<int64_t> tile) {
    if (tile && *tile != 0 && *tile != 2 && *tile != 4) {
      throw py::value_error("a tile is 0, 2 or 4 wide");
    }
    device::force_winograd_tile(tile);
  });
  module.def("opencl_functions", &opencl::injectable_symbols);
  module.def("device_live_objects", &device::live_objects);
}

}  // namespace

ir::Target opencl_target(core::DType default_float) {
  static const ir::OpNames composites = select::composites_of(kernels(true));
  return select::native_target("opencl", default_float, composites);
}

void bind_opencl(py::module_& module) {
  module.def("opencl_devices", [] {
    py::list out;
    for (const auto& info : opencl::list_devices().or_throw()) out.append(described(info));
    return out;
  });
  module.def("opencl_has_kernel", [](std::string_view op) {
    return select::KernelTable(opencl::kernel_families(true)).has(op);
  });
  def_functions_of_tests(module);
  py::class_<Device, device::Driver, std::shared_ptr<Device>>(module, "OpenClDevice",
                                                              "A device of OpenCL.")
      .def(
          py::init([](const std::string& wanted, bool as_gpu, int64_t threads, bool without_float64,
                      int most_threads, int64_t local_memory, int most_threads_of_a_kernel) {
            const opencl::StandIn stand_in = {as_gpu, without_float64, most_threads, local_memory,
                                              most_threads_of_a_kernel};
            return Device::open(wanted, stand_in, threads).or_throw();
          }),
          py::arg("wanted") = "", py::arg("as_gpu") = false, py::arg("threads") = 0,
          py::arg("without_float64") = false, py::arg("most_threads") = 0,
          py::arg("local_memory") = 0, py::arg("most_threads_of_a_kernel") = 0)
      .def_property_readonly("info", [](const Device& device) { return described(device.info()); })
      .def("limit_parameters", &Device::limit_parameters, py::arg("bytes"))  // for tests
      .def_property(
          "tile",
          [](const Device& device) {
            const plan::RegisterTile tile = device.tile();
            return std::tuple(tile.rows, tile.vectors,
                              tile.threads > 0 ? int64_t{tile.threads} : tile.vector_bytes);
          },
          [](Device& device, const std::tuple<int64_t, int64_t, int64_t>& tile) {
            const auto& [rows, vectors, last] = tile;
            plan::RegisterTile of = {rows, vectors, last};
            if (device.does_tiles_in_groups()) {
              of = {.rows = rows,
                    .vectors = vectors,
                    .threads = static_cast<int>(std::clamp<int64_t>(last, 0, INT_MAX))};
            }
            device.set_tile(of).or_throw();
          })
      .def_property_readonly("does_tiles_in_groups", &Device::does_tiles_in_groups);
  py::class_<OpenClProgram, ArrayProgram, std::shared_ptr<OpenClProgram>> bound(
      module, "OpenClProgram", "A graph that runs on a device of OpenCL.");
  bound.def(py::init<ir::Graph, std::shared_ptr<Device>, std::shared_ptr<runtime::ThreadPool>,
                     std::shared_ptr<Trace>, std::vector<std::string>, bool, bool,
                     std::shared_ptr<runtime::Recorder>, const Donations&, std::optional<int64_t>,
                     bool>(),
            py::arg("graph"), py::arg("device"), py::arg("pool") = nullptr,
            py::arg("trace") = nullptr, py::arg("passes_off") = std::vector<std::string>(),
            py::arg("exact_conv") = false, py::arg("canonical") = false,
            py::arg("recorder") = std::make_shared<runtime::Recorder>(),
            py::arg("overwrites") = Donations(), py::arg("memory_limit") = std::nullopt,
            py::arg("rematerializes") = false);
  def_device_program(bound);
}

}  // namespace mithril::bindings
