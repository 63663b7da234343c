#include "backends/device/self_test.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <fmt/format.h>

#include "emit/c_like_text.h"
#include "emit/c_prune.h"

namespace mithril::device {
namespace {

// By the instructions of plans; `count` items.
std::string text_of(const PrintOptions& options, size_t count) {
  const Dialect& dialect = options.dialect;
  const std::string kernel = fmt::format(
      R"({entry}try_bits({global}const {byte}* m0, const m_i64 o0, {global}const {byte}* m1, const m_i64 o1, {global}{byte}* m2, const m_i64 o2) {{
  const m_i64 i = {item};
  if (i >= {count}) return;
  const m_f32 a = (({global}const m_f32*)(m0 + o0))[i], b = (({global}const m_f32*)(m1 + o1))[i];
  {global}m_f32* out = ({global}m_f32*)(m2 + o2) + 5 * i;
  out[0] = m_div_f32(a, b);
  out[1] = m_sqrt_f32(m_abs_f32(a));
  out[2] = m_mul_f32(a, b);
  out[3] = m_fma_f32(a, b, a);
  out[4] = m_add_f32(m_mul_f32(a, b), a);
}}
)",
      fmt::arg("entry", dialect.entry(0)), fmt::arg("global", dialect.global),
      fmt::arg("byte", dialect.byte), fmt::arg("item", dialect.item), fmt::arg("count", count));
  return emit::prune_c(options.prelude(), kernel) + kernel;
}

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

core::Result<bool> has_exact_bits(Driver& driver) {
  std::vector<float> a, b;
  operands(a, b);
  const std::vector<float> want = expected(a, b);
  std::vector<float> got(want.size());
  const std::string text = text_of(driver.print_options(), a.size());
  MITHRIL_ASSIGN(const auto program, driver.build(text));
  MITHRIL_ASSIGN(const auto kernel, program->kernel("try_bits"));
  MITHRIL_ASSIGN(const auto in_a, driver.constant(std::as_bytes(std::span(a))));
  MITHRIL_ASSIGN(const auto in_b, driver.constant(std::as_bytes(std::span(b))));
  const auto bytes = static_cast<int64_t>(want.size() * sizeof(float));
  MITHRIL_ASSIGN(const auto result, driver.allocate(bytes));
  const Ref refs[] = {{in_a.get(), 0}, {in_b.get(), 0}, {result.get(), 0}};
  core::Status status = driver.launch(*kernel, refs, {static_cast<int64_t>(a.size()), 0});
  if (status.ok()) status = driver.read(refs[2], got.data(), bytes);
  core::Status end = driver.finish();
  if (!status.ok()) return status;
  MITHRIL_RETURN_IF_ERROR(std::move(end));
  return std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) == 0;
}

}  // namespace mithril::device
