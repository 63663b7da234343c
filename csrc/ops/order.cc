// Elements by rank. NaN counts as the largest number; equal elements keep their order.
#include "infer/relation.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

using infer::Dim;

OpDefBuilder& ordered_cases(OpDefBuilder& block) {
  return block.with(at({{"input", {2, 5}}}))
      .with(at({{"input", {4, 3, 2}}}, {{"axis", 0}, {"descending", true}}))
      .with(at({{"input", {2, 40}}}, {{"axis", 1}, {"descending", true}}))
      .with(at({{"input", {7}}}))
      .with(at({{"input", {3, 0}}}))
      .with(at({{"input", {0, 3}}}))
      .rejects(at({{"input", {2, 3}}}, {{"axis", 2}}), "axis")
      .rejects(at({{"input", {2, 3}}}, {{"axis", HostValue()}}), "axis must be an int");
}

// The type in which the kernel compares; it keeps every order.
DType compared(DType dtype) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return DType::kFloat32;
  const bool narrow = dtype == DType::kBool || dtype == DType::kUInt8 || dtype == DType::kInt8 ||
                      dtype == DType::kInt16;
  return narrow ? DType::kInt32 : dtype;
}

Value argsort(Value x, const HostValue& axis, bool descending, bool stable = true) {
  if (!x) return {};
  return x.builder->call(
      "argsort", {x},
      {{"axis", axis}, {"descending", HostValue(descending)}, {"stable", HostValue(stable)}});
}

// Terms: input, axis, k, then the results.
core::Status relate_top(infer::Relation& relation) {
  const auto rank = relation.rank(0);
  const auto axis = relation.value(1), count = relation.value(2);
  if (!rank || !axis || !count || !axis->is_int() || !count->is_int()) return {};
  const int64_t from_front = axis->as_int() < 0 ? axis->as_int() + *rank : axis->as_int();
  if (from_front < 0 || from_front >= *rank) {
    return core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                      "axis {} is out of range for rank {}", axis->as_int(), *rank);
  }
  const auto size = relation.size(0, static_cast<int>(from_front));
  if (count->as_int() < 0 || (size && count->as_int() > *size)) {
    return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "k must be from 0 to the size of axis {}, got {}{}", axis->as_int(),
                      count->as_int(), size ? " for size " + std::to_string(*size) : "");
  }
  for (int term = 3; term < relation.count(); ++term) {
    MITHRIL_RETURN_IF_ERROR(relation.set_rank(term, *rank));
    for (int i = 0; i < *rank; ++i) {
      if (i == from_front) {
        MITHRIL_RETURN_IF_ERROR(relation.set_size(term, i, count->as_int()));
      } else {
        MITHRIL_RETURN_IF_ERROR(relation.tie(0, i, term, i));
      }
    }
  }
  if (size) relation.finish();
  return {};
}

}  // namespace

void define_order(OpFamily& ops) {
  ordered_cases(ops.def("argsort")
                    .python("ArgSort")
                    .doc("The places of the elements along the axis in rising (or falling) order; "
                         "NaN as the largest. Equal ones stay in the order in which they stand; "
                         "stable false: PyTorch may take a faster way that does not keep it.")
                    .input("input", kTensor)
                    .key("axis", -1)
                    .attr("descending", false)
                    .attr("stable", true)
                    .output("output", default_int())
                    .rule(along_axis)
                    .expand_when([](const ir::Graph& graph, const ir::Node& node) {
                      const DType dtype = graph.type(node.operands[0]).dtype;
                      return compared(dtype) != dtype;
                    })
                    .compose([](Builder& b) {
                      const Value x = b.in("input");
                      return argsort(cast(x, compared(x.dtype())), b.attr("axis"),
                                     b.attr("descending").as_bool(), b.attr("stable").as_bool());
                    })
                    .kernel("argsort")
                    .not_differentiable());

  ordered_cases(
      ops.def("sort")
          .python("Sort")
          .doc("The elements along the axis in rising (or falling) order, NaN as the "
               "largest; stable as in argsort. Gradients go where the elements came from.")
          .input("input", kTensor)
          .key("axis", -1)
          .attr("descending", false)
          .attr("stable", true)
          .output("output", same_as("input"))
          .rule(along_axis)
          .compose([](Builder& b) {
            if (needs_known_axis(b)) return Value();
            const Value x = b.in("input");
            const HostValue& axis = b.attr("axis");
            const Value order =
                argsort(x, axis, b.attr("descending").as_bool(), b.attr("stable").as_bool());
            return ir::apply("take_along_axis", {x, order}, {{"axis", axis}});
          }));

  ops.def("topk")
      .python("TopK")
      .doc(
          "The k largest (or smallest) elements along the axis, the most extreme one first, and "
          "their places; NaN as the largest, equal ones in the order in which they stand. "
          "Gradients go where the elements came from.")
      .input("input", kTensor)
      .attr("k", infer::kScalarInt)
      .attr("axis", -1)
      .attr("largest", true)
      .output("values", same_as("input"))
      .output("indices", default_int())
      .rule([](RuleBuilder& r) {
        r.kind(r.out("values"), kTensor);
        r.kind(r.out("indices"), kTensorInt);
        r.custom({r.in("input"), r.attr("axis"), r.attr("k"), r.out("values"), r.out("indices")},
                 relate_top);
      })
      .compose_many([](Builder& b) {
        const Value x = b.in("input");
        const HostValue& axis = b.attr("axis");
        const Value order = argsort(x, axis, b.attr("largest").as_bool());
        if (!order) return std::vector<Value>(2);
        const Value first =
            part(order, axis_attr(b, "axis", x.rank()), Dim(0), Dim(b.integer_attr("k")));
        return std::vector<Value>{ir::apply("take_along_axis", {x, first}, {{"axis", axis}}),
                                  first};
      })
      .with(at({{"input", {2, 5}}}, {{"k", 2}}))
      .with(at({{"input", {4, 3, 2}}}, {{"k", 3}, {"axis", 0}, {"largest", false}}))
      .with(at({{"input", {6}}}, {{"k", 6}}))
      .with(at({{"input", {0, 3}}}, {{"k", 1}}))
      .with(at({{"input", {2, 3}}}, {{"k", 0}}))
      .rejects(at({{"input", {2, 3}}}, {{"k", 4}}), "k must be from 0")
      .rejects(at({{"input", {2, 3}}}, {{"k", 1}, {"axis", 2}}), "axis 2 is out of range");
}

}  // namespace mithril::ops
