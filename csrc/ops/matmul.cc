// Matrix products and the linear layer.
#include "ir/halves.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

// x as one matrix: all axes but the last become one.
Value as_matrix(Value x) {
  if (!x || x.rank() == 2) return x;
  infer::DimTable& dims = x.builder->graph().dims;
  const Shape& shape = x.shape();
  const infer::Dim rows = dims.product(std::span(shape.data(), shape.size() - 1));
  return reshape(x, HostValue::tuple({size_value(rows), size_value(shape.back())}));
}

// dl = g rᵀ, dr = lᵀ g on matrices; an operand of rank 1 is a row (left) or a column (right).
void matmul_gradient(GradBuilder& g) {
  const Value left = g.in("left");
  const Value right = g.in("right");
  const bool row = left.rank() == 1;
  const bool column = right.rank() == 1;
  const Value l = row ? expand_dims(left, HostValue(0)) : left;
  const Value r = column ? expand_dims(right, HostValue(1)) : right;
  Value dy = g.dout();
  if (column) dy = expand_dims(dy, HostValue(-1));
  if (row) dy = expand_dims(dy, HostValue(-2));
  const auto drop = [](Value x, int64_t axis) {
    Shape shape = x.shape();
    shape.erase(shape.end() + axis);
    return reshape(x, shape_value(shape));
  };
  if (g.wants("left")) {
    const Value dl = matmul(dy, swap_axes(r, -1, -2));
    g.d("left") = row && dl ? drop(dl, -2) : dl;
  }
  if (!g.wants("right")) return;
  if (r.rank() == 2 && l.rank() > 2) {
    // One product instead of a batch of them that is summed afterwards.
    const Value dr = matmul(swap_axes(as_matrix(l), 0, 1), as_matrix(dy));
    g.d("right") = column ? reshape_like(dr, right) : dr;
    return;
  }
  const Value dr = matmul(swap_axes(l, -1, -2), dy);
  g.d("right") = column && dr ? drop(dr, -1) : dr;
}

void define_product(OpFamily& ops) {
  ops.def("matmul")
      .python("MatrixMultiply", {"MatMul"})
      .alias({"matrix_multiplication"})
      .doc(
          "Matrix product; leading axes broadcast, an operand of rank 1 is a row (left) or a "
          "column (right).")
      .formula("left \\, right")
      .input("left", kNumeric)
      .input("right", kNumeric)
      .output("output", computed())
      .promote()
      .rule([](RuleBuilder& r) { r.matmul(r.out(), r.in("left"), r.in("right")); })
      .kernel("matmul")
      .gradient(matmul_gradient)
      .with(at({{"left", {2, 3}}, {"right", {3, 4}}}))
      .with(at({{"left", {5, 2, 3}}, {"right", {3, 4}}}))
      .with(at({{"left", {2, 1, 4, 3}}, {"right", {5, 3, 2}}}))
      .with(at({{"left", {3}}, {"right", {3}}}))
      .with(at({{"left", {3}}, {"right", {2, 3, 4}}}))
      .with(at({{"left", {2, 4, 3}}, {"right", {3}}}))
      .with(at({{"left", {2, 300}}, {"right", {300, 2}}}))
      .with(at({{"left", {0, 3}}, {"right", {3, 2}}}))
      .with(at({{"left", {2, 0}}, {"right", {0, 3}}}))
      .rejects(at({{"left", {2, 3}}, {"right", {4, 5}}}), "inner dimensions must be equal")
      .rejects(at({{"left", {}}, {"right", {4, 5}}}), "matmul");
}

void define_products_of_halves(OpFamily& ops) {
  ops.def("widening_matmul")
      .doc(
          "`MatrixMultiply` of halves that are multiplied and added in float32, in which the "
          "result stays. What passes::multiply_halves makes of a product behind casts.")
      .formula("left \\, right")
      .input("left", kFloating)
      .input("right", kFloating)
      .output("output", computed_wide())
      .promote()
      .rule([](RuleBuilder& r) { r.matmul(r.out(), r.in("left"), r.in("right")); })
      .compose([](Builder& b) {
        const Value left = ir::in_float32(b.in("left"));
        return matmul(left, ir::in_float32(b.in("right")));
      })
      .not_differentiable();

  ops.def("biased_matmul")
      .doc(
          "The same with a row added to each row of the result before that is rounded to the type "
          "of its operands.")
      .formula("left \\, right + bias")
      .input("left", kFloating)
      .input("right", kFloating)
      .input("bias", kFloating)
      .output("output", computed())
      .promote()
      .rule([](RuleBuilder& r) {
        r.matmul(r.out(), r.in("left"), r.in("right"));
        r.shape(r.out(), "... d_out");
        r.shape(r.in("bias"), "d_out");
      })
      .compose([](Builder& b) {
        const Value left = ir::in_float32(b.in("left"));
        const Value product = matmul(left, ir::in_float32(b.in("right")));
        return cast(product + ir::in_float32(b.in("bias")), b.in("left").dtype());
      })
      .not_differentiable();
}

void define_linear(OpFamily& ops) {
  ops.def("linear")
      .python("Linear")
      .doc(
          "A fully connected layer: input times the transposed weight, plus bias; weight is "
          "[dimension, d_in], bias [dimension].")
      .formula("x W^T + b")
      .input("weight", kFloating)
      .input("input", kNumeric)
      .optional("bias", kFloating, "use_bias")
      .attr("dimension", HostValue(), kWidth)
      .attr("use_bias", true)
      .output("output", computed())
      .promote_float()
      .connect({"input", "weight", "output", "bias"})
      .trainable("weight", {Init::Kind::kUniformFanIn, "weight", {1}})
      .trainable("bias", {Init::Kind::kUniformFanIn, "weight", {1}})
      .rule([](RuleBuilder& r) {
        r.shape(r.in("weight"), "d_out d_in");
        r.shape(r.in("input"), "... d_in");
        r.shape(r.out(), "... d_out");
        if (r.has("bias")) r.shape(r.in("bias"), "d_out");
        const auto dimension = r.known(r.attr("dimension"));
        if (dimension && dimension->is_int()) r.equal(r.dim("d_out"), dimension->as_int());
      })
      .compose([](Builder& b) {
        const Value y = matmul(b.in("input"), swap_axes(b.in("weight"), 0, 1));
        return b.has("bias") ? y + b.in("bias") : y;
      })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        Value dy = g.dout();
        if (g.wants("input")) g.d("input") = matmul(dy, g.in("weight"));
        if (g.wants("bias")) g.d("bias") = dy;
        if (!g.wants("weight")) return;
        const bool row = x.rank() == 1;
        const Value rows = row ? expand_dims(x, HostValue(0)) : as_matrix(x);
        dy = row ? expand_dims(dy, HostValue(0)) : as_matrix(dy);
        g.d("weight") = matmul(swap_axes(dy, 0, 1), rows);
      })
      .with(at({{"weight", {4, 3}}, {"input", {2, 3}}, {"bias", {4}}}))
      .with(at({{"weight", {4, 3}}, {"input", {2, 5, 3}}, {"bias", {4}}}))
      .with(at({{"weight", {4, 3}}, {"input", {3}}, {"bias", {4}}}))
      .with(at({{"weight", {4, 3}}, {"input", {2, 3}}}, {{"use_bias", false}}))
      .with(at({{"weight", {4, 3}}, {"input", {0, 3}}, {"bias", {4}}}, {{"dimension", 4}}))
      .rejects(at({{"weight", {4, 3}}, {"input", {2, 5}}, {"bias", {4}}}), "linear");
}

}  // namespace

void define_matmul(OpFamily& ops) {
  define_product(ops);
  define_products_of_halves(ops);
  define_linear(ops);
}

}  // namespace mithril::ops
