// Facts that users state of a wire beyond its kinds: what containers hold, which numbers it takes.
#include "infer/type.h"

#include <cmath>

#include "core/checked.h"
#include "core/tensor_data.h"
#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

using core::HostValue;

/// Tells whether an item may still turn out to be of that type, as far as is known.
bool may_be(Store& s, uint32_t cell, const Type& type) {
  if (!s.kinds(cell).meets(type.kinds)) return false;
  const Type* stated = s.type(cell);
  if (stated != nullptr) return !intersect(*stated, type).kinds.empty();
  if (type.is_plain() || !s.kinds(cell).subset_of(kSequence)) return true;
  const auto items = s.items(cell);
  if (!items) return true;
  bool restricted = false;
  for (const Container& c : type.containers) {
    if (!s.kinds(cell).meets(c.kind())) continue;
    restricted = true;
    bool fits = c.fits_length(items->size());
    for (size_t i = 0; fits && i < items->size(); ++i) fits = may_be(s, (*items)[i], c.item(i));
    if (fits) return true;
  }
  return !restricted;
}

Outcome type_conflict(Store& s, uint32_t cell, const Type& type) {
  s.conflict(core::Code::kDTypeConflict, "expected {}, got {}", to_string(type),
             s.has_value(cell) ? s.print_value(cell) : to_string(s.kinds(cell)));
  s.blame({cell});
  return Outcome::kConflict;
}

Outcome run_type(Store& s, const Propagator& p) {
  const uint32_t cell = s.arg(p, 0);
  const Type type = *s.type(cell);  // a copy: narrowing items may state types
  const KindSet kinds = s.kinds(cell);
  if (!kinds.meets(kSequence)) return Outcome::kDone;
  if (kinds != kTupleKind && kinds != kListKind) return Outcome::kWait;
  std::vector<const Container*> open;
  for (const Container& c : type.containers) {
    if (c.kind() == kinds) open.push_back(&c);
  }
  if (open.empty()) return Outcome::kDone;
  auto items = s.items(cell);
  if (!items) {
    if (open.size() > 1 || open[0]->any_length) return Outcome::kWait;
    DimList made;
    for (const Type& item : open[0]->items) made.push_back(s.new_cell(item.kinds));
    if (!s.set_items(cell, made, open[0]->is_list)) return Outcome::kConflict;
    items = s.items(cell);
  }
  std::erase_if(open, [&](const Container* c) {
    if (!c->fits_length(items->size())) return true;
    for (size_t i = 0; i < items->size(); ++i) {
      if (!may_be(s, (*items)[i], c->item(i))) return true;
    }
    return false;
  });
  if (open.empty()) return type_conflict(s, cell, type);
  for (size_t i = 0; i < items->size(); ++i) {
    KindSet any;
    for (const Container* c : open) any = any | c->item(i).kinds;
    const bool ok = open.size() == 1 ? s.narrow_type((*items)[i], open[0]->item(i))
                                     : s.narrow((*items)[i], any);
    if (!ok) return Outcome::kConflict;
  }
  return open.size() == 1 ? Outcome::kDone : Outcome::kWait;
}

/// The bound as an integer that bounds integers; the extreme where there is none.
int64_t int_bound(const HostValue& bound, bool low) {
  if (bound.is_none()) return low ? INT64_MIN : INT64_MAX;
  if (bound.is_int()) return bound.as_int();
  const double whole = low ? std::ceil(bound.as_number()) : std::floor(bound.as_number());
  if (whole <= -9.2e18) return INT64_MIN;
  return whole >= 9.2e18 ? INT64_MAX : static_cast<int64_t>(whole);
}

Outcome run_interval(Store& s, const Propagator& p) {
  const auto& interval = s.extra<Interval>(p);
  const uint32_t cell = s.arg(p, 0);
  const auto outside = [&](const std::string& got) {
    s.replace_error(core::fail(core::ErrorKind::kValue, core::Code::kValueConflict,
                               "expected a number in {}, got {}", to_string(interval), got));
    s.refuse({"", "in " + to_string(interval), got});
    s.blame({cell});
    return Outcome::kConflict;
  };
  if (s.kinds(cell) == kScalarInt) {
    const Bounds bounds{int_bound(interval.low, true), int_bound(interval.high, false)};
    const uint32_t dim = s.int_dim(cell);
    const std::string known = s.limits(dim);
    const std::string got = known.empty() ? s.print_dim(dim) : "one " + known;
    return s.narrow_bounds(dim, bounds) ? Outcome::kDone : outside(got);
  }
  const auto value = s.known_value(cell);
  if (!value) return Outcome::kWait;
  if (value->is_double() && !contains(interval, *value)) return outside(core::to_string(*value));
  if (value->is_tensor()) {
    const core::TensorData& data = *value->as_tensor();
    const auto count = static_cast<size_t>(core::element_count(data.shape).value_or(0));
    for (size_t i = 0; i < count && core::kind(data.dtype) != core::Kind::kBool; ++i) {
      const HostValue number = core::element(data, i);
      if (!contains(interval, number)) return outside(core::to_string(number));
    }
  }
  return Outcome::kDone;
}

}  // namespace

const Type* Store::type(uint32_t cell) const {
  const uint32_t id = cells_[cell_root(cell)].type;
  return id == kNone ? nullptr : types_[id].get();
}

bool Store::narrow_type(uint32_t cell, const Type& type) {
  if (!narrow(cell, type.kinds)) return false;
  const Type* stated = this->type(cell);
  if (type.is_plain() && stated == nullptr) return true;
  Type both = stated == nullptr ? type : intersect(*stated, type);
  if (both.kinds.empty()) {
    conflict(core::Code::kDTypeConflict, "expected {}, got {}", to_string(type),
             to_string(*stated));
    blame({cell});
    return false;
  }
  if (stated != nullptr && both == *stated) return narrow(cell, both.kinds);
  types_.push_back(std::make_shared<const Type>(std::move(both)));
  const uint32_t root = cell_root(cell);
  CellRecord& record = edit_cell(root);
  record.type = static_cast<uint32_t>(types_.size() - 1);
  record_event(Entity::kCell, root, record.event);
  wake(record.watch, record.watch_end, kAllEvents);
  if (!narrow(cell, types_.back()->kinds)) return false;
  post(kNone, run_type, {cell});
  return true;
}

bool Store::narrow_interval(uint32_t cell, const Interval& interval) {
  if (!narrow(cell, kTensor | kScalarInt | kScalarFloat)) return false;
  const uint32_t extra = add_extra<const Interval>(std::make_shared<Interval>(interval));
  // A relation with the statement as its reason: what follows from it says who bounds it.
  post(new_rule("", {}, asserting_), run_interval, {cell}, false, 0, extra);
  return true;
}

}  // namespace mithril::infer
