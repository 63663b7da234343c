// Ops that users declare: keys with types and shape templates, a function that the backend has.
#include <unordered_map>

#include "bindings/model_arguments.h"
#include "bindings/python.h"
#include "core/status.h"
#include "ir/builder.h"
#include "ir/registry.h"
#include "ir/vjp_op.h"

namespace mithril::bindings {
namespace {

using infer::KindSet;
using infer::ShapeTemplate;
using ir::OpDef;

/// Holds what is said of one key.
struct KeyFacts {
  std::string name;
  KindSet kinds;
  std::optional<ShapeTemplate> shape;
};

/// Templates as rules write them: symbols that are equal in one declaration are one unknown.
class TemplateTexts {
 public:
  std::string text(const ShapeTemplate& shape) {
    using Type = infer::TemplateItem::Type;
    std::string out;
    for (const infer::TemplateItem& item : shape) {
      if (!out.empty()) out += ' ';
      switch (item.type) {
        case Type::kSize: out += std::to_string(item.size); break;
        case Type::kSymbol: out += "d" + number(dims_, item.name); break;
        case Type::kUnknown: out += "_"; break;
        case Type::kVariadic:
          out += item.name.empty() ? "_..." : "...v" + number(variadics_, item.name);
          break;
      }
    }
    return out;
  }

 private:
  using Numbers = std::unordered_map<std::string, size_t>;
  static std::string number(Numbers& numbers, const std::string& name) {
    return std::to_string(numbers.emplace(name, numbers.size()).first->second);
  }
  Numbers dims_, variadics_;
};

KeyFacts to_facts(py::handle object) {
  const auto fields = py::reinterpret_borrow<py::tuple>(object);
  KeyFacts out{fields[0].cast<std::string>(), KindSet(fields[1].cast<uint32_t>()), {}};
  if (!fields[2].is_none()) out.shape = to_template(fields[2]);
  return out;
}

infer::Rule shape_rule(const std::vector<KeyFacts>& keys) {
  TemplateTexts texts;
  std::vector<std::pair<std::string, std::string>> templates;
  for (const KeyFacts& key : keys) {
    if (key.shape) templates.emplace_back(key.name, texts.text(*key.shape));
  }
  return [templates](infer::RuleBuilder& rule) {
    for (const auto& [name, text] : templates) rule.shape(rule.in(name), text);
  };
}

/// The element type of the result follows from its kind, or from the first tensor.
ir::DTypeRule result_rule(const KeyFacts& output, const std::vector<KeyFacts>& inputs) {
  if (!output.kinds.may_be_tensor()) return ir::host_result();
  if (output.kinds == infer::kTensorBool) return ir::boolean();
  if (output.kinds == infer::kTensorInt) return ir::default_int();
  if (output.kinds != infer::kFloating) {
    for (const KeyFacts& input : inputs) {
      if (input.kinds.may_be_tensor()) return ir::same_as(input.name);
    }
  }
  return ir::default_float();
}

ir::InputDef to_input(const KeyFacts& key) {
  ir::InputDef out;
  out.name = key.name;
  out.kinds = key.kinds;
  out.is_key = !key.kinds.may_be_tensor();
  return out;
}

/// Declares the op `name`; its vjps are ops `name_vjp0` … for inputs that are tensors.
/// A function that only this process has makes it opaque: no file can name it. It is an attribute,
/// so that equal declarations are one op whatever they call.
void define(const std::string& name, const py::iterable& keys, py::handle result, bool opaque) {
  std::vector<KeyFacts> inputs, all;
  for (const py::handle key : keys) inputs.push_back(to_facts(key));
  const KeyFacts output = to_facts(result);
  all = inputs;
  all.push_back(output);
  OpDef op;
  op.name = name;
  op.family = opaque ? "opaque" : "user";
  op.doc = "An op that a user declared.";
  for (const KeyFacts& key : inputs) op.inputs.push_back(to_input(key));
  op.outputs.push_back({"output", result_rule(output, inputs)});
  if (opaque) op.attrs.push_back({kFunctionAttr, std::nullopt});
  op.shape_rule = shape_rule(all);
  if (!inputs.empty()) {
    const bool named_input = op.input_index("input") >= 0;
    op.canonical_inputs.push_back(named_input ? "input" : op.inputs.front().name);
  }
  for (const ir::InputDef& input : op.inputs) op.connect_order.push_back(input.name);
  op.connect_order.push_back(op.outputs.front().name);
  ir::Registry& registry = ir::Registry::global();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].kinds.may_be_tensor()) continue;
    OpDef vjp = ir::vjp_of(op, output.kinds, i);
    vjp.gradient = [name](ir::GradBuilder& g) {
      g.builder().fail(core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported,
                                  "{} has no second derivative: its gradient is a function that "
                                  "nothing is known of",
                                  name));
    };
    std::move(registry.add(std::move(vjp))).or_throw();
  }
  op.differentiable = output.kinds.has(infer::ValueKind::kTensorFloat);
  op.gradient = [name](ir::GradBuilder& g) {
    ir::pull_back_by_vjps(g, name, *ir::Registry::global().find(name));
  };
  std::move(registry.add(std::move(op))).or_throw();
}

}  // namespace

void bind_primitive(py::module_& module) {
  module.def("define_primitive", &define, py::arg("name"), py::arg("keys"), py::arg("result"),
             py::arg("opaque"), "Registers an op; keys are tuples (name, kinds, shape or None).");
}

}  // namespace mithril::bindings
