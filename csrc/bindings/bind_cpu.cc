// The engine's CPU: a program that takes and returns NumPy arrays.
#include <algorithm>
#include <atomic>
#include <map>
#include <optional>

#include <pybind11/numpy.h>

#include "backends/cpu/cpuid.h"
#include "backends/cpu/kernels.h"
#include "bindings/inspection.h"
#include "bindings/python.h"
#include "core/checked.h"
#include "passes/bind_sizes.h"
#include "passes/pack_weights.h"
#include "program.h"
#include "runtime/buffer.h"
#include "runtime/recording.h"
#include "runtime/thread_pool.h"

namespace mithril::bindings {
namespace {

using core::HostValue;
using core::Status;
using Sizes = std::vector<std::vector<int64_t>>;

/// New states are outputs after the outputs: the executable knows no other kind. `states` gets the
/// input of each of them, by place.
ir::Graph with_states_as_outputs(ir::Graph graph, std::vector<size_t>& states) {
  for (const ir::StateBinding& state : graph.states) {
    const auto at = std::find(graph.inputs.begin(), graph.inputs.end(), state.input);
    states.push_back(static_cast<size_t>(at - graph.inputs.begin()));
    graph.outputs.push_back({"$state." + graph.value(state.input).name, state.output});
  }
  graph.states.clear();
  return graph;
}

core::WeightFormat weight_format(const std::string& name) {
  const auto format = core::parse_weight_format(name);
  MITHRIL_CHECK(format, "no weight format '{}'", name);
  return *format;
}

/// Weights of products in a format; "": as they are.
ir::Graph with_weights(ir::Graph graph, const std::string& format) {
  if (format.empty()) return graph;
  return passes::pack_weights(graph, weight_format(format)).or_throw();
}

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
  out.select.epilogues = !out.passes.is_off("epilogues");
  out.select.exact_conv = exact_conv;
  return out;
}

class CpuProgram {
 public:
  CpuProgram(ir::Graph graph, std::shared_ptr<runtime::ThreadPool> pool,
             std::shared_ptr<Trace> trace, std::vector<std::string> off, bool exact_conv,
             std::shared_ptr<runtime::Recorder> recorder, const std::string& weights)
      : program_(with_weights(with_states_as_outputs(std::move(graph), states_), weights),
                 program_options(std::move(trace), std::move(off), exact_conv)),
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
  }

  /// Ready arrays in the order of the graph's inputs in, fresh arrays out; None, when an array is
  /// not ready. `donates_state`: states that the plan can update where they are come out as the
  /// arrays that went in.
  py::object try_run(const py::list& inputs, bool donates_state) {
    MITHRIL_CHECK(inputs.size() == input_names_.size(), "wrong number of inputs");
    Call call;
    call.donates_state = donates_state;
    for (size_t i = 0; i < inputs.size(); ++i) {
      PyObject* input = PyList_GET_ITEM(inputs.ptr(), static_cast<Py_ssize_t>(i));
      const bool is_tensor = !input_dtypes_[i].is_none();
      if (is_tensor && !is_ready(input, input_dtypes_[i])) return py::none();
      call.add(is_tensor ? input : nullptr);
    }
    return execute(call);
  }

  /// As try_run, for callers that made the arrays ready.
  py::object run(const py::list& inputs, bool donates_state) {
    py::object outputs = try_run(inputs, donates_state);
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
    std::vector<py::object> held;  // by input
    int64_t elements = 0;
    bool donates_state = false;

    void add(PyObject* array) {
      held.push_back(py::reinterpret_borrow<py::object>(array));
      if (array == nullptr) {
        sizes.emplace_back();
        pointers.push_back(nullptr);
        return;
      }
      const auto* proxy = py::detail::array_proxy(array);
      sizes.emplace_back(proxy->dimensions, proxy->dimensions + proxy->nd);
      pointers.push_back(proxy->data);
      elements += core::element_count(sizes.back()).value_or(0);
    }

    /// Whether an input may be written to, and no other input lies there.
    bool is_updatable(size_t input) const {
      const auto array = py::reinterpret_borrow<py::array>(held[input]);
      const auto bytes_of = [&](size_t i) {
        const auto* first = static_cast<const std::byte*>(pointers[i]);
        const auto size = held[i] ? py::reinterpret_borrow<py::array>(held[i]).nbytes() : 0;
        return std::pair(first, first + size);
      };
      const auto [begin, end] = bytes_of(input);
      for (size_t i = 0; i < held.size(); ++i) {
        const auto [first, last] = bytes_of(i);
        if (i != input && first < end && begin < last) return false;
      }
      return array.writeable();
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

  py::list execute(const Call& call) {
    const std::shared_ptr<const Specialization> specialization = specialize(call.sizes);
    std::vector<void*> results;
    py::list outputs = allocate(*specialization, call, results);
    Interrupt interrupt;
    runtime::RunControl control;
    control.cancel = &interrupt.cancel;
    control.poll = Interrupt::poll;
    control.poll_context = &interrupt;
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
      py::object given = call.donates_state ? updated(specialization, call, i) : py::object();
      py::array array = given ? py::reinterpret_steal<py::array>(given.release())
                              : make_array(i, specialization.output_shapes[i]);
      results.push_back(array.mutable_data());
      outputs.append(std::move(array));
    }
    return outputs;
  }

  /// The state that was given, if the new one may lie there; else nothing.
  py::object updated(const Specialization& specialization, const Call& call, size_t output) const {
    const size_t first = output_dtypes_.size() - states_.size();
    if (output < first) return {};
    const size_t input = states_[output - first];
    for (const plan::Update& update : specialization.executable.plan().updates) {
      const bool is_this = static_cast<size_t>(update.input) == input &&
                           static_cast<size_t>(update.output) == output;
      if (is_this && call.is_updatable(input)) return call.held[input];
    }
    return {};
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

  std::vector<size_t> states_;  // the inputs of the states, which come out last; before program_
  Program program_;
  std::shared_ptr<runtime::ThreadPool> pool_;  // null: the process's
  std::shared_ptr<runtime::Recorder> recorder_;
  std::vector<py::object> input_names_, output_names_;
  std::vector<py::object> input_dtypes_, output_dtypes_;  // None for host values
  std::vector<bool> is_param_;
  bool has_state_ = false;
  std::atomic<std::shared_ptr<const Latest>> latest_;
};

}  // namespace

void bind_cpu(py::module_& module) {
  module.def(
      "cpu_isa", [] { return std::string(cpu::name(cpu::default_isa())); },
      "The instruction set whose kernels run: generic, avx2 or avx512.");
  module.def("cpu_has_kernel", &cpu::has_kernel, py::arg("op"));
  module.def("pack_literals", &pack_literals, py::arg("graph"), py::arg("literals"),
             py::arg("format"));
  py::class_<runtime::ThreadPool, std::shared_ptr<runtime::ThreadPool>>(
      module, "ThreadPool", "Threads of a backend's own.")
      .def(py::init<int>(), py::arg("threads"))
      .def_property_readonly("thread_count", &runtime::ThreadPool::thread_count);
  py::class_<CpuProgram>(module, "CpuProgram", "A graph that the CPU runs.")
      .def(py::init<ir::Graph, std::shared_ptr<runtime::ThreadPool>, std::shared_ptr<Trace>,
                    std::vector<std::string>, bool, std::shared_ptr<runtime::Recorder>,
                    std::string>(),
           py::arg("graph"), py::arg("pool") = nullptr, py::arg("trace") = nullptr,
           py::arg("passes_off") = std::vector<std::string>(), py::arg("exact_conv") = false,
           py::arg("recorder") = std::make_shared<runtime::Recorder>(), py::arg("weights") = "")
      .def("story", &CpuProgram::story, py::arg("sizes"))
      .def("memory", &CpuProgram::memory, py::arg("sizes"), py::arg("step") = -1)
      .def("symbols", &CpuProgram::symbols, py::arg("shapes"))
      .def("sizes", &CpuProgram::sizes, py::arg("symbols"))
      .def("run", &CpuProgram::run, py::arg("inputs"), py::arg("donates_state") = false)
      .def("try_run", &CpuProgram::try_run, py::arg("inputs"), py::arg("donates_state") = false)
      .def("evaluate", &CpuProgram::evaluate, py::arg("params"), py::arg("data"));
}

}  // namespace mithril::bindings
