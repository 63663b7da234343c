// Compiling and running: what `python/mithril/compile.py` and the CPU backend are made of.
#include <unordered_map>

#include <pybind11/numpy.h>

#include "bindings/interrupt.h"
#include "bindings/model_arguments.h"
#include "bindings/native_backends.h"
#include "bindings/native_program.h"
#include "bindings/python.h"
#include "compile.h"
#include "emit/python.h"
#include "passes/bind_sizes.h"
#include "passes/liveness.h"
#include "passes/own_ops.h"
#include "passes/pack_weights.h"
#include "passes/rematerialize.h"
#include "runtime/random.h"

namespace mithril::bindings {
namespace {

using core::HostValue;
using CompiledPtr = std::shared_ptr<const Compiled>;

// --- compile --------------------------------------------------------------------------------

core::DType dtype_of(py::handle object) {
  const auto dtype = core::parse_dtype(object.cast<std::string>());
  MITHRIL_CHECK(dtype.has_value(), "no such dtype");
  return *dtype;
}

ir::Target native_target(const std::string& name, core::DType default_float) {
  for (const NativeBackend& backend : native_backends()) {
    if (backend.name == name) return backend.target(default_float);
  }
  throw core::ErrorException(
      core::fail(core::ErrorKind::kKey, core::Code::kKeyUnknown,
                 "engine_target: requires the name of a backend of the engine, got '{}'", name));
}

ir::Target to_target(const py::dict& fields) {
  const bool is_engine = fields["native"].cast<bool>();
  const core::DType default_float = dtype_of(fields["default_float"]);
  ir::Target out =
      is_engine ? native_target(fields["name"].cast<std::string>(), default_float) : ir::Target();
  out.default_int = dtype_of(fields["default_int"]);
  const py::object compute = fields["compute_float"];
  if (!compute.is_none()) out.compute_float = dtype_of(compute);
  if (is_engine) return out;
  out.name = fields["name"].cast<std::string>();
  out.default_float = default_float;
  for (const py::handle name : fields["keeps_whole"]) {
    out.keeps_whole.insert(name.cast<std::string>());
  }
  using Names = std::map<std::string, std::string, std::less<>>;
  out.own_functions = fields["own_functions"].cast<Names>();
  out.own_gradients = fields["own_gradients"].cast<Names>();
  return out;
}

model::FlattenOptions to_flatten_options(const py::dict& fields) {
  model::FlattenOptions out;
  out.data_keys = to_keys(fields["data_keys"]);
  out.trainable_keys = to_keys(fields["trainable_keys"]);
  out.discard_keys = to_keys(fields["discard_keys"]);
  out.constants = to_config<HostValue>(
      fields["constants"], [](py::handle object) { return to_host(object, "constant_keys"); });
  out.values = to_config<core::HostValue>(
      fields["values"], [](py::handle object) { return to_host(object, "evaluate"); });
  out.await_values = fields["await_values"].cast<bool>();
  out.shapes = to_config<infer::ShapeTemplate>(fields["shapes"], to_template);
  for (const py::handle entry : fields["item_shapes"]) {
    const auto parts = py::reinterpret_borrow<py::tuple>(entry);
    out.item_shapes.emplace_back(to_key(parts[0]), parts[1].cast<size_t>(), to_template(parts[2]));
  }
  for (const py::handle entry : fields["element_kinds"]) {
    const auto parts = py::reinterpret_borrow<py::tuple>(entry);
    out.element_kinds.emplace_back(to_key(parts[0]), parts[1].cast<size_t>(),
                                   core::kind(dtype_of(parts[2])));
  }
  out.types = to_config<infer::Type>(fields["types"], to_type);
  out.dtypes = to_config<core::DType>(fields["dtypes"], dtype_of);
  for (const py::handle item : fields["fetch"]) {
    const auto pair = py::reinterpret_borrow<py::tuple>(item);
    out.fetch.emplace_back(pair[0].cast<std::string>(), pair[1].cast<model::Connection&>());
  }
  out.mode = fields["train"].cast<bool>() ? model::Mode::kTrain : model::Mode::kEval;
  out.inference = fields["inference"].cast<bool>();
  out.strict = fields["strict"].cast<bool>();
  out.safe_names = fields["safe_names"].cast<bool>();
  out.safe_shapes = fields["safe_shapes"].cast<bool>();
  out.short_names = fields["short_names"].cast<bool>();
  out.path_names = fields["path_names"].cast<bool>();
  out.drops_discarded = fields["drops_discarded"].cast<bool>();
  out.names_of_part = fields["names_of_part"].cast<bool>();
  out.where = user_location();
  return out;
}

CompiledPtr compile_model(const model::Model& model, const py::dict& options,
                          const py::dict& target) {
  CompileOptions out;
  out.flatten = to_flatten_options(options);
  out.target = to_target(target);
  out.passes =
      passes::PipelineOptions::from_env(options["passes_off"].cast<std::vector<std::string>>());
  out.promote_mixed = options["promote_mixed"].cast<bool>();
  out.report = options["report"].cast<bool>();
  return interruptible([&] { return compile(model, std::move(out)).or_throw(); });
}

// --- what a compiled model says of itself ------------------------------------------------------

/// Solves symbols from the sizes of some keys, then tells the sizes of all.
class SizeSolver {
 public:
  explicit SizeSolver(const model::FlatGraph& interface)
      : interface_(interface), symbols_(interface.graph.dims.symbol_count(), -1) {}

  /// {name: sizes}; a typed error when they do not fit the compiled shapes or each other.
  void learn(const py::dict& given) {
    for (const auto& [name, object] : given) {
      const auto sizes = object.cast<std::vector<int64_t>>();
      if (const model::FlatKey* key = find(name.cast<std::string>())) learn(*key, sizes);
    }
    learn_products(given);
    for (const auto& [name, object] : given) {
      const auto sizes = object.cast<std::vector<int64_t>>();
      if (const model::FlatKey* key = find(name.cast<std::string>())) check(*key, sizes);
    }
  }

  /// Checks what the nodes of the model make of these sizes.
  void check_nodes() const { passes::check_sizes(interface_.graph, symbols_).or_throw(); }

  py::object size(infer::Dim dim) const {
    if (dim.known()) return py::int_(dim.value());
    const auto size = interface_.graph.dims.evaluate(dim, symbols_);
    return size ? py::object(py::int_(*size)) : py::object(py::none());
  }

 private:
  const model::FlatKey* find(const std::string& name) const {
    for (const model::FlatKey& key : interface_.keys) {
      if (key.name == name) return key.rank_known ? &key : nullptr;
    }
    return nullptr;
  }

  void learn(const model::FlatKey& key, const std::vector<int64_t>& sizes) {
    bool fits = key.shape.size() == sizes.size();
    const infer::DimTable& dims = interface_.graph.dims;
    for (size_t i = 0; fits && i < sizes.size(); ++i) fits = learn(dims, key.shape[i], sizes[i]);
    if (!fits) refuse(key, sizes);
  }

  // Solves g from `k*g` heads of queries beside `k` of keys, where a product shows it.
  void learn_products(const py::dict& given) {
    const auto is_open = [](int64_t size) { return size < 0; };
    if (std::none_of(symbols_.begin(), symbols_.end(), is_open)) return;
    infer::DimTable dims = interface_.graph.dims;
    const auto known = [&](infer::Dim symbol) {
      const int64_t size = symbols_[dims.symbol_index(symbol)];
      return size < 0 ? symbol : infer::Dim(size);
    };
    for (const auto& [name, object] : given) {
      const model::FlatKey* key = find(name.cast<std::string>());
      if (key == nullptr) continue;
      const auto sizes = object.cast<std::vector<int64_t>>();
      for (size_t i = 0; i < sizes.size(); ++i) {
        if (!key->shape[i].known() &&
            !learn(dims, dims.substitute(key->shape[i], known), sizes[i])) {
          refuse(*key, sizes);
        }
      }
    }
  }

  void check(const model::FlatKey& key, const std::vector<int64_t>& sizes) const {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const infer::Dim dim = key.shape[i];
      const auto size = dim.known() ? std::optional<int64_t>(dim.value())
                                    : interface_.graph.dims.evaluate(dim, symbols_);
      if (size && *size != sizes[i]) refuse(key, sizes);
    }
  }

  // Python adds the places.
  [[noreturn]] void refuse(const model::FlatKey& key, const std::vector<int64_t>& sizes) const {
    const std::string got = core::to_string(HostValue::list({sizes.begin(), sizes.end()}));
    core::Error error =
        core::fail(core::ErrorKind::kShape, core::Code::kShapeData,
                   "'{}' must have shape {}, got {}", key.name, key.shape_text, got);
    error.facts.push_back({fmt::format("{} : {}", key.name, key.shape_text), {}, {}, 0});
    error.facts.push_back({fmt::format("{} : {}", key.name, got), {}, {}, 0});
    for (size_t i = 0; i < sizes.size() && i < key.shape.size(); ++i) {
      const infer::Dim dim = key.shape[i];
      const auto size = dim.known() ? std::nullopt : interface_.graph.dims.evaluate(dim, symbols_);
      if (!size || *size == sizes[i]) continue;
      error.reasons.push_back(
          fmt::format("{} is {} by the other inputs", interface_.graph.dims.print(dim), *size));
    }
    throw core::ErrorException(std::move(error));
  }

  bool learn(const infer::DimTable& dims, infer::Dim dim, int64_t size) {
    if (dim.known()) return dim.value() == size;
    const auto solution = dims.solve(dim, size);
    if (!solution) return true;
    if (!solution->exact || solution->value < 0) return false;
    int64_t& symbol = symbols_[dims.symbol_index(solution->symbol)];
    if (symbol < 0) symbol = solution->value;
    return symbol == solution->value;
  }

  const model::FlatGraph& interface_;
  std::vector<int64_t> symbols_;
};

py::object shape_of(const model::FlatKey& key, const SizeSolver& sizes) {
  if (!key.rank_known) return py::none();
  py::list out;
  for (const infer::Dim dim : key.shape) out.append(sizes.size(dim));
  return out;
}

/// (shape, fan_in) of every key, None where unknown, as far as `given` tells.
py::list solve(const Compiled& self, const py::dict& given) {
  SizeSolver sizes(self.interface);
  sizes.learn(given);
  py::list out;
  for (const model::FlatKey& key : self.interface.keys) {
    const py::object fan_in = key.fan_in ? sizes.size(*key.fan_in) : py::object(py::none());
    out.append(py::make_tuple(shape_of(key, sizes), fan_in));
  }
  return out;
}

/// Shape of every output as far as `given` tells; None for what is no tensor. With `check` an
/// error where a node of the model does not take these sizes.
py::list solve_outputs(const Compiled& self, const py::dict& given, bool check) {
  SizeSolver sizes(self.interface);
  sizes.learn(given);
  if (check) sizes.check_nodes();
  const ir::Graph& graph = self.interface.graph;
  py::list out;
  for (const ir::Output& output : graph.outputs) {
    const ir::Type& type = graph.type(output.value);
    if (!type.is_tensor) {
      out.append(py::none());
      continue;
    }
    py::list shape;
    for (const infer::Dim dim : type.shape) shape.append(sizes.size(dim));
    out.append(shape);
  }
  return out;
}

/// Output -> (dtype or None, shape with None for what is not known).
py::dict output_types(const Compiled& self) {
  const py::list shapes = solve_outputs(self, {}, false);
  py::dict out;
  size_t i = 0;
  for (const ir::Output& output : self.typed.outputs) {
    const ir::Type& type = self.typed.type(output.value);
    const py::object dtype = type.is_tensor ? from_dtype(type.dtype) : py::object(py::none());
    out[py::str(output.name)] = py::make_tuple(dtype, shapes[i++]);
  }
  return out;
}

/// `type`: in the typed graph, if there is one.
py::dict describe_key(const model::FlatKey& key, const ir::Type* type) {
  static const char* roles[] = {"data", "param", "state", "cotangent"};
  static const char* kinds[] = {"bool", "int", "float"};
  py::dict out;
  out["name"] = key.name;
  out["role"] = roles[static_cast<int>(key.role)];
  out["trainable"] = key.trainable;
  out["is_tensor"] = type != nullptr ? type->is_tensor : key.kinds.is_tensor();
  out["dtype"] =
      type != nullptr && type->is_tensor ? from_dtype(type->dtype) : py::object(py::none());
  out["type"] = infer::to_string(key.kinds);
  out["init"] = ir::Init::kNames[static_cast<size_t>(key.init.kind)];
  out["initial"] = key.initial ? py::make_tuple(from_host(*key.initial)) : py::tuple();
  out["shape_text"] = key.shape_text;
  out["path"] = key.path;
  out["key"] = key.key;
  out["list"] = key.list;
  out["least_rank"] = key.least_rank;
  py::list open_kinds;
  for (size_t kind = 0; kind < std::size(kinds); ++kind) {
    if (key.open_kinds.meets(infer::tensor_of(static_cast<core::Kind>(kind)))) {
      open_kinds.append(kinds[kind]);
    }
  }
  out["open_kinds"] = py::tuple(open_kinds);
  return out;
}

py::list describe_keys(const Compiled& self) {
  std::unordered_map<std::string_view, const ir::Type*> types;
  if (self.typed.is_concrete()) {
    for (const ir::ValueId id : self.typed.inputs) {
      types.emplace(self.typed.value(id).name, &self.typed.type(id));
    }
  }
  py::list out;
  for (const model::FlatKey& key : self.interface.keys) {
    const auto at = key.value == ir::kNoValue ? types.end() : types.find(key.name);
    out.append(describe_key(key, at == types.end() ? nullptr : at->second));
  }
  return out;
}

/// The names of tensors in lists and tuples as the output has them.
py::object nest(const model::OutputList& output) {
  if (output.is_tensor()) return py::str(output.name);
  py::list items;
  for (const model::OutputList& item : output.items) items.append(nest(item));
  return output.is_list ? py::object(items) : py::object(py::tuple(items));
}

py::dict output_lists(const Compiled& self) {
  py::dict out;
  for (const model::OutputList& list : self.interface.output_lists) {
    out[py::str(list.name)] = nest(list);
  }
  return out;
}

py::list warnings(const Compiled& self) {
  py::list out;
  for (const model::Warning& warning : self.interface.warnings) {
    out.append(py::make_tuple(warning.category, warning.text));
  }
  return out;
}

py::list states(const Compiled& self) {
  py::list out;
  for (const ir::StateBinding& state : self.typed.states) {
    out.append(py::make_tuple(self.typed.value(state.input).name, from_host(state.initial)));
  }
  return out;
}

ir::Graph gradient(const Compiled& self, std::vector<std::string> outputs,
                   std::vector<std::string> wrt, std::vector<std::string> unit) {
  passes::DifferentiateOptions options;
  options.outputs = std::move(outputs);
  options.wrt = std::move(wrt);
  options.unit = std::move(unit);
  return interruptible([&] { return self.gradient(options).or_throw(); });
}

ir::Graph step(const Compiled& self, std::vector<std::string> outputs, std::vector<std::string> wrt,
               std::vector<std::string> unit, const std::string& optimizer,
               const py::dict& numbers) {
  passes::DifferentiateOptions options;
  options.outputs = std::move(outputs);
  options.wrt = std::move(wrt);
  options.unit = std::move(unit);
  passes::Optimizer update{optimizer, {}};
  for (const auto& [name, value] : numbers) {
    const auto key = name.cast<std::string>();
    update.attrs.set(key, to_host(value, key.c_str()));
  }
  return interruptible([&] { return self.step(options, update).or_throw(); });
}

void bind_compiled(py::module_& module) {
  py::class_<Compiled, std::shared_ptr<Compiled>>(module, "Compiled",
                                                  "What compiling a model gives.")
      .def_property_readonly("keys", &describe_keys)
      .def("solve", &solve, py::arg("given"))
      .def("solve_outputs", &solve_outputs, py::arg("given"), py::arg("check") = false)
      .def_property_readonly("output_types", &output_types)
      .def_property_readonly("outputs", [](const Compiled& self) { return self.interface.outputs; })
      .def_property_readonly(
          "differentiable_outputs",
          [](const Compiled& self) { return self.interface.output_differentiable; })
      .def_property_readonly("ignored_keys",
                             [](const Compiled& self) { return self.interface.ignored_keys; })
      .def_property_readonly("unknown_sizes",
                             [](const Compiled& self) { return self.interface.unknown_sizes; })
      .def_property_readonly("unknown_values",
                             [](const Compiled& self) { return self.interface.unknown_values; })
      .def_property_readonly("unknown_ranks",
                             [](const Compiled& self) { return self.interface.unknown_ranks; })
      .def_property_readonly("output_lists", &output_lists)
      .def_property_readonly("warnings", &warnings)
      .def_property_readonly("states", &states)
      .def_property_readonly(
          "records",
          [](const Compiled& self) {
            py::list out;
            for (const PassTime& record : self.records) {
              out.append(py::make_tuple(record.name, record.seconds, record.changed));
            }
            return out;
          })
      .def_property_readonly("graph", [](const Compiled& self) { return self.interface.graph; })
      .def_property_readonly("typed", [](const Compiled& self) { return self.typed; })
      .def_property_readonly("forward", [](const Compiled& self) { return self.forward; })
      .def_property_readonly("trace", [](const Compiled& self) { return self.options.trace; })
      .def("gradient", &gradient, py::arg("outputs"), py::arg("wrt"), py::arg("unit"))
      .def(
          "optimize",
          [](const Compiled& self, const ir::Graph& graph) {
            return interruptible([&] { return self.optimize(graph).or_throw(); });
          },
          py::arg("graph"), "A graph with concrete dtypes, optimised as the model's own are.")
      .def("step", &step, py::arg("outputs"), py::arg("wrt"), py::arg("unit"), py::arg("optimizer"),
           py::arg("numbers"));
}

py::tuple emit_python(const ir::Graph& graph, const py::dict& target,
                      const std::shared_ptr<Trace>& trace) {
  const Stopwatch watch;
  const ir::Target to = to_target(target);
  const emit::PythonSource source =
      interruptible([&] { return emit::python(graph, to).or_throw(); });
  if (trace) {
    trace->stage("emit", watch.seconds(), "python");
    if (trace->wants_source()) trace->source(source.text, "py");
  }
  py::list constants;
  for (const HostValue& constant : source.constants) constants.append(from_host(constant));
  return py::make_tuple(source.text, constants);
}

/// (the graph, (place of an input, whether it is transposed) of each weight).
py::tuple separate_weights(const ir::Graph& graph) {
  auto [separated, weights] = passes::separate_weights(graph).or_throw();
  py::list places;
  for (const passes::WeightInput& weight : weights) {
    places.append(py::make_tuple(weight.input, weight.transposed));
  }
  return py::make_tuple(std::move(separated), places);
}

/// Computes what stands for a matrix, as [k, n] if it is given as [n, k].
py::array_t<float> rounded_weights(const py::array_t<float, py::array::c_style>& matrix,
                                   bool transposed, const std::string& format) {
  MITHRIL_CHECK(matrix.ndim() == 2, "a weight of rank {}", matrix.ndim());
  core::MatrixView view{matrix.data(), matrix.shape(0), matrix.shape(1), matrix.shape(1), 1};
  if (transposed) view = {view.data, view.columns, view.rows, 1, view.row_step};
  const auto values = passes::rounded_weights(view, weight_format(format)).or_throw();
  py::array_t<float> out(std::vector<int64_t>{view.rows, view.columns});
  std::copy(values.begin(), values.end(), out.mutable_data());
  return out;
}

ir::Graph rematerialize(const ir::Graph& graph, const std::shared_ptr<Trace>& trace) {
  const Stopwatch watch;
  passes::Recomputed made = interruptible([&] {
    return passes::rematerialize(graph, passes::liveness, {std::nullopt, true}).or_throw();
  });
  if (trace) trace->recomputed(made, watch.seconds());
  return std::move(made.graph);
}

std::pair<uint32_t, uint32_t> derive_key(uint64_t seed, const std::string& path) {
  const runtime::RandomKey key = runtime::derive_key(seed, path);
  return {key.first, key.second};
}

/// Drawn in double precision.
py::array_t<double> random_uniform(uint64_t seed, const std::string& path, double low, double high,
                                   const std::vector<int64_t>& shape) {
  py::array_t<double> out(shape);
  const std::span<double> elements(out.mutable_data(), static_cast<size_t>(out.size()));
  runtime::fill_uniform(runtime::derive_key(seed, path), low, high, elements);
  return out;
}

}  // namespace

void bind_runtime(py::module_& module) {
  bind_compiled(module);
  module.def("compile", &compile_model, py::arg("model"), py::arg("options"), py::arg("target"));
  module.def("initializers", [] {
    py::list out;
    for (const std::string_view name : ir::Init::kNames) out.append(std::string(name));
    return py::tuple(out[py::slice(1, std::nullopt, std::nullopt)]);  // without "none"
  });
  module.def("optimizing_passes", [] {
    py::list out;
    for (const std::string_view name : passes::kOptimizingPasses) out.append(std::string(name));
    return out;
  });
  module.def(
      "define_own_op",
      [](const std::string& op, bool has_function, bool has_gradient) {
        return passes::define_own_op(op, has_function, has_gradient).or_throw();
      },
      py::arg("op"), py::arg("has_function"), py::arg("has_gradient"),
      "The op that stands for `op` on a backend that brings its function or its gradient.");
  module.def("emit_python", &emit_python, py::arg("graph"), py::arg("target"),
             py::arg("trace") = nullptr,
             "(text, constants) of a graph for a backend of emitted source.");
  module.def(
      "dequantize_weights",
      [](const ir::Graph& graph, const std::string& format) {
        return passes::dequantize_weights(graph, weight_format(format)).or_throw();
      },
      py::arg("graph"), py::arg("format"),
      "A graph whose products multiply by constants in few bits, as ordinary ops.");
  module.def("separate_weights", &separate_weights, py::arg("graph"),
             "The graph with weights of products as inputs of their own (passes/pack_weights.h).");
  module.def("rounded_weights", &rounded_weights, py::arg("matrix"), py::arg("transposed"),
             py::arg("format"));
  module.def("rematerialize", &rematerialize, py::arg("graph"), py::arg("trace") = nullptr,
             "A graph of known sizes whose text takes less memory (passes/rematerialize.h).");
  module.def("derive_key", &derive_key, py::arg("seed"), py::arg("path"));
  module.def("random_uniform", &random_uniform, py::arg("seed"), py::arg("path"), py::arg("low"),
             py::arg("high"), py::arg("shape"));
}

}  // namespace mithril::bindings
