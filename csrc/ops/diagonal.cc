// Diagonals of matrices and the triangles on either side of them.
#include <algorithm>

#include "infer/relation.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

using infer::Dim;

// x where the column lies up to `offset` places right of the row (or from there on), else 0.
Value triangle(Value x, int64_t offset, bool lower) {
  if (!x) return {};
  const auto [row, column] = rows_and_columns(x);
  const Value bound = row + x.builder->integer(offset, DType::kInt64);
  return where(lower ? less_equal(column, bound) : greater_equal(column, bound), x, 0.0);
}

OpDefBuilder& triangular(OpDefBuilder& block, bool lower) {
  return block.input("input", kTensor)
      .attr("diagonal", 0)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n m");
        r.shape(r.out(), "... n m");
      })
      .compose([lower](Builder& b) {
        return triangle(b.in("input"), b.integer_attr("diagonal"), lower);
      })
      .with(at({{"input", {3, 4}}}))
      .with(at({{"input", {2, 4, 3}}}, {{"diagonal", 1}}))
      .with(at({{"input", {4, 3}}}, {{"diagonal", -2}}))
      .with(at({{"input", {0, 3}}}))
      .rejects(at({{"input", {3}}}), lower ? "tril" : "triu");
}

int64_t diagonal_length(int64_t rows, int64_t columns, int64_t offset) {
  const int64_t length =
      offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns);
  return std::max<int64_t>(length, 0);
}

// The diagonal of the last two axes as the last one.
Value diagonal_of(Value x, int64_t offset) {
  if (!x) return {};
  const Shape shape = x.shape();
  const Dim rows = shape[shape.size() - 2], columns = shape.back();
  if (!rows.known() || !columns.known()) {
    unsupported(*x.builder, "diagonal: the sizes of its two axes must be known");
    return {};
  }
  Shape flat(shape.begin(), shape.end() - 1);
  flat.back() = Dim(rows.value() * columns.value());
  const int64_t length = diagonal_length(rows.value(), columns.value(), offset);
  const int64_t start = offset >= 0 ? offset : -offset * columns.value();
  const int64_t step = columns.value() + 1;
  HostValue::Tuple index(flat.size(), HostValue(core::Slice{}));
  index.back() = length == 0 ? HostValue(core::Slice{0, 0, 1})
                             : HostValue(core::Slice{start, start + (length - 1) * step + 1, step});
  return ir::apply("index", {reshape(x, shape_value(flat))},
                   {{"index", HostValue::tuple(std::move(index))}});
}

// A matrix that is zero but for x on a diagonal.
Value embedded(Value x, int64_t offset) {
  if (!x) return {};
  Builder& b = *x.builder;
  const Value row = expand_dims(range(b, x.shape()[0]), HostValue(1));
  const Value column = expand_dims(range(b, x.shape()[0]), HostValue(0));
  const Value square = where(equal(row, column), expand_dims(x, HostValue(1)), 0.0);
  if (offset == 0) return square;
  const int64_t right = std::max<int64_t>(offset, 0), down = std::max<int64_t>(-offset, 0);
  return ir::apply("pad", {square},
                   {{"pad_width", HostValue::tuple({HostValue::ints({down, right}),
                                                    HostValue::ints({right, down})})}});
}

/// Two axes of a tensor of that rank, from the front; nothing where they are none or one.
std::optional<std::pair<int, int>> two_axes(int64_t first, int64_t second, int rank) {
  const int64_t a = first < 0 ? first + rank : first, b = second < 0 ? second + rank : second;
  if (a < 0 || b < 0 || a >= rank || b >= rank || a == b) return std::nullopt;
  return std::pair(static_cast<int>(a), static_cast<int>(b));
}

// Terms: output, input, offset, first axis, second axis.
core::Status relate_diagonal(infer::Relation& relation) {
  const auto rank = relation.rank(1);
  const auto offset = relation.value(2), first = relation.value(3), second = relation.value(4);
  if (!rank || !offset || !first || !second) return {};
  const auto axes = two_axes(first->as_int(), second->as_int(), *rank);
  if (!axes) {
    return core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                      "axes {} and {} must be two of a tensor of rank {}", first->as_int(),
                      second->as_int(), *rank);
  }
  MITHRIL_RETURN_IF_ERROR(relation.set_rank(0, *rank - 1));
  int at = 0;
  for (int axis = 0; axis < *rank; ++axis) {
    if (axis == axes->first || axis == axes->second) continue;
    MITHRIL_RETURN_IF_ERROR(relation.tie(0, at++, 1, axis));
  }
  const auto rows = relation.size(1, axes->first), columns = relation.size(1, axes->second);
  if (!rows || !columns) return {};
  relation.finish();
  return relation.set_size(0, at, diagonal_length(*rows, *columns, offset->as_int()));
}

void define_diagonals(OpFamily& ops) {
  ops.def("diagonal")
      .python("Diagonal")
      .doc(
          "The elements whose place on axis2 is offset more than that on axis1, as the last axis; "
          "both sizes must be known when the model is compiled.")
      .formula("y_i = x_{i, i + offset}")
      .input("input", kTensor)
      .attr("offset", 0)
      .attr("axis1", 0)
      .attr("axis2", 1)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.same_kind(r.out(), r.in("input"));
        r.custom({r.out(), r.in("input"), r.attr("offset"), r.attr("axis1"), r.attr("axis2")},
                 relate_diagonal);
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const auto rank = static_cast<int>(x.rank());
        const auto axes = two_axes(b.integer_attr("axis1"), b.integer_attr("axis2"), rank);
        std::vector<int64_t> order;
        for (int axis = 0; axis < rank; ++axis) {
          if (axis != axes->first && axis != axes->second) order.push_back(axis);
        }
        order.insert(order.end(), {axes->first, axes->second});
        const bool in_place = std::is_sorted(order.begin(), order.end());
        const Value matrices = in_place ? x : transpose(x, HostValue::ints(order));
        return diagonal_of(matrices, b.integer_attr("offset"));
      })
      .checks_sizes()
      .with(at({{"input", {3, 4}}}))
      .with(at({{"input", {2, 3, 4}}}, {{"axis1", -2}, {"axis2", -1}, {"offset", 1}}))
      .with(at({{"input", {4, 2, 3}}}, {{"axis1", 2}, {"axis2", 0}, {"offset", -1}}))
      .with(at({{"input", {3, 3}}}, {{"offset", 5}}))
      .with(at({{"input", {0, 3}}}))
      .rejects(at({{"input", {3, 4}}}, {{"axis1", 1}}), "must be two of a tensor");

  ops.def("diag")
      .python("Diag")
      .doc(
          "Of a vector, the matrix with it on the diagonal, diagonal places right of the main one, "
          "zeros elsewhere; of a matrix, that diagonal.")
      .input("input", kTensor)
      .attr("diagonal", 0)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        const auto known = r.known(r.attr("diagonal"));
        r.same_kind(r.out(), r.in("input"));
        r.when_rank_known(r.in("input"), [known](RuleBuilder& b, int rank) {
          if (rank == 1 && known && known->is_int()) {
            const infer::DimTerm size = b.dim(b.in("input"), 0) + std::abs(known->as_int());
            b.shape(b.out(), {size, size});
          } else if (rank == 2) {
            b.custom({b.out(), b.in("input"), b.attr("diagonal"), b.constant(0), b.constant(1)},
                     relate_diagonal);
          } else {
            b.fail(core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                              "input must have 1 or 2 dimensions, got {}", rank));
          }
        });
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        const int64_t offset = b.integer_attr("diagonal");
        return x.rank() == 1 ? embedded(x, offset) : diagonal_of(x, offset);
      })
      .checks_sizes()
      .with(at({{"input", {3}}}))
      .with(at({{"input", {3}}}, {{"diagonal", 2}}))
      .with(at({{"input", {2}}}, {{"diagonal", -1}}))
      .with(at({{"input", {3, 4}}}, {{"diagonal", 1}}))
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {0}}}))
      .rejects(at({{"input", {2, 3, 4}}}), "1 or 2 dimensions");
}

void define_triangles(OpFamily& ops) {
  triangular(ops.def("tril").python("Tril").doc("The last two axes' elements on the diagonal and "
                                                "left of it, zeros elsewhere; diagonal: so many "
                                                "places further right."),
             true);
  triangular(ops.def("triu").python("Triu").doc("The last two axes' elements on the diagonal and "
                                                "right of it, zeros elsewhere; diagonal: so many "
                                                "places further right."),
             false);
}

}  // namespace

void define_diagonal(OpFamily& ops) {
  define_triangles(ops);
  define_diagonals(ops);
}

}  // namespace mithril::ops
