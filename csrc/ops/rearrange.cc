// Elements in another order, repeated or joined along axes: compositions of views, slices, joins.
#include <algorithm>

#include "ops/block.h"

namespace mithril::ops {
namespace {

using infer::Dim;

bool are_ints(const HostValue& value) {
  const auto is_int = [](const HostValue& item) { return item.is_int(); };
  if (!value.is_sequence()) return value.is_int();
  return std::all_of(value.items().begin(), value.items().end(), is_int);
}

std::vector<int64_t> ints_of(const HostValue& value) {
  if (value.is_int()) return {value.as_int()};
  std::vector<int64_t> out;
  for (const HostValue& item : value.items()) out.push_back(item.as_int());
  return out;
}

/// The shape stays; `axis` names axes that the input must have, none all of them.
void same_shape_with_axis(RuleBuilder& r) {
  r.same_shape(r.out(), r.in("input"));
  r.reduce(r.fresh(kTensor), r.in("input"), r.in("axis"), r.constant(false));
}

Value one_axis(Value x) { return reshape(x, shape_value({element_count(x)})); }

// --- the order of places -------------------------------------------------------------------

// Along one axis; a shift of -1 moves everything one place to the front, and the first one back.
Value rolled(Value x, int64_t axis, int64_t shift) {
  Builder& b = *x.builder;
  const Dim size = x.shape()[static_cast<size_t>(axis)];
  if (size.known()) {
    if (size.value() == 0) return x;
    const int64_t cut = ((-shift % size.value()) + size.value()) % size.value();
    if (cut == 0) return x;
    return b.call("concat", {HostValue(axis), part(x, axis, cut, size), part(x, axis, 0, cut)});
  }
  const Value from = range(b, size) - b.integer(shift, DType::kInt64);
  const Value places = ir::apply("mod", {from, size_constant(b, size)});
  const Value front = axis == 0 ? x : swap_axes(x, 0, axis);
  const Value rows = ir::apply("gather", {front, places});
  return axis == 0 ? rows : swap_axes(rows, 0, axis);
}

Value roll(Builder& b) {
  const Value x = b.in("input");
  if (!x || needs_known_axis(b)) return {};
  const std::vector<int64_t> shifts = ints_of(b.attr("shift"));
  if (b.attr("axis").is_none()) return reshape_like(rolled(one_axis(x), 0, shifts[0]), x);
  const std::vector<int64_t> axes = axes_of(b.attr("axis"), x.rank());
  Value y = x;
  for (size_t i = 0; i < axes.size() && y; ++i) {
    y = rolled(y, axes[i], shifts[shifts.size() == 1 ? 0 : i]);
  }
  return y;
}

// The axes of a tensor of that rank in the order in which they stand once moved.
core::Result<std::vector<int64_t>> moved_axes(const HostValue& source, const HostValue& destination,
                                              int64_t rank) {
  const std::vector<int64_t> from = ints_of(source), to = ints_of(destination);
  if (from.size() != to.size()) {
    return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "'source' and 'destination' must name equally many axes, got {} and {}",
                      from.size(), to.size());
  }
  std::vector<int64_t> out(static_cast<size_t>(rank), -1);
  std::vector<bool> moves(out.size());
  for (size_t i = 0; i < from.size(); ++i) {
    const int64_t old_place = from[i] < 0 ? from[i] + rank : from[i];
    const int64_t new_place = to[i] < 0 ? to[i] + rank : to[i];
    for (const auto& [given, place] :
         {std::pair(from[i], old_place), std::pair(to[i], new_place)}) {
      if (place >= 0 && place < rank) continue;
      return core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                        "axis {} is out of range for rank {}", given, rank);
    }
    const auto o = static_cast<size_t>(old_place), n = static_cast<size_t>(new_place);
    if (moves[o] || out[n] >= 0) {
      return core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                        "an axis stands twice in {} or {}", core::to_string(source),
                        core::to_string(destination));
    }
    moves[o] = true;
    out[n] = old_place;
  }
  size_t next = 0;
  for (int64_t& axis : out) {
    if (axis >= 0) continue;
    while (moves[next]) ++next;
    axis = static_cast<int64_t>(next++);
  }
  return out;
}

void define_moved_axes(OpFamily& ops) {
  constexpr infer::KindSet kAxes = infer::kScalarInt | infer::kSequence;
  ops.def("moveaxis")
      .python("MoveAxis")
      .doc(
          "The axes that `source` names at the places `destination` of the result, the others in "
          "their order, as NumPy's moveaxis: an int, or as many in both; negative ones count from "
          "the end.")
      .input("input", kTensor)
      .attr("source", kAxes)
      .attr("destination", kAxes)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.same_kind(r.out(), r.in("input"));
        const auto source = r.known(r.attr("source"));
        const auto destination = r.known(r.attr("destination"));
        for (const auto& axes : {source, destination}) {
          if (!are_ints(*axes)) return bad_argument(r, "axes must be ints", *axes);
        }
        r.when_rank_known(r.in("input"), [=](RuleBuilder& rule, int rank) {
          auto order = moved_axes(*source, *destination, rank);
          if (!order.ok()) return rule.fail(order.error());
          rule.permute(rule.out(), rule.in("input"), rule.constant(HostValue::ints(*order)));
        });
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const auto order =
            moved_axes(b.attr("source"), b.attr("destination"), static_cast<int64_t>(x.rank()));
        return order.ok() ? transpose(x, HostValue::ints(*order)) : Value();
      })
      .with(at({{"input", {2, 3, 4}}}, {{"source", 0}, {"destination", -1}}))
      .with(at({{"input", {2, 3, 4, 1}}},
               {{"source", HostValue::ints({-1, 0})}, {"destination", HostValue::ints({1, 2})}}))
      .with(at({{"input", {0, 3}}}, {{"source", 1}, {"destination", 0}}))
      .with(at({{"input", {}}},
               {{"source", HostValue::ints({})}, {"destination", HostValue::ints({})}}))
      .rejects(at({{"input", {2, 3}}}, {{"source", 2}, {"destination", 0}}),
               "axis 2 is out of range for rank 2")
      .rejects(at({{"input", {2, 3}}}, {{"source", 0}, {"destination", -3}}),
               "axis -3 is out of range for rank 2")
      .rejects(at({{"input", {2, 3}}}, {{"source", 0}, {"destination", HostValue::ints({0, 1})}}),
               "equally many axes, got 1 and 2")
      .rejects(at({{"input", {2, 3}}},
                  {{"source", HostValue::ints({0, -2})}, {"destination", HostValue::ints({0, 1})}}),
               "an axis stands twice");
}

void define_orders(OpFamily& ops) {
  ops.def("roll")
      .python("Roll")
      .doc(
          "Elements moved by shift places along the axis, those that fall off the end to the "
          "front; axis none: in row-major order. Several axes take one shift, or one each.")
      .formula("y_i = x_{(i - s) \\bmod n}")
      .input("input", kTensor)
      .key("shift")
      .key("axis", HostValue())
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        same_shape_with_axis(r);
        r.when_known({r.in("shift"), r.in("axis")}, [](RuleBuilder& b, auto values) {
          if (!are_ints(values[0])) return bad_argument(b, "shift must be ints", values[0]);
          const size_t shifts = ints_of(values[0]).size();
          const size_t axes = are_ints(values[1]) ? ints_of(values[1]).size() : 1;
          if (shifts == 1 || shifts == axes) return;
          bad_argument(b, "shift must be one int, or one for each axis", values[0]);
        });
      })
      .compose(roll)
      .with(at({{"input", {5, 3}}}, {{"shift", 2}, {"axis", 0}}))
      .with(at({{"input", {2, 3}}}, {{"shift", 1}}))
      .with(at({{"input", {2, 3, 4}}},
               {{"shift", HostValue::ints({-1, 6})}, {"axis", HostValue::ints({1, -1})}}))
      .with(at({{"input", {2, 3}}}, {{"shift", 3}, {"axis", 1}}))
      .with(at({{"input", {0, 3}}}, {{"shift", 2}, {"axis", 0}}))
      .rejects(at({{"input", {2, 3}}}, {{"shift", 1}, {"axis", 2}}), "axis")
      .rejects(at({{"input", {2, 3}}}, {{"shift", HostValue::ints({1, 2})}, {"axis", 0}}),
               "one for each axis");

  ops.def("flip")
      .python("Flip")
      .doc("The order of the axes turned around (none: of all).")
      .formula("y_i = x_{n - 1 - i}")
      .input("input", kTensor)
      .key("axis", HostValue())
      .output("output", same_as("input"))
      .rule(same_shape_with_axis)
      .compose([](Builder& b) {
        Value y = b.in("input");
        if (!y || needs_known_axis(b)) return Value();
        for (const int64_t axis : axes_of(b.attr("axis"), y.rank())) y = reversed(y, axis);
        return y;
      })
      .with(at({{"input", {2, 3}}}))
      .with(at({{"input", {2, 3, 4}}}, {{"axis", 1}}))
      .with(at({{"input", {2, 3, 4}}}, {{"axis", HostValue::ints({0, -1})}}))
      .with(at({{"input", {0, 3}}}, {{"axis", -1}}))
      .rejects(at({{"input", {2, 3}}}, {{"axis", 2}}), "axis");

  ops.def("permute_tensor")
      .python("PermuteTensor")
      .arguments({"indices", "input"})
      .doc(
          "Rows of the operand in the order of the indices, one for each row; an index that is out "
          "of bounds is an error (on JAX and MLX it counts as the nearest row).")
      .formula("y_i = x_{\\pi(i)}")
      .input("input", kTensor)
      .input("indices", kTensorInt)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "n ...");
        r.shape(r.in("indices"), "n");
        r.shape(r.out(), "n ...");
      })
      .compose([](Builder& b) {
        return ir::apply("gather", {b.in("input"), b.in("indices")});
      })
      .with(at({{"input", {5, 3}}, {"indices", {5}}}))
      .with(at({{"input", {5}}, {"indices", {5}}}))
      .with(at({{"input", {0, 2}}, {"indices", {0}}}))
      .sample("indices", 0.0, 4.0)
      .rejects(at({{"input", {5, 3}}, {"indices", {4}}}), "permute_tensor");
}

// --- repeated ------------------------------------------------------------------------------

// Each element of an axis `times` times: before the next one, or the whole axis again.
Value repeated(Value x, size_t axis, int64_t times, bool one_by_one) {
  if (!x || times == 1) return x;
  const size_t place = one_by_one ? axis + 1 : axis;
  const Value apart = expand_dims(x, HostValue(static_cast<int64_t>(place)));
  if (!apart) return {};
  Shape shape = apart.shape();
  shape[place] = Dim(times);
  const Value spread = ir::apply("broadcast_to", {apart}, {{"shape", shape_value(shape)}});
  Shape joined = x.shape();
  joined[axis] = x.builder->graph().dims.mul(joined[axis], Dim(times));
  return reshape(spread, shape_value(joined));
}

// The tensor has `least` axes or more: ones in front.
Value with_rank(Value x, size_t least) {
  if (x.rank() >= least) return x;
  Shape shape(least - x.rank(), Dim(1));
  shape.insert(shape.end(), x.shape().begin(), x.shape().end());
  return reshape(x, shape_value(shape));
}

void state_tile(RuleBuilder& r, const HostValue& reps, int rank) {
  const std::vector<int64_t> times = ints_of(reps);
  const size_t own = static_cast<size_t>(rank), all = std::max(own, times.size());
  std::vector<infer::DimTerm> dims;
  for (size_t i = 0; i < all; ++i) {
    const size_t axis = i + own - all, rep = i + times.size() - all;
    const infer::DimTerm size =
        i + own >= all ? r.dim(r.in("input"), static_cast<int>(axis)) : r.dim(1);
    const int64_t n = i + times.size() >= all ? times[rep] : 1;
    dims.push_back(n == 1 ? size : n == 0 ? r.dim(0) : size * n);
  }
  r.shape(r.out(), std::span<const infer::DimTerm>(dims));
}

bool are_counts(const HostValue& value) {
  if (!are_ints(value)) return false;
  const std::vector<int64_t> counts = ints_of(value);
  return std::all_of(counts.begin(), counts.end(), [](int64_t n) { return n >= 0; });
}

void state_repeat(RuleBuilder& r, const HostValue& repeats, const HostValue& axis) {
  const int64_t times = repeats.as_int();
  const auto grown = [times](RuleBuilder& b, infer::DimTerm size) {
    return times == 0 ? b.dim(0) : size * times;
  };
  if (axis.is_none()) {
    const Term flat = r.fresh(kTensor);
    r.flatten(flat, r.in("input"), r.constant(0), r.constant(-1));
    r.shape(r.out(), {grown(r, r.dim(flat, 0))});
    return;
  }
  r.when_rank_known(r.in("input"), [grown, at = axis.as_int()](RuleBuilder& b, int rank) {
    const int64_t from_front = at < 0 ? at + rank : at;
    if (from_front < 0 || from_front >= rank) {
      b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                        "axis {} is out of range for rank {}", at, rank));
      return;
    }
    std::vector<infer::DimTerm> dims;
    for (int i = 0; i < rank; ++i) {
      const infer::DimTerm size = b.dim(b.in("input"), i);
      dims.push_back(i == from_front ? grown(b, size) : size);
    }
    b.shape(b.out(), std::span<const infer::DimTerm>(dims));
  });
}

void define_repeats(OpFamily& ops) {
  ops.def("tile")
      .python("Tile")
      .doc("The operand again and again: reps times along each axis, one int for the last one.")
      .formula("y_i = x_{i \\bmod n}")
      .input("input", kTensor)
      .key("reps")
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.when_known(r.in("reps"), [](RuleBuilder& b, const HostValue& reps) {
          if (!are_counts(reps)) return bad_argument(b, "reps must be ints from 0 on", reps);
          b.when_rank_known(b.in("input"),
                            [reps](RuleBuilder& each, int rank) { state_tile(each, reps, rank); });
        });
      })
      .compose([](Builder& b) {
        const std::vector<int64_t> times = ints_of(b.attr("reps"));
        Value y = with_rank(b.in("input"), times.size());
        const size_t first = y.rank() - times.size();
        for (size_t i = 0; i < times.size(); ++i) y = repeated(y, first + i, times[i], false);
        return y;
      })
      .with(at({{"input", {2, 3}}}, {{"reps", HostValue::ints({2, 3})}}))
      .with(at({{"input", {2, 3}}}, {{"reps", 2}}))
      .with(at({{"input", {3}}}, {{"reps", HostValue::ints({2, 1, 2})}}))
      .with(at({{"input", {}}}, {{"reps", 3}}))
      .with(at({{"input", {0, 2}}}, {{"reps", HostValue::ints({2, 2})}}))
      .with(at({{"input", {2, 3}}}, {{"reps", HostValue::ints({0, 1})}}))
      .rejects(at({{"input", {2, 3}}}, {{"reps", HostValue::ints({2, -1})}}), "reps must be");

  ops.def("repeat_interleave")
      .python("RepeatInterleave")
      .doc("Each element repeats times along the axis, one after the other; none: flattened.")
      .formula("y_i = x_{\\lfloor i / r \\rfloor}")
      .input("input", kTensor)
      .key("repeats")
      .key("axis", HostValue())
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.when_known({r.in("repeats"), r.in("axis")}, [](RuleBuilder& b, auto values) {
          if (!values[0].is_int() || values[0].as_int() < 0) {
            return bad_argument(b, "repeats must be an int from 0 on", values[0]);
          }
          if (!values[1].is_int() && !values[1].is_none()) {
            return bad_argument(b, "axis must be an int or none", values[1]);
          }
          state_repeat(b, values[0], values[1]);
        });
      })
      .compose([](Builder& b) {
        Value x = b.in("input");
        if (!x || needs_known_axis(b)) return Value();
        const bool flat = b.attr("axis").is_none();
        if (flat) x = one_axis(x);
        const int64_t axis = flat ? 0 : axis_attr(b, "axis", x.rank());
        return repeated(x, static_cast<size_t>(axis), b.integer_attr("repeats"), true);
      })
      .with(at({{"input", {2, 3}}}, {{"repeats", 2}, {"axis", 0}}))
      .with(at({{"input", {2, 3}}}, {{"repeats", 3}, {"axis", -1}}))
      .with(at({{"input", {2, 3}}}, {{"repeats", 2}}))
      .with(at({{"input", {2, 0}}}, {{"repeats", 2}, {"axis", 1}}))
      .with(at({{"input", {2, 3}}}, {{"repeats", 0}, {"axis", 1}}))
      .rejects(at({{"input", {2, 3}}}, {{"repeats", 2}, {"axis", 2}}), "axis 2 is out of range")
      .rejects(at({{"input", {2, 3}}}, {{"repeats", -1}}), "repeats must be");
}

// --- joined and cut ------------------------------------------------------------------------

Value stacked(Builder& b) {
  if (needs_known_axis(b)) return {};
  const HostValue axis = b.attr("axis");
  const std::vector<ir::ValueId> ids = b.node().operands;
  std::vector<Operand> parts{axis};
  for (size_t i = 1; i < ids.size(); ++i) parts.emplace_back(expand_dims(b.value(ids[i]), axis));
  return b.call("concat", std::move(parts));
}

constexpr int64_t kMostChunks = 1 << 20;

void state_chunks(RuleBuilder& r) {
  const auto known = r.known(r.attr("chunks"));
  const auto axis = r.known(r.attr("axis"));
  if (!known || !known->is_int() || !axis) return;
  const int64_t chunks = known->as_int();
  if (chunks < 1 || chunks > kMostChunks) {
    return bad_argument(r, "chunks must be an int from 1 on", *known);
  }
  std::vector<Term> pieces;
  for (int64_t i = 0; i < chunks; ++i) {
    pieces.push_back(r.fresh(kTensor));
    r.same_kind(pieces.back(), r.in("input"));
  }
  r.list(r.out(), pieces);
  r.when_rank_known(r.in("input"), [pieces, at = axis->as_int()](RuleBuilder& b, int rank) {
    const int64_t cut = at < 0 ? at + rank : at;
    if (cut < 0 || cut >= rank) {
      b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                        "axis {} is out of range for rank {}", at, rank));
      return;
    }
    std::vector<infer::DimTerm> dims;
    for (int i = 0; i < rank; ++i) dims.push_back(b.dim(b.in("input"), i));
    const auto others = static_cast<int64_t>(pieces.size()) - 1;
    const infer::DimTerm whole = dims[static_cast<size_t>(cut)];
    const infer::DimTerm size = others == 0 ? whole : ceil_div(whole, others + 1);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const bool is_last = static_cast<int64_t>(i) == others && others > 0;
      dims[static_cast<size_t>(cut)] = is_last ? whole - size * others : size;
      b.shape(pieces[i], std::span<const infer::DimTerm>(dims));
    }
  });
}

std::vector<Value> chunked(Builder& b) {
  const Value x = b.in("input");
  const int64_t chunks = b.integer_attr("chunks");
  const int64_t axis = axis_attr(b, "axis", x.rank());
  infer::DimTable& dims = b.graph().dims;
  const Dim whole = x.shape()[static_cast<size_t>(axis)];
  const Dim size = dims.ceil_div(whole, Dim(chunks));
  std::vector<Value> out;
  for (int64_t i = 0; i < chunks; ++i) {
    const Dim stop = i + 1 == chunks ? whole : dims.mul(size, Dim(i + 1));
    out.push_back(part(x, axis, dims.mul(size, Dim(i)), stop));
  }
  return out;
}

void define_joints(OpFamily& ops) {
  ops.def("stack")
      .python("Stack")
      .doc("Operands of equal shapes side by side along a new axis, at that place in the result.")
      .key("axis", 0)
      .variadic("input", kTensor)
      .output("output", computed())
      .promote()
      .keys({"input", "axis"})
      .connect({"input", "axis", "output"})
      .rule([](RuleBuilder& r) { r.stack(r.out(), r.in("input"), r.in("axis")); })
      .compose(stacked)
      .with(at({{"input", {2, 3}}, {"input", {2, 3}}}))
      .with(at({{"input", {2, 3}}, {"input", {2, 3}}, {"input", {2, 3}}}, {{"axis", -1}}))
      .with(at({{"input", {}}, {"input", {}}}))
      .with(at({{"input", {0, 2}}, {"input", {0, 2}}}, {{"axis", 1}}))
      .rejects(at({{"input", {2, 3}}, {"input", {2, 4}}}), "stack");

  ops.def("chunk")
      .python("Chunk")
      .doc(
          "A list of pieces along the axis: each has size / chunks elements, rounded up, the last "
          "one what is left.")
      .input("input", kTensor)
      .attr("chunks", infer::kScalarInt)
      .attr("axis", 0)
      .output("output", host_result())
      .rule(state_chunks)
      .compose_many(chunked)
      .with(at({{"input", {5, 3}}}, {{"chunks", 2}}))
      .with(at({{"input", {2, 6}}}, {{"chunks", 3}, {"axis", -1}}))
      .rejects(at({{"input", {5, 3}}}, {{"chunks", 2}, {"axis", 2}}), "axis 2 is out of range")
      .rejects(at({{"input", {5, 3}}}, {{"chunks", 0}}), "chunks must be");
}

}  // namespace

void define_rearrange(OpFamily& ops) {
  define_moved_axes(ops);
  define_orders(ops);
  define_repeats(ops);
  define_joints(ops);
}

}  // namespace mithril::ops
