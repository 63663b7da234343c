// What the tests of reference kernels share: guarded memory, sums in canonical order written a
// second time, and every build of the kernels.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "backends/cpu/machine/cpuid.h"
#include "backends/cpu/reference/reference.h"
#include "reference/reference.h"

namespace mithril::testing_support {

/// `count` elements between two pages that must not be touched: right before the second one, or
/// right after the first.
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t count, bool at_end = true) : count_(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (count * sizeof(T) + page) / page * page;
    bytes_ = inside + 2 * page;
    void* base = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base_ = static_cast<char*>(base);
    mprotect(base_ + page, inside, PROT_READ | PROT_WRITE);
    char* start = at_end ? base_ + page + inside - count * sizeof(T) : base_ + page;
    data_ = reinterpret_cast<T*>(start);
  }
  ~Guarded() { munmap(base_, bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](int64_t i) const { return data_[i]; }
  std::vector<T> copy() const { return {data_, data_ + count_}; }

 private:
  size_t count_;
  size_t bytes_ = 0;
  char* base_ = nullptr;
  T* data_ = nullptr;
};

template <class T>
void fill_random(const Guarded<T>& values, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (size_t i = 0; i < values.size(); ++i) values.data()[i] = static_cast<T>(uniform(random));
}

template <class T>
void fill_nan(const Guarded<T>& values) {
  std::fill(values.data(), values.data() + values.size(), std::numeric_limits<T>::quiet_NaN());
}

/// A sum of products in canonical order, from the list of its products.
template <class T>
T canonical_sum(const std::vector<std::pair<T, T>>& products) {
  T total = 0;
  for (size_t start = 0; start < products.size(); start += 256) {
    T block = 0;
    const size_t end = std::min(products.size(), start + 256);
    for (size_t i = start; i < end; ++i) {
      block = std::fma(products[i].first, products[i].second, block);
    }
    total = start == 0 ? block : total + block;
  }
  return total;
}

template <class T>
double exact_sum(const std::vector<std::pair<T, T>>& products) {
  double total = 0;
  for (const auto& [a, b] : products) total += static_cast<double>(a) * static_cast<double>(b);
  return total;
}

/// Equal to the last bit, all NaNs counting as equal.
template <class T>
bool same_bits(T a, T b) {
  return (a != a && b != b) || std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T>
int64_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

inline bool runs_here(cpu::Isa isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (isa == cpu::Isa::kAvx2) return avx2;
  if (isa == cpu::Isa::kAvx512) return avx2 && avx512;
#endif
  return isa == cpu::Isa::kGeneric;
}

inline std::vector<cpu::Isa> supported_isas() {
  std::vector<cpu::Isa> isas;
  for (const auto isa : {cpu::Isa::kGeneric, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (runs_here(isa)) {
      isas.push_back(isa);
    } else {
      std::printf("skipped, not on this machine: instruction set %d\n", static_cast<int>(isa));
    }
  }
  return isas;
}

/// Every build of the kernels for T; for float also the C99 one.
template <class T>
std::vector<cpu::RealKernels<T>> kernel_builds() {
  std::vector<cpu::RealKernels<T>> builds;
  for (const cpu::Isa isa : supported_isas()) {
    if constexpr (std::is_same_v<T, float>) {
      builds.push_back(cpu::reference_kernels(isa).f32);
    } else {
      builds.push_back(cpu::reference_kernels(isa).f64);
    }
  }
  if constexpr (std::is_same_v<T, float>) {
    builds.push_back({ref_matmul_f32, ref_conv2d_f32, ref_conv2d_dx_f32, ref_conv2d_dw_f32,
                      ref_max_pool2d_f32, ref_max_pool2d_grad_f32, ref_avg_pool2d_f32,
                      ref_avg_pool2d_grad_f32, ref_gather_grad_i32_f32, ref_gather_grad_i64_f32});
  }
  return builds;
}

using Reals = ::testing::Types<float, double>;

}  // namespace mithril::testing_support
