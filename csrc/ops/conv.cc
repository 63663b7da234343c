// The structured ops of convolution: `conv2d` and its two gradients, with canonical arguments
// (window.h). Each is linear in both operands, so each one's gradients are the other two.
#include "ops/window.h"

namespace mithril::ops {
namespace {

Value product(const char* op, Value a, Value b, const GradBuilder& g) {
  Attrs attrs = g.attrs();
  attrs.erase("shape");
  return ir::apply(op, {a, b}, std::move(attrs));
}

Value product_shaped(const char* op, Value a, Value b, const GradBuilder& g, Value like) {
  Attrs attrs = g.attrs();
  attrs.set("shape", shape_value(like.shape()));
  return ir::apply(op, {a, b}, std::move(attrs));
}

OpDefBuilder& conv_attrs(OpDefBuilder& block) {
  return block.attr("stride", HostValue::ints({1, 1}))
      .attr("padding", HostValue::tuple({HostValue::ints({0, 0}), HostValue::ints({0, 0})}))
      .attr("dilation", HostValue::ints({1, 1}))
      .attr("groups", 1)
      .output("output", computed())
      .promote();
}

void state_shapes(RuleBuilder& r, Term y, Term x, Term w) {
  r.conv(y, x, w, 2, r.attr("stride"), r.attr("padding"), r.attr("dilation"), r.attr("groups"));
}

const Attrs& strided() {
  static const Attrs kAttrs = {
      {"stride", HostValue::ints({2, 1})},
      {"padding", HostValue::tuple({HostValue::ints({1, 0}), HostValue::ints({2, 1})})},
      {"dilation", HostValue::ints({1, 2})},
      {"groups", 2}};
  return kAttrs;
}

Attrs with_shape(Attrs attrs, const std::vector<int64_t>& shape) {
  attrs.set("shape", HostValue::ints(shape));
  return attrs;
}

void define_structured(OpFamily& ops) {
  conv_attrs(ops.def("conv2d")
                 .doc("Cross-correlation of images [n, c, h, w] with filters [o, c / groups, kh, "
                      "kw], without bias; stride and dilation are pairs, padding ((top, bottom), "
                      "(left, right)).")
                 .input("input", kFloating)
                 .input("weight", kFloating))
      .rule([](RuleBuilder& r) { state_shapes(r, r.out(), r.in("input"), r.in("weight")); })
      .kernel("conv2d")
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value w = g.in("weight");
        if (g.wants("input")) g.d("input") = product_shaped("conv2d_dx", g.dout(), w, g, x);
        if (g.wants("weight")) g.d("weight") = product_shaped("conv2d_dw", x, g.dout(), g, w);
      })
      .with(at({{"input", {2, 3, 5, 6}}, {"weight", {4, 3, 3, 2}}}))
      .with(at({{"input", {2, 4, 7, 6}}, {"weight", {6, 2, 3, 2}}}, strided()))
      .with(at({{"input", {0, 3, 5, 5}}, {"weight", {2, 3, 3, 3}}}));

  conv_attrs(ops.def("conv2d_dx")
                 .doc("What makes conv2d's input, of the shape given, of the cotangent of its "
                      "result and the filters.")
                 .input("cotangent", kFloating)
                 .input("weight", kFloating)
                 .key("shape"))
      .rule([](RuleBuilder& r) {
        r.shape_from_value(r.out(), r.in("shape"));
        state_shapes(r, r.in("cotangent"), r.out(), r.in("weight"));
      })
      .kernel("conv2d_dx")
      .gradient([](GradBuilder& g) {
        const Value dy = g.in("cotangent");
        const Value w = g.in("weight");
        if (g.wants("cotangent")) g.d("cotangent") = product("conv2d", g.dout(), w, g);
        if (g.wants("weight")) g.d("weight") = product_shaped("conv2d_dw", g.dout(), dy, g, w);
      })
      .with(at({{"cotangent", {2, 4, 3, 5}}, {"weight", {4, 3, 3, 2}}},
               {{"shape", HostValue::ints({2, 3, 5, 6})}}))
      .with(at({{"cotangent", {2, 6, 3, 7}}, {"weight", {6, 2, 3, 2}}},
               with_shape(strided(), {2, 4, 7, 6})));

  conv_attrs(ops.def("conv2d_dw")
                 .doc("What makes conv2d's filters, of the shape given, of its input and the "
                      "cotangent of its result.")
                 .input("input", kFloating)
                 .input("cotangent", kFloating)
                 .key("shape"))
      .rule([](RuleBuilder& r) {
        r.shape_from_value(r.out(), r.in("shape"));
        state_shapes(r, r.in("cotangent"), r.in("input"), r.out());
      })
      .kernel("conv2d_dw")
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value dy = g.in("cotangent");
        if (g.wants("input")) g.d("input") = product_shaped("conv2d_dx", dy, g.dout(), g, x);
        if (g.wants("cotangent")) g.d("cotangent") = product("conv2d", x, g.dout(), g);
      })
      .with(at({{"input", {2, 3, 5, 6}}, {"cotangent", {2, 4, 3, 5}}},
               {{"shape", HostValue::ints({4, 3, 3, 2})}}))
      .with(at({{"input", {2, 4, 7, 6}}, {"cotangent", {2, 6, 3, 7}}},
               with_shape(strided(), {6, 2, 3, 2})));
}

}  // namespace

void define_conv(OpFamily& ops) {
  define_structured(ops);
  define_conv_layers(ops);
  define_conv_transpose(ops);
  define_channels_last(ops);
}

}  // namespace mithril::ops
