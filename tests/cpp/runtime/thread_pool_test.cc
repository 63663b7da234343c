#include "runtime/thread_pool.h"

#include <cfenv>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mithril::runtime {
namespace {

constexpr int64_t kUnits = 10'000;

// Every unit once; the sum over units is what a sequential loop gives.
bool covers_once(ThreadPool& pool, int64_t units, int64_t grain) {
  std::vector<std::atomic<int>> seen(static_cast<size_t>(units));
  const auto status =
      pool.parallel_for(units, grain, {}, [&](const WorkerContext&, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
        return KernelStatus::kOk;
      });
  bool good = status == KernelStatus::kOk;
  for (const auto& count : seen) good = good && count == 1;
  return good;
}

TEST(ThreadPool, CoversEveryUnitOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int64_t units : {0, 1, 2, 63, 64, 65, 1000}) {
      for (const int64_t grain : {int64_t{-1}, int64_t{1}, int64_t{7}, int64_t{64}, INT64_MAX}) {
        EXPECT_TRUE(covers_once(pool, units, grain)) << threads << " " << units << " " << grain;
      }
    }
  }
}

TEST(ThreadPool, NegativeUnitsDoNothing) {
  ThreadPool pool(2);
  const auto body = [](const WorkerContext&, int64_t, int64_t) { return KernelStatus::kFailed; };
  EXPECT_EQ(pool.parallel_for(-5, 1, {}, body), KernelStatus::kOk);
}

TEST(ThreadPool, SmallWorkStaysOnTheCaller) {
  ThreadPool pool(4);
  const auto self = std::this_thread::get_id();
  int calls = 0;
  const auto status =
      pool.parallel_for(100, 100, {}, [&](const WorkerContext& worker, int64_t begin, int64_t end) {
        EXPECT_EQ(std::this_thread::get_id(), self);
        EXPECT_EQ(worker.worker, 0);
        EXPECT_EQ(end - begin, 100);
        ++calls;
        return KernelStatus::kOk;
      });
  EXPECT_EQ(status, KernelStatus::kOk);
  EXPECT_EQ(calls, 1);
}

TEST(ThreadPool, WorkersHelp) {
  ThreadPool pool(4);
  std::atomic<int> threads_seen{0};
  // Each of the four chunks waits for another thread to arrive, so one thread alone would hang.
  const auto status = pool.parallel_for(2, 1, {}, [&](const WorkerContext&, int64_t, int64_t) {
    threads_seen.fetch_add(1);
    while (threads_seen.load() < 2) std::this_thread::yield();
    return KernelStatus::kOk;
  });
  EXPECT_EQ(status, KernelStatus::kOk);
}

TEST(ThreadPool, NestedLoopsRunInline) {
  ThreadPool pool(4);
  std::atomic<int64_t> total{0};
  const auto status = pool.parallel_for(50, 1, {}, [&](const WorkerContext&, int64_t, int64_t) {
    const auto self = std::this_thread::get_id();
    return pool.parallel_for(100, 1, {}, [&](const WorkerContext&, int64_t begin, int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      total.fetch_add(end - begin);
      return KernelStatus::kOk;
    });
  });
  EXPECT_EQ(status, KernelStatus::kOk);
  EXPECT_EQ(total, 5000);
}

TEST(ThreadPool, SixteenCallersAtOnce) {
  ThreadPool pool(4);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 16; ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 50; ++round) {
        std::atomic<int64_t> sum{0};
        const int64_t units = 100 + caller;
        const auto status =
            pool.parallel_for(units, 3, {}, [&](const WorkerContext&, int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) sum.fetch_add(i);
              return KernelStatus::kOk;
            });
        const bool right = status == KernelStatus::kOk && sum == units * (units - 1) / 2;
        if (!right) wrong.fetch_add(1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, MoreCallersThanSlots) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  std::atomic<int> inside{0};
  for (int caller = 0; caller < 40; ++caller) {
    callers.emplace_back([&] {
      std::atomic<bool> first{true};
      const auto status = pool.parallel_for(4, 1, {}, [&](const WorkerContext&, int64_t, int64_t) {
        if (first.exchange(false)) {
          inside.fetch_add(1);
          while (inside.load() < 38) std::this_thread::yield();  // two may serve as helpers
        }
        return KernelStatus::kOk;
      });
      EXPECT_EQ(status, KernelStatus::kOk);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ThreadPool, CancellationStopsHandingOut) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    std::atomic<bool> cancel{false};
    std::atomic<int64_t> done{0};
    RunOptions options;
    options.cancel = &cancel;
    const auto status =
        pool.parallel_for(kUnits, 1, options, [&](const WorkerContext&, int64_t, int64_t) {
          if (done.fetch_add(1) == 10) cancel.store(true);
          return KernelStatus::kOk;
        });
    EXPECT_EQ(status, KernelStatus::kCancelled);
    EXPECT_LT(done, kUnits);
  }
}

TEST(ThreadPool, PollRunsOnTheCallerAndMayCancel) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    struct Context {
      std::atomic<bool> cancel{false};
      std::thread::id caller = std::this_thread::get_id();
      int polls = 0;
      bool elsewhere = false;
    } context;
    RunOptions options;
    options.cancel = &context.cancel;
    options.poll_context = &context;
    options.poll = [](void* pointer) {
      auto* c = static_cast<Context*>(pointer);
      c->elsewhere = c->elsewhere || std::this_thread::get_id() != c->caller;
      if (++c->polls == 3) c->cancel.store(true);
    };
    std::atomic<int64_t> by_caller{0};
    const auto status = pool.parallel_for(int64_t{1} << 40, 1000, options,
                                          [&](const WorkerContext& worker, int64_t, int64_t) {
                                            if (worker.worker == 0) by_caller.fetch_add(1);
                                            return KernelStatus::kOk;
                                          });
    EXPECT_EQ(status, KernelStatus::kCancelled);
    EXPECT_GE(context.polls, 3);
    EXPECT_FALSE(context.elsewhere);
  }
}

TEST(ThreadPool, AChunkThatEndsEarlyIsCancelled) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    std::atomic<bool> cancel{false};
    RunOptions options;
    options.cancel = &cancel;
    options.poll_context = &cancel;
    options.poll = [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; };
    const auto status =
        pool.parallel_for(threads, 1, options, [&](const WorkerContext&, int64_t, int64_t) {
          while (!core::is_interrupted()) std::this_thread::yield();
          return KernelStatus::kOk;
        });
    EXPECT_EQ(status, KernelStatus::kCancelled);
    EXPECT_FALSE(core::is_interrupted());
  }
}

TEST(ThreadPool, FirstBadStatusIsReturned) {
  ThreadPool pool(3);
  std::atomic<int64_t> done{0};
  const auto status =
      pool.parallel_for(kUnits, 1, {}, [&](const WorkerContext&, int64_t begin, int64_t) {
        done.fetch_add(1);
        return begin == 100 ? KernelStatus::kBadData : KernelStatus::kOk;
      });
  EXPECT_EQ(status, KernelStatus::kBadData);
  EXPECT_LT(done, kUnits);
}

TEST(ThreadPool, ExceptionsDoNotCross) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    const auto thrower = [](const WorkerContext&, int64_t begin, int64_t) -> KernelStatus {
      if (begin == 500) throw std::runtime_error("no");
      return KernelStatus::kOk;
    };
    EXPECT_EQ(pool.parallel_for(1000, 1, {}, thrower), KernelStatus::kFailed);
    const auto hungry = [](const WorkerContext&, int64_t, int64_t) -> KernelStatus {
      throw std::bad_alloc();
    };
    EXPECT_EQ(pool.parallel_for(1000, 1, {}, hungry), KernelStatus::kNoMemory);
    EXPECT_TRUE(covers_once(pool, 100, 1));
  }
}

TEST(ThreadPool, ScratchIsAlignedAndOwn) {
  ThreadPool pool(4);
  RunOptions options;
  options.scratch_bytes = 1000;
  std::atomic<int> wrong{0};
  const auto fill = [&](const WorkerContext& worker, int64_t begin) {
    auto* bytes = static_cast<unsigned char*>(worker.scratch);
    if (reinterpret_cast<uintptr_t>(bytes) % 64 != 0) wrong.fetch_add(1);
    std::fill(bytes, bytes + 1000, static_cast<unsigned char>(begin));
    return bytes;
  };
  const auto status =
      pool.parallel_for(500, 1, options, [&](const WorkerContext& worker, int64_t begin, int64_t) {
        const unsigned char* bytes = fill(worker, begin);
        const auto inner = pool.parallel_for(
            3, 1, options, [&](const WorkerContext& nested, int64_t nested_begin, int64_t) {
              fill(nested, nested_begin + 100);
              return KernelStatus::kOk;
            });
        for (int i = 0; i < 1000; ++i) {
          if (bytes[i] != static_cast<unsigned char>(begin)) wrong.fetch_add(1);
        }
        return inner;
      });
  EXPECT_EQ(status, KernelStatus::kOk);
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, ScratchThatCannotBeHadIsAStatus) {
  ThreadPool pool(2);
  RunOptions options;
  const auto body = [](const WorkerContext&, int64_t, int64_t) { return KernelStatus::kOk; };
  for (const size_t bytes : {size_t{1} << 62, SIZE_MAX}) {
    options.scratch_bytes = bytes;
    EXPECT_EQ(pool.parallel_for(1, 1, options, body), KernelStatus::kNoMemory);
    EXPECT_EQ(pool.parallel_for(100, 1, options, body), KernelStatus::kNoMemory);
  }
  EXPECT_TRUE(covers_once(pool, 100, 1));
}

TEST(ThreadPool, KernelGetsItsWorkersScratch) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  void* buffers[] = {&sum};
  plan::KernelArgs args{};
  args.buffers = buffers;
  const plan::KernelFn kernel = [](const plan::KernelArgs& a, int64_t begin, int64_t end) {
    if (a.scratch == nullptr || a.worker < 0) return KernelStatus::kBadData;
    static_cast<std::atomic<int64_t>*>(a.buffers[0])->fetch_add(end - begin);
    return KernelStatus::kOk;
  };
  RunOptions options;
  options.scratch_bytes = 64;
  EXPECT_EQ(pool.run_kernel(kernel, args, 1000, 10, options), KernelStatus::kOk);
  EXPECT_EQ(sum, 1000);
}

TEST(ThreadPool, ThreadCountCanChange) {
  ThreadPool pool(1);
  for (const int threads : {4, 2, 1, 3, 0, -7, 1 << 20}) {
    if (threads > 100) {
      ThreadPool other(1);
      other.set_thread_count(threads);
      EXPECT_EQ(other.thread_count(), ThreadPool::kMostThreads);
      continue;
    }
    pool.set_thread_count(threads);
    EXPECT_EQ(pool.thread_count(), std::max(1, threads));
    EXPECT_TRUE(covers_once(pool, 1000, 1));
  }
}

#if defined(__x86_64__)
TEST(ThreadPool, ChunksSeeTheDefaultFloatingPointEnvironment) {
  ThreadPool pool(3);
  const unsigned before = _mm_getcsr();
  const unsigned odd = (0x1F80 | 0x8040 | 0x6000) | 0x0001;  // flush to zero, toward zero, a flag
  _mm_setcsr(odd);
  std::atomic<int> wrong{0};
  const auto status = pool.parallel_for(200, 1, {}, [&](const WorkerContext&, int64_t, int64_t) {
    if (_mm_getcsr() != 0x1F80) wrong.fetch_add(1);
    _mm_setcsr(0x9FC0);
    return KernelStatus::kOk;
  });
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(status, KernelStatus::kOk);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(after, odd);
}
#endif

// ThreadSanitizer ends a child that starts threads after a fork with threads.
#if defined(__SANITIZE_THREAD__)
constexpr bool kForkWorks = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr bool kForkWorks = false;
#else
constexpr bool kForkWorks = true;
#endif
#else
constexpr bool kForkWorks = true;
#endif

// What a forked child of a process with a warm pool finds; returns its exit status.
int child_status() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a hang is a failure
    ThreadPool& pool = ThreadPool::shared();
    bool good = true;
    for (int round = 0; round < 5; ++round) good = good && covers_once(pool, 500, 1);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(ThreadPool, ForkedChildrenStartAnew) {
  if (!kForkWorks) GTEST_SKIP() << "ThreadSanitizer cannot follow threads into a child";
  ThreadPool& pool = ThreadPool::shared();
  pool.set_thread_count(3);
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(covers_once(pool, 500, 1));
    ASSERT_EQ(child_status(), 0) << round;
  }
}

TEST(ThreadPool, ForkWhileOthersCompute) {
  if (!kForkWorks) GTEST_SKIP() << "ThreadSanitizer cannot follow threads into a child";
  ThreadPool& pool = ThreadPool::shared();
  pool.set_thread_count(3);
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      while (!stop.load()) EXPECT_TRUE(covers_once(pool, 100, 1));
    });
  }
  for (int round = 0; round < 10; ++round) EXPECT_EQ(child_status(), 0);
  stop.store(true);
  for (std::thread& other : others) other.join();
}

}  // namespace
}  // namespace mithril::runtime
