#include "core/slice.h"

#include <algorithm>

namespace mithril::core {

int64_t steps_before(int64_t distance, int64_t step) {
  if (distance <= 0) return 0;
  const int64_t stride = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
  return (distance - 1) / stride + 1;
}

SliceIndices slice_indices(std::optional<int64_t> start, std::optional<int64_t> stop, int64_t step,
                           int64_t size) {
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto place = [&](std::optional<int64_t> bound, int64_t otherwise) {
    return bound ? std::clamp(*bound < 0 ? *bound + size : *bound, low, high) : otherwise;
  };
  const int64_t first = place(start, step > 0 ? low : high);
  const int64_t last = place(stop, step > 0 ? high : low);
  return {first, last, step, steps_before(step > 0 ? last - first : first - last, step)};
}

SliceIndices slice_indices(const Slice& slice, int64_t size) {
  const auto number = [](const HostValue& v) {
    return v.is_int() ? std::optional(v.as_int()) : std::nullopt;
  };
  return slice_indices(number(slice.start), number(slice.stop), number(slice.step).value_or(1),
                       size);
}

}  // namespace mithril::core
