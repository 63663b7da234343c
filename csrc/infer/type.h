// What a user says that a wire carries: kinds, and what tuples and lists hold, to any depth.
#pragma once
#include <string>
#include <vector>

#include "infer/kind.h"

namespace mithril::infer {

struct Container;

/// A set of kinds. For tuples and lists in it, `containers` lists what they may be; a kind of
/// container that no alternative has may hold anything. Kinds may be empty: nothing fits.
struct Type {
  KindSet kinds;
  std::vector<Container> containers;

  Type();
  Type(KindSet set);  // NOLINT: a set of kinds is a type
  bool is_plain() const { return containers.empty(); }
  bool operator==(const Type&) const;
};

/// One alternative: `items` one by one, or any number of `items[0]`.
struct Container {
  bool is_list = false;
  bool any_length = false;
  std::vector<Type> items;

  KindSet kind() const { return is_list ? kListKind : kTupleKind; }
  bool fits_length(size_t length) const { return any_length || items.size() == length; }
  const Type& item(size_t i) const { return items[any_length ? 0 : i]; }
  bool operator==(const Container&) const;
};

inline Type::Type() = default;
inline Type::Type(KindSet set) : kinds(set) {}

/// Tells which numbers a wire takes: an int or a float by itself, each element of a tensor whose
/// value is known. The ends belong to it; none leaves one open.
struct Interval {
  core::HostValue low, high;
};

/// Gives the type that fits both. Beyond 16 alternatives those of `a` are kept (sound, incomplete).
Type intersect(const Type& a, const Type& b);

/// "int tensor or tuple[int, ...] or none".
std::string to_string(const Type& type);
/// Tells whether a value is a number in the interval.
bool contains(const Interval& interval, const core::HostValue& value);
/// "[0, 10]"; "..." for an open end.
std::string to_string(const Interval& interval);

}  // namespace mithril::infer
