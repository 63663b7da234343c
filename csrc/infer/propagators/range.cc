// Lengths of ranges: of Python's slices of an axis, and of arange.
#include <algorithm>

#include "core/checked.h"
#include "core/slice.h"
#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

constexpr int64_t kSensible = int64_t{1} << 40;  // larger sizes are not searched for

Outcome range_conflict(Store& s, uint32_t out, std::string_view what, uint32_t size,
                       const Range& range) {
  const auto print = [&s](uint32_t dim) { return dim == kNone ? std::string() : s.print_dim(dim); };
  s.replace_error(core::fail(
      core::ErrorKind::kShape, core::Code::kShapeConflict, "{} {}:{}:{}{} does not have length {}",
      what, print(range.start), print(range.stop), range.step,
      size == kNone ? "" : " of an axis of size " + print(size), s.print_dim(out)));
  return Outcome::kConflict;
}

/// out = the expression, kept up to date; done unless that fails.
Outcome define_length(Store& s, uint32_t out, Dim length) {
  post_definition(s, out, length);
  return s.failed() ? Outcome::kConflict : Outcome::kDone;
}

bool never_negative(Store& s, Dim e) { return s.bounds_of(e).low >= 0; }
bool never_positive(Store& s, Dim e) { return s.bounds_of(e).high <= 0; }

/// ceil((stop - start) / step), 0 where that is negative; nullopt: not known which.
std::optional<Dim> length_between(Store& s, Dim start, Dim stop, int64_t step) {
  DimTable& t = s.table();
  const Dim distance = step > 0 ? t.sub(stop, start) : t.sub(start, stop);
  if (never_positive(s, distance)) return Dim(0);
  if (!never_negative(s, distance) || step == INT64_MIN) return std::nullopt;
  return t.ceil_div(distance, Dim(step > 0 ? step : -step));
}

/// Tells where a bound of a slice lies on an axis of that size; nullopt: not known.
std::optional<Dim> clamped(Store& s, Dim bound, Dim size) {
  DimTable& t = s.table();
  if (s.bounds_of(bound).high < 0) {
    const Dim from_end = t.add(bound, size);
    if (never_negative(s, from_end)) return from_end;
    return never_positive(s, from_end) ? std::optional(Dim(0)) : std::nullopt;
  }
  if (!never_negative(s, bound)) return std::nullopt;
  if (never_negative(s, t.sub(size, bound))) return bound;
  return never_negative(s, t.sub(bound, size)) ? std::optional(size) : std::nullopt;
}

/// The length of a slice in symbols, where no case is left open.
std::optional<Dim> slice_length(Store& s, uint32_t size, const Range& range) {
  const auto n = s.expression(size);
  if (!n) return std::nullopt;
  if (range.step < 0) {
    if (range.start != kNone || range.stop != kNone) return std::nullopt;
    return range.step == INT64_MIN ? std::nullopt
                                   : std::optional(s.table().ceil_div(*n, Dim(-range.step)));
  }
  std::optional<Dim> start(Dim(0)), stop(n);
  if (range.start != kNone) {
    const auto e = s.expression(range.start);
    start = e ? clamped(s, *e, *n) : std::nullopt;
  }
  if (range.stop != kNone) {
    const auto e = s.expression(range.stop);
    stop = e ? clamped(s, *e, *n) : std::nullopt;
  }
  return start && stop ? length_between(s, *start, *stop, range.step) : std::nullopt;
}

/// The sizes that give a slice its length. Lengths do not fall while the size grows, unless one
/// end is counted from the front, the other from the end, and they approach each other.
std::optional<Bounds> sizes_of_slice(std::optional<int64_t> start, std::optional<int64_t> stop,
                                     int64_t step, int64_t length) {
  if (start && stop && (step > 0 ? *start < 0 && *stop >= 0 : *start >= 0 && *stop < 0)) {
    return std::nullopt;
  }
  const auto at = [&](int64_t n) { return core::slice_indices(start, stop, step, n).length; };
  const auto least = [&](int64_t wanted) {  // the least size with at least that length
    int64_t low = 0, high = kSensible;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (at(middle) >= wanted) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  };
  if (length < 0 || length > kSensible / 4) return std::nullopt;
  if (at(kSensible) < length) return Bounds{1, 0};
  return Bounds{least(length), at(kSensible) <= length ? INT64_MAX : least(length + 1) - 1};
}

struct Ends {
  bool start, stop;
};

/// The range of a relation: ends are its last arguments, in order, where they are given.
Range range_of(Store& s, const Propagator& p, uint32_t first) {
  const Ends& ends = s.extra<Ends>(p);
  Range range;
  if (ends.start) range.start = s.arg(p, first++);
  if (ends.stop) range.stop = s.arg(p, first);
  range.step = p.data;
  return range;
}

void post_range(Store& s, PropagateFn fn, DimList args, const Range& range) {
  for (const uint32_t end : {range.start, range.stop}) {
    if (end != kNone) args.push_back(end);
  }
  const uint32_t extra = s.add_extra<const Ends>(
      std::make_shared<Ends>(Ends{range.start != kNone, range.stop != kNone}));
  const uint32_t rule = s.running() == kNone ? kNone : s.rule_of(s.running());
  s.post(rule, fn, args, true, range.step, extra);
}

std::optional<int64_t> known(Store& s, uint32_t dim) {
  return dim == kNone ? std::nullopt : s.size(dim);
}

Outcome run_slice_size(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0), size = s.arg(p, 1);
  const Range range = range_of(s, p, 2);
  const auto start = known(s, range.start), stop = known(s, range.stop);
  const bool open = (range.start != kNone && !start) || (range.stop != kNone && !stop);
  const auto fail = [&] { return range_conflict(s, out, "slice", size, range); };
  if (const auto n = s.size(size); n && !open) {
    const int64_t length = core::slice_indices(start, stop, range.step, *n).length;
    return s.assign(out, length) ? Outcome::kDone : fail();
  }
  if (const auto length = slice_length(s, size, range)) {
    return define_length(s, out, *length) == Outcome::kDone ? Outcome::kDone : fail();
  }
  const auto length = s.size(out);
  if (open || !length || s.forward()) return Outcome::kWait;
  const auto sizes = sizes_of_slice(start, stop, range.step, *length);
  return !sizes || s.narrow_bounds(size, *sizes) ? Outcome::kWait : fail();
}

Outcome run_range_size(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0);
  const Range range = range_of(s, p, 1);
  const auto fail = [&] { return range_conflict(s, out, "range", kNone, range); };
  const auto start = known(s, range.start), stop = known(s, range.stop);
  const int64_t stride = range.step > 0 ? range.step : -range.step;
  if (start && stop) {
    int64_t distance = 0;
    if (__builtin_sub_overflow(range.step > 0 ? *stop : *start, range.step > 0 ? *start : *stop,
                               &distance)) {
      return s.conflict(core::Code::kOverflow, "the range does not fit 64 bits");
    }
    return s.assign(out, core::steps_before(distance, range.step)) ? Outcome::kDone : fail();
  }
  const auto first = s.expression(range.start), last = s.expression(range.stop);
  if (first && last) {
    if (const auto length = length_between(s, *first, *last, range.step)) {
      return define_length(s, out, *length) == Outcome::kDone ? Outcome::kDone : fail();
    }
  }
  // (length - 1) * stride < distance <= length * stride, or no more than 0 of it.
  const auto length = s.size(out);
  if (!length || (!start && !stop) || s.forward()) return Outcome::kWait;
  if (*length > kSensible / stride) return Outcome::kWait;
  const int64_t most = *length * stride;
  Bounds distance{*length == 0 ? INT64_MIN : most - stride + 1, most};
  if (range.step < 0) distance = {-distance.high, *length == 0 ? INT64_MAX : -distance.low};
  const auto shifted = [](int64_t bound, int64_t by) {
    if (bound == INT64_MIN || bound == INT64_MAX) return bound;
    return core::checked_add(bound, by).value_or(bound < 0 ? INT64_MIN : INT64_MAX);
  };
  if (start) {
    const Bounds ends{shifted(distance.low, *start), shifted(distance.high, *start)};
    return s.narrow_bounds(range.stop, ends) ? Outcome::kWait : fail();
  }
  const auto negative = [](int64_t bound) {
    return bound == INT64_MIN ? INT64_MAX : bound == INT64_MAX ? INT64_MIN : -bound;
  };
  const Bounds ends{shifted(negative(distance.high), *stop),
                    shifted(negative(distance.low), *stop)};
  return s.narrow_bounds(range.start, ends) ? Outcome::kWait : fail();
}

}  // namespace

void post_slice_size(Store& s, uint32_t out, uint32_t size, const Range& range) {
  post_range(s, run_slice_size, {out, size}, range);
}

void post_range_size(Store& s, uint32_t out, const Range& range) {
  post_range(s, run_range_size, {out}, range);
}

}  // namespace mithril::infer
