// Reductions over axes, and the same relation read as squeezing and expanding axes.
#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

using core::HostValue;
using Axes = SmallVector<int64_t, 8>;

enum class Mode { kKeep, kDrop, kDropOnes };

std::string print_axes(const HostValue& value) { return core::to_string(value); }

/// Counts the dims from each end that axes reach into, and has the ranks at which they are there
/// and name each dim once.
struct AxisSpan {
  size_t left = 0, right = 0;
  RankMask ranks = kAllRanks;
  size_t least() const { return std::max(left, right); }
};
AxisSpan span_of(const Axes& axes) {
  AxisSpan out;
  for (const int64_t axis : axes) {
    size_t& reach = axis >= 0 ? out.left : out.right;
    const uint64_t needed =
        axis >= 0 ? static_cast<uint64_t>(axis) + 1 : 0 - static_cast<uint64_t>(axis);
    reach = std::max<size_t>(reach, std::min<uint64_t>(needed, 1u << 20));
  }
  out.ranks = ranks_from(out.least());
  for (const int64_t axis : axes) {
    for (const int64_t other : axes) {
      const bool meets = axis >= 0 && other < 0 && axis < kManyRanks && other > -kManyRanks;
      if (!meets || axis - other >= kManyRanks) continue;
      out.ranks &= static_cast<RankMask>(~rank_bit(static_cast<size_t>(axis - other)));
    }
  }
  return out;
}

Outcome axis_conflict(Store& s, const Propagator& p, const HostValue& axis, uint32_t cell) {
  const uint32_t shape = s.shape_if_any(cell);
  const auto rank = shape == kNone ? std::nullopt : s.rank(shape);
  core::Error error = rank ? core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                                        "axis must be in [{}, {}), got axis: {} for {}", -*rank,
                                        *rank, print_axes(axis), s.describe(p.rule, cell))
                           : core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                                        "axis is out of range, got axis: {} for {}",
                                        print_axes(axis), s.describe(p.rule, cell));
  s.replace_error(std::move(error));
  return Outcome::kConflict;
}

Outcome shape_conflict(Store& s, const Propagator& p, const HostValue& axis, uint32_t in,
                       uint32_t out) {
  s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                             "{} and {} do not agree over axis: {}", s.describe(p.rule, in),
                             s.describe(p.rule, out), print_axes(axis)));
  return Outcome::kConflict;
}

bool repeats(const Axes& axes, std::optional<int> rank) {
  for (size_t i = 0; i < axes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const auto [low, high] = std::minmax(axes[i], axes[j]);
      const uint64_t apart = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
      if (apart == 0 || (rank && apart == static_cast<uint64_t>(*rank))) return true;
    }
  }
  return false;
}

/// Narrows the rank of the operand to those that have the axes.
Outcome check_axes(Store& s, const Propagator& p, uint32_t cell, const HostValue& value,
                   const Axes& axes, const AxisSpan& reach) {
  const uint32_t in = s.shape(cell);
  const auto rank = s.rank(in);
  if (rank && static_cast<size_t>(*rank) < reach.least()) return axis_conflict(s, p, value, cell);
  if (repeats(axes, rank)) {
    s.replace_error(core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                               "axis must not repeat, got axis: {} for {}", print_axes(value),
                               s.describe(p.rule, cell)));
    return Outcome::kConflict;
  }
  return s.narrow_ranks(in, reach.ranks) ? Outcome::kWait : axis_conflict(s, p, value, cell);
}

/// The dims of `in` that the axes count over: all, or those at the ends; nullopt: not known yet.
std::optional<Dims> reached_dims(Store& s, uint32_t in, const AxisSpan& reach) {
  Dims dims;
  if (s.rank(in)) {
    dims.prefix = s.fixed_dims(in);
    return dims;
  }
  if (reach.left > 0) s.dim_from_left(in, reach.left - 1, true);
  if (reach.right > 0) s.dim_from_right(in, reach.right - 1, true);
  return s.both_ends(in, reach.left, reach.right);
}

/// out = in with `axes` kept as 1 or dropped. kDone once both are tied for good.
Outcome map_axes(Store& s, const Propagator& p, uint32_t in_cell, uint32_t out_cell,
                 const HostValue& value, const Axes& axes, Mode mode) {
  const uint32_t in = s.shape(in_cell), out = s.shape(out_cell);
  const auto fail = [&] { return shape_conflict(s, p, value, in_cell, out_cell); };
  const AxisSpan reach = span_of(axes);
  if (check_axes(s, p, in_cell, value, axes, reach) == Outcome::kConflict) {
    return Outcome::kConflict;
  }
  const size_t dropped = mode == Mode::kKeep ? 0 : axes.size();
  if (!s.narrow_ranks(out, lower(s.ranks(in), dropped)) ||
      !s.narrow_ranks(in, raise(s.ranks(out), dropped))) {
    return fail();
  }
  const auto rank_of_out = s.rank(out);
  if (rank_of_out && !s.rank(in) && !s.set_rank(in, static_cast<size_t>(*rank_of_out) + dropped)) {
    return fail();
  }
  if (axes.empty()) return s.unify_shapes(in, out) ? Outcome::kDone : fail();
  auto dims = reached_dims(s, in, reach);
  if (!dims) return s.failed() ? axis_conflict(s, p, value, in_cell) : Outcome::kWait;
  for (DimList* side : {&dims->prefix, &dims->suffix}) {
    SmallVector<uint8_t, 16> reduced(side->size(), 0);
    const auto size = static_cast<int64_t>(side->size());
    for (const int64_t axis : axes) {
      const bool is_here =
          dims->fixed() ? side == &dims->prefix : (axis < 0) == (side == &dims->suffix);
      if (!is_here) continue;
      const int64_t at = axis < 0 ? axis + size : axis;
      if (at < 0 || at >= size) return axis_conflict(s, p, value, in_cell);
      reduced[static_cast<size_t>(at)] = 1;
    }
    DimList kept;
    for (size_t i = 0; i < side->size(); ++i) {
      if (!reduced[i]) {
        kept.push_back((*side)[i]);
      } else if (mode == Mode::kKeep) {
        kept.push_back(s.new_dim(1));
      } else if (mode == Mode::kDropOnes && !s.assign((*side)[i], 1)) {
        s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                                   "size of a squeezed axis must be 1, got axis: {} for {}",
                                   print_axes(value), s.describe(p.rule, in_cell)));
        return Outcome::kConflict;
      }
    }
    *side = kept;
  }
  return s.constrain(out, *dims) && !s.failed() ? Outcome::kDone : fail();
}

/// The ranks tell whether reduced axes are kept.
Outcome decide_keepdim(Store& s, const Propagator& p) {
  const auto axis = s.known_value(s.arg(p, 2));
  const auto before = s.rank(s.shape(s.arg(p, 1))), after = s.rank(s.shape(s.arg(p, 0)));
  if (!axis || !before || !after || *before == 0) return Outcome::kWait;
  const auto axes = ints_of(*axis);
  if (axes && axes->empty()) return Outcome::kWait;
  const bool ok = s.set_value(s.arg(p, 3), HostValue(*before == *after));
  return ok ? Outcome::kWait : Outcome::kConflict;
}

Outcome run_reduce(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0), in = s.arg(p, 1);
  const auto keep = s.known_value(s.arg(p, 3));
  if (!keep || !keep->is_bool()) return decide_keepdim(s, p);
  const auto axis = s.known_value(s.arg(p, 2));
  const uint32_t a = s.shape(in), b = s.shape(out);
  if (keep->as_bool() && (!s.narrow_ranks(a, s.ranks(b)) || !s.narrow_ranks(b, s.ranks(a)))) {
    return shape_conflict(s, p, axis ? *axis : HostValue(), in, out);
  }
  if (keep->as_bool()) {
    const auto before = s.rank(a), after = s.rank(b);  // masks tell ranks up to 12 only
    if ((before && !s.set_rank(b, static_cast<size_t>(*before))) ||
        (after && !s.set_rank(a, static_cast<size_t>(*after)))) {
      return shape_conflict(s, p, axis ? *axis : HostValue(), in, out);
    }
  }
  if (!axis) return Outcome::kWait;
  if (axis->is_none()) {
    if (!keep->as_bool()) {
      if (s.narrow_ranks(b, rank_bit(0)) && !s.failed()) return Outcome::kDone;
      return shape_conflict(s, p, *axis, in, out);
    }
    if (!s.rank(b)) return Outcome::kWait;
    for (const uint32_t d : s.fixed_dims(b)) {
      if (!s.assign(d, 1)) return shape_conflict(s, p, *axis, in, out);
    }
    return Outcome::kDone;
  }
  const auto axes = ints_of(*axis);
  if (!axes) {
    return s.conflict(core::Code::kValueArgument, "axis must be none, an int or ints, got {}",
                      core::to_string(*axis));
  }
  return map_axes(s, p, in, out, *axis, *axes, keep->as_bool() ? Mode::kKeep : Mode::kDrop);
}

Outcome run_squeeze(Store& s, const Propagator& p) {
  const uint32_t out_cell = s.arg(p, 0), in_cell = s.arg(p, 1);
  HostValue axis;
  if (p.count > 2) {
    const auto known = s.known_value(s.arg(p, 2));
    if (!known) return Outcome::kWait;
    axis = *known;
  }
  if (!axis.is_none()) {
    const auto axes = ints_of(axis);
    if (!axes)
      return s.conflict(core::Code::kValueArgument, "axis must be ints, got {}",
                        core::to_string(axis));
    return map_axes(s, p, in_cell, out_cell, axis, *axes, Mode::kDropOnes);
  }
  const uint32_t in = s.shape(in_cell), out = s.shape(out_cell);
  const auto fail = [&] { return shape_conflict(s, p, axis, in_cell, out_cell); };
  if (!s.narrow_ranks(out, ranks_to(static_cast<size_t>(most_rank(s.ranks(in))))) ||
      !s.narrow_ranks(in, ranks_from(static_cast<size_t>(least_rank(s.ranks(out)))))) {
    return fail();
  }
  if (!s.rank(in)) return Outcome::kWait;
  Dims kept;
  DimList open;  // may be 1
  for (const uint32_t d : s.fixed_dims(in)) {
    if (s.size(d) == 1) continue;
    if (s.may_be(d, 1)) {
      open.push_back(d);
      kept.suffix.clear();
    } else if (open.empty()) {
      kept.prefix.push_back(d);
    } else {
      kept.suffix.push_back(d);
    }
  }
  if (open.empty()) return s.constrain(out, kept) && !s.failed() ? Outcome::kDone : fail();
  size_t certain = 0;
  for (const uint32_t d : s.fixed_dims(in)) certain += !s.may_be(d, 1);
  if (!s.narrow_ranks(out, ranks_from(certain) & ranks_to(certain + open.size()))) return fail();
  const auto rank = s.rank(out);
  if (rank && static_cast<size_t>(*rank) == certain) {
    for (const uint32_t d : open) {
      if (!s.assign(d, 1)) return fail();
    }
    return Outcome::kWait;
  }
  if (rank && static_cast<size_t>(*rank) == certain + open.size()) {
    Dims all;
    for (const uint32_t d : s.fixed_dims(in)) {
      if (s.size(d) != 1) all.prefix.push_back(d);
    }
    return s.constrain(out, all) && !s.failed() ? Outcome::kWait : fail();
  }
  for (size_t i = 0; i < kept.prefix.size(); ++i) {
    const uint32_t d = s.dim_from_left(out, i, true);
    if (d != kNone && !s.unify_dims(d, kept.prefix[i])) return fail();
  }
  for (size_t i = 0; i < kept.suffix.size(); ++i) {
    const uint32_t d = s.dim_from_right(out, i, true);
    if (d != kNone && !s.unify_dims(d, kept.suffix[kept.suffix.size() - 1 - i])) return fail();
  }
  return s.failed() ? fail() : Outcome::kWait;
}

}  // namespace

void RuleBuilder::reduce(Term out, Term in, Term axis, Term keepdim) {
  kind(in, kTensor);
  kind(out, kTensor);
  kind(keepdim, kScalarBool);
  store_->post(rule_.index, run_reduce,
               {out.cell.index, in.cell.index, axis.cell.index, keepdim.cell.index});
}

void RuleBuilder::squeeze(Term out, Term in) {
  kind(in, kTensor);
  kind(out, kTensor);
  store_->post(rule_.index, run_squeeze, {out.cell.index, in.cell.index});
}

void RuleBuilder::squeeze(Term out, Term in, Term axis) {
  kind(in, kTensor);
  kind(out, kTensor);
  store_->post(rule_.index, run_squeeze, {out.cell.index, in.cell.index, axis.cell.index});
}

void RuleBuilder::expand_dims(Term out, Term in, Term axis) {
  kind(in, kTensor);
  kind(out, kTensor);
  store_->post(rule_.index, run_squeeze, {in.cell.index, out.cell.index, axis.cell.index});
}

}  // namespace mithril::infer
