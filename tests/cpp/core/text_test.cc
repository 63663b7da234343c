#include "core/text.h"

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

TEST(Text, LowersAsciiLettersOnly) {
  EXPECT_EQ(lower_case("AZ az_09[`{@"), "az az_09[`{@");
  EXPECT_EQ(lower_case("\xC3\x84"), "\xC3\x84");  // "Ä" in UTF-8
  EXPECT_EQ(lower_case(""), "");
}

}  // namespace
}  // namespace mithril::core
