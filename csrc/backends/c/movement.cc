// Ops that only move elements and need memory of their own: concat, pad.
#include "backends/c/kernel_families.h"
#include "core/checked.h"

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
  const auto list = [](const std::vector<int64_t>& numbers) {
    return numbers.empty() ? std::string("{0}") : fmt::format("{{{}}}", fmt::join(numbers, ", "));
  };
  plan::FunctionCall call;
  call.name = "pad";
  call.texts = {"copy"};
  call.declarations =
      fmt::format("static const ref_copy_dims d = {{{}, {}, {}, {}}};", input.shape.size(),
                  list(input.shape), list(input.strides), list(output.strides));
  call.call = fmt::format(
      "memset(a1, 0, {});\n  ref_copy(&d, {}, a0, (unsigned char*)a1 + {}, 0 * begin, {} * end)",
      product(output.shape) * element, element, offset * element, units);
  return step_of(std::move(call), 1);
}

bool fits_rank(const KernelRequest& request) {
  return request.outputs[0].shape.size() <= REF_MAX_RANK;
}

constexpr select::Condition kRank(fits_rank, "at most 16 axes");
constexpr auto kCanonical = select::OrderClass::kCanonical;
const select::KernelDef kKernels[] = {
    {"concat", "concat", kCanonical, true, nullptr, make_concat},
    {"pad", "pad", kCanonical, true, kRank, make_pad},
};

}  // namespace

std::span<const select::KernelDef> movement_kernels() { return kKernels; }

}  // namespace mithril::c
