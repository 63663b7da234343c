// NumPy indexing: ints, slices, none, ellipsis, integer arrays, boolean masks; and gather.
#include <algorithm>

#include "core/slice.h"
#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

using core::HostValue;

/// One item of an index, with the dims of the input that it takes.
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

std::optional<Item> classify(Store& s, uint32_t cell) {
  const KindSet kinds = s.kinds(cell);
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
  const bool ok = s.narrow_ranks(s.shape(s.arg(p, 0)), rank_bit(out));
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

Outcome run_index(Store& s, const Propagator& p) {
  const uint32_t out_cell = s.arg(p, 0), in_cell = s.arg(p, 1), index_cell = s.arg(p, 2);
  if (!narrow_index_kinds(s, out_cell, in_cell, index_cell)) return Outcome::kConflict;
  const KindSet in_kinds = s.kinds(in_cell);
  if (!in_kinds.decided()) return Outcome::kWait;
  if (!in_kinds.is_tensor()) {
    if (!in_kinds.subset_of(kSequence)) return Outcome::kWait;
    const auto at = s.known_value(index_cell);
    const auto items = s.items(in_cell);
    if (!items && !narrow_by_elements(s, out_cell, in_cell, index_cell)) return Outcome::kConflict;
    if (!at || !items) return Outcome::kWait;
    const auto n = static_cast<int64_t>(items->size());
    if (at->is_int()) {
      if (at->as_int() < -n || at->as_int() >= n) {
        return s.conflict(core::Code::kValueArgument, "index must be in [{}, {}), got {}", -n, n,
                          at->as_int());
      }
      const int64_t i = at->as_int() < 0 ? at->as_int() + n : at->as_int();
      return s.unify_cells(out_cell, (*items)[static_cast<size_t>(i)]) ? Outcome::kDone
                                                                       : Outcome::kConflict;
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
    const bool ok = s.set_items(out_cell, part, in_kinds.meets(kListKind));
    return ok ? Outcome::kDone : Outcome::kConflict;
  }
  // --- the items
  std::vector<Item> items;
  DimList cells = {index_cell};
  // A list whose items are wires is a tuple of indices: what a variadic input of a node is.
  const bool wires = s.kinds(index_cell) == kListKind && !s.value(index_cell);
  if (s.kinds(index_cell) == kTupleKind || wires) {
    const auto parts = s.items(index_cell);
    if (!parts) return Outcome::kWait;
    cells = *parts;
  }
  size_t taken = 0, ellipses = 0;
  bool arrays = false;
  for (const uint32_t cell : cells) {
    const auto item = classify(s, cell);
    if (!item) return Outcome::kWait;
    items.push_back(*item);
    taken += item->takes;
    ellipses += item->type == Item::Type::kEllipsis;
    arrays = arrays || item->type == Item::Type::kArray || item->type == Item::Type::kMask;
  }
  if (ellipses > 1) return index_conflict(s, p, "an index may have one ellipsis");
  const uint32_t in = s.shape(in_cell), out = s.shape(out_cell);
  if (!s.narrow_ranks(in, ranks_from(taken)) ||
      (s.rank(in) && static_cast<size_t>(*s.rank(in)) < taken)) {
    return index_conflict(s, p, "index must not take more dimensions than there are");
  }
  if (!s.rank(in)) return Outcome::kWait;
  const DimList from = s.fixed_dims(in);
  for (const Item& item : items) {
    const bool slice = item.type == Item::Type::kSlice, array = item.type == Item::Type::kArray;
    if ((slice && !s.value(item.cell)) ||
        (array && s.is_tensor(item.cell) && !s.rank(s.shape(item.cell)))) {
      return wait_with_rank(s, p, items, from.size(), taken);
    }
  }
  if (ellipses == 0) items.push_back({Item::Type::kEllipsis, kNone, 0});
  // --- the result
  DimList result;
  std::vector<DimList> shapes;
  size_t at = 0, array_place = 0;
  bool apart = false;  // arrays with something else between them: their dims go in front
  int last_array = -1;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    const bool advanced = item.type == Item::Type::kArray || item.type == Item::Type::kMask ||
                          (arrays && item.type == Item::Type::kInt);
    if (advanced) {
      if (last_array < 0) array_place = result.size();
      if (last_array >= 0 && last_array + 1 != static_cast<int>(i)) apart = true;
      last_array = static_cast<int>(i);
    }
    switch (item.type) {
      case Item::Type::kInt: {
        const auto size = s.size(from[at]);
        const auto value = s.size(s.int_dim(item.cell));
        if (size && value && (*value < -*size || *value >= *size)) {
          return s.conflict(core::Code::kValueArgument,
                            "index must be in [{}, {}) for axis {}, got {} for {}", -*size, *size,
                            at, *value, s.describe(p.rule, in_cell));
        }
        ++at;
        break;
      }
      case Item::Type::kSlice: {
        const auto value = s.value(item.cell);
        result.push_back(sliced(s, from[at++], value->as_slice()));
        if (s.failed()) return index_conflict(s, p, "output must be the indexed input");
        break;
      }
      case Item::Type::kNew: result.push_back(s.new_dim(1)); break;
      case Item::Type::kEllipsis:
        for (size_t rest = from.size() - taken; rest > 0; --rest) result.push_back(from[at++]);
        break;
      case Item::Type::kArray: {
        if (s.is_tensor(item.cell)) {
          shapes.push_back(s.fixed_dims(s.shape(item.cell)));
        } else {
          SmallVector<int64_t, 8> sizes;
          bool bools = false;
          list_shape(*s.value(item.cell), sizes, bools);
          shapes.emplace_back();
          for (const int64_t size : sizes) shapes.back().push_back(s.new_dim(size));
        }
        ++at;
        break;
      }
      case Item::Type::kMask:  // how many are true is known at run time only
        shapes.push_back(DimList{s.new_dim()});
        at += item.takes;
        break;
    }
  }
  if (arrays) {
    const auto joint = joint_shape(s, shapes);
    if (!joint) return index_conflict(s, p, "index arrays must broadcast");
    const size_t where = apart ? 0 : array_place;
    for (size_t i = 0; i < joint->size(); ++i) result.insert(where + i, (*joint)[i]);
  }
  Dims dims;
  dims.prefix = result;
  if (s.constrain(out, dims) && !s.failed()) return Outcome::kDone;
  return index_conflict(s, p, "output must be the indexed input");
}

}  // namespace

void RuleBuilder::index(Term out, Term in, Term index) {
  kind(in, kTensor | kSequence);
  kind(index, kScalarInt | kSliceKind | kNoneKind | kEllipsisKind | kSequence | kIntegral);
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
