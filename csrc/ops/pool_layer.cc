// Pooling layers over one, two and three axes, all by the structured ops of two: one axis is a row
// of an image, and of three axes the last two are pooled first. A mean of means is the mean of the
// window, and the first of the first maxima is the first in row-major order.
#include "ops/window.h"

namespace mithril::ops {
namespace {

struct Layer {
  Pool pool;
  size_t axes;
  const char* name;
  const char* python;
  const char* alias;      // "" = none
  const char* primitive;  // class whose arguments have no defaults; "" = none
};
constexpr Layer kLayers[] = {
    {Pool::kMax, 1, "max_pooling1d", "MaxPool1D", "MaxPool1d", "PrimitiveMaxPool1D"},
    {Pool::kMax, 2, "max_pooling2d", "MaxPool2D", "MaxPool2d", "PrimitiveMaxPool2D"},
    {Pool::kMax, 3, "max_pooling3d", "MaxPool3D", "MaxPool3d", ""},
    {Pool::kMin, 1, "min_pooling1d", "MinPool1D", "MinPool1d", ""},
    {Pool::kMin, 2, "min_pooling2d", "MinPool2D", "MinPool2d", ""},
    {Pool::kMin, 3, "min_pooling3d", "MinPool3D", "MinPool3d", ""},
    {Pool::kMean, 1, "avg_pooling1d", "AvgPool1D", "AvgPool1d", ""},
    {Pool::kMean, 2, "avg_pooling2d", "AvgPool2D", "AvgPool2d", "PrimitiveAvgPool2D"},
    {Pool::kMean, 3, "avg_pooling3d", "AvgPool3D", "AvgPool3d", ""},
};

void layer_rule(RuleBuilder& r, const Layer& layer) {
  const auto axes = static_cast<int>(layer.axes);
  if (layer.pool != Pool::kMean) r.same_kind(r.out(), r.in("input"));
  const Term kernel = r.in("kernel_size");
  const Term padding = resolved_padding(r, r.in("padding"), kernel, axes);
  r.when_known(r.in("stride"), [=](RuleBuilder& rule, const HostValue& stride) {
    const Term size = rule.in("kernel_size");
    const Term steps = stride.is_none() ? size : rule.in("stride");
    rule.pool(rule.out(), rule.in("input"), axes, size, steps, padding, rule.in("dilation"));
  });
}

// Two axes.
Value planar(Pool pool, Value x, const Windows& windows) {
  if (!x) return {};
  if (!core::is_float(x.dtype())) return extreme_of_integers(x, windows, pool == Pool::kMax);
  if (pool == Pool::kMin) return -planar(Pool::kMax, -x, windows);
  const char* op = pool == Pool::kMax ? "max_pool2d" : "avg_pool2d";
  return ir::apply(op, {x}, windows.attrs(true));
}

Value layer_body(Builder& b, const Layer& layer) {
  if (!are_known(b, {"kernel_size"})) return {};
  Shape window;
  const HostValue sizes = each_axis(b.attr("kernel_size"), layer.axes);
  for (const HostValue& size : sizes.items()) {
    window.push_back(size.is_int() ? infer::Dim(size.as_int())
                                   : infer::Dim::expression(size.as_symbolic().expr));
  }
  const auto windows = windows_of_layer(b, window, true);
  const Value x = b.in("input");
  return windows && x ? pooled(layer.pool, x, *windows) : Value();
}

std::string layer_doc(const Layer& layer) {
  const std::string what[] = {"The largest element of each window over ",
                              "The smallest element of each window over ",
                              "The mean of each window over "};
  const std::string axes[] = {"the last axis", "the last two axes", "the last three axes"};
  const std::string padding[] = {"an int, a pair", "an int, a pair, a pair of pairs",
                                 "an int, three, three pairs"};
  const bool is_mean = layer.pool == Pool::kMean;
  return what[static_cast<size_t>(layer.pool)] + axes[layer.axes - 1] +
         (is_mean ? "; padding counts as zeros." : "; padding never wins.") +
         " kernel_size, stride (none: kernel_size) and dilation: an int or one for each axis; "
         "padding: " +
         padding[layer.axes - 1] + ", 'same' or 'valid'.";
}

Shapes input_of(size_t axes, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> shape{2, 3};
  shape.insert(shape.end(), sizes.end() - static_cast<std::ptrdiff_t>(axes), sizes.end());
  return {{"input", shape}};
}

HostValue ints_of(size_t axes, int64_t value) {
  return HostValue::tuple(HostValue::Tuple(axes, HostValue(value)));
}

OpDefBuilder& layer_body_and_cases(OpDefBuilder& block, const Layer& layer) {
  const size_t axes = layer.axes;
  if (layer.pool == Pool::kMean) {
    block.output("output", computed()).promote_float({"input"});
  } else {
    block.output("output", same_as("input")).kinks();
  }
  return block.rule([&layer](RuleBuilder& r) { layer_rule(r, layer); })
      .compose([&layer](Builder& b) { return layer_body(b, layer); })
      .with(at(input_of(axes, {2, 4, 6}),
               {{"kernel_size", 2}, {"stride", 2}, {"padding", 0}, {"dilation", 1}}))
      .with(at(
          input_of(axes, {4, 5, 6}),
          {{"kernel_size", ints_of(axes, 3)}, {"stride", 1}, {"padding", "same"}, {"dilation", 1}}))
      .with(
          at(input_of(axes, {5, 6, 7}),
             {{"kernel_size", 2}, {"stride", ints_of(axes, 2)}, {"padding", 1}, {"dilation", 2}}));
}

void define_layer(OpFamily& ops, const Layer& layer) {
  const size_t axes = layer.axes;
  OpDefBuilder block = ops.def(layer.name);
  block.python(layer.python, {layer.alias})
      .doc(layer_doc(layer))
      .key("kernel_size")
      .key("stride", HostValue())
      .key("padding", ints_of(std::max<size_t>(axes, 2), 0))
      .input("input", kNumeric)
      .key("dilation", 1)
      .connect({"input", "kernel_size", "stride", "padding", "dilation", "output"});
  if (axes == 1) {
    block.keys({"stride", "kernel_size", "padding", "input", "dilation"});
  } else {
    block.keys({"kernel_size", "stride", "padding", "dilation", "input"});
  }
  layer_body_and_cases(block, layer)
      .with(at(input_of(axes, {2, 4, 6}), {{"kernel_size", 2}}))
      .rejects(at(input_of(axes, {2, 2, 2}), {{"kernel_size", 3}}), "does not fit")
      .rejects(at(input_of(axes, {2, 2, 2}), {{"kernel_size", 0}, {"stride", 1}}),
               "window must be larger than 0")
      .rejects(at(input_of(axes, {2, 2, 2}), {{"kernel_size", 2}, {"stride", 0}}),
               "stride must be positive")
      .rejects(at(input_of(axes, {2, 2, 2}), {{"kernel_size", 2}, {"padding", -1}}),
               "padding must not be negative");
}

// Every argument is given, or wired: what the original's layers are made of.
void define_primitive(OpFamily& ops, const Layer& layer) {
  OpDefBuilder block = ops.def(std::string("primitive_") + layer.name);
  block.python(layer.primitive)
      .arguments({"input", "kernel_size", "stride", "padding", "dilation"})
      .doc(layer_doc(layer) + " None of them has a default.")
      .input("input", kNumeric)
      .key("kernel_size")
      .key("stride")
      .key("padding")
      .key("dilation");
  layer_body_and_cases(block, layer);
}

}  // namespace

Value pooled(Pool pool, Value x, const Windows& windows) {
  if (windows.axes() == 2) return planar(pool, x, windows);
  if (windows.axes() == 1) {
    const Value y = planar(pool, expand_dims(x, HostValue(-2)), windows.with_unit_axis(true));
    return y ? with_last_axes(y, 2, {y.shape().back()}) : y;
  }
  const Value y = planar(pool, x, windows.part(1, 2));
  if (!y) return {};
  const Shape planes(y.shape().end() - 3, y.shape().end());
  const Value flat =
      with_last_axes(y, 3, {planes[0], y.builder->graph().dims.mul(planes[1], planes[2])});
  const Value z = planar(pool, flat, windows.part(0, 1).with_unit_axis(false));
  return z ? with_last_axes(z, 2, {z.shape()[z.rank() - 2], planes[1], planes[2]}) : z;
}

void define_pool_layers(OpFamily& ops) {
  for (const Layer& layer : kLayers) {
    if (*layer.primitive != '\0') define_primitive(ops, layer);
    define_layer(ops, layer);
  }
}

}  // namespace mithril::ops
