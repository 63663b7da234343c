// Cells: kinds, merging of wires, and host values, also partly known ones.
#include "infer/propagators/relations.h"
#include "infer/store.h"

namespace mithril::infer {

using core::HostValue;
using Tag = CellRecord::Tag;

bool Store::narrow(uint32_t cell, KindSet kinds) {
  const uint32_t root = cell_root(cell);
  const KindSet narrowed = cells_[root].kinds & kinds;
  if (narrowed == cells_[root].kinds) return true;
  if (narrowed.empty()) {
    conflict(core::Code::kDTypeConflict, "expected {}, got {}", to_string(kinds),
             to_string(cells_[root].kinds));
    blame({cell});
    return false;
  }
  CellRecord& record = edit_cell(root);
  record.kinds = narrowed;
  record_event(Entity::kCell, root, record.event);
  // Becoming a tensor (or none) lets relations over shapes begin: all of them are told.
  wake(record.watch, record.watch_end, kAllEvents);
  return true;
}

bool Store::unify_cells(uint32_t first, uint32_t second) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs = {{first, second}};
  while (!pairs.empty()) {
    auto [a, b] = pairs.back();
    pairs.pop_back();
    a = cell_root(a);
    b = cell_root(b);
    if (a == b) continue;
    const KindSet both = cells_[a].kinds & cells_[b].kinds;
    if (both.empty()) {
      conflict(core::Code::kDTypeConflict, "kinds are in conflict, got {} and {}",
               to_string(cells_[a].kinds), to_string(cells_[b].kinds));
      blame({a, b});
      return false;
    }
    if (cells_[b].size > cells_[a].size || (cells_[b].size == cells_[a].size && b < a)) {
      std::swap(a, b);
    }
    CellRecord& lost = edit_cell(b);
    CellRecord& kept = edit_cell(a);
    const CellRecord before = kept, other = lost;
    lost.parent = a;
    kept.size += lost.size;
    kept.kinds = both;
    kept.spreads = kept.spreads && lost.spreads;
    if (kept.name == kNone) kept.name = lost.name;
    record_event(Entity::kCell, a, kept.event, b);
    // Whoever watches the smaller class sees the larger one's facts; the larger class is told only
    // what is new to it, or joining n wires one by one would take n² steps.
    wake(lost.watch, lost.watch_end, kAllEvents);
    if (both != before.kinds || (before.shape == kNone && other.shape != kNone)) {
      wake(before.watch, before.watch_end, kAllEvents);
    }
    join_watches(kept.watch, kept.watch_end, lost.watch, lost.watch_end);
    if (other.type != kNone && !narrow_type(a, Type(*types_[other.type]))) {
      blame({a, b});
      return false;
    }
    if (other.shape != kNone) {
      if (before.shape == kNone) {
        give_shape(a, shape_root(other.shape));
      } else if (!unify_shapes(before.shape, other.shape)) {
        blame({a, b});
        return false;
      }
    }
    if (other.tag != Tag::kUnknown && !merge_value(a, other, pairs)) {
      blame({a, b});
      return false;
    }
  }
  return true;
}

bool Store::merge_value(uint32_t cell, const CellRecord& from,
                        std::vector<std::pair<uint32_t, uint32_t>>& pairs) {
  const uint32_t root = cell_root(cell);
  const CellRecord now = cells_[root];
  if (now.tag == Tag::kUnknown) {
    CellRecord& record = edit_cell(root);
    record.tag = from.tag;
    record.value = from.value;
    record.length = from.length;
    record.is_list = from.is_list;
    record_event(Entity::kCell, root, record.event);
    wake(record.watch, record.watch_end, kFactEvents);
    return true;
  }
  switch (from.tag) {
    case Tag::kHostValue: return set_value(root, HostValue(hosts_[from.value]));
    case Tag::kInt: return set_int(root, from.value);
    case Tag::kItems: {
      if (now.tag != Tag::kItems) {
        const DimList items(std::span<const uint32_t>(lists_).subspan(from.value, from.length));
        return set_items(root, items, from.is_list);
      }
      if (now.length != from.length) {
        conflict(core::Code::kValueConflict, "lengths of sequences are in conflict, got {} and {}",
                 now.length, from.length);
        return false;
      }
      for (uint32_t i = 0; i < now.length; ++i) {
        pairs.emplace_back(lists_[now.value + i], lists_[from.value + i]);
      }
      return true;
    }
    case Tag::kUnknown: break;
  }
  return true;
}

namespace {

bool has_symbols(const HostValue& value) {
  if (value.is_symbolic()) return true;
  if (!value.is_sequence()) return false;
  for (const HostValue& item : value.items()) {
    if (has_symbols(item)) return true;
  }
  return false;
}

}  // namespace

uint32_t Store::dim_of_int(const HostValue& value) {
  return value.is_int() ? new_dim(value.as_int())
                        : new_dim_of(Dim::expression(value.as_symbolic().expr));
}

bool Store::unify_values(const HostValue& a, const HostValue& b) {
  if (a == b) return true;
  const auto is_int = [](const HostValue& v) { return v.is_int() || v.is_symbolic(); };
  if (is_int(a) && is_int(b)) return unify_dims(dim_of_int(a), dim_of_int(b));
  if (!a.is_slice() || !b.is_slice()) return false;
  const core::Slice &left = a.as_slice(), &right = b.as_slice();
  return unify_values(left.start, right.start) && unify_values(left.stop, right.stop) &&
         unify_values(left.step, right.step);
}

namespace {

// The tensor kind that a number has where a tensor of one of `kinds` is wanted: its own, else the
// next wider one.
KindSet kind_as_tensor(const HostValue& number, KindSet kinds) {
  const KindSet scalar = kind_of(number);
  if (!scalar.is_scalar()) return kNoKind;
  for (uint32_t bit = as_tensor(scalar).bits(); bit <= kFloating.bits(); bit <<= 1) {
    if (kinds.meets(KindSet(bit))) return KindSet(bit);
  }
  return kNoKind;
}

}  // namespace

void Store::let_number_spread(uint32_t cell) { edit_cell(cell_root(cell)).spreads = true; }

bool Store::set_value(uint32_t cell, const HostValue& value) {
  if (kinds(cell).is_tensor()) {
    // A number where a tensor is wanted is a tensor of rank 0.
    const KindSet kind = kind_as_tensor(value, kinds(cell));
    const bool spreads = cells_[cell_root(cell)].spreads;
    if (!kind.empty()) return narrow(cell, kind) && (spreads || constrain(shape(cell), Dims()));
  }
  if (!narrow(cell, kind_of(value))) return false;
  if (value.is_symbolic()) return set_int(cell, dim_of_int(value));
  const uint32_t root = cell_root(cell);
  if (value.is_sequence() && (cells_[root].tag == Tag::kItems || has_symbols(value))) {
    // Depth of host values is bounded (HostValue::kMaxDepth).
    DimList items;
    for (const HostValue& item : value.items()) {
      items.push_back(new_cell(kAny));
      if (!set_value(items.back(), item)) return false;
    }
    return set_items(cell, items, value.is_list());
  }
  if (value.is_tensor()) {
    Dims dims;
    for (const int64_t size : value.as_tensor()->shape) dims.prefix.push_back(new_dim(size));
    if (!constrain(shape(root), dims)) return false;
  }
  switch (cells_[root].tag) {
    case Tag::kHostValue: {
      const HostValue now = hosts_[cells_[root].value];
      if (unify_values(now, value)) return true;
      replace_error(core::fail(core::ErrorKind::kValue, core::Code::kValueConflict,
                               "values are in conflict, got {} and {}", core::to_string(now),
                               core::to_string(value)));
      blame({cell});
      return false;
    }
    case Tag::kInt:
      if (assign(cells_[root].value, value.as_int())) return true;
      if (!refused_.allowed.empty()) {
        conflict(core::Code::kValueConflict, "expected a number {}, got {}", refused_.allowed,
                 refused_.got);
      }
      conflict(core::Code::kValueConflict, "values are in conflict, got {} and {}",
               print_dim(cells_[root].value), value.as_int());
      blame({cell});
      return false;
    case Tag::kItems:
    case Tag::kUnknown: break;
  }
  hosts_.push_back(value);
  CellRecord& record = edit_cell(root);
  record.tag = Tag::kHostValue;
  record.value = static_cast<uint32_t>(hosts_.size() - 1);
  record_event(Entity::kCell, root, record.event);
  wake(record.watch, record.watch_end, kFactEvents);
  return true;
}

bool Store::set_items(uint32_t cell, std::span<const uint32_t> given, bool is_list) {
  const DimList items(given);
  if (!narrow(cell, is_list ? kListKind : kTupleKind)) return false;
  const uint32_t root = cell_root(cell);
  const CellRecord now = cells_[root];
  if (now.tag == Tag::kHostValue || now.tag == Tag::kItems) {
    const HostValue value = now.tag == Tag::kHostValue ? hosts_[now.value] : HostValue();
    const size_t length = now.tag == Tag::kHostValue ? value.items().size() : now.length;
    if (length != items.size()) {
      conflict(core::Code::kValueConflict, "lengths of sequences are in conflict, got {} and {}",
               length, items.size());
      blame({cell});
      return false;
    }
    for (size_t i = 0; i < length; ++i) {
      const bool ok = now.tag == Tag::kHostValue ? set_value(items[i], value.items()[i])
                                                 : unify_cells(lists_[now.value + i], items[i]);
      if (!ok) return false;
    }
    if (now.tag == Tag::kItems) return true;
  }
  const auto begin = static_cast<uint32_t>(lists_.size());
  for (size_t i = 0; i < items.size(); ++i) lists_.push_back(items[i]);
  CellRecord& record = edit_cell(root);
  record.tag = Tag::kItems;
  record.is_list = is_list;
  record.value = begin;
  record.length = static_cast<uint32_t>(items.size());
  record_event(Entity::kCell, root, record.event);
  for (size_t i = 0; i < items.size() && !forward_; ++i) {
    CellRecord& item = edit_cell(cell_root(items[i]));
    append_watch(item.watch, item.watch_end, root, kWatchCell);
  }
  wake_cell(root);
  return true;
}

bool Store::set_int(uint32_t cell, uint32_t dim) {
  if (!narrow(cell, kScalarInt)) return false;
  const uint32_t root = cell_root(cell);
  const CellRecord now = cells_[root];
  if (now.tag == Tag::kHostValue) {
    if (!assign(dim, hosts_[now.value].as_int())) return false;
  } else if (now.tag == Tag::kInt) {
    return unify_dims(now.value, dim);
  }
  CellRecord& record = edit_cell(root);
  record.tag = Tag::kInt;
  record.value = dim;
  record_event(Entity::kCell, root, record.event);
  if (!forward_) {
    DimRecord& d = edit_dim(dim_root(dim));
    append_watch(d.watch, d.watch_end, root, kWatchCell);
  }
  wake_cell(root);
  return true;
}

uint32_t Store::int_dim(uint32_t cell) {
  const uint32_t root = cell_root(cell);
  if (cells_[root].kinds != kScalarInt) return kNone;
  if (cells_[root].tag == Tag::kInt) return cells_[root].value;
  // The unknown is there already, it only gets a number of its own: nothing new is known.
  const uint32_t dim = cells_[root].tag == Tag::kHostValue
                           ? new_dim(hosts_[cells_[root].value].as_int())
                           : new_dim();
  CellRecord& record = edit_cell(root);
  record.tag = Tag::kInt;
  record.value = dim;
  if (!forward_) {
    DimRecord& d = edit_dim(dim);
    append_watch(d.watch, d.watch_end, root, kWatchCell);
  }
  return dim;
}

std::optional<DimList> Store::items(uint32_t cell) {
  const uint32_t root = cell_root(cell);
  if (cells_[root].tag == Tag::kItems) {
    return DimList(
        std::span<const uint32_t>(lists_).subspan(cells_[root].value, cells_[root].length));
  }
  if (cells_[root].tag != Tag::kHostValue || !hosts_[cells_[root].value].is_sequence()) {
    return std::nullopt;
  }
  const HostValue value = hosts_[cells_[root].value];
  DimList out;
  for (const HostValue& item : value.items()) {
    out.push_back(new_cell(kAny));
    if (!set_value(out.back(), item)) return std::nullopt;
  }
  const auto begin = static_cast<uint32_t>(lists_.size());
  for (const uint32_t item : out) lists_.push_back(item);
  CellRecord& record = edit_cell(root);
  record.tag = Tag::kItems;
  record.is_list = value.is_list();
  record.value = begin;
  record.length = static_cast<uint32_t>(out.size());
  return out;
}

std::optional<HostValue> Store::known_parts(const HostValue& value, bool symbols) {
  if (value.is_symbolic()) {
    const Dim now = normal_form(Dim::expression(value.as_symbolic().expr));
    if (now.known()) return HostValue(now.value());
    return symbols ? std::optional(HostValue(core::SymbolicInt{now.id()})) : std::nullopt;
  }
  if (!value.is_slice()) return value;
  const core::Slice& slice = value.as_slice();
  auto start = known_parts(slice.start, symbols), stop = known_parts(slice.stop, symbols),
       step = known_parts(slice.step, symbols);
  if (!start || !stop || !step) return std::nullopt;
  return HostValue(core::Slice{std::move(*start), std::move(*stop), std::move(*step)});
}

std::optional<HostValue> Store::value_at(uint32_t cell, int depth, bool symbols) {
  if (depth > HostValue::kMaxDepth) return std::nullopt;
  const CellRecord record = cells_[cell_root(cell)];
  switch (record.tag) {
    case Tag::kUnknown:
      if (record.kinds == kNoneKind) return HostValue();
      if (record.kinds == kEllipsisKind) return HostValue(core::EllipsisValue());
      return std::nullopt;
    case Tag::kHostValue: return known_parts(hosts_[record.value], symbols);
    case Tag::kInt: {
      if (const auto known = size(record.value)) return HostValue(*known);
      if (!symbols) return std::nullopt;
      const auto e = expression(record.value);
      if (!e) return std::nullopt;
      return HostValue(core::SymbolicInt{e->id()});
    }
    case Tag::kItems: {
      HostValue::Tuple out;
      for (uint32_t i = 0; i < record.length; ++i) {
        auto item = value_at(lists_[record.value + i], depth + 1, symbols);
        if (!item) return std::nullopt;
        out.push_back(std::move(*item));
      }
      return record.is_list ? HostValue::list(std::move(out)) : HostValue::tuple(std::move(out));
    }
  }
  return std::nullopt;
}

std::optional<HostValue> Store::value(uint32_t cell) { return value_at(cell, 0, true); }
std::optional<HostValue> Store::known_value(uint32_t cell) { return value_at(cell, 0, false); }

std::string Store::print_value(uint32_t cell) { return print_value_at(cell, 0, error_names_); }

std::string Store::print_value_at(uint32_t cell, int depth, ShapeNames& names) {
  const CellRecord record = cells_[cell_root(cell)];
  if (depth > 8) return "...";
  switch (record.tag) {
    case Tag::kUnknown: return record.kinds == kNoneKind ? "none" : "?";
    case Tag::kHostValue:
      return core::to_string(*known_parts(hosts_[record.value], true), [&](core::SymbolicInt size) {
        return names.dim(*table_, Dim::expression(size.expr));
      });
    case Tag::kInt: {
      if (const auto known = size(record.value)) return std::to_string(*known);
      const auto e = expression(record.value);
      return e ? names.dim(*table_, *e) : "?";
    }
    case Tag::kItems: {
      std::string out(1, record.is_list ? '[' : '(');
      for (uint32_t i = 0; i < record.length; ++i) {
        if (i > 0) out += ", ";
        const uint32_t item = lists_[record.value + i];
        out += is_tensor(item) ? print_shape(item, names) : print_value_at(item, depth + 1, names);
      }
      if (record.length == 1 && !record.is_list) out += ",";
      return out + (record.is_list ? "]" : ")");
    }
  }
  return "?";
}

}  // namespace mithril::infer
