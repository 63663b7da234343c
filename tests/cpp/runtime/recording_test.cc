#include "runtime/recording.h"

#include <thread>

#include <gtest/gtest.h>

namespace mithril::runtime {
namespace {

TEST(Recording, AddsUpByStepAndKeepsSomeEvents) {
  Recording recording(3);
  const plan::Plan a, b;
  for (int64_t i = 0; i < 4; ++i) recording.add({&a, 0, 2, 1, i, 10});
  recording.add({&a, 1, 1, 1, 9, 5});
  recording.add({&b, 0, 1, 1, 9, 7});
  const auto totals = recording.totals();
  ASSERT_EQ(totals.size(), 3u);
  EXPECT_EQ(totals.at({&a, 0}).count, 4);
  EXPECT_EQ(totals.at({&a, 0}).nanoseconds, 40);
  EXPECT_EQ(totals.at({&a, 0}).threads, 2);
  EXPECT_EQ(totals.at({&b, 0}).nanoseconds, 7);
  EXPECT_EQ(recording.events().size(), 3u);
  EXPECT_EQ(recording.dropped(), 3);
}

TEST(Recording, ManyThreadsMayAdd) {
  Recording recording(100);
  const plan::Plan plan;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 1000; ++k) recording.add({&plan, 0, 1, thread_id(), now(), 1});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(recording.totals().at({&plan, 0}).count, 4000);
  EXPECT_EQ(recording.dropped(), 3900);
}

TEST(Recording, KeepsWhatItIsGiven) {
  auto owner = std::make_shared<int>(3);
  const std::weak_ptr<int> watched = owner;
  {
    Recording recording(1);
    recording.keep(owner);
    recording.keep(owner);
    owner.reset();
    EXPECT_FALSE(watched.expired());
  }
  EXPECT_TRUE(watched.expired());
}

TEST(Recorder, HasOneRecordingAtATime) {
  Recorder recorder;
  EXPECT_EQ(recorder.current(), nullptr);
  const auto first = std::make_shared<Recording>(1);
  EXPECT_TRUE(recorder.start(first));
  EXPECT_FALSE(recorder.start(std::make_shared<Recording>(1)));
  EXPECT_EQ(recorder.current(), first);
  EXPECT_EQ(recorder.stop(), first);
  EXPECT_EQ(recorder.current(), nullptr);
  EXPECT_EQ(recorder.stop(), nullptr);
  EXPECT_TRUE(recorder.start(first));
}

}  // namespace
}  // namespace mithril::runtime
