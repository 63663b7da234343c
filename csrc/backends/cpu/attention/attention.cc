// Attention without a matrix of scores: blocks of keys stream past some queries, whose softmax is
// kept up to date (Milakov & Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135). Order
// class: other; docs/numerics.md has the bound.
#include "backends/cpu/attention/attention.h"

#include <algorithm>
#include <memory>

#include "backends/cpu/attention/attention_few.h"
#include "backends/cpu/attention/attention_gradient.h"
#include "backends/cpu/attention/attention_many.h"
#include "backends/cpu/reference/kernel_families.h"
#include "core/rounding.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::KernelArgs;
using plan::KernelStatus;
using select::KernelRequest;
using select::Operand;

// Below, the decomposition has less to set up.
constexpr int64_t kFewestScores = 100;  // of the heads that share keys
constexpr int64_t kFewestKeys = 32;     // of few queries
// Products of wide heads take nearly all of the time, and whole ones are better cut into tiles.
constexpr int64_t kWideHeads = 384;  // width of a key and of a value together
constexpr int64_t kKeysOfWide = 512;
// Fewer would leave threads idle: their gradients are cut into units that repeat a part of the
// work.
constexpr int64_t kFewestBatches = 4;

template <class T>
void find_parts(Attention<T>& attention) {
#if defined(__x86_64__)
  const auto of_type = [](const auto& table) -> const auto& {
    if constexpr (sizeof(T) == sizeof(float)) {
      return table.f32;
    } else {
      return table.f64;
    }
  };
  const bool wide = attention.isa == Isa::kAvx512;
  attention.parts = &of_type(wide ? avx512::kAttention : avx2::kAttention);
#endif
  attention.gemm = gemm_parts<T>(attention.isa);
}

template <class Units, class Of>
KernelStatus run_units(const KernelArgs& args, int64_t begin, int64_t end) {
  Units units(*static_cast<const Of*>(args.data), args);
  for (int64_t unit = begin; unit < end; ++unit) {
    const KernelStatus status = units.run(unit);
    if (status != KernelStatus::kOk) return status;
  }
  return KernelStatus::kOk;
}

int64_t batches_of(const AttentionSizes& sizes) {
  int64_t out = 1;
  for (const int64_t size : sizes.batch) out *= size;
  return out;
}

// `unit_work`: multiply-adds of a unit.
template <class Units, class Of>
plan::Step step_of(std::shared_ptr<Of> attention, int64_t unit_work) {
  Units::prepare(*attention);
  plan::Step step;
  step.kernel = run_units<Units, Of>;
  step.units = attention->batch_units * batches_of(attention->sizes);
  step.grain = grain_of(unit_work / 8);  // vectors of at least 8
  step.scratch_bytes = typename Units::Scratch(*attention, nullptr).bytes;
  step.data = std::move(attention);
  return step;
}

// As many rows as share a look at the keys, but units for all threads. No result depends on it.
template <class T>
void cut_units(Attention<T>& a, int threads) {
  const int64_t blocks = core::ceil_div(a.sizes.rows(), kAttentionRows);
  const int64_t all = blocks * batches_of(a.sizes);
  const int64_t affordable = threads == 1 ? blocks : std::max<int64_t>(1, all / (4 * threads));
  const int64_t most = std::min({ManyQueries<T>::kMostBlocks, blocks, affordable});
  a.batch_units = core::ceil_div(blocks, most);
  a.unit_rows = core::ceil_div(blocks, a.batch_units) * kAttentionRows;
}

template <class Of>
std::shared_ptr<Of> described(const KernelRequest& request, Isa isa) {
  auto out = std::make_shared<Of>();
  out->isa = isa;
  find_parts(*out);
  out->sizes = select::attention_sizes(request);
  for (const Operand& input : request.inputs) out->output += input.present() ? 1 : 0;
  return out;
}

template <class T>
plan::Step make_step(const KernelRequest& request, Isa isa) {
  auto attention = described<Attention<T>>(request, isa);
  attention->tells_logsumexp = request.outputs.size() > 1;
  cut_units(*attention, request.threads);
  const AttentionSizes& s = attention->sizes;
  const int64_t work = std::min(s.rows(), attention->unit_rows) * s.keys * (s.depth + s.width);
  return s.rows() <= FewQueries<T>::kMostRows && !attention->tells_logsumexp
             ? step_of<FewQueries<T>>(std::move(attention), work)
             : step_of<ManyQueries<T>>(std::move(attention), work);
}

template <class T>
plan::Step make_gradient_step(const KernelRequest& request, Isa isa) {
  auto attention = described<AttentionGradient<T>>(request, isa);
  const AttentionSizes& s = attention->sizes;
  attention->tells_scores = request.outputs.size() > 3;
  attention->is_split = batches_of(s) < kFewestBatches;
  const int64_t work = s.rows() * s.keys * (3 * s.depth + 2 * s.width);
  return step_of<GradientUnits<T>>(std::move(attention), work);
}

bool has_elements(const Operand& operand) {
  return std::all_of(operand.shape.begin(), operand.shape.end(),
                     [](int64_t size) { return size > 0; });
}

// An offset is any index, a mask may be of bools, all else is of the type of the result.
bool is_readable(const KernelRequest& request, size_t input) {
  const DType dtype = request.inputs[input].dtype;
  if (input == kOffset) return dtype == DType::kInt32 || dtype == DType::kInt64;
  return dtype == request.outputs[0].dtype || (input == kMask && dtype == DType::kBool);
}

bool matches(const KernelRequest& request) { return fits_attention(request); }
bool matches_trained(const KernelRequest& request) { return fits_trained_attention(request); }

core::Result<plan::Step> make(const KernelRequest& request) { return make_attention(request); }
core::Result<plan::Step> make_gradient(const KernelRequest& request) {
  return make_attention_gradient(request);
}

constexpr auto kOther = select::OrderClass::kOther;
constexpr select::Condition kFits(
    matches, "float32 or float64, AVX2, and scores enough to gain by streaming");
constexpr select::Condition kTrained(matches_trained, kFits.text);
const select::KernelDef kKernels[] = {
    {"plain_attention", "attention", kOther, false, kFits, make},
    {"attention", "attention", kOther, false, kFits, make},
    {"attention_with_logsumexp", "attention", kOther, false, kTrained, make},
    {"attention_grad", "attention_grad", kOther, false, kTrained, make_gradient},
    {"attention_grad_with_scores", "attention_grad", kOther, false, kTrained, make_gradient},
};

}  // namespace

// Not without vectors, for which nothing is gained, and not of empty operands, whose meaning sums
// of nothing give.
bool fits_attention(const KernelRequest& request, Isa isa) {
  if (!has_real_type(request) || isa == Isa::kGeneric) return false;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const Operand& input = request.inputs[i];
    if (!input.present()) continue;
    if (!has_elements(input) || !is_readable(request, i)) return false;
  }
  const AttentionSizes sizes = select::attention_sizes(request);
  if (sizes.rows() * sizes.keys < kFewestScores) return false;
  if (sizes.rows() <= FewQueries<float>::kMostRows) return sizes.keys >= kFewestKeys;
  const bool is_wide = sizes.depth + sizes.width >= kWideHeads && sizes.keys < kKeysOfWide;
  return sizes.is_causal || !is_wide;
}

bool fits_trained_attention(const KernelRequest& request, Isa isa) {
  return fits_attention(request, isa) &&
         select::attention_sizes(request).rows() > FewQueries<float>::kMostRows;
}

plan::Step make_attention(const KernelRequest& request, Isa isa) {
  return request.outputs[0].dtype == DType::kFloat32 ? make_step<float>(request, isa)
                                                     : make_step<double>(request, isa);
}

plan::Step make_attention_gradient(const KernelRequest& request, Isa isa) {
  return request.outputs[0].dtype == DType::kFloat32 ? make_gradient_step<float>(request, isa)
                                                     : make_gradient_step<double>(request, isa);
}

std::span<const select::KernelDef> attention_kernels() { return kKernels; }

}  // namespace mithril::cpu
