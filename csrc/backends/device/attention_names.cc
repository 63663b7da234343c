#include "backends/device/attention_names.h"

#include <algorithm>

#include "backends/device/attention_text.h"
#include "core/rounding.h"
#include "tile/convert.h"

namespace mithril::device {
namespace {

using select::AttentionInput;
using select::AttentionSizes;

constexpr int64_t kFewestScores = 100, kFewQueries = 8, kFewestKeys = 32;

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
  constexpr int64_t kMost = 256;  // places of a block, and features
  add(name + "_ROW", stride_text(s.steps[input].row, kMost));
  add(name + "_COL", stride_text(s.steps[input].col, kMost));
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
std::string beside(const AttentionSizes& s, const KernelRequest& request) {
  const auto added = [&](AttentionInput input, const char* element) {
    const core::DType dtype = request.inputs[input].dtype;
    return tile::is_half(dtype)
               ? fmt::format("s += m_float_of_{}({});\n", core::short_name(dtype), element)
               : fmt::format("s += {};\n", element);
  };
  std::string out;
  if (s.has(AttentionInput::kBias)) {
    out += added(AttentionInput::kBias, "(AT_BIAS)[i * BIAS_ROW + k * BIAS_COL]");
  }
  if (s.has(AttentionInput::kMask)) {
    out += s.mask_is_bool ? "if (!(AT_MASK)[i * MASK_ROW + k * MASK_COL]) s = -M_INFINITY;\n"
                          : added(AttentionInput::kMask, "(AT_MASK)[i * MASK_ROW + k * MASK_COL]");
  }
  return out;
}

}  // namespace

AttentionNames::AttentionNames(const KernelRequest& request)
    : sizes_(select::attention_sizes(request)) {
  kept_.reserve(64);  // names are views of them
  const core::DType dtype = core::widened(request.outputs[0].dtype);
  const int64_t lanes = 64 / static_cast<int64_t>(core::size_of(dtype));
  const auto padded = [&](int64_t size) { return core::round_up(size, lanes); };
  int64_t first_output = 0;
  for (const Operand& input : request.inputs) first_output += input.present() ? 1 : 0;
  const bool tells = request.op.name == "attention_with_logsumexp";
  const bool of_scores = request.op.name == "attention_grad_with_scores";
  const auto output = [&](int64_t i) { return fmt::format("a{}", first_output + i); };
  const std::string besides = beside(sizes_, request);
  names_ = {{"ROW_OF_QUERIES", kRow},
            {"KEY_AND_VALUE", kKeyAndValue},
            {"SLOPE", kSlope},
            {"TELL_LOGSUMEXP", tells ? output(1) + "[at] = logsumexp;" : "(void)logsumexp;"},
            {"TELL_SCORES", of_scores ? output(3) + "[at] = ds;" : ""},
            {"BESIDE", besides},
            {"HAS_BESIDE", besides.empty() ? "0" : "1"},
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
      {"m_TYPE", fmt::format("m_{}", core::short_name(dtype))},
      {"m_fma_TYPE", fmt::format("m_fma_{}", core::short_name(dtype))},
      {"m_c_exp_TYPE", fmt::format("m_c_exp_{}", core::short_name(dtype))},
      {"m_c_log_TYPE", fmt::format("m_c_log_{}", core::short_name(dtype))},
      {"m_add_product_TYPE", fmt::format("m_add_product_{}", core::short_name(dtype))},
      {"m_weights_TYPE", fmt::format("m_weights_{}", core::short_name(dtype))},
      {"m_exp_of_TYPE", fmt::format("m_exp_of_{}", core::short_name(dtype))},
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
      {"SCALE", real(sizes_.scale, dtype)},
      {"ROW_BLOCKS", text_of(core::ceil_div(sizes_.rows(), kBlockRows))}};
  names_.insert(names_.end(), numbers.begin(), numbers.end());
}

int64_t AttentionNames::batches() const {
  int64_t out = 1;
  for (const int64_t size : sizes_.batch) out *= size;
  return out;
}

plan::Step attention_step(const AttentionNames& names, FunctionCall call, int64_t units,
                          int64_t products) {
  const AttentionSizes& s = names.sizes();
  const double flops = 2.0 * static_cast<double>(names.batches() * s.rows()) *
                       static_cast<double>(s.keys) * static_cast<double>(products);
  return step_of(std::move(call), units, flops);
}

bool has_elements(const Operand& operand) {
  return std::all_of(operand.shape.begin(), operand.shape.end(),
                     [](int64_t size) { return size > 0; });
}

bool is_worth_streaming(const AttentionSizes& sizes, int64_t widest) {
  if (sizes.rows() * sizes.keys < kFewestScores) return false;
  if (std::max(sizes.depth, sizes.width) > widest) return false;
  return has_many_queries(sizes) || sizes.keys >= kFewestKeys;
}

bool has_many_queries(const AttentionSizes& sizes) { return sizes.rows() > kFewQueries; }

}  // namespace mithril::device
