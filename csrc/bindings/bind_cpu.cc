// The engine's CPU: a program that takes and returns NumPy arrays.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>

#include <pybind11/numpy.h>

#include "backends/cpu/cpuid.h"
#include "backends/cpu/kernels.h"
#include "bindings/inspection.h"
#include "bindings/python.h"
#include "core/checked.h"
#include "passes/bind_sizes.h"
#include "program.h"
#include "runtime/buffer.h"
#include "runtime/recording.h"
#include "runtime/thread_pool.h"

namespace mithril::bindings {
namespace {

using core::HostValue;
using core::Status;
using Sizes = std::vector<std::vector<int64_t>>;
/// (output, input) by name.
using Overwrites = std::vector<std::pair<std::string, std::string>>;

/// New states are outputs after the outputs: the executable knows no other kind.
ir::Graph with_states_as_outputs(ir::Graph graph) {
  for (const ir::StateBinding& state : graph.states) {
    graph.outputs.push_back({"$state." + graph.value(state.input).name, state.output});
  }
  graph.states.clear();
  return graph;
}

py::dtype numpy_dtype(core::DType dtype) {
  return py::reinterpret_borrow<py::dtype>(from_dtype(dtype).attr("numpy")());
}

/// Polls Python's signals while the GIL is released.
struct Interrupt {
  std::atomic<bool> cancel{false};
  bool raised = false;
  static void poll(void* context) {
    auto& self = *static_cast<Interrupt*>(context);
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0) return;
    self.raised = true;  // the exception stays set in this thread
    self.cancel = true;
  }
};

/// Contiguous, aligned, and of the machine's byte order with this very dtype object.
bool is_ready(PyObject* object, const py::object& dtype) {
  const py::detail::npy_api& api = py::detail::npy_api::get();
  if (reinterpret_cast<PyObject*>(Py_TYPE(object)) !=
      reinterpret_cast<PyObject*>(api.PyArray_Type_)) {
    return false;
  }
  const auto* array = py::detail::array_proxy(object);
  constexpr int kWanted = int{py::array::c_style} | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_};
  return array->descr == dtype.ptr() && (array->flags & kWanted) == kWanted;
}

ProgramOptions program_options(std::shared_ptr<Trace> trace, std::vector<std::string> off,
                               bool exact_conv) {
  ProgramOptions out;
  if (trace) out.trace = std::move(trace);
  out.passes = passes::PipelineOptions::from_env(std::move(off));
  out.select.fuse = !out.passes.is_off("fuse");
  out.select.exact_conv = exact_conv;
  return out;
}

std::vector<cpu::Overwrite> overwrites_of(const ir::Graph& graph, const Overwrites& names) {
  std::vector<cpu::Overwrite> out;
  for (const auto& [output, input] : names) {
    const auto writes = std::find_if(graph.outputs.begin(), graph.outputs.end(),
                                     [&](const ir::Output& one) { return one.name == output; });
    const auto at = std::find(graph.inputs.begin(), graph.inputs.end(), graph.find_input(input));
    MITHRIL_CHECK(writes != graph.outputs.end() && at != graph.inputs.end(),
                  "no output {} or no input {}", output, input);
    out.push_back({static_cast<int32_t>(writes - graph.outputs.begin()),
                   static_cast<int32_t>(at - graph.inputs.begin())});
  }
  return out;
}

Program made(ir::Graph graph, ProgramOptions options, const Overwrites& overwrites) {
  options.select.overwrites = overwrites_of(graph, overwrites);
  return Program(std::move(graph), std::move(options));
}

class CpuProgram {
 public:
  CpuProgram(ir::Graph graph, std::shared_ptr<runtime::ThreadPool> pool,
             std::shared_ptr<Trace> trace, std::vector<std::string> off, bool exact_conv,
             std::shared_ptr<runtime::Recorder> recorder, const Overwrites& overwrites)
      : program_(made(with_states_as_outputs(std::move(graph)),
                      program_options(std::move(trace), std::move(off), exact_conv), overwrites)),
        pool_(std::move(pool)),
        recorder_(std::move(recorder)) {
    const ir::Graph& made = program_.graph();
    for (const ir::ValueId input : made.inputs) {
      input_names_.push_back(interned(made.value(input).name));
      input_dtypes_.push_back(dtype_of(made.type(input)));
      is_param_.push_back(made.value(input).role == ir::Role::kParam);
      has_state_ = has_state_ || made.value(input).role == ir::Role::kState;
    }
    for (const ir::Output& output : made.outputs) {
      output_names_.push_back(interned(output.name));
      output_dtypes_.push_back(dtype_of(made.type(output.value)));
    }
    overwritten_.assign(made.outputs.size(), -1);
    for (const cpu::Overwrite& one : program_.options().select.overwrites) {
      overwritten_[static_cast<size_t>(one.output)] = one.input;
    }
  }

  /// Ready arrays in the order of the graph's inputs in, fresh arrays out but for those that are
  /// overwritten, which come out themselves; None, when an array is not ready.
  py::object try_run(const py::list& inputs) {
    MITHRIL_CHECK(inputs.size() == input_names_.size(), "wrong number of inputs");
    Call call;
    for (size_t i = 0; i < inputs.size(); ++i) {
      PyObject* input = PyList_GET_ITEM(inputs.ptr(), static_cast<Py_ssize_t>(i));
      const bool is_tensor = !input_dtypes_[i].is_none();
      if (is_tensor && !is_ready(input, input_dtypes_[i])) return py::none();
      call.add(is_tensor ? input : nullptr);
    }
    return execute(call);
  }

  /// As try_run, for callers that made the arrays ready.
  py::object run(const py::list& inputs) {
    py::object outputs = try_run(inputs);
    MITHRIL_CHECK(!outputs.is_none(), "an input is not ready");
    return outputs;
  }

  /// {output: array} at once, if every input is ready and no key is left over; else None.
  py::object evaluate(py::handle params, py::handle data) {
    if (has_state_ || !PyDict_CheckExact(params.ptr()) || !PyDict_CheckExact(data.ptr())) {
      return py::none();
    }
    const Py_ssize_t given = PyDict_GET_SIZE(params.ptr()) + PyDict_GET_SIZE(data.ptr());
    if (given != static_cast<Py_ssize_t>(input_names_.size())) return py::none();
    Call call;
    for (size_t i = 0; i < input_names_.size(); ++i) {
      PyObject* source = is_param_[i] ? params.ptr() : data.ptr();
      PyObject* value = PyDict_GetItemWithError(source, input_names_[i].ptr());
      if (value == nullptr) {
        if (PyErr_Occurred()) throw py::error_already_set();
        return py::none();
      }
      if (input_dtypes_[i].is_none() || !is_ready(value, input_dtypes_[i])) return py::none();
      call.add(value);
    }
    const py::list outputs = execute(call);
    py::dict named;
    for (size_t i = 0; i < output_names_.size(); ++i) named[output_names_[i]] = outputs[i];
    return named;
  }

  /// What becomes of the nodes for these sizes (bindings/inspection.h).
  py::list story(const Sizes& sizes) const {
    std::vector<select::Story> out;
    preview(sizes, &out);
    return story_of(out);
  }

  /// What a run for these sizes takes; nothing is allocated for it.
  py::dict memory(const Sizes& sizes, int32_t step) const {
    return memory_of(preview(sizes, nullptr), step);
  }

  /// The open sizes of the inputs by name, in order of appearance: what shapes of which some sizes
  /// are None make them, or None. No entry for inputs of unknown shape.
  py::dict symbols(const std::vector<std::vector<std::optional<int64_t>>>& shapes) const {
    const ir::Graph& graph = program_.graph();
    py::dict out;
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const ir::Shape& shape = graph.type(graph.inputs[i]).shape;
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        for (const infer::Dim symbol : graph.dims.symbols_of(shape[axis])) {
          const py::str name(graph.dims.name_of(symbol));
          if (!out.contains(name)) out[name] = py::none();
        }
        const bool given = i < shapes.size() && axis < shapes[i].size() && shapes[i][axis];
        const auto found = given ? graph.dims.solve(shape[axis], *shapes[i][axis]) : std::nullopt;
        if (found && found->exact) out[py::str(graph.dims.name_of(found->symbol))] = found->value;
      }
    }
    return out;
  }

  /// Shapes of the inputs for values of their open sizes; None for one that stays open.
  py::list sizes(const std::map<std::string, int64_t>& symbols) const {
    const ir::Graph& graph = program_.graph();
    const auto value_of = [&](uint32_t index) -> std::optional<int64_t> {
      const auto at = symbols.find(graph.dims.name_of(graph.dims.symbol_at(index)));
      return at == symbols.end() ? std::nullopt : std::optional(at->second);
    };
    py::list out;
    for (const ir::ValueId input : graph.inputs) {
      py::list shape;
      for (const infer::Dim dim : graph.type(input).shape) {
        shape.append(py::cast(graph.dims.evaluate(dim, value_of)));
      }
      out.append(shape);
    }
    return out;
  }

 private:
  /// The arrays of a call: kept alive by their own references while the GIL is released.
  struct Call {
    Sizes sizes;
    std::vector<const void*> pointers;
    std::vector<py::object> held;  // by input; null where there is no array
    int64_t elements = 0;

    void add(PyObject* array) {
      if (array == nullptr) {
        sizes.emplace_back();
        pointers.push_back(nullptr);
        held.emplace_back();
        return;
      }
      const auto* proxy = py::detail::array_proxy(array);
      sizes.emplace_back(proxy->dimensions, proxy->dimensions + proxy->nd);
      pointers.push_back(proxy->data);
      held.push_back(py::reinterpret_borrow<py::object>(array));
      elements += core::element_count(sizes.back()).value_or(0);
    }
  };

  struct Latest {
    Sizes sizes;
    std::shared_ptr<const Specialization> specialization;
  };

  static py::object dtype_of(const ir::Type& type) {
    return type.is_tensor ? py::object(numpy_dtype(type.dtype)) : py::object(py::none());
  }

  static py::object interned(const std::string& name) {
    PyObject* text =
        PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "strict");
    if (text == nullptr) throw py::error_already_set();
    PyUnicode_InternInPlace(&text);
    return py::reinterpret_steal<py::object>(text);
  }

  plan::Plan preview(const Sizes& sizes, std::vector<select::Story>* story) const {
    const py::gil_scoped_release release;
    return program_.preview(sizes, story).or_throw();
  }

  std::shared_ptr<const Specialization> specialize(const Sizes& sizes) {
    const std::shared_ptr<const Latest> latest = latest_.load();
    if (latest && latest->sizes == sizes) return latest->specialization;
    std::shared_ptr<const Specialization> made;
    {
      const py::gil_scoped_release release;
      made = program_.specialize(sizes).or_throw();
    }
    latest_ = std::make_shared<const Latest>(Latest{sizes, made});
    return made;
  }

  bool overwrites() const { return !program_.options().select.overwrites.empty(); }

  /// What is overwritten must be the caller's to give: arrays that may not be written, or share
  /// memory with others, are copied.
  void own_overwritten(Call& call) const {
    const std::vector<bool> shared = shares_memory(call);
    for (size_t output = 0; output < overwritten_.size(); ++output) {
      if (overwritten_[output] < 0) continue;
      const auto input = static_cast<size_t>(overwritten_[output]);
      const auto* given = py::detail::array_proxy(call.held[input].ptr());
      const bool is_writable = (given->flags & py::detail::npy_api::NPY_ARRAY_WRITEABLE_) != 0;
      if (is_writable && !shared[input]) continue;
      py::array copy = make_array(output, call.sizes[input]);
      std::memcpy(copy.mutable_data(), given->data, static_cast<size_t>(copy.nbytes()));
      call.pointers[input] = copy.data();
      call.held[input] = std::move(copy);
    }
  }

  /// By input: whether its memory is in part that of another one.
  std::vector<bool> shares_memory(const Call& call) const {
    struct Range {
      const char *begin, *end;
      size_t input;
    };
    std::vector<Range> ranges;
    for (size_t i = 0; i < call.held.size(); ++i) {
      if (!call.held[i]) continue;
      const auto bytes = py::reinterpret_borrow<py::array>(call.held[i]).nbytes();
      const auto* begin = static_cast<const char*>(call.pointers[i]);
      if (bytes > 0) ranges.push_back({begin, begin + bytes, i});
    }
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<bool> out(call.held.size(), false);
    size_t furthest = 0;
    for (size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].begin < ranges[furthest].end) {
        out[ranges[i].input] = out[ranges[furthest].input] = true;
      }
      if (ranges[i].end > ranges[furthest].end) furthest = i;
    }
    return out;
  }

  py::list execute(Call& call) {
    const std::shared_ptr<const Specialization> specialization = specialize(call.sizes);
    if (overwrites()) own_overwritten(call);
    std::vector<void*> results;
    py::list outputs = allocate(*specialization, call, results);
    Interrupt interrupt;
    runtime::RunControl control;
    if (!overwrites()) {  // what has begun to overwrite is finished; Python raises then
      control.cancel = &interrupt.cancel;
      control.poll = Interrupt::poll;
      control.poll_context = &interrupt;
    }
    control.pool = pool_.get();
    const std::shared_ptr<runtime::Recording> recording = recorder_->current();
    if (recording != nullptr) recording->keep(specialization);
    control.recording = recording.get();
    Status status = run_plan(*specialization, call, results, control);
    if (interrupt.raised) throw py::error_already_set();
    status.or_throw();
    return outputs;
  }

  static Status run_plan(const Specialization& specialization, const Call& call,
                         const std::vector<void*>& results, const runtime::RunControl& control) {
    constexpr int64_t kWorthReleasing = 2048;  // elements read; below, a run takes microseconds
    if (call.elements < kWorthReleasing && !specialization.executable.has_regions()) {
      return specialization.executable.run(call.pointers, results, control);
    }
    const py::gil_scoped_release release;
    return specialization.executable.run(call.pointers, results, control);
  }

  py::list allocate(const Specialization& specialization, const Call& call,
                    std::vector<void*>& results) const {
    py::list outputs;
    for (size_t i = 0; i < output_dtypes_.size(); ++i) {
      if (output_dtypes_[i].is_none()) {
        outputs.append(host_output(i, call.sizes));
        results.push_back(nullptr);
        continue;
      }
      if (overwritten_[i] >= 0) {
        outputs.append(call.held[static_cast<size_t>(overwritten_[i])]);
        results.push_back(nullptr);
        continue;
      }
      py::array array = make_array(i, specialization.output_shapes[i]);
      results.push_back(array.mutable_data());
      outputs.append(std::move(array));
    }
    return outputs;
  }

  py::array make_array(size_t output, const std::vector<int64_t>& shape) const {
    const auto dtype = py::reinterpret_borrow<py::dtype>(output_dtypes_[output]);
    const auto count = core::element_count(shape);
    const auto bytes = count ? core::checked_mul(*count, dtype.itemsize()) : std::nullopt;
    if (!bytes) {
      throw core::ErrorException(core::fail(core::ErrorKind::kMemory, core::Code::kOutOfMemory,
                                            "an output is larger than memory"));
    }
    runtime::Buffer buffer = runtime::Buffer::make(static_cast<size_t>(*bytes)).or_throw();
    void* data = buffer.data();
    const py::capsule owner(buffer.release(), [](void* block) {
      runtime::Buffer::adopt(static_cast<runtime::BufferBlock*>(block));
    });
    return py::array(dtype, shape, data, owner);
  }

  py::object host_output(size_t output, const Sizes& sizes) const {
    const ir::Graph& graph = program_.graph();
    const auto& host = graph.value(graph.outputs[output].value).host;
    if (!host) {
      throw core::ErrorException(
          core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported,
                     "output '{}' depends on data and is no tensor: the CPU cannot compute it",
                     graph.outputs[output].name));
    }
    const auto symbols = passes::solve_symbols(graph, sizes).or_throw();
    return from_host(numbers(*host, symbols));
  }

  HostValue numbers(const HostValue& value, const std::vector<int64_t>& symbols) const {
    if (value.is_symbolic()) {
      const infer::Dim dim = infer::Dim::expression(value.as_symbolic().expr);
      const auto size = program_.graph().dims.evaluate(dim, symbols);
      return size ? HostValue(*size) : HostValue();
    }
    if (!value.is_sequence()) return value;
    HostValue::Tuple items;
    for (const HostValue& item : value.items()) items.push_back(numbers(item, symbols));
    return value.is_list() ? HostValue::list(std::move(items)) : HostValue::tuple(std::move(items));
  }

  Program program_;
  std::shared_ptr<runtime::ThreadPool> pool_;  // null: the process's
  std::shared_ptr<runtime::Recorder> recorder_;
  std::vector<py::object> input_names_, output_names_;
  std::vector<py::object> input_dtypes_, output_dtypes_;  // None for host values
  std::vector<bool> is_param_;
  std::vector<int32_t> overwritten_;  // by output: the input whose array it is; -1: a fresh one
  bool has_state_ = false;
  std::atomic<std::shared_ptr<const Latest>> latest_;
};

}  // namespace

void bind_cpu(py::module_& module) {
  module.def(
      "cpu_isa", [] { return std::string(cpu::name(cpu::default_isa())); },
      "The instruction set whose kernels run: generic, avx2 or avx512.");
  module.def("cpu_has_kernel", &cpu::has_kernel, py::arg("op"));
  py::class_<runtime::ThreadPool, std::shared_ptr<runtime::ThreadPool>>(
      module, "ThreadPool", "Threads of a backend's own.")
      .def(py::init<int>(), py::arg("threads"))
      .def_property_readonly("thread_count", &runtime::ThreadPool::thread_count);
  py::class_<CpuProgram>(module, "CpuProgram", "A graph that the CPU runs.")
      .def(py::init<ir::Graph, std::shared_ptr<runtime::ThreadPool>, std::shared_ptr<Trace>,
                    std::vector<std::string>, bool, std::shared_ptr<runtime::Recorder>,
                    const Overwrites&>(),
           py::arg("graph"), py::arg("pool") = nullptr, py::arg("trace") = nullptr,
           py::arg("passes_off") = std::vector<std::string>(), py::arg("exact_conv") = false,
           py::arg("recorder") = std::make_shared<runtime::Recorder>(),
           py::arg("overwrites") = Overwrites())
      .def("story", &CpuProgram::story, py::arg("sizes"))
      .def("memory", &CpuProgram::memory, py::arg("sizes"), py::arg("step") = -1)
      .def("symbols", &CpuProgram::symbols, py::arg("shapes"))
      .def("sizes", &CpuProgram::sizes, py::arg("symbols"))
      .def("run", &CpuProgram::run, py::arg("inputs"))
      .def("try_run", &CpuProgram::try_run, py::arg("inputs"))
      .def("evaluate", &CpuProgram::evaluate, py::arg("params"), py::arg("data"));
}

}  // namespace mithril::bindings
