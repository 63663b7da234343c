// Ops that only move elements and need memory of their own: concat, pad, appends to caches.
#include "backends/c/kernel_families.h"
#include "core/checked.h"
#include "select/views.h"

namespace mithril::c {
namespace {

using core::product;
using select::KernelRequest;
using select::Operand;

// Rows of bytes: of each operand its part behind that of the one before.
core::Result<plan::Step> make_concat(const KernelRequest& request) {
  const Operand& output = request.outputs[0];
  const core::HostValue* axis_value = request.node.attrs.find("axis");
  const bool flat = axis_value == nullptr || axis_value->is_none();
  int64_t axis = flat ? 0 : axis_value->as_int();
  if (axis < 0) axis += static_cast<int64_t>(output.shape.size());
  const auto element = static_cast<int64_t>(core::size_of(output.dtype));
  std::vector<int64_t> parts;
  for (const Operand& input : request.inputs) {
    if (!input.present()) continue;
    const std::span<const int64_t> sizes(input.shape);
    parts.push_back(product(sizes.subspan(flat ? 0 : static_cast<size_t>(axis))) * element);
  }
  int64_t row = 0;
  for (const int64_t part : parts) row += part;
  std::string copies;
  int64_t at = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i] == 0) continue;
    copies += fmt::format(
        "\n    memcpy((unsigned char*)a{0} + row * {1} + {2}, (const unsigned char*)a{3} + row * "
        "{4}, {4});",
        parts.size(), row, at, i, parts[i]);
    at += parts[i];
  }
  for (size_t i = 0; i < parts.size(); ++i) copies += fmt::format(" (void)a{};", i);
  plan::FunctionCall call;
  call.name = "concat";
  call.call = fmt::format("(void)a{};\n  for (m_i64 row = begin; row < end; ++row) {{{}\n  }}",
                          parts.size(), copies);
  const std::span<const int64_t> shape(output.shape);
  return step_of(std::move(call), product(shape.first(static_cast<size_t>(axis))), grain_of(row));
}

// The sizes of ref_copy, of an input to where it begins in the output.
std::string copied(const Operand& input, const Operand& output) {
  const auto list = [](const std::vector<int64_t>& numbers) {
    return numbers.empty() ? std::string("{0}") : fmt::format("{{{}}}", fmt::join(numbers, ", "));
  };
  return fmt::format("static const ref_copy_dims d = {{{}, {}, {}, {}}};", input.shape.size(),
                     list(input.shape), list(input.strides), list(output.strides));
}

core::Result<plan::Step> make_pad(const KernelRequest& request) {
  const Operand& input = request.inputs[0];
  const Operand& output = request.outputs[0];
  const core::HostValue::Tuple& widths = request.node.attrs.find("pad_width")->items();
  const bool one_pair = !widths.empty() && widths[0].is_int();
  const auto element = static_cast<int64_t>(core::size_of(output.dtype));
  int64_t offset = 0, units = 1;
  for (size_t i = 0; i < input.shape.size(); ++i) {
    const int64_t low = one_pair ? widths[0].as_int() : widths[i].items()[0].as_int();
    offset += low * output.strides[i];
    if (i + 1 < input.shape.size()) units *= input.shape[i];
  }
  plan::FunctionCall call;
  call.name = "pad";
  call.texts = {"copy"};
  call.declarations = copied(input, output);
  call.call = fmt::format(
      "memset(a1, 0, {});\n  ref_copy(&d, {}, a0, (unsigned char*)a1 + {}, 0 * begin, {} * end)",
      product(output.shape) * element, element, offset * element, units);
  return step_of(std::move(call), 1);
}

// New places in a cache, which are all that is written where the cache itself is the result.
core::Result<plan::Step> make_update(const KernelRequest& request) {
  const Operand &cache = request.inputs[0], &input = request.inputs[1], &offset = request.inputs[2];
  const std::span<const int64_t> shape(cache.shape);
  const int64_t width = shape.back(), room = shape[shape.size() - 2];
  const int64_t count = input.shape[input.shape.size() - 2];
  const core::HostValue* given = request.node.attrs.find("offset");
  const int64_t fixed = given == nullptr || !given->is_int() ? 0 : given->as_int();
  plan::FunctionCall call;
  call.name = "update_cache";
  call.texts = {"copy"};
  call.declarations = copied(input, request.outputs[0]);
  call.call = fmt::format(
      R"(const m_i64 first = {0};
  if ({1}) {{
    for (m_i64 i = 0; i < {2}; ++i) {3}[i] = NAN;
  }} else {{
    if ({3} != a0) memcpy({3}, a0, {2} * sizeof *a0);
    ref_copy(&d, sizeof *a0, a1, {3} + first * {4}, 0 * begin, {5} * end);
  }})",
      offset.present() ? "(m_i64)*a2" : fmt::to_string(fixed),
      count == 0 ? "0" : fmt::format("first < 0 || first > {}", room - count), product(shape),
      offset.present() ? "a3" : "a2", width, product(input.shape) / std::max<int64_t>(width, 1));
  plan::Step step = step_of(std::move(call), 1);
  step.inplace = {{0, 0}};
  step.partial_update = true;
  return step;
}

bool fits_cache(const KernelRequest& request) {
  const Operand &cache = request.inputs[0], &input = request.inputs[1], &offset = request.inputs[2];
  const bool is_place = offset.dtype == core::DType::kInt32 || offset.dtype == core::DType::kInt64;
  return select::has_real_type(request) && input.dtype == cache.dtype &&
         cache.shape.size() <= REF_MAX_RANK && (!offset.present() || is_place) &&
         select::is_contiguous(cache.shape, cache.strides);
}

bool fits_rank(const KernelRequest& request) {
  return request.outputs[0].shape.size() <= REF_MAX_RANK;
}

constexpr select::Condition kRank(fits_rank, "at most 16 axes");
constexpr select::Condition kCache(fits_cache, "float32 or float64 of both, and a cache in order");
constexpr auto kCanonical = select::OrderClass::kCanonical;
const select::KernelDef kKernels[] = {
    {"concat", "concat", kCanonical, true, nullptr, make_concat},
    {"pad", "pad", kCanonical, true, kRank, make_pad},
    {"update_cache", "update_cache", kCanonical, false, kCache, make_update},
};

}  // namespace

std::span<const select::KernelDef> movement_kernels() { return kKernels; }

}  // namespace mithril::c
