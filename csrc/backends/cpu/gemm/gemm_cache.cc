#include "backends/cpu/gemm/gemm_cache.h"

#include <algorithm>

namespace mithril::cpu::jit {

std::vector<GemmCode> GemmCache::find(std::span<const GemmTileSpec> specs) {
  const std::vector<GemmTileSpec> wanted = missing(specs);
  if (!wanted.empty()) {
    const std::vector<GemmCode> made = emit_gemm_tiles(wanted);
    if (made.empty()) return {};
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < wanted.size(); ++i) code_.try_emplace(wanted[i], made[i]);
  }
  std::vector<GemmCode> out;
  out.reserve(specs.size());
  const std::lock_guard lock(mutex_);
  for (const GemmTileSpec& spec : specs) out.push_back(code_.at(spec));
  return out;
}

size_t GemmCache::size() const {
  const std::lock_guard lock(mutex_);
  return code_.size();
}

void GemmCache::clear() {
  const std::lock_guard lock(mutex_);
  code_.clear();
}

GemmCache& GemmCache::shared() {
  static auto* const cache = new GemmCache;
  return *cache;
}

// Each once.
std::vector<GemmTileSpec> GemmCache::missing(std::span<const GemmTileSpec> specs) const {
  std::vector<GemmTileSpec> out;
  {
    const std::lock_guard lock(mutex_);
    std::copy_if(specs.begin(), specs.end(), std::back_inserter(out),
                 [&](const GemmTileSpec& spec) { return !code_.contains(spec); });
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace mithril::cpu::jit
