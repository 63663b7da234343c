#include "backends/ggml/row_guard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace mithril::ggml {
namespace {

// Rows whose largest element is between these stay as they are. A float16 holds their scale to all
// its digits, and the sum of 32 such numbers.
constexpr float kSmallest = 0x1p-6F, kLargest = 0x1p10F;

// The largest size of an element; NaN if one is. Sizes are in the order of their bits, NaN last.
float largest(const float* row, int64_t width) {
  uint32_t out = 0;
  for (int64_t i = 0; i < width; ++i) {
    out = std::max(out, std::bit_cast<uint32_t>(row[i]) & 0x7fffffffU);
  }
  return std::bit_cast<float>(out);
}

// What a row is divided by: a power of two; inf or NaN where it holds one.
double scale_of(float most) {
  if (!std::isfinite(most)) return most;
  const bool is_ordinary = most == 0 || (most >= kSmallest && most <= kLargest);
  return is_ordinary ? 1.0 : std::ldexp(1.0, std::ilogb(most));
}

}  // namespace

RowGuard::RowGuard(const Product& product)
    : product_(product), scales_(product.count), weights_(product.width) {}

void RowGuard::prepare(int thread, int threads) {
  const int64_t width = product_.width;
  for (int64_t row = thread; row < product_.count; row += threads) {
    const float* const from = *product_.rows + row * width;
    float* const to = *product_.scaled + row * width;
    const double scale = scales_[row] = scale_of(largest(from, width));
    if (scale == 1) {
      std::copy_n(from, width, to);
    } else if (!std::isfinite(scale)) {
      std::fill_n(to, width, 0.0F);
    } else {
      const double factor = 1 / scale;
      for (int64_t i = 0; i < width; ++i) to[i] = static_cast<float>(from[i] * factor);
    }
  }
}

void RowGuard::finish(int thread, int threads) {
  for (int64_t row = thread; row < product_.count; row += threads) {
    const double scale = scales_[row] * *product_.factor;
    if (scale == 1 || !std::isfinite(scales_[row])) continue;
    float* const results = *product_.results + row * product_.weights;
    for (int64_t i = 0; i < product_.weights; ++i) {
      results[i] = static_cast<float>(results[i] * scale);
    }
  }
  for (int64_t row = 0; thread == 0 && row < product_.count; ++row) {
    if (!std::isfinite(scales_[row])) compute(row);
  }
}

// By one thread: there is one row of weights.
void RowGuard::compute(int64_t row) {
  float* const results = *product_.results + row * product_.weights;
  if (std::isnan(scales_[row])) {
    std::fill_n(results, product_.weights, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const float* const numbers = *product_.rows + row * product_.width;
  for (int64_t i = 0; i < product_.weights; ++i) {
    product_.to_float(*product_.blocks + i * product_.row_bytes, weights_.data(), product_.width);
    double sum = 0;
    for (int64_t k = 0; k < product_.width; ++k) sum += double{numbers[k]} * weights_[k];
    results[i] = static_cast<float>(sum * *product_.factor);
  }
}

}  // namespace mithril::ggml
