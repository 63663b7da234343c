#include "backends/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace mithril::cuda {
namespace {

constexpr int64_t kGranule = 64;  // places begin at multiples

}  // namespace

void Staging::open(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  memory_ = memory;
}

std::byte* Staging::take(int64_t bytes) {
  if (memory_ == nullptr || bytes > kLargest || bytes > kBytes - used_) return nullptr;
  std::byte* const place = memory_ + used_;
  used_ += (bytes + kGranule - 1) / kGranule * kGranule;
  ++count_.places;
  return place;
}

void Staging::copy(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

Staging::Mark Staging::mark() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void Staging::release(const Mark& mark, bool is_through) {
  const std::lock_guard lock(mutex_);
  const auto ends = [&](const Read& read) {
    if (read.number >= mark.reads) return false;
    if (is_through) copy(read.host, read.place, read.bytes);
    return is_through || read.reader == std::this_thread::get_id();
  };
  reads_.erase(std::remove_if(reads_.begin(), reads_.end(), ends), reads_.end());
  if (is_through && mark.places == count_.places) used_ = 0;  // else others are on their way
}

}  // namespace mithril::cuda
