// Attention with streaming softmax, and its gradients, from a node to what is printed of it
// (attention_text.h).
#include <algorithm>

#include "backends/device/attention_text.h"
#include "backends/device/kernel_families.h"
#include "select/attention_sizes.h"

namespace mithril::device {
namespace {

using select::AttentionInput;
using select::AttentionSizes;

// Below, loops and products of what it stands for have less to set up, as on the engine's CPU.
constexpr int64_t kFewestScores = 100, kFewQueries = 8, kFewestKeys = 32;
constexpr int64_t kWidest = 256;  // of keys and of values: an item has some rows of them

// ---------------------------------------------------------------- names of the texts

// The place of an operand's part for a `batch` and a `head`.
std::string place_of(const AttentionSizes& s, AttentionInput input) {
  std::string out;
  int64_t below = 1;
  for (size_t axis = s.batch.size(); axis-- > 0; below *= s.batch[axis]) {
    const int64_t step = s.steps[input].batch[axis];
    if (step == 0 || s.batch[axis] == 1) continue;
    out += fmt::format("batch / {} % {} * {} + ", below, s.batch[axis], step);
  }
  return fmt::format("a{} + {}head * {}", s.buffer[input], out, s.steps[input].head);
}

// "AT_Q", "Q_ROW" and "Q_COL" of an operand called Q.
void add_operand(Names& names, std::vector<std::string>& kept, const AttentionSizes& s,
                 AttentionInput input, const std::string& name) {
  const auto add = [&](const std::string& key, const std::string& value) {
    kept.push_back(key);
    names.emplace_back(kept.back(), value);
  };
  if (!s.has(input)) return;
  add("AT_" + name, place_of(s, input));
  add(name + "_ROW", text_of(s.steps[input].row));
  add(name + "_COL", text_of(s.steps[input].col));
}

std::string real(double number, core::DType dtype) {
  return dtype == core::DType::kFloat32 ? fmt::format("{:a}f", static_cast<float>(number))
                                        : fmt::format("{:a}", number);
}

std::string offset_of(const AttentionSizes& s) {
  if (!s.is_causal) return "0";
  return s.has(AttentionInput::kOffset)
             ? fmt::format("(m_i64)a{}[0]", s.buffer[AttentionInput::kOffset])
             : text_of(s.offset);
}

// Adds to the products of queries and keys what else is part of the score `s` of row i and key k.
std::string beside(const AttentionSizes& s) {
  std::string out;
  if (s.has(AttentionInput::kBias)) out += "s += (AT_BIAS)[i * BIAS_ROW + k * BIAS_COL];\n";
  if (s.has(AttentionInput::kMask)) {
    out += s.mask_is_bool ? "if (!(AT_MASK)[i * MASK_ROW + k * MASK_COL]) s = -M_INFINITY;\n"
                          : "s += (AT_MASK)[i * MASK_ROW + k * MASK_COL];\n";
  }
  return out;
}

int64_t batches_of(const AttentionSizes& s) {
  int64_t out = 1;
  for (const int64_t size : s.batch) out *= size;
  return out;
}

/// Fills the texts of one node.
class Filler {
 public:
  explicit Filler(const KernelRequest& request)
      : sizes_(select::attention_sizes(request)), dtype_(request.outputs[0].dtype) {
    kept_.reserve(64);  // names are views of them
    const int64_t lanes = 64 / static_cast<int64_t>(core::size_of(dtype_));
    const auto padded = [&](int64_t size) { return (size + lanes - 1) / lanes * lanes; };
    first_output_ = 0;
    for (const Operand& input : request.inputs) first_output_ += input.present() ? 1 : 0;
    const bool tells = request.op.name == "attention_with_logsumexp";
    const bool of_scores = request.op.name == "attention_grad_with_scores";
    const auto output = [&](int64_t i) { return fmt::format("a{}", first_output_ + i); };
    names_ = {{"ROW_OF_QUERIES", kRow},
              {"KEY_AND_VALUE", kKeyAndValue},
              {"SLOPE", kSlope},
              {"TELL_LOGSUMEXP", tells ? output(1) + "[at] = logsumexp;" : "(void)logsumexp;"},
              {"TELL_SCORES", of_scores ? output(3) + "[at] = ds;" : ""},
              {"BESIDE", beside(sizes_)},
              {"HAS_BESIDE", beside(sizes_).empty() ? "0" : "1"},
              {"OUT0", output(0)},
              {"OUT1", output(1)},
              {"OUT2", output(2)}};
    using Pair = std::pair<AttentionInput, const char*>;
    for (const auto& [input, name] :
         {Pair{AttentionInput::kQuery, "Q"}, Pair{AttentionInput::kKey, "K"},
          Pair{AttentionInput::kValue, "V"}, Pair{AttentionInput::kMask, "MASK"},
          Pair{AttentionInput::kBias, "BIAS"}, Pair{AttentionInput::kOutput, "Y"},
          Pair{AttentionInput::kLogsumexp, "LSE"}, Pair{AttentionInput::kOutputGradient, "DY"}}) {
      add_operand(names_, kept_, sizes_, input, name);
    }
    const Names numbers = {
        {"m_TYPE", fmt::format("m_{}", core::short_name(dtype_))},
        {"m_fma_TYPE", fmt::format("m_fma_{}", core::short_name(dtype_))},
        {"m_c_exp_TYPE", fmt::format("m_c_exp_{}", core::short_name(dtype_))},
        {"m_c_log_TYPE", fmt::format("m_c_log_{}", core::short_name(dtype_))},
        {"m_add_product_TYPE", fmt::format("m_add_product_{}", core::short_name(dtype_))},
        {"m_weights_TYPE", fmt::format("m_weights_{}", core::short_name(dtype_))},
        {"m_exp_of_TYPE", fmt::format("m_exp_of_{}", core::short_name(dtype_))},
        {"ROWS", text_of(sizes_.rows())},
        {"QUERIES", text_of(sizes_.queries)},
        {"KEYS", text_of(sizes_.keys)},
        {"DEPTH", text_of(sizes_.depth)},
        {"WIDTH", text_of(sizes_.width)},
        {"DEPTH_ROOM", text_of(padded(sizes_.depth))},
        {"WIDTH_ROOM", text_of(padded(sizes_.width))},
        {"BLOCK_KEYS", text_of(kBlockKeys)},
        {"BLOCK_ROWS", text_of(kBlockRows)},
        {"IS_CAUSAL", sizes_.is_causal ? "1" : "0"},
        {"OFFSET", offset_of(sizes_)},
        {"SCALE", real(sizes_.scale, dtype_)},
        {"ROW_BLOCKS", text_of(row_blocks())}};
    names_.insert(names_.end(), numbers.begin(), numbers.end());
  }

  const AttentionSizes& sizes() const { return sizes_; }
  std::string fill(const char* text) const { return filled(text, names_); }
  int64_t batches() const { return batches_of(sizes_); }
  int64_t row_blocks() const { return (sizes_.rows() + kBlockRows - 1) / kBlockRows; }

 private:
  AttentionSizes sizes_;
  core::DType dtype_;
  int64_t first_output_ = 0;
  std::vector<std::string> kept_;
  Names names_;
};

// ---------------------------------------------------------------- steps

// `products`: multiply-adds of a score.
plan::Step attention_step(const Filler& filler, FunctionCall call, int64_t units,
                          int64_t products) {
  const AttentionSizes& s = filler.sizes();
  const double flops = 2.0 * static_cast<double>(filler.batches() * s.rows()) *
                       static_cast<double>(s.keys) * static_cast<double>(products);
  return step_of(std::move(call), units, flops);
}

core::Result<plan::Step> make_attention(const KernelRequest& request) {
  const Filler filler(request);
  const AttentionSizes& s = filler.sizes();
  FunctionCall call = call_of(request, filler.fill(kAttentionOfRow));
  call.in_long_items = {filler.fill(kAttentionOfBlock), filler.batches() * filler.row_blocks(), 0};
  return attention_step(filler, std::move(call), filler.batches() * s.rows(), s.depth + s.width);
}

core::Result<plan::Step> make_gradient(const KernelRequest& request) {
  const Filler filler(request);
  const AttentionSizes& s = filler.sizes();
  FunctionCall call = call_of(request, filler.fill(kGradientOfRow));
  call.in_long_items = {filler.fill(kGradientOfBlocks), filler.batches(), 0};
  return attention_step(filler, std::move(call), filler.batches() * (s.rows() + s.keys),
                        3 * s.depth + 2 * s.width);
}

bool has_elements(const Operand& operand) {
  return std::all_of(operand.shape.begin(), operand.shape.end(),
                     [](int64_t size) { return size > 0; });
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
  const AttentionSizes s = select::attention_sizes(request);
  if (s.rows() * s.keys < kFewestScores || std::max(s.depth, s.width) > kWidest) return false;
  return s.rows() > kFewQueries || s.keys >= kFewestKeys;
}

// Decides for the gradient as a whole, whichever device it is.
bool fits_trained(const KernelRequest& request) {
  return fits_attention(request) && select::attention_sizes(request).rows() > kFewQueries;
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
