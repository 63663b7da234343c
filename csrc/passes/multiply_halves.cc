#include "passes/multiply_halves.h"

#include <algorithm>
#include <optional>

#include "ir/halves.h"
#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using core::DType;
using ir::kNoValue;
using ir::Node;
using ir::OpDef;
using ir::Value;
using ir::ValueId;

namespace {

bool reads_one(const Node& node) {
  return !node.operands.empty() && node.operands[0] != kNoValue &&
         std::all_of(node.operands.begin() + 1, node.operands.end(),
                     [](ValueId id) { return id == kNoValue; });
}

// Tells whether the result is elements of the operand, which a plan mostly reads where they lie.
bool shows_elements(const OpDef& op) {
  return op.has(ir::Trait::kTranspose) || op.has(ir::Trait::kReshape) ||
         op.has(ir::Trait::kBroadcast) || op.name == "index";
}

class Multiplier {
 public:
  Multiplier(const ir::Graph& graph, const SupportQuery& how)
      : rewriter_(graph),
        how_(how),
        matmul_(*ir::Registry::global().find("matmul")),
        product_(*ir::Registry::global().find("widening_matmul")),
        biased_(*ir::Registry::global().find("biased_matmul")),
        add_(*ir::Registry::global().find("add")),
        cast_(*ir::Registry::global().find("cast")),
        reads_(graph.values.size(), 0),
        is_constant_(graph.values.size(), false),
        is_product_(graph.values.size(), false),
        half_(graph.values.size()),
        narrow_(graph.values.size()) {
    const auto count = [&](ValueId id) { reads_[at(id)] += 1; };
    for (const Node& node : graph.nodes) {
      for (const ValueId id : node.operands) {
        if (id != kNoValue) count(id);
      }
    }
    for (const ir::Output& output : graph.outputs) count(output.value);
    for (const ir::StateBinding& state : graph.states) count(state.output);
  }

  core::Result<ir::Graph> run() {
    for (const Node& node : from().nodes) {
      learn(node);
      const bool is_replaced =
          (node.op == matmul_.id && multiply(node)) || (node.op == cast_.id && round_sum(node));
      if (!is_replaced) rewriter_.copy(node);
    }
    return rewriter_.finish();
  }

 private:
  const ir::Graph& from() const { return rewriter_.from(); }
  static size_t at(ValueId id) { return static_cast<size_t>(id); }

  void learn(const Node& node) {
    const OpDef& op = ir::Registry::global().get(node.op);
    const bool follows = !node.operands.empty() && node.regions.empty() && !op.random &&
                         std::all_of(node.operands.begin(), node.operands.end(), [&](ValueId id) {
                           return id == kNoValue || is_constant_[at(id)];
                         });
    for (const ValueId id : node.results) {
      is_constant_[at(id)] = follows || op.has(ir::Trait::kLiteral);
    }
    if (!reads_one(node)) return;
    const ValueId operand = node.operands[0], result = node.results[0];
    const ir::Type& type = from().type(operand);
    if (op.id == cast_.id && ir::is_half(type) && from().type(result).dtype == DType::kFloat32) {
      half_[at(result)] = type.dtype;
      narrow_[at(result)] = rewriter_.mapped(operand);
    } else if (shows_elements(op)) {
      half_[at(result)] = half_[at(operand)];
    }
  }

  bool multiply(const Node& node) {
    const ValueId left = node.operands[0], right = node.operands[1];
    const std::optional<DType> half = half_[at(left)];
    const bool is_folded = is_constant_[at(left)] && is_constant_[at(right)];
    if (!half || half_[at(right)] != half || is_folded) return false;
    if (!is_taken(product_, node.operands, *half)) return false;
    emit(product_, node.operands, node);
    is_product_[at(node.results[0])] = true;
    return true;
  }

  // Replaces what a layer rounds, the sum of a product and a bias that nobody else reads.
  bool round_sum(const Node& node) {
    const Node* const sum = from().producer(node.operands[0]);
    if (sum == nullptr || sum->op != add_.id || reads_[at(node.operands[0])] != 1) return false;
    for (const size_t i : {0, 1}) {
      const ValueId product = sum->operands[i], bias = sum->operands[1 - i];
      if (!is_product_[at(product)] || reads_[at(product)] != 1) continue;
      const Node& factors = *from().producer(product);
      const DType dtype = from().type(node.results[0]).dtype;
      const bool is_one = half_[at(factors.operands[0])] == dtype && half_[at(bias)] == dtype;
      const std::vector<ValueId> operands = {factors.operands[0], factors.operands[1], bias};
      if (!is_one || !is_row(bias, factors) || !is_taken(biased_, operands, dtype)) continue;
      emit(biased_, operands, node);
      return true;
    }
    return false;
  }

  // Tells whether the value is as long as rows of a product's result, which columns on its right
  // make.
  bool is_row(ValueId bias, const Node& product) const {
    const ir::Shape& row = from().type(bias).shape;
    const ir::Shape& shape = from().type(product.results[0]).shape;
    return row.size() == 1 && !shape.empty() && row[0] == shape.back() &&
           from().type(product.operands[1]).rank() > 1;
  }

  void emit(const OpDef& op, const std::vector<ValueId>& operands, const Node& node) {
    std::vector<ir::Operand> narrowed;
    for (const ValueId id : operands) narrowed.emplace_back(narrow(id));
    rewriter_.builder().set_location(node.location);
    rewriter_.map(node.results[0], rewriter_.builder().call(op.name, std::move(narrowed)));
  }

  // Asks of a product beside the graph, so that one that is not taken leaves nothing behind.
  bool is_taken(const OpDef& op, const std::vector<ValueId>& operands, DType half) const {
    ir::Graph beside;
    beside.default_float = from().default_float;
    beside.default_int = from().default_int;
    ir::Builder builder(beside);
    std::vector<ir::Operand> inputs;
    for (const ValueId id : operands) {
      inputs.emplace_back(builder.input("", ir::Type::tensor(half, from().type(id).shape)));
    }
    builder.call(op.name, std::move(inputs));
    return builder.status().ok() && how_(beside, beside.nodes.back()) == ir::Support::kAsIs;
  }

  // The halves of which the value shows the elements, shown in the same way.
  Value narrow(ValueId id) {
    std::vector<const Node*> way;
    for (; !narrow_[at(id)]; id = way.back()->operands[0]) way.push_back(from().producer(id));
    Value out = narrow_[at(id)];
    for (auto node = way.rbegin(); node != way.rend(); ++node) {
      rewriter_.builder().set_location((*node)->location);
      const OpDef& op = ir::Registry::global().get((*node)->op);
      out = rewriter_.builder().call_all(op, {out}, (*node)->attrs)[0];
      narrow_[at((*node)->results[0])] = out;
    }
    return out;
  }

  Rewriter rewriter_;
  const SupportQuery& how_;
  const OpDef& matmul_;
  const OpDef& product_;
  const OpDef& biased_;
  const OpDef& add_;
  const OpDef& cast_;
  std::vector<int> reads_;                  // by value: how often nodes and results read it
  std::vector<bool> is_constant_;           // by value
  std::vector<bool> is_product_;            // by value: of halves
  std::vector<std::optional<DType>> half_;  // by value: of which it shows the elements, widened
  std::vector<Value> narrow_;               // by value: those, as far as they have been asked for
};

}  // namespace

core::Result<ir::Graph> multiply_halves(const ir::Graph& graph, const SupportQuery& how) {
  return Multiplier(graph, how).run();
}

}  // namespace mithril::passes
