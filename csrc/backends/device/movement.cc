// Ops that only move elements and need memory of their own: concat, pad, appends to caches.
#include <algorithm>
#include <numeric>

#include "backends/device/dialect.h"
#include "backends/device/kernel_families.h"
#include "select/views.h"

namespace mithril::device {
namespace {

using core::product;

// Of a kernel: every device has room for as many, and for the result.
constexpr size_t kMostInputs = kLeastParameterBytes / kOperandBytes - kOwnOperands - 1;

// ---------------------------------------------------------------- concat

// WIDTH elements of each row of the result, from FIRST on.
constexpr const char* kConcat = R"(for (m_i64 e = begin; e < end;) {
    const m_i64 row = e / WIDTH, at = e % WIDTH;
    M_GLOBAL m_TYPE* const to = RESULT + row * ROW + FIRST + at;
    M_GLOBAL const m_TYPE* from;
    m_i64 count;
PARTS
    if (count > end - e) count = end - e;
    for (m_i64 i = 0; i < count; ++i) to[i] = from[i];
    e += count;
  })";

int64_t axis_of(const KernelRequest& request, bool& flat) {
  const core::HostValue* value = request.node.attrs.find("axis");
  flat = value == nullptr || value->is_none();
  const int64_t axis = flat ? 0 : value->as_int();
  return axis < 0 ? axis + static_cast<int64_t>(request.outputs[0].shape.size()) : axis;
}

// Elements that each operand has in a row of the result.
std::vector<int64_t> parts_of(const KernelRequest& request) {
  bool flat = false;
  const auto axis = static_cast<size_t>(axis_of(request, flat));
  std::vector<int64_t> out;
  for (const Operand& input : request.inputs) {
    if (!input.present()) continue;
    const std::span<const int64_t> sizes(input.shape);
    out.push_back(product(sizes.subspan(flat ? 0 : axis)));
  }
  return out;
}

// Copies the operands [begin, end), which lie side by side in a row of the result.
FunctionCall::Phase join(const KernelRequest& request, const std::vector<int64_t>& parts,
                         size_t begin, size_t end) {
  const int64_t row = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  const auto left = parts.begin() + static_cast<std::ptrdiff_t>(begin);
  const int64_t first = std::accumulate(parts.begin(), left, int64_t{0});
  FunctionCall::Phase out;
  std::string chosen;
  int64_t width = 0;
  for (size_t i = begin; i < end; ++i) {
    if (parts[i] == 0) continue;
    out.operands.push_back(i);
    chosen += fmt::format(
        "    {}if (at < {}) {{\n      from = a{} + row * {} + (at - {});\n      count = {} - at;\n"
        "    }}\n",
        chosen.empty() ? "" : "else ", width + parts[i], i, parts[i], width, width + parts[i]);
    width += parts[i];
  }
  chosen += "    else return;";
  if (width == 0) return out;
  out.operands.push_back(parts.size());
  out.units = product(request.outputs[0].shape) / row * width;
  out.call = filled(kConcat, {{"m_TYPE", "m_" + type_of(request.outputs[0])},
                              {"WIDTH", text_of(width)},
                              {"ROW", text_of(row)},
                              {"FIRST", text_of(first)},
                              {"RESULT", fmt::format("a{}", parts.size())},
                              {"PARTS", chosen}});
  return out;
}

core::Result<plan::Step> make_concat(const KernelRequest& request) {
  const std::vector<int64_t> parts = parts_of(request);
  const int64_t elements = product(request.outputs[0].shape);
  std::vector<FunctionCall::Phase> phases;
  for (size_t at = 0; at < parts.size(); at += kMostInputs) {
    auto phase = join(request, parts, at, std::min(at + kMostInputs, parts.size()));
    if (phase.units > 0) phases.push_back(std::move(phase));
  }
  FunctionCall call = call_of(request, phases.empty() ? "" : phases[0].call);
  if (parts.size() > kMostInputs) {
    call.in_phases = [phases = std::move(phases)](const plan::RegisterTile&) { return phases; };
  }
  return step_of(std::move(call), elements, static_cast<double>(elements));
}

bool fits_concat(const KernelRequest& request) {
  return std::all_of(request.inputs.begin(), request.inputs.end(), [&](const Operand& input) {
    return !input.present() || input.dtype == request.outputs[0].dtype;
  });
}

// ---------------------------------------------------------------- pad

constexpr const char* kPad = R"(for (m_i64 e = begin; e < end;) {
    const m_i64 row = e / WIDTH, first = e % WIDTH;
    const m_i64 last = WIDTH - first < end - e ? WIDTH : first + (end - e);
    m_i64 rest = row, place, at = -LOW;
    int is_inside = 1;
AXES
    const m_i64 left = !is_inside || LOW > last ? last : LOW < first ? first : LOW;
    const m_i64 right = LOW + COUNT < left ? left : LOW + COUNT > last ? last : LOW + COUNT;
    M_GLOBAL m_TYPE* const to = a1 + row * WIDTH;
    for (m_i64 i = first; i < left; ++i) to[i] = 0;
    for (m_i64 i = left; i < right; ++i) to[i] = a0[at + i];
    for (m_i64 i = right; i < last; ++i) to[i] = 0;
    e += last - first;
    (void)rest;
    (void)place;
  })";

core::Result<plan::Step> make_pad(const KernelRequest& request) {
  const Operand& input = request.inputs[0];
  const Operand& output = request.outputs[0];
  const core::HostValue::Tuple& widths = request.node.attrs.find("pad_width")->items();
  const bool one_pair = !widths.empty() && widths[0].is_int();
  const auto low = [&](size_t axis) {
    return one_pair ? widths[0].as_int() : widths[axis].items()[0].as_int();
  };
  const size_t last = input.shape.size() - 1;
  const std::vector<int64_t> strides = select::contiguous_strides(input.shape);
  std::string axes;
  for (size_t axis = last; axis-- > 0;) {
    axes += fmt::format(
        "    place = rest % {0} - ({1}), rest /= {0}, at += place * {2};\n"
        "    if (place < 0 || place >= {3}) is_inside = 0;\n",
        output.shape[axis], low(axis), strides[axis], input.shape[axis]);
  }
  const int64_t elements = product(output.shape);
  return step_of(call_of(request, filled(kPad, {{"m_TYPE", "m_" + type_of(output)},
                                                {"WIDTH", text_of(output.shape[last])},
                                                {"COUNT", text_of(input.shape[last])},
                                                {"LOW", fmt::format("({})", low(last))},
                                                {"AXES", axes}})),
                 elements, static_cast<double>(elements));
}

// With something to copy, or the empty input would be read.
bool fits_pad(const KernelRequest& request) {
  return !request.inputs[0].shape.empty() && request.inputs[0].dtype == request.outputs[0].dtype;
}

// ---------------------------------------------------------------- caches

// New places in a cache, which are all that is written where the cache itself is the result.
constexpr const char* kUpdate = R"(const m_i64 offset = OFFSET;
  const int is_bad = COUNT > 0 && (offset < 0 || offset > ROOM - COUNT);
  for (m_i64 e = begin; e < end;) {
    const m_i64 row = e / WIDTH, first = e % WIDTH;
    const m_i64 last = WIDTH - first < end - e ? WIDTH : first + (end - e);
    const m_i64 place = row % ROOM - offset;
    M_GLOBAL m_TYPE* const to = RESULT + row * WIDTH;
    if (is_bad) {
      for (m_i64 i = first; i < last; ++i) to[i] = M_NAN;
    } else if (place >= 0 && place < COUNT) {
      m_i64 rest = row / ROOM, at = place * PLACE_STEP;
BATCH
      for (m_i64 i = first; i < last; ++i) to[i] = a1[at + i * STEP];
      (void)rest;
    } else if (!is_updated_in_place) {
      for (m_i64 i = first; i < last; ++i) to[i] = a0[row * WIDTH + i];
    }
    e += last - first;
  })";

core::Result<plan::Step> make_update(const KernelRequest& request) {
  const Operand &cache = request.inputs[0], &input = request.inputs[1], &offset = request.inputs[2];
  const size_t rank = cache.shape.size();
  std::string batch;
  for (size_t axis = rank - 2; axis-- > 0;) {
    batch += fmt::format("      at += rest % {0} * {1}, rest /= {0};\n", input.shape[axis],
                         input.strides[axis]);
  }
  const core::HostValue* number = request.node.attrs.find("offset");
  const int64_t fixed = number == nullptr || !number->is_int() ? 0 : number->as_int();
  const int64_t elements = product(cache.shape);
  plan::Step step = step_of(
      call_of(request,
              filled(kUpdate, {{"m_TYPE", "m_" + type_of(cache)},
                               {"OFFSET", offset.present() ? "(m_i64)a2[0]" : text_of(fixed)},
                               {"RESULT", offset.present() ? "a3" : "a2"},
                               {"COUNT", text_of(input.shape[rank - 2])},
                               {"ROOM", text_of(cache.shape[rank - 2])},
                               {"WIDTH", text_of(cache.shape[rank - 1])},
                               {"PLACE_STEP", text_of(input.strides[rank - 2])},
                               {"STEP", text_of(input.strides[rank - 1])},
                               {"BATCH", batch}})),
      elements, static_cast<double>(elements) / 8);
  step.inplace = {{0, 0}};
  step.partial_update = true;
  return step;
}

bool fits_cache(const KernelRequest& request) {
  const Operand &cache = request.inputs[0], &input = request.inputs[1], &offset = request.inputs[2];
  return select::has_real_type(request) && input.dtype == cache.dtype &&
         (!offset.present() || select::is_index(offset.dtype)) &&
         select::is_contiguous(cache.shape, cache.strides);
}

constexpr select::Condition kJoins(fits_concat, "operands of one type");
constexpr select::Condition kPads(fits_pad, "an axis, and one type");
constexpr select::Condition kCache(fits_cache, "float32 or float64 of both, and a cache in order");
const select::KernelDef kKernels[] = {
    {"concat", "device.concat", kCanonical, true, kJoins, make_concat},
    {"pad", "device.pad", kCanonical, true, kPads, make_pad},
    {"update_cache", "device.update_cache", kCanonical, false, kCache, make_update},
};

}  // namespace

std::span<const select::KernelDef> movement_kernels() { return kKernels; }

}  // namespace mithril::device
