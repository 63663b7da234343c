// Tries whether a device computes with the bits of IEEE 754, as the engine does.
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/opencl/device.h"

namespace mithril::opencl {
namespace {

constexpr const char* kText = R"(#pragma OPENCL FP_CONTRACT OFF
__kernel void try_bits(__global const float* a, __global const float* b, __global float* out) {
  const size_t i = get_global_id(0);
  out[5 * i] = a[i] / b[i];
  out[5 * i + 1] = sqrt(fabs(a[i]));
  out[5 * i + 2] = a[i] * b[i];
  out[5 * i + 3] = fma(a[i], b[i], a[i]);
  out[5 * i + 4] = a[i] * b[i] + a[i];
}
)";
constexpr size_t kResults = 5;

// Operands whose quotients, roots and products need rounding, and such as are subnormal.
void operands(std::vector<float>& a, std::vector<float>& b) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kSmall = std::numeric_limits<float>::min();
  for (const float x : {kTiny, kSmall, kSmall / 3, 3 * kTiny, 1e-30F}) {
    for (const float y : {1.0F, 0.5F, 3.0F, 1e-8F, 7e7F}) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  uint32_t state = 1;
  const auto next = [&] {
    state = state * 1664525U + 1013904223U;
    return 1.0F + static_cast<float>(state >> 9) * 0x1p-23F;
  };
  for (int i = 0; i < 1000; ++i) {
    a.push_back(next());
    b.push_back(next());
  }
}

std::vector<float> expected(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> out;
  for (size_t i = 0; i < a.size(); ++i) {
    const float product = a[i] * b[i];
    for (const float x : {a[i] / b[i], std::sqrt(std::fabs(a[i])), product,
                          std::fma(a[i], b[i], a[i]), product + a[i]}) {
      out.push_back(x);
    }
  }
  return out;
}

}  // namespace

core::Result<bool> Device::has_exact_bits() {
  MITHRIL_RETURN_IF_ERROR(check_process());
  const std::lock_guard lock(mutex_);
  if (!is_exact_) {
    MITHRIL_ASSIGN(is_exact_, try_exact_bits());
  }
  return *is_exact_;
}

core::Result<bool> Device::try_exact_bits() {
  if (!info_.rounds_exactly) return false;
  std::vector<float> a, b;
  operands(a, b);
  MITHRIL_ASSIGN(const auto program, build(kText));
  MITHRIL_ASSIGN(const auto kernel, this->kernel(program->get(), "try_bits"));
  const auto bytes = static_cast<int64_t>(a.size() * sizeof(float));
  MITHRIL_ASSIGN(const auto in_a, allocate(bytes, kMemReadOnly | kMemCopyHostPtr, a.data()));
  MITHRIL_ASSIGN(const auto in_b, allocate(bytes, kMemReadOnly | kMemCopyHostPtr, b.data()));
  MITHRIL_ASSIGN(const auto result, allocate(bytes * static_cast<int64_t>(kResults)));
  cl_uint argument = 0;
  for (const cl_mem memory : {in_a.get(), in_b.get(), result.get()}) {
    MITHRIL_RETURN_IF_ERROR(call(functions_.set_argument, "clSetKernelArg", kernel.get(),
                                 argument++, sizeof memory, &memory));
  }
  const size_t items = a.size();
  MITHRIL_RETURN_IF_ERROR(call(functions_.launch, "clEnqueueNDRangeKernel", queue_.get(),
                               kernel.get(), cl_uint{1}, nullptr, &items, nullptr, cl_uint{0},
                               nullptr, nullptr));
  const std::vector<float> want = expected(a, b);
  std::vector<float> got(want.size());
  MITHRIL_RETURN_IF_ERROR(call(functions_.read_buffer, "clEnqueueReadBuffer", queue_.get(),
                               result.get(), kBlocking, size_t{0}, want.size() * sizeof(float),
                               got.data(), cl_uint{0}, nullptr, nullptr));
  return std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) == 0;
}

}  // namespace mithril::opencl
