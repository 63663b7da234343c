// A reduced loss is replaced by the loss of single values and a sum or mean over all of them. Its
// gradient hands each single value its share of the cotangent, and is theirs from there on.
#include "ops/reduced_loss.h"

namespace mithril::ops {
namespace {

constexpr const char* kName = "reduction";

bool is_reduced(const HostValue* reduction) {
  return reduction != nullptr && reduction->is_string() && reduction->as_string() != "none";
}

bool is_mean(const Builder& b) { return b.attr(kName).as_string() == "mean"; }

// The loss of the same operands that is not reduced.
Value single_values(Builder& b) {
  std::vector<Operand> operands;
  for (const ir::ValueId id : b.node().operands) operands.emplace_back(b.value(id));
  Attrs attrs = b.node().attrs;
  attrs.set(kName, "none");
  return b.call(b.op().name, std::move(operands), std::move(attrs));
}

Value weights_in_mean(Builder& b, const Loss& loss) {
  return loss.weights && is_mean(b) ? loss.weights(b) : Value();
}

Value reduced(Builder& b, const Loss& loss) {
  const HostValue all;
  const Value each = single_values(b);
  if (!is_mean(b)) return sum(each, all);
  const Value weights = weights_in_mean(b, loss);
  return weights ? sum(each, all) / sum(weights, all) : mean(each, all);
}

infer::Rule rule_of(const Loss& loss) {
  return [shapes = loss.shapes](RuleBuilder& r) {
    const auto relate = [&](Term each) {
      r.kind(each, kTensor);
      if (shapes) {
        shapes(r, each);
      } else {
        r.broadcast(each, {r.in("input"), r.in("target")});
      }
    };
    const auto reduction = r.known(r.attr(kName));
    if (!is_reduced(reduction ? &*reduction : nullptr)) {
      relate(r.out());
      return;
    }
    relate(r.fresh());
    r.kind(r.out(), kFloating);
    r.shape(r.out(), "");
  };
}

// What each single value gets of the cotangent.
Value shared(Builder& b, const Loss& loss, Value cotangent, Value each) {
  if (is_mean(b)) {
    const Value weights = weights_in_mean(b, loss);
    cotangent = cotangent / (weights ? sum(weights, HostValue()) : count(each, HostValue()));
  }
  return broadcast_like(cotangent, each);
}

void gradient_of_reduced(GradBuilder& g, const Loss& loss) {
  Builder& b = g.builder();
  const ir::OpDef& op = b.op();
  const Value each = single_values(b);
  if (!each) return;
  const Value cotangent = shared(b, loss, g.dout(), each);
  if (!cotangent) return;
  std::vector<bool> wanted;
  for (const ir::InputDef& input : op.inputs) wanted.push_back(g.wants(input.name));
  const ir::Node node = *b.graph().producer(each.id);  // a copy: the rule appends nodes
  GradBuilder single(b, op, node, {cotangent});
  single.set_wanted(std::move(wanted));
  loss.gradient(single);
  for (const ir::InputDef& input : op.inputs) g.d(input.name) = single.d(input.name);
}

}  // namespace

OpDefBuilder& reducible(OpDefBuilder& block, Loss loss) {
  block.attr(kName, "none").choices({"none", "mean", "sum"}).rule(rule_of(loss));
  if (loss.gradient) {
    block.gradient([loss](GradBuilder& g) {
      if (is_reduced(&g.attr(kName))) {
        gradient_of_reduced(g, loss);
      } else {
        loss.gradient(g);
      }
    });
  }
  return block
      .expand_when(
          [](const ir::Graph&, const ir::Node& node) { return is_reduced(node.attrs.find(kName)); })
      .compose([loss](Builder& b) {
        return is_reduced(&b.attr(kName)) ? reduced(b, loss) : loss.body(b);
      });
}

OpDefBuilder& reduced_cases(OpDefBuilder& block, const std::string& left,
                            const std::string& right) {
  return block.with(at({{left, {4, 3}}, {right, {4, 3}}}, {{kName, "mean"}}))
      .with(at({{left, {4, 1}}, {right, {3}}}, {{kName, "sum"}}));
}

}  // namespace mithril::ops
