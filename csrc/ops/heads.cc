// What stands around attention: the heads of a width, and the cache of earlier places.
#include <limits>

#include "infer/relation.h"
#include "ops/attention.h"

namespace mithril::ops {
namespace {

using infer::Dim;

void define_head_axes(OpFamily& ops) {
  ops.def("split_heads")
      .python("SplitHeads")
      .doc("The last axis as heads of equal widths: [..., l, h d] to [..., h, l, d].")
      .input("input", kTensor)
      .attr("num_heads", infer::kScalarInt)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        const auto heads = r.known(r.attr("num_heads"));
        if (heads && heads->is_int() && heads->as_int() < 1) {
          return r.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                                   "num_heads must be at least 1, got {}", heads->as_int()));
        }
        r.shape(r.in("input"), "... l m");
        r.shape(r.out(), "... h l d");
        r.equal(r.dim("h"), r.dim(r.attr("num_heads")));
        r.equal(r.dim("m"), r.dim("d") * r.dim("h"));
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        Shape apart = x.shape();
        const Dim heads(b.integer_attr("num_heads"));
        const Dim width = b.graph().dims.floor_div(apart.back(), heads);
        apart.back() = heads;
        apart.push_back(width);
        return swap_axes(reshape(x, shape_value(apart)), -2, -3);
      })
      .with(at({{"input", {2, 5, 12}}}, {{"num_heads", 3}}))
      .with(at({{"input", {5, 4}}}, {{"num_heads", 1}}))
      .with(at({{"input", {2, 2, 3, 6}}}, {{"num_heads", 6}}))
      .with(at({{"input", {0, 5, 6}}}, {{"num_heads", 2}}))
      .rejects(at({{"input", {2, 5, 10}}}, {{"num_heads", 3}}), "split_heads")
      .rejects(at({{"input", {2, 5, 10}}}, {{"num_heads", 0}}), "num_heads must be at least 1");

  ops.def("merge_heads")
      .python("MergeHeads")
      .doc("Heads side by side in one last axis: [..., h, l, d] to [..., l, h d].")
      .input("input", kTensor)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... h l d");
        r.shape(r.out(), "... l m");
        r.equal(r.dim("m"), r.dim("d") * r.dim("h"));
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const Value beside = swap_axes(x, -2, -3);
        Shape joined = beside.shape();
        const Dim width = joined.back();
        joined.pop_back();
        joined.back() = b.graph().dims.mul(joined.back(), width);
        return reshape(beside, shape_value(joined));
      })
      .with(at({{"input", {2, 3, 5, 4}}}))
      .with(at({{"input", {1, 5, 4}}}))
      .with(at({{"input", {2, 3, 0, 4}}}))
      .rejects(at({{"input", {3, 4}}}), "merge_heads");
}

// --- the cache -------------------------------------------------------------------------------

// Terms: cache, input, offset.
core::Status relate_room(infer::Relation& relation) {
  const auto rank = relation.rank(0), input_rank = relation.rank(1);
  if (!rank || !input_rank) return {};
  const auto room = relation.size(0, *rank - 2), places = relation.size(1, *input_rank - 2);
  if (!room || !places) return {};
  const auto offset = relation.value(2);
  const int64_t first = offset && offset->is_int() ? offset->as_int() : 0;
  if (first + *places <= *room) return {};
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "a cache of {} places has no room for {} from place {} on", *room, *places,
                    first);
}

// For each place of the cache the row of x, [..., l, d], that belongs there; any where none does.
Value rows_for(Value x, Value row) {
  const Dim places = x.shape()[x.rank() - 2];
  if (places == Dim(1)) return x;
  Builder& b = *x.builder;
  const Value last = size_constant(b, b.graph().dims.sub(places, Dim(1)));
  const Value inside = maximum(minimum(row, last), 0.0);
  const bool is_first = x.rank() == 2;
  const Value front = is_first ? x : swap_axes(x, 0, -2);
  const Value rows = ir::apply("gather", {front, inside});
  return is_first ? rows : swap_axes(rows, 0, -2);
}

Value updated(Builder& b) {
  const Value cache = b.in("cache");
  if (!cache || !b.in("input")) return {};
  const Value x = cast(b.in("input"), cache.dtype());
  const Dim places = x.shape()[x.rank() - 2], room = cache.shape()[cache.rank() - 2];
  if (places == Dim(0)) return cache;
  const Value count = size_constant(b, places);
  const Value offset = places_from_offset(b, Dim(1));
  const Value row = range(b, room) - offset;
  const Value is_new = logical_and(greater_equal(row, 0.0), less(row, count));
  const Value filled = where(expand_dims(is_new, HostValue(1)), rows_for(x, row), cache);
  const Value fits = less_equal(offset + count, size_constant(b, room));
  return where(fits, filled, std::numeric_limits<double>::quiet_NaN());
}

void define_cache(OpFamily& ops) {
  ops.def("update_cache")
      .python("UpdateCache")
      .precision(Precision::kFollows)
      .doc(
          "A copy of the cache [..., s, d] with the input [..., l, d] at its places offset, offset "
          "+ 1 …. Where the cache has no room for it, which is known only at run time, the copy is "
          "NaN.")
      .input("cache", kFloating)
      .input("input", kFloating)
      .input("offset", kTensorInt | infer::kScalarInt)
      .output("output", same_as("cache"))
      .connect({"cache", "input", "offset", "output"})
      .cin({"input"})
      .rule([](RuleBuilder& r) {
        r.shape(r.in("cache"), "... s d");
        r.shape(r.in("input"), "... l d");
        r.shape(r.out(), "... s d");
        state_offset(r);
        r.custom({r.in("cache"), r.in("input"), r.in("offset")}, relate_room);
      })
      .compose(updated)
      .with(at({{"cache", {2, 6, 3}}, {"input", {2, 2, 3}}, {"offset", {}}}))
      .with(at({{"cache", {2, 3, 6, 2}}, {"input", {2, 3, 1, 2}}, {"offset", {}}}))
      .with(at({{"cache", {5, 3}}, {"input", {5, 3}}}, {{"offset", 0}}))
      .with(at({{"cache", {5, 3}}, {"input", {2, 3}}}, {{"offset", 3}}))
      .with(at({{"cache", {2, 5, 3}}, {"input", {2, 0, 3}}}, {{"offset", 1}}))
      .sample("offset", 0.0, 4.0)
      .rejects(at({{"cache", {5, 3}}, {"input", {2, 3}}}, {{"offset", 4}}), "has no room")
      .rejects(at({{"cache", {5, 3}}, {"input", {6, 3}}, {"offset", {}}}), "has no room")
      .rejects(at({{"cache", {5, 3}}, {"input", {2, 4}}}, {{"offset", 0}}), "update_cache");
}

}  // namespace

void define_heads(OpFamily& ops) {
  define_head_axes(ops);
  define_cache(ops);
}

}  // namespace mithril::ops
