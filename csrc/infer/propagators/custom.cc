// Relations that op blocks write themselves.
#include "infer/propagators/relations.h"
#include "infer/relation.h"

namespace mithril::infer {

uint32_t Relation::cell(int term) const { return s_.arg(p_, static_cast<uint32_t>(term)); }
int Relation::count() const { return p_.count; }
int64_t Relation::data() const { return p_.data; }
KindSet Relation::kinds(int term) const { return s_.kinds(cell(term)); }

core::Status Relation::outcome(bool ok, int term) const {
  if (ok && !s_.failed()) return {};
  return core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                    "facts are in conflict, got {}", s_.describe(p_.rule, cell(term)));
}

core::Status Relation::narrow(int term, KindSet kinds) {
  return outcome(s_.narrow(cell(term), kinds), term);
}

std::optional<int> Relation::rank(int term) const {
  const uint32_t shape = s_.shape_if_any(cell(term));
  return shape == kNone ? std::nullopt : s_.rank(shape);
}

core::Status Relation::set_rank(int term, int rank) {
  return outcome(s_.set_rank(s_.shape(cell(term)), static_cast<size_t>(rank)), term);
}

std::optional<int64_t> Relation::size(int term, int axis) const {
  const auto r = rank(term);
  if (!r || axis < 0 || axis >= *r) return std::nullopt;
  return s_.size(s_.fixed_dims(s_.shape(cell(term)))[static_cast<size_t>(axis)]);
}

core::Status Relation::set_size(int term, int axis, int64_t size) {
  const auto r = rank(term);
  MITHRIL_CHECK(r && axis >= 0 && axis < *r, "set_size: no such axis");
  return outcome(s_.assign(s_.fixed_dims(s_.shape(cell(term)))[static_cast<size_t>(axis)], size),
                 term);
}

core::Status Relation::tie(int term_a, int axis_a, int term_b, int axis_b) {
  const DimList a = s_.fixed_dims(s_.shape(cell(term_a)));
  const DimList b = s_.fixed_dims(s_.shape(cell(term_b)));
  return outcome(s_.unify_dims(a[static_cast<size_t>(axis_a)], b[static_cast<size_t>(axis_b)]),
                 term_a);
}

std::optional<core::HostValue> Relation::value(int term) const {
  return s_.known_value(cell(term));
}

core::Status Relation::set_value(int term, const core::HostValue& value) {
  return outcome(s_.set_value(cell(term), value), term);
}

core::Status Relation::join() {
  DimList joined;
  for (int term = 1; term < count(); ++term) {
    if (kinds(term).is_scalar()) {
      joined.push_back(cell(term));
      continue;
    }
    const auto items = kinds(term).subset_of(kSequence) ? s_.items(cell(term)) : std::nullopt;
    if (!items) return {};
    for (const uint32_t item : *items) joined.push_back(item);
  }
  finish();
  return outcome(s_.set_items(cell(0), joined, false), 0);
}

namespace {

struct Custom {
  RelationFunction fn;
};

Outcome run_custom(Store& s, const Propagator& p) {
  Relation relation(s, p);
  core::Status status = s.extra<Custom>(p).fn(relation);
  if (!status.ok()) return s.conflict(status.take());
  if (s.failed()) return Outcome::kConflict;
  return relation.finished() ? Outcome::kDone : Outcome::kWait;
}

}  // namespace

void RuleBuilder::custom(std::initializer_list<Term> terms, RelationFn fn, int64_t data) {
  custom(Terms(terms.begin(), terms.size()), RelationFunction(fn), data);
}

void RuleBuilder::custom(Terms terms, RelationFunction fn, int64_t data) {
  DimList args;
  for (const Term& term : terms) args.push_back(term.cell.index);
  const uint32_t extra =
      store_->add_extra<const Custom>(std::make_shared<Custom>(Custom{std::move(fn)}));
  store_->post(rule_.index, run_custom, args, false, data, extra);
}

}  // namespace mithril::infer
