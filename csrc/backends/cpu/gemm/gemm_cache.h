// Emitted micro-kernels of the matrix product, kept for the whole process.
#pragma once
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "backends/cpu/gemm/gemm_emitter.h"

namespace mithril::cpu::jit {

/// Thread-safe; lookup under a lock, emission outside of it, the first code for a spec stays.
/// Nothing is dropped: GemmTileSpec says why there is never much.
class GemmCache {
 public:
  /// Code for each spec in turn, emitted where it is missing; empty where none can be made. For
  /// compile time: may take 20 us for a spec.
  std::vector<GemmCode> find(std::span<const GemmTileSpec> specs);

  size_t size() const;
  /// For tests: nothing that was found here may be called any more.
  void clear();
  /// The process's own; it is never destroyed, so its code may be called at any time.
  static GemmCache& shared();

 private:
  std::vector<GemmTileSpec> missing(std::span<const GemmTileSpec> specs) const;

  mutable std::mutex mutex_;
  std::map<GemmTileSpec, GemmCode> code_;
};

}  // namespace mithril::cpu::jit
