#include "infer/type.h"

#include <algorithm>
#include <optional>

namespace mithril::infer {
namespace {

constexpr size_t kMostAlternatives = 16;

std::optional<Container> intersect(const Container& a, const Container& b) {
  if (a.is_list != b.is_list) return std::nullopt;
  const Container& shape = a.any_length ? b : a;
  if (!a.fits_length(shape.items.size()) || !b.fits_length(shape.items.size())) {
    return std::nullopt;
  }
  Container out{a.is_list, a.any_length && b.any_length, {}};
  for (size_t i = 0; i < shape.items.size(); ++i) {
    out.items.push_back(intersect(a.item(i), b.item(i)));
    if (out.items.back().kinds.empty()) return std::nullopt;
  }
  return out;
}

bool restricts(const Type& type, KindSet kind) {
  return std::any_of(type.containers.begin(), type.containers.end(),
                     [kind](const Container& c) { return c.kind() == kind; });
}

/// Adds what both allow of one kind of container; takes the kind away where that is nothing.
void add_common(Type& out, const Type& a, const Type& b, KindSet kind) {
  if (!out.kinds.meets(kind)) return;
  const bool by_a = restricts(a, kind), by_b = restricts(b, kind);
  std::vector<Container> common;
  for (const Container& x : (by_a ? a : b).containers) {
    if (x.kind() != kind) continue;
    if (!by_a || !by_b) {
      common.push_back(x);
      continue;
    }
    for (const Container& y : b.containers) {
      auto both = intersect(x, y);
      if (both && std::find(common.begin(), common.end(), *both) == common.end()) {
        common.push_back(std::move(*both));
      }
    }
  }
  if (common.empty() && (by_a || by_b)) out.kinds = out.kinds - kind;
  if (common.size() > kMostAlternatives) {
    common.clear();
    for (const Container& x : a.containers) {
      if (x.kind() == kind) common.push_back(x);
    }
  }
  out.containers.insert(out.containers.end(), common.begin(), common.end());
}

std::string to_string(const Container& container) {
  std::string out = container.is_list ? "list[" : "tuple[";
  for (size_t i = 0; i < container.items.size(); ++i) {
    if (i > 0) out += ", ";
    out += to_string(container.items[i]);
  }
  if (container.any_length && !container.is_list) out += ", ...";
  return out + "]";
}

}  // namespace

bool Type::operator==(const Type& o) const {
  return kinds == o.kinds && containers == o.containers;
}
bool Container::operator==(const Container& o) const {
  return is_list == o.is_list && any_length == o.any_length && items == o.items;
}

Type intersect(const Type& a, const Type& b) {
  Type out(a.kinds & b.kinds);
  for (const KindSet kind : {kTupleKind, kListKind}) add_common(out, a, b, kind);
  return out;
}

std::string to_string(const Type& type) {
  KindSet plain = type.kinds;
  for (const Container& c : type.containers) plain = plain - c.kind();
  std::string out = plain.empty() && !type.is_plain() ? "" : to_string(plain);
  for (const Container& c : type.containers) out += (out.empty() ? "" : " or ") + to_string(c);
  return out;
}

bool contains(const Interval& interval, const core::HostValue& value) {
  if (!value.is_int() && !value.is_double()) return false;
  const double number = value.as_number();
  return (interval.low.is_none() || number >= interval.low.as_number()) &&
         (interval.high.is_none() || number <= interval.high.as_number());
}

std::string to_string(const Interval& interval) {
  const auto end = [](const core::HostValue& v) {
    return v.is_none() ? std::string("...") : core::to_string(v);
  };
  return "[" + end(interval.low) + ", " + end(interval.high) + "]";
}

}  // namespace mithril::infer
