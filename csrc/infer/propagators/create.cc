// Shapes of tensors that are made from host values: ranges and nested sequences.
#include <cmath>

#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

using core::HostValue;

Outcome run_arange(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0);
  const uint32_t shape = s.shape(out);
  if (!s.narrow_ranks(shape, rank_bit(1))) {
    return s.conflict(core::Code::kShapeRank, "output must have 1 dimension, got {}",
                      s.print_shape(out));
  }
  if (!s.rank(shape)) return Outcome::kWait;
  const uint32_t dim = s.fixed_dims(shape)[0];
  const auto fail = [&] {
    s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                               "the range does not have the output's length, got {}",
                               s.describe(p.rule, out)));
    return Outcome::kConflict;
  };
  const uint32_t ends[] = {s.arg(p, 1), s.arg(p, 2)};
  const auto start = s.known_value(ends[0]), stop = s.known_value(ends[1]),
             step = s.known_value(s.arg(p, 3));
  if (step && (step->is_int() || step->is_double()) && step->as_number() == 0) {
    return s.conflict(core::Code::kValueArgument, "step must not be 0");
  }
  for (const auto& number : {start, stop, step}) {
    if (number && number->is_double() && !std::isfinite(number->as_number())) {
      return s.conflict(core::Code::kValueArgument, "start, stop and step must be finite, got {}",
                        core::to_string(*number));
    }
  }
  const bool ints = s.kinds(ends[0]) == kScalarInt && s.kinds(ends[1]) == kScalarInt;
  if (ints && step && step->is_int() && step->as_int() != INT64_MIN) {
    post_range_size(s, dim, {s.int_dim(ends[0]), s.int_dim(ends[1]), step->as_int()});
    return s.failed() ? fail() : Outcome::kDone;
  }
  const auto number = [](const std::optional<HostValue>& v) {
    return v && (v->is_int() || v->is_double());
  };
  if (!number(start) || !number(stop) || !number(step)) return Outcome::kWait;
  const double length = std::ceil((stop->as_number() - start->as_number()) / step->as_number());
  if (!(length < 9.0e18)) {
    return s.conflict(core::Code::kValueArgument, "the range is not finite");
  }
  return s.assign(dim, length <= 0 ? 0 : static_cast<int64_t>(length)) ? Outcome::kDone : fail();
}

/// Dims and element kinds of a nested sequence; false when it is ragged or holds something else.
bool nested_shape(const HostValue& value, size_t depth, SmallVector<int64_t, 8>& shape,
                  KindSet& kinds) {
  if (value.is_sequence()) {
    const auto n = static_cast<int64_t>(value.items().size());
    if (depth == shape.size()) {
      shape.push_back(n);
    } else if (shape[depth] != n) {
      return false;
    }
    for (const HostValue& item : value.items()) {
      if (!nested_shape(item, depth + 1, shape, kinds)) return false;
    }
    return true;
  }
  if (depth != shape.size()) return false;
  if (value.is_symbolic()) {
    kinds = kinds | kTensorInt;
    return true;
  }
  const KindSet kind = as_tensor(kind_of(value));
  if (!(value.is_bool() || value.is_int() || value.is_double())) return false;
  kinds = kinds | kind;
  return true;
}

/// A nest without a complete value: its depth is the rank, its length the first size.
Outcome relate_open_nest(Store& s, uint32_t tensor, uint32_t nested) {
  constexpr int64_t kMostItems = 64;
  const uint32_t shape = s.shape(tensor);
  const bool deep = s.kinds(nested).subset_of(kSequence);
  if (deep && !s.narrow_ranks(shape, ranks_from(1))) return Outcome::kConflict;
  const auto rank = s.rank(shape);
  if (!rank) return Outcome::kWait;
  if (*rank == 0) {
    const bool ok = s.narrow(nested, as_scalar(s.kinds(tensor))) &&
                    s.narrow(tensor, as_tensor(s.kinds(nested)));
    return ok ? Outcome::kWait : Outcome::kConflict;
  }
  if (!s.narrow(nested, kSequence)) return Outcome::kConflict;
  const uint32_t first = s.fixed_dims(shape)[0];
  if (const auto items = s.items(nested)) {
    const bool ok = s.assign(first, static_cast<int64_t>(items->size()));
    return ok ? Outcome::kWait : Outcome::kConflict;
  }
  const auto length = s.size(first);
  if (!length || *length > kMostItems || !s.kinds(nested).single()) return Outcome::kWait;
  DimList items;
  for (int64_t i = 0; i < *length; ++i)
    items.push_back(s.new_cell(*rank == 1 ? kScalar : kSequence));
  const bool ok = s.set_items(nested, items, s.kinds(nested) == kListKind);
  return ok ? Outcome::kWait : Outcome::kConflict;
}

Outcome run_tensor_of(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0), nested = s.arg(p, 1);
  const KindSet kinds = s.kinds(nested);
  const auto value = s.value(nested);
  if (!value) {
    if (!kinds.is_scalar()) return s.forward() ? Outcome::kWait : relate_open_nest(s, out, nested);
    if (!s.narrow(out, as_tensor(kinds)) || !s.constrain(s.shape(out), Dims{})) {
      return Outcome::kConflict;
    }
    return kinds.single() ? Outcome::kDone : Outcome::kWait;
  }
  SmallVector<int64_t, 8> shape;
  KindSet found;
  // A first leaf fixes the depth; ragged lists are told by a depth or length that differs.
  const HostValue* probe = &*value;
  while (probe->is_sequence()) {
    shape.push_back(static_cast<int64_t>(probe->items().size()));
    if (probe->items().empty()) break;
    probe = &probe->items()[0];
  }
  if (!nested_shape(*value, 0, shape, found)) {
    return s.conflict(core::Code::kValueArgument,
                      "expected a number or evenly nested numbers, got {}",
                      s.describe(p.rule, nested));
  }
  // The widest of bool, int, float; nothing at all is float, as in NumPy.
  KindSet element = kFloating;
  if (!found.empty() && !found.meets(kFloating)) {
    element = found.meets(kTensorInt) ? kTensorInt : kTensorBool;
  }
  Dims dims;
  for (const int64_t size : shape) dims.prefix.push_back(s.new_dim(size));
  if (!s.narrow(out, element)) return Outcome::kConflict;
  if (s.constrain(s.shape(out), dims) && !s.failed()) return Outcome::kDone;
  s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                             "the value's shape is not the output's, got {}",
                             s.describe(p.rule, out)));
  return Outcome::kConflict;
}

}  // namespace

void RuleBuilder::arange(Term out, Term start, Term stop, Term step) {
  kind(out, kNumeric);
  store_->post(rule_.index, run_arange,
               {out.cell.index, start.cell.index, stop.cell.index, step.cell.index});
}

void RuleBuilder::tensor_of(Term out, Term nested) {
  kind(out, kTensor);
  store_->post(rule_.index, run_tensor_of, {out.cell.index, nested.cell.index});
}

}  // namespace mithril::infer
