// Random tensors by Threefry-2x32-20: element i of a draw comes from the block at counter i under
// the key, so that bits are equal on every backend. The next key is the block at counter -1.
#include "ops/block.h"

namespace mithril::ops {
namespace {

using tile::Reg;

struct Key {
  Reg first, second;
};

Key key_of(tile::Builder& t, const PointwiseCall& c) {
  return {t.cast(c.in[0], DType::kInt32), t.cast(c.in[1], DType::kInt32)};
}

OpDefBuilder& drawn(OpDefBuilder& block) {
  return block.input("key0", kTensorInt)
      .input("key1", kTensorInt)
      .key("shape")
      .random()
      .not_differentiable()
      .rule([](RuleBuilder& r) {
        r.shape(r.in("key0"), "");
        r.shape(r.in("key1"), "");
        r.shape_from_value(r.out(), r.in("shape"));
      })
      .with(at({{"key0", {}}, {"key1", {}}}, {{"shape", HostValue::ints({2, 3})}}))
      .with(at({{"key0", {}}, {"key1", {}}}, {{"shape", HostValue::ints({0})}}));
}

void define_draws(OpFamily& ops) {
  drawn(ops.def("threefry_uniform").doc("Uniform numbers in [0, 1) under a key of two words."))
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const Key key = key_of(t, c);
        return t.uniform(c.result, key.first, key.second, t.position());
      });

  drawn(ops.def("threefry_normal").doc("Standard normal numbers under a key of two words."))
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const Key key = key_of(t, c);
        return t.normal(c.result, key.first, key.second, t.position());
      });

  drawn(ops.def("threefry_bernoulli")
            .doc("True with probability p under a key of two words: where a uniform float32 is "
                 "below p, so that the mask is the same for every dtype."))
      .attr("p", 0.5)
      .output("output", boolean())
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const Key key = key_of(t, c);
        const Reg u = t.uniform(DType::kFloat32, key.first, key.second, t.position());
        return t.less(u, t.constant(DType::kFloat32, c.attrs.find("p")->as_number()));
      });

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
      })
      .compose([op](Builder& b) { return draw(b, op, words_of(b, "key")); })
      .with(at({}, {{"shape", HostValue::ints({2, 3})}, {"key", 42}}))
      .with(at({{"key", {2}}}, {{"shape", HostValue::ints({5})}}))
      .with(at({{"key", {}}}, {{"shape", HostValue::ints({})}}));
}

OpDefBuilder& stateful(OpDefBuilder& block, const char* op) {
  return block.key("shape")
      .key("dtype", HostValue())
      .input("rng_key", kTensorInt)
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .output("new_rng_key", default_int())
      .state("rng_key", "new_rng_key", "key")
      .keys({"shape", "dtype", "rng_key"})
      .connect({"shape", "dtype", "output"})
      .cin({"shape"})
      .random()
      .not_differentiable()
      .rule([](RuleBuilder& r) {
        r.shape_from_value(r.out(), r.in("shape"));
        r.shape(r.in("rng_key"), "2");
        r.shape(r.out("new_rng_key"), "2");
      })
      .compose_many([op](Builder& b) {
        const Words words = words_of(b, "rng_key");
        return std::vector<Value>{draw(b, op, words),
                                  ir::apply("next_key", {words.first, words.second})};
      })
      .with(at({{"rng_key", {2}}}, {{"shape", HostValue::ints({2, 3})}}));
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
               .doc("Uniform numbers in [0, 1) of a shape, new ones at each evaluation."),
           "threefry_uniform");
  stateful(ops.def("draw_randn")
               .python("Randn")
               .doc("Standard normal numbers of a shape, new ones at each evaluation."),
           "threefry_normal");
}

bool is_training(const Builder& b) {
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
        if (!is_training(b)) {
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
  define_dropout(ops);
}

}  // namespace mithril::ops
