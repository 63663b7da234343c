#include "passes/autodiff.h"

#include <algorithm>
#include <unordered_map>

#include "ir/builder.h"
#include "passes/decompose.h"

namespace mithril::passes {

using core::Code;
using core::ErrorKind;
using core::Status;
using ir::GradBuilder;
using ir::kNoValue;
using ir::Node;
using ir::OpDef;
using ir::Value;
using ir::ValueId;

namespace {

bool is_differentiable(const ir::Type& type) {
  return type.is_tensor && core::is_float(type.dtype);
}

class Differentiator {
 public:
  Differentiator(ir::Graph graph, const DifferentiateOptions& options)
      : graph_(std::move(graph)), options_(options), builder_(graph_) {}

  core::Result<ir::Graph> run() {
    const size_t node_count = graph_.nodes.size();
    MITHRIL_RETURN_IF_ERROR(find_dependents());
    cotangents_.assign(graph_.values.size(), Value{});
    MITHRIL_RETURN_IF_ERROR(seed());
    for (size_t at = node_count; at-- > 0;) MITHRIL_RETURN_IF_ERROR(pull_back(at));
    return finish();
  }

 private:
  bool depends(ValueId id) const {
    return id != kNoValue && static_cast<size_t>(id) < depends_.size() &&
           depends_[static_cast<size_t>(id)];
  }

  // A value depends on a wanted input when a chain of differentiable values leads there.
  Status find_dependents() {
    depends_.assign(graph_.values.size(), false);
    std::unordered_map<std::string_view, ValueId> inputs;
    for (const ValueId id : graph_.inputs) inputs.emplace(graph_.value(id).name, id);
    for (const std::string& name : options_.wrt) {
      const auto found = inputs.find(name);
      const ValueId id = found == inputs.end() ? kNoValue : found->second;
      wrt_.push_back(id);
      if (id == kNoValue) {
        return core::fail(ErrorKind::kKey, Code::kKeyUnknown, "no input named '{}'{}", name,
                          core::suggestion(name, input_names()));
      }
      if (!is_differentiable(graph_.type(id))) {
        return core::fail(ErrorKind::kDType, Code::kDifferentiability,
                          "a gradient is asked for '{}', which is {}: only float tensors have one",
                          name, to_string(graph_.type(id), graph_.dims));
      }
      depends_[static_cast<size_t>(id)] = true;
    }
    for (const Node& node : graph_.nodes) {
      const OpDef& op = ir::Registry::global().get(node.op);
      const bool reached =
          op.differentiable && std::any_of(node.operands.begin(), node.operands.end(),
                                           [&](ValueId id) { return depends(id); });
      if (!reached) continue;
      for (const ValueId id : node.results) {
        depends_[static_cast<size_t>(id)] = is_differentiable(graph_.type(id));
      }
    }
    return {};
  }

  std::vector<std::string> input_names() const {
    std::vector<std::string> out;
    for (const ValueId id : graph_.inputs) out.push_back(graph_.value(id).name);
    return out;
  }

  Status seed() {
    for (const std::string& name : options_.outputs) {
      MITHRIL_RETURN_IF_ERROR(seed_output(name, false));
    }
    for (const std::string& name : options_.unit) {
      MITHRIL_RETURN_IF_ERROR(seed_output(name, true));
    }
    return {};
  }

  Status seed_output(const std::string& name, bool unit) {
    const ValueId id = graph_.find_output(name);
    if (id == kNoValue) {
      std::vector<std::string> known;
      for (const ir::Output& output : graph_.outputs) known.push_back(output.name);
      return core::fail(ErrorKind::kKey, Code::kKeyUnknown, "no output named '{}'{}", name,
                        core::suggestion(name, known));
    }
    const ir::Type type = graph_.type(id);
    if (!is_differentiable(type)) {
      return core::fail(ErrorKind::kDType, Code::kDifferentiability,
                        "output '{}' is {}: only float tensors take a cotangent", name,
                        to_string(type, graph_.dims));
    }
    const Value cotangent = unit ? ir::ones_like(builder_.value(id))
                                 : builder_.input("cotangent." + name, type, ir::Role::kCotangent);
    add(id, cotangent);
    return {};
  }

  void add(ValueId id, Value cotangent) {
    Value& sum = cotangents_[static_cast<size_t>(id)];
    sum = sum ? sum + cotangent : cotangent;
  }

  Status pull_back(size_t at) {
    const Node node = graph_.nodes[at];  // a copy: rules append nodes
    const OpDef& op = ir::Registry::global().get(node.op);
    std::vector<Value> flowing;
    bool any = false;
    for (const ValueId id : node.results) {
      const Value cotangent = depends(id) ? cotangents_[static_cast<size_t>(id)] : Value{};
      any |= static_cast<bool>(cotangent);
      flowing.push_back(cotangent);
    }
    if (!any) return {};
    if (!op.gradient) {
      return core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                        "{} has no gradient, and one is asked through it", op.name);
    }
    builder_.set_location(node.location);
    GradBuilder rule(builder_, op, node, std::move(flowing));
    std::vector<bool> wanted;
    for (const ValueId id : node.operands) wanted.push_back(depends(id));
    rule.set_wanted(wanted);
    op.gradient(rule);
    MITHRIL_RETURN_IF_ERROR(located(builder_.take_status(), node));
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Value cotangent = rule.cotangents()[i];
      if (!cotangent || !wanted[i]) continue;
      const Value operand = builder_.value(node.operands[i]);
      add(operand.id, ir::cast(ir::sum_to(cotangent, operand), operand.dtype()));
    }
    return located(builder_.take_status(), node);
  }

  Status located(Status status, const Node& node) const {
    if (!status.ok() && !status.error().location.known()) {
      status.error().location = graph_.location_of(node);
    }
    return status;
  }

  core::Result<ir::Graph> finish() {
    if (!options_.keep_outputs) graph_.outputs.clear();
    for (size_t i = 0; i < wrt_.size(); ++i) {
      const ValueId id = wrt_[i];
      Value gradient = cotangents_[static_cast<size_t>(id)];
      if (!gradient) gradient = ir::zeros_like(builder_.value(id));
      builder_.output("grad." + options_.wrt[i], gradient);
    }
    MITHRIL_RETURN_IF_ERROR(builder_.take_status());
    return std::move(graph_);
  }

  ir::Graph graph_;
  const DifferentiateOptions& options_;
  ir::Builder builder_;
  std::vector<ValueId> wrt_;       // the inputs that options_.wrt names
  std::vector<bool> depends_;      // by value, for the forward part
  std::vector<Value> cotangents_;  // by value, for the forward part
};

}  // namespace

core::Result<ir::Graph> differentiate(const ir::Graph& graph, const DifferentiateOptions& options) {
  MITHRIL_ASSIGN(ir::Graph expanded, decompose_if(graph, [](const OpDef& op) {
                   return op.differentiable && !op.gradient;
                 }));
  return Differentiator(std::move(expanded), options).run();
}

}  // namespace mithril::passes
