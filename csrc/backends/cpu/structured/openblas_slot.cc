#include "backends/cpu/structured/openblas_slot.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <pthread.h>
#include <semaphore>

#include <sys/mman.h>

#include "core/interrupt.h"

namespace mithril::cpu {
namespace {

using plan::KernelStatus;
using std::chrono::milliseconds;

constexpr int kCount = 32;
constexpr size_t kBufferBytes = size_t{64} << 20;  // more than a buffer of OpenBLAS

using Semaphore = std::counting_semaphore<kCount>;

struct Slots {
  Semaphore free{kCount};
  std::atomic<int> taken{0};
};

std::atomic<int> buffers{0};  // that OpenBLAS has: it keeps them

Slots*& slots() {
  static Slots* all = [] {
    std::atexit([] {
      for (int i = 0; i < kCount && slots()->free.try_acquire_for(milliseconds(50)); ++i) continue;
    });
    pthread_atfork(nullptr, nullptr, [] { slots() = new Slots; });  // nobody calls in a child
    return new Slots;
  }();
  return all;
}

/// Tells whether OpenBLAS has a buffer for so many callers, or memory for another one.
bool has_buffer(int callers) {
  if (callers <= buffers.load()) return true;
  void* memory =
      mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  munmap(memory, kBufferBytes);
  int known = buffers.load();
  while (known < callers && !buffers.compare_exchange_weak(known, callers)) continue;
  return true;
}

}  // namespace

KernelStatus OpenBlasSlot::take() {
  while (!slots()->free.try_acquire_for(milliseconds(10))) {
    if (core::is_interrupted()) return KernelStatus::kCancelled;
  }
  is_taken_ = true;
  const int callers = slots()->taken.fetch_add(1) + 1;
  return has_buffer(callers) ? KernelStatus::kOk : KernelStatus::kNoMemory;
}

OpenBlasSlot::~OpenBlasSlot() {
  if (!is_taken_) return;
  slots()->taken.fetch_sub(1);
  slots()->free.release();
}

}  // namespace mithril::cpu
