#include "passes/autodiff.h"

#include <unordered_map>

#include "ir/builder.h"
#include "passes/backward.h"
#include "passes/decompose.h"
#include "passes/expand_gradients.h"
#include "passes/scan_gradient.h"

namespace mithril::passes {

using core::Code;
using core::ErrorKind;
using core::Status;
using ir::kNoValue;
using ir::OpDef;
using ir::Value;
using ir::ValueId;

namespace {

class Differentiator {
 public:
  Differentiator(ir::Graph graph, const DifferentiateOptions& options)
      : graph_(std::move(graph)), options_(options), builder_(graph_), backward_(builder_) {}

  core::Result<ir::Graph> run() {
    MITHRIL_RETURN_IF_ERROR(find_inputs());
    backward_.find_dependents();
    MITHRIL_RETURN_IF_ERROR(seed());
    MITHRIL_RETURN_IF_ERROR(backward_.run());
    return finish();
  }

 private:
  Status find_inputs() {
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
      backward_.want(id);
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
    backward_.add(id, cotangent);
    return {};
  }

  core::Result<ir::Graph> finish() {
    if (!options_.keep_outputs) graph_.outputs.clear();
    for (size_t i = 0; i < wrt_.size(); ++i) {
      builder_.output("grad." + options_.wrt[i], backward_.take(wrt_[i]));
    }
    MITHRIL_RETURN_IF_ERROR(builder_.take_status());
    return std::move(graph_);
  }

  ir::Graph graph_;
  const DifferentiateOptions& options_;
  ir::Builder builder_;
  Backward backward_;
  std::vector<ValueId> wrt_;  // the inputs that options_.wrt names
};

}  // namespace

core::Result<ir::Graph> differentiate(const ir::Graph& graph, const DifferentiateOptions& options) {
  if (has_gradients(graph)) {
    MITHRIL_ASSIGN(const ir::Graph expanded, expand_gradients(graph));
    return differentiate(expanded, options);
  }
  MITHRIL_ASSIGN(ir::Graph expanded, decompose_if(graph, [](const OpDef& op) {
                   return op.expands_first || (op.differentiable && !op.gradient);
                 }));
  MITHRIL_ASSIGN(ir::Graph told, stack_carries(expanded));
  return Differentiator(std::move(told), options).run();
}

}  // namespace mithril::passes
