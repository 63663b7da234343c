#include "ops/window.h"

#include <algorithm>
#include <cctype>

namespace mithril::ops {

HostValue window_pair(const HostValue& value) {
  return value.is_sequence() ? value : HostValue::tuple({value, value});
}

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

HostValue same_padding(Builder& b, const Shape& window) {
  HostValue::Tuple out;
  for (const infer::Dim size : window) {
    if (!size.known() || size.value() % 2 == 0) {
      b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                        "{}: padding 'same' needs an odd kernel_size, got {}", b.op().name,
                        b.graph().dims.print(size)));
      return {};
    }
    out.push_back(HostValue::ints({size.value() / 2, size.value() / 2}));
  }
  return HostValue::tuple(std::move(out));
}

}  // namespace

HostValue window_padding(Builder& b, const HostValue& padding, const Shape& window) {
  if (padding.is_string()) {
    const std::string name = lower(padding.as_string());
    if (name == "same") return same_padding(b, window);
    if (name == "valid") return window_padding(b, HostValue(0), window);
    b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "{}: padding must be 'same', 'valid', an int or pairs, got '{}'", b.op().name,
                      padding.as_string()));
    return {};
  }
  HostValue::Tuple out;
  const HostValue pairs = window_pair(padding);
  for (const HostValue& side : pairs.items()) out.push_back(window_pair(side));
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

Term resolved_padding(RuleBuilder& r, Term padding, Term kernel) {
  const Term out = r.fresh(infer::kTupleKind);
  r.resolve_padding(out, padding, kernel, 2);
  return out;
}

}  // namespace mithril::ops
