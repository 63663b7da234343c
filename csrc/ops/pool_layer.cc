// Pooling layers over one, two and three axes, all by the structured ops of two: one axis is a row
// of an image, and of three axes the last two are pooled first. A mean of means is the mean of the
// window, and the first of the first maxima is the first in row-major order.
#include <algorithm>

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

// With ceil_mode the last window need not be whole, but begins before the padding at the end: as
// much padding as that takes, where there was `high`.
int64_t high_for_last(int64_t size, int64_t stride, int64_t dilation, int64_t high) {
  constexpr int64_t kMost = int64_t{1} << 31;  // what is larger is refused by the rule
  if (std::max({size, stride, dilation, high}) >= kMost || stride < 1) return high;
  return std::max(high, std::min((size - 1) * dilation, high + stride - 1));
}

bool has_ints(const HostValue& value, size_t count) {
  return value.is_sequence() && value.items().size() == count &&
         std::all_of(value.items().begin(), value.items().end(),
                     [](const HostValue& item) { return item.is_int(); });
}

// The padding with what ceil_mode adds; as it is where the other arguments do not fit, which the
// rule of pooling says.
HostValue padding_for_last(const HostValue& padding, const HostValue& sizes, const HostValue& steps,
                           const HostValue& gaps, size_t axes) {
  const HostValue sides = axes == 1 ? HostValue::tuple({padding}) : padding;
  bool fits = has_ints(sizes, axes) && has_ints(steps, axes) && has_ints(gaps, axes);
  HostValue::Tuple out;
  for (size_t i = 0; fits && i < axes; ++i) {
    const auto at = [i](const HostValue& each) { return each.items()[i].as_int(); };
    const HostValue& pair = sides.items()[i];
    fits = has_ints(pair, 2);
    if (!fits) break;
    const int64_t high = high_for_last(at(sizes), at(steps), at(gaps), pair.items()[1].as_int());
    out.push_back(HostValue::tuple({pair.items()[0], HostValue(high)}));
  }
  if (!fits) return padding;
  return axes == 1 ? out[0] : HostValue::tuple(std::move(out));
}

void rule_for_last_windows(RuleBuilder& r, size_t axes, Term padding) {
  r.when_known({padding, r.in("kernel_size"), r.in("stride"), r.in("dilation")},
               [axes](RuleBuilder& rule, std::span<const HostValue> values) {
                 const HostValue sizes = each_axis(values[1], axes);
                 const HostValue steps = values[2].is_none() ? sizes : each_axis(values[2], axes);
                 const HostValue gaps = each_axis(values[3], axes);
                 rule.pool(rule.out(), rule.in("input"), static_cast<int>(axes),
                           rule.in("kernel_size"), rule.constant(steps),
                           rule.constant(padding_for_last(values[0], sizes, steps, gaps, axes)),
                           rule.in("dilation"));
               });
}

bool is_ceil_mode(RuleBuilder& r) {
  const auto mode = r.known(r.attr("ceil_mode"));
  return mode && mode->is_bool() && mode->as_bool();
}

void layer_rule(RuleBuilder& r, const Layer& layer, bool has_options) {
  const auto axes = static_cast<int>(layer.axes);
  if (layer.pool != Pool::kMean) r.same_kind(r.out(), r.in("input"));
  const Term kernel = r.in("kernel_size");
  const Term padding = resolved_padding(r, r.in("padding"), kernel, r.in("dilation"), axes);
  if (has_options && is_ceil_mode(r)) return rule_for_last_windows(r, layer.axes, padding);
  r.when_known(r.in("stride"), [=](RuleBuilder& rule, const HostValue& stride) {
    const Term size = rule.in("kernel_size");
    const Term steps = stride.is_none() ? size : rule.in("stride");
    rule.pool(rule.out(), rule.in("input"), axes, size, steps, padding, rule.in("dilation"));
  });
}

// Counts the elements of x, or of its padding too, that each window of a mean takes: [h, w].
Value counted(Value x, const Windows& windows) {
  infer::DimTable& dims = x.builder->graph().dims;
  Shape sizes(x.shape().end() - 2, x.shape().end());
  Windows over = windows;
  for (size_t i = 0; windows.counts_padding && i < 2; ++i) {
    const auto [low, high] = windows.padding[i];
    sizes[i] = dims.add(sizes[i], low + high - windows.beyond[i]);
    over.padding[i] = {0, windows.beyond[i]};
  }
  const Value ones = full(*x.builder, shape_value(sizes), 1.0, x.dtype());
  const Value shares = ir::apply("avg_pool2d", {ones}, over.attrs(true));
  return ir::apply("round", {shares * static_cast<double>(windows.size[0] * windows.size[1])});
}

// A mean of whole windows is divided by their size, another by what it takes.
Value mean_of(Value x, const Windows& windows) {
  const Value mean = ir::apply("avg_pool2d", {x}, windows.attrs(true));
  if (!mean || (windows.counts_padding && windows.beyond.empty())) return mean;
  return mean * static_cast<double>(windows.size[0] * windows.size[1]) / counted(x, windows);
}

// Two axes.
Value planar(Pool pool, Value x, const Windows& windows) {
  if (!x) return {};
  if (!core::is_float(x.dtype())) return extreme_of_integers(x, windows, pool == Pool::kMax);
  if (pool == Pool::kMin) return -planar(Pool::kMax, -x, windows);
  if (pool == Pool::kMean) return mean_of(x, windows);
  return ir::apply("max_pool2d", {x}, windows.attrs(true));
}

void apply_options(Builder& b, Pool pool, Windows& windows) {
  if (flag(b, "ceil_mode")) {
    windows.beyond.assign(windows.axes(), 0);
    for (size_t i = 0; i < windows.axes(); ++i) {
      int64_t& high = windows.padding[i][1];
      const int64_t whole =
          high_for_last(windows.size[i], windows.stride[i], windows.dilation[i], high);
      windows.beyond[i] = whole - high;
      high = whole;
    }
  }
  windows.counts_padding = pool != Pool::kMean || flag(b, "count_include_pad");
  if (windows.beyond.empty() && !windows.counts_padding) windows.beyond.assign(windows.axes(), 0);
}

// A mean over windows as sums over `divisor`.
Value over_divisor(Value x, Windows windows, int64_t divisor) {
  windows.counts_padding = true;
  windows.beyond.clear();
  double size = 1.0;
  for (const int64_t n : windows.size) size *= static_cast<double>(n);
  return pooled(Pool::kMean, x, windows) * (size / static_cast<double>(divisor));
}

Value layer_body(Builder& b, const Layer& layer, bool has_options) {
  if (!are_known(b, {"kernel_size"})) return {};
  Shape window;
  const HostValue sizes = each_axis(b.attr("kernel_size"), layer.axes);
  for (const HostValue& size : sizes.items()) {
    window.push_back(size.is_int() ? infer::Dim(size.as_int())
                                   : infer::Dim::expression(size.as_symbolic().expr));
  }
  auto windows = windows_of_layer(b, window, true);
  const Value x = b.in("input");
  if (!windows || !x) return {};
  if (has_options) apply_options(b, layer.pool, *windows);
  const bool is_mean = has_options && layer.pool == Pool::kMean;
  if (is_mean && b.attr("divisor_override").is_int()) {
    return over_divisor(x, *windows, b.integer_attr("divisor_override"));
  }
  return pooled(layer.pool, x, *windows);
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

OpDefBuilder& layer_body_and_cases(OpDefBuilder& block, const Layer& layer, bool has_options) {
  const size_t axes = layer.axes;
  if (layer.pool == Pool::kMean) {
    block.output("output", computed()).promote_float({"input"});
  } else {
    block.output("output", same_as("input")).kinks();
  }
  return block.rule([&layer, has_options](RuleBuilder& r) { layer_rule(r, layer, has_options); })
      .compose([&layer, has_options](Builder& b) { return layer_body(b, layer, has_options); })
      .with(at(input_of(axes, {2, 4, 6}),
               {{"kernel_size", 2}, {"stride", 2}, {"padding", 0}, {"dilation", 1}}))
      .with(at(
          input_of(axes, {4, 5, 6}),
          {{"kernel_size", ints_of(axes, 3)}, {"stride", 1}, {"padding", "same"}, {"dilation", 1}}))
      .with(at(input_of(axes, {4, 5, 6}),
               {{"kernel_size", 2}, {"stride", 1}, {"padding", "same"}, {"dilation", 3}}))
      .with(at(input_of(axes, {4, 5, 6}),
               {{"kernel_size", 4}, {"stride", 2}, {"padding", "same"}, {"dilation", 1}}))
      .with(
          at(input_of(axes, {5, 6, 7}),
             {{"kernel_size", 2}, {"stride", ints_of(axes, 2)}, {"padding", 1}, {"dilation", 2}}));
}

// PyTorch's pooling has these beside the original's arguments.
void options(OpDefBuilder& block, const Layer& layer) {
  block.attr("ceil_mode", false);
  if (layer.pool != Pool::kMean) return;
  const Attrs padded = {{"kernel_size", 3}, {"stride", 2}, {"padding", 1}};
  const auto with = [&](Attrs attrs) {
    for (const auto& [name, value] : padded) attrs.set(name, value);
    return at(input_of(layer.axes, {4, 5, 6}), std::move(attrs));
  };
  block.attr("count_include_pad", true)
      .attr("divisor_override", HostValue(), kWidth)
      .at_least("divisor_override", 1)
      .with(with({{"count_include_pad", false}}))
      .with(with({{"count_include_pad", false}, {"ceil_mode", true}}))
      .with(with({{"divisor_override", 5}, {"ceil_mode", true}}));
}

std::string options_doc(const Layer& layer) {
  std::string out =
      " ceil_mode: the last window need not be whole, if it begins before the padding at the end.";
  if (layer.pool != Pool::kMean) return out;
  return out +
         " A mean is over the window's size, of one that is not whole over what it has; without "
         "count_include_pad over elements alone; or it is the sum over divisor_override.";
}

void define_layer(OpFamily& ops, const Layer& layer) {
  const size_t axes = layer.axes;
  OpDefBuilder block = ops.def(layer.name);
  block.python(layer.python, {layer.alias})
      .doc(layer_doc(layer) + options_doc(layer))
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
  options(block, layer);
  layer_body_and_cases(block, layer, true)
      .with(at(input_of(axes, {2, 4, 6}), {{"kernel_size", 2}}))
      .with(at(input_of(axes, {4, 5, 8}),
               {{"kernel_size", 3}, {"stride", 2}, {"padding", 1}, {"ceil_mode", true}}))
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
  layer_body_and_cases(block, layer, false);
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
