#include "passes/scan_gradient.h"

#include <algorithm>

#include "ir/halves.h"
#include "ir/scan.h"
#include "passes/autodiff.h"
#include "passes/backward.h"
#include "passes/remove_dead.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using ir::Graph;
using ir::Node;
using ir::ScanParts;
using ir::Value;
using ir::ValueId;

namespace {

/// The y that is the carry as each step finds it; none if the scan does not tell.
std::optional<size_t> stacked_carry(const Graph& body, const ScanParts& parts, size_t carry) {
  for (size_t i = 0; i < parts.ys; ++i) {
    if (body.outputs[parts.y(i)].value == body.inputs[carry]) return i;
  }
  return std::nullopt;
}

void tell_carries(Rewriter& rewriter, const Node& node) {
  ScanParts parts = ir::scan_parts(node);
  Graph body = *node.regions[0];
  std::vector<ir::Type> y_types;
  for (size_t i = 0; i < parts.ys; ++i) {
    y_types.push_back(rewriter.from().type(node.results[parts.y(i)]));
  }
  const size_t told = parts.ys;
  for (size_t i = 0; i < parts.carries; ++i) {
    if (stacked_carry(body, parts, i)) continue;
    body.outputs.push_back({"", body.inputs[i]});
    ir::Type type = rewriter.from().type(node.operands[i]);
    type.shape.insert(type.shape.begin(), ir::length_of(parts));
    y_types.push_back(std::move(type));
    ++parts.ys;
  }
  if (parts.ys == told) {
    rewriter.copy(node);
    return;
  }
  ir::name_parts(body, parts);
  std::vector<Value> operands;
  for (const ValueId id : node.operands) operands.push_back(rewriter.mapped(id));
  rewriter.builder().set_location(node.location);
  const auto results = ir::call_scan(rewriter.builder(), parts, operands,
                                     std::make_shared<const Graph>(std::move(body)), y_types);
  for (size_t i = 0; i < node.results.size(); ++i) rewriter.map(node.results[i], results[i]);
}

/// One use of the rule.
class ScanGradient {
 public:
  explicit ScanGradient(ir::GradBuilder& g)
      : g_(g), node_(g.node()), parts_(ir::scan_parts(node_)), body_(*node_.regions[0]) {}

  core::Status run() {
    ir::name_parts(body_, parts_);
    choose();
    MITHRIL_ASSIGN(Graph step, differentiate(body_, options()));
    make_operands();
    MITHRIL_ASSIGN(Graph body, made_body(std::move(step)));
    ScanParts parts;
    parts.carries = carries_.size() + constants_.size();
    parts.xs = parts_.carries + parts_.xs + ys_.size();
    parts.constants = parts_.constants;
    parts.ys = xs_.size();
    parts.reverse = !parts_.reverse;
    parts.length = parts_.length;
    ir::name_parts(body, parts);
    std::vector<ir::Type> y_types;
    for (const size_t x : xs_) y_types.push_back(operand(parts_.x(x)).type());
    const auto results = ir::call_scan(g_.builder(), parts, operands_,
                                       std::make_shared<const Graph>(std::move(body)), y_types);
    state(results);
    return {};
  }

 private:
  Value operand(size_t at) { return g_.builder().value(node_.operands[at]); }
  Value result(size_t at) { return g_.builder().value(node_.results[at]); }
  bool is_wanted(size_t at) const {
    return g_.wants_operand(at) && is_differentiable(body_.type(body_.inputs[at]));
  }

  // Between steps cotangents go through every carry that may have one.
  void choose() {
    for (size_t i = 0; i < parts_.carries; ++i) {
      if (is_differentiable(body_.type(body_.inputs[i]))) carries_.push_back(i);
    }
    for (size_t i = 0; i < parts_.xs; ++i) {
      if (is_wanted(parts_.x(i))) xs_.push_back(i);
    }
    for (size_t i = 0; i < parts_.constants; ++i) {
      if (is_wanted(parts_.constant(i))) constants_.push_back(i);
    }
    for (size_t i = 0; i < parts_.ys; ++i) {
      if (g_.cotangent(parts_.y(i))) ys_.push_back(i);
    }
  }

  // Gradients come out in the order of carries, xs, constants.
  DifferentiateOptions options() const {
    DifferentiateOptions out;
    out.keep_outputs = false;
    for (const size_t i : carries_) out.outputs.push_back(fmt::format("c{}", i));
    for (const size_t i : ys_) out.outputs.push_back(fmt::format("y{}", i));
    for (const size_t i : carries_) out.wrt.push_back(fmt::format("c{}", i));
    for (const size_t i : xs_) out.wrt.push_back(fmt::format("x{}", i));
    for (const size_t i : constants_) out.wrt.push_back(fmt::format("k{}", i));
    return out;
  }

  void make_operands() {
    for (const size_t i : carries_) {
      const Value flowing = g_.cotangent(i);
      operands_.push_back(flowing ? flowing : ir::zeros_like(result(i)));
    }
    for (const size_t i : constants_) {
      operands_.push_back(ir::in_float32(ir::zeros_like(operand(parts_.constant(i)))));
    }
    for (size_t i = 0; i < parts_.carries; ++i) {
      operands_.push_back(result(parts_.y(*stacked_carry(body_, parts_, i))));
    }
    for (size_t i = 0; i < parts_.xs; ++i) operands_.push_back(operand(parts_.x(i)));
    for (const size_t i : ys_) operands_.push_back(g_.cotangent(parts_.y(i)));
    for (size_t i = 0; i < parts_.constants; ++i) operands_.push_back(operand(parts_.constant(i)));
  }

  // `step`: inputs carries, xs, constants, then the cotangents of carries and ys, in this order.
  core::Result<Graph> made_body(Graph step) const {
    const std::vector<ValueId> given = step.inputs;
    const size_t cotangents = parts_.constant(parts_.constants);
    std::vector<ValueId> inputs;
    const auto take = [&](size_t from, size_t count) {
      for (size_t i = from; i < from + count; ++i) inputs.push_back(given[i]);
    };
    take(cotangents, carries_.size());
    std::vector<Value> sums;
    ir::Builder builder(step);
    const size_t first = carries_.size() + xs_.size();  // of the constants' gradients
    for (size_t i = 0; i < constants_.size(); ++i) {
      const ValueId constant = given[parts_.constant(constants_[i])];
      ir::Type type = step.type(constant);
      type.dtype = ir::in_float32(type.dtype);
      const Value before = builder.input("", std::move(type));
      inputs.push_back(before.id);
      sums.push_back(before + ir::in_float32(builder.value(step.outputs[first + i].value)));
    }
    take(0, parts_.carries + parts_.xs);
    take(cotangents + carries_.size(), ys_.size());
    take(parts_.constant(0), parts_.constants);
    const std::vector<ir::Output> gradients = std::move(step.outputs);
    step.outputs.clear();
    for (size_t i = 0; i < carries_.size(); ++i) step.outputs.push_back(gradients[i]);
    for (const Value& sum : sums) step.outputs.push_back({"", sum.id});
    for (size_t i = 0; i < xs_.size(); ++i) {
      step.outputs.push_back(gradients[carries_.size() + i]);
    }
    step.inputs = std::move(inputs);
    MITHRIL_RETURN_IF_ERROR(builder.take_status());
    return remove_dead(step);
  }

  void state(const std::vector<Value>& results) {
    size_t next = 0;
    for (const size_t i : carries_) g_.d_operand(i) = results[next++];
    for (const size_t i : constants_) g_.d_operand(parts_.constant(i)) = results[next++];
    for (const size_t i : xs_) g_.d_operand(parts_.x(i)) = results[next++];
  }

  ir::GradBuilder& g_;
  const Node node_;  // a copy: the rule appends nodes
  const ScanParts parts_;
  Graph body_;
  std::vector<size_t> carries_, xs_, constants_, ys_;  // that cotangents flow through
  std::vector<Value> operands_;
};

}  // namespace

core::Result<Graph> stack_carries(const Graph& graph) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), ir::is_scan)) return graph;
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes) {
    ir::is_scan(node) ? tell_carries(rewriter, node) : rewriter.copy(node);
  }
  return rewriter.finish();
}

core::Status pull_back_scan(ir::GradBuilder& g) { return ScanGradient(g).run(); }

}  // namespace mithril::passes
