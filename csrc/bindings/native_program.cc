#include "bindings/native_program.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/select.h"
#include "bindings/inspection.h"
#include "bindings/interrupt.h"
#include "bindings/output_array.h"
#include "core/checked.h"
#include "passes/bind_sizes.h"
#include "passes/pack_weights.h"
#include "plan/memory.h"

namespace mithril::bindings {
namespace {

using core::HostValue;

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

/// Weights of products in a format; "": as they are.
ir::Graph with_weights(ir::Graph graph, const std::string& format) {
  if (format.empty()) return graph;
  return passes::pack_weights(graph, weight_format(format)).or_throw();
}

std::vector<plan::Donation> overwrites_of(const ir::Graph& graph, const Donations& names) {
  std::vector<plan::Donation> out;
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

SpecializationCache made(ir::Graph graph, SpecializationOptions options,
                         const Donations& overwrites, const std::string& weights,
                         std::vector<size_t>& states) {
  graph = with_weights(with_states_as_outputs(std::move(graph), states), weights);
  options.select.overwrites = overwrites_of(graph, overwrites);
  return SpecializationCache(std::move(graph), std::move(options));
}

}  // namespace

py::dict symbols_of(const ir::Graph& graph, const OpenSizes& shapes) {
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

py::list sizes_of(const ir::Graph& graph, const std::map<std::string, int64_t>& symbols) {
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

core::WeightFormat weight_format(const std::string& name) {
  const auto format = core::parse_weight_format(name);
  MITHRIL_CHECK(format, "no weight format '{}'", name);
  return *format;
}

py::dtype numpy_dtype(core::DType dtype) {
  return py::reinterpret_borrow<py::dtype>(from_dtype(dtype).attr("numpy")());
}

SpecializationOptions program_options(std::shared_ptr<Trace> trace, std::vector<std::string> off,
                                      const passes::RematerializeOptions& rematerialize,
                                      Exact exact) {
  SpecializationOptions out;
  out.backend = out.host = std::make_shared<const cpu::Backend>();
  out.select.exact_conv = exact.conv;
  out.select.canonical = exact.all;
  out.rematerialize = rematerialize;
  if (trace) out.trace = std::move(trace);
  out.passes = passes::PipelineOptions::from_env(std::move(off));
  out.rematerialize.unasked = !out.passes.is_off("rematerialize");
  out.select.fuse = !out.passes.is_off("fuse");
  out.select.epilogues = !out.passes.is_off("epilogues");
  return out;
}

NativeProgram::NativeProgram(ir::Graph graph, SpecializationOptions options,
                             const Donations& overwrites, std::shared_ptr<runtime::ThreadPool> pool,
                             std::shared_ptr<runtime::Recorder> recorder,
                             const std::string& weights, const device::Driver* driver)
    : program_(made(std::move(graph), std::move(options), overwrites, weights, states_)),
      pool_(std::move(pool)),
      recorder_(std::move(recorder)),
      driver_(driver) {
  const ir::Graph& made = program_.graph();
  for (const ir::ValueId input : made.inputs) {
    input_dtypes_.push_back(dtype_of(made.type(input)));
  }
  for (const ir::Output& output : made.outputs) {
    output_dtypes_.push_back(dtype_of(made.type(output.value)));
  }
  overwritten_.assign(made.outputs.size(), -1);
  for (const plan::Donation& one : program_.options().select.overwrites) {
    overwritten_[static_cast<size_t>(one.output)] = one.input;
  }
}

bool NativeProgram::try_run(std::span<const Input> inputs, std::span<PyObject*> outputs) {
  return try_run(inputs, outputs, false);
}

py::list NativeProgram::run(const py::list& arrays, bool donates_state) {
  MITHRIL_CHECK(arrays.size() == input_dtypes_.size(), "wrong number of inputs");
  Row<Input> inputs(arrays.size(), {});
  Held held(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (input_dtypes_[i].is_none()) continue;
    inputs[i].array = held[i] = py::object(arrays[i]).release().ptr();
  }
  Held results(output_count());
  const bool has_run = try_run(inputs.get(), results.get(), donates_state);
  MITHRIL_CHECK(has_run, "an input is not ready");
  py::list out;
  for (PyObject* const result : results.get()) out.append(py::handle(result));
  return out;
}

py::list NativeProgram::report(const Sizes& sizes) const {
  std::vector<select::SelectionReport> out;
  preview(sizes, &out);
  return report_of(out);
}

py::dict NativeProgram::memory(const Sizes& sizes, int32_t step) const {
  return memory_of(preview(sizes, nullptr), step);
}

py::dict NativeProgram::symbols(const OpenSizes& shapes) const {
  return symbols_of(program_.graph(), shapes);
}

py::list NativeProgram::sizes(const std::map<std::string, int64_t>& symbols) const {
  return sizes_of(program_.graph(), symbols);
}

Sizes NativeProgram::output_sizes(const Sizes& sizes) const {
  const ir::Graph& graph = program_.graph();
  const auto symbols = passes::solve_symbols(graph, sizes).or_throw();
  Sizes out;
  for (const ir::Output& output : graph.outputs) {
    std::vector<int64_t>& shape = out.emplace_back();
    for (const infer::Dim dim : graph.type(output.value).shape) {
      shape.push_back(dim.known() ? dim.value() : graph.dims.evaluate(dim, symbols).value_or(0));
    }
  }
  return out;
}

NativeProgram::View NativeProgram::view_of(PyObject* array) {
  if (const DeviceArray* const there = device_array(array)) return {there->data(), there->shape};
  static_assert(sizeof(py::ssize_t) == sizeof(int64_t));
  const py::detail::PyArray_Proxy* const proxy = py::detail::array_proxy(array);
  return {reinterpret_cast<const std::byte*>(proxy->data),
          {reinterpret_cast<const int64_t*>(proxy->dimensions), static_cast<size_t>(proxy->nd)}};
}

const DeviceArray* NativeProgram::first_on_device(std::span<const Input> inputs) const {
  if (driver_ == nullptr) return nullptr;
  for (const Input& input : inputs) {
    if (input.array == nullptr) continue;
    if (const DeviceArray* const array = device_array(input.array)) return array;
  }
  return nullptr;
}

bool NativeProgram::try_run(std::span<const Input> inputs, std::span<PyObject*> outputs,
                            bool donates_state) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_array = !input_dtypes_[i].is_none() && inputs[i].number == nullptr;
    if (is_array && !is_ready(inputs[i].array, input_dtypes_[i])) return false;
  }
  Row<const void*> pointers(inputs.size(), nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const void* number = inputs[i].number;
    pointers[i] = inputs[i].array == nullptr ? number : view_of(inputs[i].array).data;
  }
  const DeviceArray* const like = first_on_device(inputs);
  const std::shared_ptr<const Latest> latest = specialize(inputs);
  if (donates_state) give_updated(*latest, inputs, outputs);
  if (overwrites()) give_overwritten(*latest, inputs, outputs, pointers.get());
  Row<void*> results(outputs.size(), nullptr);
  for (size_t i = 0; i < outputs.size(); ++i) {
    results[i] = outputs[i] == nullptr ? allocate(*latest, i, like, outputs[i])
                                       : const_cast<std::byte*>(view_of(outputs[i]).data);
  }
  run(latest->specialization, pointers.get(), results.get());
  return true;
}

void NativeProgram::give_updated(const Latest& latest, std::span<const Input> inputs,
                                 std::span<PyObject*> outputs) const {
  const std::vector<bool> shared = shares_memory(inputs);
  const size_t first = output_dtypes_.size() - states_.size();
  for (const plan::Donation& donation : latest.specialization->executable->plan().donations) {
    const auto input = static_cast<size_t>(donation.input);
    const auto output = static_cast<size_t>(donation.output);
    const bool is_state = output >= first && states_[output - first] == input;
    if (!is_state || shared[input] || !is_writable(inputs[input].array)) continue;
    outputs[output] = py::handle(inputs[input].array).inc_ref().ptr();
  }
}

void NativeProgram::give_overwritten(const Latest& latest, std::span<const Input> inputs,
                                     std::span<PyObject*> outputs,
                                     std::span<const void*> pointers) const {
  const std::vector<bool> shared = shares_memory(inputs);
  for (size_t output = 0; output < overwritten_.size(); ++output) {
    if (overwritten_[output] < 0) continue;
    const auto input = static_cast<size_t>(overwritten_[output]);
    PyObject* const given = inputs[input].array;
    if (is_writable(given) && !shared[input]) {
      outputs[output] = py::handle(given).inc_ref().ptr();
      continue;
    }
    pointers[input] = copy_to(latest, output, given, outputs[output]);
  }
}

const void* NativeProgram::copy_to(const Latest& latest, size_t output, PyObject* array,
                                   PyObject*& to) const {
  const DeviceArray* const there = device_array(array);
  void* const place = allocate(latest, output, there, to);
  if (there == nullptr) return std::memcpy(place, view_of(array).data, latest.bytes[output]);
  const auto bytes = static_cast<int64_t>(latest.bytes[output]);
  const std::shared_ptr<const device::Storage> storage = device_array(to)->storage;
  const GilRelease release;
  storage->copy(*there->storage, there->offset, bytes).or_throw();
  return place;
}

bool NativeProgram::is_writable(PyObject* array) {
  if (const DeviceArray* const there = device_array(array)) return !there->is_read_only;
  return (py::detail::array_proxy(array)->flags & py::detail::npy_api::NPY_ARRAY_WRITEABLE_) != 0;
}

std::vector<bool> NativeProgram::shares_memory(std::span<const Input> inputs) {
  struct Range {
    const std::byte *begin, *end;
    size_t input;
  };
  std::vector<Range> ranges;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].array == nullptr) continue;
    const DeviceArray* const there = device_array(inputs[i].array);
    const size_t bytes =
        there != nullptr
            ? there->bytes()
            : static_cast<size_t>(py::reinterpret_borrow<py::array>(inputs[i].array).nbytes());
    const std::byte* const begin = view_of(inputs[i].array).data;
    if (bytes > 0) ranges.push_back({begin, begin + bytes, i});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<bool> out(inputs.size(), false);
  size_t furthest = 0;
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin < ranges[furthest].end) {
      out[ranges[i].input] = out[ranges[furthest].input] = true;
    }
    if (ranges[i].end > ranges[furthest].end) furthest = i;
  }
  return out;
}

bool NativeProgram::is_ready(PyObject* object, const py::object& dtype) const {
  if (Py_TYPE(object) != numpy_.PyArray_Type_) {
    const DeviceArray* const there = driver_ == nullptr ? nullptr : device_array(object);
    return there != nullptr && &there->storage->driver() == driver_ && there->dtype.is(dtype);
  }
  constexpr int kWanted = int{py::array::c_style} | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_};
  const py::detail::PyArray_Proxy* const proxy = py::detail::array_proxy(object);
  return proxy->descr == dtype.ptr() && (proxy->flags & kWanted) == kWanted;
}

py::object NativeProgram::dtype_of(const ir::Type& type) {
  return type.is_tensor ? py::object(numpy_dtype(type.dtype)) : py::object(py::none());
}

plan::Plan NativeProgram::preview(const Sizes& sizes,
                                  std::vector<select::SelectionReport>* report) const {
  return interruptible([&] { return program_.preview(sizes, report).or_throw(); });
}

bool NativeProgram::has_sizes(std::span<const Input> inputs, const Sizes& sizes) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto shape = shape_of(inputs[i]);
    if (!std::equal(shape.begin(), shape.end(), sizes[i].begin(), sizes[i].end())) return false;
  }
  return true;
}

std::span<const int64_t> NativeProgram::shape_of(const Input& input) {
  return input.array == nullptr ? std::span<const int64_t>() : view_of(input.array).shape;
}

std::shared_ptr<const NativeProgram::Latest> NativeProgram::specialize(
    std::span<const Input> inputs) {
  if (latest_ && has_sizes(inputs, latest_->sizes)) return latest_;
  auto made = std::make_shared<Latest>();
  for (const Input& input : inputs) {
    const auto shape = shape_of(input);
    made->sizes.emplace_back(shape.begin(), shape.end());
  }
  made->specialization = interruptible([&] { return program_.specialize(made->sizes).or_throw(); });
  for (size_t i = 0; i < output_dtypes_.size(); ++i) made->bytes.push_back(bytes_of(*made, i));
  latest_ = made;
  return made;
}

size_t NativeProgram::bytes_of(const Latest& latest, size_t output) const {
  if (output_dtypes_[output].is_none()) return 0;
  const auto dtype = py::reinterpret_borrow<py::dtype>(output_dtypes_[output]);
  const auto count = core::element_count(latest.specialization->output_shapes[output]);
  const auto bytes = count ? core::checked_mul(*count, dtype.itemsize()) : std::nullopt;
  if (!bytes) {
    throw core::ErrorException(core::fail(core::ErrorKind::kMemory, core::Code::kOutOfMemory,
                                          "an output is larger than memory"));
  }
  return static_cast<size_t>(*bytes);
}

void* NativeProgram::allocate(const Latest& latest, size_t output, const DeviceArray* like,
                              PyObject*& to) const {
  if (output_dtypes_[output].is_none()) {
    to = host_output(output, latest.sizes).release().ptr();
    return nullptr;
  }
  const std::vector<int64_t>& shape = latest.specialization->output_shapes[output];
  const py::object& dtype = output_dtypes_[output];
  const size_t bytes = latest.bytes[output];
  if (like == nullptr) {
    to = make_output_array(dtype.ptr(), shape, bytes).release().ptr();
    return const_cast<std::byte*>(view_of(to).data);
  }
  try {
    to = make_device_array(*like, dtype, shape, bytes).release().ptr();
  } catch (const core::ErrorException& exception) {
    core::Error error = exception.error();
    if (error.kind == core::ErrorKind::kMemory) {
      plan::name_largest(latest.specialization->executable->plan(), error);
    }
    throw core::ErrorException(std::move(error));
  }
  return const_cast<std::byte*>(view_of(to).data);
}

void NativeProgram::run(const std::shared_ptr<const Specialization>& specialization,
                        std::span<const void* const> inputs, std::span<void* const> outputs) const {
  const runtime::Executable& executable = *specialization->executable;
  runtime::RunControl control;
  control.pool = pool_.get();
  const std::shared_ptr<runtime::Recording> recording = recorder_->current();
  if (recording != nullptr) recording->keep(specialization);
  control.recording = recording.get();
  if (executable.is_brief()) return executable.run(inputs, outputs, control).or_throw();
  if (overwrites()) {  // what has begun to overwrite is finished; Python raises then
    const GilRelease release;
    return executable.run(inputs, outputs, control).or_throw();
  }
  interruptible([&] {
    const core::Interrupt& interrupt = core::current_interrupt();
    control.cancel = interrupt.cancel;
    control.poll = interrupt.poll;
    control.poll_context = interrupt.context;
    executable.run(inputs, outputs, control).or_throw();
    return true;
  });
}

py::object NativeProgram::host_output(size_t output, const Sizes& sizes) const {
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

HostValue NativeProgram::numbers(const HostValue& value,
                                 const std::vector<int64_t>& symbols) const {
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

}  // namespace mithril::bindings
