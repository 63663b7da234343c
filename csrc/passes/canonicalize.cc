#include "passes/canonicalize.h"

#include <optional>
#include <unordered_map>

#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using core::HostValue;
using infer::Dim;
using ir::Node;
using ir::Shape;
using ir::shape_value;
using ir::Value;

namespace {

/// Shows a rewrite its node, with operands in the new graph, and the type of its result.
struct Site {
  ir::Builder& builder;
  const Node& node;
  const ir::Type& result;

  Value operand(size_t i) const { return builder.value(node.operands[i]); }
  const Node* producer(size_t i) const { return builder.graph().producer(node.operands[i]); }
  bool made_by(size_t i, std::string_view op) const {
    const Node* node_of = producer(i);
    return node_of != nullptr && ir::Registry::global().get(node_of->op).name == op;
  }
  std::optional<double> constant(size_t i) const {
    const Node* literal = producer(i);
    const bool is_literal =
        literal != nullptr && ir::Registry::global().get(literal->op).has(ir::Trait::kLiteral);
    if (!is_literal) return std::nullopt;
    const HostValue* value = literal->attrs.find("value");
    if (value == nullptr || value->is_tensor() || value->is_symbolic()) return std::nullopt;
    return value->as_number();
  }
};
using Rewrite = std::optional<Value> (*)(const Site&);

std::optional<Value> forward_operand(const Site& site) { return site.operand(0); }

std::optional<Value> forward_if_equal(const Site& site) {
  if (site.operand(0).type() == site.result) return site.operand(0);
  return std::nullopt;
}

// g is summed over the axes that `like` lacks or has as 1.
std::optional<Value> resolve_sum_to(const Site& site) {
  const Value g = site.operand(0);
  const Shape from = g.shape();
  const Shape to = site.operand(1).shape();
  if (from == to) return g;
  const size_t lead = from.size() - to.size();
  std::vector<int64_t> axes;
  for (size_t i = 0; i < from.size(); ++i) {
    if (i < lead) {
      axes.push_back(static_cast<int64_t>(i));
    } else if (from[i] != to[i - lead]) {
      if (to[i - lead] != Dim(1)) return std::nullopt;  // may turn out 1
      axes.push_back(static_cast<int64_t>(i));
    }
  }
  const Value total = sum(g, HostValue::ints(axes));  // of integers: in the default type
  return reshape_like(ir::cast(total, site.result.dtype), site.operand(1));
}

std::optional<Value> resolve_broadcast_like(const Site& site) {
  const Value x = site.operand(0);
  if (x.type() == site.result) return x;
  return site.builder.call("broadcast_to", {x}, {{"shape", shape_value(site.result.shape)}});
}

std::optional<Value> collapse_reshapes(const Site& site) {
  if (site.operand(0).type() == site.result) return site.operand(0);
  if (!site.made_by(0, "reshape")) return std::nullopt;
  const Value source = site.builder.value(site.producer(0)->operands[0]);
  if (source.type() == site.result) return source;
  return site.builder.call("reshape", {source}, {{"shape", shape_value(site.result.shape)}});
}

// The permutation as non-negative axes; none reverses.
std::vector<int64_t> permutation(const Node& node, size_t rank) {
  std::vector<int64_t> out;
  const HostValue* axes = node.attrs.find("axes");
  if (axes == nullptr || !axes->is_sequence()) {
    for (size_t i = rank; i-- > 0;) out.push_back(static_cast<int64_t>(i));
    return out;
  }
  for (const HostValue& axis : axes->items()) {
    const int64_t at = axis.as_int();
    out.push_back(at < 0 ? at + static_cast<int64_t>(rank) : at);
  }
  return out;
}

bool is_identity(const std::vector<int64_t>& axes) {
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

std::optional<Value> collapse_transposes(const Site& site) {
  const size_t rank = site.result.rank();
  std::vector<int64_t> axes = permutation(site.node, rank);
  if (is_identity(axes)) return site.operand(0);
  if (!site.made_by(0, "transpose")) return std::nullopt;
  const Node& inner = *site.producer(0);
  const std::vector<int64_t> first = permutation(inner, rank);
  for (int64_t& axis : axes) axis = first[static_cast<size_t>(axis)];
  const Value source = site.builder.value(inner.operands[0]);
  if (is_identity(axes)) return source;
  return transpose(source, HostValue::ints(axes));
}

std::optional<Value> undo_twice(const Site& site) {
  if (!site.made_by(0, "negate")) return std::nullopt;
  return site.builder.value(site.producer(0)->operands[0]);
}

std::optional<Value> drop_neutral(const Site& site, size_t at, double neutral) {
  const auto number = site.constant(at);
  if (!number || *number != neutral || std::signbit(*number)) return std::nullopt;
  const Value other = site.operand(1 - at);
  if (other.type() == site.result) return other;
  return std::nullopt;
}

std::optional<Value> multiply_by_one(const Site& site) {
  const auto left = drop_neutral(site, 1, 1.0);
  return left ? left : drop_neutral(site, 0, 1.0);
}
std::optional<Value> divide_by_one(const Site& site) { return drop_neutral(site, 1, 1.0); }
std::optional<Value> subtract_zero(const Site& site) { return drop_neutral(site, 1, 0.0); }

const std::unordered_map<std::string_view, Rewrite>& rewrites() {
  static const std::unordered_map<std::string_view, Rewrite> kTable = {
      {"buffer", forward_operand},
      {"cast", forward_if_equal},
      {"broadcast_to", forward_if_equal},
      {"known_sizes", forward_if_equal},
      {"sum_to", resolve_sum_to},
      {"broadcast_like", resolve_broadcast_like},
      {"reshape", collapse_reshapes},
      {"transpose", collapse_transposes},
      {"negate", undo_twice},
      {"multiply", multiply_by_one},
      {"divide", divide_by_one},
      {"subtract", subtract_zero},
  };
  return kTable;
}

}  // namespace

core::Result<ir::Graph> canonicalize(const ir::Graph& graph, const OnRewrite& on_rewrite) {
  Rewriter rewriter(graph);
  ir::Builder& builder = rewriter.builder();
  for (const Node& node : graph.nodes) {
    const auto rewrite = rewrites().find(ir::Registry::global().get(node.op).name);
    if (rewrite == rewrites().end() || !graph.type(node.results[0]).is_tensor) {
      rewriter.copy(node);
      continue;
    }
    builder.set_location(node.location);
    const Node mapped = rewriter.mapped(node);
    const auto value = rewrite->second({builder, mapped, graph.type(node.results[0])});
    if (value) {
      rewriter.map(node.results[0], *value);
      if (on_rewrite) on_rewrite(rewrite->first, graph.location_of(node));
    } else {
      rewriter.copy(node);
    }
  }
  return rewriter.finish();
}

}  // namespace mithril::passes
