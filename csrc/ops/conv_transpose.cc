// Transposed convolution: what a convolution's input gradient makes of its operand. Two axes are
// conv2d_dx, one is a row of an image; of three axes the first is spread by hand.
#include "ops/window.h"

namespace mithril::ops {
namespace {

struct Layer {
  size_t axes;
  const char* op;
  const char* python;
  std::initializer_list<const char*> aliases;
  const char* input;  // templates
  const char* output;
  const char* weight;
  const char* bias;
};
const Layer kLayers[] = {
    {1,
     "convtranspose1d",
     "ConvTranspose1D",
     {"ConvTranspose1d"},
     "n c i0",
     "n o o0",
     "c g k0",
     "1 o 1"},
    {2,
     "convtranspose2d",
     "ConvTranspose2D",
     {"ConvTranspose2d"},
     "n c i0 i1",
     "n o o0 o1",
     "c g k0 k1",
     "1 o 1 1"},
    {3,
     "convtranspose3d",
     "ConvTranspose3D",
     {"ConvTranspose3d"},
     "n c i0 i1 i2",
     "n o o0 o1 o2",
     "c g k0 k1 k2",
     "1 o 1 1 1"},
};
constexpr const char* kIn[] = {"i0", "i1", "i2"};
constexpr const char* kOut[] = {"o0", "o1", "o2"};
constexpr const char* kKernel[] = {"k0", "k1", "k2"};
constexpr int64_t kMost = int64_t{1} << 31;  // of an argument: sums of a few do not overflow

// The windows of a convolution whose input gradient is the result, but for `beyond` elements at
// the end of each axis that none of its windows meets.
struct Spread {
  Windows windows;  // size: 0 where the weight's is not known
  std::vector<int64_t> beyond;
  int64_t groups = 1;
  bool is_same = false;  // the result is as large as the input times the stride
};

core::Error refuse(const char* argument, const char* wanted, const HostValue& got) {
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument, "'{}' must be {}, got {}",
                    argument, wanted, core::to_string(got));
}

// One number for each axis, from `least` on.
core::Result<std::vector<int64_t>> numbers(const Attrs& attrs, const char* name, size_t axes,
                                           int64_t least) {
  const HostValue& value = *attrs.find(name);
  const HostValue all = each_axis(value, axes);
  const char* wanted = least == 0 ? "an int of at least 0 or one for each axis"
                                  : "an int of at least 1 or one for each axis";
  if (all.items().size() != axes) return refuse(name, wanted, value);
  std::vector<int64_t> out;
  for (const HostValue& item : all.items()) {
    if (!item.is_int() || item.as_int() < least || item.as_int() >= kMost) {
      return refuse(name, wanted, value);
    }
    out.push_back(item.as_int());
  }
  return out;
}

core::Result<std::vector<std::array<int64_t, 2>>> paddings(const Attrs& attrs, size_t axes) {
  const HostValue& value = *attrs.find("padding");
  const HostValue all = each_axis(value, axes);
  const bool is_pair = axes == 1 && all.items().size() == 2;  // (low, high) of the one axis
  const HostValue sides = is_pair ? HostValue::tuple({all}) : all;
  const auto fail = [&] {
    return refuse("padding", "'same', an int, one for each axis, or (low, high) for each axis",
                  value);
  };
  if (sides.items().size() != axes) return fail();
  std::vector<std::array<int64_t, 2>> out;
  for (const HostValue& side : sides.items()) {
    const HostValue both = each_axis(side, 2);
    const HostValue::Tuple& ends = both.items();
    const auto fits = [](const HostValue& n) {
      return n.is_int() && n.as_int() >= 0 && n.as_int() < kMost;
    };
    if (ends.size() != 2 || !fits(ends[0]) || !fits(ends[1])) return fail();
    out.push_back({ends[0].as_int(), ends[1].as_int()});
  }
  return out;
}

bool is_same(const Attrs& attrs) { return *attrs.find("padding") == HostValue("same"); }

// What the windows reach beyond input times stride is cut, the larger half at the end, or what they
// lack is added there.
void pad_to_same(Spread& spread) {
  Windows& w = spread.windows;
  for (size_t i = 0; i < w.axes(); ++i) {
    const int64_t more = (w.size[i] - 1) * w.dilation[i] + 1 - w.stride[i];
    const int64_t cut = std::max<int64_t>(more, 0);
    w.padding[i] = {cut / 2, cut - cut / 2};
    spread.beyond[i] = std::max<int64_t>(-more, 0);
  }
}

core::Result<Spread> spread_of(const Attrs& attrs, size_t axes) {
  Spread out;
  out.is_same = is_same(attrs);
  MITHRIL_ASSIGN(out.windows.stride, numbers(attrs, "stride", axes, 1));
  MITHRIL_ASSIGN(out.windows.dilation, numbers(attrs, "dilation", axes, 1));
  out.windows.padding.assign(axes, {0, 0});
  if (!out.is_same) {
    MITHRIL_ASSIGN(out.windows.padding, paddings(attrs, axes));
  }
  MITHRIL_ASSIGN(const std::vector<int64_t> more, numbers(attrs, "output_padding", axes, 0));
  MITHRIL_ASSIGN(const std::vector<int64_t> groups, numbers(attrs, "groups", 1, 1));
  out.groups = groups[0];
  for (size_t i = 0; i < axes; ++i) {
    if (out.is_same && more[i] != 0) {
      return refuse("output_padding", "0 beside padding 'same'", *attrs.find("output_padding"));
    }
    if (more[i] >= std::max(out.windows.stride[i], out.windows.dilation[i])) {
      return refuse("output_padding", "smaller than the stride or the dilation",
                    *attrs.find("output_padding"));
    }
    int64_t& high = out.windows.padding[i][1];
    out.beyond.push_back(std::max<int64_t>(more[i] - high, 0));
    high = std::max<int64_t>(high - more[i], 0);
  }
  out.windows.size.assign(axes, 0);
  return out;
}

infer::DimTerm shifted(infer::DimTerm dim, int64_t by) { return by < 0 ? dim - -by : dim + by; }

Attrs known_attrs(RuleBuilder& r) {
  Attrs out;
  for (const char* name : {"stride", "padding", "output_padding", "dilation", "groups"}) {
    out.set(name, r.known(r.attr(name)).value_or(HostValue()));
  }
  return out;
}

void layer_rule(RuleBuilder& r, const Layer& layer) {
  auto known = spread_of(known_attrs(r), layer.axes);
  if (!known.ok()) return r.fail(known.error());
  r.shape(r.in("input"), layer.input);
  r.shape(r.in("weight"), layer.weight);
  r.shape(r.out(), layer.output);
  if (r.has("bias")) r.shape(r.in("bias"), layer.bias);
  const auto size = known_sizes_of(r, layer.op, "kernel_size", layer.axes);
  const auto channels = r.known(r.attr("out_channels"));
  if (channels && channels->is_int()) r.equal(r.dim("o"), channels->as_int());
  r.equal(r.dim("o"), r.dim("g") * known->groups);
  r.divide(r.dim("c"), r.dim(known->groups));
  const Windows& w = known->windows;
  for (size_t i = 0; i < layer.axes; ++i) {
    if (size) r.equal(r.dim(kKernel[i]), (*size)[i]);
    if (known->is_same) {
      r.equal(r.dim(kOut[i]), r.dim(kIn[i]) * w.stride[i]);
      continue;
    }
    // (input - 1) * stride + (kernel - 1) * dilation + 1, cut on both sides
    const int64_t rest =
        known->beyond[i] + 1 - w.stride[i] - w.dilation[i] - w.padding[i][0] - w.padding[i][1];
    const infer::DimTerm reach = r.dim(kIn[i]) * w.stride[i] + r.dim(kKernel[i]) * w.dilation[i];
    r.equal(r.dim(kOut[i]), shifted(reach, rest));
  }
}

Value planar(Value x, Value w, const Spread& spread, std::vector<infer::Dim> sizes) {
  if (!x || !w) return {};
  Attrs attrs = spread.windows.attrs(false);
  attrs.set("groups", HostValue(spread.groups));
  infer::DimTable& dims = x.builder->graph().dims;
  Shape shape{x.shape()[0], dims.mul(w.shape()[1], spread.groups)};
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  attrs.set("shape", shape_value(shape));
  return ir::apply("conv2d_dx", {x, w}, std::move(attrs));
}

Value padded(Value x, size_t axis, int64_t low, int64_t high) {
  if (!x || (low == 0 && high == 0)) return x;
  HostValue::Tuple widths(x.rank(), HostValue::ints({0, 0}));
  widths[axis] = HostValue::ints({low, high});
  return ir::apply("pad", {x}, {{"pad_width", HostValue::tuple(std::move(widths))}});
}

// x[:, :, start:stop]
Value cut(Value x, infer::Dim start, infer::Dim stop) {
  if (!x || x.shape()[2] == infer::Dim(0)) return x;
  HostValue::Tuple index(3, HostValue(core::Slice{}));
  index[2] = HostValue(core::Slice{size_value(start), size_value(stop), HostValue()});
  return ir::apply("index", {x}, {{"index", HostValue::tuple(std::move(index))}});
}

// taps [n, c, k, d, h, w] -> [n, c, size, h, w]: place t of every window, `stride` elements after
// that of the window before, is added at t * dilation.
Value spread_depth(Value taps, const Windows& depth, infer::Dim size) {
  if (!taps) return {};
  infer::DimTable& dims = taps.builder->graph().dims;
  const Shape s = taps.shape();
  const int64_t stride = depth.stride[0], dilation = depth.dilation[0], count = depth.size[0];
  Value total;
  for (int64_t t = 0; t < count; ++t) {
    HostValue::Tuple index(3, HostValue(core::Slice{}));
    index[2] = HostValue(core::Slice{HostValue(t), HostValue(t + 1), HostValue()});
    const Value one = ir::apply("index", {taps}, {{"index", HostValue::tuple(std::move(index))}});
    const Value column = reshape(one, shape_value({s[0], s[1], s[3], 1, s[4], s[5]}));
    const Value apart = reshape(padded(column, 3, 0, stride - 1),
                                shape_value({s[0], s[1], dims.mul(s[3], stride), s[4], s[5]}));
    // Behind the last window there is room for what its padding may keep.
    const Value placed = padded(apart, 2, t * dilation, (count - 1 - t) * dilation);
    total = total ? total + placed : placed;
  }
  const int64_t low = depth.padding[0][0];
  return cut(total, infer::Dim(low), dims.add(size, low));
}

Value spatial(Value x, Value w, const Spread& spread, const std::vector<infer::Dim>& sizes) {
  infer::DimTable& dims = x.builder->graph().dims;
  const Shape s = x.shape();  // n, c, d, h, w
  const Shape f = w.shape();
  const Value images = reshape(transpose(x, HostValue::ints({0, 2, 1, 3, 4})),
                               shape_value({dims.mul(s[0], s[2]), s[1], s[3], s[4]}));
  const Value filters = reshape(w, shape_value({f[0], dims.mul(f[1], f[2]), f[3], f[4]}));
  const Spread rows{spread.windows.part(1, 2), {}, spread.groups};
  const Value y = planar(images, filters, rows, {sizes[1], sizes[2]});
  const infer::Dim channels = dims.mul(f[1], spread.groups);
  const Value taps =
      transpose(reshape(y, shape_value({s[0], s[2], channels, f[2], sizes[1], sizes[2]})),
                HostValue::ints({0, 2, 3, 1, 4, 5}));
  return spread_depth(taps, spread.windows.part(0, 1), sizes[0]);
}

Value linear(Value x, Value w, const Spread& spread, const std::vector<infer::Dim>& sizes) {
  Spread row = spread;
  row.windows = spread.windows.with_unit_axis(true);
  const Value y = planar(expand_dims(x, HostValue(-2)), expand_dims(w, HostValue(-2)), row,
                         {infer::Dim(1), sizes[0]});
  return with_last_axes(y, 2, {sizes[0]});
}

// What the windows reach of each axis.
std::vector<infer::Dim> reached(infer::DimTable& dims, const Shape& in, const Spread& spread) {
  const Windows& w = spread.windows;
  std::vector<infer::Dim> out;
  for (size_t i = 0; i < w.axes(); ++i) {
    const int64_t rest =
        (w.size[i] - 1) * w.dilation[i] + 1 - w.stride[i] - w.padding[i][0] - w.padding[i][1];
    out.push_back(dims.add(dims.mul(in[i + 2], w.stride[i]), dims.constant(rest)));
  }
  return out;
}

Value layer_body(Builder& b, size_t axes) {
  const Value x = b.in("input");
  const Value w = b.in("weight");
  if (!x || !w) return {};
  auto spread = spread_of(b.node().attrs, axes);
  if (!spread.ok()) {
    b.fail(spread.error());
    return {};
  }
  for (size_t i = 0; i < axes; ++i) {
    const infer::Dim size = w.shape()[i + 2];
    if (!size.known()) {
      unsupported(b, b.op().name + ": 'kernel_size' must be known when the model is compiled");
      return {};
    }
    spread->windows.size[i] = size.value();
  }
  if (spread->is_same) pad_to_same(*spread);
  const std::vector<infer::Dim> sizes = reached(b.graph().dims, x.shape(), *spread);
  Value y = axes == 1   ? linear(x, w, *spread, sizes)
            : axes == 2 ? planar(x, w, *spread, sizes)
                        : spatial(x, w, *spread, sizes);
  for (size_t i = 0; i < axes; ++i) y = padded(y, i + 2, 0, spread->beyond[i]);
  return b.has("bias") ? y + b.in("bias") : y;
}

std::vector<int64_t> extended(std::vector<int64_t> front, std::vector<int64_t> sizes, size_t axes) {
  front.insert(front.end(), sizes.end() - static_cast<std::ptrdiff_t>(axes), sizes.end());
  return front;
}

Shapes layer_shapes(size_t axes) {
  return {{"input", extended({2, 4}, {2, 3, 4}, axes)},
          {"weight", extended({4, 3}, {2, 3, 2}, axes)},
          {"bias", extended({1, 3}, {1, 1, 1}, axes)}};
}

void layer_cases(OpDefBuilder& block, size_t axes) {
  const Shapes shapes = layer_shapes(axes);
  const Shapes bare = {shapes.begin(), shapes.begin() + 2};
  const Shapes many = {{"input", extended({1, 4}, {3, 4, 3}, axes)},
                       {"weight", extended({4, 1}, {3, 3, 3}, axes)}};
  block.with(at(shapes))
      .with(at(bare, {{"use_bias", false}, {"stride", 2}, {"padding", 1}, {"output_padding", 1}}))
      .with(at(many, {{"use_bias", false},
                      {"stride", 3},
                      {"dilation", 2},
                      {"groups", 2},
                      {"output_padding", 2},
                      {"kernel_size", 3},
                      {"out_channels", 2}}))
      .with(at({{"input", extended({0, 4}, {2, 3, 4}, axes)}, bare[1]}, {{"use_bias", false}}))
      .with(at(bare, {{"use_bias", false}, {"padding", "same"}}))
      .with(at(bare, {{"use_bias", false}, {"padding", "same"}, {"stride", 4}}))
      .with(at(bare, {{"use_bias", false}, {"padding", "same"}, {"stride", 2}, {"dilation", 2}}))
      .rejects(at(bare, {{"use_bias", false}, {"padding", "valid"}}), "'padding' must be")
      .rejects(at(bare, {{"use_bias", false}, {"stride", 0}}), "'stride' must be")
      .rejects(at(bare, {{"use_bias", false}, {"padding", -1}}), "'padding' must be")
      .rejects(at(bare, {{"use_bias", false}, {"output_padding", 1}}), "'output_padding' must be")
      .rejects(at(bare, {{"use_bias", false}, {"groups", 3}}), "sizes are in conflict");
}

void define_layer(OpFamily& ops, const Layer& layer) {
  const size_t axes = layer.axes;
  constexpr infer::KindSet kSizes = infer::kScalarInt | infer::kSequence;
  Init init{Init::Kind::kUniformFanIn, "weight", {1}};
  for (size_t i = 0; i < axes; ++i) init.fan_in_dims.push_back(static_cast<int>(i) + 2);
  OpDefBuilder block = ops.def(layer.op);
  block.python(layer.python, layer.aliases)
      .doc(
          "A transposed convolution layer: what the input gradient of a convolution with the "
          "weight [c, o / groups, ...] makes of [n, c, ...], plus bias [1, o, 1, ...]. The size "
          "of an axis is (input - 1) * stride - padding on both sides + dilation * (kernel - 1) + "
          "output_padding + 1; each argument is an int or one for each axis. padding 'same': "
          "input * stride; the larger half of what is cut, and all that is added, is at the end.")
      .input("weight", kFloating)
      .input("input", kNumeric)
      .optional("bias", kFloating, "use_bias")
      .attr("kernel_size", HostValue(), kWidth | infer::kSequence)
      .attr("out_channels", HostValue(), kWidth)
      .attr("stride", 1, kSizes)
      .attr("padding", 0, kSizes | infer::kStrKind)
      .attr("output_padding", 0, kSizes)
      .attr("dilation", 1, kSizes)
      .attr("groups", 1)
      .attr("use_bias", true)
      .keys({"weight", "input", "bias"})
      .connect({"input", "weight", "output", "bias"})
      .output("output", computed())
      .promote_float({"weight", "input", "bias"})
      .trainable("weight", init)
      .trainable("bias", init)
      .rule([&layer](RuleBuilder& r) { layer_rule(r, layer); })
      .compose([axes](Builder& b) { return layer_body(b, axes); });
  layer_cases(block, axes);
}

}  // namespace

void define_conv_transpose(OpFamily& ops) {
  for (const Layer& layer : kLayers) define_layer(ops, layer);
}

}  // namespace mithril::ops
