#include "passes/append_optimizer.h"

#include <algorithm>
#include <unordered_map>

#include "ir/builder.h"
#include "ir/halves.h"

namespace mithril::passes {

using core::Code;
using core::ErrorKind;
using ir::Operand;
using ir::Value;
using ir::ValueId;

namespace {

bool takes(const ir::OpDef& op, std::string_view input) { return op.input_index(input) >= 0; }

std::vector<std::string> slots_of(const ir::OpDef& op) {
  std::vector<std::string> out;
  for (const ir::InputDef& input : op.inputs) {
    const bool slot =
        input.name != "param" && input.name != "grad" && input.name != "t" && input.name != "lr";
    if (slot && !input.is_key) out.push_back(input.name);
  }
  return out;
}

class OptimizerStep {
 public:
  OptimizerStep(ir::Graph graph, const ir::OpDef& op, const Optimizer& optimizer)
      : graph_(std::move(graph)), op_(op), optimizer_(optimizer), builder_(graph_) {}

  core::Result<ir::Graph> run(std::span<const std::string> params) {
    MITHRIL_CHECK(graph_.outputs.size() >= params.size(), "a graph without its gradients");
    const size_t kept = graph_.outputs.size() - params.size();
    for (size_t i = 0; i < params.size(); ++i) {
      gradients_.emplace(params[i], graph_.outputs[kept + i].value);
    }
    graph_.outputs.resize(kept);
    for (const ValueId id : graph_.inputs) params_.emplace(graph_.value(id).name, id);
    if (takes(op_, "lr")) {
      const core::DType type = ir::in_float32(graph_.default_float);
      lr_ = builder_.input("$opt.lr", ir::Type::tensor(type, {}));
    }
    if (takes(op_, "t")) count_step();
    for (const std::string& param : params) {
      MITHRIL_RETURN_IF_ERROR(update(param));
    }
    MITHRIL_RETURN_IF_ERROR(builder_.take_status());
    return std::move(graph_);
  }

 private:
  void count_step() {
    const Value before =
        builder_.input("$opt.t", ir::Type::tensor(graph_.default_int, {}), ir::Role::kState);
    count_ = before + 1.0;
    builder_.output("$new.$opt.t", count_);
  }

  core::Status update(const std::string& param) {
    const auto value = params_.find(param);
    const auto gradient = gradients_.find(param);
    if (value == params_.end() || gradient == gradients_.end()) {
      return core::fail(ErrorKind::kInternal, Code::kInternal, "no gradient of '{}' to step along",
                        param);
    }
    ir::Type kept = graph_.type(value->second);
    kept.dtype = ir::in_float32(kept.dtype);
    std::vector<Operand> operands;
    for (const ir::InputDef& input : op_.inputs) {
      if (input.name == "param") {
        operands.emplace_back(builder_.value(value->second));
      } else if (input.name == "grad") {
        operands.emplace_back(builder_.value(gradient->second));
      } else if (input.name == "lr") {
        operands.emplace_back(lr_);
      } else if (input.name == "t") {
        operands.emplace_back(count_);
      } else if (!input.is_key) {
        operands.emplace_back(
            builder_.input("$opt." + input.name + "." + param, kept, ir::Role::kState));
      } else {
        operands.emplace_back();
      }
    }
    const auto results = builder_.call_all(op_, std::move(operands), optimizer_.attrs);
    if (!builder_.status().ok()) return builder_.take_status();
    const std::vector<std::string> slots = slots_of(op_);
    builder_.output("$new." + param, results[0]);
    for (size_t i = 0; i < slots.size(); ++i) {
      builder_.output("$new.$opt." + slots[i] + "." + param, results[i + 1]);
    }
    return {};
  }

  ir::Graph graph_;
  const ir::OpDef& op_;
  const Optimizer& optimizer_;
  ir::Builder builder_;
  std::unordered_map<std::string, ValueId> gradients_, params_;
  Value lr_, count_;
};

}  // namespace

core::Result<std::vector<std::string>> optimizer_slots(const Optimizer& optimizer) {
  MITHRIL_ASSIGN(const ir::OpDef* op, ir::Registry::global().lookup(optimizer.op));
  return slots_of(*op);
}

core::Result<ir::Graph> append_optimizer(const ir::Graph& gradient, const Optimizer& optimizer,
                                         std::span<const std::string> params) {
  MITHRIL_ASSIGN(const ir::OpDef* op, ir::Registry::global().lookup(optimizer.op));
  return OptimizerStep(gradient, *op, optimizer).run(params);
}

}  // namespace mithril::passes
