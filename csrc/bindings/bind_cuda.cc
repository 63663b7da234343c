// CUDA: devices, and programs whose plans run on one of them.
#include <algorithm>
#include <map>
#include <mutex>

#include "backends/cpu/kernels.h"
#include "backends/cuda/device.h"
#include "backends/cuda/kernel_families.h"
#include "backends/cuda/tile_text.h"
#include "backends/device/select.h"
#include "bindings/device_program.h"
#include "bindings/gil.h"
#include "bindings/native_backends.h"
#include "ir/registry.h"

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

constexpr int kFirstWithBfloat16 = 80;  // architecture

bool convolves(const ir::Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const ir::Node& node) {
    const std::string_view op = ir::Registry::global().get(node.op).name;
    return op.find("conv") != op.npos ||
           std::any_of(node.regions.begin(), node.regions.end(),
                       [](const auto& region) { return convolves(*region); });
  });
}

cuda::Convolutions convolutions_of(Device& device, bool allows_tf32) {
  if (!device.convolution_library().ok()) return cuda::Convolutions::kOwn;
  if (device.info().architecture < kFirstWithBfloat16) {
    return cuda::Convolutions::kLibraryWithoutBfloat16;
  }
  return allows_tf32 ? cuda::Convolutions::kLibraryTf32 : cuda::Convolutions::kLibrary;
}

/// The libraries that are there; `allows_tf32`: and may round. That of convolutions, which takes
/// memory, is asked for by graphs that have some.
cuda::Makers makers_of(Device& device, const ir::Graph& graph, bool allows_tf32) {
  cuda::Makers out;
  out.multiplies_tiles = device.info().architecture >= cuda::kFirstWithTiles;
  if (device.product_library().ok()) {
    out.products = allows_tf32 ? cuda::Products::kLibraryTf32 : cuda::Products::kLibrary;
  }
  if (convolves(graph)) out.convolutions = convolutions_of(device, allows_tf32);
  return out;
}

const select::KernelTable& kernels(const cuda::Makers& makers) {
  static std::mutex mutex;
  static auto& tables = *new std::map<cuda::Makers, select::KernelTable>();
  const std::lock_guard lock(mutex);
  return tables.try_emplace(makers, cuda::kernel_families(makers), &cpu::kernel_table())
      .first->second;
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
              bool canonical, std::shared_ptr<runtime::Recorder> recorder,
              const Donations& overwrites, std::optional<int64_t> memory_limit, bool rematerializes,
              bool allows_tf32)
      : CudaProgram(std::move(graph), device, makers_of(*device, graph, allows_tf32), build,
                    program_options(std::move(trace), std::move(off),
                                    {memory_limit, rematerializes}, {exact_conv, canonical}),
                    overwrites, std::move(recorder)) {}

 private:
  CudaProgram(ir::Graph&& graph, const std::shared_ptr<Device>& device, const cuda::Makers& makers,
              const py::function& build, SpecializationOptions options, const Donations& overwrites,
              std::shared_ptr<runtime::Recorder> recorder)
      : DeviceProgram(std::move(graph), device, cuda::kernel_families(makers),
                      std::make_shared<const device::Backend>(
                          "cuda", kernels(makers), runtime::ThreadPool::shared().thread_count(),
                          device->print_options().parameter_bytes),
                      by_python(device, build), std::move(options), overwrites,
                      std::move(recorder)) {}
};

/// Tells whether a library is there, and its name, or why not.
template <class Library>
std::pair<bool, std::string> told(const core::Result<Library>& library) {
  return library.ok() ? std::pair(true, library->name())
                      : std::pair(false, library.error().message);
}

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

ir::Target cuda_target(core::DType default_float) {
  static const ir::OpNames composites = select::composites_of(kernels({}));
  return select::native_target("cuda", default_float, composites);
}

void bind_cuda(py::module_& module) {
  module.def("cuda_devices", [] {
    py::list out;
    for (const auto& info : cuda::list_devices().or_throw()) out.append(described(info));
    return out;
  });
  module.def("cuda_has_kernel", [](std::string_view op) {
    return select::KernelTable(cuda::kernel_families({})).has(op);
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
      .def(py::init([](int index, std::vector<std::string> nvrtc, std::vector<std::string> cublaslt,
                       std::vector<std::string> cudnn) {
             return Device::open(index, {std::move(nvrtc), std::move(cublaslt), std::move(cudnn)})
                 .or_throw();
           }),
           py::arg("index"), py::arg("nvrtc"), py::arg("cublaslt"), py::arg("cudnn"))
      .def("product_library",
           [](Device& device) {
             device.check_process().or_throw();
             return told(device.product_library());
           })
      .def("convolution_library",
           [](Device& device) {
             device.check_process().or_throw();
             return told(device.convolution_library());
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
            py::arg("canonical") = false,
            py::arg("recorder") = std::make_shared<runtime::Recorder>(),
            py::arg("overwrites") = Donations(), py::arg("memory_limit") = std::nullopt,
            py::arg("rematerializes") = false, py::arg("allows_tf32") = false);
  def_device_program(bound);
}

}  // namespace mithril::bindings
