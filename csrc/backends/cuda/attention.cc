// Attention of halves by tiles that warps multiply on tensor cores (attention_text.h).
#include <algorithm>

#include "backends/cuda/attention_text.h"
#include "backends/cuda/kernel_families.h"
#include "backends/cuda/tile_text.h"
#include "backends/device/attention_names.h"
#include "core/rounding.h"
#include "tile/convert.h"

namespace mithril::cuda {
namespace {

using core::DType;
using device::AttentionNames;
using device::text_of;
using select::AttentionInput;
using select::AttentionSizes;
using select::KernelRequest;
using select::Operand;

constexpr int64_t kWidest = 128;  // of keys and of values: sums of a row are registers of a warp
constexpr int64_t kMostRows = INT32_MAX - 2 * kTile;  // or keys: they are counted in ints
constexpr int64_t kPlaces = 16;                       // of a product of tiles
constexpr int64_t kPadding = 8;  // halves behind a row: 8 rows of a tile lie in all banks of memory
constexpr int64_t kShared = 48 << 10;  // bytes of a block, on every device
constexpr int64_t kOfRow = 16;         // bytes that gradients keep beside each row

int64_t room_of(int64_t size) { return core::round_up(size, kPlaces) + kPadding; }

// Rows, or keys, that stream past the tile of a gradient: as many as there are registers and memory
// for.
int64_t side_of(const AttentionSizes& s) {
  const int64_t row = (room_of(s.depth) + room_of(s.width)) * 2;
  int64_t side = kTile / 2;
  while (side > kPlaces && (kTile + side) * row + kTile * kOfRow > kShared) side /= 2;
  return side;
}
static_assert((kTile + kPlaces) * 2 * (kWidest + kPadding) * 2 + kTile * kOfRow <= kShared);

/// Fills the texts with what they say of halves and tiles, too.
class TileNames : public AttentionNames {
 public:
  explicit TileNames(const KernelRequest& request) : AttentionNames(request) {
    const DType half = request.inputs[AttentionInput::kQuery].dtype;
    const DType result = request.outputs[0].dtype;
    const AttentionSizes& s = sizes();
    const bool is_narrow = half == DType::kFloat16;
    names_ = {
        {"TILE", text_of(kTile)},
        {"SIDE", text_of(side_of(s))},
        {"THREADS", text_of(kAttentionThreads)},
        {"KEY_ROOM", text_of(room_of(s.depth))},
        {"VALUE_ROOM", text_of(room_of(s.width))},
        {"ROW_TILES", text_of(core::ceil_div(s.rows(), kTile))},
        {"KEY_TILES", text_of(core::ceil_div(s.keys, kTile))},
        {"IS_NARROW", text_of(static_cast<int64_t>(is_narrow))},
        {"EXPONENT", is_narrow ? "0x7c00u" : "0x7f80u"},
        // Weights are at most 1; float16 has many more numbers below 2^15 than below 1.
        {"WEIGHT_UNIT", is_narrow ? "32768.0f" : "1.0f"},
        {"OF_FLOAT",
         tile::is_half(result) ? fmt::format("m_{}_of_float", core::short_name(result)) : ""}};
    const auto of_half = [&](const char* name) {
      return fmt::format("{}_{}", name, core::short_name(half));
    };
    const device::Names functions = {{"m_tile_multiply_HALF", of_half("m_tile_multiply")},
                                     {"m_tile_pair_HALF", of_half("m_tile_pair")},
                                     {"m_tile_low_HALF", of_half("m_tile_low")},
                                     {"m_tile_high_HALF", of_half("m_tile_high")},
                                     {"m_float_of_HALF", of_half("m_float_of")}};
    names_.insert(names_.end(), functions.begin(), functions.end());
  }

  std::string fill(const char* text) const {
    const std::string whole = std::string(kTileMacros) + text + kEndOfTileMacros;
    return device::filled(AttentionNames::fill(whole), names_);
  }

 private:
  device::Names names_;
};

plan::FunctionCall tile_call(const KernelRequest& request, std::string text) {
  plan::FunctionCall call = device::call_of(request, std::move(text));
  call.texts = {kTileFunctions};
  call.threads = kAttentionThreads;
  return call;
}

core::Result<plan::Step> make_attention(const KernelRequest& request) {
  const TileNames names(request);
  const AttentionSizes& s = names.sizes();
  return device::attention_step(names, tile_call(request, names.fill(kAttentionOfTile)),
                                names.batches() * core::ceil_div(s.rows(), kTile),
                                s.depth + s.width);
}

core::Result<plan::Step> make_gradient(const KernelRequest& request) {
  const TileNames names(request);
  const AttentionSizes& s = names.sizes();
  return device::attention_step(
      names, tile_call(request, names.fill(kGradientOfTile)),
      names.batches() * (core::ceil_div(s.rows(), kTile) + core::ceil_div(s.keys, kTile)),
      3 * s.depth + 2 * s.width);
}

// An offset is any index, a mask may be of bools; what the forward pass kept is float32, all else
// of the half.
bool is_readable(const KernelRequest& request, size_t input) {
  const DType dtype = request.inputs[input].dtype;
  if (input == AttentionInput::kOffset) return select::is_index(dtype);
  if (input == AttentionInput::kOutput || input == AttentionInput::kLogsumexp) {
    return dtype == DType::kFloat32;
  }
  const bool is_mask = input == AttentionInput::kMask && dtype == DType::kBool;
  return is_mask || dtype == request.inputs[AttentionInput::kQuery].dtype;
}

bool fits(const KernelRequest& request) {
  if (!tile::is_half(request.inputs[AttentionInput::kQuery].dtype)) return false;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const Operand& input = request.inputs[i];
    if (input.present() && (!device::has_elements(input) || !is_readable(request, i))) return false;
  }
  const AttentionSizes s = select::attention_sizes(request);
  return std::max(s.rows(), s.keys) <= kMostRows && device::is_worth_streaming(s, kWidest);
}

bool fits_trained(const KernelRequest& request) {
  return fits(request) && device::has_many_queries(select::attention_sizes(request));
}

constexpr auto kOther = select::OrderClass::kOther;
constexpr select::Condition kFits(
    fits, "float16 or bfloat16, heads of at most 128, and scores enough to stream");
constexpr select::Condition kTrained(fits_trained, kFits.text);
constexpr const char* kName = "cuda.attention";
const select::KernelDef kKernels[] = {
    {"plain_attention", kName, kOther, false, kFits, make_attention},
    {"attention", kName, kOther, false, kFits, make_attention},
    {"attention_with_logsumexp", kName, kOther, false, kTrained, make_attention},
    {"attention_grad", "cuda.attention_grad", kOther, false, kTrained, make_gradient},
};

}  // namespace

std::span<const select::KernelDef> tile_attention_kernels() { return kKernels; }

}  // namespace mithril::cuda
