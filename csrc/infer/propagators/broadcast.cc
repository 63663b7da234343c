// NumPy's broadcasting rule over any number of shapes, and products of matrices.
#include <algorithm>

#include "infer/propagators/relations.h"

namespace mithril::infer {

bool broadcast_dims(Store& s, uint32_t out, std::span<const uint32_t> operands) {
  DimList open;  // operands that are not 1 for sure
  std::optional<int64_t> size = s.size(out);
  if (size == 1) {
    for (const uint32_t d : operands) {
      if (!s.assign(d, 1)) return false;
    }
    return true;
  }
  uint32_t decisive = kNone;  // an operand that cannot be 1: the result is its size
  for (const uint32_t d : operands) {
    const auto known = s.size(d);
    if (known == 1) continue;
    if (known && size && *known != *size) {
      s.conflict(core::Code::kShapeBroadcast, "");
      return false;
    }
    if (known) size = known;
    if (!s.may_be(d, 1) && (decisive == kNone || known)) decisive = d;
    open.push_back(d);
  }
  if (open.empty()) return s.assign(out, 1);
  if (size && !s.assign(out, *size)) return false;
  bool all_same = true;
  for (const uint32_t d : open) all_same = all_same && s.same_dim(d, open[0]);
  if (all_same) {
    for (const uint32_t d : open) {
      if (!s.unify_dims(out, d)) return false;
    }
    return true;
  }
  if (s.forward()) {
    Dim result(1);
    for (const uint32_t d : open) {
      const auto e = s.expression(d);
      if (!e) return true;
      result = s.table().broadcast(result, *e);
    }
    return s.define(out, result);
  }
  if (decisive != kNone && !s.unify_dims(out, decisive)) return false;
  size = s.size(out);
  if (!size) return true;
  for (const uint32_t d : open) {
    Possible values;
    values.count = 2;
    values.values[0] = 1;
    values.values[1] = *size;
    if (!s.narrow_values(d, values)) return false;
  }
  return true;
}

namespace {

/// A dim of an operand at a place from the right.
enum class Place { kAbsent, kShown, kUnknown };

Place place(Store& s, uint32_t shape, size_t at, uint32_t& dim) {
  const RankMask ranks = s.ranks(shape);
  if (most_rank(ranks) <= static_cast<int>(at) && most_rank(ranks) != kManyRanks) {
    return Place::kAbsent;
  }
  dim = s.dim_from_right(shape, at, false);
  if (dim == kNone) return Place::kUnknown;
  return Place::kShown;
}

/// True when operand `small` cannot change the shape of `large` (places from `skip` on).
bool is_absorbed(Store& s, uint32_t small, uint32_t large, size_t skip) {
  if (small == large) return true;
  const auto rank = s.rank(small);
  if (!rank || *rank > least_rank(s.ranks(large))) return false;
  for (size_t at = skip; at < static_cast<size_t>(*rank); ++at) {
    const uint32_t x = s.dim_from_right(small, at, false);
    if (s.size(x) == 1) continue;
    const uint32_t y = s.dim_from_right(large, at, true);
    if (y == kNone || (!s.same_dim(x, y) && s.may_be(y, 1))) return false;
  }
  return true;
}

bool narrow_broadcast_ranks(Store& s, uint32_t out, std::span<const uint32_t> in) {
  int least = 0, most = 0;
  for (const uint32_t shape : in) {
    least = std::max(least, least_rank(s.ranks(shape)));
    most = std::max(most, most_rank(s.ranks(shape)));
  }
  if (!s.narrow_ranks(
          out, ranks_from(static_cast<size_t>(least)) & ranks_to(static_cast<size_t>(most)))) {
    return false;
  }
  const RankMask ranks = s.ranks(out);
  for (size_t i = 0; i < in.size(); ++i) {
    if (!s.narrow_ranks(in[i], ranks_to(static_cast<size_t>(most_rank(ranks))))) return false;
    int others = 0;
    for (size_t j = 0; j < in.size(); ++j) {
      if (j != i) others = std::max(others, most_rank(s.ranks(in[j])));
    }
    // Nobody else can give the result its rank.
    if (others < least_rank(ranks) &&
        !s.narrow_ranks(in[i], ranks_from(static_cast<size_t>(least_rank(ranks))))) {
      return false;
    }
  }
  return true;
}

/// Tells how many places from the right are shown by an operand or by the result.
int shown_places(Store& s, uint32_t out, std::span<const uint32_t> in) {
  const auto least = [&s](uint32_t shape) {
    const auto rank = s.rank(shape);
    return rank ? *rank : least_rank(s.ranks(shape));
  };
  int places = least(out);
  for (const uint32_t shape : in) {
    places = std::max(places, least(shape));
    for (int i = 0; i < s.view_count(shape); ++i) {
      places = std::max(places, static_cast<int>(s.view(shape, i).suffix.size()));
    }
  }
  return places;
}

/// Holds what the operands show at one place from the right.
struct PlaceView {
  DimList shown;
  size_t unknown = 0;
  uint32_t missing = kNone;  // an operand whose dim here is not shown
};

PlaceView view_place(Store& s, std::span<const uint32_t> in, size_t at) {
  PlaceView view;
  for (const uint32_t shape : in) {
    uint32_t dim = kNone;
    switch (place(s, shape, at, dim)) {
      case Place::kAbsent: break;
      case Place::kShown: view.shown.push_back(dim); break;
      case Place::kUnknown:
        ++view.unknown;
        view.missing = shape;
        break;
    }
  }
  return view;
}

/// A place that every operand shows or lacks: kDone when nothing can change there any more.
Outcome broadcast_shown(Store& s, uint32_t out, size_t at, std::span<const uint32_t> shown) {
  const uint32_t result = s.dim_from_right(out, at, true);
  if (result == kNone) return Outcome::kWait;
  if (!broadcast_dims(s, result, shown)) return Outcome::kConflict;
  bool complete = true;
  for (const uint32_t d : shown) complete = complete && (s.is_known(d) || s.same_class(d, result));
  return complete ? Outcome::kDone : Outcome::kWait;
}

/// Every operand's dim is 1 or `size`.
bool narrow_to_one_or(Store& s, std::span<const uint32_t> shown, int64_t size) {
  Possible values;
  values.count = 2;
  values.values[0] = 1;
  values.values[1] = size;
  for (const uint32_t d : shown) {
    if (!s.narrow_values(d, values)) return false;
  }
  return true;
}

/// The one operand that is not shown at a place has to give the result its size there.
bool extend_missing(Store& s, uint32_t missing, size_t at, uint32_t result) {
  if (!s.narrow_ranks(missing, ranks_from(at + 1))) return false;
  const uint32_t dim = s.dim_from_right(missing, at, true);
  return dim == kNone || s.unify_dims(dim, result);
}

/// A place that some operand does not show: what the others decide. False: a conflict.
bool broadcast_partly(Store& s, uint32_t out, size_t at, const PlaceView& view) {
  uint32_t decisive = kNone;
  bool rest_ones = true;
  for (const uint32_t d : view.shown) {
    rest_ones = rest_ones && s.size(d) == 1;
    if (!s.may_be(d, 1)) decisive = d;
  }
  uint32_t result = s.dim_from_right(out, at, decisive != kNone);
  if (result == kNone) return true;
  if (decisive != kNone && !s.unify_dims(result, decisive)) return false;
  const auto size = s.size(result);
  if (size == 1) {
    for (const uint32_t d : view.shown) {
      if (!s.assign(d, 1)) return false;
    }
    return true;
  }
  if (s.may_be(result, 1)) return true;
  if (size && !narrow_to_one_or(s, view.shown, *size)) return false;
  return view.unknown != 1 || !rest_ones || extend_missing(s, view.missing, at, result);
}

/// An operand that every other one is absorbed by has the result's shape (but for `tail`).
bool take_absorbing(Store& s, uint32_t out, std::span<const uint32_t> in, size_t skip,
                    std::span<const uint32_t> tail) {
  const auto absorbs = [&](uint32_t large) {
    return std::all_of(in.begin(), in.end(),
                       [&](uint32_t small) { return is_absorbed(s, small, large, skip); });
  };
  const auto large = std::find_if(in.begin(), in.end(), absorbs);
  if (large == in.end()) return true;
  if (skip == 0) return s.unify_shapes(out, *large);
  Dims dims = s.view(*large);
  DimList& last = dims.fixed() ? dims.prefix : dims.suffix;
  if (last.size() < skip) return true;
  for (size_t i = 0; i < skip; ++i) last[last.size() - skip + i] = tail[i];
  return s.constrain(out, dims);
}

/// Broadcasts the dims left of the last `skip` ones; `tail` are the last dims of the result.
/// kDone when nothing can change any more.
Outcome broadcast_shapes(Store& s, uint32_t out, std::span<const uint32_t> in, size_t skip,
                         std::span<const uint32_t> tail) {
  if (!narrow_broadcast_ranks(s, out, in)) return Outcome::kConflict;
  bool complete = s.rank(out).has_value();
  for (const uint32_t shape : in) complete = complete && s.rank(shape).has_value();
  const auto places = static_cast<size_t>(shown_places(s, out, in));
  for (size_t at = skip; at < places; ++at) {
    const PlaceView view = view_place(s, in, at);
    if (view.unknown == 0) {
      const Outcome outcome = broadcast_shown(s, out, at, view.shown);
      if (outcome == Outcome::kConflict) return outcome;
      complete = complete && outcome == Outcome::kDone;
    } else {
      complete = false;
      if (!broadcast_partly(s, out, at, view)) return Outcome::kConflict;
    }
  }
  if (!take_absorbing(s, out, in, skip, tail)) return Outcome::kConflict;
  return complete ? Outcome::kDone : Outcome::kWait;
}

std::string describe_all(Store& s, const Propagator& p, bool with_output) {
  std::string out;
  for (uint32_t i = 1; i <= p.count; ++i) {
    if (i == p.count && !with_output) break;
    const uint32_t cell = s.arg(p, i == p.count ? 0 : i);
    if (s.kinds(cell).is_scalar()) continue;
    if (!out.empty()) out += i + (with_output ? 0 : 1) == p.count ? " and " : ", ";
    out += s.describe(p.rule, cell);
  }
  return out;
}

bool operands_clash(Store& s, const Propagator& p) {
  size_t places = 0;
  DimList shapes;
  for (uint32_t i = 1; i < p.count; ++i) {
    const uint32_t shape = s.shape_if_any(s.arg(p, i));
    if (shape == kNone || !s.rank(shape)) continue;
    shapes.push_back(shape);
    places = std::max(places, static_cast<size_t>(*s.rank(shape)));
  }
  for (size_t at = 0; at < places; ++at) {
    std::optional<int64_t> size;
    for (const uint32_t shape : shapes) {
      const uint32_t dim = s.dim_from_right(shape, at, false);
      const auto known = dim == kNone ? std::nullopt : s.size(dim);
      if (!known || *known == 1) continue;
      if (size && *size != *known) return true;
      size = known;
    }
  }
  return false;
}

Outcome run_broadcast(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0);
  const KindSet kinds = s.kinds(out);
  if (!kinds.may_be_tensor()) return Outcome::kDone;
  DimList shapes;
  for (uint32_t i = 1; i < p.count; ++i) {
    const uint32_t cell = s.arg(p, i);
    if (!s.kinds(cell).decided()) return Outcome::kWait;
    if (s.is_tensor(cell)) shapes.push_back(s.shape(cell));
  }
  if (!kinds.is_tensor()) return Outcome::kWait;
  if (shapes.empty()) return Outcome::kDone;
  const uint32_t result = s.shape(out);
  Outcome outcome = Outcome::kDone;
  if (shapes.size() == 1) {
    if (!s.unify_shapes(result, shapes[0])) outcome = Outcome::kConflict;
  } else {
    outcome = broadcast_shapes(s, result, shapes, 0, {});
  }
  if (outcome != Outcome::kConflict && !s.failed()) return outcome;
  s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeBroadcast,
                             "shapes must broadcast, got {}",
                             describe_all(s, p, !operands_clash(s, p))));
  return Outcome::kConflict;
}

// --- matmul -----------------------------------------------------------------------------------

RankMask matmul_ranks(RankMask a, RankMask b) {
  RankMask out = 0;
  const RankMask wide_a = a & ranks_from(2), wide_b = b & ranks_from(2);
  if ((a & rank_bit(1)) && (b & rank_bit(1))) out |= rank_bit(0);
  if (a & rank_bit(1)) out |= lower(wide_b, 1);
  if (b & rank_bit(1)) out |= lower(wide_a, 1);
  if (wide_a && wide_b) {
    const int least = std::max(least_rank(wide_a), least_rank(wide_b));
    const auto both = static_cast<RankMask>(wide_a | wide_b);
    out |= both & ranks_from(static_cast<size_t>(least));
  }
  return out;
}

Outcome matmul_conflict(Store& s, const Propagator& p, core::Code code, const char* requirement) {
  const uint32_t out = s.arg(p, 0), a = s.arg(p, 1), b = s.arg(p, 2);
  std::string got = s.describe(p.rule, a) + " and " + s.describe(p.rule, b);
  if (code == core::Code::kShapeConflict) got += " for " + s.describe(p.rule, out);
  s.replace_error(core::fail(core::ErrorKind::kShape, code, "{}, got {}", requirement, got));
  return Outcome::kConflict;
}

/// The dims of a shape without the one at `drop` places from the right.
bool without(Store& s, uint32_t shape, size_t drop, Dims& out) {
  out = s.view(shape);
  DimList& last = out.fixed() ? out.prefix : out.suffix;
  if (last.size() <= drop) return false;
  last.erase(last.size() - 1 - drop);
  return true;
}

Outcome run_matmul(Store& s, const Propagator& p) {
  const uint32_t out = s.shape(s.arg(p, 0)), a = s.shape(s.arg(p, 1)), b = s.shape(s.arg(p, 2));
  const auto conflict = [&](core::Code code, const char* text) {
    return matmul_conflict(s, p, code, text);
  };
  if (!s.narrow_ranks(a, ranks_from(1)) || !s.narrow_ranks(b, ranks_from(1))) {
    return conflict(core::Code::kShapeRank, "operands must have at least 1 dimension");
  }
  const char* ranks_differ = "numbers of dimensions must agree";
  if (!s.narrow_ranks(out, matmul_ranks(s.ranks(a), s.ranks(b)))) {
    return conflict(core::Code::kShapeConflict, ranks_differ);
  }
  for (int side = 0; side < 2; ++side) {
    const RankMask now = s.ranks(side == 0 ? a : b), other = s.ranks(side == 0 ? b : a);
    RankMask kept = 0;
    for (int r = 1; r <= kManyRanks; ++r) {
      const RankMask bit = rank_bit(static_cast<size_t>(r));
      if ((now & bit) && (matmul_ranks(bit, other) & s.ranks(out))) kept |= bit;
    }
    if (!s.narrow_ranks(side == 0 ? a : b, kept)) {
      return conflict(core::Code::kShapeConflict, ranks_differ);
    }
  }
  const bool vector_a = s.ranks(a) == rank_bit(1), vector_b = s.ranks(b) == rank_bit(1);
  const bool matrix_a = least_rank(s.ranks(a)) >= 2, matrix_b = least_rank(s.ranks(b)) >= 2;
  // a's last dim is the inner one whatever the ranks are; b's is once it is known which.
  const uint32_t inner_a = s.dim_from_right(a, 0, true);
  uint32_t inner_b = kNone;
  if (matrix_b) inner_b = s.dim_from_right(b, 1, true);
  if (vector_b) inner_b = s.dim_from_right(b, 0, true);
  if (inner_b != kNone && (!s.unify_dims(inner_a, inner_b) || s.failed())) {
    return conflict(core::Code::kShapeInner, "inner dimensions must be equal");
  }
  if (!(vector_a || matrix_a) || !(vector_b || matrix_b)) return Outcome::kWait;
  const char* result_differs = "the product must have the output's shape";
  Dims dims;
  if (vector_a || vector_b) {
    bool ok = true;
    if (vector_a && !vector_b) ok = without(s, b, 1, dims);
    if (vector_b && !vector_a) ok = without(s, a, 0, dims);
    if (ok && s.constrain(out, dims) && !s.failed()) return Outcome::kDone;
    return conflict(core::Code::kShapeConflict, result_differs);
  }
  const uint32_t tail[] = {s.dim_from_right(a, 1, true), s.dim_from_right(b, 0, true)};
  const uint32_t last[] = {s.dim_from_right(out, 1, true), s.dim_from_right(out, 0, true)};
  for (int i = 0; i < 2; ++i) {
    if (last[i] == kNone || !s.unify_dims(tail[i], last[i])) {
      return conflict(core::Code::kShapeConflict, result_differs);
    }
  }
  const uint32_t operands[] = {a, b};
  const Outcome outcome = broadcast_shapes(s, out, operands, 2, tail);
  if (outcome == Outcome::kConflict || s.failed()) {
    return conflict(core::Code::kShapeBroadcast, "batch dimensions must broadcast");
  }
  return outcome;
}

Outcome run_broadcast_dims(Store& s, const Propagator& p) {
  DimList operands;
  bool complete = s.is_known(s.arg(p, 0));
  for (uint32_t i = 1; i < p.count; ++i) {
    operands.push_back(s.arg(p, i));
    complete = complete && s.is_known(operands.back());
  }
  if (!broadcast_dims(s, s.arg(p, 0), operands)) {
    s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeBroadcast,
                               "index arrays must broadcast"));
    return Outcome::kConflict;
  }
  return complete ? Outcome::kDone : Outcome::kWait;
}

}  // namespace

void post_broadcast_dims(Store& s, std::span<const uint32_t> args) {
  const uint32_t rule = s.running() == kNone ? kNone : s.rule_of(s.running());
  s.post(rule, run_broadcast_dims, args, true);
}

void RuleBuilder::broadcast(Term out, Terms operands) {
  DimList args = {out.cell.index};
  for (const Term& operand : operands) args.push_back(operand.cell.index);
  store_->post(rule_.index, run_broadcast, args);
}

void RuleBuilder::matmul(Term out, Term a, Term b) {
  for (const Term& t : {a, b, out}) kind(t, kTensor);
  store_->post(rule_.index, run_matmul, {out.cell.index, a.cell.index, b.cell.index});
}

void RuleBuilder::broadcast_to(Term out, Term in, Term shape) {
  kind(in, kTensor);
  shape_from_value(out, shape);
  const Term operands[] = {in, out};
  broadcast(out, operands);
}

void RuleBuilder::elementwise(Term out, Term left, Term right, const ArithTable& table, FoldFn fn,
                              std::optional<IntOp> op) {
  kind(out, kNum);
  kind(left, kNum);
  kind(right, kNum);
  arith_kind(out, left, right, table);
  broadcast(out, {left, right});
  if (store_->kinds(left.cell.index).is_tensor() || store_->kinds(right.cell.index).is_tensor()) {
    return;
  }
  if (op) int_op(out, left, right, *op);
  if (fn != nullptr) fold(out, {left, right}, fn);
}

}  // namespace mithril::infer
