#include "runtime/detached_call.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "core/interrupt.h"

namespace mithril::runtime {
namespace {

using std::chrono::milliseconds;

TEST(DetachedCall, RunsOnAnotherThreadAndIsWaitedFor) {
  std::thread::id ran;
  EXPECT_TRUE(run_detached([&] {
    std::this_thread::sleep_for(milliseconds(30));
    ran = std::this_thread::get_id();
  }));
  EXPECT_NE(ran, std::this_thread::get_id());
  EXPECT_NE(ran, std::thread::id());
}

TEST(DetachedCall, AnInterruptLeavesItToItself) {
  const std::atomic<bool> cancel{true};
  auto goes_on = std::make_shared<std::atomic<bool>>(true);
  auto has_ended = std::make_shared<std::atomic<bool>>(false);
  {
    const core::ScopedInterrupt scope({&cancel});
    EXPECT_FALSE(run_detached([goes_on, has_ended] {
      while (goes_on->load()) std::this_thread::sleep_for(milliseconds(1));
      has_ended->store(true);
    }));
  }
  EXPECT_FALSE(has_ended->load());
  EXPECT_TRUE(run_detached([] {}));  // another call does not wait for it
  goes_on->store(false);
  for (int ms = 0; ms < 5000 && !has_ended->load(); ++ms) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(has_ended->load());
}

// The fifth waits; it begins when one of the four has ended.
TEST(DetachedCall, FewAreLeftToThemselves) {
  const std::atomic<bool> cancel{true};
  auto begun = std::make_shared<std::atomic<int>>(0);
  auto goes_on = std::make_shared<std::atomic<bool>>(true);
  const auto work = [begun, goes_on] {
    begun->fetch_add(1);
    while (goes_on->load()) std::this_thread::sleep_for(milliseconds(1));
  };
  for (int i = 0; i < 6; ++i) {
    const core::ScopedInterrupt scope({&cancel});
    EXPECT_FALSE(run_detached(work));
  }
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(begun->load(), 4);
  std::thread ends([goes_on] {
    std::this_thread::sleep_for(milliseconds(50));
    goes_on->store(false);
  });
  EXPECT_TRUE(run_detached([begun] { begun->fetch_add(1); }));
  EXPECT_EQ(begun->load(), 5);
  ends.join();
}

}  // namespace
}  // namespace mithril::runtime
