// Pooling to a size, whatever the input's: adaptive and global pools.
#include "infer/relation.h"
#include "ops/resample.h"
#include "ops/window.h"

namespace mithril::ops {
namespace {

struct Layer {
  Pool pool;
  size_t axes;
  const char* name;
  const char* python;
  const char* alias;
};
constexpr Layer kLayers[] = {
    {Pool::kMean, 1, "adaptiveavgpool1d", "AdaptiveAvgPool1D", "AdaptiveAvgPool1d"},
    {Pool::kMean, 2, "adaptiveavgpool2d", "AdaptiveAvgPool2D", "AdaptiveAvgPool2d"},
    {Pool::kMean, 3, "adaptiveavgpool3d", "AdaptiveAvgPool3D", "AdaptiveAvgPool3d"},
    {Pool::kMax, 1, "adaptivemaxpool1d", "AdaptiveMaxPool1D", "AdaptiveMaxPool1d"},
    {Pool::kMax, 2, "adaptivemaxpool2d", "AdaptiveMaxPool2D", "AdaptiveMaxPool2d"},
    {Pool::kMax, 3, "adaptivemaxpool3d", "AdaptiveMaxPool3D", "AdaptiveMaxPool3d"},
};

bool fits(const HostValue& size) {
  return size.is_none() || (size.is_int() && size.as_int() > 0 && size.as_int() <= kMostResampled);
}

// One size for each pooled axis, none: the input's.
core::Result<HostValue::Tuple> output_sizes(const HostValue& given, size_t axes) {
  const HostValue all = each_axis(given, axes);
  const HostValue::Tuple& sizes = all.items();
  if (sizes.size() == axes && std::all_of(sizes.begin(), sizes.end(), fits)) return sizes;
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "'output_size' must be a positive int, or one (or none) for each of {} axes, "
                    "got {}",
                    axes, core::to_string(given));
}

// Terms: input.
core::Status has_elements(infer::Relation& relation) {
  const auto rank = relation.rank(0);
  for (int64_t i = 1; rank && i <= relation.data() && i <= *rank; ++i) {
    const auto axis = static_cast<int>(*rank - i);
    if (relation.size(0, axis) != 0) continue;
    return core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                      "'input' must have elements along the axes that are pooled, got size 0 in "
                      "axis {}",
                      axis);
  }
  return {};
}

void layer_rule(RuleBuilder& r, const Layer& layer) {
  constexpr const char* kIn[] = {"...a i0", "...a i0 i1", "...a i0 i1 i2"};
  constexpr const char* kOut[] = {"...a o0", "...a o0 o1", "...a o0 o1 o2"};
  constexpr const char* kFrom[] = {"i0", "i1", "i2"};
  constexpr const char* kTo[] = {"o0", "o1", "o2"};
  const auto sizes = output_sizes(r.known(r.attr("output_size")).value_or(HostValue()), layer.axes);
  if (!sizes.ok()) return r.fail(sizes.error());
  if (layer.pool == Pool::kMax) r.same_kind(r.out(), r.in("input"));
  r.shape(r.in("input"), kIn[layer.axes - 1]);
  r.shape(r.out(), kOut[layer.axes - 1]);
  for (size_t i = 0; i < layer.axes; ++i) {
    const HostValue& size = (*sizes)[i];
    r.equal(r.dim(kTo[i]), size.is_none() ? r.dim(kFrom[i]) : r.dim(size.as_int()));
  }
  r.custom({r.in("input")}, has_elements, static_cast<int64_t>(layer.axes));
}

// Windows of equal size that fill the axes, where there are such.
std::optional<Windows> even_windows(const std::vector<int64_t>& from,
                                    const std::vector<int64_t>& to) {
  Windows out;
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] % to[i] != 0) return std::nullopt;
    out.size.push_back(from[i] / to[i]);
    out.dilation.push_back(1);
    out.padding.push_back({0, 0});
  }
  out.stride = out.size;
  return out;
}

// Window i from floor(i * n / m) up to ceil((i + 1) * n / m), the last place again where a window
// is shorter than others; with weights that make the mean.
Taps uneven_windows(int64_t from, int64_t to) {
  const auto start = [&](int64_t i) { return i * from / to; };
  const auto stop = [&](int64_t i) { return ((i + 1) * from + to - 1) / to; };
  Taps out;
  for (int64_t i = 0; i < to; ++i) out.count = std::max(out.count, stop(i) - start(i));
  for (int64_t i = 0; i < to; ++i) {
    const int64_t size = stop(i) - start(i);
    for (int64_t k = 0; k < out.count; ++k) {
      out.places.push_back(start(i) + std::min(k, size - 1));
      out.weights.push_back(k < size ? 1.0 / static_cast<double>(size) : 0.0);
    }
  }
  return out;
}

// The largest of `count` neighbours along one of the pooled axes: a place that stands twice in a
// window does not change what its first maximum is.
Value largest_of(Value x, size_t axes, size_t axis, int64_t count) {
  Windows windows;
  windows.size.assign(axes, 1);
  windows.size[axis] = count;
  windows.stride = windows.size;
  windows.dilation.assign(axes, 1);
  windows.padding.assign(axes, {0, 0});
  return pooled(Pool::kMax, x, windows);
}

Value layer_body(Builder& b, const Layer& layer) {
  Value x = b.in("input");
  const auto sizes = output_sizes(b.attr("output_size"), layer.axes);
  if (!x || !sizes.ok()) return {};
  const size_t first = x.rank() - layer.axes;
  std::vector<int64_t> from, to;
  for (size_t i = 0; i < layer.axes; ++i) {
    const auto size = known_size(b, x, first + i);
    if (!size) return {};
    from.push_back(*size);
    to.push_back((*sizes)[i].is_none() ? *size : (*sizes)[i].as_int());
  }
  if (const auto even = even_windows(from, to)) return pooled(layer.pool, x, *even);
  for (size_t i = layer.axes; i-- > 0;) {  // the last first: maxima in row-major order
    if (from[i] == to[i]) continue;
    Taps taps = uneven_windows(from[i], to[i]);
    if (layer.pool == Pool::kMean) {
      x = resampled(x, first + i, taps);
    } else {
      x = largest_of(take_along(x, first + i, taps.places), layer.axes, i, taps.count);
    }
  }
  return x;
}

Shapes input_of(size_t axes, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> shape{2, 3};
  shape.insert(shape.end(), sizes.end() - static_cast<std::ptrdiff_t>(axes), sizes.end());
  return {{"input", shape}};
}

void define_layer(OpFamily& ops, const Layer& layer) {
  const size_t axes = layer.axes;
  const std::string what = layer.pool == Pool::kMax ? "largest element" : "mean";
  OpDefBuilder block = ops.def(layer.name);
  block.python(layer.python, {layer.alias})
      .doc("The " + what +
           " of each of output_size windows (an int, or one for each axis; none: "
           "the input's size) that share the last " +
           (axes == 1 ? std::string("axis") : std::to_string(axes) + " axes") +
           ": window i of m over n elements goes from floor(i n / m) up to ceil((i + 1) n / m).")
      .input("input", kNumeric)
      .attr("output_size", infer::kScalarInt | infer::kSequence);
  if (layer.pool == Pool::kMax) {
    block.output("output", same_as("input")).kinks();
  } else {
    block.output("output", computed()).promote_float({"input"});
  }
  HostValue::Tuple kept(axes, HostValue(2));
  kept[0] = axes == 1 ? HostValue(7) : HostValue();
  block.rule([&layer](RuleBuilder& r) { layer_rule(r, layer); })
      .compose([&layer](Builder& b) { return layer_body(b, layer); })
      .with(at(input_of(axes, {2, 4, 6}), {{"output_size", 2}}))
      .with(at(input_of(axes, {3, 5, 7}), {{"output_size", 3}}))
      .with(at(input_of(axes, {2, 5, 4}), {{"output_size", HostValue::tuple(std::move(kept))}}))
      .rejects(at(input_of(axes, {2, 4, 6}), {{"output_size", 0}}), "'output_size' must be")
      .rejects(at(input_of(axes, {2, 4, 6}), {{"output_size", HostValue::ints({1, 2, 3, 4})}}),
               "'output_size' must be")
      .rejects(at(input_of(axes, {0, 0, 0}), {{"output_size", 2}}), "must have elements");
}

void global_rule(RuleBuilder& r) {
  r.equal(r.dim("n"), r.dim(r.in("input"), 0));
  r.equal(r.dim("c"), r.dim(r.in("input"), 1));
  r.dim(r.in("input"), 2);  // it has that axis
  r.when_rank_known(r.in("input"), [](RuleBuilder& rule, int rank) {
    std::vector<infer::DimTerm> dims(static_cast<size_t>(rank), rule.dim(1));
    if (rank < 3) return;
    dims[0] = rule.dim("n");
    dims[1] = rule.dim("c");
    rule.shape(rule.out(), std::span<const infer::DimTerm>(dims));
  });
}

HostValue spatial_axes(Value x) {
  std::vector<int64_t> axes;
  for (size_t i = 2; i < x.rank(); ++i) axes.push_back(static_cast<int64_t>(i));
  return HostValue::ints(axes);
}

void define_global(OpFamily& ops) {
  const auto cases = [](OpDefBuilder& block) {
    block.with(at({{"input", {2, 3, 4, 5}}}))
        .with(at({{"input", {2, 3, 4}}}))
        .with(at({{"input", {1, 2, 2, 3, 2}}}))
        .rejects(at({{"input", {2, 3}}}), "input");
  };
  OpDefBuilder average = ops.def("global_avg_pool");
  average.python("GlobalAvgPool")
      .doc("The mean of each channel of [n, c, ...], as [n, c, 1, ...].")
      .input("input", kNumeric)
      .output("output", computed())
      .promote_float({"input"})
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), kFloating);
        global_rule(r);
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        return x ? mean(x, spatial_axes(x), true) : Value();
      });
  cases(average);

  OpDefBuilder largest = ops.def("global_max_pool");
  largest.python("GlobalMaxPool")
      .doc(
          "The largest element of each channel of [n, c, ...], as [n, c, 1, ...]; NaN wins, ties "
          "share the gradient.")
      .input("input", kNumeric)
      .output("output", same_as("input"))
      .kinks()
      .rule([](RuleBuilder& r) {
        r.same_kind(r.out(), r.in("input"));
        global_rule(r);
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        return x ? max(x, spatial_axes(x), true) : Value();
      });
  cases(largest);
}

}  // namespace

void define_adaptive_pools(OpFamily& ops) {
  for (const Layer& layer : kLayers) define_layer(ops, layer);
  define_global(ops);
}

}  // namespace mithril::ops
