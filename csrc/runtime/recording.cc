#include "runtime/recording.h"

#include <chrono>
#include <unistd.h>

#include <sys/syscall.h>

namespace mithril::runtime {

int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

int64_t thread_id() { return syscall(SYS_gettid); }

void Recording::keep(const std::shared_ptr<const void>& owner) {
  const std::lock_guard lock(mutex_);
  owners_.try_emplace(owner.get(), owner);
}

void Recording::add(const Event& event) {
  const std::lock_guard lock(mutex_);
  Total& total = totals_[{event.plan, event.step}];
  ++total.count;
  total.nanoseconds += event.nanoseconds;
  total.threads = event.threads;
  if (events_.size() < most_events_) {
    events_.push_back(event);
  } else {
    ++dropped_;
  }
}

std::vector<Recording::Event> Recording::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

std::map<Recording::Key, Recording::Total> Recording::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

int64_t Recording::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

bool Recorder::start(std::shared_ptr<Recording> recording) {
  const std::lock_guard lock(mutex_);
  if (recording_ != nullptr) return false;
  recording_ = std::move(recording);
  is_on_.store(true, std::memory_order_release);
  return true;
}

std::shared_ptr<Recording> Recorder::stop() {
  const std::lock_guard lock(mutex_);
  is_on_.store(false, std::memory_order_release);
  return std::exchange(recording_, nullptr);
}

std::shared_ptr<Recording> Recorder::locked() const {
  const std::lock_guard lock(mutex_);
  return recording_;
}

}  // namespace mithril::runtime
