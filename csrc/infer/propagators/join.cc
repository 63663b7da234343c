// Concatenation, stacking and splitting.
#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

/// The sum of some dims as an expression; nullopt while forward does not know one.
std::optional<Dim> sum_of(Store& s, std::span<const uint32_t> dims) {
  Dim out(0);
  for (const uint32_t d : dims) {
    const auto e = s.expression(d);
    if (!e) return std::nullopt;
    out = s.table().add(out, *e);
  }
  return out;
}

std::string describe_items(Store& s, const Propagator& p, std::span<const uint32_t> items) {
  std::string got;
  for (const uint32_t item : items) {
    got += (got.empty() ? "" : ", ") + s.print_shape(item);
  }
  return "[" + got + "] for " + s.describe(p.rule, s.arg(p, 0));
}

Outcome join_conflict(Store& s, const Propagator& p, std::span<const uint32_t> items,
                      const core::HostValue& axis) {
  s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                             "shapes must agree but for axis {}, got {}", core::to_string(axis),
                             describe_items(s, p, items)));
  return Outcome::kConflict;
}

/// The dims of a shape that has the axis, the side on which it counts in full; nullopt: not known.
std::optional<Dims> dims_to_axis(Store& s, uint32_t shape, int64_t axis) {
  Dims dims;
  if (s.rank(shape)) {
    dims.prefix = s.fixed_dims(shape);
    return dims;
  }
  const uint64_t needed =
      axis >= 0 ? static_cast<uint64_t>(axis) + 1 : 0 - static_cast<uint64_t>(axis);
  const auto reach = static_cast<size_t>(std::min<uint64_t>(needed, kMostDims + 1));
  if (!s.narrow_ranks(shape, ranks_from(reach))) return std::nullopt;
  if (axis >= 0) s.dim_from_left(shape, reach - 1, true);
  if (axis < 0) s.dim_from_right(shape, reach - 1, true);
  return axis >= 0 ? s.both_ends(shape, reach, 0) : s.both_ends(shape, 0, reach);
}

/// The dim at an axis that is there.
uint32_t& at_axis(Dims& dims, int64_t axis) {
  DimList& side = axis >= 0 || dims.fixed() ? dims.prefix : dims.suffix;
  return side[static_cast<size_t>(axis >= 0 ? axis : axis + static_cast<int64_t>(side.size()))];
}

/// The joined cells: arguments of their own, or the items of one; nullopt while those are unknown.
std::optional<DimList> joined_cells(Store& s, const Propagator& p) {
  if (p.data == 0) return s.items(s.arg(p, 2));
  DimList cells;
  for (uint32_t i = 2; i < p.count; ++i) cells.push_back(s.arg(p, i));
  return cells;
}

/// Without an axis the operands are flattened: the result has one dim, the sum of their sizes.
Outcome concat_flat(Store& s, const Propagator& p, std::span<const uint32_t> shapes,
                    std::span<const uint32_t> cells) {
  const uint32_t out = s.shape(s.arg(p, 0));
  const auto fail = [&] { return join_conflict(s, p, cells, {}); };
  if (!s.narrow_ranks(out, rank_bit(1))) return fail();
  Dim total(0);
  for (const uint32_t shape : shapes) {
    if (!s.rank(shape)) return Outcome::kWait;
    Dim product(1);
    for (const uint32_t d : s.fixed_dims(shape)) {
      const auto e = s.expression(d);
      if (!e) return Outcome::kWait;
      product = s.table().mul(product, *e);
    }
    total = s.table().add(total, product);
  }
  if (!s.define(s.fixed_dims(out)[0], total) || s.failed()) return fail();
  return s.forward() || total.known() ? Outcome::kDone : Outcome::kWait;
}

Outcome run_concat(Store& s, const Propagator& p) {
  const uint32_t out_cell = s.arg(p, 0);
  const auto joined = joined_cells(s, p);
  if (!joined) return Outcome::kWait;
  const DimList& cells = *joined;
  if (cells.empty()) {
    return s.conflict(core::Code::kValueArgument, "at least one tensor is needed, got none");
  }
  DimList shapes;
  for (const uint32_t cell : cells) {
    if (!s.narrow(cell, kTensor)) return Outcome::kConflict;
    shapes.push_back(s.shape(cell));
  }
  const auto axis = s.known_value(s.arg(p, 1));
  if (!axis) return Outcome::kWait;
  const uint32_t out = s.shape(out_cell);
  const auto fail = [&] { return join_conflict(s, p, cells, *axis); };
  if (axis->is_none()) return concat_flat(s, p, shapes, cells);
  if (!axis->is_int()) {
    return s.conflict(core::Code::kValueArgument, "axis must be none or an int, got {}",
                      core::to_string(*axis));
  }
  RankMask ranks = s.ranks(out);
  for (const uint32_t shape : shapes) ranks &= s.ranks(shape);
  shapes.push_back(out);
  for (const uint32_t shape : shapes) {
    if (!s.narrow_ranks(shape, ranks)) return fail();
  }
  if (s.rank(out) && !normal_axis(s, p, "axis", axis->as_int(), *s.rank(out), out_cell)) {
    return Outcome::kConflict;
  }
  auto dims = dims_to_axis(s, out, axis->as_int());
  if (!dims) return s.failed() ? fail() : Outcome::kWait;
  const uint32_t result = at_axis(*dims, axis->as_int());
  shapes.erase(shapes.size() - 1);
  DimList along;
  for (const uint32_t shape : shapes) {
    auto own = dims_to_axis(s, shape, axis->as_int());
    if (!own) return s.failed() ? fail() : Outcome::kWait;
    along.push_back(at_axis(*own, axis->as_int()));
    at_axis(*dims, axis->as_int()) = along.back();
    if (!s.constrain(shape, *dims) || s.failed()) return fail();
  }
  const auto sum = sum_of(s, along);
  if (!sum) return Outcome::kWait;
  if (!s.define(result, *sum) || s.failed()) return fail();
  if (s.forward()) return Outcome::kDone;
  for (const uint32_t d : along) {
    if (!s.is_known(d)) return Outcome::kWait;
  }
  return Outcome::kDone;
}

/// The new axis counts from an end: dims between it and that end are enough.
Outcome stack_open(Store& s, const Propagator& p, uint32_t item, int64_t axis, size_t count) {
  const uint32_t in = s.shape(item), out = s.shape(s.arg(p, 0));
  if (axis < -static_cast<int64_t>(kMostDims) || axis > static_cast<int64_t>(kMostDims)) {
    return Outcome::kWait;
  }
  const auto before = static_cast<size_t>(axis >= 0 ? axis : -axis - 1);
  if (before > 0) {
    const int64_t last = axis >= 0 ? axis - 1 : axis + 1;
    if (!dims_to_axis(s, in, last)) return s.failed() ? Outcome::kConflict : Outcome::kWait;
  }
  auto dims = axis >= 0 ? s.both_ends(in, before, 0) : s.both_ends(in, 0, before);
  if (!dims) return s.failed() ? Outcome::kConflict : Outcome::kWait;
  DimList& side = axis >= 0 ? dims->prefix : dims->suffix;
  side.insert(axis >= 0 ? before : side.size() - before, s.new_dim(static_cast<int64_t>(count)));
  return s.constrain(out, *dims) && !s.failed() ? Outcome::kDone : Outcome::kConflict;
}

Outcome run_stack(Store& s, const Propagator& p) {
  const uint32_t out_cell = s.arg(p, 0);
  const auto items = s.items(s.arg(p, 2));
  const auto axis = s.known_value(s.arg(p, 1));
  if (!items || !axis || !axis->is_int()) return Outcome::kWait;
  if (items->empty()) {
    return s.conflict(core::Code::kValueArgument, "at least one tensor is needed, got none");
  }
  const auto fail = [&] { return join_conflict(s, p, *items, *axis); };
  for (const uint32_t item : *items) {
    if (!s.narrow(item, kTensor)) return Outcome::kConflict;
    if (!s.unify_shapes(s.shape((*items)[0]), s.shape(item))) return fail();
  }
  const uint32_t in = s.shape((*items)[0]), out = s.shape(out_cell);
  if (!s.narrow_ranks(out, raise(s.ranks(in), 1)) || !s.narrow_ranks(in, lower(s.ranks(out), 1))) {
    return fail();
  }
  if (!s.rank(in)) return stack_open(s, p, (*items)[0], axis->as_int(), items->size());
  Dims dims;
  dims.prefix = s.fixed_dims(in);
  const auto at = normal_axis(s, p, "axis", axis->as_int(),
                              static_cast<int>(dims.prefix.size()) + 1, (*items)[0]);
  if (!at) return Outcome::kConflict;
  dims.prefix.insert(static_cast<size_t>(*at), s.new_dim(static_cast<int64_t>(items->size())));
  return s.constrain(out, dims) && !s.failed() ? Outcome::kDone : fail();
}

Outcome run_split(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0), in_cell = s.arg(p, 1);
  const auto count = s.known_value(s.arg(p, 2)), axis = s.known_value(s.arg(p, 3));
  if (!count || !count->is_int()) return Outcome::kWait;
  if (count->as_int() <= 0 || count->as_int() > (1 << 20)) {
    return s.conflict(core::Code::kValueArgument, "count must be positive, got {}",
                      count->as_int());
  }
  auto items = s.items(out);
  if (!items) {
    items.emplace();
    for (int64_t i = 0; i < count->as_int(); ++i) items->push_back(s.new_cell(kTensor));
    if (!s.set_items(out, *items,
                     !s.kinds(out).meets(kTupleKind) || s.kinds(out).meets(kListKind))) {
      return Outcome::kConflict;
    }
  }
  if (static_cast<int64_t>(items->size()) != count->as_int()) {
    return s.conflict(core::Code::kValueConflict, "output must have {} pieces, got {}",
                      count->as_int(), items->size());
  }
  const uint32_t first = s.shape((*items)[0]);
  for (const uint32_t item : *items) {
    if (!s.narrow(item, kTensor) || !s.unify_shapes(first, s.shape(item)))
      return Outcome::kConflict;
  }
  const uint32_t in = s.shape(in_cell);
  if (!s.narrow_ranks(in, s.ranks(first)) || !s.narrow_ranks(first, s.ranks(in))) {
    return Outcome::kConflict;
  }
  if (!axis || !axis->is_int()) return Outcome::kWait;
  const int64_t at = axis->as_int();
  if (s.rank(in) && !normal_axis(s, p, "axis", at, *s.rank(in), in_cell)) {
    return Outcome::kConflict;
  }
  auto dims = dims_to_axis(s, in, at);
  if (!dims) return s.failed() ? Outcome::kConflict : Outcome::kWait;
  const uint32_t whole = at_axis(*dims, at), piece = s.new_dim();
  at_axis(*dims, at) = piece;
  const auto size = s.size(whole);
  bool ok = s.constrain(first, *dims);
  if (ok) post_arithmetic(s, p.rule, whole, piece, s.new_dim(count->as_int()), IntOp::kMul);
  if (ok && !s.failed()) return Outcome::kDone;
  s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                             "axis {} of size {} must split into {} equal pieces, got {}",
                             axis->as_int(), size ? std::to_string(*size) : "?", count->as_int(),
                             s.describe(p.rule, in_cell)));
  return Outcome::kConflict;
}

}  // namespace

void RuleBuilder::concat(Term out, Term list, Term axis) {
  kind(out, kTensor);
  kind(list, kSequence);
  store_->post(rule_.index, run_concat, {out.cell.index, axis.cell.index, list.cell.index});
}

void RuleBuilder::concat(Term out, Terms operands, Term axis) {
  kind(out, kTensor);
  DimList args = {out.cell.index, axis.cell.index};
  for (const Term& operand : operands) args.push_back(operand.cell.index);
  store_->post(rule_.index, run_concat, args, false, 1);
}

void RuleBuilder::stack(Term out, Term list, Term axis) {
  kind(out, kTensor);
  kind(list, kSequence);
  store_->post(rule_.index, run_stack, {out.cell.index, axis.cell.index, list.cell.index});
}

void RuleBuilder::split(Term out, Term in, Term count, Term axis) {
  kind(in, kTensor);
  kind(out, kSequence);
  store_->post(rule_.index, run_split,
               {out.cell.index, in.cell.index, count.cell.index, axis.cell.index});
}

}  // namespace mithril::infer
