// Shapes: up to four representations of prefix · sequence · suffix, sequences that become bound,
// and sets of possible ranks.
#include <algorithm>

#include "infer/store.h"

namespace mithril::infer {

// --- sequences --------------------------------------------------------------------------------

uint32_t Store::store_repr(const Dims& dims) {
  Repr repr;
  repr.begin = static_cast<uint32_t>(repr_dims_.size());
  repr.prefix = static_cast<uint16_t>(dims.prefix.size());
  repr.suffix = static_cast<uint16_t>(dims.suffix.size());
  repr.seq = dims.seq;
  repr_dims_.insert(repr_dims_.end(), dims.prefix.begin(), dims.prefix.end());
  repr_dims_.insert(repr_dims_.end(), dims.suffix.begin(), dims.suffix.end());
  reprs_.push_back(repr);
  return static_cast<uint32_t>(reprs_.size() - 1);
}

Dims Store::expand(const Repr& repr) const {
  Dims out;
  const uint32_t* dims = repr_dims_.data() + repr.begin;
  out.prefix.append(dims, repr.prefix);
  out.suffix.append(dims + repr.prefix, repr.suffix);
  out.seq = repr.seq;
  if (out.seq == kNone || seqs_[out.seq].bound == kNone) return out;
  SmallVector<uint32_t, 8> inner_suffix;  // from the outside in, each part in its own order
  while (out.seq != kNone && seqs_[out.seq].bound != kNone) {
    const Repr& inner = reprs_[seqs_[out.seq].bound];
    const uint32_t* inner_dims = repr_dims_.data() + inner.begin;
    out.prefix.append(inner_dims, inner.prefix);
    for (uint32_t i = inner.suffix; i-- > 0;) inner_suffix.push_back(inner_dims[inner.prefix + i]);
    out.seq = inner.seq;
  }
  DimList suffix;
  for (size_t i = inner_suffix.size(); i-- > 0;) suffix.push_back(inner_suffix[i]);
  // inner_suffix was gathered reversed, outermost first: innermost parts come first now.
  suffix.append(out.suffix.data(), out.suffix.size());
  out.suffix = suffix;
  if (out.fixed()) {
    out.prefix.append(out.suffix.data(), out.suffix.size());
    out.suffix.clear();
  }
  return out;
}

bool Store::bind_seq(uint32_t seq, const Dims& dims) {
  ++bindings_made_;
  const RankMask mask = seqs_[seq].ranks;
  if (dims.fixed()) {
    if ((mask & rank_bit(dims.count())) == 0) {
      failed_ = true;
      return false;
    }
  } else if (!narrow_seq(dims.seq, lower(mask, dims.count()))) {
    return false;
  }
  const uint32_t repr = store_repr(dims);
  SeqRecord& record = edit_seq(seq);
  if (record.bound != kNone) {  // narrowing the other one bound it: start again
    return unify_reprs(expand(Repr{0, 0, 0, seq}), dims);
  }
  record.bound = repr;
  if (dims.seq != kNone) {
    SeqRecord& rest = edit_seq(dims.seq);
    rest.size += record.size;
    // The same axes under another id: the name that was given first is theirs.
    if (dims.count() == 0) rest.name = std::min(rest.name, record.name);
  }
  record_event(Entity::kSeq, seq, edit_seq(seq).event);
  wake(seqs_[seq].watch, seqs_[seq].watch_end, kFactEvents);
  return true;
}

bool Store::narrow_seq(uint32_t seq, RankMask mask) {
  if (seqs_[seq].bound != kNone) {
    const Dims dims = expand(Repr{0, 0, 0, seq});
    if (dims.fixed()) {
      if ((mask & rank_bit(dims.count())) == 0) failed_ = true;
      return (mask & rank_bit(dims.count())) != 0;
    }
    return narrow_seq(dims.seq, lower(mask, dims.count()));
  }
  const auto narrowed = static_cast<RankMask>(mask & seqs_[seq].ranks);
  if (narrowed == 0) {
    failed_ = true;
    return false;
  }
  if (narrowed == seqs_[seq].ranks) return true;
  SeqRecord& record = edit_seq(seq);
  record.ranks = narrowed;
  record_event(Entity::kSeq, seq, record.event);
  wake(record.watch, record.watch_end, kFactEvents);
  if (!is_one_rank(narrowed)) return true;
  Dims fresh;
  for (int i = 0; i < least_rank(narrowed); ++i) fresh.prefix.push_back(new_dim());
  return bind_seq(seq, fresh);
}

bool Store::unify_reprs(Dims a, Dims b) {
  if (!a.fixed() && b.fixed()) std::swap(a, b);
  if (b.fixed()) {
    if (a.count() != b.count()) {
      failed_ = true;
      return false;
    }
    for (size_t i = 0; i < a.prefix.size(); ++i) {
      if (!unify_dims(a.prefix[i], b.prefix[i])) return false;
    }
    return true;
  }
  if (a.fixed()) {
    const size_t n = a.prefix.size(), p = b.prefix.size(), s = b.suffix.size();
    if (n < p + s) {
      failed_ = true;
      return false;
    }
    for (size_t i = 0; i < p; ++i) {
      if (!unify_dims(a.prefix[i], b.prefix[i])) return false;
    }
    for (size_t i = 0; i < s; ++i) {
      if (!unify_dims(a.prefix[n - s + i], b.suffix[i])) return false;
    }
    Dims middle;
    middle.prefix.append(a.prefix.data() + p, n - p - s);
    if (seqs_[b.seq].bound == kNone) return bind_seq(b.seq, middle);
    return unify_reprs(expand(Repr{0, 0, 0, b.seq}), middle);
  }
  const size_t prefix = std::min(a.prefix.size(), b.prefix.size());
  const size_t suffix = std::min(a.suffix.size(), b.suffix.size());
  for (size_t i = 0; i < prefix; ++i) {
    if (!unify_dims(a.prefix[i], b.prefix[i])) return false;
  }
  for (size_t i = 1; i <= suffix; ++i) {
    if (!unify_dims(a.suffix[a.suffix.size() - i], b.suffix[b.suffix.size() - i])) return false;
  }
  const auto rest = [prefix, suffix](const Dims& d) {
    Dims out;
    out.prefix.append(d.prefix.data() + prefix, d.prefix.size() - prefix);
    out.suffix.append(d.suffix.data(), d.suffix.size() - suffix);
    out.seq = d.seq;
    return out;
  };
  const Dims x = rest(a), y = rest(b);
  if (a.seq == b.seq) {
    if (x.count() != y.count()) failed_ = true;
    return x.count() == y.count();
  }
  if (x.count() == 0 && y.count() == 0) {
    const bool bind_a = seqs_[a.seq].size <= seqs_[b.seq].size;
    return bind_a ? bind_seq(a.seq, y) : bind_seq(b.seq, x);
  }
  if (x.count() == 0) return bind_seq(a.seq, y);
  if (y.count() == 0) return bind_seq(b.seq, x);
  return true;  // [x, V1] and [V2, y] overlap in ways not known yet: both are kept
}

std::string_view Store::seq_name(uint32_t seq) const {
  const uint32_t name = seqs_[seq].name;
  return name == kNone ? std::string_view() : *owned_names_[name];
}

void Store::name_seq(uint32_t seq, uint32_t owned_name) {
  const std::string& name = *owned_names_[owned_name];
  // "V1" is what unnamed ones are called.
  const bool generated =
      name.front() == 'V' && name.find_first_not_of("0123456789", 1) == std::string::npos;
  const bool taken =
      std::find(seq_names_.begin(), seq_names_.end(), owned_name) != seq_names_.end();
  if (generated || taken) return;
  while (seqs_[seq].bound != kNone) {
    const Repr& inner = reprs_[seqs_[seq].bound];
    if (inner.count() != 0 || inner.seq == kNone) return;
    seq = inner.seq;
  }
  if (seqs_[seq].name != kNone) return;
  edit_seq(seq).name = owned_name;
  seq_names_.push_back(owned_name);
}

// --- shapes -------------------------------------------------------------------------------------

uint32_t Store::shape_if_any(uint32_t cell) const {
  const uint32_t shape = cells_[cell_root(cell)].shape;
  return shape == kNone ? kNone : shape_root(shape);
}

void Store::give_shape(uint32_t root, uint32_t shape) {
  edit_cell(root).shape = shape;
  ShapeRecord& record = edit_shape(shape);
  if (!forward_) append_watch(record.watch, record.watch_end, root, kWatchCell);
}

uint32_t Store::shape(uint32_t cell) {
  const uint32_t root = cell_root(cell);
  if (cells_[root].shape != kNone) return shape_root(cells_[root].shape);
  const uint32_t shape = new_shape();
  give_shape(root, shape);
  return shape;
}

bool Store::unify_shapes(uint32_t a, uint32_t b) {
  a = shape_root(a);
  b = shape_root(b);
  if (a == b) return true;
  if (shapes_[b].size > shapes_[a].size || (shapes_[b].size == shapes_[a].size && b < a)) {
    std::swap(a, b);
  }
  record_event(Entity::kShape, a, edit_shape(a).event, b);
  const ShapeRecord copy = shapes_[b];
  // Before b is part of a: what its dims wake is b's alone. The larger class is told by what
  // changes of it, or joining n wires one by one would take n² steps.
  if (!narrow_ranks(a, copy.ranks)) return false;
  for (int i = 0; i < copy.count; ++i) {
    const Dims dims = expand(reprs_[copy.reprs[i]]);
    if (!meet_reprs(a, &dims)) return false;
  }
  ShapeRecord& lost = edit_shape(b);
  ShapeRecord& kept = edit_shape(a);
  lost.parent = a;
  kept.size += lost.size;
  wake(lost.watch, lost.watch_end, kFactEvents);
  join_watches(kept.watch, kept.watch_end, lost.watch, lost.watch_end);
  return true;
}

bool Store::constrain(uint32_t shape, const Dims& dims) {
  if (dims.count() > kMostDims) {
    conflict(core::Code::kOverflow, "a tensor has at most {} dimensions, got {}", kMostDims,
             dims.count());
    return false;
  }
  for (const uint32_t d : dims.prefix) {
    if (!must_be_size(d)) return false;
  }
  for (const uint32_t d : dims.suffix) {
    if (!must_be_size(d)) return false;
  }
  return meet_reprs(shape_root(shape), &dims);
}

bool Store::normalize_shape(uint32_t shape) {
  shape = shape_root(shape);
  return shapes_[shape].count == 0 || meet_reprs(shape, nullptr);
}

bool Store::meet_reprs(uint32_t shape, const Dims* added) {
  constexpr size_t kRoom = ShapeRecord::kMost + 1;
  Dims list[kRoom];
  size_t count = 0;
  for (int i = 0; i < shapes_[shape].count; ++i)
    list[count++] = expand(reprs_[shapes_[shape].reprs[i]]);
  if (added != nullptr) {
    // What came in may hold a sequence that was bound on the way.
    list[count] = *added;
    if (added->seq != kNone && seqs_[added->seq].bound != kNone) {
      Dims inner = expand(Repr{0, 0, 0, added->seq});
      Dims whole;
      whole.prefix = added->prefix;
      whole.prefix.append(inner.prefix.data(), inner.prefix.size());
      whole.seq = inner.seq;
      if (whole.fixed()) {
        whole.prefix.append(added->suffix.data(), added->suffix.size());
      } else {
        whole.suffix = inner.suffix;
        whole.suffix.append(added->suffix.data(), added->suffix.size());
      }
      list[count] = whole;
    }
    ++count;
  }
  // Uniting two may bind a sequence of a third: until nothing is bound any more.
  for (bool again = count > 1; again;) {
    const uint32_t before = bindings_made_;
    for (size_t i = 1; i < count; ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (!unify_reprs(list[i], list[j])) return false;
      }
    }
    again = bindings_made_ != before;
    if (again) {
      for (size_t i = 0; i < count; ++i) {
        list[i] = expand(reprs_[store_repr(list[i])]);
      }
    }
  }
  // A known rank says it all; equal ones are one; beyond four the rest is dropped (incomplete).
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    if (list[i].fixed()) {
      if (i != 0) list[0] = list[i];
      kept = 1;
      break;
    }
    bool doubled = false;
    for (size_t j = 0; j < kept && !doubled; ++j) {
      doubled = list[j].seq == list[i].seq && list[j].prefix.size() == list[i].prefix.size() &&
                list[j].suffix.size() == list[i].suffix.size();
    }
    if (doubled) continue;
    if (kept != i) list[kept] = list[i];
    ++kept;
  }
  if (kept > ShapeRecord::kMost) kept = ShapeRecord::kMost;
  set_reprs(shape, {list, kept});
  RankMask mask = kAllRanks;
  for (size_t i = 0; i < kept; ++i) {
    mask &= list[i].fixed() ? rank_bit(list[i].count())
                            : raise(seqs_[list[i].seq].ranks, list[i].count());
  }
  if (!narrow_ranks(shape, mask)) return false;
  // Sequences that came in now learn what the shape knew.
  const RankMask ranks = shapes_[shape].ranks;
  for (size_t i = 0; i < kept; ++i) {
    if (!list[i].fixed() && !narrow_seq(list[i].seq, lower(ranks, list[i].count()))) return false;
  }
  return true;
}

void Store::set_reprs(uint32_t shape, std::span<const Dims> reprs) {
  const ShapeRecord old = shapes_[shape];
  const auto equal = [this](const Dims& d, const Repr& r) {
    if (d.seq != r.seq || d.prefix.size() != r.prefix || d.suffix.size() != r.suffix) return false;
    const uint32_t* dims = repr_dims_.data() + r.begin;
    for (size_t i = 0; i < r.prefix; ++i) {
      if (d.prefix[i] != dims[i]) return false;
    }
    for (size_t i = 0; i < r.suffix; ++i) {
      if (d.suffix[i] != dims[r.prefix + i]) return false;
    }
    return true;
  };
  bool same = old.count == reprs.size();
  for (size_t i = 0; same && i < reprs.size(); ++i) same = equal(reprs[i], reprs_[old.reprs[i]]);
  if (same) return;
  const auto shown_before = [&](uint32_t dim) {
    for (int i = 0; i < old.count; ++i) {
      const Repr& r = reprs_[old.reprs[i]];
      for (uint32_t k = 0; k < r.count(); ++k) {
        if (repr_dims_[r.begin + k] == dim) return true;
      }
    }
    return false;
  };
  const auto seq_before = [&](uint32_t seq) {
    for (int i = 0; i < old.count; ++i) {
      if (reprs_[old.reprs[i]].seq == seq) return true;
    }
    return false;
  };
  for (const Dims& dims : reprs) {
    if (!forward_) {
      for (const DimList* part : {&dims.prefix, &dims.suffix}) {
        for (const uint32_t d : *part) {
          if (shown_before(d)) continue;
          DimRecord& record = edit_dim(dim_root(d));
          append_watch(record.watch, record.watch_end, shape, kWatchShape);
        }
      }
    }
    if (dims.seq != kNone && !seq_before(dims.seq)) {
      SeqRecord& record = edit_seq(dims.seq);
      append_watch(record.watch, record.watch_end, shape, kWatchStructure);
    }
  }
  SmallVector<uint32_t, ShapeRecord::kMost> ids;
  for (const Dims& dims : reprs) {
    ids.push_back(store_repr(dims));
    reprs_.back().previous =
        old.count == 0 ? kNone : old.reprs[std::min<size_t>(ids.size(), old.count) - 1];
  }
  ShapeRecord& record = edit_shape(shape);
  for (int i = 0; i < ShapeRecord::kMost; ++i) {
    record.reprs[i] = static_cast<size_t>(i) < ids.size() ? ids[static_cast<size_t>(i)] : kNone;
  }
  record.count = static_cast<uint8_t>(ids.size());
  record_event(Entity::kShape, shape, record.event);
  if (!forward_) wake(record.watch, record.watch_end, kFactEvents);
}

bool Store::narrow_ranks(uint32_t shape, RankMask mask) {
  shape = shape_root(shape);
  const auto narrowed = static_cast<RankMask>(mask & shapes_[shape].ranks);
  if (narrowed == 0) {
    failed_ = true;
    return false;
  }
  if (narrowed == shapes_[shape].ranks) return true;
  ShapeRecord& record = edit_shape(shape);
  record.ranks = narrowed;
  record_event(Entity::kShape, shape, record.event);
  if (!forward_) wake(record.watch, record.watch_end, kFactEvents);
  for (int i = 0; i < shapes_[shape].count; ++i) {
    const Repr repr = reprs_[shapes_[shape].reprs[i]];
    if (repr.fixed()) continue;
    if (!narrow_seq(repr.seq, lower(narrowed, repr.count()))) return false;
  }
  if (shapes_[shape].count == 0 && is_one_rank(narrowed)) {
    Dims fresh;
    for (int i = 0; i < least_rank(narrowed); ++i) fresh.prefix.push_back(new_dim());
    return constrain(shape, fresh);
  }
  return true;
}

bool Store::set_rank(uint32_t shape, size_t rank) {
  if (rank < static_cast<size_t>(kManyRanks)) return narrow_ranks(shape, rank_bit(rank));
  if (const auto known = this->rank(shape)) return static_cast<size_t>(*known) == rank;
  Dims fresh;
  for (size_t i = 0; i < rank; ++i) fresh.prefix.push_back(new_dim());
  return constrain(shape, fresh);
}

// --- reading ------------------------------------------------------------------------------------

std::optional<int> Store::rank(uint32_t shape) const {
  const ShapeRecord& record = shapes_[shape_root(shape)];
  for (int i = 0; i < record.count; ++i) {
    const Repr& repr = reprs_[record.reprs[i]];
    if (repr.fixed()) return repr.prefix;
    if (seqs_[repr.seq].bound == kNone) continue;
    const Dims dims = expand(repr);
    if (dims.fixed()) return static_cast<int>(dims.count());
  }
  return std::nullopt;
}

DimList Store::fixed_dims(uint32_t shape) const {
  const ShapeRecord& record = shapes_[shape_root(shape)];
  for (int i = 0; i < record.count; ++i) {
    const Repr& repr = reprs_[record.reprs[i]];
    if (repr.fixed())
      return DimList(std::span<const uint32_t>(repr_dims_).subspan(repr.begin, repr.prefix));
    if (seqs_[repr.seq].bound == kNone) continue;
    const Dims dims = expand(repr);
    if (dims.fixed()) return dims.prefix;
  }
  return {};
}

int Store::view_count(uint32_t shape) const { return shapes_[shape_root(shape)].count; }

Dims Store::view(uint32_t shape, int which) const {
  const ShapeRecord& record = shapes_[shape_root(shape)];
  return which < record.count ? expand(reprs_[record.reprs[which]]) : Dims{};
}

uint32_t Store::dim_from(End end, uint32_t shape, size_t i, bool make) {
  const bool left = end == End::kLeft;
  const auto side = [left](Dims& dims) -> DimList& {
    return left || dims.fixed() ? dims.prefix : dims.suffix;
  };
  shape = shape_root(shape);
  for (int which = 0; which < shapes_[shape].count; ++which) {
    Dims dims = view(shape, which);
    const DimList& part = side(dims);
    if (i < part.size()) return part[left ? i : part.size() - 1 - i];
    if (dims.fixed()) return kNone;
  }
  if (!make || least_rank(shapes_[shape].ranks) <= static_cast<int>(i)) return kNone;
  Dims split;
  split.seq = new_seq();
  // A sequence that is long enough is split; else the new dims may overlap the shown ones.
  if (shapes_[shape].count > 0) {
    Dims first = view(shape);
    const size_t need = i + 1 - side(first).size();
    if (least_rank(seqs_[first.seq].ranks) >= static_cast<int>(need)) {
      for (size_t k = 0; k < need; ++k) side(split).push_back(new_dim());
      for (const uint32_t d : side(split)) must_be_size(d);
      if (!bind_seq(first.seq, split) || !normalize_shape(shape)) return kNone;
      return dim_from(end, shape, i, false);
    }
  }
  for (size_t k = 0; k <= i; ++k) side(split).push_back(new_dim());
  if (!constrain(shape, split)) return kNone;
  return dim_from(end, shape, i, false);
}

std::optional<Dims> Store::both_ends(uint32_t shape, size_t left, size_t right) {
  const auto shown = [&]() -> std::optional<Dims> {
    for (int i = 0; i < view_count(shape); ++i) {
      Dims dims = view(shape, i);
      if (dims.prefix.size() >= left && dims.suffix.size() >= right) return dims;
    }
    return std::nullopt;
  };
  auto dims = shown();
  if (dims || least_rank(ranks(shape)) < static_cast<int>(left + right)) return dims;
  Dims ends;
  for (size_t i = 0; i < left; ++i) ends.prefix.push_back(new_dim());
  ends.seq = new_seq();
  for (size_t i = 0; i < right; ++i) ends.suffix.push_back(new_dim());
  return constrain(shape, ends) ? shown() : std::nullopt;
}

// --- printing -----------------------------------------------------------------------------------

std::string Store::print_shape(uint32_t cell) { return print_shape(cell, error_names_); }

std::string Store::print_shape(uint32_t cell, ShapeNames& names) {
  const uint32_t shape = shape_if_any(cell);
  if (shape == kNone) return "[...]";
  // The representation that shows most.
  Dims best;
  bool any = false;
  for (int i = 0; i < shapes_[shape].count; ++i) {
    Dims dims = view(shape, i);
    if (!any || dims.fixed() || dims.count() > best.count()) best = dims;
    any = true;
  }
  if (!any) return "[...]";
  std::string out = "[";
  const auto add = [&out](const std::string& text) {
    if (out.size() > 1) out += ", ";
    out += text;
  };
  const auto print = [&](uint32_t d) {
    const DimRecord& record = dims_[dim_root(d)];
    if (record.known) return std::to_string(record.value);
    const auto e = expression(d);
    return e ? names.dim(*table_, *e) : std::string("?");
  };
  for (const uint32_t d : best.prefix) add(print(d));
  if (!best.fixed()) {
    const std::string_view own = seq_name(best.seq);
    add("(" + (own.empty() ? names.variadic(best.seq) : std::string(own)) + ", ...)");
  }
  for (const uint32_t d : best.suffix) add(print(d));
  return out + "]";
}

}  // namespace mithril::infer
