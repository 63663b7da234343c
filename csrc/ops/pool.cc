// Pooling. The structured ops take canonical arguments (window.h), the layers what users write.
#include <limits>

#include "ops/window.h"

namespace mithril::ops {
namespace {

HostValue no_padding() {
  return HostValue::tuple({HostValue::ints({0, 0}), HostValue::ints({0, 0})});
}

OpDefBuilder& window_attrs(OpDefBuilder& block) {
  return block.attr("kernel_size")
      .attr("stride")
      .attr("padding", no_padding())
      .attr("dilation", HostValue::ints({1, 1}));
}

void state_pool(RuleBuilder& r, Term y, Term x) {
  r.pool(y, x, 2, r.attr("kernel_size"), r.attr("stride"), r.attr("padding"), r.attr("dilation"));
}

const Attrs& plain() {
  static const Attrs kAttrs = {{"kernel_size", HostValue::ints({2, 2})},
                               {"stride", HostValue::ints({2, 2})}};
  return kAttrs;
}
const Attrs& overlapping() {
  static const Attrs kAttrs = {
      {"kernel_size", HostValue::ints({3, 2})},
      {"stride", HostValue::ints({2, 1})},
      {"padding", HostValue::tuple({HostValue::ints({1, 1}), HostValue::ints({0, 1})})},
      {"dilation", HostValue::ints({1, 2})}};
  return kAttrs;
}

struct Window {
  std::vector<int64_t> size, stride, dilation;
  std::vector<std::vector<int64_t>> padding;
};

std::vector<int64_t> ints(const HostValue& value) {
  std::vector<int64_t> out;
  for (const HostValue& item : value.items()) out.push_back(item.as_int());
  return out;
}

Window window_of(const Builder& b) {
  Window w{ints(b.attr("kernel_size")), ints(b.attr("stride")), ints(b.attr("dilation")), {}};
  for (const HostValue& pair : b.attr("padding").items()) w.padding.push_back(ints(pair));
  return w;
}

// x, padded by `fill`, at one tap of every window.
Value tap(Value padded, const Window& w, const Shape& result, int64_t row, int64_t column) {
  HostValue::Tuple index{HostValue(core::EllipsisValue{})};
  const int64_t at[] = {row, column};
  infer::DimTable& dims = padded.builder->graph().dims;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t start = at[i] * w.dilation[i];
    const infer::Dim count = result[result.size() - 2 + i];
    const infer::Dim stop = dims.add(dims.mul(dims.sub(count, 1), w.stride[i]), start + 1);
    index.emplace_back(core::Slice{HostValue(start), size_value(stop), HostValue(w.stride[i])});
  }
  return ir::apply("index", {padded}, {{"index", HostValue::tuple(std::move(index))}});
}

Value padded(Value x, const Window& w, double fill) {
  if (!x) return {};
  HostValue::Tuple widths(x.rank() - 2, HostValue::ints({0, 0}));
  bool any = false;
  for (const auto& pair : w.padding) {
    widths.push_back(HostValue::ints(pair));
    any |= pair[0] != 0 || pair[1] != 0;
  }
  if (!any) return x;
  const HostValue width = HostValue::tuple(std::move(widths));
  const Value shifted = ir::apply("pad", {x}, {{"pad_width", width}});
  if (fill == 0.0) return shifted;
  const Value inside = ir::apply("pad", {ones_like(x)}, {{"pad_width", width}});
  return where(equal(inside, 0.0), fill, shifted);
}

// What `value` has where each window of `input` has its first maximum: slices, tap by tap.
Value pick_at_maximum(Builder& b) {
  const Window w = window_of(b);
  const Value x = padded(b.in("input"), w, -std::numeric_limits<double>::infinity());
  const Value v = padded(b.in("value"), w, 0.0);
  const Value like = b.in("like");
  if (!x || !v || !like) return {};
  Value best, picked;
  for (int64_t row = 0; row < w.size[0]; ++row) {
    for (int64_t column = 0; column < w.size[1]; ++column) {
      const Value candidate = tap(x, w, like.shape(), row, column);
      const Value value = tap(v, w, like.shape(), row, column);
      if (!best) {
        best = candidate;
        picked = value;
        continue;
      }
      const Value first_nan =
          logical_and(logical_not(equal(candidate, candidate)), equal(best, best));
      const Value wins = logical_or(greater(candidate, best), first_nan);
      best = where(wins, candidate, best);
      picked = where(wins, value, picked);
    }
  }
  return picked;
}

void define_max(OpFamily& ops) {
  window_attrs(ops.def("max_pool2d")
                   .python("PrimitiveMaxPool2D")
                   .doc("The largest element of each window over the last two axes; padding never "
                        "wins, the gradient goes to the first maximum in row-major order.")
                   .input("input", kFloating))
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) { state_pool(r, r.out(), r.in("input")); })
      .kernel("max_pool2d")
      .gradient([](GradBuilder& g) {
        g.d("input") = ir::apply("max_pool2d_grad", {g.in("input"), g.dout()}, g.attrs());
      })
      .kinks()
      .with(at({{"input", {2, 3, 4, 6}}}, plain()))
      .with(at({{"input", {2, 5, 6}}}, overlapping()))
      .with(at({{"input", {0, 3, 4, 4}}}, plain()));

  window_attrs(ops.def("max_pool2d_grad")
                   .doc("Each cotangent of max_pool2d added to the element that its window chose.")
                   .input("input", kFloating)
                   .input("cotangent", kFloating))
      .output("output", same_as("input"))
      .promote()
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("input"));
        state_pool(r, r.in("cotangent"), r.in("input"));
      })
      .kernel("max_pool2d_grad")
      .gradient([](GradBuilder& g) {
        // Almost everywhere it does not depend on the input.
        g.d("cotangent") =
            ir::apply("max_pool2d_pick", {g.in("input"), g.dout(), g.in("cotangent")}, g.attrs());
      })
      .kinks()
      .with(at({{"input", {2, 3, 4, 6}}, {"cotangent", {2, 3, 2, 3}}}, plain()))
      .with(at({{"input", {2, 5, 6}}, {"cotangent", {2, 3, 5}}}, overlapping()));

  window_attrs(ops.def("max_pool2d_pick")
                   .doc("The elements of value at the places where the windows of input have their "
                        "first maximum; like has the shape of the result.")
                   .input("input", kFloating)
                   .input("value", kFloating)
                   .input("like", kFloating))
      .output("output", same_as("value"))
      .promote({"input", "value"})
      .rule([](RuleBuilder& r) {
        r.same_shape(r.in("value"), r.in("input"));
        r.same_shape(r.out(), r.in("like"));
        state_pool(r, r.out(), r.in("input"));
      })
      .compose(pick_at_maximum)
      .gradient([](GradBuilder& g) {
        g.d("value") = ir::apply("max_pool2d_grad", {g.in("input"), g.dout()}, g.attrs());
      })
      .kinks()
      .with(at({{"input", {2, 3, 4, 6}}, {"value", {2, 3, 4, 6}}, {"like", {2, 3, 2, 3}}}, plain()))
      .with(at({{"input", {2, 5, 6}}, {"value", {2, 5, 6}}, {"like", {2, 3, 5}}}, overlapping()));
}

Attrs with_shape(Attrs attrs, HostValue shape) {
  attrs.set("shape", std::move(shape));
  return attrs;
}

void define_average(OpFamily& ops) {
  window_attrs(ops.def("avg_pool2d")
                   .python("PrimitiveAvgPool2D")
                   .doc("The mean of each window over the last two axes; padding counts as zeros.")
                   .input("input", kFloating))
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) { state_pool(r, r.out(), r.in("input")); })
      .kernel("avg_pool2d")
      .gradient([](GradBuilder& g) {
        g.d("input") = ir::apply("avg_pool2d_grad", {g.dout()},
                                 with_shape(g.attrs(), shape_value(g.in("input").shape())));
      })
      .with(at({{"input", {2, 3, 4, 6}}}, plain()))
      .with(at({{"input", {2, 5, 6}}}, overlapping()))
      .with(at({{"input", {0, 3, 4, 4}}}, plain()));

  window_attrs(ops.def("avg_pool2d_grad")
                   .doc("Each cotangent of avg_pool2d shared equally by its window, as a tensor of "
                        "the shape given.")
                   .input("cotangent", kFloating)
                   .key("shape"))
      .output("output", same_as("cotangent"))
      .rule([](RuleBuilder& r) {
        r.shape_from_value(r.out(), r.in("shape"));
        state_pool(r, r.in("cotangent"), r.out());
      })
      .kernel("avg_pool2d_grad")
      .gradient([](GradBuilder& g) {
        Attrs attrs = g.attrs();
        attrs.erase("shape");
        g.d("cotangent") = ir::apply("avg_pool2d", {g.dout()}, std::move(attrs));
      })
      .with(at({{"cotangent", {2, 3, 2, 3}}}, with_shape(plain(), HostValue::ints({2, 3, 4, 6}))))
      .with(at({{"cotangent", {2, 3, 5}}}, with_shape(overlapping(), HostValue::ints({2, 5, 6}))));
}

void layer_rule(RuleBuilder& r) {
  const Term kernel = r.in("kernel_size");
  const Term padding = resolved_padding(r, r.in("padding"), kernel);
  r.when_known(r.in("stride"), [padding](RuleBuilder& rule, const HostValue& stride) {
    const Term size = rule.in("kernel_size");
    rule.pool(rule.out(), rule.in("input"), 2, size, stride.is_none() ? size : rule.in("stride"),
              padding, rule.in("dilation"));
  });
}

void define_layer(OpFamily& ops, const char* name, const char* python, const char* alias,
                  const char* op, const char* doc) {
  OpDefBuilder block = ops.def(name);
  block.python(python, {alias})
      .doc(std::string(doc) +
           " kernel_size, stride (none: kernel_size) and dilation: an int or a pair; padding: an "
           "int, a pair, a pair of pairs, 'same' or 'valid'.")
      .key("kernel_size")
      .key("stride", HostValue())
      .key("padding", HostValue::ints({0, 0}))
      .input("input", kNumeric)
      .key("dilation", 1)
      .keys({"kernel_size", "stride", "padding", "input", "dilation"})
      .connect({"input", "kernel_size", "stride", "padding", "dilation", "output"})
      .output("output", computed())
      .promote_float({"input"})
      .rule(layer_rule)
      .compose([op](Builder& b) {
        if (!are_known(b, {"kernel_size", "stride", "padding", "dilation"})) return Value();
        const HostValue size = window_pair(b.attr("kernel_size"));
        Shape window;
        for (const HostValue& item : size.items()) window.emplace_back(item.as_int());
        const HostValue& stride = b.attr("stride");
        return ir::apply(op, {b.in("input")},
                         {{"kernel_size", size},
                          {"stride", stride.is_none() ? size : window_pair(stride)},
                          {"padding", window_padding(b, b.attr("padding"), window)},
                          {"dilation", window_pair(b.attr("dilation"))}});
      })
      .with(at({{"input", {2, 3, 4, 6}}}, {{"kernel_size", 2}}))
      .with(at({{"input", {2, 3, 5, 6}}},
               {{"kernel_size", HostValue::ints({3, 3})}, {"stride", 1}, {"padding", "same"}}));
}

}  // namespace

void define_pool(OpFamily& ops) {
  define_max(ops);
  define_average(ops);
  define_layer(ops, "max_pooling2d", "MaxPool2D", "MaxPool2d", "max_pool2d",
               "The largest element of each window over the last two axes.");
  define_layer(ops, "avg_pooling2d", "AvgPool2D", "AvgPool2d", "avg_pool2d",
               "The mean of each window over the last two axes; padding counts as zeros.");
}

}  // namespace mithril::ops
