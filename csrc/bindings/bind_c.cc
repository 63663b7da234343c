// C: programs whose plans are printed, compiled by whoever is asked to, and loaded.
#include "backends/c/kernels.h"
#include "backends/c/load.h"
#include "backends/c/select.h"
#include "bindings/gil.h"
#include "bindings/native_backends.h"
#include "bindings/native_program.h"
#include "emit/c_plan.h"

namespace mithril::bindings {
namespace {

/// Prints a plan, has it compiled and loads it. `build(text, name)` gives the path of the object.
core::Result<plan::Plan> built(const plan::Plan& plan, const py::function& build, int threads) {
  const emit::CPlanOptions options{"mithril", threads};
  MITHRIL_ASSIGN(emit::CPlan printed, emit::print_c_plan(plan, options));
  std::string path;
  {
    const GilAcquire gil;
    path = build(printed.text, options.name).cast<std::string>();
  }
  return c::load(path, options, std::move(printed), plan);
}

SpecializationOptions c_options(const py::function& build, std::shared_ptr<Trace> trace,
                                std::vector<std::string> off,
                                const passes::RematerializeOptions& rematerialize, bool exact_conv,
                                int threads) {
  SpecializationOptions out =
      program_options(std::move(trace), std::move(off), rematerialize, {exact_conv});
  out.canonical_constants = true;
  out.backend = std::make_shared<const c::Backend>(threads);
  out.select.threads = threads;
  out.make_executable =
      [build, threads](
          const plan::Plan& plan) -> core::Result<std::shared_ptr<const runtime::Executable>> {
    MITHRIL_ASSIGN(plan::Plan loaded, built(plan, build, threads));
    return std::shared_ptr<const runtime::Executable>(
        std::make_shared<const runtime::HostExecutable>(std::move(loaded)));
  };
  return out;
}

/// A buffer of a plan as the caller has it, or None where the plan has none.
py::object described(const plan::Plan& plan, plan::BufferSpec::Kind kind, int32_t index,
                     const std::string& name) {
  for (const plan::BufferSpec& buffer : plan.buffers) {
    if (buffer.kind != kind || buffer.index != index) continue;
    py::dict out;
    out["name"] = name;
    out["dtype"] = std::string(core::name(buffer.dtype));
    out["shape"] = py::tuple(py::cast(buffer.shape));
    return out;
  }
  return py::none();
}

py::dict constant(const core::TensorData& data) {
  py::dict out;
  const bool is_bfloat = data.dtype == core::DType::kBFloat16;
  const py::dtype dtype = is_bfloat ? py::dtype("uint16") : numpy_dtype(data.dtype);
  py::array array(dtype, data.shape);
  if (!data.bytes.empty()) std::memcpy(array.mutable_data(), data.bytes.data(), data.bytes.size());
  array.attr("flags").attr("writeable") = false;
  out["dtype"] = std::string(core::name(data.dtype));
  out["shape"] = py::tuple(py::cast(data.shape));
  out["array"] = array;
  return out;
}

class CProgram final : public NativeProgram {
 public:
  CProgram(ir::Graph graph, const py::function& build, std::shared_ptr<Trace> trace,
           std::vector<std::string> off, bool exact_conv,
           std::shared_ptr<runtime::Recorder> recorder, const Donations& overwrites,
           std::optional<int64_t> memory_limit, bool rematerializes, int threads)
      : NativeProgram(std::move(graph),
                      c_options(build, std::move(trace), std::move(off),
                                {memory_limit, rematerializes}, exact_conv, std::max(threads, 1)),
                      overwrites, nullptr, std::move(recorder)) {}

  /// The C source for these sizes, and what callers must know of it.
  py::dict source(const Sizes& sizes, const std::string& name, int threads,
                  bool freestanding) const {
    const plan::Plan plan = preview(sizes, nullptr);
    const emit::CPlan printed =
        emit::print_c_plan(plan, {name, std::max(threads, 1), freestanding}).or_throw();
    py::dict out;
    out["text"] = printed.text;
    out["header"] = printed.header;
    out["arena_bytes"] = printed.arena_bytes;
    out["needs_libm"] = printed.needs_libm;
    out["steps"] = printed.parts.size();
    out["inputs"] = inputs(plan);
    out["outputs"] = outputs(plan, sizes);
    py::list constants;
    for (const auto& data : printed.constants) constants.append(constant(*data));
    out["constants"] = constants;
    py::list overwritten;
    for (const plan::Donation& one : program().options().select.overwrites) {
      overwritten.append(py::make_tuple(one.input, one.output));
    }
    out["overwrites"] = overwritten;
    return out;
  }

 private:
  py::list inputs(const plan::Plan& plan) const {
    const ir::Graph& graph = program().graph();
    py::list out;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      out.append(described(plan, plan::BufferSpec::Kind::kInput, static_cast<int32_t>(i),
                           graph.value(graph.inputs[i]).name));
    }
    return out;
  }

  // What overwrites an input has its shape.
  py::list outputs(const plan::Plan& plan, const Sizes& sizes) const {
    const ir::Graph& graph = program().graph();
    py::list out;
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const auto index = static_cast<int32_t>(i);
      py::object one =
          described(plan, plan::BufferSpec::Kind::kOutput, index, graph.outputs[i].name);
      for (const plan::Donation& overwrite : program().options().select.overwrites) {
        if (overwrite.output != index) continue;
        py::dict made;
        made["name"] = graph.outputs[i].name;
        made["dtype"] = std::string(core::name(graph.type(graph.outputs[i].value).dtype));
        made["shape"] = py::tuple(py::cast(sizes[static_cast<size_t>(overwrite.input)]));
        one = made;
      }
      out.append(one);
    }
    return out;
  }
};

}  // namespace

void bind_c(py::module_& module) {
  module.def(
      "c_has_kernel", [](std::string_view op) { return c::kernel_table().has(op); }, py::arg("op"));
  py::class_<CProgram, ArrayProgram, std::shared_ptr<CProgram>> bound(
      module, "CProgram", "A graph that runs as compiled C.");
  bound.def(py::init<ir::Graph, const py::function&, std::shared_ptr<Trace>,
                     std::vector<std::string>, bool, std::shared_ptr<runtime::Recorder>,
                     const Donations&, std::optional<int64_t>, bool, int>(),
            py::arg("graph"), py::arg("build"), py::arg("trace") = nullptr,
            py::arg("passes_off") = std::vector<std::string>(), py::arg("exact_conv") = false,
            py::arg("recorder") = std::make_shared<runtime::Recorder>(),
            py::arg("overwrites") = Donations(), py::arg("memory_limit") = std::nullopt,
            py::arg("rematerializes") = false, py::arg("threads") = 1);
  def_native_program(bound);
  bound.def("source", &CProgram::source, py::arg("sizes"), py::arg("name") = "mithril",
            py::arg("threads") = 1, py::arg("freestanding") = false);
}

}  // namespace mithril::bindings
