// Optimizers: one step for one parameter. Numbers may be host values or tensors of rank 0; state
// and parameter keep their types.
#include <cmath>

#include "ops/block.h"

namespace mithril::ops {
namespace {

// An operand in the type of the parameter.
Value like_param(Builder& b, std::string_view name) {
  const DType dtype = b.in("param").dtype();
  if (b.has(name)) return cast(b.in(name), dtype);
  return b.scalar(b.number(name), dtype);
}

OpDefBuilder& step(OpDefBuilder& block, std::initializer_list<const char*> states) {
  block.input("param", kFloating).input("grad", kFloating).output("new_param", same_as("param"));
  std::vector<std::string> names;
  for (const char* state : states) {
    block.input(state, kFloating).output(std::string("new_") + state, same_as(state));
    names.emplace_back(state);
  }
  return block.not_differentiable().rule([names](RuleBuilder& r) {
    r.same_shape(r.in("grad"), r.in("param"));
    r.same_shape(r.out("new_param"), r.in("param"));
    r.kind(r.out("new_param"), kFloating);
    for (const std::string& name : names) {
      r.same_shape(r.in(name), r.in("param"));
      r.same_shape(r.out("new_" + name), r.in("param"));
      r.kind(r.out("new_" + name), kFloating);
    }
  });
}

constexpr infer::KindSet kRate = infer::kNumeric | infer::kScalarInt | infer::kScalarFloat;

Value decayed_gradient(Builder& b) {
  const Value g = like_param(b, "grad");
  const double decay = b.number("weight_decay");
  return decay == 0.0 ? g : g + b.in("param") * decay;
}

void define_sgd(OpFamily& ops) {
  step(ops.def("sgd").doc("Gradient descent: param - lr (grad + weight_decay param)."), {})
      .formula("p - lr \\, g")
      .input("lr", kRate, HostValue(0.01))
      .attr("weight_decay", 0.0)
      .compose([](Builder& b) { return b.in("param") - decayed_gradient(b) * like_param(b, "lr"); })
      .with(at({{"param", {2, 3}}, {"grad", {2, 3}}}, {{"lr", 0.1}}))
      .with(at({{"param", {4}}, {"grad", {4}}, {"lr", {}}}, {{"weight_decay", 0.1}}));

  step(
      ops.def("momentum")
          .doc("Gradient descent with momentum: v' = momentum v + grad, param - lr v'; nesterov: "
               "param - lr (grad + momentum v') (Sutskever et al., ICML 2013, in PyTorch's form)."),
      {"v"})
      .formula("v' = \\mu v + g, \\quad p - lr \\, v'")
      .input("lr", kRate, HostValue(0.01))
      .attr("momentum", 0.9)
      .attr("weight_decay", 0.0)
      .attr("nesterov", false)
      .compose_many([](Builder& b) {
        const Value g = decayed_gradient(b);
        const double momentum = b.number("momentum");
        const Value v = like_param(b, "v") * momentum + g;
        const Value direction = flag(b, "nesterov") ? g + v * momentum : v;
        return std::vector<Value>{b.in("param") - direction * like_param(b, "lr"),
                                  cast(v, b.in("v").dtype())};
      })
      .with(at({{"param", {2, 3}}, {"grad", {2, 3}}, {"v", {2, 3}}}, {{"lr", 0.1}}))
      .with(at({{"param", {4}}, {"grad", {4}}, {"v", {4}}},
               {{"nesterov", true}, {"weight_decay", 0.1}}));
}

// Kingma and Ba, arXiv:1412.6980, algorithm 1; `t` counts steps from 1.
std::vector<Value> adam_step(Builder& b, Value param, Value gradient) {
  const double beta1 = b.number("beta1");
  const double beta2 = b.number("beta2");
  const Value t = like_param(b, "t");
  const Value m = like_param(b, "m") * beta1 + gradient * (1.0 - beta1);
  const Value v = like_param(b, "v") * beta2 + square(gradient) * (1.0 - beta2);
  // 1 - beta^t without the cancellation that 0.999 would bring in float32.
  const auto correction = [&](double beta) { return -expm1(t * std::log(beta)); };
  const Value scale = 1.0 / sqrt(correction(beta2));  // once: a division takes ten times as long
  const Value root = sqrt(v) * scale + b.number("eps");
  const Value rate = like_param(b, "lr") / correction(beta1);
  return {param - rate * (m / root), cast(m, b.in("m").dtype()), cast(v, b.in("v").dtype())};
}

OpDefBuilder& adaptive(OpDefBuilder& block, double decay) {
  const Shapes shapes = {{"param", {2, 3}}, {"grad", {2, 3}}, {"m", {2, 3}}, {"v", {2, 3}}};
  return step(block, {"m", "v"})
      .input("t", kRate)
      .input("lr", kRate, HostValue(0.001))
      .attr("beta1", 0.9)
      .attr("beta2", 0.999)
      .attr("eps", 1e-8)
      .attr("weight_decay", decay)
      .sample("v", 0.0, 2.0)
      .with(at(shapes, {{"t", 1}, {"lr", 0.1}}))
      .with(at(shapes, {{"t", 10}, {"weight_decay", 0.1}}));
}

void define_adaptive(OpFamily& ops) {
  adaptive(ops.def("adam").doc("Adam; t counts steps from 1; weight_decay adds to the gradient "
                               "(Kingma and Ba, arXiv:1412.6980, algorithm 1)."),
           0.0)
      .compose_many([](Builder& b) { return adam_step(b, b.in("param"), decayed_gradient(b)); });

  adaptive(ops.def("adamw").doc("Adam with weight decay apart from the gradient; t counts steps "
                                "from 1 (Loshchilov and Hutter, arXiv:1711.05101, algorithm 2)."),
           0.01)
      .compose_many([](Builder& b) {
        const Value shrink = 1.0 - like_param(b, "lr") * b.number("weight_decay");
        return adam_step(b, b.in("param") * shrink, like_param(b, "grad"));
      });
}

}  // namespace

void define_optimizer(OpFamily& ops) {
  define_sgd(ops);
  define_adaptive(ops);
}

}  // namespace mithril::ops
