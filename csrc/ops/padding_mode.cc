// Padding by other elements than zeros.
#include "infer/relation.h"
#include "ops/resample.h"

namespace mithril::ops {
namespace {

// Where the element at `place` of a padded axis of `size` comes from; places count from the
// operand's first element.
using Source = int64_t (*)(int64_t place, int64_t size);

int64_t reflected(int64_t place, int64_t size) {
  const int64_t from_first = place < 0 ? -place : place;
  return from_first < size ? from_first : 2 * (size - 1) - from_first;
}
int64_t replicated(int64_t place, int64_t size) { return std::clamp<int64_t>(place, 0, size - 1); }
int64_t wrapped(int64_t place, int64_t size) { return ((place % size) + size) % size; }

struct PaddingMode {
  const char* name;
  const char* python;
  const char* what;
  Source source;
  int64_t beyond;  // how much less than an axis may be added at one end of it; -1: any number
};
constexpr PaddingMode kPaddingModes[] = {
    {"reflectionpad", "ReflectionPad", "The operand mirrored at its borders, which stay single.",
     reflected, 1},
    {"replicationpad", "ReplicationPad", "The operand with its borders repeated.", replicated, -1},
    {"circularpad", "CircularPad", "The operand going on from its other end.", wrapped, 0},
};

using Widths = std::vector<std::pair<int64_t, int64_t>>;

bool is_pair(const HostValue& given) {
  return given.is_sequence() && given.items().size() == 2 && !given.items()[0].is_sequence();
}

// What `pad` takes for every axis, written out.
HostValue for_each_axis(const HostValue& given, size_t rank) {
  return is_pair(given) ? HostValue::tuple(HostValue::Tuple(rank, given)) : given;
}

// (low, high) for each axis; one pair is the last axis'. Nothing where they are no such pairs.
std::optional<Widths> widths_of(const HostValue& given, size_t rank) {
  if (!given.is_sequence()) return std::nullopt;
  HostValue::Tuple all = given.items();
  if (is_pair(given)) {
    all.assign(rank, HostValue::ints({0, 0}));
    if (rank > 0) all.back() = given;
  }
  if (all.size() != rank) return std::nullopt;
  Widths out;
  for (const HostValue& pair : all) {
    if (!pair.is_sequence() || pair.items().size() != 2) return std::nullopt;
    for (const HostValue& end : pair.items()) {
      if (!end.is_int() || end.as_int() < 0 || end.as_int() > kMostResampled) return std::nullopt;
    }
    out.emplace_back(pair.items()[0].as_int(), pair.items()[1].as_int());
  }
  return out;
}

// Terms: input, pad_width; `every`: one pair is that of every axis.
core::Status fits(infer::Relation& relation, bool every) {
  const auto rank = relation.rank(0);
  const auto given = relation.value(1);
  if (!rank || !given) return {};
  const auto size_of = static_cast<size_t>(*rank);
  const auto widths = widths_of(every ? for_each_axis(*given, size_of) : *given, size_of);
  if (!widths) {
    return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "'pad_width' must be (low, high) for each of {} axes, got {}", *rank,
                      core::to_string(*given));
  }
  for (int axis = 0; axis < *rank; ++axis) {
    const auto [low, high] = (*widths)[static_cast<size_t>(axis)];
    const auto size = relation.size(0, axis);
    const int64_t added = std::max(low, high);
    if (!size || added == 0) continue;
    const int64_t most = relation.data() < 0 && *size > 0
                             ? kMostResampled
                             : std::max<int64_t>(*size - relation.data(), 0);
    if (added <= most) continue;
    return core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                      "'pad_width' must add at most {} elements at an end of axis {} with size "
                      "{}, got {}",
                      most, axis, *size, added);
  }
  return {};
}

core::Status fits_axes(infer::Relation& relation) { return fits(relation, false); }
core::Status fits_every_axis(infer::Relation& relation) { return fits(relation, true); }

void define_mode(OpFamily& ops, const PaddingMode& mode) {
  const auto two = [](HostValue a, HostValue b) { return HostValue::tuple({a, b}); };
  const HostValue rows = two(HostValue::ints({1, 2}), HostValue::ints({0, 3}));
  const HostValue last = two(HostValue::ints({0, 0}), HostValue::ints({2, 0}));
  OpDefBuilder block = ops.def(mode.name);
  block.python(mode.python)
      .doc(std::string(mode.what) +
           " pad_width has (low, high) for each axis, or is one pair for the last one.")
      .input("input", kTensor)
      .attr("pad_width", infer::kSequence)
      .output("output", same_as("input"))
      .rule([&mode](RuleBuilder& r) {
        r.pad(r.out(), r.in("input"), r.attr("pad_width"), true);
        r.same_kind(r.out(), r.in("input"));
        r.custom({r.in("input"), r.attr("pad_width")}, fits_axes, mode.beyond);
      })
      .compose([&mode](Builder& b) {
        Value x = b.in("input");
        const auto widths = x ? widths_of(b.attr("pad_width"), x.rank()) : std::nullopt;
        for (size_t axis = 0; widths && x && axis < widths->size(); ++axis) {
          const auto [low, high] = (*widths)[axis];
          if (low == 0 && high == 0) continue;
          const auto size = known_size(b, x, axis);
          if (!size) return Value();
          std::vector<int64_t> places;
          for (int64_t i = -low; i < *size + high; ++i) places.push_back(mode.source(i, *size));
          x = take_along(x, axis, places);
        }
        return x;
      })
      .with(at({{"input", {3, 4}}}, {{"pad_width", rows}}))
      .with(at({{"input", {3}}}, {{"pad_width", HostValue::ints({2, 1})}}))
      .with(at({{"input", {0, 3}}}, {{"pad_width", last}}))
      .rejects(at({{"input", {3, 4}}}, {{"pad_width", HostValue::ints({-1, 0})}}), "pad_width")
      .rejects(at({{"input", {3, 0}}}, {{"pad_width", rows}}), "'pad_width' must add at most")
      .rejects(at({{"input", {3, 4, 1}}}, {{"pad_width", rows}}), "pad_width");
  if (mode.beyond >= 0) {
    block.rejects(at({{"input", {3}}}, {{"pad_width", HostValue::ints({4, 0})}}),
                  "'pad_width' must add at most");
  }
}

void define_constant_padding(OpFamily& ops) {
  ops.def("constantpad")
      .python("ConstantPad")
      .doc(
          "A number around the operand: pad_width has (low, high) for each axis, or is one pair "
          "for "
          "the last one.")
      .input("input", kTensor)
      .attr("pad_width", infer::kSequence)
      .attr("value", 0.0)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.pad(r.out(), r.in("input"), r.attr("pad_width"), true);
        r.same_kind(r.out(), r.in("input"));
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const auto widths = widths_of(b.attr("pad_width"), x.rank());
        if (!widths) {
          unsupported(b, "constantpad: 'pad_width' must be (low, high) for each axis");
          return Value();
        }
        HostValue::Tuple pairs;
        for (const auto& [low, high] : *widths) pairs.push_back(HostValue::ints({low, high}));
        const Attrs attrs = {{"pad_width", HostValue::tuple(std::move(pairs))}};
        const Value ones = full(b, shape_value(x.shape()), 1.0, x.dtype());
        const Value inside = ir::apply("pad", {ones}, attrs);
        const Value padded = ir::apply("pad", {x}, attrs);
        return where(equal(inside, 1.0), padded, b.attr("value"));
      })
      .moves()
      .with(at({{"input", {2, 3}}}, {{"pad_width", HostValue::ints({1, 0})}, {"value", 1.5}}))
      .with(at({{"input", {2, 3}}}, {{"pad_width", HostValue::ints({1, 2})}, {"value", 7}},
               {"input"}))
      .with(at({{"input", {0, 2}}},
               {{"pad_width", HostValue::tuple({HostValue::ints({1, 1}), HostValue::ints({0, 2})})},
                {"value", -2}}))
      .rejects(at({{"input", {2, 3}}}, {{"pad_width", HostValue::ints({-1, 0})}}), "pad_width");
}

// The op that pads in a mode by NumPy's or PyTorch's name for it; none for numbers.
const PaddingMode* mode_of(const HostValue& name) {
  if (name == HostValue("reflect")) return &kPaddingModes[0];
  if (name == HostValue("edge") || name == HostValue("replicate")) return &kPaddingModes[1];
  if (name == HostValue("wrap") || name == HostValue("circular")) return &kPaddingModes[2];
  return nullptr;
}

}  // namespace

bool pads_zeros(const ir::Attrs& attrs) {
  const HostValue *mode = attrs.find("mode"), *value = attrs.find("value");
  const bool is_zero = value == nullptr || value->as_number() == 0.0;
  return is_zero && (mode == nullptr || mode_of(*mode) == nullptr);
}

Value padded_otherwise(Builder& b) {
  const HostValue& given = b.attr("pad_width");
  const Value x = b.in("input");
  if (!given.is_sequence()) {
    unsupported(b, "pad: 'pad_width' must be known when the model is compiled");
    return {};
  }
  if (!x) return {};
  const HostValue widths = for_each_axis(given, x.rank());
  const PaddingMode* mode = mode_of(b.attr("mode"));
  if (mode != nullptr) return b.call(mode->name, {x}, {{"pad_width", widths}});
  return b.call("constantpad", {x}, {{"pad_width", widths}, {"value", b.attr("value")}});
}

void state_padding_mode(RuleBuilder& r) {
  const auto name = r.known(r.attr("mode"));
  const PaddingMode* mode = name ? mode_of(*name) : nullptr;
  if (mode == nullptr) return;
  const auto value = r.known(r.attr("value"));
  if (value && value->as_number() != 0.0) bad_argument(r, "'value' must be 0 in this mode", *value);
  r.custom({r.in("input"), r.in("pad_width")}, fits_every_axis, mode->beyond);
}

void define_padding_modes(OpFamily& ops) {
  define_constant_padding(ops);
  for (const PaddingMode& mode : kPaddingModes) define_mode(ops, mode);
}

}  // namespace mithril::ops
