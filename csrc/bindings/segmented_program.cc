#include "bindings/segmented_program.h"

#include <algorithm>

#include <pybind11/stl.h>

#include "core/checked.h"

namespace mithril::bindings {
namespace {

using passes::Segment;

/// The number in an array of one integer.
int64_t number_in(const py::object& array) {
  if (const DeviceArray* const there = device_array(array.ptr())) {
    return number_in(host_array(*there));
  }
  const py::detail::PyArray_Proxy* const proxy = py::detail::array_proxy(array.ptr());
  const bool is_wide = py::reinterpret_borrow<py::array>(array).itemsize() == sizeof(int64_t);
  return is_wide ? *reinterpret_cast<const int64_t*>(proxy->data)
                 : *reinterpret_cast<const int32_t*>(proxy->data);
}

py::object first_rows(const py::object& array, int64_t count) {
  if (const DeviceArray* const there = device_array(array.ptr())) {
    return rows_of(*there, 0, count);
  }
  auto out = py::reinterpret_steal<py::object>(PySequence_GetSlice(array.ptr(), 0, count));
  if (!out) throw py::error_already_set();
  return out;
}

// Runs what plans for the largest sizes; a model may take none but those that data give it.
template <class F>
auto at_largest(F f) {
  try {
    return f();
  } catch (const core::ErrorException& exception) {
    if (exception.error().kind != core::ErrorKind::kShape) throw;
    core::Error error = core::fail(
        core::ErrorKind::kUnsupported, core::Code::kUnsupported,
        "there is no plan before the data: sizes follow from them, and at most they are too large "
        "for the model: {}",
        exception.error().message);
    error.hint = "profile a call: it tells of the sizes that the data gave";
    throw core::ErrorException(std::move(error));
  }
}

int64_t bytes_at(const py::dict& memory, const char* key) { return memory[key].cast<int64_t>(); }

/// Adds up what the segments hold one after another; at the peak stands the one with the most.
class MemorySum {
 public:
  /// `held`: bytes that segments hand on.
  void add(const Segment& segment, const py::dict& memory, int64_t held) {
    for (const auto& [index, bytes] : memory["inputs"].cast<py::dict>()) {
      const Segment::Source& source = segment.inputs[index.cast<size_t>()];
      if (source.segment < 0) inputs_[py::int_(source.index)] = bytes;
    }
    constants_ += bytes_at(memory, "constants");
    scratch_ = std::max(scratch_, bytes_at(memory, "scratch"));
    structure_ = structure_ * 31 + memory["structure"].cast<size_t>();
    const int64_t before = steps_;
    steps_ += bytes_at(memory, "steps");
    const int64_t most = bytes_at(memory, "arena") + bytes_at(memory, "regions") + held;
    if (most <= most_) return;
    most_ = most;
    peak_ = memory;
    out_ = py::dict();
    out_["arena"] = bytes_at(memory, "arena") + held;
    out_["live"] = bytes_at(memory, "live") + held;
    out_["peak_step"] = before + bytes_at(memory, "peak_step");
  }
  int64_t steps() const { return steps_; }

  py::dict finish(const py::dict& last) {
    for (const char* key : {"regions", "contributors"}) out_[key] = peak_[key];
    out_["inputs"] = inputs_;
    out_["outputs"] = last["outputs"];
    out_["constants"] = constants_;
    out_["scratch"] = scratch_;
    out_["structure"] = structure_;
    out_["steps"] = steps_;
    return out_;
  }

 private:
  py::dict inputs_, peak_, out_;
  int64_t constants_ = 0, scratch_ = 0, steps_ = 0, most_ = -1;
  size_t structure_ = 0;
};

int64_t element_bytes(const ir::Graph& graph, size_t output) {
  const ir::Type& type = graph.type(graph.outputs[output].value);
  return type.is_tensor ? static_cast<int64_t>(core::size_of(type.dtype)) : 0;
}

}  // namespace

SegmentedProgram::SegmentedProgram(ir::Graph graph, std::vector<Segment> segments,
                                   const std::vector<std::shared_ptr<ArrayProgram>>& programs)
    : graph_(std::move(graph)), segments_(std::move(segments)) {
  MITHRIL_CHECK(programs.size() == segments_.size(), "a program for each segment is needed");
  for (const auto& program : programs) {
    programs_.push_back(std::dynamic_pointer_cast<NativeProgram>(program));
    MITHRIL_CHECK(programs_.back() != nullptr, "a segment needs a program of the engine");
  }
  for (size_t s = 0; s < segments_.size(); ++s) {
    last_reader_.emplace_back(segments_[s].counts.size(), s);
    for (const Segment::Source& source : segments_[s].inputs) {
      if (source.segment < 0) continue;
      last_reader_[static_cast<size_t>(source.segment)][static_cast<size_t>(source.index)] = s;
    }
  }
}

bool SegmentedProgram::try_run(std::span<const Input> inputs, std::span<PyObject*> outputs) {
  return try_run(inputs, outputs, false);
}

bool SegmentedProgram::try_run(std::span<const Input> inputs, std::span<PyObject*> outputs,
                               bool donates_state) {
  const size_t last = segments_.size() - 1;
  Results results(segments_.size());
  for (size_t s = 0; s < last; ++s) {
    if (!run_segment(s, gather(s, inputs, results), results)) return false;
    drop_after(s, results);
  }
  return programs_[last]->try_run(gather(last, inputs, results), outputs, donates_state);
}

std::vector<ArrayProgram::Input> SegmentedProgram::gather(size_t segment,
                                                          std::span<const Input> inputs,
                                                          const Results& results) const {
  std::vector<Input> out;
  for (const Segment::Source& source : segments_[segment].inputs) {
    const auto index = static_cast<size_t>(source.index);
    out.push_back(source.segment < 0
                      ? inputs[index]
                      : Input{results[static_cast<size_t>(source.segment)][index].ptr(), nullptr});
  }
  return out;
}

bool SegmentedProgram::run_segment(size_t segment, std::span<const Input> inputs,
                                   Results& results) const {
  const std::vector<int32_t>& counts = segments_[segment].counts;
  Held fresh(counts.size());
  if (!programs_[segment]->try_run(inputs, fresh.get())) return false;
  std::vector<py::object>& made = results[segment];
  for (PyObject* const array : fresh.get()) {
    made.push_back(py::reinterpret_borrow<py::object>(array));
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0) continue;
    made[i] = first_rows(made[i], number_in(made[static_cast<size_t>(counts[i])]));
  }
  return true;
}

void SegmentedProgram::drop_after(size_t segment, Results& results) const {
  for (size_t s = 0; s <= segment; ++s) {
    for (size_t i = 0; i < results[s].size(); ++i) {
      if (last_reader_[s][i] <= segment) results[s][i] = py::object();
    }
  }
}

py::list SegmentedProgram::run(const py::list& arrays, bool donates_state) {
  MITHRIL_CHECK(arrays.size() == graph_.inputs.size(), "wrong number of inputs");
  std::vector<Input> inputs(arrays.size(), Input{nullptr, nullptr});
  Held held(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!graph_.type(graph_.inputs[i]).is_tensor) continue;
    inputs[i].array = held[i] = py::object(arrays[i]).release().ptr();
  }
  Held results(output_count());
  const bool has_run = try_run(inputs, results.get(), donates_state);
  MITHRIL_CHECK(has_run, "an input is not ready");
  py::list out;
  for (PyObject* const result : results.get()) out.append(py::handle(result));
  return out;
}

std::vector<Sizes> SegmentedProgram::largest_sizes(const Sizes& sizes) const {
  std::vector<Sizes> inputs, outputs;
  for (size_t s = 0; s < segments_.size(); ++s) {
    Sizes& own = inputs.emplace_back();
    for (const Segment::Source& source : segments_[s].inputs) {
      const auto index = static_cast<size_t>(source.index);
      own.push_back(source.segment < 0 ? sizes.at(index)
                                       : outputs[static_cast<size_t>(source.segment)].at(index));
    }
    outputs.push_back(programs_[s]->output_sizes(own));
  }
  return inputs;
}

std::vector<int64_t> SegmentedProgram::held_bytes(const std::vector<Sizes>& sizes) const {
  std::vector<int64_t> out(segments_.size(), 0);
  for (size_t s = 0; s + 1 < segments_.size(); ++s) {
    const Sizes made = programs_[s]->output_sizes(sizes[s]);
    for (size_t i = 0; i < made.size(); ++i) {
      const int64_t bytes =
          element_bytes(segments_[s].graph, i) * core::element_count(made[i]).value_or(0);
      for (size_t t = s; t <= last_reader_[s][i]; ++t) out[t] += bytes;
    }
  }
  return out;
}

py::list SegmentedProgram::report(const Sizes& sizes) const {
  return at_largest([&] {
    const std::vector<Sizes> largest = largest_sizes(sizes);
    py::list out;
    for (size_t s = 0; s < segments_.size(); ++s) {
      for (const py::handle row : programs_[s]->report(largest[s])) out.append(row);
    }
    return out;
  });
}

py::dict SegmentedProgram::memory(const Sizes& sizes, int32_t step) const {
  return at_largest([&] {
    const std::vector<Sizes> largest = largest_sizes(sizes);
    const std::vector<int64_t> held = held_bytes(largest);
    MemorySum sum;
    py::dict last;
    for (size_t s = 0; s < segments_.size(); ++s) {
      const int64_t own = step < 0 ? -1 : std::max<int64_t>(step - sum.steps(), 0);
      last = programs_[s]->memory(largest[s], static_cast<int32_t>(own));
      sum.add(segments_[s], last, held[s]);
    }
    return sum.finish(last);
  });
}

void bind_segments(py::module_& module) {
  py::class_<Segment>(module, "Segment", "A part of a graph that runs by itself.")
      .def_readonly("graph", &Segment::graph)
      .def("has_input", [](const Segment& segment, const std::string& name) {
        return segment.graph.find_input(name) != ir::kNoValue;
      });
  module.def(
      "cut_at_sizes", [](const ir::Graph& graph) { return passes::cut_at_sizes(graph).or_throw(); },
      py::arg("graph"), "The segments of a graph whose sizes follow from data; else none.");
  py::class_<SegmentedProgram, ArrayProgram, std::shared_ptr<SegmentedProgram>> bound(
      module, "SegmentedProgram", "Programs that run one after another.");
  bound.def(py::init<ir::Graph, std::vector<Segment>,
                     const std::vector<std::shared_ptr<ArrayProgram>>&>(),
            py::arg("graph"), py::arg("segments"), py::arg("programs"));
  bound.def("selection_report", &SegmentedProgram::report, py::arg("sizes"))
      .def("memory", &SegmentedProgram::memory, py::arg("sizes"), py::arg("step") = -1)
      .def("symbols", &SegmentedProgram::symbols, py::arg("shapes"))
      .def("sizes", &SegmentedProgram::sizes, py::arg("symbols"))
      .def("run", &SegmentedProgram::run, py::arg("inputs"), py::arg("donates_state") = false);
}

}  // namespace mithril::bindings
