// NumPy indexing: ints, slices, none, ellipsis, integer arrays, boolean masks; and gather.
#include <algorithm>

#include "core/slice.h"
#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

using core::HostValue;

/// One item of an index, with the dims of the input that it takes. A bool is a mask that takes
/// none.
struct Item {
  enum class Type { kInt, kSlice, kNew, kEllipsis, kArray, kMask } type;
  uint32_t cell;
  size_t takes = 1;
};

/// Sizes of the leading sequences of a nested list (all of them one deep at least).
bool list_shape(const HostValue& value, SmallVector<int64_t, 8>& shape, bool& bools) {
  const HostValue* probe = &value;
  while (probe->is_sequence()) {
    shape.push_back(static_cast<int64_t>(probe->items().size()));
    if (probe->items().empty()) return true;
    probe = &probe->items()[0];
  }
  bools = probe->is_bool();
  return probe->is_int() || probe->is_bool() || probe->is_symbolic();
}

/// Counts how often a mask says true. Depth is at most HostValue::kMaxDepth.
int64_t count_true(const HostValue& mask) {
  if (!mask.is_sequence()) return mask.is_bool() && mask.as_bool() ? 1 : 0;
  int64_t count = 0;
  for (const HostValue& item : mask.items()) count += count_true(item);
  return count;
}

std::optional<Item> classify(Store& s, uint32_t cell) {
  const KindSet kinds = s.kinds(cell);
  if (kinds == kScalarBool && s.value(cell)) return Item{Item::Type::kMask, cell, 0};
  if (kinds == kScalarInt) return Item{Item::Type::kInt, cell, 1};
  if (kinds == kSliceKind) return Item{Item::Type::kSlice, cell, 1};
  if (kinds == kNoneKind) return Item{Item::Type::kNew, cell, 0};
  if (kinds == kEllipsisKind) return Item{Item::Type::kEllipsis, cell, 0};
  if (kinds == kTensorInt) return Item{Item::Type::kArray, cell, 1};
  if (kinds == kTensorBool) {
    const uint32_t shape = s.shape(cell);
    if (!s.rank(shape)) return std::nullopt;
    return Item{Item::Type::kMask, cell, static_cast<size_t>(*s.rank(shape))};
  }
  if (kinds.subset_of(kSequence)) {
    const auto value = s.value(cell);
    if (!value) return std::nullopt;
    SmallVector<int64_t, 8> shape;
    bool bools = false;
    if (list_shape(*value, shape, bools)) {
      return Item{bools ? Item::Type::kMask : Item::Type::kArray, cell, bools ? shape.size() : 1};
    }
  }
  return std::nullopt;
}

Outcome index_conflict(Store& s, const Propagator& p, std::string_view what) {
  s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                             "{}, got {} and {}", what, s.describe(p.rule, s.arg(p, 1)),
                             s.describe(p.rule, s.arg(p, 2))));
  return Outcome::kConflict;
}

/// Size of size[slice], a new unknown where it depends on numbers that are not known.
uint32_t sliced(Store& s, uint32_t dim, const core::Slice& slice) {
  const auto is = [](const HostValue& v, int64_t n) { return v.is_none() || v == HostValue(n); };
  for (const HostValue* bound : {&slice.start, &slice.stop, &slice.step}) {
    if (bound->is_none() || bound->is_int() || bound->is_symbolic()) continue;
    s.conflict(core::Code::kValueArgument, "the bounds of a slice must be integers or none, got {}",
               core::to_string(*bound));
    return s.new_dim();
  }
  const int64_t step = slice.step.is_int() ? slice.step.as_int() : 1;
  if (step == 0) {
    s.conflict(core::Code::kValueArgument, "slice step must not be 0");
    return s.new_dim();
  }
  const uint32_t out = s.new_dim();
  if (!slice.step.is_none() && !slice.step.is_int()) return out;
  const bool whole = is(slice.start, 0) && slice.stop.is_none();
  if ((whole && step == 1) || (step == -1 && slice.start.is_none() && slice.stop.is_none())) {
    return dim;
  }
  const auto end = [&s](const HostValue& v) { return v.is_none() ? kNone : s.dim_of_int(v); };
  post_slice_size(s, out, dim, {end(slice.start), end(slice.stop), step});
  return out;
}

/// Something about the index is open: the result's rank may be known all the same.
Outcome wait_with_rank(Store& s, const Propagator& p, std::span<const Item> items, size_t rank,
                       size_t taken) {
  size_t out = rank - taken;
  for (const Item& item : items) {
    if (item.type == Item::Type::kArray || item.type == Item::Type::kMask) return Outcome::kWait;
    out += item.type == Item::Type::kSlice || item.type == Item::Type::kNew;
  }
  const bool ok = s.set_rank(s.shape(s.arg(p, 0)), out);
  return ok ? Outcome::kWait
            : index_conflict(s, p, "output must have the dimensions of the indexed input");
}

/// Unites the shapes of the index arrays by broadcasting; kNone entries wait.
std::optional<DimList> joint_shape(Store& s, std::span<const DimList> arrays) {
  size_t rank = 0;
  for (const DimList& a : arrays) rank = std::max(rank, a.size());
  DimList out;
  for (size_t at = rank; at-- > 0;) {
    DimList shown;
    for (const DimList& a : arrays) {
      if (at < a.size()) shown.push_back(a[a.size() - 1 - at]);
    }
    const uint32_t dim = s.new_dim();
    if (!broadcast_dims(s, dim, shown)) return std::nullopt;
    if (!s.forward()) {
      // A result that is still open depends on its parts: it cannot be left without them.
      DimList args = {dim};
      args.append(shown.data(), shown.size());
      post_broadcast_dims(s, args);
    }
    out.push_back(dim);
  }
  return out;
}

/// Tensor or sequence, told by the index or the output: only an int or a slice indexes sequences,
/// a slice gives the container that it takes from, a part of a tensor is a tensor of its kind.
bool narrow_index_kinds(Store& s, uint32_t out, uint32_t in, uint32_t index) {
  const KindSet by = s.kinds(index);
  if (!by.meets(kScalarInt | kSliceKind) && !s.narrow(in, kTensor)) return false;
  if (s.kinds(in).subset_of(kSequence) && !s.narrow(index, kScalarInt | kSliceKind)) return false;
  if (!s.is_tensor(in) && by != kSliceKind) return true;
  return s.narrow(out, s.kinds(in)) && s.narrow(in, s.kinds(out));
}

/// An item of a sequence of open length has the type of its elements, a slice that of the whole.
bool narrow_by_elements(Store& s, uint32_t out, uint32_t in, uint32_t index) {
  const Type* type = s.type(in);
  if (type == nullptr) return true;
  if (s.kinds(index) == kSliceKind) {
    Type part(s.kinds(in));
    for (const Container& c : type->containers) {
      if (c.any_length && part.kinds.meets(c.kind())) part.containers.push_back(c);
    }
    return part.containers.size() != type->containers.size() || s.narrow_type(out, part);
  }
  if (s.kinds(index) != kScalarInt || type->containers.size() != 1) return true;
  const Container element = type->containers[0];
  return !element.any_length || s.kinds(in) != element.kind() ||
         s.narrow_type(out, element.items[0]);
}

/// An item or a slice of a list or tuple.
Outcome index_sequence(Store& s, uint32_t out, uint32_t in, uint32_t index) {
  const auto at = s.known_value(index);
  const auto items = s.items(in);
  if (!items && !narrow_by_elements(s, out, in, index)) return Outcome::kConflict;
  if (!at || !items) return Outcome::kWait;
  const auto n = static_cast<int64_t>(items->size());
  if (at->is_int()) {
    if (at->as_int() < -n || at->as_int() >= n) {
      return s.conflict(core::Code::kValueArgument, "index must be in [{}, {}), got {}", -n, n,
                        at->as_int());
    }
    const int64_t i = at->as_int() < 0 ? at->as_int() + n : at->as_int();
    const bool ok = s.unify_cells(out, (*items)[static_cast<size_t>(i)]);
    return ok ? Outcome::kDone : Outcome::kConflict;
  }
  if (!at->is_slice()) return Outcome::kWait;
  const core::Slice& slice = at->as_slice();
  if (slice.step == HostValue(0)) {
    return s.conflict(core::Code::kValueArgument, "slice step must not be 0");
  }
  const core::SliceIndices taken = core::slice_indices(slice, n);
  DimList part;
  for (int64_t i = 0; i < taken.length; ++i) {
    part.push_back((*items)[static_cast<size_t>(taken.start + i * taken.step)]);
  }
  const bool ok = s.set_items(out, part, s.kinds(in).meets(kListKind));
  return ok ? Outcome::kDone : Outcome::kConflict;
}

/// The items of an index; nothing while the kind of one is open.
std::optional<std::vector<Item>> classified_items(Store& s, uint32_t index) {
  DimList cells = {index};
  // A list whose items are wires is a tuple of indices: what a variadic input of a node is.
  const bool wires = s.kinds(index) == kListKind && !s.value(index);
  if (s.kinds(index) == kTupleKind || wires) {
    const auto parts = s.items(index);
    if (!parts) return std::nullopt;
    cells = *parts;
  }
  std::vector<Item> out;
  for (const uint32_t cell : cells) {
    const auto item = classify(s, cell);
    if (!item) return std::nullopt;
    out.push_back(*item);
  }
  return out;
}

/// Tells whether an item's own value or shape is still missing.
bool is_open(Store& s, const Item& item) {
  if (item.type == Item::Type::kSlice) return !s.value(item.cell);
  return item.type == Item::Type::kArray && s.is_tensor(item.cell) && !s.rank(s.shape(item.cell));
}

/// The sizes of an index array.
DimList array_dims(Store& s, const Item& item) {
  if (s.is_tensor(item.cell)) return s.fixed_dims(s.shape(item.cell));
  SmallVector<int64_t, 8> sizes;
  bool bools = false;
  list_shape(*s.value(item.cell), sizes, bools);
  DimList out;
  for (const int64_t size : sizes) out.push_back(s.new_dim(size));
  return out;
}

/// Builds the dimensions of an indexed tensor, item by item.
class IndexedDims {
 public:
  IndexedDims(Store& s, const Propagator& p, DimList from, size_t taken, bool arrays)
      : s_(s), p_(p), from_(from), taken_(taken), arrays_(arrays) {}

  bool take(const Item& item) {
    note_place(item);
    ++items_;
    switch (item.type) {
      case Item::Type::kInt: return take_int(item);
      case Item::Type::kSlice:
        out_.push_back(sliced(s_, from_[at_++], s_.value(item.cell)->as_slice()));
        if (s_.failed()) index_conflict(s_, p_, "output must be the indexed input");
        return !s_.failed();
      case Item::Type::kNew: out_.push_back(s_.new_dim(1)); return true;
      case Item::Type::kEllipsis:
        for (size_t rest = from_.size() - taken_; rest > 0; --rest) out_.push_back(from_[at_++]);
        return true;
      case Item::Type::kArray:
        if (!is_inside(item)) return false;
        shapes_.push_back(array_dims(s_, item));
        break;
      case Item::Type::kMask:
        if (!fits(item)) return false;
        shapes_.push_back(DimList{mask_size(item)});
        break;
    }
    at_ += item.takes;
    return true;
  }

  /// The dimensions, those of the index arrays joined; nothing after a conflict.
  std::optional<DimList> finish() {
    if (!arrays_) return out_;
    const auto joint = joint_shape(s_, shapes_);
    if (!joint) {
      index_conflict(s_, p_, "index arrays must broadcast");
      return std::nullopt;
    }
    const size_t where = apart_ ? 0 : array_place_;
    for (size_t i = 0; i < joint->size(); ++i) out_.insert(where + i, (*joint)[i]);
    return out_;
  }

 private:
  /// Arrays with something else between them put their dimensions in front.
  void note_place(const Item& item) {
    const bool array = item.type == Item::Type::kArray || item.type == Item::Type::kMask ||
                       (arrays_ && item.type == Item::Type::kInt);
    if (!array) return;
    if (!last_array_) array_place_ = out_.size();
    apart_ = apart_ || (last_array_ && *last_array_ + 1 != items_);
    last_array_ = items_;
  }

  bool take_int(const Item& item) {
    const auto value = s_.size(s_.int_dim(item.cell));
    if (value && !is_inside(*value)) return false;
    ++at_;
    return true;
  }

  bool is_inside(int64_t index) {
    const auto size = s_.size(from_[at_]);
    if (!size || (index >= -*size && index < *size)) return true;
    s_.conflict(core::Code::kValueArgument, "index must be in [{}, {}) for axis {}, got {} for {}",
                -*size, *size, at_, index, s_.describe(p_.rule, s_.arg(p_, 1)));
    return false;
  }

  /// Returns how many places a mask selects; of a tensor that is known at run time only.
  uint32_t mask_size(const Item& item) {
    const auto value = s_.is_tensor(item.cell) ? std::nullopt : s_.value(item.cell);
    return value ? s_.new_dim(count_true(*value)) : s_.new_dim();
  }

  /// A mask has the sizes of the axes that it takes.
  bool fits(const Item& item) {
    if (item.takes == 0) return true;
    const DimList sizes = array_dims(s_, item);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto own = s_.size(sizes[i]), all = s_.size(from_[at_ + i]);
      if (!own || !all || *own == *all) continue;
      s_.conflict(core::Code::kShapeConflict,
                  "a mask must have the sizes of the axes that it takes, got {} for axis {} of {}",
                  *own, at_ + i, s_.describe(p_.rule, s_.arg(p_, 1)));
      return false;
    }
    return true;
  }

  /// The numbers of a list that is known; those of a tensor are data.
  bool is_inside(const Item& item) {
    const auto value = s_.is_tensor(item.cell) ? std::nullopt : s_.value(item.cell);
    std::vector<const HostValue*> ahead;
    if (value) ahead.push_back(&*value);
    while (!ahead.empty()) {
      const HostValue& next = *ahead.back();
      ahead.pop_back();
      if (next.is_int() && !is_inside(next.as_int())) return false;
      if (!next.is_sequence()) continue;
      for (const HostValue& part : next.items()) ahead.push_back(&part);
    }
    return true;
  }

  Store& s_;
  const Propagator& p_;
  DimList from_, out_;
  size_t taken_;
  bool arrays_, apart_ = false;
  std::vector<DimList> shapes_;  // of the index arrays
  size_t at_ = 0, items_ = 0, array_place_ = 0;
  std::optional<size_t> last_array_;
};

/// States the shape of the output; its kind may follow, or be told, later.
Outcome finish_index(Store& s, const Propagator& p, const Dims& dims) {
  const Term out{CellId{s.arg(p, 0)}}, in{CellId{s.arg(p, 1)}};
  if (!s.kinds(in.cell.index).single()) RuleBuilder(s, RuleId{p.rule}).same_kind(out, in);
  if (s.constrain(s.shape(out.cell.index), dims) && !s.failed()) return Outcome::kDone;
  return index_conflict(s, p, "output must be the indexed input");
}

/// Indexes the dims that items take from one end.
std::optional<DimList> index_dims(Store& s, const Propagator& p, std::span<const Item> items,
                                  const DimList& from) {
  IndexedDims indexed(s, p, from, from.size(), false);
  for (const Item& item : items) {
    if (!indexed.take(item)) return std::nullopt;
  }
  return indexed.finish();
}

/// The rank is open: ints and slices take dims from the ends, the rest stays.
Outcome index_open(Store& s, const Propagator& p, std::span<const Item> items) {
  size_t left = 0, right = 0, split = items.size();
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].type == Item::Type::kArray || items[i].type == Item::Type::kMask ||
        is_open(s, items[i])) {
      return Outcome::kWait;
    }
    if (items[i].type == Item::Type::kEllipsis) split = i;
    (i < split ? left : right) += items[i].takes;
  }
  const uint32_t in = s.shape(s.arg(p, 1));
  if (left > 0) s.dim_from_left(in, left - 1, true);
  if (right > 0) s.dim_from_right(in, right - 1, true);
  const auto dims = s.both_ends(in, left, right);
  if (!dims) return s.failed() ? Outcome::kConflict : Outcome::kWait;
  const size_t behind = dims->suffix.size() - right;
  const std::span<const uint32_t> prefix(dims->prefix.data(), dims->prefix.size());
  const std::span<const uint32_t> suffix(dims->suffix.data(), dims->suffix.size());
  const auto before = index_dims(s, p, items.first(split), DimList(prefix.first(left)));
  if (!before) return Outcome::kConflict;
  const auto rest = items.subspan(std::min(split + 1, items.size()));
  const auto after = index_dims(s, p, rest, DimList(suffix.subspan(behind)));
  if (!after) return Outcome::kConflict;
  Dims out;
  out.seq = dims->seq;
  out.prefix = *before;
  out.prefix.append(prefix.data() + left, prefix.size() - left);
  out.suffix.append(suffix.data(), behind);
  out.suffix.append(after->data(), after->size());
  return finish_index(s, p, out);
}

Outcome run_index(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0), in = s.arg(p, 1), index = s.arg(p, 2);
  if (!narrow_index_kinds(s, out, in, index)) return Outcome::kConflict;
  const KindSet in_kinds = s.kinds(in);
  if (!in_kinds.decided()) return Outcome::kWait;
  if (in_kinds.subset_of(kSequence)) return index_sequence(s, out, in, index);
  if (!in_kinds.is_tensor()) return Outcome::kWait;

  auto items = classified_items(s, index);
  if (!items) return Outcome::kWait;
  size_t taken = 0, ellipses = 0;
  bool arrays = false;
  for (const Item& item : *items) {
    taken += item.takes;
    ellipses += item.type == Item::Type::kEllipsis;
    arrays = arrays || item.type == Item::Type::kArray || item.type == Item::Type::kMask;
  }
  if (ellipses > 1) return index_conflict(s, p, "an index may have one ellipsis");
  const uint32_t shape = s.shape(in);
  if (!s.narrow_ranks(shape, ranks_from(taken)) ||
      (s.rank(shape) && static_cast<size_t>(*s.rank(shape)) < taken)) {
    return index_conflict(s, p, "index must not take more dimensions than there are");
  }
  if (!s.rank(shape)) return index_open(s, p, *items);
  const DimList from = s.fixed_dims(shape);
  for (const Item& item : *items) {
    if (is_open(s, item)) return wait_with_rank(s, p, *items, from.size(), taken);
  }
  if (ellipses == 0) items->push_back({Item::Type::kEllipsis, kNone, 0});

  IndexedDims indexed(s, p, from, taken, arrays);
  for (const Item& item : *items) {
    if (!indexed.take(item)) return Outcome::kConflict;
  }
  const auto result = indexed.finish();
  if (!result) return Outcome::kConflict;
  Dims dims;
  dims.prefix = *result;
  return finish_index(s, p, dims);
}

}  // namespace

void RuleBuilder::index(Term out, Term in, Term index) {
  kind(in, kTensor | kSequence);
  kind(index,
       kScalarInt | kScalarBool | kSliceKind | kNoneKind | kEllipsisKind | kSequence | kIntegral);
  store_->post(rule_.index, run_index, {out.cell.index, in.cell.index, index.cell.index});
}

void RuleBuilder::gather(Term out, Term table, Term indices) {
  kind(indices, kTensorInt);
  same_kind(out, table);
  when_rank_known(table, [out, table, indices](RuleBuilder& b, int rank) {
    Store& s = b.store();
    const DimList rest = s.fixed_dims(s.shape(table.cell.index));
    if (rank < 1) {
      b.fail(core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                        "table must have at least 1 dimension, got []"));
      return;
    }
    // indices · table[1:], whatever the rank of the indices is.
    Dims in, dims;
    in.seq = dims.seq = s.new_seq();
    for (size_t i = 1; i < rest.size(); ++i) dims.suffix.push_back(rest[i]);
    if (!s.constrain(s.shape(indices.cell.index), in) ||
        !s.constrain(s.shape(out.cell.index), dims)) {
      s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                                 "output must have the dimensions of {} and those of {} after its "
                                 "first, got {}",
                                 s.describe(b.rule().index, indices.cell.index),
                                 s.describe(b.rule().index, table.cell.index),
                                 s.describe(b.rule().index, out.cell.index)));
    }
  });
  kind(out, kTensor);
}

}  // namespace mithril::infer
