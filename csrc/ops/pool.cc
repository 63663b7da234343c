// The structured ops of pooling, over two axes and with canonical arguments (window.h).
#include <limits>

#include "core/checked.h"
#include "ops/resample.h"
#include "ops/window.h"

namespace mithril::ops {
namespace {

HostValue no_padding() {
  return HostValue::tuple({HostValue::ints({0, 0}), HostValue::ints({0, 0})});
}

OpDefBuilder& pool_attrs(OpDefBuilder& block) {
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

// x, padded by `fill`, at one tap of every window.
Value tap(Value padded, const Windows& w, const Shape& result, int64_t row, int64_t column) {
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

Value padded(Value x, const Windows& w, const Operand& fill) {
  if (!x) return {};
  HostValue::Tuple widths(x.rank() - 2, HostValue::ints({0, 0}));
  bool any = false;
  for (const auto& [low, high] : w.padding) {
    widths.push_back(HostValue::ints({low, high}));
    any |= low != 0 || high != 0;
  }
  if (!any) return x;
  const HostValue width = HostValue::tuple(std::move(widths));
  const Value shifted = ir::apply("pad", {x}, {{"pad_width", width}});
  if (fill.host == HostValue(0.0)) return shifted;
  const Value inside = ir::apply("pad", {ones_like(x)}, {{"pad_width", width}});
  return where(equal(inside, 0.0), fill, shifted);
}

// A window is written out tap by tap.
bool has_many_taps(Builder& b, const Windows& w) {
  constexpr int64_t kMost = 1 << 16;
  const auto taps = core::checked_mul(w.size[0], w.size[1]);
  if (taps && *taps <= kMost) return false;
  unsupported(b, fmt::format("{}: windows of at most {} places, got {} by {}", b.op().name, kMost,
                             w.size[0], w.size[1]));
  return true;
}

// What `value` has where each window of `input` has its first maximum: slices, tap by tap.
Value pick_at_maximum(Builder& b) {
  const Windows w = windows_of(b.node().attrs);
  if (has_many_taps(b, w)) return {};
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

int64_t limit_of(DType dtype, bool largest) {
  const auto bits = core::is_abstract(dtype) ? 64 : static_cast<int>(8 * core::size_of(dtype));
  if (dtype == DType::kUInt8) return largest ? UINT8_MAX : 0;
  const int64_t most = INT64_MAX >> (64 - bits);
  return largest ? most : -most - 1;
}

// How many windows fit along one axis.
infer::Dim count_of(infer::DimTable& dims, infer::Dim size, int64_t reach, int64_t stride) {
  return dims.add(dims.floor_div(dims.sub(size, reach + 1), stride), 1);
}

void define_max(OpFamily& ops) {
  pool_attrs(ops.def("max_pool2d")
                 .doc("The largest element of each window over the last two axes; padding never "
                      "wins, the gradient goes to the first maximum in row-major order.")
                 .input("input", kFloating))
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) { state_pool(r, r.out(), r.in("input")); })
      .kernel("max_pool2d")
      .moves()
      .gradient([](GradBuilder& g) {
        g.d("input") = ir::apply("max_pool2d_grad", {g.in("input"), g.dout()}, g.attrs());
      })
      .kinks()
      .with(at({{"input", {2, 3, 4, 6}}}, plain()))
      .with(at({{"input", {2, 5, 6}}}, overlapping()))
      .with(at({{"input", {0, 3, 4, 4}}}, plain()));

  pool_attrs(ops.def("max_pool2d_grad")
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

  pool_attrs(ops.def("max_pool2d_pick")
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
  pool_attrs(ops.def("avg_pool2d")
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

  pool_attrs(ops.def("avg_pool2d_grad")
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

}  // namespace

Value extreme_of_integers(Value x, const Windows& windows, bool largest) {
  if (!x) return {};
  Builder& b = *x.builder;
  if (has_many_taps(b, windows)) return {};
  const Value all = padded(x, windows, b.integer(limit_of(x.dtype(), !largest), x.dtype()));
  if (!all) return {};
  Shape result(2);
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = (windows.size[i] - 1) * windows.dilation[i];
    const infer::Dim size = all.shape()[all.rank() - 2 + i];
    result[i] = count_of(b.graph().dims, size, reach, windows.stride[i]);
  }
  Value best;
  for (int64_t row = 0; row < windows.size[0]; ++row) {
    for (int64_t column = 0; column < windows.size[1]; ++column) {
      const Value next = tap(all, windows, result, row, column);
      best = !best ? next : largest ? maximum(best, next) : minimum(best, next);
    }
  }
  return best;
}

void define_pool(OpFamily& ops) {
  define_max(ops);
  define_average(ops);
  define_pool_layers(ops);
  define_adaptive_pools(ops);
  define_resize(ops);
  define_padding_modes(ops);
}

}  // namespace mithril::ops
