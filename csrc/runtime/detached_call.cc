#include "runtime/detached_call.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/interrupt.h"

namespace mithril::runtime {
namespace {

using std::chrono::milliseconds;

struct Call {
  std::function<void()> work;
  std::mutex mutex;
  std::condition_variable ended;
  bool is_done = false;
  bool is_alone = false;  // nobody waits for it any more
};

/// Calls that nobody waits for: as many may take the memory and the time of those that follow.
constexpr int kMostAlone = 4;
std::atomic<int> alone{0};

/// The threads that run calls. None may go on while the process ends: the memory of libraries is
/// given back then, and what still uses it crashes.
struct Threads {
  std::mutex mutex;
  std::vector<pthread_t> running;
};

Threads& threads() {
  static auto* all = new Threads;  // outlives the handlers of exit
  return *all;
}

std::atomic<size_t> halted{0};

void halt(int) {
  halted.fetch_add(1);
  for (;;) pause();
}

/// Halts every thread by a signal; who ends meanwhile waits for the lock, which is kept.
void halt_all() {
  Threads& all = threads();
  all.mutex.lock();
  struct sigaction action = {};
  action.sa_handler = halt;
  sigfillset(&action.sa_mask);
  sigaction(SIGURG, &action, nullptr);
  for (const pthread_t thread : all.running) pthread_kill(thread, SIGURG);
  for (int ms = 0; ms < 1000 && halted.load() < all.running.size(); ++ms) {
    std::this_thread::sleep_for(milliseconds(1));
  }
}

void prepare_for_exit_and_fork() {
  static std::once_flag once;
  std::call_once(once, [] {
    std::atexit(halt_all);
    pthread_atfork([] { threads().mutex.lock(); }, [] { threads().mutex.unlock(); },
                   [] {  // a child has none of the threads
                     threads().running.clear();
                     alone.store(0);
                     threads().mutex.unlock();
                   });
  });
}

void* thread_main(void* context) {
  const std::unique_ptr<std::shared_ptr<Call>> owned(static_cast<std::shared_ptr<Call>*>(context));
  Call& call = **owned;
  Threads& all = threads();
  {
    const std::lock_guard lock(all.mutex);
    all.running.push_back(pthread_self());
  }
  call.work();
  call.work = nullptr;
  {
    const std::lock_guard lock(all.mutex);
    all.running.erase(std::find(all.running.begin(), all.running.end(), pthread_self()));
  }
  const std::lock_guard lock(call.mutex);
  call.is_done = true;
  if (call.is_alone) alone.fetch_sub(1);
  call.ended.notify_one();
  return nullptr;
}

/// Starts the thread; signals but that of halt_all belong to the threads of the host program.
bool start(const std::shared_ptr<Call>& call) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  auto owned = std::make_unique<std::shared_ptr<Call>>(call);
  sigset_t blocked, before;
  sigfillset(&blocked);
  sigdelset(&blocked, SIGURG);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, thread_main, owned.get()) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (started) static_cast<void>(owned.release());  // the thread owns it
  return started;
}

}  // namespace

bool run_detached(std::function<void()> work) {
  prepare_for_exit_and_fork();
  while (alone.load() >= kMostAlone) {
    if (core::is_interrupted()) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  const auto call = std::make_shared<Call>();
  call->work = std::move(work);
  if (!start(call)) {
    call->work();
    return true;
  }
  std::unique_lock lock(call->mutex);
  while (!call->ended.wait_for(lock, milliseconds(10), [&] { return call->is_done; })) {
    lock.unlock();  // a poll may run Python's handlers
    const bool stops = core::is_interrupted();
    lock.lock();
    if (!stops || call->is_done) continue;
    call->is_alone = true;
    alone.fetch_add(1);
    return false;
  }
  return true;
}

}  // namespace mithril::runtime
