// What tells attention of places: sines, rotations and biases.
#include <cmath>
#include <functional>

#include "core/interrupt.h"
#include "core/tensor_data.h"
#include "infer/relation.h"
#include "ops/attention.h"
#include "ops/window.h"

namespace mithril::ops {
namespace {

using core::TensorData;
using infer::Dim;

constexpr int64_t kNumbersBetweenPolls = 1 << 16;

constexpr int64_t kMostNumbers = int64_t{1} << 27;  // of a table that is made at compile

/// None where the body has failed: the table would be too large.
Value table(Builder& b, int64_t rows, int64_t columns, DType dtype,
            const std::function<double(int64_t, int64_t)>& number) {
  if (columns != 0 && rows > kMostNumbers / columns) {
    b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "{}: a table of at most {} numbers can be made for counts that are given, "
                      "got {} x {}",
                      b.op().name, kMostNumbers, rows, columns));
    return {};
  }
  core::InterruptCounter interrupts(kNumbersBetweenPolls);
  TensorData data;
  data.dtype = dtype;
  data.shape = {rows, columns};
  for (int64_t r = 0; r < rows; ++r) {
    interrupts.check(columns);
    for (int64_t c = 0; c < columns; ++c) core::append_element(data, HostValue(number(r, c)));
  }
  return b.constant(std::make_shared<const TensorData>(std::move(data)));
}

// Sines and cosines of rising wave lengths, in float64: at place p the angle of column c is
// p / 10000^(2 floor(c / 2) / width), which float32 cannot hold at far places.
Value waves(Builder& b, int64_t places, int64_t width, DType dtype) {
  return table(b, places, width, dtype, [&](int64_t p, int64_t c) {
    const double rate =
        std::pow(10000.0, -static_cast<double>(c - c % 2) / static_cast<double>(width));
    const double angle = static_cast<double>(p) * rate;
    return c % 2 == 0 ? std::sin(angle) : std::cos(angle);
  });
}

// Terms: input, hidden_dim, max_len.
core::Status relate_positions(infer::Relation& relation) {
  const auto rank = relation.rank(0);
  const auto most = relation.value(2);
  if (!rank || !most) return {};
  const auto places = relation.size(0, *rank - 2);
  if (!places || *places <= most->as_int()) return {};
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "the second to last axis must have at most max_len = {} places, got {}",
                    most->as_int(), *places);
}

void define_sines(OpFamily& ops) {
  ops.def("positional_encoding")
      .python("PositionalEncoding")
      .precision(Precision::kFollows)
      .doc(
          "The operand [..., places, hidden_dim] plus sines (even columns) and cosines (odd ones) "
          "of each place, at most max_len places (Vaswani et al., arXiv:1706.03762).")
      .formula("x_{p,c} + \\sin(p / 10000^{c / d}), \\cos(p / 10000^{(c - 1) / d})")
      .input("input", kTensor)
      .key("hidden_dim")
      .key("max_len", 5000)
      .output("output", computed())
      .promote_float()
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... l d");
        r.shape(r.out(), "... l d");
        for (const char* name : {"hidden_dim", "max_len"}) r.kind(r.in(name), infer::kScalarInt);
        r.equal(r.dim("d"), r.dim(r.in("hidden_dim")));
        r.custom({r.in("input"), r.in("hidden_dim"), r.in("max_len")}, relate_positions);
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x || !are_known(b, {"hidden_dim", "max_len"})) return Value();
        const Dim places = x.shape()[x.rank() - 2];
        const int64_t most = places.known() ? places.value() : b.integer_attr("max_len");
        const Value table = waves(b, most, b.integer_attr("hidden_dim"), x.dtype());
        if (!table) return Value();
        return x + (places.known() ? table : part(table, 0, Dim(0), places));
      })
      .with(at({{"input", {2, 5, 4}}}, {{"hidden_dim", 4}}))
      .with(at({{"input", {7, 3}}}, {{"hidden_dim", 3}, {"max_len", 7}}))
      .with(at({{"input", {0, 4}}}, {{"hidden_dim", 4}}))
      .rejects(at({{"input", {8, 4}}}, {{"hidden_dim", 4}, {"max_len", 7}}), "at most max_len")
      .rejects(at({{"input", {8, 4}}}, {{"hidden_dim", 6}}), "positional_encoding");
}

// --- rotations -------------------------------------------------------------------------------

/// Cosines and sines of the angle of each place and pair of columns: [places, pairs].
struct Turn {
  Value cosine, sine;
};

struct Rotation {
  int64_t width = 0;  // of the columns that are rotated
  double theta = 0.0;
  bool interleaved = false;
  int64_t max_len = 0;
};

// The angles of `rows` places, `step` apart from `first` on, computed in float64.
Turn table_of(Builder& b, const Rotation& by, int64_t first, int64_t step, int64_t rows,
              DType dtype) {
  const auto angle = [&](int64_t row, int64_t pair) {
    const double exponent = -2.0 * static_cast<double>(pair) / static_cast<double>(by.width);
    return static_cast<double>(first + row * step) * std::pow(by.theta, exponent);
  };
  const auto made = [&](double (*function)(double)) {
    return table(b, rows, by.width / 2, dtype,
                 [&](int64_t row, int64_t pair) { return function(angle(row, pair)); });
  };
  return {made(std::cos), made(std::sin)};
}

Turn rows_of(const Turn& turn, Value rows) {
  return {ir::apply("gather", {turn.cosine, rows}), ir::apply("gather", {turn.sine, rows})};
}

// By the sum of both angles.
Turn both(const Turn& a, const Turn& b) {
  return {a.cosine * b.cosine - a.sine * b.sine, a.sine * b.cosine + a.cosine * b.sine};
}

// Places that only a run knows are taken as base * high + low, each of which has a small table:
// the sum of two angles of a float64 table is exact at all places, a product in float32 is not.
Turn turn_at_run(Builder& b, const Rotation& by, Dim places, DType dtype) {
  int64_t base = 1;
  while (base <= (by.max_len - 1) / base) base *= 2;
  const Value place = places_from_offset(b, places);
  const Value size = b.integer(base, DType::kInt64);
  const Value high = ir::apply("floor_divide", {place, size});
  const Value low = place - high * size;
  const int64_t rows = (by.max_len - 1) / base + 1;
  return both(rows_of(table_of(b, by, 0, base, rows, dtype), high),
              rows_of(table_of(b, by, 0, 1, base, dtype), low));
}

Turn turn_of(Builder& b, const Rotation& by, Value x) {
  const Dim places = x.shape()[x.rank() - 2];
  const auto first = known_offset(b);
  if (first && places.known()) return table_of(b, by, *first, 1, places.value(), x.dtype());
  const DType wide = x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const Turn turn = turn_at_run(b, by, places, wide);
  return {cast(turn.cosine, x.dtype()), cast(turn.sine, x.dtype())};
}

// The rotated columns as [..., pairs, 2] or [..., 2, pairs]: the axis of two is where pairs are.
Value rotated(Value x, const Turn& turn, const Rotation& by) {
  const int64_t last = static_cast<int64_t>(x.rank()) - 1;
  const Dim width = x.shape().back(), pairs(by.width / 2), turned(by.width);
  const bool is_whole = width == turned;
  const Value columns = is_whole ? x : part(x, last, Dim(0), turned);
  if (!columns) return {};
  Shape apart = columns.shape();
  apart.back() = by.interleaved ? pairs : Dim(2);
  apart.push_back(by.interleaved ? Dim(2) : pairs);
  const int64_t axis = by.interleaved ? last + 1 : last;
  const Value pair = reshape(columns, shape_value(apart));
  const Value first = part(pair, axis, Dim(0), Dim(1)), second = part(pair, axis, Dim(1), Dim(2));
  const HostValue beside(by.interleaved ? -1 : -2);
  const Value c = expand_dims(turn.cosine, beside), s = expand_dims(turn.sine, beside);
  if (!c || !s) return {};
  Builder& b = *x.builder;
  const Value both_parts =
      b.call("concat", {HostValue(axis), first * c - second * s, second * c + first * s});
  const Value out = reshape_like(both_parts, columns);
  return is_whole ? out : b.call("concat", {HostValue(last), out, part(x, last, turned, width)});
}

// None where the body has failed.
std::optional<Rotation> rotation_of(Builder& b, Value x) {
  if (!x) return std::nullopt;
  const HostValue& width = b.attr("width");
  if (!x.shape().back().known()) {
    unsupported(b, b.op().name + ": the size of the last axis must be known at compile");
    return std::nullopt;
  }
  const HostValue& interleaved = b.attr("interleaved");
  return Rotation{width.is_int() ? width.as_int() : x.shape().back().value(), b.number("theta"),
                  interleaved.is_bool() && interleaved.as_bool(), b.integer_attr("max_len")};
}

core::Status bad(std::string_view why, int64_t got) {
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument, "{}, got {}", why, got);
}

// Terms: input, width, max_len, offset.
core::Status relate_rotation(infer::Relation& relation) {
  const auto rank = relation.rank(0);
  const auto asked = relation.value(1), most = relation.value(2), offset = relation.value(3);
  if (!rank) return {};
  const auto width = relation.size(0, *rank - 1), places = relation.size(0, *rank - 2);
  if (asked && asked->is_int()) {
    const int64_t columns = asked->as_int();
    if (columns < 2 || columns % 2 != 0) return bad("width must be even and at least 2", columns);
    if (width && columns > *width) {
      return bad(fmt::format("width must be at most {}, the size of the last axis", *width),
                 columns);
    }
  } else if (asked && width && *width % 2 != 0) {
    return bad("the last axis must have an even size", *width);
  }
  const int64_t first = offset && offset->is_int() ? offset->as_int() : 0;
  if (!places || !most || !most->is_int() || first + *places <= most->as_int()) return {};
  return bad(fmt::format("places must be below max_len = {}", most->as_int()), first + *places - 1);
}

void state_rotation(RuleBuilder& r) {
  r.shape(r.in("input"), "... l d");
  r.shape(r.out(), "... l d");
  state_offset(r);
  r.custom({r.in("input"), r.attr("width"), r.attr("max_len"), r.in("offset")}, relate_rotation);
  const auto theta = r.known(r.attr("theta"));
  if (!theta || theta->is_none() || theta->as_number() > 0.0) return;
  r.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "theta must be above 0, got {}", core::to_string(*theta)));
}

void define_rotation(OpFamily& ops) {
  OpDefBuilder block = ops.def("rotary_embedding");
  block.python("RotaryEmbedding")
      .precision(Precision::kFollows)
      .arguments({"theta", "interleaved", "width", "max_len", "input", "offset"})
      .doc(
          "Pairs of columns of [..., places, d] rotated by an angle that grows with the place, "
          "offset being the first one: pair i turns by place * theta^(-2 i / width) (Su et al., "
          "RoFormer, arXiv:2104.09864). interleaved: columns 2 i and 2 i + 1 are a pair, as in "
          "RoFormer; else i and i + width / 2, as in GPT-NeoX and Llama. Columns from width on "
          "(none: d) stay. Angles are computed in float64; places are below max_len.")
      .formula("(x_a \\cos \\phi - x_b \\sin \\phi, x_b \\cos \\phi + x_a \\sin \\phi)")
      .input("input", kTensor);
  with_offset(block)
      .attr("theta", 10000.0)
      .attr("interleaved", false)
      .attr("width", HostValue(), kWidth)
      .attr("max_len", 131072)
      .output("output", computed())
      .promote_float({"input"})
      .connect({"input", "offset", "output"})
      .cin({"input"})
      .rule(state_rotation)
      .compose([](Builder& b) {
        const Value x = b.in("input");
        const auto by = rotation_of(b, x);
        return by ? rotated(x, turn_of(b, *by, x), *by) : Value();
      })
      .gradient([](GradBuilder& g) {
        Builder& b = g.builder();
        const auto by = rotation_of(b, g.in("input"));
        if (!by || !g.wants("input")) return;
        const Turn turn = turn_of(b, *by, g.in("input"));
        g.d("input") = rotated(g.dout(), {turn.cosine, -turn.sine}, *by);
      })
      .with(at({{"input", {2, 3, 5, 8}}, {"offset", {}}}, {{"max_len", 20}}))
      .with(at({{"input", {2, 5, 8}}}, {{"interleaved", true}, {"offset", 1000}}))
      .with(at({{"input", {5, 7}}, {"offset", {}}},
               {{"width", 4}, {"theta", 100.0}, {"interleaved", true}, {"max_len", 9}}))
      .with(at({{"input", {3, 6}}}, {{"width", 2}}))
      .with(at({{"input", {0, 4}}}))
      .sample("offset", 0.0, 4.0)
      .rejects(at({{"input", {3, 5}}}), "even size")
      .rejects(at({{"input", {3, 6}}}, {{"width", 3}}), "width must be even")
      .rejects(at({{"input", {3, 6}}}, {{"width", 8}}), "width must be at most 6")
      .rejects(at({{"input", {3, 6}}}, {{"max_len", 5}, {"offset", 3}}), "below max_len = 5, got 5")
      .rejects(at({{"input", {3, 6}}}, {{"theta", 0.0}}), "theta must be above 0")
      .rejects(at({{"input", {3, 6}}}, {{"offset", -1}}), "offset must not be negative");
}

// --- biases ----------------------------------------------------------------------------------

// Powers of 2^(-8 / n) for n heads, a power of 2; for other counts those of the next lower n, and
// every second one of 2 n (the authors' code).
double slope(int64_t head, int64_t heads) {
  int64_t even = 1;
  while (2 * even <= heads) even *= 2;
  const double number = static_cast<double>(head < even ? head + 1 : 2 * (head - even) + 1);
  return std::exp2(-8.0 * number / static_cast<double>(head < even ? even : 2 * even));
}

Value biases(Builder& b) {
  const HostValue &dtype = b.attr("dtype"), &queries = b.attr("query_places");
  if (b.has("query_places") || b.has("key_places")) {
    unsupported(b, "alibi: the numbers of places must be known when the model is compiled");
    return {};
  }
  const DType type = dtype.is_dtype() ? dtype.as_dtype() : b.graph().default_float;
  const int64_t heads = b.integer_attr("num_heads");
  const Value steps =
      table(b, heads, 1, type, [&](int64_t head, int64_t) { return -slope(head, heads); });
  const Dim count =
      queries.is_int() ? Dim(queries.as_int()) : Dim::expression(queries.as_symbolic().expr);
  const Value rows = expand_dims(places_from_offset(b, count), HostValue(1));
  const Value columns =
      b.call("arange", {}, {{"stop", b.attr("key_places")}, {"dtype", HostValue(DType::kInt64)}});
  const Value distance = abs(rows - expand_dims(columns, HostValue(0)));
  return expand_dims(steps, HostValue(-1)) * cast(distance, type);
}

void define_biases(OpFamily& ops) {
  OpDefBuilder block = ops.def("alibi");
  block.python("Alibi")
      .precision(Precision::kFollows)
      .doc(
          "Biases of attention scores, [heads, queries, keys], that fall with the distance between "
          "the places of query and key; the first query is at place offset. Heads differ in how "
          "fast (Press et al., ALiBi, arXiv:2108.12409).")
      .formula("b_{h,i,j} = -m_h |offset + i - j|")
      .attr("num_heads", infer::kScalarInt)
      .key("query_places")
      .key("key_places");
  with_offset(block)
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .connect({"query_places", "key_places", "offset", "output"})
      .rule([](RuleBuilder& r) {
        const auto heads = r.known(r.attr("num_heads"));
        if (heads && heads->is_int() && heads->as_int() < 1) {
          return r.fail(bad("num_heads must be at least 1", heads->as_int()).error());
        }
        r.shape(r.out(), "h l s");
        r.equal(r.dim("h"), r.dim(r.attr("num_heads")));
        r.equal(r.dim("l"), r.dim(r.in("query_places")));
        r.equal(r.dim("s"), r.dim(r.in("key_places")));
        state_offset(r);
        state_float(r);
      })
      .compose(biases)
      .not_differentiable()
      .with(at({}, {{"num_heads", 4}, {"query_places", 3}, {"key_places", 5}}))
      .with(at({{"offset", {}}}, {{"num_heads", 6}, {"query_places", 2}, {"key_places", 7}}))
      .with(at({}, {{"num_heads", 1}, {"query_places", 2}, {"key_places", 2}, {"offset", 9}}))
      .with(at({}, {{"num_heads", 3}, {"query_places", 0}, {"key_places", 2}}))
      .sample("offset", 0.0, 4.0)
      .rejects(at({}, {{"num_heads", 0}, {"query_places", 2}, {"key_places", 2}}),
               "num_heads must be at least 1");
}

}  // namespace

void define_positions(OpFamily& ops) {
  define_sines(ops);
  define_rotation(ops);
  define_biases(ops);
}

}  // namespace mithril::ops
