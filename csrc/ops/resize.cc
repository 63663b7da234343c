// Interpolation to another size: each axis by itself, as weighted sums of a few neighbours.
#include <cmath>

#include "infer/relation.h"
#include "ops/resample.h"
#include "ops/window.h"

namespace mithril::ops {
namespace {

enum class Method : uint8_t { kNearest, kNearestExact, kLinear, kCubic };

struct Mode {
  const char* name;
  Method method;
  int axes;  // 0 = any number
};
constexpr Mode kModes[] = {
    {"nearest", Method::kNearest, 0},  {"nearest-exact", Method::kNearestExact, 0},
    {"linear", Method::kLinear, 1},    {"bilinear", Method::kLinear, 2},
    {"trilinear", Method::kLinear, 3}, {"bicubic", Method::kCubic, 2},
};

const Mode* mode_of(const HostValue& name) {
  for (const Mode& mode : kModes) {
    if (name.is_string() && name.as_string() == mode.name) return &mode;
  }
  return nullptr;
}

core::Error refuse(const std::string& text) {
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument, "{}", text);
}

// The arguments with `size` or `scale_factor` for each axis.
struct Resize {
  const Mode* mode = nullptr;
  bool align_corners = false;
  std::vector<int64_t> sizes;  // one of both is empty
  std::vector<double> scales;

  int64_t size_of(size_t axis, int64_t from) const {
    if (!sizes.empty()) return sizes[axis];
    return static_cast<int64_t>(std::floor(static_cast<double>(from) * scales[axis]));
  }
};

core::Result<std::vector<int64_t>> sizes_of(const HostValue& given, size_t axes) {
  std::vector<int64_t> out;
  const HostValue all = each_axis(given, axes);
  for (const HostValue& size : all.items()) {
    if (size.is_int() && size.as_int() > 0 && size.as_int() <= kMostResampled) {
      out.push_back(size.as_int());
    }
  }
  if (out.size() == axes && all.items().size() == axes) return out;
  return refuse("'size' must be a positive int or one for each axis, got " +
                core::to_string(given));
}

core::Result<std::vector<double>> scales_of(const HostValue& given, size_t axes) {
  std::vector<double> out;
  const HostValue all = each_axis(given, axes);
  for (const HostValue& scale : all.items()) {
    const bool is_number = scale.is_int() || scale.is_double();
    if (is_number && std::isfinite(scale.as_number()) && scale.as_number() > 0.0) {
      out.push_back(scale.as_number());
    }
  }
  if (out.size() == axes && all.items().size() == axes) return out;
  return refuse("'scale_factor' must be a positive number or one for each axis, got " +
                core::to_string(given));
}

core::Result<Resize> resize_of(const Attrs& attrs, size_t axes) {
  Resize out;
  out.mode = mode_of(*attrs.find("mode"));
  const HostValue& size = *attrs.find("size");
  const HostValue& scale = *attrs.find("scale_factor");
  out.align_corners = *attrs.find("align_corners") == HostValue(true);
  if (size.is_none() == scale.is_none()) {
    return refuse("one of 'size' and 'scale_factor' must be given, got " + core::to_string(size) +
                  " and " + core::to_string(scale));
  }
  if (out.mode == nullptr) return refuse("'mode' has no such value");
  const bool is_nearest =
      out.mode->method == Method::kNearest || out.mode->method == Method::kNearestExact;
  if (out.align_corners && is_nearest) {
    return refuse("'align_corners' must be false where the mode is " + std::string(out.mode->name));
  }
  if (axes < 1 || axes > 3 ||
      (out.mode->axes != 0 && axes != static_cast<size_t>(out.mode->axes))) {
    return core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                      "'input' must have {} axes after [n, c] where the mode is {}, got {}",
                      out.mode->axes == 0 ? "1 to 3" : std::to_string(out.mode->axes),
                      out.mode->name, axes);
  }
  if (!size.is_none()) {
    MITHRIL_ASSIGN(out.sizes, sizes_of(size, axes));
  } else {
    MITHRIL_ASSIGN(out.scales, scales_of(scale, axes));
  }
  return out;
}

constexpr const char* kArguments[] = {"size", "scale_factor", "align_corners", "mode"};

// Terms: output, input, then the arguments.
core::Status relate_sizes(infer::Relation& relation) {
  const auto rank = relation.rank(1) ? relation.rank(1) : relation.rank(0);
  if (!rank) return {};
  MITHRIL_RETURN_IF_ERROR(relation.set_rank(0, *rank));
  MITHRIL_RETURN_IF_ERROR(relation.set_rank(1, *rank));
  Attrs attrs;
  for (int i = 0; i < 4; ++i) attrs.set(kArguments[i], relation.value(2 + i).value_or(HostValue()));
  MITHRIL_ASSIGN(const Resize resize,
                 resize_of(attrs, static_cast<size_t>(std::max(*rank - 2, 0))));
  MITHRIL_RETURN_IF_ERROR(relation.tie(0, 0, 1, 0));
  MITHRIL_RETURN_IF_ERROR(relation.tie(0, 1, 1, 1));
  for (int axis = 2; axis < *rank; ++axis) {
    const auto i = static_cast<size_t>(axis - 2);
    const auto from = relation.size(1, axis);
    if (from && *from == 0) return refuse("'input' must have elements along the axes it changes");
    if (!from && resize.sizes.empty()) continue;
    const double scaled = resize.sizes.empty() ? static_cast<double>(*from) * resize.scales[i] : 1;
    if (scaled < 1.0 || scaled > static_cast<double>(kMostResampled)) {
      return refuse(
          fmt::format("'scale_factor' makes no size of {}, got {}", *from, resize.scales[i]));
    }
    MITHRIL_RETURN_IF_ERROR(relation.set_size(0, axis, resize.size_of(i, from.value_or(1))));
  }
  return {};
}

// Where elements of the result lie between those of the operand.
struct Sampling {
  int64_t from, to;
  double step;  // between neighbours of the result, in elements of the operand
  bool align_corners;

  double at(int64_t i) const {
    const auto place = static_cast<double>(i);
    return align_corners ? place * step : (place + 0.5) * step - 0.5;
  }
  int64_t inside(int64_t place) const { return std::clamp<int64_t>(place, 0, from - 1); }
};

// `shift` is 1 for the middles of cells, 0 for their starts.
Taps nearest(const Sampling& p, bool is_given_size, int64_t shift) {
  Taps out;
  for (int64_t i = 0; i < p.to; ++i) {
    const int64_t twice = 2 * i + shift;
    const double place = static_cast<double>(twice) * 0.5 * p.step;
    out.places.push_back(p.inside(is_given_size ? twice * p.from / (2 * p.to)  // exact
                                                : static_cast<int64_t>(std::floor(place))));
  }
  return out;
}

Taps linear(const Sampling& p) {
  Taps out;
  out.count = 2;
  for (int64_t i = 0; i < p.to; ++i) {
    const double place = std::max(p.at(i), 0.0);
    const auto first = p.inside(static_cast<int64_t>(place));
    const double rest = std::min(place - static_cast<double>(first), 1.0);
    out.places.insert(out.places.end(), {first, p.inside(first + 1)});
    out.weights.insert(out.weights.end(), {1.0 - rest, rest});
  }
  return out;
}

// Keys, IEEE Trans. ASSP 29 (1981), with a = -0.75.
double cubic_weight(double distance) {
  constexpr double a = -0.75;
  const double d = std::abs(distance);
  if (d <= 1.0) return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
  return d < 2.0 ? (((d - 5.0) * d + 8.0) * d - 4.0) * a : 0.0;
}

Taps cubic(const Sampling& p) {
  Taps out;
  out.count = 4;
  for (int64_t i = 0; i < p.to; ++i) {
    const double place = p.at(i);
    const auto first = static_cast<int64_t>(std::floor(place)) - 1;
    for (int64_t k = 0; k < 4; ++k) {
      out.places.push_back(p.inside(first + k));
      out.weights.push_back(cubic_weight(place - static_cast<double>(first + k)));
    }
  }
  return out;
}

Taps taps_of(const Resize& resize, size_t axis, int64_t from) {
  const int64_t to = resize.size_of(axis, from);
  double step = resize.scales.empty() ? static_cast<double>(from) / static_cast<double>(to)
                                      : 1.0 / resize.scales[axis];
  if (resize.align_corners) {
    step = to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0.0;
  }
  const Sampling places{from, to, step, resize.align_corners};
  switch (resize.mode->method) {
    case Method::kNearest: return nearest(places, resize.scales.empty(), 0);
    case Method::kNearestExact: return nearest(places, resize.scales.empty(), 1);
    case Method::kLinear: return linear(places);
    case Method::kCubic: return cubic(places);
  }
  return {};
}

Value interpolated(Builder& b) {
  Value x = b.in("input");
  if (!x || x.rank() < 2) return {};
  const auto resize = resize_of(b.node().attrs, x.rank() - 2);
  if (!resize.ok()) return {};
  for (size_t axis = 2; x && axis < x.rank(); ++axis) {
    const auto size = known_size(b, x, axis);
    if (!size) return {};
    x = resampled(x, axis, taps_of(*resize, axis - 2, *size));
  }
  return x;
}

}  // namespace

void define_resize(OpFamily& ops) {
  const Shapes image = {{"input", {2, 3, 4, 5}}};
  const HostValue size = HostValue::ints({7, 3});
  constexpr infer::KindSet kScale =
      infer::kScalarInt | infer::kScalarFloat | infer::kSequence | infer::kNoneKind;
  ops.def("interpolate")
      .python("Interpolate", {"Upsample"})
      .doc(
          "[n, c, ...] with its last axes (one to three) brought to `size`, or multiplied by "
          "`scale_factor` (rounded down): a number, or one for each axis. mode: 'nearest', "
          "'nearest-exact', 'linear' (one axis), 'bilinear' (two), 'trilinear' (three), 'bicubic' "
          "(two; Keys, 1981, with a = -0.75). align_corners: the first and last elements of an "
          "axis keep their values; else elements are cells, and so are those of the result.")
      .input("input", kNumeric)
      .attr("size", HostValue(), kWidth | infer::kSequence)
      .attr("scale_factor", HostValue(), kScale)
      .attr("align_corners", false)
      .attr("mode", "nearest")
      .choices({"nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic"})
      .output("output", computed())
      .promote_float({"input"})
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), kFloating);
        std::vector<Term> terms{r.out(), r.in("input")};
        for (const char* name : kArguments) terms.push_back(r.attr(name));
        r.custom(terms, relate_sizes);
      })
      .compose(interpolated)
      .with(at(image, {{"size", size}}))
      .with(at(image, {{"size", size}, {"mode", "bilinear"}}))
      .with(at(image, {{"size", size}, {"mode", "bilinear"}, {"align_corners", true}}))
      .with(at(image, {{"scale_factor", 2}, {"mode", "bicubic"}}))
      .with(at(image, {{"size", size}, {"mode", "bicubic"}, {"align_corners", true}}))
      .with(at(image, {{"scale_factor", HostValue::tuple({HostValue(1.5), HostValue(0.7)})}}))
      .with(at(image, {{"size", 3}, {"mode", "nearest-exact"}}))
      .with(at({{"input", {2, 1, 6}}}, {{"scale_factor", 1.7}, {"mode", "linear"}}))
      .with(at({{"input", {1, 2, 2, 3, 2}}}, {{"size", 4}, {"mode", "trilinear"}}))
      .rejects(at(image, {{"size", 0}}), "'size' must be")
      .rejects(at(image), "one of 'size' and 'scale_factor'")
      .rejects(at(image, {{"scale_factor", 0.01}}), "'scale_factor' makes no size")
      .rejects(at(image, {{"size", 2}, {"mode", "linear"}}), "must have 1 axes")
      .rejects(at(image, {{"size", 2}, {"align_corners", true}}), "'align_corners' must be")
      .rejects(at({{"input", {2, 3, 0}}}, {{"size", 2}}), "must have elements");
}

}  // namespace mithril::ops
