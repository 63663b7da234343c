// CUDA: devices, and programs whose plans run on one of them.
#include <map>

#include "backends/cpu/kernels.h"
#include "backends/cuda/device.h"
#include "backends/cuda/kernel_families.h"
#include "backends/device/select.h"
#include "bindings/device_kernels.h"
#include "bindings/device_program.h"
#include "bindings/gil.h"

namespace mithril::bindings {
namespace {

using cuda::Compiler;
using cuda::Device;

py::dict described(const cuda::DeviceInfo& info) {
  py::dict out;
  out["id"] = fmt::format("cuda:{}", info.index);
  out["name"] = info.name;
  out["memory"] = info.memory;
  out["architecture"] = fmt::format("sm_{}", info.architecture);
  out["multiprocessors"] = info.multiprocessors;
  out["driver"] = fmt::format("CUDA {}.{}", info.driver / 1000, info.driver % 1000 / 10);
  out["has_pools"] = info.has_pools;
  return out;
}

/// Cublaslt where it is there; `allows_tf32`: and may round.
cuda::Products products_of(Device& device, bool allows_tf32) {
  if (!device.product_library().ok()) return cuda::Products::kOwn;
  return allows_tf32 ? cuda::Products::kLibraryTf32 : cuda::Products::kLibrary;
}

const select::KernelTable& kernels(cuda::Products products) {
  static const auto& tables = *new std::map<cuda::Products, select::KernelTable>([] {
    using enum cuda::Products;
    std::map<cuda::Products, select::KernelTable> out;
    for (const cuda::Products each : {kOwn, kLibrary, kLibraryTf32}) {
      out.try_emplace(each, cuda::kernel_families(each), &cpu::kernel_table());
    }
    return out;
  }());
  return tables.at(products);
}

/// `build(text)`: the code of a text, which the backend keeps on disk.
device::Executable::Build by_python(const std::shared_ptr<Device>& device,
                                    const py::function& build) {
  return [device,
          build](const std::string& text) -> core::Result<std::shared_ptr<const device::Program>> {
    if (auto known = device->loaded(text)) return known;
    std::string image;
    {
      const GilAcquire gil;
      image = build(text).cast<std::string>();
    }
    return device->load(text, image);
  };
}

class CudaProgram final : public DeviceProgram {
 public:
  CudaProgram(ir::Graph graph, const std::shared_ptr<Device>& device, const py::function& build,
              std::shared_ptr<Trace> trace, std::vector<std::string> off, bool exact_conv,
              bool exact_linalg, std::shared_ptr<runtime::Recorder> recorder,
              const Donations& overwrites, std::optional<int64_t> memory_limit, bool rematerializes,
              bool allows_tf32)
      : CudaProgram(std::move(graph), device, products_of(*device, allows_tf32), build,
                    program_options(std::move(trace), std::move(off),
                                    {memory_limit, rematerializes}, {exact_conv, exact_linalg}),
                    overwrites, std::move(recorder)) {}

 private:
  CudaProgram(ir::Graph graph, const std::shared_ptr<Device>& device, cuda::Products products,
              const py::function& build, SpecializationOptions options, const Donations& overwrites,
              std::shared_ptr<runtime::Recorder> recorder)
      : DeviceProgram(std::move(graph), device, cuda::kernel_families(products),
                      std::make_shared<const device::Backend>(
                          "cuda", kernels(products), runtime::ThreadPool::shared().thread_count()),
                      by_python(device, build), std::move(options), overwrites,
                      std::move(recorder)) {}
};

py::bytes compiled(const Compiler& compiler, const std::string& text, int architecture,
                   bool to_ptx) {
  std::string code;
  {
    const GilRelease release;
    code =
        (to_ptx ? compiler.compile_ptx(text, architecture) : compiler.compile(text, architecture))
            .or_throw();
  }
  return py::bytes(code);
}

}  // namespace

const select::KernelTable& cuda_kernels() { return kernels(cuda::Products::kOwn); }

void bind_cuda(py::module_& module) {
  module.def("cuda_devices", [] {
    py::list out;
    for (const auto& info : cuda::list_devices().or_throw()) out.append(described(info));
    return out;
  });
  module.def("cuda_has_kernel", [](std::string_view op) {
    return select::KernelTable(cuda::kernel_families(cuda::Products::kOwn)).has(op);
  });
  module.def("cuda_functions", &cuda::injectable_symbols);  // for tests
  py::class_<Compiler>(module, "CudaCompiler", "NVRTC, without a device.")
      .def(py::init([](const std::vector<std::string>& libraries) {
             return Compiler::open(libraries, 0).or_throw();
           }),
           py::arg("libraries"))
      .def_property_readonly("version", &Compiler::version)
      .def_property_readonly("path", &Compiler::path)
      .def("compile", &compiled, py::arg("text"), py::arg("architecture"),
           py::arg("to_ptx") = false);
  py::class_<Device, device::Driver, std::shared_ptr<Device>>(module, "CudaDevice",
                                                              "A device of CUDA.")
      .def(py::init(
               [](int index, std::vector<std::string> nvrtc, std::vector<std::string> cublaslt) {
                 return Device::open(index, {std::move(nvrtc), std::move(cublaslt)}).or_throw();
               }),
           py::arg("index"), py::arg("nvrtc"), py::arg("cublaslt"))
      .def("product_library",
           [](Device& device) {
             device.check_process().or_throw();
             const auto& library = device.product_library();
             return library.ok() ? std::pair(true, library->name())
                                 : std::pair(false, library.error().message);
           })
      .def_property_readonly("info", [](const Device& device) { return described(device.info()); })
      .def_property_readonly("compiler_identity", &Device::compiler_identity)
      .def("compile", [](const Device& device, const std::string& text) {
        std::string code;
        {
          const GilRelease release;
          code = device.compile(text).or_throw();
        }
        return py::bytes(code);
      });
  py::class_<CudaProgram, ArrayProgram, std::shared_ptr<CudaProgram>> bound(
      module, "CudaProgram", "A graph that runs on a device of CUDA.");
  bound.def(py::init<ir::Graph, std::shared_ptr<Device>, py::function, std::shared_ptr<Trace>,
                     std::vector<std::string>, bool, bool, std::shared_ptr<runtime::Recorder>,
                     const Donations&, std::optional<int64_t>, bool, bool>(),
            py::arg("graph"), py::arg("device"), py::arg("build"), py::arg("trace") = nullptr,
            py::arg("passes_off") = std::vector<std::string>(), py::arg("exact_conv") = false,
            py::arg("exact_linalg") = false,
            py::arg("recorder") = std::make_shared<runtime::Recorder>(),
            py::arg("overwrites") = Donations(), py::arg("memory_limit") = std::nullopt,
            py::arg("rematerializes") = false, py::arg("allows_tf32") = false);
  def_device_program(bound);
}

}  // namespace mithril::bindings
