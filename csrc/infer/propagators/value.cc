// Host values: folding, integer operations, tuples, slices, and relations that wait for a value.
#include "infer/propagators/relations.h"

namespace mithril::infer {

using core::HostValue;

std::optional<SmallVector<int64_t, 8>> ints_of(const HostValue& value) {
  SmallVector<int64_t, 8> out;
  if (value.is_int()) {
    out.push_back(value.as_int());
    return out;
  }
  if (!value.is_sequence()) return std::nullopt;
  for (const HostValue& item : value.items()) {
    if (!item.is_int()) return std::nullopt;
    out.push_back(item.as_int());
  }
  return out;
}

std::optional<int> normal_axis(Store& s, const Propagator& p, std::string_view what, int64_t axis,
                               int rank, uint32_t cell) {
  if (axis >= -rank && axis < rank) return static_cast<int>(axis < 0 ? axis + rank : axis);
  s.replace_error(core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                             "{} must be in [{}, {}), got {} for {}", what, -rank, rank, axis,
                             s.describe(p.rule, cell)));
  return std::nullopt;
}

namespace {

Outcome run_fold(Store& s, const Propagator& p) {
  std::vector<HostValue> values;
  for (uint32_t i = 1; i < p.count; ++i) {
    const KindSet kinds = s.kinds(s.arg(p, i));
    if (kinds.is_tensor()) return Outcome::kDone;
    if (!s.has_value(s.arg(p, i)) && kinds != kNoneKind) return Outcome::kWait;
  }
  for (uint32_t i = 1; i < p.count; ++i) {
    auto value = s.known_value(s.arg(p, i));
    if (!value) return Outcome::kWait;
    values.push_back(std::move(*value));
  }
  const auto fn = reinterpret_cast<FoldFn>(p.data);
  const auto result = fn(values);
  if (!result) return Outcome::kDone;
  return s.set_value(s.arg(p, 0), *result) ? Outcome::kDone : Outcome::kConflict;
}

Outcome run_int_op(Store& s, const Propagator& p) {
  const uint32_t cells[] = {s.arg(p, 0), s.arg(p, 1), s.arg(p, 2)};
  for (const uint32_t cell : cells) {
    if (!s.kinds(cell).meets(kScalarInt)) return Outcome::kDone;
  }
  for (const uint32_t cell : cells) {
    if (s.kinds(cell) != kScalarInt) return Outcome::kWait;
  }
  const uint32_t z = s.int_dim(cells[0]), x = s.int_dim(cells[1]), y = s.int_dim(cells[2]);
  post_arithmetic(s, p.rule, z, x, y, static_cast<IntOp>(p.data));
  return s.failed() ? Outcome::kConflict : Outcome::kDone;
}

Outcome run_item(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0), sequence = s.arg(p, 1), index = s.arg(p, 2);
  const auto at = s.known_value(index);
  if (!at || !at->is_int()) return Outcome::kWait;
  const auto items = s.items(sequence);
  if (!items) return Outcome::kWait;
  const auto n = static_cast<int64_t>(items->size());
  if (at->as_int() < -n || at->as_int() >= n) {
    return s.conflict(core::Code::kValueArgument, "index must be in [{}, {}), got {}", -n, n,
                      at->as_int());
  }
  const int64_t position = at->as_int() < 0 ? at->as_int() + n : at->as_int();
  const bool ok = s.unify_cells(out, (*items)[static_cast<size_t>(position)]);
  return ok && !s.failed() ? Outcome::kDone : Outcome::kConflict;
}

Outcome run_slice(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0);
  if (const auto value = s.value(out); value && value->is_slice()) {
    const core::Slice& slice = value->as_slice();
    const bool ok = s.set_value(s.arg(p, 1), slice.start) && s.set_value(s.arg(p, 2), slice.stop) &&
                    s.set_value(s.arg(p, 3), slice.step);
    return ok ? Outcome::kDone : Outcome::kConflict;
  }
  const auto start = s.value(s.arg(p, 1)), stop = s.value(s.arg(p, 2)), step = s.value(s.arg(p, 3));
  if (!start || !stop || !step) return Outcome::kWait;
  const bool ok = s.set_value(out, HostValue(core::Slice{*start, *stop, *step}));
  return ok ? Outcome::kDone : Outcome::kConflict;
}

struct WhenKnown {
  std::function<void(RuleBuilder&, std::span<const HostValue>)> then;
};

Outcome run_when_known(Store& s, const Propagator& p) {
  std::vector<HostValue> values;
  for (uint32_t i = 0; i < p.count; ++i) {
    auto value = s.known_value(s.arg(p, i));
    if (!value) return Outcome::kWait;
    values.push_back(std::move(*value));
  }
  // Copied: stating relations may move the array that holds it.
  const auto then = s.extra<WhenKnown>(p).then;
  RuleBuilder builder(s, RuleId{p.rule});
  then(builder, values);
  return s.failed() ? Outcome::kConflict : Outcome::kDone;
}

struct WhenRank {
  std::function<void(RuleBuilder&, int)> then;
};

Outcome run_when_rank(Store& s, const Propagator& p) {
  const uint32_t shape = s.shape_if_any(s.arg(p, 0));
  if (shape == kNone || !s.rank(shape)) return Outcome::kWait;
  const auto then = s.extra<WhenRank>(p).then;
  const int rank = *s.rank(shape);
  RuleBuilder builder(s, RuleId{p.rule});
  then(builder, rank);
  return s.failed() ? Outcome::kConflict : Outcome::kDone;
}

}  // namespace

void RuleBuilder::fold(Term out, Terms inputs, FoldFn fn) {
  DimList args = {out.cell.index};
  for (const Term& input : inputs) args.push_back(input.cell.index);
  store_->post(rule_.index, run_fold, args, false, reinterpret_cast<int64_t>(fn));
}

void RuleBuilder::int_op(Term out, Term left, Term right, IntOp op) {
  store_->post(rule_.index, run_int_op, {out.cell.index, left.cell.index, right.cell.index}, false,
               static_cast<int64_t>(op));
}

void RuleBuilder::item(Term out, Term sequence, Term index) {
  store_->post(rule_.index, run_item, {out.cell.index, sequence.cell.index, index.cell.index});
}

void RuleBuilder::slice(Term out, Term start, Term stop, Term step) {
  kind(out, kSliceKind);
  for (const Term& part : {start, stop, step}) kind(part, kScalarInt | kNoneKind);
  store_->post(rule_.index, run_slice,
               {out.cell.index, start.cell.index, stop.cell.index, step.cell.index});
}

void RuleBuilder::when_known(Term term, Then then) {
  when_known({term}, [then = std::move(then)](RuleBuilder& b, std::span<const HostValue> values) {
    then(b, values[0]);
  });
}

void RuleBuilder::when_known(std::initializer_list<Term> terms,
                             std::function<void(RuleBuilder&, std::span<const HostValue>)> then) {
  std::vector<HostValue> values;
  DimList args;
  for (const Term& term : terms) {
    args.push_back(term.cell.index);
    auto value = store_->known_value(term.cell.index);
    if (value) values.push_back(std::move(*value));
  }
  if (values.size() == args.size()) {
    then(*this, values);
    return;
  }
  const uint32_t extra =
      store_->add_extra<const WhenKnown>(std::make_shared<WhenKnown>(WhenKnown{std::move(then)}));
  store_->post(rule_.index, run_when_known, args, false, 0, extra);
}

void RuleBuilder::when_rank_known(Term term, std::function<void(RuleBuilder&, int)> then) {
  kind(term, kTensor);
  const uint32_t extra =
      store_->add_extra<const WhenRank>(std::make_shared<WhenRank>(WhenRank{std::move(then)}));
  store_->post(rule_.index, run_when_rank, {term.cell.index}, false, 0, extra);
}

}  // namespace mithril::infer
