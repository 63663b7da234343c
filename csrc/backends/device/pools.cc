// Pooling and its gradients. Windows are in the order of reference/pool2d.c, and so are their taps.
#include "backends/device/kernel_families.h"
#include "select/kernel_dims.h"

namespace mithril::device {
namespace {

// `count` windows that lie side by side in a row of results, from column `first` on, tap by tap:
// DECLARE what they have so far, and TAKE a `value` of the window x.
constexpr const char* kTaps = R"(M_GLOBAL const m_TYPE* const plane = a0 + row / H_OUT * PLANE;
    const m_i64 top = row % H_OUT * STRIDE_H - PAD_TOP, origin = first * STRIDE_W - PAD_LEFT;
    DECLARE
    for (int i = 0; i < KH; ++i) {
      const m_i64 y = top + i * DILATION_H;
      if (y < 0 || y >= H_IN) continue;
      for (int j = 0; j < KW; ++j) {
        const m_i64 left = origin + j * DILATION_W;
        const m_i64 low = left < 0 ? (STRIDE_W - 1 - left) / STRIDE_W : 0;
        const m_i64 high = left < W_IN ? (W_IN - 1 - left) / STRIDE_W + 1 : 0;
        const int past = high < count ? (int)high : count;
        M_GLOBAL const m_TYPE* const from = plane + y * W_IN + left;
        for (int x = (int)(low < past ? low : past); x < past; ++x) {
          const m_TYPE value = from[x * STRIDE_W];
          TAKE
        }
      }
    })";

constexpr const char* kForward = R"(for (m_i64 e = begin; e < end;) {
    const m_i64 row = e / W_OUT, first = e % W_OUT;
    const m_i64 rest = W_OUT - first < end - e ? W_OUT - first : end - e;
    const int count = rest < TILE ? (int)rest : TILE;
    TAPS
    for (int x = 0; x < count; ++x) a1[e + x] = FINISH;
    e += count;
  })";

constexpr const char* kDeclare =
    "m_TYPE so_far[TILE]; for (int x = 0; x < count; ++x) so_far[x] = START;";

// By | and &, of which compilers make vectors.
constexpr const char* kTakeLargest =
    "const m_TYPE best = so_far[x]; "
    "so_far[x] = (value > best) | ((value != value) & (best == best)) ? value : best;";

// The first maximum of the window (oh, ow) as a place in its plane, or -1.
constexpr const char* kFirstMaximum = R"(
      m_i64 at = -1;
      m_TYPE best = 0;
      for (int i = 0; i < KH; ++i) {
        const m_i64 y = oh * STRIDE_H - PAD_TOP + i * DILATION_H;
        if (y < 0 || y >= H_IN) continue;
        for (int j = 0; j < KW; ++j) {
          const m_i64 x = ow * STRIDE_W - PAD_LEFT + j * DILATION_W;
          if (x < 0 || x >= W_IN) continue;
          const m_TYPE value = plane[y * W_IN + x];
          const int is_better = at < 0 || value > best || (value != value && best == best);
          at = is_better ? y * W_IN + x : at;
          best = is_better ? value : best;
        }
      })";

// The windows that have the element (h, w) in them, in rising order; BODY takes each.
constexpr const char* kWindows = R"(for (m_i64 e = begin; e < end; ++e) {
    const m_i64 number = e / PLANE, here = e % PLANE, h = here / W_IN, w = here % W_IN;
    const m_i64 last_h = (h + PAD_TOP) / STRIDE_H, last_w = (w + PAD_LEFT) / STRIDE_W;
    const m_i64 under_h = h + PAD_TOP - (KH - 1) * DILATION_H;
    const m_i64 under_w = w + PAD_LEFT - (KW - 1) * DILATION_W;
    const m_i64 first_h = under_h > 0 ? (under_h + STRIDE_H - 1) / STRIDE_H : 0;
    const m_i64 first_w = under_w > 0 ? (under_w + STRIDE_W - 1) / STRIDE_W : 0;
    m_TYPE sum = 0;
    for (m_i64 oh = first_h; oh <= last_h && oh < H_OUT; ++oh) {
      if ((h + PAD_TOP - oh * STRIDE_H) % DILATION_H != 0) continue;
      for (m_i64 ow = first_w; ow <= last_w && ow < W_OUT; ++ow) {
        if ((w + PAD_LEFT - ow * STRIDE_W) % DILATION_W != 0) continue;
        BODY
      }
    }
    RESULT[e] = sum;
  })";

constexpr const char* kOfLargest = R"(M_GLOBAL const m_TYPE* const plane = a0 + number * PLANE;
        FIRST_MAXIMUM
        if (at == here) sum += a1[(number * H_OUT + oh) * W_OUT + ow];)";

constexpr const char* kOfAverage =
    "sum += a0[(number * H_OUT + oh) * W_OUT + ow] / (m_TYPE)DIVISOR;";

// Plane by plane, where an item has some: each window is looked at once.
constexpr const char* kOfLargestLong = R"(for (m_i64 number = begin; number < end; ++number) {
    M_GLOBAL m_TYPE* const to = a2 + number * PLANE;
    for (m_i64 e = 0; e < PLANE; ++e) to[e] = 0;
    for (m_i64 row = number * H_OUT; row < (number + 1) * H_OUT; ++row) {
      for (m_i64 first = 0; first < W_OUT; first += TILE) {
        const int count = W_OUT - first < TILE ? (int)(W_OUT - first) : TILE;
        TAPS
        for (int x = 0; x < count; ++x) {
          if (place[x] >= 0) to[place[x]] += a1[row * W_OUT + first + x];
        }
      }
    }
  })";

constexpr const char* kDeclarePlaces =
    "m_TYPE so_far[TILE]; m_PLACE place[TILE]; "
    "for (int x = 0; x < count; ++x) so_far[x] = 0, place[x] = -1;";

constexpr const char* kTakePlace =
    "const m_TYPE best = so_far[x]; const m_PLACE at = (m_PLACE)(y * W_IN + left + x * STRIDE_W); "
    "const int is_better = "
    "(place[x] < 0) | (value > best) | ((value != value) & (best == best)); "
    "so_far[x] = is_better ? value : best; place[x] = is_better ? at : place[x];";

constexpr int64_t kTile = 64;  // windows side by side, of an item that has many

Names names_of(const ref_pool2d_dims& d, const Operand& output, int64_t tile) {
  return {{"FIRST_MAXIMUM", kFirstMaximum},
          {"m_TYPE", "m_" + type_of(output)},
          {"m_PLACE", d.h_in * d.w_in < INT32_MAX ? "m_i32" : "m_i64"},
          {"PLANE", text_of(d.h_in * d.w_in)},
          {"H_IN", text_of(d.h_in)},
          {"W_IN", text_of(d.w_in)},
          {"H_OUT", text_of(d.h_out)},
          {"W_OUT", text_of(d.w_out)},
          {"KH", text_of(d.kh)},
          {"KW", text_of(d.kw)},
          {"STRIDE_H", text_of(d.stride_h)},
          {"STRIDE_W", text_of(d.stride_w)},
          {"PAD_TOP", text_of(d.pad_top)},
          {"PAD_LEFT", text_of(d.pad_left)},
          {"DILATION_H", text_of(d.dilation_h)},
          {"DILATION_W", text_of(d.dilation_w)},
          {"DIVISOR", text_of(d.kh * d.kw)},
          {"TILE", text_of(tile)}};
}

// An operation for each tap.
double taps_of(const ref_pool2d_dims& d) {
  double out = 1.0;
  for (const int64_t size : {d.planes, d.h_out, d.w_out, d.kh, d.kw}) {
    out *= static_cast<double>(size);
  }
  return out;
}

plan::Step pooling(const ref_pool2d_dims& d, FunctionCall call, int64_t units) {
  plan::Step step = step_of(std::move(call), units, taps_of(d));
  step.work.amount = taps_of(d);
  return step;
}

plan::Step forward(const KernelRequest& request, const char* start, const char* take,
                   const char* finish) {
  const auto d = select::pool2d_dims(request, request.inputs[0], request.outputs[0]);
  const int64_t elements = d.planes * d.h_out * d.w_out;
  const auto text = [&](int64_t tile) {
    const std::string whole = filled(kForward, {{"TAPS", kTaps},
                                                {"DECLARE", kDeclare},
                                                {"START", start},
                                                {"TAKE", take},
                                                {"FINISH", finish}});
    return filled(whole, names_of(d, request.outputs[0], tile));
  };
  FunctionCall call = call_of(request, text(1));
  call.in_long_items = {text(kTile), elements, 0};
  return pooling(d, std::move(call), elements);
}

core::Result<plan::Step> make_largest(const KernelRequest& request) {
  return forward(request, "-M_INFINITY", kTakeLargest, "so_far[x]");
}
core::Result<plan::Step> make_average(const KernelRequest& request) {
  return forward(request, "0", "so_far[x] += value;", "so_far[x] / (m_TYPE)DIVISOR");
}

std::string of_windows(const ref_pool2d_dims& d, const Operand& output, const char* body,
                       const char* result) {
  const std::string whole = filled(kWindows, {{"BODY", body}, {"RESULT", result}});
  return filled(whole, names_of(d, output, 1));
}

core::Result<plan::Step> make_largest_gradient(const KernelRequest& request) {
  const auto d = select::pool2d_dims(request, request.inputs[0], request.inputs[1]);
  const Operand& output = request.outputs[0];
  FunctionCall call = call_of(request, of_windows(d, output, kOfLargest, "a2"));
  const std::string whole =
      filled(kOfLargestLong, {{"TAPS", kTaps}, {"DECLARE", kDeclarePlaces}, {"TAKE", kTakePlace}});
  call.in_long_items = {filled(whole, names_of(d, output, kTile)), d.planes, 0};
  return pooling(d, std::move(call), d.planes * d.h_in * d.w_in);
}

core::Result<plan::Step> make_average_gradient(const KernelRequest& request) {
  const auto d = select::pool2d_dims(request, request.outputs[0], request.inputs[0]);
  return pooling(d, call_of(request, of_windows(d, request.outputs[0], kOfAverage, "a1")),
                 d.planes * d.h_in * d.w_in);
}

using select::kRealType;
const select::KernelDef kKernels[] = {
    {"max_pool2d", "device.max_pool2d", kCanonical, true, kRealType, make_largest},
    {"max_pool2d_grad", "device.max_pool2d_grad", kCanonical, true, kRealType,
     make_largest_gradient},
    {"avg_pool2d", "device.avg_pool2d", kCanonical, true, kRealType, make_average},
    {"avg_pool2d_grad", "device.avg_pool2d_grad", kCanonical, true, kRealType,
     make_average_gradient},
};

}  // namespace

std::span<const select::KernelDef> pool_kernels() { return kKernels; }

}  // namespace mithril::device
