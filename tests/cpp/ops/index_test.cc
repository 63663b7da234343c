// Covers: ops/index.cc
#include <gtest/gtest.h>

#include "ir/registry.h"

namespace mithril::ops {
namespace {

using core::HostValue;

core::Result<HostValue> indexed(const HostValue& sequence, const HostValue& index) {
  const ir::OpDef& op = *ir::Registry::global().find("index");
  const HostValue operands[] = {sequence, index};
  const ir::Attrs attrs;
  ir::DimTable dims;
  return op.host({.operands = operands, .attrs = attrs, .dims = dims, .types = {}});
}

TEST(IndexOfASequence, CountsFromBothEndsAndStaysInside) {
  const HostValue items = HostValue::tuple({HostValue("a"), HostValue("b"), HostValue("c")});
  EXPECT_EQ(std::move(indexed(items, 0)).or_throw(), HostValue("a"));
  EXPECT_EQ(std::move(indexed(items, 2)).or_throw(), HostValue("c"));
  EXPECT_EQ(std::move(indexed(items, -3)).or_throw(), HostValue("a"));
  for (const int outside : {3, -4}) {
    const auto failed = indexed(items, outside);
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, core::Code::kIndexBounds);
  }
}

}  // namespace
}  // namespace mithril::ops
