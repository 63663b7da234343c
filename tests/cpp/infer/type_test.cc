#include "infer/type.h"

#include <gtest/gtest.h>

namespace mithril::infer {
namespace {

Type tuple_of(std::vector<Type> items) {
  Type out(kTupleKind);
  out.containers.push_back({false, false, std::move(items)});
  return out;
}
Type many(KindSet kind, Type item) {
  Type out(kind);
  out.containers.push_back({kind == kListKind, true, {std::move(item)}});
  return out;
}

TEST(Type, PrintsNestedContainers) {
  EXPECT_EQ(to_string(Type(kTensorInt | kNoneKind)), "int tensor or none");
  EXPECT_EQ(to_string(many(kListKind, tuple_of({kScalarInt, kTensor}))),
            "list[tuple[int, tensor]]");
  Type open = many(kTupleKind, kScalarInt);
  open.kinds = open.kinds | kScalarInt;
  EXPECT_EQ(to_string(open), "int or tuple[int, ...]");
}

TEST(Type, IntersectsItemByItem) {
  const Type fixed = tuple_of({kScalarInt | kScalarFloat, kStrKind});
  EXPECT_EQ(to_string(intersect(fixed, many(kTupleKind, kScalarInt | kStrKind))),
            "tuple[int, str]");
  EXPECT_EQ(intersect(fixed, kAny), fixed);
  EXPECT_EQ(intersect(kTupleKind, fixed), fixed);
  EXPECT_TRUE(intersect(fixed, many(kTupleKind, kScalarInt)).kinds.empty());
  EXPECT_TRUE(intersect(fixed, tuple_of({kScalarInt})).kinds.empty());
  EXPECT_TRUE(intersect(fixed, many(kListKind, kAny)).kinds.empty());
}

TEST(Type, TooManyAlternativesKeepTheFirstOperands) {
  Type a(kTupleKind), b(kTupleKind);
  for (size_t length = 0; length < 20; ++length) {
    a.containers.push_back({false, false, std::vector<Type>(length, kScalarInt)});
  }
  b.containers.push_back({false, true, {Type(kScalarInt | kStrKind)}});
  EXPECT_EQ(intersect(a, b), a);
}

TEST(Interval, HoldsNumbersBetweenItsEnds) {
  const Interval open{core::HostValue(), core::HostValue(3)};
  EXPECT_TRUE(contains(open, core::HostValue(-1e300)));
  EXPECT_TRUE(contains(open, core::HostValue(3)));
  EXPECT_FALSE(contains(open, core::HostValue(3.5)));
  EXPECT_FALSE(contains(open, core::HostValue(std::string("2"))));
  EXPECT_EQ(to_string(open), "[..., 3]");
}

}  // namespace
}  // namespace mithril::infer
