#include "core/location.h"

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

TEST(Location, PrintsTheBaseNameAndTheLine) {
  EXPECT_EQ(to_string(Location{"/home/me/train.py", 14, ""}), "train.py:14");
  EXPECT_EQ(to_string(Location{"train.py", 3, "mlp"}), "train.py:3");
  EXPECT_EQ(to_string(Location{"C:\\work\\train.py", 3, ""}), "train.py:3");
}

TEST(Location, IsEmptyWhenTheLineIsUnknown) {
  EXPECT_FALSE(Location{}.known());
  EXPECT_EQ(to_string(Location{"train.py", 0, ""}), "");
}

}  // namespace
}  // namespace mithril::core
