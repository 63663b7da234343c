// Convolution and its gradients as matrix products over gathered taps (im2col). The order of every
// sum is that of reference/: bits are equal.
#include "backends/cpu/conv/convolution.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "backends/cpu/conv/image_epilogue.h"
#include "backends/cpu/conv/taps.h"
#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/reference/kernel_families.h"
#include "core/interrupt.h"
#include "core/rounding.h"
#include "runtime/buffer.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::KernelArgs;
using plan::KernelStatus;

constexpr int64_t kGatherBytes = 1 << 20;  // taps gathered for one product: about an L2
constexpr int64_t kNearBytes = 16 << 10;   // of planes that are read for all taps: half an L1
constexpr int64_t kGatheredBetweenPolls = 1 << 20;

size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

// What gathers the right operand of a product: `taps` channels × kh × kw rows over the positions
// of `rows` rows of the result.
struct Gather {
  int64_t channels, h, w;  // of the source planes
  int64_t kh, kw;
  int64_t row_step, column_step;  // from one result row (column) to the next
  int64_t tap_row_step, tap_column_step;
  int64_t row_start, column_start;  // source row of result row 0 at tap 0
  int64_t rows, columns;            // of the result

  // One tap that lies where the result lies: the planes are the operand.
  bool copies() const {
    return kh == 1 && kw == 1 && row_step == 1 && column_step == 1 && row_start == 0 &&
           column_start == 0 && rows == h && columns == w;
  }
};

template <class T>
struct Convolution {
  ref_conv2d_dims d;
  Gather gather;  // of an image (all but the weight gradient)
  TapFn<T> copy_taps = cpu::copy_taps<T>(default_isa());
  std::vector<Gemm<T>> products;  // of whole blocks first, of what is left behind them
  int64_t rows = 1;               // output rows of one product
  int64_t filters = 1;            // of one product (forward)
  int64_t channels = 1;           // input channels of one unit (weight gradient)
  runtime::Buffer packed;         // constant weights (forward), a block of filters after the other
  int64_t packed_step = 0;        // from one to the next
  std::optional<ImageEpilogue> epilogue;  // forward
  size_t epilogue_scratch = 0;            // where that of the epilogue begins
  size_t product_bytes = 0;               // scratch of the products; gathered taps stand behind it

  explicit Convolution(const ref_conv2d_dims& dims, const Gather& of_image = {})
      : d(dims), gather(of_image) {}
  void add(const GemmDims& dims, const GemmOptions& options = {}) {
    products.emplace_back(default_isa(), dims, options);
    product_bytes = std::max(product_bytes, padded(products.back().scratch_bytes()));
  }
};

template <class T>
T* after_product(const Convolution<T>& conv, void* scratch) {
  return reinterpret_cast<T*>(static_cast<std::byte*>(scratch) + conv.product_bytes);
}

// out[r][c] = plane[first + r][c + right] for whole rows of a plane of the same width: one copy,
// then +0 where it wrapped around an edge.
template <class T>
void gather_shifted(const T* plane, int64_t h, int64_t w, int64_t first, int64_t rows,
                    int64_t right, T* out) {
  const int64_t top = std::clamp<int64_t>(-first, 0, rows);  // rows above the plane
  const int64_t bottom = std::clamp<int64_t>(h - first, top, rows);
  std::fill(out, out + top * w, T(0));
  std::fill(out + bottom * w, out + rows * w, T(0));
  if (top == bottom) return;
  const int64_t source = (first + top) * w + right;
  const int64_t begin = std::max<int64_t>(0, -source);
  const int64_t count = (bottom - top) * w;
  const int64_t end = std::min(count, h * w - source);
  if (begin < end) std::copy(plane + source + begin, plane + source + end, out + top * w + begin);
  const int64_t wrapped = std::min(std::abs(right), w);
  if (wrapped == 0) return;
  for (int64_t r = top; r < bottom; ++r) {
    T* edge = out + r * w + (right > 0 ? w - wrapped : 0);
    std::fill(edge, edge + wrapped, T(0));
  }
}

// `step`: from one tap to the next. All taps of the planes that fit the first cache, then the next.
template <class T>
void gather(const Gather& g, TapFn<T> copy_taps, const T* planes, int64_t first_row, int64_t rows,
            T* out, int64_t step) {
  const bool shifted = g.row_step == 1 && g.column_step == 1 && g.columns == g.w;
  const int64_t plane = g.h * g.w, window = g.kh * g.kw * step;
  const int64_t near =
      std::max<int64_t>(1, kNearBytes / (rows * g.row_step * g.w * int64_t{sizeof(T)}));
  core::InterruptCounter interrupts(kGatheredBetweenPolls);
  for (int64_t first = 0; first < g.channels; first += near) {
    const int64_t channels = std::min(near, g.channels - first);
    T* to = out + first * window;
    if (interrupts.is_interrupted(channels * g.kh * g.kw * rows * g.columns)) return;
    for (int64_t tap = 0; tap < g.kh * g.kw; ++tap, to += step) {
      const int64_t row = g.row_start + first_row * g.row_step + tap / g.kw * g.tap_row_step;
      const int64_t column = g.column_start + tap % g.kw * g.tap_column_step;
      if (!shifted) {
        copy_taps({planes + first * plane, channels, g.h, g.w, row, g.row_step, column,
                   g.column_step, to, window, rows, g.columns});
        continue;
      }
      for (int64_t c = 0; c < channels; ++c) {
        gather_shifted(planes + (first + c) * plane, g.h, g.w, row, rows, column, to + c * window);
      }
    }
  }
}

// How an image's product is cut for threads: blocks of its rows, of its filters, or neither.
struct Cut {
  int64_t rows = 1, filters = 1;
};

// Products of weights[m, k] and gathered[k, positions] for as many filters and rows of an image's
// result as are computed at once, and for those that are left. Bytes that the gathered taps take.
template <class T>
size_t add_image_products(Convolution<T>& conv, int64_t m, const Cut& cut = {},
                          GemmConstant constant = GemmConstant::kNone) {
  const Gather& g = conv.gather;
  const int64_t k = g.channels * g.kh * g.kw, positions = g.rows * g.columns;
  const int64_t row_bytes = k * g.columns * static_cast<int64_t>(sizeof(T));
  const int64_t fitting = kGatherBytes / std::max<int64_t>(row_bytes, 1);
  conv.filters = core::ceil_div(m, cut.filters);
  conv.rows = core::ceil_div(g.rows, cut.rows);
  if (!g.copies()) conv.rows = std::clamp<int64_t>(fitting, 1, conv.rows);
  for (const int64_t filters : {conv.filters, m % conv.filters}) {
    for (const int64_t rows : {conv.rows, g.rows % conv.rows}) {
      const int64_t n = rows * g.columns;
      conv.add({filters, n, k, k, 1, g.copies() ? positions : n, 1, positions},
               {.constant = constant});
    }
  }
  return g.copies() ? 0 : static_cast<size_t>(row_bytes * conv.rows);
}

// y[filters, positions] = weights[filters, k] · gathered[k, positions] for one block of rows.
template <class T>
void block_product(const Convolution<T>& conv, int64_t filters, int64_t row, const T* weights,
                   const T* planes, T* y, T* columns, void* scratch,
                   const Epilogue<T>& epilogue = {}) {
  const Gather& g = conv.gather;
  const int64_t rows = std::min(conv.rows, g.rows - row);
  const size_t at = (filters == conv.filters ? 0 : 2) + (rows == conv.rows ? 0 : 1);
  const T* right = planes + row * g.columns;
  if (!g.copies()) {
    gather(g, conv.copy_taps, planes, row, rows, columns, rows * g.columns);
    right = columns;
  }
  conv.products[at].run(weights, right, y + row * g.columns, scratch, epilogue);
}

// The same of all filters and rows, for one image and group.
template <class T>
void image_product(const Convolution<T>& conv, const T* weights, const T* planes, T* y, T* columns,
                   void* scratch) {
  for (int64_t row = 0; row < conv.gather.rows; row += conv.rows) {
    block_product(conv, conv.filters, row, weights, planes, y, columns, scratch);
  }
}

// ---------------------------------------------------------------- forward

template <class T>
KernelStatus run_forward(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& conv = *static_cast<const Convolution<T>*>(args.data);
  const ref_conv2d_dims& d = conv.d;
  const auto* x = static_cast<const T*>(args.buffers[0]);
  const auto* w = static_cast<const T*>(args.buffers[1]);
  auto* y = static_cast<T*>(args.buffers[2]);
  const int64_t taps = d.c_in * d.kh * d.kw;
  const int64_t blocks = core::ceil_div(d.h_out, conv.rows),
                cuts = core::ceil_div(d.c_out, conv.filters);
  for (int64_t unit = begin; unit < end; ++unit) {  // (image, group, filters, block of rows)
    const int64_t image = unit / (blocks * cuts), first = unit / blocks % cuts * conv.filters;
    const int64_t filters = std::min(conv.filters, d.c_out - first), group = image % d.groups;
    const T* weights = w + (group * d.c_out + first) * taps;
    if (conv.packed) {
      weights = reinterpret_cast<const T*>(conv.packed.data()) +
                (group * cuts + first / conv.filters) * conv.packed_step;
    }
    const int64_t row = unit % blocks * conv.rows;
    const ImageBlock block{image / d.groups, group * d.c_out + first, filters, row,
                           std::min(conv.rows, d.h_out - row)};
    const bool by_positions = conv.epilogue && conv.epilogue->takes_positions();
    void* const beside = static_cast<std::byte*>(args.scratch) + conv.epilogue_scratch;
    Epilogue<T> epilogue;
    if (by_positions) {
      epilogue = conv.epilogue->template of_product<T>(args.buffers, block.image, block.filter,
                                                       row * d.w_out, beside);
    }
    block_product(conv, filters, row, weights, x + image * d.c_in * d.h_in * d.w_in,
                  y + (image * d.c_out + first) * d.h_out * d.w_out,
                  after_product(conv, args.scratch), args.scratch, epilogue);
    if (conv.epilogue && !by_positions) conv.epilogue->run(args.buffers, block, beside);
  }
  return KernelStatus::kOk;
}

// ---------------------------------------------------------------- gradient of the input

// Taps of a window along an axis: first, first + step, ...
struct Taps {
  int64_t first = 0, step = 1, count = 0;
};

// Elements of the input that are `stride` apart, from `phase` on, meet the same taps: those that
// reach the result's grid. For them the gradient is a convolution without strides.
template <class T>
struct Phase {
  int64_t top, left;
  Taps rows, columns;
  Convolution<T> conv;
  std::optional<Gemm<T>> joint = {};  // of `together` images, side by side
  int64_t together = 1;
};

template <class T>
struct InputGradient {
  ref_conv2d_dims d;
  std::vector<Phase<T>> phases;
  int64_t images = 1;                              // of one unit
  size_t product_bytes = 0;                        // scratch: products, then weights,
  int64_t weights = 0, gathered = 0, results = 0;  // gathered taps and results (elements)
  bool dense() const { return d.stride_h == 1 && d.stride_w == 1; }
};

Taps kept_taps(int64_t phase, int64_t padding, int64_t size, int64_t stride, int64_t dilation) {
  Taps out{0, stride / std::gcd(stride, dilation), 0};
  for (int64_t tap = size - 1; tap >= 0; --tap) {
    if ((phase + padding - tap * dilation) % stride != 0) continue;
    out.first = tap;
    ++out.count;
  }
  return out;
}

// The taps of a phase of one window, one after another.
template <class T>
void pack_window(const Phase<T>& phase, const T* window, int64_t width, T* to) {
  for (int64_t i = 0; i < phase.rows.count; ++i) {
    const T* row = window + (phase.rows.first + i * phase.rows.step) * width;
    for (int64_t j = 0; j < phase.columns.count; ++j) {
      *to++ = row[phase.columns.first + j * phase.columns.step];
    }
  }
}

// packed[c][o][tap] = w[o][c][tap] for the taps of a phase: the order of the sum is (o, kh, kw).
template <class T>
void pack_weights(const ref_conv2d_dims& d, const Phase<T>& phase, const T* w, T* packed) {
  constexpr int64_t kStreams = 8;  // rows far apart, often in one set of the first cache
  const int64_t taps = phase.rows.count * phase.columns.count;
  for (int64_t first = 0; first < d.c_in; first += kStreams) {
    for (int64_t o = 0; o < d.c_out; ++o) {
      for (int64_t c = first; c < std::min(first + kStreams, d.c_in); ++c) {
        const T* window = w + (o * d.c_in + c) * d.kh * d.kw;
        pack_window(phase, window, d.kw, packed + (c * d.c_out + o) * taps);
      }
    }
  }
}

// dx[c][top + r * stride][left + q * stride] = results[c][r][q]; `step`: from one c to the next.
template <class T>
void scatter(const ref_conv2d_dims& d, const Phase<T>& phase, const T* results, int64_t step,
             T* dx) {
  const Gather& g = phase.conv.gather;
  for (int64_t c = 0; c < d.c_in; ++c) {
    for (int64_t r = 0; r < g.rows; ++r) {
      T* row = dx + (c * d.h_in + phase.top + r * d.stride_h) * d.w_in + phase.left;
      const T* from = results + c * step + r * g.columns;
      for (int64_t q = 0; q < g.columns; ++q) row[q * d.stride_w] = from[q];
    }
  }
}

// Where a kernel of this kind has its operands.
template <class T>
struct InputGradientRun {
  const T* dy;
  T* dx;
  T *packed, *columns, *results;  // of the scratch
  void* product;
};

// A phase of one image and group, which stand at `at`.
template <class T>
void add_image(const InputGradient<T>& gradient, const Phase<T>& phase, int64_t at,
               const InputGradientRun<T>& run) {
  const ref_conv2d_dims& d = gradient.d;
  T* image = run.dx + at * d.c_in * d.h_in * d.w_in;
  T* to = gradient.dense() ? image : run.results;
  image_product(phase.conv, run.packed, run.dy + at * d.c_out * d.h_out * d.w_out, to, run.columns,
                run.product);
  if (gradient.dense()) return;
  const Gather& g = phase.conv.gather;
  scatter(d, phase, run.results, g.rows * g.columns, image);
}

// The same of as many images as one product takes; `step` from one to the next.
template <class T>
void add_images(const InputGradient<T>& gradient, const Phase<T>& phase, int64_t at, int64_t step,
                const InputGradientRun<T>& run) {
  const ref_conv2d_dims& d = gradient.d;
  const Gather& g = phase.conv.gather;
  const int64_t positions = g.rows * g.columns, all = phase.together * positions;
  for (int64_t i = 0; i < phase.together; ++i) {
    gather(g, phase.conv.copy_taps, run.dy + (at + i * step) * d.c_out * d.h_out * d.w_out, 0,
           g.rows, run.columns + i * positions, all);
  }
  phase.joint->run(run.packed, run.columns, run.results, run.product);
  for (int64_t i = 0; i < phase.together; ++i) {
    scatter(d, phase, run.results + i * positions, all,
            run.dx + (at + i * step) * d.c_in * d.h_in * d.w_in);
  }
}

constexpr int64_t kImagesBetweenPolls = 16;  // large ones are products that poll

template <class T>
KernelStatus run_input_gradient(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& gradient = *static_cast<const InputGradient<T>*>(args.data);
  const ref_conv2d_dims& d = gradient.d;
  const auto* w = static_cast<const T*>(args.buffers[1]);
  InputGradientRun<T> run{};
  run.dy = static_cast<const T*>(args.buffers[0]);
  run.dx = static_cast<T*>(args.buffers[2]);
  run.product = args.scratch;
  run.packed = reinterpret_cast<T*>(static_cast<std::byte*>(args.scratch) + gradient.product_bytes);
  run.columns = run.packed + gradient.weights;
  run.results = run.columns + gradient.gathered;
  const int64_t blocks = core::ceil_div(d.batch, gradient.images);
  for (int64_t unit = begin; unit < end; ++unit) {  // unit = group * blocks + block of images
    const int64_t group = unit / blocks, first = unit % blocks * gradient.images;
    const int64_t last = std::min(first + gradient.images, d.batch);
    for (const Phase<T>& phase : gradient.phases) {
      pack_weights(d, phase, w + group * d.c_in * d.c_out * d.kh * d.kw, run.packed);
      int64_t n = first;
      if (core::is_interrupted()) return KernelStatus::kCancelled;
      for (; phase.joint && n + phase.together <= last; n += phase.together) {
        add_images(gradient, phase, n * d.groups + group, d.groups, run);
      }
      for (; n < last; ++n) {
        if (n % kImagesBetweenPolls == 0 && core::is_interrupted()) return KernelStatus::kCancelled;
        add_image(gradient, phase, n * d.groups + group, run);
      }
    }
  }
  return KernelStatus::kOk;
}

// ---------------------------------------------------------------- gradient of the weights

constexpr int64_t kDepth = REF_BLOCK;  // positions of one product: one block of the sum

// left[o][p] = dy of output channel o at position from + p of all images.
template <class T>
void gather_cotangents(const ref_conv2d_dims& d, const T* dy, int64_t group, int64_t from,
                       int64_t depth, T* left) {
  const int64_t plane = d.h_out * d.w_out;
  for (int64_t o = 0; o < d.c_out; ++o) {
    for (int64_t p = 0; p < depth;) {
      const int64_t n = (from + p) / plane;
      const int64_t rest = (from + p) % plane;
      const int64_t run = std::min(depth - p, plane - rest);
      std::copy_n(dy + ((n * d.groups + group) * d.c_out + o) * plane + rest, run,
                  left + o * kDepth + p);
      p += run;
    }
  }
}

// tap[p] = x at tap (i, j) of channel c for position from + p, in runs of a row or of whole rows.
template <class T>
void gather_tap(const ref_conv2d_dims& d, TapFn<T> copy_taps, const T* x, int64_t group, int64_t c,
                int64_t i, int64_t j, int64_t from, int64_t depth, T* tap) {
  const bool shifted = d.stride_h == 1 && d.stride_w == 1 && d.w_out == d.w_in;
  const int64_t down = i * d.dilation_h - d.pad_top, right = j * d.dilation_w - d.pad_left;
  for (int64_t p = 0; p < depth;) {
    const int64_t row = (from + p) / d.w_out;  // over all images
    const int64_t oh = row % d.h_out, ow = (from + p) % d.w_out;
    const T* plane = x + ((row / d.h_out * d.groups + group) * d.c_in + c) * d.h_in * d.w_in;
    if (shifted && ow == 0 && depth - p >= d.w_out) {
      const int64_t rows = std::min((depth - p) / d.w_out, d.h_out - oh);
      gather_shifted(plane, d.h_in, d.w_in, oh + down, rows, right, tap + p);
      p += rows * d.w_out;
      continue;
    }
    const int64_t run = std::min(depth - p, d.w_out - ow);
    copy_taps({plane, 1, d.h_in, d.w_in, oh * d.stride_h + down, 1, ow * d.stride_w + right,
               d.stride_w, tap + p, 0, 1, run});
    p += run;
  }
}

// taps[t][p] = x at tap t of position from + p, for the taps of `channels` channels.
template <class T>
void gather_taps(const ref_conv2d_dims& d, TapFn<T> copy_taps, const T* x, int64_t group,
                 int64_t channel, int64_t channels, int64_t from, int64_t depth, T* taps) {
  for (int64_t c = channel; c < channel + channels; ++c) {
    for (int64_t i = 0; i < d.kh; ++i) {
      for (int64_t j = 0; j < d.kw; ++j, taps += kDepth) {
        gather_tap(d, copy_taps, x, group, c, i, j, from, depth, taps);
      }
    }
  }
}

template <class T>
KernelStatus run_weight_gradient(const KernelArgs& args, int64_t begin, int64_t end) {
  const auto& conv = *static_cast<const Convolution<T>*>(args.data);
  const ref_conv2d_dims& d = conv.d;
  const auto* x = static_cast<const T*>(args.buffers[0]);
  const auto* dy = static_cast<const T*>(args.buffers[1]);
  auto* dw = static_cast<T*>(args.buffers[2]);
  const int64_t window = d.kh * d.kw;
  const int64_t all_taps = d.c_in * window;
  const int64_t blocks = core::ceil_div(d.c_in, conv.channels);
  const int64_t total = d.batch * d.h_out * d.w_out;
  T* left = after_product(conv, args.scratch);
  T* taps = left + d.c_out * kDepth;
  for (int64_t unit = begin; unit < end; ++unit) {  // unit = group * blocks + block of channels
    const int64_t group = unit / blocks;
    const int64_t channel = unit % blocks * conv.channels;
    const int64_t channels = std::min(conv.channels, d.c_in - channel);
    T* to = dw + group * d.c_out * all_taps + channel * window;
    for (int64_t from = 0; from == 0 || from < total; from += kDepth) {
      const int64_t depth = std::min(kDepth, total - from);
      if (from % (16 * kDepth) == 0 && core::is_interrupted()) return KernelStatus::kCancelled;
      gather_cotangents(d, dy, group, from, depth, left);
      gather_taps(d, conv.copy_taps, x, group, channel, channels, from, depth, taps);
      // dw[o, t] += left[o, p] · tapsᵀ[p, t]
      const size_t at = (channels == conv.channels ? 0 : 2) + (depth == kDepth ? 0 : 1);
      const Gemm<T>& product = conv.products[at];
      if (from == 0) {
        product.run(left, taps, to, args.scratch);
      } else {
        product.add(left, taps, to, args.scratch);
      }
    }
  }
  return KernelStatus::kOk;
}

// ---------------------------------------------------------------- steps

// What is larger is read by one thread each: filters, or the images under them.
Cut cut_for_threads(const ref_conv2d_dims& d, int threads) {
  constexpr int64_t kFewestFilters = 32, kFewestPositions = 64;  // of a product
  const int64_t wanted = threads == 1 ? 1 : core::ceil_div(2 * threads, d.batch * d.groups);
  const int64_t positions = d.h_out * d.w_out;
  if (wanted == 1) return {};
  if (d.c_out > positions) return {1, std::clamp<int64_t>(d.c_out / kFewestFilters, 1, wanted)};
  return {std::clamp<int64_t>(std::min(positions / kFewestPositions, d.h_out), 1, wanted), 1};
}

template <class T>
bool takes_packed_weights(const Convolution<T>& conv) {
  return std::ranges::all_of(conv.products, [](const Gemm<T>& product) {
    return product.units() == 0 || product.packed_size() > 0;
  });
}

template <class T>
core::Status pack_weights_once(Convolution<T>& conv, const T* w) {
  const ref_conv2d_dims& d = conv.d;
  const int64_t all = d.groups * d.c_out, taps = d.c_in * d.kh * d.kw;
  conv.packed_step = conv.products[0].packed_size();
  const int64_t size = d.groups * core::ceil_div(d.c_out, conv.filters) * conv.packed_step;
  MITHRIL_ASSIGN(conv.packed, runtime::Buffer::make(static_cast<size_t>(size) * sizeof(T)));
  auto* to = reinterpret_cast<T*>(conv.packed.data());
  for (int64_t filter = 0, filters = 0; filter < all; filter += filters, to += conv.packed_step) {
    filters = std::min(conv.filters, d.c_out - filter % d.c_out);
    conv.products[filters == conv.filters ? 0 : 2].pack_constant(w + filter * taps, to);
  }
  return {};
}

template <class T>
core::Result<plan::Step> forward_step(const ref_conv2d_dims& d, int threads, const T* constant,
                                      const select::Epilogue* epilogue) {
  auto conv = std::make_shared<Convolution<T>>(
      d, Gather{d.c_in, d.h_in, d.w_in, d.kh, d.kw, d.stride_h, d.stride_w, d.dilation_h,
                d.dilation_w, -d.pad_top, -d.pad_left, d.h_out, d.w_out});
  const Cut cut = cut_for_threads(d, threads);
  size_t gathered = 0;
  if (constant != nullptr) {
    gathered = add_image_products(*conv, d.c_out, cut, GemmConstant::kLeft);
    if (takes_packed_weights(*conv)) {
      MITHRIL_RETURN_IF_ERROR(pack_weights_once(*conv, constant));
    } else {
      conv->products.clear();
    }
  }
  if (conv->products.empty()) gathered = add_image_products(*conv, d.c_out, cut);
  plan::Step step;
  step.kernel = run_forward<T>;
  step.units = d.batch * d.groups * core::ceil_div(d.c_out, conv->filters) *
               core::ceil_div(d.h_out, conv->rows);
  step.grain = grain_of(conv->filters * conv->rows * d.w_out * d.c_in * d.kh * d.kw / 8);
  step.scratch_bytes = conv->product_bytes + gathered;
  if (epilogue != nullptr) {
    constexpr size_t kResult = 2;  // behind the operands
    MITHRIL_ASSIGN(conv->epilogue, ImageEpilogue::make(*epilogue, kResult));
    conv->epilogue_scratch = padded(step.scratch_bytes);
    step.scratch_bytes = conv->epilogue_scratch + conv->epilogue->scratch_bytes();
  }
  step.data = std::move(conv);
  return step;
}

// Small images side by side fill whole tiles of a product. What is gathered for them stays small.
template <class T>
void join_images(InputGradient<T>& gradient, Phase<T>& phase) {
  constexpr int64_t kPositions = 512;  // of a product: enough
  const ref_conv2d_dims& d = gradient.d;
  const Gather& g = phase.conv.gather;
  const int64_t positions = g.rows * g.columns, k = g.channels * g.kh * g.kw;
  const int64_t image_bytes = k * positions * static_cast<int64_t>(sizeof(T));
  const int64_t fitting = kGatherBytes / std::max<int64_t>(image_bytes, 1);
  const int64_t most = std::min({gradient.images, fitting, kPositions / positions});
  if (most < 2) return;
  phase.together = most;
  const int64_t n = most * positions;
  phase.joint.emplace(default_isa(), GemmDims{d.c_in, n, k, k, 1, n, 1, n});
  gradient.product_bytes = std::max(gradient.product_bytes, padded(phase.joint->scratch_bytes()));
  gradient.gathered = std::max(gradient.gathered, k * n);
}

template <class T>
void add_phase(InputGradient<T>& gradient, int64_t top, int64_t left) {
  const ref_conv2d_dims& d = gradient.d;
  const Taps rows = kept_taps(top, d.pad_top, d.kh, d.stride_h, d.dilation_h);
  const Taps columns = kept_taps(left, d.pad_left, d.kw, d.stride_w, d.dilation_w);
  const Gather gather{d.c_out,
                      d.h_out,
                      d.w_out,
                      rows.count,
                      columns.count,
                      1,
                      1,
                      -d.dilation_h * rows.step / d.stride_h,
                      -d.dilation_w * columns.step / d.stride_w,
                      (top + d.pad_top - rows.first * d.dilation_h) / d.stride_h,
                      (left + d.pad_left - columns.first * d.dilation_w) / d.stride_w,
                      core::ceil_div(d.h_in - top, d.stride_h),
                      core::ceil_div(d.w_in - left, d.stride_w)};
  Phase<T> phase{top, left, rows, columns, Convolution<T>(d, gather)};
  const auto gathered = static_cast<int64_t>(add_image_products(phase.conv, d.c_in) / sizeof(T));
  gradient.product_bytes = std::max(gradient.product_bytes, phase.conv.product_bytes);
  gradient.weights = std::max(gradient.weights, d.c_in * d.c_out * rows.count * columns.count);
  gradient.gathered = std::max(gradient.gathered, gathered);
  if (!gradient.dense()) {
    join_images(gradient, phase);
    gradient.results =
        std::max(gradient.results, d.c_in * phase.together * gather.rows * gather.columns);
  }
  gradient.phases.push_back(std::move(phase));
}

template <class T>
core::Result<plan::Step> input_gradient_step(const ref_conv2d_dims& d, int threads) {
  auto gradient = std::make_shared<InputGradient<T>>();
  gradient->d = d;
  // Weights are packed once a unit.
  const int64_t units =
      std::max<int64_t>(threads == 1 ? 1 : 4 * threads,
                        fewest_chunks(2.0 * static_cast<double>(d.batch * d.h_out * d.w_out *
                                                                d.c_out * d.c_in * d.kh * d.kw)));
  gradient->images = std::max<int64_t>(1, d.batch / units);
  for (int64_t top = 0; top < std::min(d.stride_h, d.h_in); ++top) {
    for (int64_t left = 0; left < std::min(d.stride_w, d.w_in); ++left) {
      add_phase(*gradient, top, left);
    }
  }
  const int64_t elements = gradient->weights + gradient->gathered + gradient->results;
  plan::Step step;
  step.kernel = run_input_gradient<T>;
  step.units = core::ceil_div(d.batch, gradient->images) * d.groups;
  step.scratch_bytes = gradient->product_bytes + static_cast<size_t>(elements) * sizeof(T);
  step.data = std::move(gradient);
  return step;
}

template <class T>
core::Result<plan::Step> weight_gradient_step(const ref_conv2d_dims& d, int threads) {
  auto conv = std::make_shared<Convolution<T>>(d);
  constexpr int64_t kTaps = 288;  // enough to pay for gathering the cotangents again
  const int64_t window = d.kh * d.kw;
  conv->channels = std::clamp<int64_t>(kTaps / window, 1, core::ceil_div(d.c_in, threads));
  for (const int64_t channels : {conv->channels, d.c_in % conv->channels}) {
    for (const int64_t depth : {kDepth, d.batch * d.h_out * d.w_out % kDepth}) {
      conv->add({d.c_out, channels * window, depth, kDepth, 1, 1, kDepth, d.c_in * window},
                {.may_add = true});
    }
  }
  const int64_t elements = (d.c_out + conv->channels * window) * kDepth;
  plan::Step step;
  step.kernel = run_weight_gradient<T>;
  step.units = core::ceil_div(d.c_in, conv->channels) * d.groups;
  step.scratch_bytes = conv->product_bytes + static_cast<size_t>(elements) * sizeof(T);
  step.data = std::move(conv);
  return step;
}

}  // namespace

bool fits_convolution(const ref_conv2d_dims& d) {
  // Products of empty matrices and windows stay with the reference.
  return d.batch > 0 && d.c_in > 0 && d.c_out > 0 && d.h_out > 0 && d.w_out > 0 && d.kh > 0 &&
         d.kw > 0 && d.h_in > 0 && d.w_in > 0;
}

core::Result<plan::Step> make_convolution(const ref_conv2d_dims& d, DType dtype, int threads,
                                          const std::byte* constant,
                                          const select::Epilogue* epilogue) {
  return dtype == DType::kFloat32
             ? forward_step(d, threads, reinterpret_cast<const float*>(constant), epilogue)
             : forward_step(d, threads, reinterpret_cast<const double*>(constant), epilogue);
}

core::Result<plan::Step> make_input_gradient(const ref_conv2d_dims& d, DType dtype, int threads) {
  return dtype == DType::kFloat32 ? input_gradient_step<float>(d, threads)
                                  : input_gradient_step<double>(d, threads);
}

core::Result<plan::Step> make_weight_gradient(const ref_conv2d_dims& d, DType dtype, int threads) {
  return dtype == DType::kFloat32 ? weight_gradient_step<float>(d, threads)
                                  : weight_gradient_step<double>(d, threads);
}

}  // namespace mithril::cpu
