// Elements picked and put by integer arrays: along an axis, by mask, by class, in bags. All are
// compositions of rows by index, but for `last_writers` and the places where a mask is true.
#include "infer/relation.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

using infer::Dim;

Value flattened(Value x) {
  if (!x) return {};
  return reshape(x, shape_value({element_count(x)}));
}

// Row-major places in x of what `indices` select along the axis, in their shape; beyond the last
// one where an index is out of bounds, so that reading it is an error.
Value flat_places(Value x, Value indices, int64_t axis) {
  if (!x || !indices) return {};
  Builder& b = *x.builder;
  infer::DimTable& dims = b.graph().dims;
  const Shape shape = x.shape(), all = indices.shape();
  const auto at = static_cast<size_t>(axis);
  const Dim size = shape[at];
  const Dim outer = dims.product(std::span(shape.data(), at));
  const Dim inner = dims.product(std::span(shape.data() + at + 1, shape.size() - at - 1));
  const Value rows = reshape(cast(indices, DType::kInt64), shape_value({outer, all[at], inner}));
  const Value count = size_constant(b, size);
  const Value inside = where(less(rows, 0.0), rows + count, rows);
  const Value good = logical_and(greater_equal(inside, 0.0), less(inside, count));
  const Value first = expand_dims(range(b, outer) * size_constant(b, dims.mul(size, inner)),
                                  HostValue::ints({1, 2}));
  const Value last = expand_dims(range(b, inner), HostValue::ints({0, 1}));
  const Value place = first + inside * size_constant(b, inner) + last;
  return reshape(where(good, place, size_constant(b, element_count(x))), shape_value(all));
}

// Broadcasts of more axes leave the rank of their result open.
constexpr int kMostBroadcast = 12;

// x without its axis, which a result has from the indices: it broadcasts with these.
void broadcast_but_axis(RuleBuilder& r, Term x, Term indices, Term out, int64_t axis, int rank) {
  const int64_t from_front = axis < 0 ? axis + rank : axis;
  if (from_front < 0 || from_front >= rank) {
    r.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                      "axis {} is out of range for rank {}", axis, rank));
    return;
  }
  std::vector<infer::DimTerm> rest, any;
  for (int i = 0; i < rank; ++i) {
    any.push_back(r.dim(indices, i));
    rest.push_back(i == from_front ? r.dim(1) : r.dim(x, i));
  }
  r.shape(indices, std::span<const infer::DimTerm>(any));
  const Term others = r.fresh(kTensor);
  r.shape(others, std::span<const infer::DimTerm>(rest));
  r.broadcast(out, {others, indices});
}

// Places of x and the indices, each in the shape of the result, but for the axis of x.
std::pair<Value, Value> beside_each_other(Value x, Value indices, size_t axis) {
  if (!x || !indices) return {};
  infer::DimTable& dims = x.builder->graph().dims;
  Shape wide = x.shape(), all = indices.shape();
  for (size_t i = 0; i < all.size(); ++i) {
    if (i == axis) continue;
    all[i] = dims.broadcast(wide[i], all[i]);
    wide[i] = all[i];
  }
  const auto spread = [&](Value value, const Shape& shape) {
    if (value.shape() == shape) return value;
    return x.builder->call("broadcast_to", {value}, {{"shape", shape_value(shape)}});
  };
  return {spread(x, wide), spread(indices, all)};
}

// Terms: input, axis, then tensors of its sizes but for the axis.
core::Status relate_but_axis(infer::Relation& relation) {
  const auto axis = relation.value(1);
  if (!axis || !axis->is_int()) return {};
  std::optional<int> rank;
  const auto tensor = [](int term) { return term == 0 || term > 1; };
  for (int term = 0; term < relation.count(); ++term) {
    if (tensor(term) && relation.rank(term)) rank = relation.rank(term);
  }
  if (!rank) return {};
  const int64_t from_front = axis->as_int() < 0 ? axis->as_int() + *rank : axis->as_int();
  if (from_front < 0 || from_front >= *rank) {
    return core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                      "axis {} is out of range for rank {}", axis->as_int(), *rank);
  }
  for (int term = 0; term < relation.count(); ++term) {
    if (tensor(term)) MITHRIL_RETURN_IF_ERROR(relation.set_rank(term, *rank));
  }
  for (int term = 2; term < relation.count(); ++term) {
    for (int i = 0; i < *rank; ++i) {
      if (i != from_front) MITHRIL_RETURN_IF_ERROR(relation.tie(0, i, term, i));
    }
  }
  relation.finish();
  return {};
}

void define_axis_places(OpFamily& ops) {
  ops.def("take_along_axis")
      .python("TakeAlongAxis")
      .doc(
          "The elements that integers name along the axis, each in its own row; the other axes of "
          "operand and indices broadcast. Negative ones count from the end.")
      .formula("y_{i,j} = x_{i, indices_{i,j}}")
      .input("input", kTensor)
      .input("indices", kTensorInt)
      .key("axis", -1)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), kTensor);
        r.when_known(r.in("axis"), [](RuleBuilder& known, const HostValue& axis) {
          if (!axis.is_int()) return;
          const int64_t at = axis.as_int();
          known.when_rank_known(known.in("input"), [at](RuleBuilder& rule, int rank) {
            const Term x = rule.in("input"), indices = rule.in("indices");
            if (rank <= kMostBroadcast) {
              broadcast_but_axis(rule, x, indices, rule.out(), at, rank);
            } else {
              rule.same_shape(rule.out(), indices);
              rule.custom({x, rule.in("axis"), indices}, relate_but_axis);
            }
          });
        });
      })
      .compose([](Builder& b) {
        if (needs_known_axis(b) || !b.in("input")) return Value();
        const int64_t axis = axis_attr(b, "axis", b.in("input").rank());
        const auto [x, indices] =
            beside_each_other(b.in("input"), b.in("indices"), static_cast<size_t>(axis));
        return ir::apply("gather", {flattened(x), flat_places(x, indices, axis)});
      })
      .with(at({{"input", {3, 5}}, {"indices", {1, 2}}}))
      .with(at({{"input", {1, 5, 2}}, {"indices", {4, 3, 1}}}, {{"axis", 1}}))
      .with(at({{"input", {3, 5}}, {"indices", {3, 2}}}))
      .with(at({{"input", {4, 3, 2}}, {"indices", {6, 3, 2}}}, {{"axis", 0}}))
      .with(at({{"input", {5}}, {"indices", {3}}}))
      .with(at({{"input", {3, 5}}, {"indices", {3, 0}}}))
      .with(at({{"input", {0, 5}}, {"indices", {0, 2}}}))
      .sample("indices", -1.0, 3.0)
      .rejects(at({{"input", {3, 5}}, {"indices", {2, 5}}}), "take")
      .rejects(at({{"input", {3, 5}}, {"indices", {3, 5}}}, {{"axis", 2}}),
               "axis 2 is out of range");
}

OpDefBuilder& putting(OpDefBuilder& block) {
  return block.input("indices", kTensorInt)
      .key("axis", -1)
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("input"));
        r.same_shape(r.in("value"), r.in("indices"));
        r.custom({r.in("input"), r.in("axis"), r.in("indices")}, relate_but_axis);
      })
      .connect({"input", "indices", "value", "axis", "output"})
      .keys({"input", "indices", "value", "axis"})
      .with(at({{"input", {3, 5}}, {"value", {3, 2}}, {"indices", {3, 2}}}))
      .with(at({{"input", {4, 3, 2}}, {"value", {6, 3, 2}}, {"indices", {6, 3, 2}}}, {{"axis", 0}}))
      .with(at({{"input", {5}}, {"value", {9}}, {"indices", {9}}}))
      .with(at({{"input", {3, 5}}, {"value", {3, 0}}, {"indices", {3, 0}}}))
      .with(at({{"input", {0, 5}}, {"value", {0, 2}}, {"indices", {0, 2}}}))
      .sample("indices", -1.0, 3.0)
      .rejects(at({{"input", {3, 5}}, {"value", {2, 5}}, {"indices", {2, 5}}}), "scatter")
      .rejects(at({{"input", {3, 5}}, {"value", {3, 1}}, {"indices", {3, 5}}}), "scatter");
}

Value placed_in(Builder& b) {
  const Value x = b.in("input");
  if (!x || needs_known_axis(b)) return {};
  return flattened(flat_places(x, b.in("indices"), axis_attr(b, "axis", x.rank())));
}

// Reads each place from what was written there last, or from the operand: one gather over both.
Value scattered(Builder& b) {
  const Value places = placed_in(b);
  if (!places) return {};
  const Value x = b.in("input");
  const Dim total = element_count(x);
  const Value writers = b.call("last_writers", {places, size_value(total)});
  const Value both = b.call("concat", {HostValue(0), flattened(x), flattened(b.in("value"))});
  const Value last = cast(writers, DType::kInt64);
  const Value from = where(less(last, 0.0), range(b, total), last + size_constant(b, total));
  return reshape_like(ir::apply("gather", {both, from}), x);
}

void define_scatters(OpFamily& ops) {
  putting(ops.def("scatter")
              .python("Scatter")
              .doc("A copy of the operand with values put at the places that integers name along "
                   "the axis, each in its own row; of several for one place the last one stays. "
                   "indices and value have the operand's shape but for the axis.")
              .formula("y_{i, indices_{i,j}} = value_{i,j}")
              .input("input", kTensor)
              .input("value", kTensor))
      .output("output", computed())
      .promote({"input", "value"})
      .compose(scattered);

  putting(ops.def("scatter_add")
              .python("ScatterAdd")
              .doc("A copy of the operand with values added at the places that integers name along "
                   "the axis, each in its own row; several for one place add up. indices and value "
                   "have the operand's shape but for the axis.")
              .formula("y_{i,k} = x_{i,k} + \\sum_{j: indices_{i,j} = k} value_{i,j}")
              .input("input", kNumeric)
              .input("value", kNumeric))
      .output("output", computed())
      .promote({"input", "value"})
      .compose([](Builder& b) {
        const Value places = placed_in(b);
        if (!places) return Value();
        const Value x = b.in("input");
        const Value sums = ir::apply("embedding_grad", {flattened(b.in("value")), places},
                                     {{"shape", shape_value({element_count(x)})}});
        return x + reshape_like(sums, x);
      });

  ops.def("last_writers")
      .doc(
          "For each of `size` places the number (row-major) of the last index that names it, or "
          "-1 where none does. Negative indices count from the end.")
      .formula("y_k = \\max \\{j : indices_j = k\\}")
      .input("indices", kTensorInt)
      .key("size")
      .output("output", default_int())
      .rule([](RuleBuilder& r) { r.shape(r.out(), {r.dim(r.in("size"))}); })
      .kernel("last_writers")
      .not_differentiable()
      .with(at({{"indices", {6}}}, {{"size", 5}}))
      .with(at({{"indices", {2, 3}}}, {{"size", 4}}))
      .with(at({{"indices", {0}}}, {{"size", 3}}))
      .with(at({{"indices", {0}}}, {{"size", 0}}))
      .sample("indices", -2.0, 3.0);
}

void define_classes(OpFamily& ops) {
  ops.def("one_hot")
      .python("OneHot")
      .doc(
          "1 at the place along a new last axis that each integer names, 0 elsewhere; all 0 for "
          "what is no class from 0 to num_classes - 1.")
      .formula("y_{i,c} = [x_i = c]")
      .input("input", kTensorInt)
      .key("num_classes")
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .cin({"input"})
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "...");
        r.shape(r.out(), "... n");
        r.equal(r.dim("n"), r.dim(r.in("num_classes")));
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        const Value classes = b.call(
            "arange", {}, {{"stop", b.attr("num_classes")}, {"dtype", HostValue(DType::kInt64)}});
        if (!x || !classes) return Value();
        const Value wide = expand_dims(cast(x, DType::kInt64), HostValue(-1));
        const HostValue& dtype = b.attr("dtype");
        return cast(equal(wide, classes),
                    dtype.is_dtype() ? dtype.as_dtype() : b.graph().default_float);
      })
      .not_differentiable()
      .with(at({{"input", {4}}}, {{"num_classes", 3}}))
      .with(at({{"input", {2, 3}}}, {{"num_classes", 5}, {"dtype", HostValue(DType::kInt32)}}))
      .with(at({{"input", {}}}, {{"num_classes", 2}}))
      .with(at({{"input", {0}}}, {{"num_classes", 2}}))
      .sample("input", -1.0, 4.0);

  ops.def("masked_fill")
      .python("MaskedFill")
      .doc("The value where the mask is true, else the operand.")
      .formula("m \\, ? \\, v : x")
      .input("input", kTensor)
      .input("mask", infer::kTensorBool)
      .input("value", kNum)
      .output("output", computed())
      .promote({"input", "value"})
      .cin({"input"})
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), kTensor);
        r.broadcast(r.out(), {r.in("input"), r.in("mask"), r.in("value")});
      })
      .pointwise([](tile::Builder& t, tile::Reg x, tile::Reg mask, tile::Reg value) {
        return t.select(mask, value, x);
      })
      .moves()
      .gradient([](GradBuilder& g) {
        if (g.wants("input")) g.d("input") = where(g.in("mask"), 0.0, g.dout());
        if (g.wants("value")) g.d("value") = where(g.in("mask"), g.dout(), 0.0);
      })
      .kinks()
      .with(at({{"input", {2, 3}}, {"mask", {2, 3}}}, {{"value", 1.5}}))
      .with(at({{"input", {2, 3}}, {"mask", {3}}, {"value", {}}}))
      .with(at({{"input", {3}}, {"mask", {2, 1}}, {"value", {2, 3}}}))
      .with(at({{"input", {0, 3}}, {"mask", {3}}}, {{"value", 0}}))
      .rejects(at({{"input", {2, 3}}, {"mask", {4}}}, {{"value", 0.0}}), "must broadcast");

  ops.def("embedding_bag")
      .python("EmbeddingBag")
      .doc(
          "Rows of the weight by integer, the rows of each bag (the last axis of the input) summed "
          "up, averaged, or their largest elements: input [..., l], weight [num_embeddings, dim], "
          "result [..., dim].")
      .formula("y_i = \\frac{1}{l} \\sum_j w_{x_{i,j}}")
      .input("input", kTensorInt)
      .input("weight", kFloating)
      .attr("num_embeddings", HostValue(), kWidth)
      .attr("dim", HostValue(), kWidth)
      .attr("reduction", "mean")
      .choices({"mean", "sum", "max"})
      .output("output", same_as("weight"))
      .trainable("weight", {Init::Kind::kNormal, "", {}})
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... l");
        r.shape(r.in("weight"), "n d");
        r.shape(r.out(), "... d");
        for (const auto& [attr, dim] : {std::pair("num_embeddings", "n"), std::pair("dim", "d")}) {
          const auto size = r.known(r.attr(attr));
          if (size && size->is_int()) r.equal(r.dim(dim), size->as_int());
        }
      })
      .compose([](Builder& b) {
        const Value rows = ir::apply("gather", {b.in("weight"), b.in("input")});
        return reduce(b.attr("reduction").as_string(), rows, HostValue(-2), HostValue(false));
      })
      .kinks()
      .with(at({{"input", {2, 4}}, {"weight", {5, 3}}}))
      .with(at({{"input", {2, 3, 4}}, {"weight", {5, 3}}}, {{"reduction", "sum"}}))
      .with(at({{"input", {4}}, {"weight", {5, 3}}}, {{"reduction", "max"}}))
      .with(at({{"input", {0, 4}}, {"weight", {5, 3}}}))
      .sample("input", 0.0, 4.0);
}

// Row-major places taken apart, a column for each axis: [n, rank].
Value places_by_axis(Value places, const Shape& shape) {
  const Value rows = expand_dims(places, HostValue(1));
  if (!rows) return {};
  if (shape.size() == 1) return rows;
  if (shape.empty()) return part(rows, 1, 0, 0);
  Builder& b = *rows.builder;
  std::vector<Operand> columns(shape.size() + 1);
  columns[0] = HostValue(1);
  Value rest = rows;
  for (size_t axis = shape.size() - 1; axis > 0; --axis) {
    const Value size = size_constant(b, shape[axis], rows.dtype());
    const Value above = ir::apply("floor_divide", {rest, size});
    columns[axis + 1] = rest - above * size;
    rest = above;
  }
  columns[1] = rest;
  return b.call("concat", std::move(columns));
}

// Terms: a mask, the sizes of the axes that it takes.
core::Status check_mask(infer::Relation& relation) {
  const auto sizes = relation.value(1);
  const auto rank = relation.rank(0);
  if (!sizes || !sizes->is_sequence() || !rank) return {};
  const HostValue::Tuple& axes = sizes->items();
  for (size_t i = 0; i < axes.size() && i < static_cast<size_t>(*rank); ++i) {
    const auto own = relation.size(0, static_cast<int>(i));
    if (!own || !axes[i].is_int() || *own == axes[i].as_int()) continue;
    return core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                      "a mask must have the sizes of the axes that it takes, got {} for an axis "
                      "of {}",
                      *own, axes[i].as_int());
  }
  return {};
}

// Without sizes the mask stands alone.
OpDefBuilder& of_mask(OpDefBuilder& block) {
  return block.input("input", infer::kTensorBool)
      .key("sizes", HostValue())
      .output("output", default_int())
      .not_differentiable();
}

void define_true_places(OpFamily& ops) {
  ops.def("nonzero")
      .python("NonZero")
      .alias({"argwhere"})
      .doc(
          "The places of the elements that are not 0 (of bools: that are true), in row-major "
          "order: "
          "[how many there are, rank of the operand]. NaN is not 0.")
      .formula("\\{i : x_i \\neq 0\\}")
      .input("input", kTensor)
      .output("output", default_int())
      .cin({"input"})
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), kTensorInt);
        r.when_rank_known(r.in("input"), [](RuleBuilder& known, int rank) {
          known.shape(known.out(), "n _");
          known.equal(known.dim(known.out(), 1), rank);
        });
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const Shape shape = x.shape();  // a copy: the types of a graph move while it grows
        const Value mask = x.dtype() == DType::kBool ? x : not_equal(x, 0.0);
        return places_by_axis(ir::apply("true_places", {mask}), shape);
      })
      .sized_by_data()
      .not_differentiable()
      .with(at({{"input", {5}}}))
      .with(at({{"input", {3, 4}}}))
      .with(at({{"input", {2, 3, 2}}}))
      .with(at({{"input", {}}}))
      .with(at({{"input", {0, 3}}}))
      .sample("input", 0.0, 2.0)
      .points({0.0});

  of_mask(ops.def("true_places")
              .doc("The row-major places of the elements that are true, in rising order.")
              .formula("\\{i : m_i\\}"))
      .rule([](RuleBuilder& r) {
        r.shape(r.out(), "n");
        r.custom({r.in("input"), r.in("sizes")}, check_mask);
      })
      .kernel("true_places")
      .bounded("bounded_places")
      .with(at({{"input", {5}}}))
      .with(at({{"input", {3, 4}}}))
      .with(at({{"input", {}}}))
      .with(at({{"input", {0, 3}}}));

  of_mask(ops.def("bounded_places")
              .doc("The first `count` are the row-major places of the elements that are true; what "
                   "stands behind them means nothing.")
              .formula("(\\{i : m_i\\}, \\lvert \\{i : m_i\\} \\rvert)"))
      .output("count", default_int())
      .rule([](RuleBuilder& r) {
        r.custom({r.in("input"), r.in("sizes")}, check_mask);
        r.shape(r.out("count"), "");
        r.when_rank_known(r.in("input"), [](RuleBuilder& known, int rank) {
          infer::DimTerm size = known.dim(1);
          for (int axis = 0; axis < rank; ++axis) size = size * known.dim(known.in("input"), axis);
          known.shape(known.out(), {size});
        });
      })
      .kernel("bounded_places");
}

}  // namespace

void define_places(OpFamily& ops) {
  define_axis_places(ops);
  define_scatters(ops);
  define_classes(ops);
  define_true_places(ops);
}

}  // namespace mithril::ops
