#include "select/kernel_table.h"

#include <array>

#include <gtest/gtest.h>

#include "ir/registry.h"

namespace mithril::select {
namespace {

bool never(const KernelRequest&) { return false; }
bool always(const KernelRequest&) { return true; }

const KernelDef kFirst[] = {{"exp", "never", OrderClass::kCanonical, true, never},
                            {"exp", "packed", OrderClass::kCanonical, true, always, nullptr,
                             EpilogueSupport::kNothing, true}};
const KernelDef kSecond[] = {
    {"exp", "second", OrderClass::kCanonical, true, always},
    {"exp", "blocks", OrderClass::kCanonical, true, always, nullptr, EpilogueSupport::kBlocks}};
constexpr std::array<KernelFamily, 2> kFamilies = {
    [] { return std::span<const KernelDef>(kFirst); },
    [] { return std::span<const KernelDef>(kSecond); }};
constexpr KernelTable kTable(kFamilies);

TEST(KernelTable, FindsTheFirstRowThatMatches) {
  const ir::OpDef* op = ir::Registry::global().find("exp");
  ASSERT_NE(op, nullptr);
  const ir::Node node;
  KernelRequest request{node, *op, {}, {}};
  EXPECT_STREQ(kTable.find(request)->name, "second");
  const tile::Program program;
  const Epilogue epilogue{program, {}, 0};
  request.epilogue = &epilogue;
  EXPECT_STREQ(kTable.find(request)->name, "blocks");
}

TEST(KernelTable, LeavesWhatItsMachineCannotToTheRest) {
  const ir::OpDef* op = ir::Registry::global().find("exp");
  ASSERT_NE(op, nullptr);
  constexpr std::array<KernelFamily, 1> kOwn = {[] { return std::span<const KernelDef>(kSecond); }};
  static const KernelDef kHost[] = {{"exp", "host", OrderClass::kCanonical, true, always}};
  constexpr std::array<KernelFamily, 1> kHosts = {[] { return std::span<const KernelDef>(kHost); }};
  const KernelTable rest(kHosts);
  const ir::Node node;
  const KernelRequest request{node, *op, {}, {}};
  const KernelTable able(kOwn, &rest, {always, "float64"});
  EXPECT_STREQ(able.find(request)->name, "second");
  EXPECT_EQ(able.lacks(kSecond[0], request), nullptr);
  const KernelTable unable(kOwn, &rest, {never, "float64"});
  EXPECT_STREQ(unable.find(request)->name, "host");
  EXPECT_STREQ(unable.lacks(kSecond[0], request), "float64");
  EXPECT_EQ(unable.lacks(kHost[0], request), nullptr);
}

TEST(KernelTable, KnowsWhatOpsItHasRowsFor) {
  EXPECT_TRUE(kTable.has("exp"));
  EXPECT_FALSE(kTable.has("tanh"));
  EXPECT_EQ(kTable.rows_of("exp").size(), 4u);
}

}  // namespace
}  // namespace mithril::select
