// Convolution layers over one, two and three axes, all by conv2d: one axis is a row of an image,
// and of three axes the first becomes channels, window by window.
#include "ops/window.h"

namespace mithril::ops {
namespace {

// What differs between the layers.
struct Layer {
  size_t axes;
  const char* op;
  const char* weight;  // templates
  const char* bias;
};
constexpr Layer kLayers[] = {
    {1, "convolution1d", "o _ k0", "1 o 1"},
    {2, "convolution2d", "o _ k0 k1", "1 o 1 1"},
    {3, "convolution3d", "o _ k0 k1 k2", "1 o 1 1 1"},
};
constexpr const char* kKernel[] = {"k0", "k1", "k2"};

// The size of the filters as one integer term for each axis.
Term kernel_of_filters(RuleBuilder& r, size_t axes) {
  std::vector<Term> sizes;
  for (size_t i = 0; i < axes; ++i) {
    sizes.push_back(r.fresh(infer::kScalarInt));
    r.equal(r.dim(sizes.back()), r.dim(kKernel[i]));
  }
  const Term out = r.fresh(infer::kTupleKind);
  r.tuple(out, sizes);
  return out;
}

void state_convolution(RuleBuilder& r, const Layer& layer) {
  r.shape(r.in("weight"), layer.weight);
  if (r.has("bias")) r.shape(r.in("bias"), layer.bias);
  const Term kernel = kernel_of_filters(r, layer.axes);
  const auto axes = static_cast<int>(layer.axes);
  r.conv(r.out(), r.in("input"), r.in("weight"), axes, r.in("stride"),
         resolved_padding(r, r.in("padding"), kernel, r.in("dilation"), axes), r.in("dilation"),
         r.in("groups"));
}

void layer_rule(RuleBuilder& r, const Layer& layer) {
  if (const auto size = known_sizes_of(r, layer.op, "kernel_size", layer.axes)) {
    for (size_t i = 0; i < layer.axes; ++i) r.equal(r.dim(kKernel[i]), (*size)[i]);
  }
  const auto channels = r.known(r.attr("out_channels"));
  if (channels && channels->is_int()) r.equal(r.dim("o"), channels->as_int());
  state_convolution(r, layer);
}

Value planar(Value x, Value w, const Windows& windows, const HostValue& groups) {
  Attrs attrs = windows.attrs(false);
  attrs.set("groups", groups);
  return ir::apply("conv2d", {x, w}, std::move(attrs));
}

Value linear(Value x, Value w, const Windows& windows, const HostValue& groups) {
  const Value y = planar(expand_dims(x, HostValue(-2)), expand_dims(w, HostValue(-2)),
                         windows.with_unit_axis(true), groups);
  return y ? with_last_axes(y, 2, {y.shape().back()}) : y;
}

// x [n, c, d, h, w] -> [n, c, k, do, h, w]: what each place of the windows along d meets.
Value depth_windows(Value x, const Windows& depth) {
  infer::DimTable& dims = x.builder->graph().dims;
  const auto [low, high] = depth.padding[0];
  if (low != 0 || high != 0) {
    HostValue::Tuple widths(5, HostValue::ints({0, 0}));
    widths[2] = HostValue::ints({low, high});
    x = ir::apply("pad", {x}, {{"pad_width", HostValue::tuple(std::move(widths))}});
  }
  if (!x) return {};
  const int64_t reach = (depth.size[0] - 1) * depth.dilation[0];
  const infer::Dim last =  // the start of the last window
      dims.mul(dims.floor_div(dims.sub(x.shape()[2], reach + 1), depth.stride[0]), depth.stride[0]);
  std::vector<Operand> taps{HostValue(2)};  // the axis
  for (int64_t tap = 0; tap < depth.size[0]; ++tap) {
    const int64_t start = tap * depth.dilation[0];
    HostValue::Tuple index(3, HostValue(core::Slice{}));
    index[2] = HostValue(core::Slice{HostValue(start), size_value(dims.add(last, start + 1)),
                                     HostValue(depth.stride[0])});
    const Value met = ir::apply("index", {x}, {{"index", HostValue::tuple(std::move(index))}});
    taps.emplace_back(expand_dims(met, HostValue(2)));
  }
  return x.builder->call("concat", std::move(taps));
}

Value spatial(Value x, Value w, const Windows& windows, const HostValue& groups) {
  const Value met = depth_windows(x, windows.part(0, 1));
  if (!met) return {};
  infer::DimTable& dims = met.builder->graph().dims;
  const Shape m = met.shape();  // n, c, k, do, h, w
  const Value images =
      reshape(transpose(met, HostValue::ints({0, 3, 1, 2, 4, 5})),
              shape_value({dims.mul(m[0], m[3]), dims.mul(m[1], m[2]), m[4], m[5]}));
  const Shape f = w.shape();
  const Value filters = reshape(w, shape_value({f[0], dims.mul(f[1], f[2]), f[3], f[4]}));
  const Value y = planar(images, filters, windows.part(1, 2), groups);
  if (!y) return {};
  const Shape s = y.shape();
  const Value stacked = reshape(y, shape_value({m[0], m[3], s[1], s[2], s[3]}));
  return transpose(stacked, HostValue::ints({0, 2, 1, 3, 4}));
}

Value layer_body(Builder& b, size_t axes) {
  const Value x = b.in("input");
  const Value w = b.in("weight");
  const bool wires_groups = b.op().find_input("groups") != nullptr;
  if (!x || !w || (wires_groups && !are_known(b, {"groups"}))) return {};
  const auto windows = windows_of_layer(b, Shape(w.shape().begin() + 2, w.shape().end()), axes > 2);
  if (!windows) return {};
  constexpr decltype(&planar) kBodies[] = {linear, planar, spatial};
  const Value y = kBodies[axes - 1](x, w, *windows, b.attr("groups"));
  return b.has("bias") ? y + b.in("bias") : y;
}

Init from_fan_in(size_t axes) {
  Init init{Init::Kind::kUniformFanIn, "weight", {1}};
  for (size_t i = 0; i < axes; ++i) init.fan_in_dims.push_back(static_cast<int>(i) + 2);
  return init;
}

HostValue ones(size_t axes, int64_t value = 1) {
  return HostValue::tuple(HostValue::Tuple(axes, HostValue(value)));
}

// [n, c, size, size …] with other sizes where they are given.
std::vector<int64_t> extended(std::vector<int64_t> front, std::vector<int64_t> sizes, size_t axes) {
  front.insert(front.end(), sizes.end() - static_cast<std::ptrdiff_t>(axes), sizes.end());
  return front;
}

std::vector<int64_t> bias_shape(int64_t channels, size_t axes) {
  std::vector<int64_t> out(axes + 2, 1);
  out[1] = channels;
  return out;
}

Shapes layer_shapes(size_t axes) {
  return {{"weight", extended({4, 3}, {2, 3, 3}, axes)},
          {"input", extended({2, 3}, {4, 5, 6}, axes)},
          {"bias", bias_shape(4, axes)}};
}

OpDefBuilder& layer_cases(OpDefBuilder& block, const Layer& layer) {
  const size_t axes = layer.axes;
  const Shapes odd = {{"weight", extended({4, 3}, {3, 3, 3}, axes)},
                      {"input", extended({2, 3}, {4, 9, 9}, axes)},
                      {"bias", bias_shape(4, axes)}};
  const Shapes grouped = {{"weight", extended({4, 1}, {2, 2, 2}, axes)},
                          {"input", extended({2, 2}, {5, 6, 6}, axes)}};
  const Shapes clash = {{"weight", extended({4, 3}, {3, 3, 3}, axes)},
                        {"input", extended({2, 5}, {8, 8, 8}, axes)},
                        {"bias", bias_shape(4, axes)}};
  return block.with(at(layer_shapes(axes)))
      .with(at(odd, {{"padding", "same"}, {"kernel_size", 3}, {"out_channels", 4}}))
      .with(at(odd, {{"padding", "same"}, {"dilation", 2}}))
      .with(at(grouped, {{"use_bias", false}, {"padding", "same"}, {"groups", 2}}))
      .with(at(grouped, {{"use_bias", false}, {"stride", 2}, {"padding", 1}, {"groups", 2}}))
      .with(at(odd, {{"padding", 1}, {"dilation", 2}, {"stride", 2}}))
      .rejects(at(clash), layer.op)
      .rejects(at(odd, {{"stride", 0}}), "stride must be positive")
      .rejects(at(odd, {{"padding", -1}}), "padding must not be negative")
      .rejects(at({{"weight", extended({4, 3}, {0, 0, 0}, axes)},
                   {"input", extended({2, 3}, {4, 9, 9}, axes)},
                   {"bias", bias_shape(4, axes)}}),
               "window");
}

std::string layer_doc(size_t axes) {
  const std::string sizes[] = {"sequences [n, c, l]", "images [n, c, h, w]",
                               "volumes [n, c, d, h, w]"};
  const std::string filters[] = {"[o, c / groups, k]", "[o, c / groups, kh, kw]",
                                 "[o, c / groups, kd, kh, kw]"};
  const std::string biases[] = {"[1, o, 1]", "[1, o, 1, 1]", "[1, o, 1, 1, 1]"};
  const std::string each[] = {"ints; padding: an int, a pair",
                              "an int or a pair; padding: an int, a pair, a pair of pairs",
                              "an int or three; padding: an int, three, three pairs"};
  const size_t i = axes - 1;
  return "A convolution layer over " + sizes[i] + ": cross-correlation with the weight " +
         filters[i] + ", plus bias " + biases[i] + ". stride and dilation: " + each[i] +
         ", 'same' or 'valid'.";
}

void define_layer(OpFamily& ops, const Layer& layer, const char* python,
                  std::initializer_list<const char*> aliases) {
  const size_t axes = layer.axes;
  const bool is_line = axes == 1;
  OpDefBuilder block = ops.def(layer.op);
  block.python(python, aliases)
      .doc(layer_doc(axes))
      .input("weight", kFloating)
      .key("padding", is_line ? HostValue(0) : ones(axes, 0))
      .key("stride", is_line ? HostValue(1) : ones(axes))
      .key("dilation", is_line ? HostValue(1) : ones(axes))
      .input("input", kNumeric)
      .optional("bias", kFloating, "use_bias");
  if (is_line) {  // groups came later, and last
    block.arguments({"kernel_size", "out_channels", "stride", "padding", "dilation", "use_bias",
                     "input", "weight"});
  } else {
    block.key("groups", 1);
  }
  block.attr("kernel_size", HostValue(), kWidth | infer::kSequence)
      .attr("out_channels", HostValue(), kWidth)
      .attr("use_bias", true);
  if (is_line) {
    block.attr("groups", 1)
        .keys({"weight", "padding", "input", "bias", "stride", "dilation"})
        .connect({"input", "weight", "stride", "padding", "dilation", "output", "bias"});
  } else {
    block.keys({"weight", "padding", "stride", "dilation", "input", "bias", "groups"})
        .connect({"input", "weight", "stride", "padding", "dilation", "groups", "output", "bias"});
  }
  block.output("output", computed())
      .promote_float({"weight", "input", "bias"})
      .trainable("weight", from_fan_in(axes))
      .trainable("bias", from_fan_in(axes))
      .rule([&layer](RuleBuilder& r) { layer_rule(r, layer); })
      .compose([axes](Builder& b) { return layer_body(b, axes); });
  layer_cases(block, layer);
}

// Every argument is given, or wired: what the original's layers are made of.
void define_primitive(OpFamily& ops, const Layer& layer, const char* name, const char* python) {
  const size_t axes = layer.axes;
  const bool is_line = axes == 1;
  OpDefBuilder block = ops.def(name);
  block.python(python)
      .arguments({"use_bias", "input", "weight", "stride", "padding", "dilation",
                  is_line ? "bias" : "groups"})
      .doc(layer_doc(axes) + " None of them has a default.")
      .input("input", kNumeric)
      .input("weight", kNumeric)
      .key("stride")
      .key("padding")
      .key("dilation");
  if (!is_line) block.key("groups");
  block.optional("bias", kNumeric, "use_bias").attr("use_bias", true);
  if (is_line) {
    block.attr("groups", 1)
        .keys({"input", "weight", "bias", "stride", "padding", "dilation"})
        .connect({"input", "weight", "stride", "padding", "dilation", "output", "bias"});
  } else {
    block.keys({"input", "weight", "bias", "stride", "padding", "dilation", "groups"})
        .connect({"input", "weight", "stride", "padding", "dilation", "groups", "output", "bias"});
  }
  block.output("output", computed())
      .promote_float({"weight", "input", "bias"})
      .rule([&layer](RuleBuilder& r) { state_convolution(r, layer); })
      .compose([axes](Builder& b) { return layer_body(b, axes); });
  Attrs plain = {{"stride", is_line ? HostValue(1) : ones(axes)},
                 {"padding", is_line ? HostValue::ints({1, 0}) : ones(axes, 0)},
                 {"dilation", is_line ? HostValue(1) : ones(axes)}};
  if (!is_line) plain.set("groups", 1);
  block.with(at(layer_shapes(axes), plain));
}

}  // namespace

void define_conv_layers(OpFamily& ops) {
  define_layer(ops, kLayers[0], "Convolution1D", {"Conv1d", "Conv1D"});
  define_layer(ops, kLayers[1], "Convolution2D", {"Conv2d", "Conv2D"});
  define_layer(ops, kLayers[2], "Convolution3D", {"Conv3d", "Conv3D"});
  define_primitive(ops, kLayers[0], "primitive_convolution1d", "PrimitiveConvolution1D");
  define_primitive(ops, kLayers[1], "primitive_convolution2d", "PrimitiveConvolution2D");
}

}  // namespace mithril::ops
