#include "backends/cpu/jit/schedule_cache.h"

namespace mithril::cpu::jit {
namespace {

constexpr size_t kCapacity = 1024;  // a page or two of code each

size_t hash_of(const ScheduleKey& key) {
  const CodeTarget& target = key.target;
  const size_t rest = static_cast<size_t>(target.isa) * 16 +
                      static_cast<size_t>(target.layout) * 4 + (target.recompute ? 2 : 0) +
                      (target.streams ? 1 : 0);
  return tile::hash(key.program) * 31 + rest;
}

}  // namespace

ScheduleCache& ScheduleCache::process() {
  static ScheduleCache cache(kCapacity);
  return cache;
}

ScheduleCache::Made ScheduleCache::get(const ScheduleKey& key, const std::function<Made()>& make) {
  const size_t hash = hash_of(key);
  {
    const std::lock_guard lock(mutex_);
    if (Made found = find(key, hash)) return found;
  }
  Made made = make();
  if (made == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  if (Made first = find(key, hash)) return first;
  entries_.push_front({key, hash, made});
  by_hash_.emplace(hash, entries_.begin());
  if (entries_.size() > capacity_) forget_oldest();
  return made;
}

ScheduleCache::Made ScheduleCache::find(const ScheduleKey& key, size_t hash) {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    if (!(at->second->key == key)) continue;
    entries_.splice(entries_.begin(), entries_, at->second);
    return at->second->schedule;
  }
  return nullptr;
}

void ScheduleCache::forget_oldest() {
  const auto last = std::prev(entries_.end());
  const auto [begin, end] = by_hash_.equal_range(last->hash);
  for (auto at = begin; at != end; ++at) {
    if (at->second != last) continue;
    by_hash_.erase(at);
    break;
  }
  entries_.pop_back();
}

size_t ScheduleCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace mithril::cpu::jit
