// Graphs as text, and the registry of ops as plain Python values (for `codegen/generate.py`,
// backends and docs).
#include <algorithm>

#include "bindings/python.h"
#include "infer/kind.h"
#include "ir/infer_types.h"
#include "ir/registry.h"
#include "ir/text.h"
#include "passes/autodiff.h"
#include "passes/regions.h"
#include "passes/watch_values.h"

namespace mithril::bindings {
namespace {

using ir::Graph;
using ir::OpDef;

py::object host_or_missing(const std::optional<core::HostValue>& value) {
  static const py::handle missing =
      py::object(py::module_::import("mithril.types").attr("MISSING")).release();
  return value ? from_host(*value) : py::reinterpret_borrow<py::object>(missing);
}

py::dict describe_input(const OpDef& op, const ir::InputDef& input) {
  py::dict out;
  out["name"] = input.name;
  out["kinds"] = input.kinds.bits();
  out["type"] = infer::to_string(input.kinds);
  out["is_key"] = input.is_key;
  out["is_promoted"] = ir::is_promoted(op, input);
  out["variadic"] = input.variadic;
  out["optional"] = input.optional;
  out["trainable"] = input.trainable;
  out["when"] = input.when;
  out["default"] = host_or_missing(input.default_value);
  out["low"] = input.low;
  out["high"] = input.high;
  return out;
}

py::dict describe_sample(const ir::Sample& sample) {
  py::list shapes;
  for (const auto& [name, shape] : sample.shapes) {
    shapes.append(py::make_tuple(name, py::tuple(py::cast(shape))));
  }
  py::dict attrs;
  for (const auto& [name, value] : sample.attrs) attrs[py::str(name)] = from_host(value);
  py::dict out;
  out["shapes"] = shapes;
  out["attrs"] = attrs;
  out["integers"] = sample.integers;
  return out;
}

const char* to_string(ir::DTypeRule::Compute compute) {
  switch (compute) {
    case ir::DTypeRule::Compute::kKeep: return "keep";
    case ir::DTypeRule::Compute::kPromote: return "promote";
    case ir::DTypeRule::Compute::kPromoteFloat: return "promote_float";
    case ir::DTypeRule::Compute::kPromoteInt: return "promote_int";
    case ir::DTypeRule::Compute::kPromoteNumber: return "promote_number";
  }
  return "";
}

// What type a result has; "": that depends on values.
std::string describe_result(const ir::DTypeRule& rule) {
  switch (rule.result) {
    case ir::DTypeRule::Result::kCompute: return "compute";
    case ir::DTypeRule::Result::kSameAs: return "input " + rule.name;
    case ir::DTypeRule::Result::kWideAs: return "wide input " + rule.name;
    case ir::DTypeRule::Result::kBool: return "bool";
    case ir::DTypeRule::Result::kDefaultInt: return "default_int";
    case ir::DTypeRule::Result::kDefaultFloat: return "default_float";
    default: return "";
  }
}

py::dict describe(const OpDef& op) {
  py::list inputs, attrs, outputs, results, samples, errors;
  for (const ir::InputDef& input : op.inputs) inputs.append(describe_input(op, input));
  py::dict attr_types;
  for (const ir::AttrDef& attr : op.attrs) {
    attrs.append(py::make_tuple(attr.name, host_or_missing(attr.default_value)));
    attr_types[py::str(attr.name)] = py::make_tuple(attr.kinds.bits(), attr.choices);
  }
  for (const ir::OutputDef& output : op.outputs) {
    outputs.append(output.name);
    results.append(describe_result(output.dtype));
  }
  for (const ir::Sample& sample : op.samples) samples.append(describe_sample(sample));
  for (const ir::ErrorSample& error : op.error_samples) {
    errors.append(py::make_tuple(describe_sample(error.sample), error.message));
  }
  py::dict out;
  out["name"] = op.name;
  out["python_name"] = op.python_name;
  out["aliases"] = op.aliases;
  out["python_aliases"] = op.python_aliases;
  out["family"] = op.family;
  out["doc"] = op.doc;
  out["formula"] = op.formula;
  out["inputs"] = inputs;
  out["attrs"] = attrs;
  out["attr_types"] = attr_types;
  out["outputs"] = outputs;
  out["compute"] = to_string(op.compute);
  out["results"] = results;
  out["connect_order"] = op.connect_order;
  out["argument_order"] = op.argument_order;
  out["canonical_inputs"] = op.canonical_inputs;
  out["body"] = static_cast<int>(op.body);
  out["has_gradient"] = static_cast<bool>(op.gradient) || op.body == ir::BodyKind::kCompose;
  out["differentiable"] = op.differentiable;
  out["has_kinks"] = op.has_kinks;
  out["random"] = op.random;
  out["bounded"] = op.bounded;
  out["kinks"] = op.kinks;
  out["points"] = op.points;
  out["samples"] = samples;
  out["error_samples"] = errors;
  return out;
}

py::list ops() {
  py::list out;
  for (const OpDef* op : ir::Registry::global().all()) out.append(describe(*op));
  return out;
}

py::dict find_op(const std::string& name) {
  return describe(*ir::Registry::global().lookup(name).or_throw());
}

py::dict kinds() {
  py::dict out;
  for (int i = 0; i < infer::kValueKindCount; ++i) {
    const auto kind = static_cast<infer::ValueKind>(i);
    out[py::str(std::string(infer::spelling(kind)))] = infer::KindSet(kind).bits();
  }
  return out;
}

py::list shape_items(const Graph& graph, const ir::Shape& shape) {
  py::list out;
  for (const infer::Dim dim : shape) {
    const ir::Shape one{dim};
    if (ir::is_static(one)) {
      out.append(ir::static_dims(one)[0]);
    } else {
      const std::string text = ir::to_string(one, graph.dims);
      out.append(text.substr(1, text.size() - 2));
    }
  }
  return out;
}

py::list signature(const Graph& graph) {
  static const char* roles[] = {"data", "param", "state", "cotangent"};
  py::list out;
  for (const ir::ValueId id : graph.inputs) {
    const ir::ValueInfo& value = graph.value(id);
    py::object dtype = py::none(), shape = py::none();
    if (value.type.is_tensor) {
      dtype = from_dtype(value.type.dtype);
      shape = shape_items(graph, value.type.shape);
    }
    out.append(py::make_tuple(value.name, roles[static_cast<int>(value.role)], dtype, shape));
  }
  return out;
}

/// (op, model path, file, line) of each node.
void append_nodes(py::list& out, const Graph& graph, bool inner) {
  for (const ir::Node& node : graph.nodes) {
    const core::Location& at = graph.location_of(node);
    out.append(py::make_tuple(ir::Registry::global().get(node.op).name, at.path, at.file, at.line));
    if (!inner) continue;
    for (const auto& region : node.regions) append_nodes(out, *region, inner);
  }
}

py::list nodes(const Graph& graph, bool inner) {
  py::list out;
  append_nodes(out, graph, inner);
  return out;
}

Graph differentiate(const Graph& graph, std::vector<std::string> outputs,
                    std::vector<std::string> wrt) {
  passes::DifferentiateOptions options;
  options.outputs = std::move(outputs);
  options.wrt = std::move(wrt);
  return passes::differentiate(graph, options).or_throw();
}

/// (the graph with counts, [(source, name, path, file, line, reads)], watches that are results).
py::tuple watch_values(const Graph& graph, const std::vector<std::string>& forward,
                       bool infinities) {
  static const char* sources[] = {"input", "constant", "forward", "gradient"};
  passes::Watched watched = passes::watch_values(graph, forward, infinities).or_throw();
  py::list rows;
  for (const passes::Watch& watch : watched.watches) {
    rows.append(py::make_tuple(sources[static_cast<int>(watch.source)], watch.name,
                               watch.location.path, watch.location.file, watch.location.line,
                               watch.reads));
  }
  return py::make_tuple(std::move(watched.graph), rows, watched.ends);
}

bool has_data_sizes(const Graph& graph) {
  const auto is_mask = [](const Graph& one, ir::ValueId id) {
    return id != ir::kNoValue && one.type(id).is_tensor && one.type(id).dtype == core::DType::kBool;
  };
  return passes::anywhere(graph, [&](const Graph& one) {
    return std::any_of(one.nodes.begin(), one.nodes.end(), [&](const ir::Node& node) {
      const OpDef& op = ir::Registry::global().get(node.op);
      if (op.sized_by_data) return true;
      const int index = op.input_index("index");
      return index >= 0 && std::any_of(node.operands.begin() + index, node.operands.end(),
                                       [&](ir::ValueId id) { return is_mask(one, id); });
    });
  });
}

bool has_empty(const Graph& graph) {
  return passes::anywhere(graph, [](const Graph& one) {
    return std::any_of(one.values.begin(), one.values.end(), [](const ir::ValueInfo& value) {
      const ir::Shape& shape = value.type.shape;
      return value.type.is_tensor &&
             std::find(shape.begin(), shape.end(), infer::Dim(0)) != shape.end();
    });
  });
}

bool has_op(const Graph& graph, const std::string& name) {
  const ir::OpDef* op = ir::Registry::global().find(name);
  return op != nullptr && passes::has_op(graph, op->id);
}

}  // namespace

void bind_graph(py::module_& module) {
  py::class_<Graph>(module, "Graph", "A flat program of ops; its text form is its repr.")
      .def_static(
          "parse", [](const std::string& text) { return ir::parse(text).or_throw(); },
          py::arg("text"))
      .def("__str__", [](const Graph& graph) { return ir::print(graph); })
      .def("verify", [](const Graph& graph) { ir::verify(graph).or_throw(); })
      .def("differentiate", &differentiate, py::arg("outputs"), py::arg("wrt"),
           "The graph with the gradient program of some outputs appended; needs concrete dtypes.")
      .def_property_readonly("name", [](const Graph& graph) { return graph.name; })
      .def_property_readonly("inputs", &signature, "(name, role, dtype, shape) of each input.")
      .def_property_readonly("outputs",
                             [](const Graph& graph) {
                               py::list out;
                               for (const ir::Output& output : graph.outputs) {
                                 out.append(output.name);
                               }
                               return out;
                             })
      .def("nodes", &nodes, py::arg("inner") = false,
           "(op, model path, file, line) of each node; `inner`: also of those that others run.")
      .def(
          "dot", [](const Graph& graph) { return ir::dot(graph); }, "Text for graphviz.")
      .def("has_op", &has_op, "Whether a node is of the op, or a node that another one runs.")
      .def("has_data_sizes", &has_data_sizes,
           "Whether sizes follow from data: bools of a call choose elements, or ops count them.")
      .def("has_empty", &has_empty, "Whether a tensor is known to have no elements.")
      .def("__len__", [](const Graph& graph) { return graph.nodes.size(); });
  module.def("watch_values", &watch_values, py::arg("graph"), py::arg("forward"),
             py::arg("infinities"),
             "A graph whose last output counts the NaN of each float value, and what these are.");
  module.def("kind_text", [](uint32_t bits) { return infer::to_string(infer::KindSet(bits)); });
  module.def("kinds", &kinds, "Name -> bit of each kind of content that a wire may have.");
  module.def("ops", &ops, "Every op of the registry as a dictionary.");
  module.def("find_op", &find_op, py::arg("name"), "One op by name or alias.");
}

}  // namespace mithril::bindings
