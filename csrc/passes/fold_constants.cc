#include "passes/fold_constants.h"

#include <algorithm>
#include <optional>

#include "core/tensor_data.h"
#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using core::HostValue;
using ir::kNoValue;
using ir::Node;
using ir::OpDef;
using ir::ValueId;

namespace {

/// Larger results are cheaper to compute than to keep with every specialisation.
constexpr int64_t kMostElements = 1 << 22;
/// So few elements are read as fast as they are made, and are no step of the plan.
constexpr int64_t kFew = 256;

class Folder {
 public:
  explicit Folder(const ir::Graph& graph) : graph_(graph), constant_(graph.values.size(), false) {}

  core::Result<ir::Graph> run(const Evaluate& evaluate) {
    find_constants();
    leave_transposes();
    find_frontier();
    if (frontier_.empty()) return graph_;
    auto literals = evaluate(constant_part());
    if (!literals.ok()) return graph_;  // the target cannot run it alone: nothing is lost
    return rewrite(*literals);
  }

 private:
  bool is_constant(ValueId id) const { return constant_[static_cast<size_t>(id)]; }
  const OpDef& op_of(const Node& node) const { return ir::Registry::global().get(node.op); }
  bool is_literal(const Node& node) const { return op_of(node).has(ir::Trait::kLiteral); }

  // A loop reads the smaller constant as quickly, and there is no larger one beside it.
  bool widens_integers(const Node& node) const {
    if (op_of(node).name != "cast" || elements(node.operands[0]) <= kFew) return false;
    const core::DType from = graph_.type(node.operands[0]).dtype;
    const core::DType to = graph_.type(node.results[0]).dtype;
    return core::is_integer(from) && core::is_float(to) && core::size_of(from) < core::size_of(to);
  }

  int64_t elements(ValueId id) const {
    int64_t count = 1;
    for (const infer::Dim dim : graph_.type(id).shape) {
      if (__builtin_mul_overflow(count, dim.value(), &count)) return INT64_MAX;
    }
    return count;
  }

  bool folds(const Node& node) const {
    if (is_literal(node)) return true;
    if (widens_integers(node)) return false;
    if (op_of(node).random) return false;
    std::optional<int64_t> most;
    for (const ValueId id : node.operands) {
      if (id == kNoValue) continue;
      if (!is_constant(id)) return false;
      most = std::max(most.value_or(0), elements(id));
    }
    if (!most) most = op_of(node).name == "full" ? 1 : kFew;
    return std::all_of(node.results.begin(), node.results.end(), [&](ValueId id) {
      return graph_.type(id).is_tensor && elements(id) <= std::min(*most, kMostElements);
    });
  }

  void find_constants() {
    for (const Node& node : graph_.nodes) {
      if (!folds(node)) continue;
      for (const ValueId id : node.results) constant_[static_cast<size_t>(id)] = true;
    }
  }

  // A transposed matrix is a view to the product that reads it: nothing would be gained by a copy.
  void leave_transposes() {
    enum Readers : uint8_t { kNone, kProducts, kOthers };
    std::vector<Readers> readers(graph_.values.size(), kNone);
    for (const ir::Output& output : graph_.outputs) {
      readers[static_cast<size_t>(output.value)] = kOthers;
    }
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      const ValueId id = node->results[0];
      const OpDef& op = op_of(*node);
      const bool is_transpose = op.has(ir::Trait::kTranspose);
      if (is_transpose && readers[static_cast<size_t>(id)] == kProducts) {
        constant_[static_cast<size_t>(id)] = false;
      }
      const bool multiplies =
          op.name == "matmul" || op.name == "widening_matmul" || op.name == "biased_matmul";
      const bool is_product = multiplies && !is_constant(id);
      const bool passes_on = is_transpose && !is_constant(id);
      for (const ValueId operand : node->operands) {
        if (operand == kNoValue) continue;
        Readers& known = readers[static_cast<size_t>(operand)];
        known = std::max(known, is_product || passes_on ? kProducts : kOthers);
      }
    }
  }

  // Constants that something else reads, literals aside.
  void find_frontier() {
    std::vector<bool> read(graph_.values.size(), false);
    for (const Node& node : graph_.nodes) {
      if (is_constant(node.results[0])) continue;
      for (const ValueId id : node.operands) {
        if (id != kNoValue) read[static_cast<size_t>(id)] = true;
      }
    }
    for (const ir::Output& output : graph_.outputs) read[static_cast<size_t>(output.value)] = true;
    for (const Node& node : graph_.nodes) {
      if (is_literal(node)) continue;
      for (const ValueId id : node.results) {
        if (is_constant(id) && read[static_cast<size_t>(id)]) frontier_.push_back(id);
      }
    }
  }

  ir::Graph constant_part() const {
    Rewriter rewriter(graph_);
    for (const Node& node : graph_.nodes) {
      if (is_constant(node.results[0])) rewriter.copy(node);
    }
    ir::Graph& out = rewriter.graph();
    for (const ValueId id : frontier_) {
      out.outputs.push_back({std::to_string(id), rewriter.mapped(id).id});
    }
    out.inputs.clear();
    return std::move(out);
  }

  // A single number stays an immediate of the loops that read it.
  static ir::Value literal(ir::Builder& builder,
                           const std::shared_ptr<const core::TensorData>& data) {
    if (!data->shape.empty()) return builder.constant(data);
    return builder.call("constant", std::vector<ir::Operand>{},
                        {{"value", core::element(*data, 0)}, {"dtype", HostValue(data->dtype)}});
  }

  core::Result<ir::Graph> rewrite(
      const std::vector<std::shared_ptr<const core::TensorData>>& literals) const {
    Rewriter rewriter(graph_);
    for (size_t i = 0; i < frontier_.size(); ++i) {
      rewriter.builder().set_location(graph_.producer(frontier_[i])->location);
      rewriter.map(frontier_[i], literal(rewriter.builder(), literals[i]));
    }
    for (const Node& node : graph_.nodes) {
      if (!is_constant(node.results[0]) || is_literal(node)) rewriter.copy(node);
    }
    return rewriter.finish();
  }

  const ir::Graph& graph_;
  std::vector<bool> constant_;  // by value
  std::vector<ValueId> frontier_;
};

}  // namespace

core::Result<ir::Graph> fold_constants(const ir::Graph& graph, const Evaluate& evaluate) {
  return Folder(graph).run(evaluate);
}

}  // namespace mithril::passes
