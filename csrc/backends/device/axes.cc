// Kernels along one axis: recurrences and orders; and products of integers.
#include <algorithm>

#include "backends/device/kernel_families.h"
#include "select/kernel_dims.h"

namespace mithril::device {
namespace {

// ---------------------------------------------------------------- recurrences

// Those of float32 run in double, each place rounded once.
constexpr const char* kScan = R"(for (m_i64 unit = begin; unit < end; ++unit) {
    const m_i64 base = unit / INNER * N * INNER + unit % INNER;
    m_WIDE before = 0;
    for (m_i64 i = 0; i < N; ++i) {
      const m_i64 at = base + (FALLING ? N - 1 - i : i) * INNER;
      before = i == 0 ? (m_WIDE)a1[at] : STEP;
      a2[at] = (m_TYPE)before;
    }
  })";

core::Result<plan::Step> make_scan(const KernelRequest& request) {
  const ref_axis_dims d = select::axis_dims(request, "reverse");
  const Operand& output = request.outputs[0];
  const bool is_real = select::is_real(output.dtype);
  const std::string type = type_of(output), wide = is_real ? "f64" : type;
  const std::string step = is_real
                               ? "m_fma_f64((m_f64)a0[at], before, (m_f64)a1[at])"
                               : fmt::format("m_add_{0}(m_mul_{0}(a0[at], before), a1[at])", type);
  return step_of(call_of(request, filled(kScan, {{"STEP", step},
                                                 {"m_WIDE", "m_" + wide},
                                                 {"m_TYPE", "m_" + type},
                                                 {"INNER", text_of(d.inner)},
                                                 {"N", text_of(d.n)},
                                                 {"FALLING", text_of(d.falling)}})),
                 d.outer * d.inner, static_cast<double>(d.outer * d.inner * d.n));
}

// ---------------------------------------------------------------- orders

// Runs of 1, 2, 4 … places are merged, from one half of the scratch to the other; of equal elements
// that of the left run comes first. NaN, which differs from itself, is the largest.
constexpr const char* kSort = R"(for (m_i64 unit = begin; unit < end; ++unit) {
    const m_i64 base = unit / INNER * N * INNER + unit % INNER;
    M_GLOBAL const m_TYPE* const x = a0 + base;
    M_GLOBAL m_PLACE* sorted = (M_GLOBAL m_PLACE*)scratch;
    M_GLOBAL m_PLACE* merged = sorted + N;
    for (m_i64 i = 0; i < N; ++i) sorted[i] = (m_PLACE)i;
    for (m_i64 run = 1; run < N; run *= 2) {
      for (m_i64 first = 0; first < N; first += 2 * run) {
        const m_i64 middle = first + run < N ? first + run : N;
        const m_i64 last = middle + run < N ? middle + run : N;
        m_i64 left = first, right = middle;
        for (m_i64 to = first; to < last; ++to) {
          int takes_right = left == middle;
          if (left < middle && right < last) {
            const m_TYPE l = x[sorted[left] * (m_i64)INNER], r = x[sorted[right] * (m_i64)INNER];
            takes_right = IS_LESS;
          }
          merged[to] = takes_right ? sorted[right++] : sorted[left++];
        }
      }
      M_GLOBAL m_PLACE* const swapped = sorted;
      sorted = merged;
      merged = swapped;
    }
    for (m_i64 i = 0; i < N; ++i) a1[base + i * INNER] = sorted[i];
  })";

// For many short items: an element counts those that come before it.
constexpr const char* kRank = R"(for (m_i64 e = begin; e < end; ++e) {
    const m_i64 line = e / (N * INNER), own = e / INNER % N;
    const m_i64 base = line * N * INNER + e % INNER;
    const m_TYPE r = a0[e];
    m_i64 place = 0;
    for (m_i64 i = 0; i < N; ++i) {
      const m_TYPE l = a0[base + i * INNER];
      const int is_after = IS_LESS;
      const int is_equal = !is_after && !(IS_MORE);
      place += !is_after && (!is_equal || i < own);
    }
    a1[base + place * INNER] = (m_PLACE)own;
  })";

constexpr int64_t kLongestRank = 1 << 14;

std::string less(const char* a, const char* b) {
  return fmt::format("{0} < {1} || ({1} != {1} && {0} == {0})", a, b);
}

core::Result<plan::Step> make_argsort(const KernelRequest& request) {
  constexpr double kWorkOfElement = 16;  // about the rounds of merging
  const ref_axis_dims d = select::axis_dims(request, "descending");
  // "r comes before l" of the two.
  const Names names = {{"IS_LESS", d.falling != 0 ? less("l", "r") : less("r", "l")},
                       {"IS_MORE", d.falling != 0 ? less("r", "l") : less("l", "r")},
                       {"m_TYPE", "m_" + type_of(request.inputs[0])},
                       {"m_PLACE", "m_" + type_of(request.outputs[0])},
                       {"INNER", text_of(d.inner)},
                       {"N", text_of(d.n)}};
  const int64_t lines = d.outer * d.inner;
  const auto scratch = static_cast<size_t>(2 * d.n) * core::size_of(request.outputs[0].dtype);
  const double work = static_cast<double>(lines * d.n) * kWorkOfElement;
  if (d.n > kLongestRank) {
    plan::Step step = step_of(call_of(request, filled(kSort, names)), lines, work);
    step.scratch_bytes = scratch;
    return step;
  }
  FunctionCall call = call_of(request, filled(kRank, names));
  call.in_long_items = {filled(kSort, names), lines, scratch};
  return step_of(std::move(call), lines * d.n, work);
}

// ---------------------------------------------------------------- products of integers

// Sums wrap, so that any order gives the same. A run of up to TILE columns is summed at once.
constexpr const char* kProduct = R"(for (m_i64 e = begin; e < end;) {
    const m_i64 row = e / WIDTH, j = e % WIDTH;
    const m_i64 rest = WIDTH - j < end - e ? WIDTH - j : end - e;
    const int count = rest < TILE ? (int)rest : TILE;
    const m_i64 i = row % HEIGHT, batch = row / HEIGHT;
    m_i64 at_a = i * A_ROW, at_b = j * B_COL;
BATCH
    m_TYPE sum[TILE];
    for (int x = 0; x < count; ++x) sum[x] = 0;
    for (m_i64 p = 0; p < PLACES; ++p) {
      const m_TYPE left = a0[at_a + p * A_COL];
      M_GLOBAL const m_TYPE* const right = a1 + at_b + p * B_ROW;
      for (int x = 0; x < count; ++x) sum[x] = m_add_TYPE(sum[x], m_mul_TYPE(left, right[x * B_COL]));
    }
    for (int x = 0; x < count; ++x) a2[e + x] = sum[x];
    e += count;
    (void)batch;
  })";

core::Result<plan::Step> make_product(const KernelRequest& request) {
  constexpr int64_t kTile = 64;
  const ref_matmul_dims d = select::matmul_dims(request);
  std::string batch;
  int64_t below = 1, batches = 1;
  for (int64_t axis = d.batch_rank - 1; axis >= 0; below *= d.batch[axis--]) {
    batch += fmt::format("    at_a += batch / {0} % {1} * {2}, at_b += batch / {0} % {1} * {3};\n",
                         below, d.batch[axis], d.a_batch[axis], d.b_batch[axis]);
    batches *= d.batch[axis];
  }
  const std::string type = type_of(request.outputs[0]);
  const auto text = [&](int64_t tile) {
    return filled(kProduct, {{"BATCH", batch},
                             {"m_TYPE", "m_" + type},
                             {"m_add_TYPE", "m_add_" + type},
                             {"m_mul_TYPE", "m_mul_" + type},
                             {"WIDTH", text_of(d.n)},
                             {"HEIGHT", text_of(d.m)},
                             {"PLACES", text_of(d.k)},
                             {"A_ROW", text_of(d.a_row)},
                             {"A_COL", text_of(d.a_col)},
                             {"B_ROW", text_of(d.b_row)},
                             {"B_COL", text_of(d.b_col)},
                             {"TILE", text_of(tile)}});
  };
  const int64_t elements = batches * d.m * d.n;
  const double work = 2.0 * static_cast<double>(elements) * static_cast<double>(d.k);
  FunctionCall call = call_of(request, text(1));
  call.in_long_items = {text(kTile), elements, 0};
  plan::Step step = step_of(std::move(call), elements, work);
  step.work = {work, plan::Work::Unit::kFlops};
  return step;
}

bool has_integers(const KernelRequest& request) {
  return select::is_index(request.outputs[0].dtype) &&
         request.inputs[0].dtype == request.outputs[0].dtype &&
         request.inputs[1].dtype == request.outputs[0].dtype &&
         request.inputs[0].shape.size() <= REF_MAX_RANK &&
         request.inputs[1].shape.size() <= REF_MAX_RANK;
}

constexpr select::Condition kIntegers(has_integers, "elements of int32 or int64, at most 16 axes");
using select::kNumberType;
const select::KernelDef kKernels[] = {
    {"linear_scan", "device.linear_scan", kCanonical, true, kNumberType, make_scan},
    {"argsort", "device.argsort", kCanonical, true, kNumberType, make_argsort},
    {"matmul", "device.matmul.integer", kCanonical, false, kIntegers, make_product},
};

}  // namespace

std::span<const select::KernelDef> axis_kernels() { return kKernels; }

}  // namespace mithril::device
