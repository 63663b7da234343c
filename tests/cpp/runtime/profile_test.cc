#include "runtime/profile.h"

#include <thread>

#include <gtest/gtest.h>

namespace mithril::runtime {
namespace {

TEST(Profile, IsOffUnlessAskedFor) { EXPECT_EQ(Profile::process(), nullptr); }

TEST(Profile, AddsUpOverThreads) {
  Profile profile;
  Profile::Counter& counter = profile.counter("add");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) counter.add(2, 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto rows = profile.rows();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].count, 4000);
  EXPECT_EQ(rows[0].bytes, 12000);
  EXPECT_DOUBLE_EQ(rows[0].seconds, 8000e-9);
}

TEST(Profile, ShowsWhatRanWithTheMostExpensiveFirst) {
  Profile profile;
  profile.counter("never");
  profile.counter("cheap").add(1'000'000, 500'000);
  profile.counter(std::string(100, 'x')).add(3'000'000, 0);
  const std::string text = print(profile.rows());
  EXPECT_EQ(text.find("never"), std::string::npos);
  EXPECT_LT(text.find("xxx..."), text.find("cheap"));
  EXPECT_NE(text.find("        1        1.000    25.0        0.500      0.50\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("4.000\n"), std::string::npos) << text;
  EXPECT_EQ(print({}), "");
}

}  // namespace
}  // namespace mithril::runtime
