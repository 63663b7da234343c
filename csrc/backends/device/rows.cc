// Rows by index: gather, the sums of rows that are its gradient, and who wrote a place last.
#include <algorithm>

#include "backends/device/kernel_families.h"
#include "select/kernel_dims.h"

namespace mithril::device {
namespace {

// A bad index leaves zeros, and is reported.
constexpr const char* kGather = R"(for (m_i64 e = begin; e < end;) {
    const m_i64 j = e / ROW, first = e - j * ROW;
    const m_i64 last = ROW - first < end - e ? ROW : first + (end - e);
    const m_i64 value = (m_i64)a1[j];
    if (value < LOWEST || value >= BOUND) {
      m_report_index(report, step, j, value);
      for (m_i64 i = first; i < last; ++i) a2[j * ROW + i] = 0;
    } else {
      M_GLOBAL const m_TYPE* const from = a0 + (value < 0 ? value + BOUND : value) * ROW;
      M_GLOBAL m_TYPE* const to = a2 + j * ROW;
      for (m_i64 i = first; i < last; ++i) to[i] = from[i];
    }
    e += last - first;
  })";

// Rows without elements: indices are looked at all the same.
constexpr const char* kGatherNothing = R"(for (m_i64 j = begin; j < end; ++j) {
    const m_i64 value = (m_i64)a1[j];
    if (value < LOWEST || value >= BOUND) m_report_index(report, step, j, value);
  })";

// A unit has one column of some rows: it looks at all indices and adds in rising order. Nobody else
// writes there, so that no sum depends on who comes first.
constexpr const char* kScatter = R"(for (m_i64 unit = begin; unit < end; ++unit) {
    const m_i64 first = unit / ROW * GROUP, column = unit % ROW;
    const m_i64 last = BOUND - first < GROUP ? BOUND : first + GROUP;
    for (m_i64 row = first; row < last; ++row) a2[row * ROW + column] = 0;
    for (m_i64 j = 0; j < COUNT; ++j) {
      m_i64 row = (m_i64)a1[j];
      if (row < LOWEST || row >= BOUND) {
        if (unit == 0) m_report_index(report, step, j, row);
        continue;
      }
      if (row < 0) row += BOUND;
      if (row < first || row >= last) continue;
      a2[row * ROW + column] = m_add_TYPE(a2[row * ROW + column], a0[j * ROW + column]);
    }
  })";

// An item has many elements that lie side by side, and looks at all indices once.
constexpr const char* kScatterLong = R"(for (m_i64 e = begin; e < end; ++e) a2[e] = 0;
  const m_i64 first = begin / ROW, last = (end - 1) / ROW;
  for (m_i64 j = 0; j < COUNT; ++j) {
    m_i64 row = (m_i64)a1[j];
    if (row < LOWEST || row >= BOUND) {
      if (begin == 0) m_report_index(report, step, j, row);
      continue;
    }
    if (row < 0) row += BOUND;
    if (row < first || row > last) continue;
    const m_i64 left = row == first ? begin - first * ROW : 0;
    const m_i64 right = row == last ? end - last * ROW : ROW;
    M_GLOBAL const m_TYPE* const from = a0 + j * ROW;
    M_GLOBAL m_TYPE* const to = a2 + row * ROW;
    for (m_i64 i = left; i < right; ++i) to[i] = m_add_TYPE(to[i], from[i]);
  })";

// A table without elements: only the indices are looked at.
constexpr const char* kScatterNothing = R"(for (m_i64 j = 0; j < COUNT; ++j) {
    const m_i64 row = (m_i64)a1[j];
    if (row < LOWEST || row >= BOUND) m_report_index(report, step, j, row);
  })";

constexpr const char* kWriters = R"(for (m_i64 k = begin; k < end; ++k) a1[k] = -1;
  for (m_i64 j = 0; j < COUNT; ++j) {
    const m_i64 value = (m_i64)a0[j];
    if (value < LOWEST || value >= BOUND) {
      if (begin == 0) m_report_index(report, step, j, value);
      continue;
    }
    const m_i64 place = value < 0 ? value + BOUND : value;
    if (place >= begin && place < end) a1[place] = (m_TYPE)j;
  })";

Names names_of(const ref_gather_dims& d, const Operand& output) {
  return {{"TYPE", type_of(output)},
          {"ROW", text_of(d.inner)},
          {"COUNT", text_of(d.count)},
          {"LOWEST", text_of(d.lowest)},
          {"BOUND", text_of(d.bound)},
          {"m_TYPE", "m_" + type_of(output)},
          {"m_add_TYPE", "m_add_" + type_of(output)}};
}

FunctionCall checked(FunctionCall call, int32_t index, int64_t bound) {
  call.check = FunctionCall::Check::kIndex;
  call.index = index;
  call.bound = bound;
  return call;
}

core::Result<plan::Step> make_gather(const KernelRequest& request) {
  const ref_gather_dims d = select::gather_dims(request.inputs[0].shape, request.inputs[1].shape);
  const char* const text = d.inner > 0 ? kGather : kGatherNothing;
  const Names names = names_of(d, request.outputs[0]);
  const int64_t elements = d.count * std::max<int64_t>(d.inner, 1);
  return step_of(checked(call_of(request, filled(text, names)), 1, d.bound), elements,
                 static_cast<double>(elements));
}

ref_gather_dims scatter_dims(const KernelRequest& request) {
  return select::gather_dims(request.outputs[0].shape, request.inputs[1].shape);
}

// Rows of a unit: few where there are few elements, so that there are units enough.
int64_t group_of(const ref_gather_dims& d) {
  constexpr int64_t kUnits = 1 << 14, kMost = 64;
  return std::clamp<int64_t>(d.bound * d.inner / kUnits, 1, kMost);
}

core::Result<plan::Step> make_scatter(const KernelRequest& request) {
  const ref_gather_dims d = scatter_dims(request);
  const int64_t elements = d.bound * d.inner, group = group_of(d);
  Names names = names_of(d, request.outputs[0]);
  names.emplace_back("GROUP", text_of(group));
  FunctionCall call = checked(
      call_of(request, filled(elements > 0 ? kScatter : kScatterNothing, names)), 1, d.bound);
  if (elements > 0) call.in_long_items = {filled(kScatterLong, names), elements, 0};
  const int64_t units = elements > 0 ? (d.bound + group - 1) / group * d.inner : 1;
  return step_of(std::move(call), units, static_cast<double>(elements + d.count * (d.inner + 1)));
}

core::Result<plan::Step> make_writers(const KernelRequest& request) {
  const int64_t bound = request.outputs[0].shape[0];
  const ref_gather_dims d = select::gather_dims({bound}, request.inputs[0].shape);
  const Names names = names_of(d, request.outputs[0]);
  return step_of(checked(call_of(request, filled(kWriters, names)), 0, bound), bound,
                 static_cast<double>(bound + d.count));
}

// A unit looks at all indices: too many of both are the host's.
constexpr double kMostLooks = 1LL << 38;

bool fits_scatter(const KernelRequest& request) {
  if (!select::has_scatter_types(request)) return false;
  const ref_gather_dims d = scatter_dims(request);
  const auto units = static_cast<double>(d.bound) / static_cast<double>(group_of(d)) *
                     static_cast<double>(d.inner);
  return units * static_cast<double>(d.count) < kMostLooks;
}
bool fits_writers(const KernelRequest& request) {
  return select::has_indices<0>(request) &&
         static_cast<double>(request.outputs[0].shape[0]) *
                 static_cast<double>(core::product(request.inputs[0].shape)) <
             kMostLooks;
}

constexpr select::Condition kScatters(
    fits_scatter, "elements and indices of 32 or 64 bits, and not too many of both");
constexpr select::Condition kWrites(fits_writers,
                                    "indices of int32 or int64, and not too many places");
const select::KernelDef kKernels[] = {
    {"gather", "device.gather", kCanonical, true, select::kIndices<1>, make_gather},
    {"embedding_grad", "device.scatter_add", kCanonical, true, kScatters, make_scatter},
    {"last_writers", "device.last_writers", kCanonical, true, kWrites, make_writers},
};

}  // namespace

std::span<const select::KernelDef> row_kernels() { return kKernels; }

}  // namespace mithril::device
