// Programs of the engine's native backends, which take and return NumPy arrays.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>

#include "bindings/device_array.h"
#include "bindings/native_call.h"
#include "bindings/python.h"
#include "core/packed_matrix.h"
#include "runtime/recording.h"
#include "runtime/thread_pool.h"
#include "specialize/specialization_cache.h"

namespace mithril::bindings {

using Sizes = std::vector<std::vector<int64_t>>;
using OpenSizes = std::vector<std::vector<std::optional<int64_t>>>;
/// (output, input) by name.
using Donations = std::vector<std::pair<std::string, std::string>>;

core::WeightFormat weight_format(const std::string& name);

py::dtype numpy_dtype(core::DType dtype);

/// Says where only canonical kernels will do.
struct Exact {
  bool conv = false, all = false;
};

/// The open sizes of a graph's inputs by name, in order of appearance: what shapes of which some
/// sizes are None make them, or None. No entry for inputs of unknown shape.
py::dict symbols_of(const ir::Graph& graph, const OpenSizes& shapes);

/// Shapes of a graph's inputs for values of their open sizes; None for one that stays open.
py::list sizes_of(const ir::Graph& graph, const std::map<std::string, int64_t>& symbols);

/// With what environment variables say of passes, and those in `off` switched off.
SpecializationOptions program_options(std::shared_ptr<Trace> trace, std::vector<std::string> off,
                                      const passes::RematerializeOptions& rematerialize,
                                      Exact exact);

/// A graph that the engine runs, over arrays of NumPy and of a device. Results are on the device
/// where an input is.
class NativeProgram : public ArrayProgram {
 public:
  /// `pool`: null, the process's. `weights`: the format of those of products; "": as they are.
  /// `driver`: of the device whose arrays it takes; null: only NumPy's.
  NativeProgram(ir::Graph graph, SpecializationOptions options, const Donations& overwrites,
                std::shared_ptr<runtime::ThreadPool> pool,
                std::shared_ptr<runtime::Recorder> recorder, const std::string& weights = "",
                const device::Driver* driver = nullptr);

  size_t output_count() const override { return output_dtypes_.size(); }

  bool try_run(std::span<const Input> inputs, std::span<PyObject*> outputs) override;
  bool try_run(std::span<const Input> inputs, std::span<PyObject*> outputs, bool donates_state);

  /// Arrays in the order of the graph's inputs in; out come fresh arrays, or those that the program
  /// overwrites. The caller made them ready.
  /// `donates_state`: states that the plan can update where they are come out as the arrays that
  /// went in.
  py::list run(const py::list& arrays, bool donates_state);

  /// Tells what becomes of the nodes for these sizes (bindings/inspection.h).
  virtual py::list report(const Sizes& sizes) const;

  /// Tells what memory a run for these sizes takes, and allocates nothing.
  py::dict memory(const Sizes& sizes, int32_t step) const;

  py::dict symbols(const OpenSizes& shapes) const;  // as symbols_of

  /// Shapes of the outputs for those of the inputs; empty for host values.
  Sizes output_sizes(const Sizes& sizes) const;

  const ir::Graph& graph() const { return program_.graph(); }

  py::list sizes(const std::map<std::string, int64_t>& symbols) const;  // as sizes_of

 protected:
  const SpecializationCache& program() const { return program_; }
  plan::Plan preview(const Sizes& sizes, std::vector<select::SelectionReport>* report) const;

 private:
  /// Keeps the sizes of the last call, and what runs for them.
  struct Latest {
    Sizes sizes;
    std::shared_ptr<const Specialization> specialization;
    std::vector<size_t> bytes;  // of each output
  };

  /// Shows an array that is ready as a run takes it.
  struct View {
    const std::byte* data;
    std::span<const int64_t> shape;
  };
  static View view_of(PyObject* array);

  /// The first input that is on the device; null: there is none.
  const DeviceArray* first_on_device(std::span<const Input> inputs) const;

  /// States that were given, where the new ones may lie there.
  void give_updated(const Latest& latest, std::span<const Input> inputs,
                    std::span<PyObject*> outputs) const;

  bool overwrites() const { return !program_.options().select.overwrites.empty(); }

  /// Inputs that the program overwrites, as outputs. They must be the caller's to give: arrays that
  /// may not be written, or share memory with others, are copied, and the copies run instead.
  void give_overwritten(const Latest& latest, std::span<const Input> inputs,
                        std::span<PyObject*> outputs, std::span<const void*> pointers) const;

  /// A copy of an array as the output that overwrites it; gives the place of its elements.
  const void* copy_to(const Latest& latest, size_t output, PyObject* array, PyObject*& to) const;

  static bool is_writable(PyObject* array);

  /// By input: whether its memory is in part that of another one.
  static std::vector<bool> shares_memory(std::span<const Input> inputs);

  /// On the device, or contiguous, aligned, and of the machine's byte order; with this very dtype
  /// object.
  bool is_ready(PyObject* object, const py::object& dtype) const;

  static py::object dtype_of(const ir::Type& type);

  static bool has_sizes(std::span<const Input> inputs, const Sizes& sizes);

  static std::span<const int64_t> shape_of(const Input& input);

  std::shared_ptr<const Latest> specialize(std::span<const Input> inputs);

  size_t bytes_of(const Latest& latest, size_t output) const;

  /// The place of a new array's elements; null for a host value. `like`: the array is where that
  /// one is; null: NumPy's.
  void* allocate(const Latest& latest, size_t output, const DeviceArray* like, PyObject*& to) const;

  void run(const std::shared_ptr<const Specialization>& specialization,
           std::span<const void* const> inputs, std::span<void* const> outputs) const;

  py::object host_output(size_t output, const Sizes& sizes) const;

  core::HostValue numbers(const core::HostValue& value, const std::vector<int64_t>& symbols) const;

  std::vector<size_t> states_;  // the inputs of the states, which come out last; before program_
  SpecializationCache program_;
  std::shared_ptr<runtime::ThreadPool> pool_;  // null: the process's
  std::shared_ptr<runtime::Recorder> recorder_;
  const device::Driver* driver_;  // null: no device
  const py::detail::npy_api& numpy_ = py::detail::npy_api::get();
  std::vector<py::object> input_dtypes_, output_dtypes_;  // None for host values
  std::vector<int32_t> overwritten_;      // by output: the input whose array it is; -1: a fresh one
  std::shared_ptr<const Latest> latest_;  // whoever has the GIL may read and set it
};

/// Methods that all of them have.
template <class Class>
void def_native_program(Class& bound) {
  using Program = typename Class::type;
  bound.def("selection_report", &Program::report, py::arg("sizes"))
      .def("memory", &Program::memory, py::arg("sizes"), py::arg("step") = -1)
      .def("symbols", &Program::symbols, py::arg("shapes"))
      .def("sizes", &Program::sizes, py::arg("symbols"))
      .def("run", py::overload_cast<const py::list&, bool>(&Program::run), py::arg("inputs"),
           py::arg("donates_state") = false);
}

}  // namespace mithril::bindings
