// Reshape, flatten, permutations, and shapes given by values.
#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

std::optional<Dim> product_of(Store& s, std::span<const uint32_t> dims) {
  Dim out(1);
  for (const uint32_t d : dims) {
    const auto e = s.expression(d);
    if (!e) return std::nullopt;
    out = s.table().mul(out, *e);
  }
  return out;
}

bool all_known(Store& s, std::span<const uint32_t> dims) {
  for (const uint32_t d : dims) {
    if (!s.is_known(d)) return false;
  }
  return true;
}

// --- reshape ----------------------------------------------------------------------------------

Outcome count_conflict(Store& s, const Propagator& p) {
  s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeElementCount,
                             "number of elements must not change, got {} and {}",
                             s.describe(p.rule, s.arg(p, 1)), s.describe(p.rule, s.arg(p, 2))));
  return Outcome::kConflict;
}

// The size that is -1 where the others are `rest`, of nothing: what is left when equal sizes are
// taken from both sides. None where any size would do.
std::optional<Dim> size_of_nothing(Store& s, const DimList& from, DimList rest) {
  Dim total(1);
  for (const uint32_t d : from) {
    const auto size = s.expression(d);
    size_t at = 0;
    while (at < rest.size() && s.expression(rest[at]) != size) ++at;
    if (at < rest.size()) {
      rest.erase(at);
    } else {
      total = s.table().mul(total, *size);
    }
  }
  const auto others = product_of(s, rest);
  if (!others || *others == Dim(0)) return std::nullopt;
  return s.table().divide_exact(total, *others);
}

Outcome run_reshape(Store& s, const Propagator& p) {
  const uint32_t out_cell = s.arg(p, 0), in_cell = s.arg(p, 1), shape_cell = s.arg(p, 2);
  const auto items = s.items(shape_cell);
  if (!items) return Outcome::kWait;
  const uint32_t out = s.shape(out_cell), in = s.shape(in_cell);
  if (!s.set_rank(out, items->size())) {
    s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                               "output must have the dimensions of shape, got {} and {}",
                               s.describe(p.rule, out_cell), s.describe(p.rule, shape_cell)));
    return Outcome::kConflict;
  }
  if (!s.rank(out)) return Outcome::kWait;
  const DimList to = s.fixed_dims(out);
  size_t open = items->size();  // the item that is -1
  bool settled = true;
  for (size_t i = 0; i < items->size(); ++i) {
    const uint32_t item = (*items)[i];
    const KindSet kinds = s.kinds(item);
    const uint32_t dim = kinds == kScalarInt ? s.int_dim(item) : kNone;
    const auto size = dim == kNone ? std::nullopt : s.size(dim);
    if (kinds == kNoneKind || size == -1) {
      if (open != items->size()) {
        return s.conflict(core::Code::kValueArgument, "at most one size may be -1, got {}",
                          s.describe(p.rule, shape_cell));
      }
      open = i;
    } else if (size) {
      if (*size < 0) {
        return s.conflict(core::Code::kValueArgument, "sizes must not be negative, got {}",
                          s.describe(p.rule, shape_cell));
      }
      if (!s.assign(to[i], *size)) return count_conflict(s, p);
    } else if (dim != kNone && (s.is_size(dim) || s.bounds(dim).low >= 0)) {
      if (!s.unify_dims(to[i], dim)) return count_conflict(s, p);
    } else {
      settled = false;  // may turn out to be -1
    }
  }
  if (!settled || !s.rank(in)) return Outcome::kWait;
  const DimList from = s.fixed_dims(in);
  const auto total = product_of(s, from);
  if (!total) return Outcome::kWait;
  DimList rest = to;
  if (open != items->size()) rest.erase(open);
  const auto others = product_of(s, rest);
  if (!others) return Outcome::kWait;
  if (*total == s.table().overflow() || *others == s.table().overflow()) {
    return s.conflict(core::Code::kOverflow, "the number of elements does not fit 64 bits");
  }
  if (open != items->size()) {
    const bool nothing = *others == Dim(0);
    if (nothing && *total != Dim(0)) return count_conflict(s, p);
    const auto exact =
        nothing ? size_of_nothing(s, from, rest) : s.table().divide_exact(*total, *others);
    if (exact) {
      if (!s.define(to[open], *exact) || s.failed()) return count_conflict(s, p);
    } else if (total->known() && others->known()) {
      return count_conflict(s, p);
    } else if (s.forward()) {
      if (!s.define(to[open], s.table().floor_div(*total, *others))) return count_conflict(s, p);
    }
  }
  if (!s.forward() || (total->known() && others->known() && open == items->size())) {
    const auto product = product_of(s, to);
    if (product && !s.solve_zero(s.table().sub(*total, *product))) return count_conflict(s, p);
    if (s.failed()) return count_conflict(s, p);
  }
  return s.forward() || (all_known(s, from) && all_known(s, to)) ? Outcome::kDone : Outcome::kWait;
}

// --- flatten ----------------------------------------------------------------------------------

Outcome flatten_conflict(Store& s, const Propagator& p) {
  s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeElementCount,
                             "merged dimensions must keep their product, got {} and {}",
                             s.describe(p.rule, s.arg(p, 1)), s.describe(p.rule, s.arg(p, 0))));
  return Outcome::kConflict;
}

/// start counts from the left, end from the right: dims before and behind stay.
Outcome flatten_between(Store& s, const Propagator& p, size_t before, size_t behind) {
  const uint32_t in = s.shape(s.arg(p, 1)), out = s.shape(s.arg(p, 0));
  const bool may_be_scalar = before + behind == 0;
  if (!may_be_scalar && !s.narrow_ranks(in, ranks_from(before + behind + 1))) {
    return flatten_conflict(s, p);
  }
  if (!s.set_rank(out, before + 1 + behind)) return flatten_conflict(s, p);
  const DimList to = s.fixed_dims(out);
  for (size_t i = 0; i <= before; ++i) {
    const uint32_t dim = s.dim_from_left(in, i, true);
    if (i < before && dim != kNone && !s.unify_dims(dim, to[i])) return flatten_conflict(s, p);
  }
  for (size_t i = 0; i < behind; ++i) {
    const uint32_t dim = s.dim_from_right(in, i, true);
    if (dim != kNone && !s.unify_dims(dim, to[to.size() - 1 - i])) return flatten_conflict(s, p);
  }
  return s.failed() ? flatten_conflict(s, p) : Outcome::kWait;
}

/// Both count from the same end: the merged dims are known though the rank is not.
Outcome flatten_at_end(Store& s, const Propagator& p, int64_t start, int64_t end) {
  const uint32_t in = s.shape(s.arg(p, 1)), out = s.shape(s.arg(p, 0));
  if (least_rank(s.ranks(in)) == 0 || end < start) return Outcome::kWait;
  const bool left = start >= 0;
  const auto reach = static_cast<size_t>(left ? end + 1 : -start);
  if (left) s.dim_from_left(in, reach - 1, true);
  if (!left) s.dim_from_right(in, reach - 1, true);
  auto dims = left ? s.both_ends(in, reach, 0) : s.both_ends(in, 0, reach);
  if (!dims) return s.failed() ? flatten_conflict(s, p) : Outcome::kWait;
  DimList& side = left ? dims->prefix : dims->suffix;
  const size_t at = left ? static_cast<size_t>(start) : side.size() - reach;
  uint32_t merged = left ? s.dim_from_left(out, at, false)
                         : s.dim_from_right(out, static_cast<size_t>(-end - 1), false);
  if (merged == kNone) merged = s.new_dim();
  DimList inside, kept;
  for (size_t i = 0; i < side.size(); ++i) {
    const bool is_inside = i >= at && i <= at + static_cast<size_t>(end - start);
    if (i == at) kept.push_back(merged);
    (is_inside ? inside : kept).push_back(side[i]);
  }
  side = kept;
  if (!s.constrain(out, *dims)) return flatten_conflict(s, p);
  const auto product = product_of(s, inside);
  if (product && !s.define(merged, *product)) return flatten_conflict(s, p);
  return s.failed() ? flatten_conflict(s, p) : Outcome::kWait;
}

/// Relates what is known of both shapes while the rank is open.
Outcome flatten_open(Store& s, const Propagator& p, int64_t start, int64_t end) {
  constexpr int64_t kMost = kMostDims;
  if (std::max(start, end) >= kMost || std::min(start, end) < -kMost) return Outcome::kWait;
  if ((start >= 0) == (end >= 0)) return flatten_at_end(s, p, start, end);
  if (start < 0) return Outcome::kWait;
  return flatten_between(s, p, static_cast<size_t>(start), static_cast<size_t>(-end - 1));
}

Outcome run_flatten(Store& s, const Propagator& p) {
  const uint32_t out_cell = s.arg(p, 0), in_cell = s.arg(p, 1);
  const auto first = s.known_value(s.arg(p, 2)), last = s.known_value(s.arg(p, 3));
  if (!first || !last || !first->is_int() || !last->is_int()) return Outcome::kWait;
  const int64_t start = first->as_int(), end = last->as_int();
  const uint32_t in = s.shape(in_cell), out = s.shape(out_cell);
  const bool scalar_allowed = (start == 0 || start == -1) && (end == 0 || end == -1);
  const auto needed = [](int64_t axis) {
    constexpr int64_t kFar = 1 << 20;  // far beyond all ranks
    return static_cast<size_t>(axis >= 0 ? std::min(axis, kFar) + 1 : -std::max(axis, -kFar));
  };
  const size_t least = scalar_allowed ? 0 : std::max(needed(start), needed(end));
  if (!s.narrow_ranks(in, ranks_from(least)) ||
      (s.rank(in) && static_cast<size_t>(*s.rank(in)) < least)) {
    s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                               "input must have at least {} dimensions, got {}", least,
                               s.describe(p.rule, in_cell)));
    return Outcome::kConflict;
  }
  if (!s.rank(in)) return flatten_open(s, p, start, end);
  const DimList from = s.fixed_dims(in);
  const auto rank = static_cast<int64_t>(from.size());
  const int64_t lo = rank == 0 ? 0 : start < 0 ? start + rank : start;
  const int64_t hi = rank == 0 ? -1 : end < 0 ? end + rank : end;
  if (rank > 0 && hi < lo) {
    return s.conflict(core::Code::kValueAxis, "start_dim must not be after end_dim, got {} and {}",
                      start, end);
  }
  const size_t merged = static_cast<size_t>(hi - lo + 1);
  if (!s.set_rank(out, from.size() - merged + 1) || !s.rank(out)) {
    return flatten_conflict(s, p);
  }
  const DimList to = s.fixed_dims(out);
  DimList inside;
  for (size_t i = 0; i < from.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    if (at >= lo && at <= hi) {
      inside.push_back(from[i]);
    } else {
      const size_t target = at < lo ? i : i - merged + 1;
      if (!s.unify_dims(from[i], to[target])) return flatten_conflict(s, p);
    }
  }
  const uint32_t result = to[static_cast<size_t>(lo)];
  const auto product = product_of(s, inside);
  if (!product) return Outcome::kWait;
  if (!s.define(result, *product) || s.failed()) return flatten_conflict(s, p);
  return s.forward() || (s.is_known(result) && all_known(s, inside)) ? Outcome::kDone
                                                                     : Outcome::kWait;
}

// --- permutations -----------------------------------------------------------------------------

Outcome permute_conflict(Store& s, const Propagator& p) {
  s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                             "output must be the permuted input, got {} and {}",
                             s.describe(p.rule, s.arg(p, 1)), s.describe(p.rule, s.arg(p, 0))));
  return Outcome::kConflict;
}

Outcome run_permute(Store& s, const Propagator& p) {
  const uint32_t out_cell = s.arg(p, 0), in_cell = s.arg(p, 1);
  const uint32_t in = s.shape(in_cell), out = s.shape(out_cell);
  if (!s.narrow_ranks(in, s.ranks(out)) || !s.narrow_ranks(out, s.ranks(in))) {
    return permute_conflict(s, p);
  }
  const auto axes = s.known_value(s.arg(p, 2));
  if (!axes) return Outcome::kWait;
  Dims dims;
  if (axes->is_none()) {
    const auto known = s.rank(in) ? in : s.rank(out) ? out : kNone;
    if (known == kNone) return Outcome::kWait;
    const DimList from = s.fixed_dims(known);
    for (size_t i = from.size(); i-- > 0;) dims.prefix.push_back(from[i]);
    const bool ok = s.constrain(known == in ? out : in, dims) && !s.failed();
    return ok ? Outcome::kDone : permute_conflict(s, p);
  }
  const auto order = ints_of(*axes);
  if (!order) {
    return s.conflict(core::Code::kValueArgument, "axes must be none or ints, got {}",
                      core::to_string(*axes));
  }
  const auto rank = static_cast<int>(order->size());
  if (!s.set_rank(in, order->size()) || !s.rank(in)) {
    s.replace_error(core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                               "axes must name each dimension once, got axes: {} for {}",
                               core::to_string(*axes), s.describe(p.rule, in_cell)));
    return Outcome::kConflict;
  }
  const DimList from = s.fixed_dims(in);
  SmallVector<uint8_t, 16> seen(order->size(), 0);
  for (const int64_t axis : *order) {
    const auto at = normal_axis(s, p, "axes", axis, rank, in_cell);
    if (!at) return Outcome::kConflict;
    if (seen[static_cast<size_t>(*at)]++) {
      return s.conflict(core::Code::kValueAxis, "axes must not repeat, got axes: {} for {}",
                        core::to_string(*axes), s.describe(p.rule, in_cell));
    }
    dims.prefix.push_back(from[static_cast<size_t>(*at)]);
  }
  return s.constrain(out, dims) && !s.failed() ? Outcome::kDone : permute_conflict(s, p);
}

/// Counts the dims that axes reach into from one end of a shape.
size_t reach_of(std::initializer_list<int64_t> axes, bool left) {
  uint64_t out = 0;
  for (const int64_t axis : axes) {
    if ((axis >= 0) != left) continue;
    out = std::max(out, left ? static_cast<uint64_t>(axis) + 1 : 0 - static_cast<uint64_t>(axis));
  }
  return static_cast<size_t>(std::min<uint64_t>(out, 1u << 20));
}

/// The operand has the axes, wherever the other one is.
Outcome require_axes(Store& s, const Propagator& p, uint32_t cell,
                     std::initializer_list<int64_t> axes) {
  const uint32_t shape = s.shape(cell);
  const size_t left = reach_of(axes, true), right = reach_of(axes, false);
  if (!s.narrow_ranks(shape, ranks_from(std::max(left, right)))) {
    s.replace_error(core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                               "axis is out of range, got axis: {} for {}", fmt::join(axes, ", "),
                               s.describe(p.rule, cell)));
    return Outcome::kConflict;
  }
  if (left > 0) s.dim_from_left(shape, left - 1, true);
  if (right > 0) s.dim_from_right(shape, right - 1, true);
  return s.failed() ? Outcome::kConflict : Outcome::kWait;
}

/// Axes of an open rank: where both ends show them they swap.
Outcome swap_open(Store& s, const Propagator& p, int64_t first, int64_t second) {
  const uint32_t in = s.shape(s.arg(p, 1)), out = s.shape(s.arg(p, 0));
  const std::initializer_list<int64_t> axes{first, second};
  for (const uint32_t cell : {s.arg(p, 1), s.arg(p, 0)}) {
    if (require_axes(s, p, cell, axes) == Outcome::kConflict) return Outcome::kConflict;
  }
  auto dims = s.both_ends(in, reach_of(axes, true), reach_of(axes, false));
  if (!dims) return s.failed() ? permute_conflict(s, p) : Outcome::kWait;
  const auto dim = [&](int64_t axis) -> uint32_t& {
    return axis >= 0 ? dims->prefix[static_cast<size_t>(axis)]
                     : dims->suffix[dims->suffix.size() - static_cast<size_t>(-axis)];
  };
  std::swap(dim(first), dim(second));
  return s.constrain(out, *dims) && !s.failed() ? Outcome::kDone : permute_conflict(s, p);
}

Outcome run_swap_axes(Store& s, const Propagator& p) {
  const uint32_t out_cell = s.arg(p, 0), in_cell = s.arg(p, 1);
  const uint32_t in = s.shape(in_cell), out = s.shape(out_cell);
  if (!s.narrow_ranks(in, s.ranks(out)) || !s.narrow_ranks(out, s.ranks(in))) {
    return permute_conflict(s, p);
  }
  const auto first = s.known_value(s.arg(p, 2)), second = s.known_value(s.arg(p, 3));
  const bool has_first = first && first->is_int(), has_second = second && second->is_int();
  if (!has_first || !has_second) {
    if (!has_first && !has_second) return Outcome::kWait;
    const int64_t axis = has_first ? first->as_int() : second->as_int();
    return require_axes(s, p, in_cell, {axis});
  }
  if (!s.rank(in)) return swap_open(s, p, first->as_int(), second->as_int());
  Dims dims;
  dims.prefix = s.fixed_dims(in);
  const int rank = static_cast<int>(dims.prefix.size());
  const auto a = normal_axis(s, p, "axis", first->as_int(), rank, in_cell);
  if (!a) return Outcome::kConflict;
  const auto b = normal_axis(s, p, "axis", second->as_int(), rank, in_cell);
  if (!b) return Outcome::kConflict;
  std::swap(dims.prefix[static_cast<size_t>(*a)], dims.prefix[static_cast<size_t>(*b)]);
  return s.constrain(out, dims) && !s.failed() ? Outcome::kDone : permute_conflict(s, p);
}

// --- shapes as values -------------------------------------------------------------------------

/// A tuple or list that nothing is known of but that it is a tensor's shape.
Outcome fill_from_shape(Store& s, uint32_t cell, uint32_t value) {
  const uint32_t shape = s.shape(cell);
  const KindSet kinds = s.kinds(value);
  if ((kinds != kTupleKind && kinds != kListKind) || !s.rank(shape)) return Outcome::kWait;
  DimList items;
  for (const uint32_t dim : s.fixed_dims(shape)) {
    items.push_back(s.new_cell(kScalarInt));
    if (!s.set_int(items.back(), dim)) return Outcome::kConflict;
  }
  return s.set_items(value, items, kinds == kListKind) ? Outcome::kDone : Outcome::kConflict;
}

Outcome run_shape_from_value(Store& s, const Propagator& p) {
  const uint32_t cell = s.arg(p, 0), value = s.arg(p, 1);
  Dims dims;
  if (s.kinds(value) == kScalarInt) {
    dims.prefix.push_back(s.int_dim(value));
  } else {
    const auto items = s.items(value);
    if (!items) return fill_from_shape(s, cell, value);
    for (const uint32_t item : *items) {
      if (!s.narrow(item, kScalarInt)) return Outcome::kConflict;
      dims.prefix.push_back(s.int_dim(item));
    }
  }
  if (s.constrain(s.shape(cell), dims) && !s.failed()) return Outcome::kDone;
  return s.conflict(core::Code::kShapeConflict, "{} must have the shape that is given, got {}",
                    s.binding_name(p.rule, cell), s.describe(p.rule, value));
}

Outcome run_shape_of(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0), cell = s.arg(p, 1);
  const uint32_t shape = s.shape(cell);
  const auto fail = [&] {
    s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                               "value must be the input's shape, got {} and {}",
                               s.describe(p.rule, out), s.describe(p.rule, cell)));
    return Outcome::kConflict;
  };
  auto items = s.items(out);
  if (items && !s.set_rank(shape, items->size())) return fail();
  if (!s.rank(shape)) return Outcome::kWait;
  const DimList dims = s.fixed_dims(shape);
  if (items && items->size() != dims.size()) return fail();
  if (!items) {
    items.emplace();
    for (size_t i = 0; i < dims.size(); ++i) items->push_back(s.new_cell(kScalarInt));
    if (!s.set_items(out, *items, false)) return fail();
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!s.set_int((*items)[i], dims[i]) || s.failed()) return fail();
  }
  return Outcome::kDone;
}

Outcome require_all_axes(Store& s, const Propagator& p, uint32_t cell,
                         const core::HostValue& value) {
  const auto axes = value.is_none() ? std::nullopt : ints_of(value);
  if (!axes) return Outcome::kWait;
  for (const int64_t axis : *axes) {
    if (require_axes(s, p, cell, {axis}) == Outcome::kConflict) return Outcome::kConflict;
  }
  return Outcome::kWait;
}

Outcome run_size_of(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0), cell = s.arg(p, 1);
  const uint32_t shape = s.shape(cell);
  const auto axis = s.known_value(s.arg(p, 2));
  if (!axis) return Outcome::kWait;
  const bool is_one = axis->is_none() || axis->is_int();
  if (!s.narrow(out, is_one ? kScalarInt : kTupleKind)) return Outcome::kConflict;
  if (!s.rank(shape)) return require_all_axes(s, p, cell, *axis);
  const DimList dims = s.fixed_dims(shape);
  const int rank = static_cast<int>(dims.size());
  if (axis->is_none()) {
    const auto product = product_of(s, dims);
    if (!product) return Outcome::kWait;
    if (!s.define(s.int_dim(out), *product) || s.failed()) return Outcome::kConflict;
    return s.forward() || all_known(s, dims) ? Outcome::kDone : Outcome::kWait;
  }
  const auto axes = ints_of(*axis);
  if (!axes)
    return s.conflict(core::Code::kValueArgument, "axis must be none or ints, got {}",
                      core::to_string(*axis));
  DimList items;
  for (const int64_t a : *axes) {
    const auto at = normal_axis(s, p, "dim", a, rank, cell);
    if (!at) return Outcome::kConflict;
    if (axis->is_int()) {
      return s.set_int(out, dims[static_cast<size_t>(*at)]) ? Outcome::kDone : Outcome::kConflict;
    }
    items.push_back(s.new_cell(kScalarInt));
    if (!s.set_int(items.back(), dims[static_cast<size_t>(*at)])) return Outcome::kConflict;
  }
  return s.set_items(out, items, false) ? Outcome::kDone : Outcome::kConflict;
}

Outcome run_one_element(Store& s, const Propagator& p) {
  const uint32_t cell = s.arg(p, 0), shape = s.shape(cell);
  if (!s.rank(shape)) return Outcome::kWait;
  for (const uint32_t d : s.fixed_dims(shape)) {
    if (s.assign(d, 1)) continue;
    s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                               "{} must have one element, got {}", s.binding_name(p.rule, cell),
                               s.print_shape(cell)));
    return Outcome::kConflict;
  }
  return Outcome::kDone;
}

}  // namespace

void RuleBuilder::reshape(Term out, Term in, Term shape) {
  kind(in, kTensor);
  kind(out, kTensor);
  kind(shape, kSequence);
  store_->post(rule_.index, run_reshape, {out.cell.index, in.cell.index, shape.cell.index});
}

void RuleBuilder::flatten(Term out, Term in, Term start_dim, Term end_dim) {
  kind(in, kTensor);
  kind(out, kTensor);
  store_->post(rule_.index, run_flatten,
               {out.cell.index, in.cell.index, start_dim.cell.index, end_dim.cell.index});
}

void RuleBuilder::permute(Term out, Term in, Term axes) {
  kind(in, kTensor);
  kind(out, kTensor);
  store_->post(rule_.index, run_permute, {out.cell.index, in.cell.index, axes.cell.index});
}

void RuleBuilder::swap_axes(Term out, Term in, Term axis1, Term axis2) {
  kind(in, kTensor);
  kind(out, kTensor);
  store_->post(rule_.index, run_swap_axes,
               {out.cell.index, in.cell.index, axis1.cell.index, axis2.cell.index});
}

void RuleBuilder::shape_from_value(Term tensor, Term shape) {
  kind(tensor, kTensor);
  kind(shape, kSequence | kScalarInt);
  store_->post(rule_.index, run_shape_from_value, {tensor.cell.index, shape.cell.index});
}

void RuleBuilder::shape_of(Term out, Term in) {
  kind(in, kTensor);
  kind(out, kTupleKind);
  store_->post(rule_.index, run_shape_of, {out.cell.index, in.cell.index});
}

void RuleBuilder::size_of(Term out, Term in, Term axis) {
  kind(in, kTensor);
  kind(out, kScalarInt | kTupleKind);
  store_->post(rule_.index, run_size_of, {out.cell.index, in.cell.index, axis.cell.index});
}

void RuleBuilder::one_element(Term tensor) {
  kind(tensor, kTensor);
  store_->post(rule_.index, run_one_element, {tensor.cell.index});
}

}  // namespace mithril::infer
