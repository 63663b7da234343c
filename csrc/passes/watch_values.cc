#include "passes/watch_values.h"

#include <algorithm>

#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using core::HostValue;
using ir::Node;
using ir::Value;
using ir::ValueId;

namespace {

/// By value: whether one of these outputs, or a state, needs it.
std::vector<bool> needed(const ir::Graph& graph, std::span<const std::string> outputs) {
  std::vector<bool> out(graph.values.size(), false);
  for (const ir::Output& output : graph.outputs) {
    const bool asked = std::find(outputs.begin(), outputs.end(), output.name) != outputs.end();
    if (asked) out[static_cast<size_t>(output.value)] = true;
  }
  for (const ir::StateBinding& state : graph.states) out[static_cast<size_t>(state.output)] = true;
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool is_needed = std::any_of(node->results.begin(), node->results.end(),
                                       [&](ValueId id) { return out[static_cast<size_t>(id)]; });
    if (!is_needed) continue;
    for (const ValueId id : node->operands) {
      if (id != ir::kNoValue) out[static_cast<size_t>(id)] = true;
    }
  }
  return out;
}

class Watcher {
 public:
  Watcher(const ir::Graph& graph, std::span<const std::string> forward, bool infinities)
      : graph_(graph),
        rewriter_(graph),
        infinities_(infinities),
        forward_(needed(graph, forward)),
        rows_(graph.values.size(), -1) {}

  core::Result<Watched> run() {
    for (const ValueId id : graph_.inputs) {
      watch(id, {Watch::Source::kInput, graph_.value(id).name, {}, {}});
    }
    for (const Node& node : graph_.nodes) {
      rewriter_.copy(node);
      for (const ValueId id : node.results) watch(id, watch_of(node, id));
    }
    const Value counts = joined();
    for (const ir::Output& output : graph_.outputs) {
      const int32_t row = rows_[static_cast<size_t>(output.value)];
      if (row >= 0) out_.ends.push_back(row);
    }
    MITHRIL_ASSIGN(out_.graph, rewriter_.finish());
    out_.graph.outputs.push_back({std::string(kWatchOutput), counts.id});
    return std::move(out_);
  }

 private:
  Watch watch_of(const Node& node, ValueId result) const {
    const ir::OpDef& op = ir::Registry::global().get(node.op);
    Watch out;
    out.source = op.has(ir::Trait::kLiteral)             ? Watch::Source::kConstant
                 : forward_[static_cast<size_t>(result)] ? Watch::Source::kForward
                                                         : Watch::Source::kGradient;
    out.name = op.name;
    out.location = graph_.location_of(node);
    for (const ValueId id : node.operands) {
      const int32_t row = id == ir::kNoValue ? -1 : rows_[static_cast<size_t>(id)];
      if (row >= 0) out.reads.push_back(row);
    }
    return out;
  }

  void watch(ValueId id, Watch watch) {
    const ir::Type& type = graph_.type(id);
    if (!type.is_tensor || !core::is_float(type.dtype)) return;
    const Value value = rewriter_.mapped(id);
    // Inf - Inf is NaN, and so is NaN - NaN.
    const Value bad = ir::apply("isnan", {infinities_ ? value - value : value});
    const Value count = ir::sum(ir::cast(bad, graph_.default_int), HostValue());
    counts_.emplace_back(ir::reshape(count, HostValue::ints({1})));
    rows_[static_cast<size_t>(id)] = static_cast<int32_t>(out_.watches.size());
    out_.watches.push_back(std::move(watch));
  }

  Value joined() {
    ir::Builder& builder = rewriter_.builder();
    if (counts_.empty()) {
      return builder.call(
          "zeros", {}, {{"shape", HostValue::ints({0})}, {"dtype", HostValue(graph_.default_int)}});
    }
    std::vector<ir::Operand> operands{HostValue(0)};  // the axis
    operands.insert(operands.end(), counts_.begin(), counts_.end());
    return builder.call("concat", std::move(operands));
  }

  const ir::Graph& graph_;
  Rewriter rewriter_;
  bool infinities_;
  std::vector<bool> forward_;  // by value
  std::vector<int32_t> rows_;  // by value: its watch
  std::vector<Value> counts_;
  Watched out_;
};

}  // namespace

core::Result<Watched> watch_values(const ir::Graph& graph, std::span<const std::string> forward,
                                   bool infinities) {
  return Watcher(graph, forward, infinities).run();
}

}  // namespace mithril::passes
