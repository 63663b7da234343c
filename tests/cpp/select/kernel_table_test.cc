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

TEST(KernelTable, KnowsWhatOpsItHasRowsFor) {
  EXPECT_TRUE(kTable.has("exp"));
  EXPECT_FALSE(kTable.has("tanh"));
  EXPECT_EQ(kTable.rows_of("exp").size(), 4u);
}

}  // namespace
}  // namespace mithril::select
