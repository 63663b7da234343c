// Matrix products and convolutions: blocks and tiles in canonical order, else the reference; tiles
// of results where that saves time.
#include "backends/c/kernel_families.h"
#include "plan/cost.h"
#include "select/kernel_dims.h"

namespace mithril::c {
namespace {

using core::DType;
using select::KernelRequest;
using select::Operand;

constexpr int64_t kPanels = 4, kFewRows = 64;  // of gemm.inc

int64_t columns_of(const Operand& operand) {
  return 128 / static_cast<int64_t>(core::size_of(operand.dtype));
}

int64_t tiles_of(int64_t columns, const Operand& operand) {
  return (columns + columns_of(operand) - 1) / columns_of(operand);
}

// Columns that are packed at once, of a product with `rows` rows and k places.
size_t scratch_of(const Operand& operand, int64_t rows, int64_t columns, int64_t k) {
  const int64_t panels = rows <= kFewRows ? 1 : kPanels;
  const int64_t width = std::min(tiles_of(columns, operand), panels) * columns_of(operand);
  return static_cast<size_t>(width * std::min<int64_t>(k, REF_BLOCK)) *
         core::size_of(operand.dtype);
}

int64_t blocks_of(int64_t columns, const Operand& operand) {
  return (tiles_of(columns, operand) + kPanels - 1) / kPanels;
}

plan::Step with_flops(plan::Step step, double flops) {
  step.work = {flops, plan::Work::Unit::kFlops};
  step.nanoseconds = flops / plan::kFlopsPerNanosecond;
  return step;
}

// ---------------------------------------------------------------- matrices

int64_t batches(const ref_matmul_dims& d) {
  int64_t out = 1;
  for (int64_t i = 0; i < d.batch_rank; ++i) out *= d.batch[i];
  return out;
}

double flops_of(const ref_matmul_dims& d) {
  return 2.0 * static_cast<double>(batches(d)) * static_cast<double>(d.m) *
         static_cast<double>(d.n) * static_cast<double>(d.k);
}

std::string declared(const ref_matmul_dims& d) {
  const auto list = [&](const int64_t* numbers) {
    const auto count = static_cast<size_t>(std::max<int64_t>(d.batch_rank, 1));
    return fmt::format("{{{}}}", fmt::join(std::span(numbers, count), ", "));
  };
  return fmt::format(
      "static const ref_matmul_dims d = {{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, "
      "{}}};",
      d.batch_rank, list(d.batch), list(d.a_batch), list(d.b_batch), list(d.c_batch), d.m, d.n, d.k,
      d.a_row, d.a_col, d.b_row, d.b_col, d.c_row, d.c_col);
}

core::Result<plan::Step> make_blocked(const KernelRequest& request) {
  const Operand& result = request.outputs[0];
  const ref_matmul_dims d = select::with_rows_merged(select::matmul_dims(request));
  plan::FunctionCall call;
  call.name = "matmul";
  call.texts = {text_of("gemm", result), text_of("matmul_blocks", result)};
  call.declarations = declared(d);
  call.call =
      fmt::format("matmul_blocks_{}(&d, a0, a1, a2, scratch, begin, end)", suffix_of(result));
  plan::Step step = step_of(std::move(call), batches(d) * blocks_of(d.n, result));
  step.scratch_bytes = scratch_of(result, d.m, d.n, d.k);
  return with_flops(std::move(step), flops_of(d));
}

core::Result<plan::Step> make_integer(const KernelRequest& request) {
  const ref_matmul_dims d = select::matmul_dims(request);
  plan::FunctionCall call;
  call.name = "matmul";
  call.texts = {"matmul_integer"};
  call.declarations = declared(d);
  call.call =
      fmt::format("ref_matmul_{}(&d, a0, a1, a2, begin, end)", suffix_of(request.outputs[0]));
  return with_flops(step_of(std::move(call), batches(d) * d.m, grain_of(d.n * d.k)), flops_of(d));
}

bool fits_rank(const KernelRequest& request) {
  return request.inputs[0].shape.size() <= REF_MAX_RANK &&
         request.inputs[1].shape.size() <= REF_MAX_RANK;
}
bool has_real(const KernelRequest& request) { return fits_rank(request) && has_real_type(request); }
bool has_integer(const KernelRequest& request) {
  const DType dtype = request.outputs[0].dtype;
  return fits_rank(request) && (dtype == DType::kInt32 || dtype == DType::kInt64);
}

// ---------------------------------------------------------------- convolutions

double flops_of(const ref_conv2d_dims& d) {
  double out = 2.0;
  for (const int64_t size : {d.batch, d.groups, d.c_out, d.h_out, d.w_out, d.c_in, d.kh, d.kw}) {
    out *= static_cast<double>(size);
  }
  return out;
}

// Few rows of a product are no gain over a row at a time.
bool fills_tiles(const ref_conv2d_dims& d, int64_t rows) {
  constexpr int64_t kFewest = 3;
  return rows >= kFewest && flops_of(d) > 0 && d.h_in > 0 && d.w_in > 0;
}

plan::Step convolution(const KernelRequest& request, const ref_conv2d_dims& d,
                       plan::FunctionCall call, int64_t units, int64_t grain) {
  call.name = request.op.name;
  call.declarations = c::declared(d);
  return with_flops(step_of(std::move(call), units, grain), flops_of(d));
}

// By tiles: products of some rows and columns with k places, for each of `parts`.
plan::Step in_blocks(const KernelRequest& request, const ref_conv2d_dims& d, int64_t parts,
                     int64_t rows, int64_t columns, int64_t k) {
  const Operand& result = request.outputs[0];
  plan::FunctionCall call;
  call.texts = {text_of("gemm", result), text_of("conv2d_blocks", result)};
  call.call = fmt::format("{}_blocks_{}(&d, a0, a1, a2, scratch, begin, end)", request.op.name,
                          suffix_of(result));
  plan::Step step = convolution(request, d, std::move(call), parts * blocks_of(columns, result), 1);
  step.scratch_bytes = scratch_of(result, rows, columns, k);
  return step;
}

plan::Step by_reference(const KernelRequest& request, const ref_conv2d_dims& d, int64_t units,
                        int64_t grain) {
  const Operand& result = request.outputs[0];
  plan::FunctionCall call;
  call.texts = {text_of(request.op.name.c_str(), result)};
  call.call =
      fmt::format("ref_{}_{}(&d, a0, a1, a2, begin, end)", request.op.name, suffix_of(result));
  return convolution(request, d, std::move(call), units, grain);
}

// By tiles of results (conv2d_tiles.c), which round more than sums in canonical order.
constexpr int64_t kTile = 4, kElements = 36, kShare = 32;  // of that text

struct Tiles {
  int64_t count, room, units;  // of all images; of a unit
};

Tiles tiles_of(const ref_conv2d_dims& d, int64_t lanes, int threads) {
  constexpr int64_t kBytes = 1280 << 10, kMost = 64;  // of patches: most of a second cache
  const auto rounded_up = [&](int64_t n) { return (n + lanes - 1) / lanes * lanes; };
  const int64_t count = d.batch * ((d.h_out + kTile - 1) / kTile) * ((d.w_out + kTile - 1) / kTile);
  const int64_t fitting = kBytes / (kElements * static_cast<int64_t>(sizeof(float)) * d.c_in);
  const int64_t most = std::clamp(fitting / lanes * lanes, lanes, kMost);
  const int64_t share = rounded_up((count + threads - 1) / threads);
  const int64_t room = std::min(most, std::max(share, lanes));
  return {count, room, (count + room - 1) / room};
}

bool takes_tiles(const KernelRequest& request, const ref_conv2d_dims& d) {
  constexpr int64_t kFewest = 16;          // channels and filters
  constexpr int64_t kMostChannels = 4096;  // a unit takes 9 KB for each
  const auto are = [](int64_t size, std::initializer_list<int64_t> numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n == size; });
  };
  return request.outputs[0].dtype == DType::kFloat32 && d.c_in >= kFewest &&
         d.c_in <= kMostChannels && d.c_out >= kFewest && flops_of(d) > 0 && d.h_in > 0 &&
         d.w_in > 0 && are(3, {d.kh, d.kw}) &&
         are(1, {d.groups, d.stride_h, d.stride_w, d.dilation_h, d.dilation_w});
}

// In multiply-adds for each pair of a channel and a filter; what is not multiplied was measured in
// the same unit.
bool prefers_tiles(const KernelRequest& request) {
  const auto d = select::conv2d_dims(request);
  if (!takes_tiles(request, d)) return false;
  constexpr double kFilter = 12, kPatch = 16;  // an element of a filter; of a patch, there or back
  const int64_t lanes = columns_of(request.outputs[0]);
  const Tiles tiles = tiles_of(d, lanes, 1);  // bits do not depend on the threads
  const auto computed = static_cast<double>(tiles.units * tiles.room);
  const auto channels = static_cast<double>(d.c_in), filters = static_cast<double>(d.c_out);
  const double by_tiles =
      static_cast<double>(kElements) * (computed + kFilter * static_cast<double>(tiles.units) +
                                        kPatch * computed * (1 / channels + 1 / filters));
  const int64_t positions = tiles_of(d.h_out * d.w_out, request.outputs[0]) * lanes;
  return by_tiles < static_cast<double>(d.kh * d.kw * d.batch * positions);
}

core::Result<plan::Step> make_tiles(const KernelRequest& request) {
  const Operand& result = request.outputs[0];
  const auto d = select::conv2d_dims(request);
  const Tiles tiles = tiles_of(d, columns_of(result), request.threads);
  plan::FunctionCall call;
  call.texts = {text_of("gemm", result), text_of("conv2d_tiles", result)};
  call.call = fmt::format("conv2d_tiles_{}(&d, {}, a0, a1, a2, scratch, begin, end)",
                          suffix_of(result), tiles.room);
  plan::Step step = convolution(request, d, std::move(call), tiles.units, 1);
  constexpr int64_t kGap = 16;
  const int64_t floats =
      kElements * ((tiles.room + kShare) * d.c_in + tiles.room * kShare + 3 * kGap + d.c_in) +
      tiles.room;
  step.scratch_bytes = static_cast<size_t>(floats) * core::size_of(result.dtype);
  return step;
}

bool is_blocked(const KernelRequest& request) {
  if (!has_real_type(request)) return false;
  const auto d = select::conv2d_dims(request);
  return fills_tiles(d, d.c_out);
}
core::Result<plan::Step> make_conv2d_blocks(const KernelRequest& request) {
  const auto d = select::conv2d_dims(request);
  return in_blocks(request, d, d.batch * d.groups, d.c_out, d.h_out * d.w_out,
                   d.c_in * d.kh * d.kw);
}
core::Result<plan::Step> make_conv2d(const KernelRequest& request) {
  const auto d = select::conv2d_dims(request);
  return by_reference(request, d, d.batch * d.groups * d.c_out * d.h_out,
                      grain_of(d.w_out * d.c_in * d.kh * d.kw));
}

bool is_blocked_dx(const KernelRequest& request) {
  if (!has_real_type(request)) return false;
  const auto d = select::conv2d_dx_dims(request);
  return fills_tiles(d, d.c_in) && d.stride_h == 1 && d.stride_w == 1;
}
core::Result<plan::Step> make_dx_blocks(const KernelRequest& request) {
  const auto d = select::conv2d_dx_dims(request);
  return in_blocks(request, d, d.batch * d.groups, d.c_in, d.h_in * d.w_in, d.c_out * d.kh * d.kw);
}
core::Result<plan::Step> make_dx(const KernelRequest& request) {
  const auto d = select::conv2d_dx_dims(request);
  return by_reference(request, d, d.batch * d.groups * d.c_in * d.h_in,
                      grain_of(d.w_in * d.c_out * d.kh * d.kw));
}

bool is_blocked_dw(const KernelRequest& request) {
  if (!has_real_type(request)) return false;
  const auto d = select::conv2d_dw_dims(request);
  return fills_tiles(d, d.c_out);
}
core::Result<plan::Step> make_dw_blocks(const KernelRequest& request) {
  const auto d = select::conv2d_dw_dims(request);
  return in_blocks(request, d, d.groups, d.c_out, d.c_in * d.kh * d.kw,
                   d.batch * d.h_out * d.w_out);
}
core::Result<plan::Step> make_dw(const KernelRequest& request) {
  constexpr int64_t kWidth = 16;  // taps of a unit of the reference
  const auto d = select::conv2d_dw_dims(request);
  const int64_t units = d.groups * ((d.c_in * d.kh * d.kw + kWidth - 1) / kWidth);
  return by_reference(request, d, units, 1);
}

constexpr auto kCanonical = select::OrderClass::kCanonical;
constexpr select::Condition kReal(has_real, "elements of float32 or float64, at most 16 axes");
constexpr select::Condition kInteger(has_integer, "elements of int32 or int64, at most 16 axes");
constexpr const char* kTiles = "elements of float32 or float64, and enough channels for tiles";
constexpr select::Condition kTiled(prefers_tiles,
                                   "elements of float32, windows of 3x3 without strides, and "
                                   "enough channels and results");
constexpr select::Condition kBlocked(is_blocked, kTiles);
constexpr select::Condition kBlockedDx(is_blocked_dx,
                                       "elements of float32 or float64, strides of 1, and enough "
                                       "channels for tiles");
constexpr select::Condition kBlockedDw(is_blocked_dw, kTiles);
const select::KernelDef kKernels[] = {
    {"matmul", "matmul", kCanonical, false, kReal, make_blocked},
    {"matmul", "matmul.integer", kCanonical, false, kInteger, make_integer},
    {"conv2d", "conv2d.tiles", select::OrderClass::kOther, true, kTiled, make_tiles},
    {"conv2d", "conv2d", kCanonical, true, kBlocked, make_conv2d_blocks},
    {"conv2d", "conv2d.reference", kCanonical, true, kRealType, make_conv2d},
    {"conv2d_dx", "conv2d_dx", kCanonical, true, kBlockedDx, make_dx_blocks},
    {"conv2d_dx", "conv2d_dx.reference", kCanonical, true, kRealType, make_dx},
    {"conv2d_dw", "conv2d_dw", kCanonical, true, kBlockedDw, make_dw_blocks},
    {"conv2d_dw", "conv2d_dw.reference", kCanonical, true, kRealType, make_dw},
};

}  // namespace

std::span<const select::KernelDef> product_kernels() { return kKernels; }

}  // namespace mithril::c
