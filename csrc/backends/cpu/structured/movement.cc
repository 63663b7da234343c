// Ops that only move elements and need memory of their own: concat, pad.
#include <cstring>

#include "backends/cpu/reference/kernel_families.h"
#include "backends/cpu/reference/reference.h"
#include "core/checked.h"
#include "core/interrupt.h"

namespace mithril::cpu {
namespace {

using core::product;
using plan::KernelArgs;
using plan::KernelStatus;
using select::KernelRequest;
using select::Operand;

constexpr int64_t kBytesBetweenPolls = 4 << 20;

// False where it was interrupted.
bool copy(std::byte* to, const std::byte* from, size_t bytes, core::InterruptCounter& interrupts) {
  for (size_t at = 0; at < bytes; at += kBytesBetweenPolls) {
    const size_t count = std::min<size_t>(bytes - at, kBytesBetweenPolls);
    if (interrupts.is_interrupted(static_cast<int64_t>(count))) return false;
    std::memcpy(to + at, from + at, count);
  }
  return true;
}

// params: number of operands, bytes of a whole output row, then bytes of each operand's part.
KernelStatus run_concat(const KernelArgs& args, int64_t begin, int64_t end) {
  core::InterruptCounter interrupts(kBytesBetweenPolls);
  const int64_t count = args.params[0];
  const int64_t row_bytes = args.params[1];
  const int64_t* part_bytes = args.params + 2;
  for (int64_t row = begin; row < end; ++row) {
    auto* to = static_cast<std::byte*>(args.buffers[count]) + row * row_bytes;
    for (int64_t i = 0; i < count; ++i) {
      const auto bytes = static_cast<size_t>(part_bytes[i]);
      const auto* from = static_cast<const std::byte*>(args.buffers[i]);
      if (bytes != 0 && !copy(to, from + static_cast<size_t>(row) * bytes, bytes, interrupts)) {
        return KernelStatus::kCancelled;
      }
      to += bytes;
    }
  }
  return KernelStatus::kOk;
}

core::Result<plan::Step> make_concat(const KernelRequest& request) {
  const Operand& output = request.outputs[0];
  const core::HostValue* axis_value = request.node.attrs.find("axis");
  const bool flat = axis_value == nullptr || axis_value->is_none();
  const auto rank = static_cast<int64_t>(output.shape.size());
  int64_t axis = flat ? 0 : axis_value->as_int();
  if (axis < 0) axis += rank;
  const auto element = static_cast<int64_t>(core::size_of(output.dtype));
  const std::span<const int64_t> shape(output.shape);
  plan::Step step;
  step.kernel = run_concat;
  step.units = product(shape.first(static_cast<size_t>(axis)));
  int64_t count = 0;
  int64_t row_bytes = 0;
  std::vector<int64_t> parts;
  for (const Operand& input : request.inputs) {
    if (!input.present()) continue;
    const std::span<const int64_t> sizes(input.shape);
    const auto from = flat ? 0 : static_cast<size_t>(axis);
    parts.push_back(product(sizes.subspan(from)) * element);
    row_bytes += parts.back();
    ++count;
  }
  step.params = {count, row_bytes};
  step.params.insert(step.params.end(), parts.begin(), parts.end());
  step.grain = grain_of(row_bytes);
  return step;
}

struct Padding {
  ref_copy_dims dims;
  int64_t element, output_bytes, offset;  // bytes
};

KernelStatus run_pad(const KernelArgs& args, int64_t, int64_t) {
  const auto& padding = *static_cast<const Padding*>(args.data);
  auto* to = static_cast<std::byte*>(args.buffers[1]);
  if (padding.output_bytes == 0) return KernelStatus::kOk;  // and no array: `to` is null
  std::memset(to, 0, static_cast<size_t>(padding.output_bytes));
  reference_kernels(default_isa())
      .copy(&padding.dims, padding.element, args.buffers[0], to + padding.offset, 0,
            ref_copy_units(&padding.dims));
  return KernelStatus::kOk;
}

core::Result<plan::Step> make_pad(const KernelRequest& request) {
  const Operand& input = request.inputs[0];
  const Operand& output = request.outputs[0];
  const core::HostValue::Tuple& widths = request.node.attrs.find("pad_width")->items();
  const bool one_pair = !widths.empty() && widths[0].is_int();
  auto padding = std::make_shared<Padding>();
  padding->element = static_cast<int64_t>(core::size_of(output.dtype));
  padding->dims.rank = static_cast<int64_t>(input.shape.size());
  int64_t offset = 0;
  for (size_t i = 0; i < input.shape.size(); ++i) {
    padding->dims.size[i] = input.shape[i];
    padding->dims.from[i] = input.strides[i];
    padding->dims.to[i] = output.strides[i];
    const int64_t low = one_pair ? widths[0].as_int() : widths[i].items()[0].as_int();
    offset += low * output.strides[i];
  }
  padding->offset = offset * padding->element;
  padding->output_bytes = product(output.shape) * padding->element;
  plan::Step step;
  step.kernel = run_pad;
  step.data = std::move(padding);
  return step;
}

bool fits_rank(const KernelRequest& request) {
  return request.outputs[0].shape.size() <= REF_MAX_RANK;
}

constexpr select::Condition kRank(fits_rank, "at most 16 axes");
static_assert(REF_MAX_RANK == 16);
const select::KernelDef kKernels[] = {
    {"concat", "concat", select::OrderClass::kCanonical, true, nullptr, make_concat},
    {"pad", "pad", select::OrderClass::kCanonical, true, kRank, make_pad},
};

}  // namespace

std::span<const select::KernelDef> movement_kernels() { return kKernels; }

}  // namespace mithril::cpu
