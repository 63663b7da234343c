#include "core/interrupt.h"

#include <thread>

#include <gtest/gtest.h>

#include "core/error.h"

namespace mithril::core {
namespace {

TEST(Interrupt, NobodyInterruptsWithoutAScope) {
  EXPECT_FALSE(is_interrupted());
  EXPECT_NO_THROW(check_interrupt());
}

TEST(Interrupt, AFlagOrAPollInterrupts) {
  struct Context {
    std::atomic<bool> cancel{false};
    int polls = 0;
  } context;
  const auto poll = [](void* pointer) {
    auto* self = static_cast<Context*>(pointer);
    if (++self->polls == 3) self->cancel = true;
  };
  const ScopedInterrupt scope({&context.cancel, poll, &context});
  EXPECT_FALSE(is_interrupted());
  EXPECT_FALSE(is_interrupted());
  EXPECT_TRUE(is_interrupted());
  EXPECT_EQ(context.polls, 3);
  try {
    check_interrupt();
    FAIL() << "nothing was thrown";
  } catch (const ErrorException& exception) {
    EXPECT_EQ(exception.error().kind, ErrorKind::kInterrupted);
  }
}

TEST(Interrupt, ScopesNestAndBelongToTheirThread) {
  const std::atomic<bool> cancel{true};
  const ScopedInterrupt scope({&cancel});
  EXPECT_TRUE(is_interrupted());
  {
    const ScopedInterrupt none({});
    EXPECT_FALSE(is_interrupted());
  }
  EXPECT_TRUE(is_interrupted());
  bool elsewhere = true;
  std::thread([&] { elsewhere = is_interrupted(); }).join();
  EXPECT_FALSE(elsewhere);
}

TEST(Interrupt, ACounterAsksOnceInAWhile) {
  int polls = 0;
  const auto poll = [](void* pointer) { ++*static_cast<int*>(pointer); };
  const ScopedInterrupt scope({nullptr, poll, &polls});
  InterruptCounter counter(100);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(counter.is_interrupted(1));
  EXPECT_EQ(polls, 10);
  EXPECT_FALSE(counter.is_interrupted(1000));
  EXPECT_EQ(polls, 11);
}

}  // namespace
}  // namespace mithril::core
