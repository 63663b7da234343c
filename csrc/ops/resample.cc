#include "ops/resample.h"

#include "ops/index_plan.h"

namespace mithril::ops {
namespace {

template <class T>
Value literal(Builder& b, const std::vector<T>& numbers, DType dtype) {
  return b.constant(literal_of(HostValue::list({numbers.begin(), numbers.end()}), dtype));
}

}  // namespace

Value take_along(Value x, size_t axis, const std::vector<int64_t>& places) {
  if (!x) return {};
  const auto at = static_cast<int64_t>(axis);
  const Value front = at == 0 ? x : swap_axes(x, 0, at);
  const Value taken = ir::apply("gather", {front, literal(*x.builder, places, DType::kInt64)});
  return at == 0 ? taken : swap_axes(taken, 0, at);
}

Value resampled(Value x, size_t axis, const Taps& taps) {
  const Value taken = take_along(x, axis, taps.places);
  if (!taken || taps.weights.empty()) return taken;
  const auto count = static_cast<int64_t>(taps.places.size()) / taps.count;
  const auto at = static_cast<std::ptrdiff_t>(axis);
  Shape apart = taken.shape();
  apart[axis] = infer::Dim(count);
  apart.insert(apart.begin() + at + 1, infer::Dim(taps.count));
  Shape beside(apart.size(), infer::Dim(1));
  beside[axis] = apart[axis];
  beside[axis + 1] = apart[axis + 1];
  const Value weights = reshape(literal(*x.builder, taps.weights, x.dtype()), shape_value(beside));
  return sum(reshape(taken, shape_value(apart)) * weights, HostValue(at + 1));
}

std::optional<int64_t> known_size(Builder& b, Value x, size_t axis) {
  const infer::Dim size = x.shape()[axis];
  if (size.known()) return size.value();
  unsupported(b, b.op().name + ": the size of 'input' along axis " + std::to_string(axis) +
                     " must be known when the model is compiled");
  return std::nullopt;
}

}  // namespace mithril::ops
