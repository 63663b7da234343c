// Attention with streaming softmax, and its gradients, from a node to what is printed of it
// (attention_text.h).
#include "backends/device/attention_names.h"
#include "backends/device/attention_text.h"
#include "backends/device/kernel_families.h"
#include "core/rounding.h"

namespace mithril::device {
namespace {

using select::AttentionInput;
using select::AttentionSizes;

constexpr int64_t kWidest = 256;  // of keys and of values: an item has some rows of them

core::Result<plan::Step> make_attention(const KernelRequest& request) {
  const AttentionNames names(request);
  const AttentionSizes& s = names.sizes();
  FunctionCall call = call_of(request, names.fill(kAttentionOfRow));
  const int64_t blocks = names.batches() * core::ceil_div(s.rows(), kBlockRows);
  call.in_long_items = {names.fill(kAttentionOfBlock), blocks, 0};
  return attention_step(names, std::move(call), names.batches() * s.rows(), s.depth + s.width);
}

core::Result<plan::Step> make_gradient(const KernelRequest& request) {
  const AttentionNames names(request);
  const AttentionSizes& s = names.sizes();
  FunctionCall call = call_of(request, names.fill(kGradientOfRow));
  call.in_long_items = {names.fill(kGradientOfBlocks), names.batches(), 0};
  return attention_step(names, std::move(call), names.batches() * (s.rows() + s.keys),
                        3 * s.depth + 2 * s.width);
}

// An offset is any index, a mask may be of bools, all else is of the type of the result.
bool is_readable(const KernelRequest& request, size_t input) {
  const core::DType dtype = request.inputs[input].dtype;
  if (input == AttentionInput::kOffset) return select::is_index(dtype);
  const bool is_mask = input == AttentionInput::kMask && dtype == core::DType::kBool;
  return is_mask || dtype == request.outputs[0].dtype;
}

bool fits_attention(const KernelRequest& request) {
  if (!select::has_real_type(request)) return false;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const Operand& input = request.inputs[i];
    if (input.present() && (!has_elements(input) || !is_readable(request, i))) return false;
  }
  return is_worth_streaming(select::attention_sizes(request), kWidest);
}

// Decides for the gradient as a whole, whichever device it is.
bool fits_trained(const KernelRequest& request) {
  return fits_attention(request) && has_many_queries(select::attention_sizes(request));
}

constexpr auto kOther = select::OrderClass::kOther;
constexpr select::Condition kFits(
    fits_attention, "float32 or float64, heads of at most 256, and scores enough to stream");
constexpr select::Condition kTrained(fits_trained, kFits.text);
const select::KernelDef kKernels[] = {
    {"plain_attention", "device.attention", kOther, false, kFits, make_attention},
    {"attention", "device.attention", kOther, false, kFits, make_attention},
    {"attention_with_logsumexp", "device.attention", kOther, false, kTrained, make_attention},
    {"attention_grad", "device.attention_grad", kOther, false, kTrained, make_gradient},
    {"attention_grad_with_scores", "device.attention_grad", kOther, false, kTrained, make_gradient},
};

}  // namespace

std::span<const select::KernelDef> attention_kernels() { return kKernels; }

}  // namespace mithril::device
