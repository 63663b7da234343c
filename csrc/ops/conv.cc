// Convolution. `conv2d` and its two gradients are structured ops whose arguments are canonical
// (window.h); each is linear in both operands, so each one's gradients are the other two.
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

OpDefBuilder& window_attrs(OpDefBuilder& block) {
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
  window_attrs(ops.def("conv2d")
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

  window_attrs(ops.def("conv2d_dx")
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

  window_attrs(ops.def("conv2d_dw")
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

// The size of the filters as an integer term for each axis.
Term kernel_of_filters(RuleBuilder& r) {
  const Term rows = r.fresh(infer::kScalarInt);
  const Term columns = r.fresh(infer::kScalarInt);
  r.equal(r.dim(rows), r.dim("kh"));
  r.equal(r.dim(columns), r.dim("kw"));
  const Term out = r.fresh(infer::kTupleKind);
  const Term items[] = {rows, columns};
  r.tuple(out, items);
  return out;
}

void layer_rule(RuleBuilder& r) {
  r.shape(r.in("weight"), "o _ kh kw");
  if (r.has("bias")) r.shape(r.in("bias"), "1 o 1 1");
  const auto size = r.known(r.attr("kernel_size"));
  if (size && !size->is_none()) {
    const HostValue pair = window_pair(*size);
    if (pair.items().size() != 2) {
      r.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                        "convolution2d: 'kernel_size' must be one size or two, got {}",
                        core::to_string(*size)));
      return;
    }
    if (pair.items()[0].is_int()) r.equal(r.dim("kh"), pair.items()[0].as_int());
    if (pair.items()[1].is_int()) r.equal(r.dim("kw"), pair.items()[1].as_int());
  }
  const auto channels = r.known(r.attr("out_channels"));
  if (channels && channels->is_int()) r.equal(r.dim("o"), channels->as_int());
  const Term padding = resolved_padding(r, r.in("padding"), kernel_of_filters(r));
  r.conv(r.out(), r.in("input"), r.in("weight"), 2, r.in("stride"), padding, r.in("dilation"),
         r.in("groups"));
}

Value layer_body(Builder& b) {
  if (!are_known(b, {"stride", "padding", "dilation", "groups"})) return {};
  const Value w = b.in("weight");
  if (!w) return {};
  const Shape window(w.shape().begin() + 2, w.shape().end());
  const Value y = ir::apply("conv2d", {b.in("input"), w},
                            {{"stride", window_pair(b.attr("stride"))},
                             {"padding", window_padding(b, b.attr("padding"), window)},
                             {"dilation", window_pair(b.attr("dilation"))},
                             {"groups", b.attr("groups")}});
  return b.has("bias") ? y + b.in("bias") : y;
}

}  // namespace

void define_conv(OpFamily& ops) {
  define_structured(ops);
  ops.def("convolution2d")
      .python("Convolution2D", {"Conv2d", "Conv2D"})
      .doc(
          "A convolution layer over images [n, c, h, w]: cross-correlation with the weight [o, c / "
          "groups, kh, kw], plus bias [1, o, 1, 1]. stride and dilation: an int or a pair; "
          "padding: an int, a pair, a pair of pairs, 'same' or 'valid'.")
      .input("weight", kFloating)
      .key("padding", HostValue::ints({0, 0}))
      .key("stride", HostValue::ints({1, 1}))
      .key("dilation", HostValue::ints({1, 1}))
      .input("input", kNumeric)
      .optional("bias", kFloating, "use_bias")
      .key("groups", 1)
      .attr("kernel_size", HostValue(), kWidth | infer::kSequence)
      .attr("out_channels", HostValue(), kWidth)
      .attr("use_bias", true)
      .keys({"weight", "padding", "stride", "dilation", "input", "bias", "groups"})
      .connect({"input", "weight", "stride", "padding", "dilation", "groups", "output", "bias"})
      .output("output", computed())
      .promote_float({"weight", "input", "bias"})
      .trainable("weight", {Init::Kind::kUniformFanIn, "weight", {1, 2, 3}})
      .trainable("bias", {Init::Kind::kUniformFanIn, "weight", {1, 2, 3}})
      .rule(layer_rule)
      .compose(layer_body)
      .with(at({{"weight", {4, 3, 3, 3}}, {"input", {2, 3, 5, 6}}, {"bias", {1, 4, 1, 1}}}))
      .with(at({{"weight", {4, 3, 3, 3}}, {"input", {2, 3, 5, 6}}, {"bias", {1, 4, 1, 1}}},
               {{"padding", "same"}}))
      .with(at({{"weight", {4, 1, 2, 2}}, {"input", {2, 2, 6, 6}}},
               {{"use_bias", false}, {"stride", 2}, {"padding", 1}, {"groups", 2}}))
      .with(at({{"weight", {4, 3, 3, 3}}, {"input", {2, 3, 9, 9}}, {"bias", {1, 4, 1, 1}}},
               {{"dilation", 2}, {"kernel_size", 3}, {"out_channels", 4}}))
      .rejects(at({{"weight", {4, 3, 3, 3}}, {"input", {2, 5, 8, 8}}, {"bias", {1, 4, 1, 1}}}),
               "convolution2d");
}

}  // namespace mithril::ops
