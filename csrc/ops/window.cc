#include "ops/window.h"

#include <algorithm>

#include "core/text.h"

namespace mithril::ops {

HostValue each_axis(const HostValue& value, size_t axes) {
  return value.is_sequence() ? value : HostValue::tuple(HostValue::Tuple(axes, value));
}

namespace {

HostValue same_paddings(Builder& b, const Shape& window, const std::vector<int64_t>& dilation) {
  HostValue::Tuple out;
  for (size_t i = 0; i < window.size(); ++i) {
    if (!window[i].known()) {
      b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                        "{}: padding 'same' needs a known kernel_size, got {}", b.op().name,
                        b.graph().dims.print(window[i])));
      return {};
    }
    out.push_back(same_padding(window[i].value(), dilation[i]));
  }
  return HostValue::tuple(std::move(out));
}

std::vector<int64_t> ints(const HostValue& value) {
  std::vector<int64_t> out;
  for (const HostValue& item : value.items()) out.push_back(item.as_int());
  return out;
}

bool is_ints(const HostValue& value, size_t count) {
  return value.is_sequence() && value.items().size() == count &&
         std::all_of(value.items().begin(), value.items().end(),
                     [](const HostValue& item) { return item.is_int(); });
}

bool is_pairs(const HostValue& value, size_t count) {
  return value.is_sequence() && value.items().size() == count &&
         std::all_of(value.items().begin(), value.items().end(),
                     [](const HostValue& item) { return is_ints(item, 2); });
}

// The argument as one number for each axis.
std::optional<std::vector<int64_t>> numbers(Builder& b, const char* name, const HostValue& value,
                                            size_t axes) {
  const HostValue all = each_axis(value, axes);
  if (is_ints(all, axes)) return ints(all);
  unsupported(b, b.op().name + ": '" + name + "' must be known when the model is compiled");
  return std::nullopt;
}

template <class T>
std::vector<T> slice(const std::vector<T>& items, size_t first, size_t count) {
  const auto start = items.begin() + static_cast<std::ptrdiff_t>(first);
  return {start, start + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

HostValue same_padding(int64_t window, int64_t dilation) {
  const int64_t total = (window - 1) * dilation;
  return HostValue::ints({total / 2, total - total / 2});
}

HostValue window_padding(Builder& b, const HostValue& padding, const Shape& window,
                         const std::vector<int64_t>& dilation) {
  if (padding.is_string()) {
    const std::string name = core::lower_case(padding.as_string());
    if (name == "same") return same_paddings(b, window, dilation);
    if (name == "valid") return window_padding(b, HostValue(0), window, dilation);
    b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "{}: padding must be 'same', 'valid', an int or pairs, got '{}'", b.op().name,
                      padding.as_string()));
    return {};
  }
  if (window.size() == 1 && is_ints(padding, 2)) return HostValue::tuple({padding});
  HostValue::Tuple out;
  const HostValue sides = each_axis(padding, window.size());
  for (const HostValue& side : sides.items()) out.push_back(each_axis(side, 2));
  return HostValue::tuple(std::move(out));
}

bool are_known(Builder& b, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!b.has(name)) continue;
    unsupported(b, b.op().name + ": '" + name + "' must be known when the model is compiled");
    return false;
  }
  return true;
}

Windows Windows::part(size_t first, size_t count) const {
  return {slice(size, first, count),
          slice(stride, first, count),
          slice(dilation, first, count),
          slice(padding, first, count),
          beyond.empty() ? beyond : slice(beyond, first, count),
          counts_padding};
}

Windows Windows::with_unit_axis(bool in_front) const {
  Windows out = *this;
  const auto insert = [in_front](auto& items, auto item) {
    items.insert(in_front ? items.begin() : items.end(), item);
  };
  for (auto* items : {&out.size, &out.stride, &out.dilation}) insert(*items, int64_t{1});
  insert(out.padding, std::array<int64_t, 2>{0, 0});
  if (!beyond.empty()) insert(out.beyond, int64_t{0});
  return out;
}

Attrs Windows::attrs(bool with_size) const {
  HostValue::Tuple pairs;
  for (const auto& [low, high] : padding) pairs.push_back(HostValue::ints({low, high}));
  Attrs out = {{"stride", HostValue::ints(stride)},
               {"padding", HostValue::tuple(std::move(pairs))},
               {"dilation", HostValue::ints(dilation)}};
  if (with_size) out.set("kernel_size", HostValue::ints(size));
  return out;
}

Windows windows_of(const Attrs& attrs) {
  const auto of = [&](const char* name) { return ints(*attrs.find(name)); };
  Windows out{of("kernel_size"), of("stride"), of("dilation"), {}, {}};
  for (const HostValue& pair : attrs.find("padding")->items()) {
    out.padding.push_back({pair.items()[0].as_int(), pair.items()[1].as_int()});
  }
  return out;
}

std::optional<Windows> windows_of_layer(Builder& b, const Shape& window, bool needs_size) {
  if (!are_known(b, {"stride", "padding", "dilation"})) return std::nullopt;
  const size_t axes = window.size();
  const HostValue sizes = shape_value(window);
  const HostValue& stride = b.attr("stride");
  const auto steps = numbers(b, "stride", stride.is_none() ? sizes : stride, axes);
  const auto gaps = numbers(b, "dilation", b.attr("dilation"), axes);
  if (!gaps) return std::nullopt;
  const HostValue padding = window_padding(b, b.attr("padding"), window, *gaps);
  const bool is_open = !ir::is_static(window) && !needs_size;
  const auto size =
      is_open ? std::optional(std::vector<int64_t>(axes)) : numbers(b, "kernel_size", sizes, axes);
  if (!b.status().ok()) return std::nullopt;
  if (!is_pairs(padding, axes)) {
    unsupported(b, b.op().name + ": 'padding' must be known when the model is compiled");
    return std::nullopt;
  }
  Windows out{*size, *steps, *gaps, {}, {}};
  for (const HostValue& pair : padding.items()) {
    out.padding.push_back({pair.items()[0].as_int(), pair.items()[1].as_int()});
  }
  return out;
}

Value with_last_axes(Value x, size_t replaced, std::initializer_list<infer::Dim> sizes) {
  if (!x) return {};
  Shape shape(x.shape().begin(), x.shape().end() - static_cast<std::ptrdiff_t>(replaced));
  shape.insert(shape.end(), sizes);
  return reshape(x, shape_value(shape));
}

Term resolved_padding(RuleBuilder& r, Term padding, Term kernel, Term dilation, int axes) {
  const Term out = r.fresh(infer::kTupleKind);
  r.resolve_padding(out, padding, kernel, axes, dilation);
  return out;
}

std::optional<std::vector<int64_t>> known_sizes_of(RuleBuilder& r, const char* op,
                                                   const char* argument, size_t axes) {
  const auto value = r.known(r.attr(argument));
  if (!value || value->is_none()) return std::nullopt;
  const HostValue all = each_axis(*value, axes);
  if (is_ints(all, axes)) return ints(all);
  r.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "{}: '{}' must be an int or {} ints, got {}", op, argument, axes,
                    core::to_string(*value)));
  return std::nullopt;
}

}  // namespace mithril::ops
