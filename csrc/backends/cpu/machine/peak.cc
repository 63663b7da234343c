#include "backends/cpu/machine/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>

#include "backends/cpu/machine/peak_loops.h"

namespace mithril::cpu {
namespace {

const PeakLoops& loops_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx2) return avx2::kPeakLoops;
  if (isa == Isa::kAvx512) return avx512::kPeakLoops;
#endif
  static_cast<void>(isa);
  return generic::kPeakLoops;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

double measure_peak(runtime::ThreadPool& pool, int threads, bool is_double, Isa isa) {
  constexpr int64_t kRounds = 1 << 14;  // about 0.05 ms: late threads miss little
  constexpr int kUnits = 24, kTries = 4;
  const auto loop = is_double ? loops_of(isa).f64 : loops_of(isa).f32;
  double best = 0;
  for (int i = 0; i < kTries; ++i) {
    std::atomic<int64_t> operations{0};
    const auto run = [&](const runtime::WorkerContext&, int64_t begin, int64_t end) {
      operations += loop((end - begin) * kRounds);
      return plan::KernelStatus::kOk;
    };
    const int64_t units = int64_t{kUnits} * threads;
    const auto start = std::chrono::steady_clock::now();
    pool.parallel_for(units, threads == 1 ? units : 1, {}, run);
    best = std::max(best, static_cast<double>(operations) / seconds_since(start));
  }
  return best;
}

}  // namespace mithril::cpu
