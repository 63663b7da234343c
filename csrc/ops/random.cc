// Random tensors by Threefry-2x32-20: element i of a draw comes from the block at counter i under
// the key, so that bits are equal on every backend. The next key is the block at counter -1.
#include <limits>

#include "ops/window.h"

namespace mithril::ops {
namespace {

using tile::Reg;

struct Key {
  Reg first, second;
};

Key key_of(tile::Builder& t, const PointwiseCall& c) {
  return {t.cast(c.in[0], DType::kInt32), t.cast(c.in[1], DType::kInt32)};
}

struct WideProduct {
  Reg high, low;
};

// The product of two unsigned words in int32, by halves.
WideProduct wide_product(tile::Builder& t, Reg x, Reg y) {
  const Reg half = t.constant_int(DType::kInt32, 16), mask = t.constant_int(DType::kInt32, 0xffff);
  const Reg x1 = t.shift_right_logical(x, half), x0 = x & mask;
  const Reg y1 = t.shift_right_logical(y, half), y0 = y & mask;
  const Reg middle = x1 * y0 + t.shift_right_logical(x0 * y0, half);
  const Reg other = x0 * y1 + (middle & mask);
  const Reg high =
      x1 * y1 + t.shift_right_logical(middle, half) + t.shift_right_logical(other, half);
  return {high, x * y};
}

// Whether x < y as unsigned words: as signed ones with the other sign.
Reg is_below(tile::Builder& t, Reg x, Reg y) {
  const Reg sign = t.constant_int(DType::kInt32, std::numeric_limits<int32_t>::min());
  return t.less(x ^ sign, y ^ sign);
}

Reg integer_between(tile::Builder& t, const PointwiseCall& c) {
  const Key key = key_of(t, c);
  const int64_t low = c.attrs.find("low")->as_int(), high = c.attrs.find("high")->as_int();
  const uint64_t all = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const Reg count = t.constant_int(DType::kInt32, static_cast<int32_t>(static_cast<uint32_t>(all)));
  const Reg position = t.position();
  const Reg first = t.threefry(key.first, key.second, position, 0);
  const WideProduct top = wide_product(t, first, count);
  const Reg rest = wide_product(t, t.threefry(key.first, key.second, position, 1), count).high;
  const Reg carry = t.cast(is_below(t, top.low + rest, rest), DType::kInt32);
  // A count of 2^32 has no word: then all bits are the offset.
  const Reg offset = all >> 32 != 0 ? first : top.high + carry;
  if (c.result != DType::kInt64) {
    return t.cast(offset + t.constant_int(DType::kInt32, low), c.result);
  }
  const Reg wide = t.bit_and(t.cast(offset, c.result), t.constant_int(c.result, 0xffffffff));
  return wide + t.constant_int(c.result, low);
}

void draw_rule(RuleBuilder& r) {
  r.shape(r.in("key0"), "");
  r.shape(r.in("key1"), "");
  r.shape_from_value(r.out(), r.in("shape"));
}

void float_draw_rule(RuleBuilder& r) {
  draw_rule(r);
  state_float(r);
}

OpDefBuilder& drawn(OpDefBuilder& block, const Attrs& more = {}) {
  const auto shaped = [&more](std::vector<int64_t> shape) {
    Attrs attrs = more;
    attrs.set("shape", HostValue::ints(shape));
    return at({{"key0", {}}, {"key1", {}}}, attrs);
  };
  return block.input("key0", kTensorInt)
      .input("key1", kTensorInt)
      .key("shape")
      .random()
      .not_differentiable()
      .rule(draw_rule)
      .with(shaped({2, 3}))
      .with(shaped({0}));
}

void define_draws(OpFamily& ops) {
  drawn(ops.def("threefry_uniform").doc("Uniform numbers in [0, 1) under a key of two words."))
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .rule(float_draw_rule)
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const Key key = key_of(t, c);
        return t.uniform(c.result, key.first, key.second, t.position());
      });

  drawn(ops.def("threefry_normal").doc("Standard normal numbers under a key of two words."))
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .rule(float_draw_rule)
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const Key key = key_of(t, c);
        return t.normal(c.result, key.first, key.second, t.position());
      });

  drawn(ops.def("threefry_bernoulli")
            .doc("True with probability p under a key of two words: where a uniform float32 is "
                 "below p, so that the mask is the same for every dtype."))
      .attr("p", 0.5)
      .within("p", 0.0, 1.0)
      .output("output", boolean())
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const Key key = key_of(t, c);
        const Reg u = t.uniform(DType::kFloat32, key.first, key.second, t.position());
        return t.less(u, t.constant(DType::kFloat32, c.attrs.find("p")->as_number()));
      });

  drawn(ops.def("threefry_integers")
            .doc("Integers from low up to high (not included) under a key of two words: the upper "
                 "half of the product of 64 random bits and the count of integers, so that no "
                 "integer is likelier by more than count / 2^64."),
        {{"low", -3}, {"high", 1000}})
      .attr("low", infer::kScalarInt)
      .attr("high", infer::kScalarInt)
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kDefaultInt))
      .pointwise(integer_between);

  ops.def("next_key")
      .doc("The two words of the key that follows.")
      .input("key0", kTensorInt)
      .input("key1", kTensorInt)
      .output("output", default_int())
      .random()
      .not_differentiable()
      .rule([](RuleBuilder& r) {
        r.shape(r.in("key0"), "");
        r.shape(r.in("key1"), "");
        r.shape(r.out(), "2");
      })
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const Key key = key_of(t, c);
        const Reg last = t.constant_int(DType::kInt64, -1);
        const Reg first_word = t.threefry(key.first, key.second, last, 0);
        const Reg second_word = t.threefry(key.first, key.second, last, 1);
        const Reg is_first = t.equal(t.position(), t.constant_int(DType::kInt64, 0));
        const Reg next = t.select(is_first, first_word, second_word);
        if (c.result != DType::kInt64) return t.cast(next, c.result);
        // As an unsigned word: keys are uint32 outside.
        return t.bit_and(t.cast(next, c.result), t.constant_int(c.result, 0xffffffff));
      })
      .with(at({{"key0", {}}, {"key1", {}}}));
}

struct Words {
  Value first, second;
};

Value word(Value key, int64_t at) { return ir::apply("index", {key}, {{"index", HostValue(at)}}); }

Words words_of_seed(Builder& b, int64_t seed) {
  const auto bits = static_cast<uint64_t>(seed);
  const auto half = [&](uint64_t w) {
    return b.integer(static_cast<int32_t>(static_cast<uint32_t>(w)), DType::kInt32);
  };
  return {half(bits), half(bits >> 32)};
}

// A key is two words, or one integer: its low and its high word.
Words words_of(Builder& b, std::string_view name) {
  if (!b.has(name)) return words_of_seed(b, b.integer_attr(name));
  const Value key = b.in(name);
  if (key.rank() == 1) return {word(key, 0), word(key, 1)};
  const Value wide = cast(key, DType::kInt64);
  const Value high = ir::apply("shift_right", {wide, b.integer(32, DType::kInt64)});
  return {cast(wide, DType::kInt32), cast(high, DType::kInt32)};
}

Value draw(Builder& b, const char* op, const Words& words) {
  std::vector<Operand> operands{words.first, words.second, given(b, "shape")};
  return b.call(op, std::move(operands), {{"dtype", b.attr("dtype")}});
}

OpDefBuilder& keyed(OpDefBuilder& block, const char* op) {
  return block.key("shape")
      .input("key", kTensorInt | infer::kScalarInt)
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .cin({"shape"})
      .random()
      .not_differentiable()
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), kFloating);
        r.shape_from_value(r.out(), r.in("shape"));
        state_float(r);
      })
      .compose([op](Builder& b) { return draw(b, op, words_of(b, "key")); })
      .with(at({}, {{"shape", HostValue::ints({2, 3})}, {"key", 42}}))
      .with(at({{"key", {2}}}, {{"shape", HostValue::ints({5})}}))
      .with(at({{"key", {}}}, {{"shape", HostValue::ints({})}}))
      .rejects(
          at({},
             {{"shape", HostValue::ints({2})}, {"key", 42}, {"dtype", HostValue(DType::kInt32)}}),
          "dtype requires a float type, got int32");
}

OpDefBuilder& stateful(OpDefBuilder& block, const char* op) {
  return block.key("shape")
      .key("dtype", HostValue())
      .input("rng_key", kTensorInt)
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .output("new_rng_key", default_int())
      .state("rng_key", "new_rng_key", "key")
      .arguments({"shape", "key", "dtype"})
      .keys({"shape", "dtype", "rng_key"})
      .connect({"shape", "dtype", "output"})
      .cin({"shape"})
      .random()
      .not_differentiable()
      .rule([](RuleBuilder& r) {
        r.shape_from_value(r.out(), r.in("shape"));
        r.shape(r.in("rng_key"), "2");
        r.shape(r.out("new_rng_key"), "2");
        state_float(r);
      })
      .compose_many([op](Builder& b) {
        const Words words = words_of(b, "rng_key");
        return std::vector<Value>{draw(b, op, words),
                                  ir::apply("next_key", {words.first, words.second})};
      })
      .with(at({{"rng_key", {2}}}, {{"shape", HostValue::ints({2, 3})}}))
      .rejects(at({{"rng_key", {2}}},
                  {{"shape", HostValue::ints({2})}, {"dtype", HostValue(DType::kBool)}}),
               "dtype requires a float type, got bool");
}

void define_tensors(OpFamily& ops) {
  keyed(ops.def("rand")
            .python("PrimitiveRand")
            .doc("Uniform numbers in [0, 1) of a shape, from a key."),
        "threefry_uniform");
  keyed(ops.def("randn")
            .python("PrimitiveRandn")
            .doc("Standard normal numbers of a shape, from a key."),
        "threefry_normal");
  stateful(ops.def("draw_rand")
               .python("Rand")
               .doc("Uniform numbers in [0, 1) of a shape, new ones at each evaluation; with a "
                    "`key` those of PrimitiveRand."),
           "threefry_uniform");
  stateful(ops.def("draw_randn")
               .python("Randn")
               .doc("Standard normal numbers of a shape, new ones at each evaluation; with a "
                    "`key` those of PrimitiveRandn."),
           "threefry_normal");
}

// The least and the most that an integer type holds.
std::pair<int64_t, int64_t> limits_of(DType dtype) {
  if (dtype == DType::kUInt8) return {0, 255};
  const size_t bits = 8 * std::min<size_t>(core::size_of(dtype), 4);
  const int64_t half = int64_t{1} << (bits - 1);
  return {-half, half - 1};
}

// low and high are two integers at most 2^32 apart, which fit the dtype.
void state_range(RuleBuilder& r) {
  r.when_known({r.in("low"), r.in("high"), r.in("dtype")}, [](RuleBuilder& b, auto values) {
    const auto refuse = [&](std::string_view why) {
      b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument, "{}, got {} and {}",
                        why, core::to_string(values[0]), core::to_string(values[1])));
    };
    if (!values[0].is_int() || !values[1].is_int()) return refuse("low and high must be ints");
    const int64_t low = values[0].as_int(), high = values[1].as_int();
    if (low >= high) return refuse("low must be below high");
    const auto apart = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    if (apart > uint64_t{1} << 32) return refuse("low and high must be at most 2^32 apart");
    const DType dtype = values[2].is_dtype() ? values[2].as_dtype() : DType::kInt32;
    if (!core::is_integer(dtype)) {
      return b.fail(core::fail(core::ErrorKind::kDType, core::Code::kDTypeOperand,
                               "dtype requires an integer type, got {}", core::name(dtype)));
    }
    const bool is_wide = dtype == DType::kInt64;
    const auto [least, most] = limits_of(dtype);
    if (is_wide || (low >= least && high - 1 <= most)) return;
    refuse("the integers from low to high must fit the dtype");
  });
}

Value draw_integers(Builder& b, const char* key) {
  if (!are_known(b, {"low", "high"})) return {};
  const Words words = words_of(b, key);
  std::vector<Operand> operands{words.first, words.second, given(b, "shape")};
  return b.call("threefry_integers", std::move(operands),
                {{"low", b.attr("low")}, {"high", b.attr("high")}, {"dtype", b.attr("dtype")}});
}

OpDefBuilder& ranged(OpDefBuilder& block) {
  return block.key("low")
      .key("high")
      .key("dtype", HostValue())
      .cin({"shape"})
      .random()
      .not_differentiable();
}

void define_integers(OpFamily& ops) {
  ranged(ops.def("randint")
             .python("PrimitiveRandInt")
             .arguments({"shape", "key", "low", "high", "dtype"})
             .doc("Integers from low up to high (not included), of a shape, from a key.")
             .key("shape")
             .input("key", kTensorInt | infer::kScalarInt))
      .output("output", dtype_attr("dtype", ResultType::kDefaultInt))
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), kTensorInt);
        r.shape_from_value(r.out(), r.in("shape"));
        state_range(r);
      })
      .compose([](Builder& b) { return draw_integers(b, "key"); })
      .with(at({}, {{"shape", HostValue::ints({2, 3})}, {"key", 42}, {"low", -3}, {"high", 4}}))
      .with(at({{"key", {2}}}, {{"shape", HostValue::ints({50})}, {"low", 0}, {"high", 7}}))
      .with(at({{"key", {2}}}, {{"shape", HostValue::ints({9})},
                                {"low", std::numeric_limits<int32_t>::min()},
                                {"high", std::numeric_limits<int32_t>::max()}}))
      .with(at({{"key", {}}}, {{"shape", HostValue::ints({})},
                               {"low", 250},
                               {"high", 251},
                               {"dtype", HostValue(DType::kUInt8)}}))
      .with(at({{"key", {2}}}, {{"shape", HostValue::ints({9})},
                                {"low", -1},
                                {"high", (int64_t{1} << 32) - 1},
                                {"dtype", HostValue(DType::kInt64)}}))
      .rejects(at({}, {{"shape", HostValue::ints({2})}, {"key", 1}, {"low", 4}, {"high", 4}}),
               "low must be below high")
      .rejects(at({}, {{"shape", HostValue::ints({2})},
                       {"key", 1},
                       {"low", 0},
                       {"high", 257},
                       {"dtype", HostValue(DType::kUInt8)}}),
               "must fit the dtype")
      .rejects(at({}, {{"shape", HostValue::ints({2})},
                       {"key", 1},
                       {"low", 0},
                       {"high", 2},
                       {"dtype", HostValue(DType::kFloat16)}}),
               "dtype requires an integer type, got float16");

  ranged(ops.def("draw_randint")
             .python("RandInt")
             .arguments({"shape", "key", "low", "high", "dtype"})
             .doc("Integers from low up to high (not included), of a shape, new ones at each "
                  "evaluation; with a `key` those of PrimitiveRandInt.")
             .key("shape"))
      .input("rng_key", kTensorInt)
      .output("output", dtype_attr("dtype", ResultType::kDefaultInt))
      .output("new_rng_key", default_int())
      .state("rng_key", "new_rng_key", "key")
      .keys({"shape", "low", "high", "dtype", "rng_key"})
      .connect({"shape", "low", "high", "dtype", "output"})
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), kTensorInt);
        r.shape_from_value(r.out(), r.in("shape"));
        r.shape(r.in("rng_key"), "2");
        r.shape(r.out("new_rng_key"), "2");
        state_range(r);
      })
      .compose_many([](Builder& b) {
        const Value drawn = draw_integers(b, "rng_key");
        const Words words = words_of(b, "rng_key");
        return std::vector<Value>{drawn, ir::apply("next_key", {words.first, words.second})};
      })
      .with(at({{"rng_key", {2}}}, {{"shape", HostValue::ints({2, 3})}, {"low", 0}, {"high", 10}}))
      .rejects(at({{"rng_key", {2}}}, {{"shape", HostValue::ints({2})}, {"low", 1}, {"high", 0}}),
               "low must be below high");
}

bool draws(const Builder& b) {
  const HostValue& mode = b.attr("mode");
  return mode.is_string() && mode.as_string() == "train" && b.has("rng_key");
}

void define_dropout(OpFamily& ops) {
  ops.def("dropout")
      .python("Dropout")
      .doc(
          "In train mode elements become 0 with probability p, the others grow by 1 / (1 - p); in "
          "eval mode the operand itself. mode none: as the model is compiled.")
      .input("input", kNumeric)
      .optional("rng_key", kTensorInt)
      .attr("p", 0.5)
      .within("p", 0.0, 1.0)
      .attr("mode", HostValue(), infer::kStrKind | infer::kNoneKind)
      .choices({"train", "eval"})
      .output("output", computed())
      .output("new_rng_key", default_int())
      .promote_float({"input"})
      .state("rng_key", "new_rng_key", "key")
      .connect({"input", "output"})
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("input"));
        if (r.has("rng_key")) r.shape(r.in("rng_key"), "2");
        r.shape(r.out("new_rng_key"), "2");
      })
      .compose_many([](Builder& b) {
        const Value x = b.in("input");
        if (!draws(b)) {
          const Value none = full(b, HostValue::ints({2}), 0.0, b.graph().default_int);
          return std::vector<Value>{x, none};
        }
        const double p = b.number("p");
        const Words words = words_of(b, "rng_key");
        const Value kept =
            b.call("threefry_bernoulli", {words.first, words.second, shape_value(x.shape())},
                   {{"p", 1.0 - p}});
        const double scale = p < 1.0 ? 1.0 / (1.0 - p) : 0.0;
        return std::vector<Value>{x * (cast(kept, x.dtype()) * scale),
                                  ir::apply("next_key", {words.first, words.second})};
      })
      .with(at({{"input", {2, 3}}}, {{"mode", "eval"}}))
      .with(at({{"input", {20, 3}}, {"rng_key", {2}}}, {{"mode", "train"}}))
      .with(at({{"input", {4}}, {"rng_key", {2}}}, {{"mode", "train"}, {"p", 0.0}}));
}

}  // namespace

void define_random(OpFamily& ops) {
  define_draws(ops);
  define_tensors(ops);
  define_integers(ops);
  define_dropout(ops);
}

}  // namespace mithril::ops
