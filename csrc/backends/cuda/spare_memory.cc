#include "backends/cuda/spare_memory.h"

namespace mithril::cuda {

std::optional<cu_pointer> SpareMemory::take(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto at = kept_.find(bytes);
  if (at == kept_.end()) return {};
  const cu_pointer out = *at->second.begin();
  at->second.erase(at->second.begin());
  if (at->second.empty()) kept_.erase(at);
  bytes_ -= bytes;
  return out;
}

bool SpareMemory::keep(cu_pointer pointer, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > most_ - bytes_) return false;
  kept_[bytes].insert(pointer);
  bytes_ += bytes;
  return true;
}

int64_t SpareMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void SpareMemory::set_aside(cu_pointer pointer, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  lent_.emplace_back(pointer, bytes);
  lent_bytes_ += bytes;
}

int64_t SpareMemory::lent_bytes() const {
  const std::lock_guard lock(mutex_);
  return lent_bytes_;
}

std::vector<std::pair<cu_pointer, int64_t>> SpareMemory::take_lent() {
  const std::lock_guard lock(mutex_);
  lent_bytes_ = 0;
  return std::exchange(lent_, {});
}

std::vector<cu_pointer> SpareMemory::take_all() {
  const std::lock_guard lock(mutex_);
  std::vector<cu_pointer> out;
  for (const auto& [bytes, pointers] : kept_) {
    out.insert(out.end(), pointers.begin(), pointers.end());
  }
  kept_.clear();
  bytes_ = 0;
  return out;
}

}  // namespace mithril::cuda
