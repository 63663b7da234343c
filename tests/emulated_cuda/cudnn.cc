// A stand-in for libcudnn_cnn: convolutions and their gradients by loops on the host, written from
// the definition, when the emulated stream comes to them. A test double, no part of mithril. Sums
// are made from their ends, so that they are not those of mithril's kernels; what the real library
// refuses, or reads wrongly, is refused. Algorithms that mithril must not take come first: some
// spread what is not finite, others have other bits in every call.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "library.h"

namespace {

enum Status {
  kSuccess = 0,
  kNotInitialized = 1001,
  kBadParam = 2000,
  kNullPointer = 2002,
  kMisaligned = 2003,
  kTooSmall = 2006,
  kShapeMismatch = 2008,
  kNotSupported = 3000,
  kInternal = 4000,
  kNoHostMemory = 4003,
  kNoDeviceMemory = 4004,
  kExecutionFailed = 5000
};
enum { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBfloat16 = 9 };
enum { kRows = 0, kCorrelation = 1 };
enum { kDefaultMath = 0, kTensorMath = 1, kFmaMath = 3 };

struct Operand {  // a tensor [n, c, h, w] or a filter [o, c, h, w]
  bool is_filter = false;
  int type = -1, n = 0, c = 0, h = 0, w = 0;
};
struct Windows {
  int pad_h = 0, pad_w = 0, stride_h = 0, stride_w = 0, dilation_h = 0, dilation_w = 0;
  int mode = -1, compute = -1, groups = 1, math = kDefaultMath;
};
struct Algorithm {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};
struct Handle {
  Stream* stream = nullptr;
};

size_t size_of(int type) {
  switch (type) {
    case kFloat32: return 4;
    case kFloat64: return 8;
    case kFloat16:
    case kBfloat16: return 2;
    default: return 0;
  }
}
int64_t count_of(const Operand& o) { return int64_t{o.n} * o.c * o.h * o.w; }
size_t bytes_of(const Operand& o) { return static_cast<size_t>(count_of(o)) * size_of(o.type); }

int set(Operand& o, int format, int type, int n, int c, int h, int w) {
  if (size_of(type) == 0 || n < 1 || c < 1 || h < 1 || w < 1) return kBadParam;
  if (format != kRows) return kNotSupported;
  if (static_cast<double>(n) * c * h * w > std::numeric_limits<int32_t>::max())
    return kNotSupported;
  o.type = type;
  o.n = n;
  o.c = c;
  o.h = h;
  o.w = w;
  return kSuccess;
}

/// A convolution as its three operands have it.
struct Convolution {
  Operand x, w, y;
  Windows windows;
};

int windows_along(int size, int pad, int taps, int dilation, int stride) {
  const int room = size + 2 * pad - ((taps - 1) * dilation + 1);
  return room < 0 ? 0 : room / stride + 1;
}

int check(const Convolution& c) {
  const auto& [x, w, y, windows] = c;
  if (x.is_filter || !w.is_filter || y.is_filter || windows.mode < 0) return kBadParam;
  if (x.type < 0 || x.type != w.type || x.type != y.type) return kBadParam;
  if (windows.mode != kCorrelation) return kNotSupported;
  if (windows.compute != (x.type == kFloat64 ? kFloat64 : kFloat32)) return kNotSupported;
  const bool fits =
      x.n == y.n && x.c == w.c * windows.groups && w.n % windows.groups == 0 && y.c == w.n &&
      y.h == windows_along(x.h, windows.pad_h, w.h, windows.dilation_h, windows.stride_h) &&
      y.w == windows_along(x.w, windows.pad_w, w.w, windows.dilation_w, windows.stride_w);
  return fits ? kSuccess : kShapeMismatch;
}

enum Op { kOutput, kInput, kWeights };

// What an algorithm does that others do not.
bool spreads(Op op, int algorithm) {
  switch (op) {
    case kOutput: return algorithm >= 4;
    case kInput: return algorithm >= 2;
    default: return algorithm == 2 || algorithm >= 4;
  }
}
bool is_deterministic(Op op, int algorithm) {
  return op == kOutput || (algorithm != 0 && (op == kInput || algorithm != 3));
}

// Bytes of all windows as a matrix; of a transposed copy; of nothing.
size_t workspace_of(Op op, int algorithm, const Convolution& c) {
  const size_t columns = static_cast<size_t>(count_of(c.y) / c.y.c) * static_cast<size_t>(c.w.h) *
                         static_cast<size_t>(c.w.w) * static_cast<size_t>(c.x.c) *
                         size_of(c.x.type);
  if (op == kOutput) return algorithm == 2 ? columns : algorithm == 0 ? 0 : bytes_of(c.x);
  return algorithm == 0 ? 0 : bytes_of(op == kInput ? c.w : c.x) + 16;
}

// In the order of an expected speed.
std::vector<int> algorithms_of(Op op) {
  switch (op) {
    case kOutput: return {6, 4, 7, 5, 2, 1, 0};
    case kInput: return {4, 0, 5, 2, 3, 1};
    default: return {3, 0, 5, 2, 6, 1};
  }
}

template <class T, class Sum>
class Loops {
 public:
  Loops(const Convolution& c, const void* first, const void* second, void* made)
      : c_(c),
        first_(static_cast<const T*>(first)),
        second_(static_cast<const T*>(second)),
        made_(static_cast<T*>(made)) {}

  // Adds products up that belong to one element of what is made, from the last one to the first.
  void run(Op op) {
    const Operand& made = op == kOutput ? c_.y : op == kInput ? c_.x : c_.w;
    std::vector<Sum> sums(static_cast<size_t>(count_of(made)), Sum(0));
    const auto& [x, w, y, windows] = c_;
    const int out = w.n / windows.groups;
    for (int n = y.n; n-- > 0;) {
      for (int o = y.c; o-- > 0;) {
        const int group = o / out;
        for (int i = y.h; i-- > 0;) {
          for (int j = y.w; j-- > 0;) {
            const int64_t at_y = ((int64_t{n} * y.c + o) * y.h + i) * y.w + j;
            for (int c = w.c; c-- > 0;) {
              for (int p = w.h; p-- > 0;) {
                for (int q = w.w; q-- > 0;) {
                  const int row = i * windows.stride_h - windows.pad_h + p * windows.dilation_h;
                  const int column = j * windows.stride_w - windows.pad_w + q * windows.dilation_w;
                  if (row < 0 || row >= x.h || column < 0 || column >= x.w) continue;
                  const int64_t at_x =
                      ((int64_t{n} * x.c + group * w.c + c) * x.h + row) * x.w + column;
                  const int64_t at_w = ((int64_t{o} * w.c + c) * w.h + p) * w.w + q;
                  switch (op) {
                    case kOutput: add(sums, at_y, at_x, at_w); break;
                    case kInput: add(sums, at_x, at_w, at_y); break;
                    case kWeights: add(sums, at_w, at_x, at_y); break;
                  }
                }
              }
            }
          }
        }
      }
    }
    for (size_t i = 0; i < sums.size(); ++i) made_[i] = static_cast<T>(sums[i]);
  }

  // What Winograd's tiles and Fourier transforms make of an element that is huge or not finite: of
  // all.
  void spread(int64_t firsts, int64_t seconds, int64_t mades) {
    const auto is_wild = [](const T& value) {
      return !(std::fabs(static_cast<double>(value)) < 1e30);
    };
    if (std::none_of(first_, first_ + firsts, is_wild) &&
        std::none_of(second_, second_ + seconds, is_wild)) {
      return;
    }
    std::fill_n(made_, mades, static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
  }

  // Parts of a sum that were added in another order than last time.
  void vary(int64_t mades) {
    static int calls = 0;
    const Sum factor = Sum(1) + Sum(++calls % 7) / Sum(1000);
    for (int64_t i = 0; i < mades; ++i) {
      made_[i] = static_cast<T>(static_cast<Sum>(made_[i]) * factor);
    }
  }

 private:
  void add(std::vector<Sum>& sums, int64_t to, int64_t first, int64_t second) const {
    Sum& sum = sums[static_cast<size_t>(to)];
    sum = std::fma(factor(first_[first]), factor(second_[second]), sum);
  }
  Sum factor(const T& value) const {
    if constexpr (sizeof(T) == 4) {
      if (c_.windows.math != kFmaMath) return as_tf32(value);  // as from sm_80 on
    }
    return static_cast<Sum>(value);
  }

  const Convolution& c_;
  const T *first_, *second_;
  T* made_;
};

template <class T, class Sum>
void run(Op op, int algorithm, const Convolution& c, const void* first, const void* second,
         void* made) {
  const Operand* const all[] = {&c.x, &c.w, &c.y};
  constexpr int kPlaces[3][3] = {{0, 1, 2}, {1, 2, 0}, {0, 2, 1}};  // as the library has them
  const auto count = [&](int place) { return count_of(*all[kPlaces[op][place]]); };
  Loops<T, Sum> loops(c, first, second, made);
  loops.run(op);
  if (spreads(op, algorithm)) loops.spread(count(0), count(1), count(2));
  if (!is_deterministic(op, algorithm)) loops.vary(count(2));
}

void run_any(Op op, int algorithm, const Convolution& c, const void* first, const void* second,
             void* made) {
  switch (c.x.type) {
    case kFloat64: return run<double, double>(op, algorithm, c, first, second, made);
    case kFloat16: return run<_Float16, float>(op, algorithm, c, first, second, made);
    case kBfloat16: return run<Bfloat16, float>(op, algorithm, c, first, second, made);
    default: return run<float, float>(op, algorithm, c, first, second, made);
  }
}

// The operands in the places that the library has for them.
Convolution convolution_of(Op op, const Operand* first, const Operand* second,
                           const Windows* windows, const Operand* made) {
  switch (op) {
    case kOutput: return {*first, *second, *made, *windows};
    case kInput: return {*made, *first, *second, *windows};
    default: return {*first, *made, *second, *windows};
  }
}

int find(Op op, Handle* handle, const Convolution& c, int wanted, int* count, Algorithm* found) {
  *count = 0;
  if (handle == nullptr || wanted < 1 || !has_context()) return kBadParam;
  if (const int status = check(c)) return status;
  for (const int algorithm : algorithms_of(op)) {
    if (*count == wanted) break;
    // The library has no tiles for windows other than 3 x 3.
    const bool is_there = !spreads(op, algorithm) || (c.w.h == 3 && c.w.w == 3);
    found[(*count)++] = {algorithm,
                         is_there ? kSuccess : kNotSupported,
                         is_there ? 1.0F : -1.0F,
                         workspace_of(op, algorithm, c),
                         is_deterministic(op, algorithm) ? 1 : 0,
                         c.windows.math,
                         {}};
  }
  return kSuccess;
}

int measure(Op op, Handle* handle, const Convolution& c, int algorithm, size_t* bytes) {
  if (handle == nullptr || bytes == nullptr) return kBadParam;
  if (const int status = check(c)) return status;
  *bytes = workspace_of(op, algorithm, c);
  return kSuccess;
}

struct Places {
  const void *alpha, *first, *second;
  void* workspace;
  size_t workspace_bytes;
  const void* beta;
  void* made;
};

int make(Op op, Handle* handle, const Convolution& c, int algorithm, const Places& at) {
  if (handle == nullptr || handle->stream == nullptr || !has_context()) return kBadParam;
  if (const int status = check(c)) return status;
  const bool is_double = c.x.type == kFloat64;
  if (!is_number(at.alpha, is_double, 1) || !is_number(at.beta, is_double, 0)) return kBadParam;
  const Operand* const all[] = {&c.x, &c.w, &c.y};
  constexpr int kPlaces[3][3] = {{0, 1, 2}, {1, 2, 0}, {0, 2, 1}};
  const void* const places[] = {at.first, at.second, at.made};
  for (int i = 0; i < 3; ++i) {
    const Operand& operand = *all[kPlaces[op][i]];
    if (places[i] == nullptr) return kNullPointer;
    if (reinterpret_cast<uintptr_t>(places[i]) % size_of(operand.type) != 0) return kMisaligned;
    if (!is_ours(places[i], bytes_of(operand))) return kBadParam;
  }
  const size_t needed = workspace_of(op, algorithm, c);
  if (at.workspace_bytes < needed) return kTooSmall;
  if (needed > 0 && !is_ours(at.workspace, at.workspace_bytes)) return kBadParam;
  if (needed > 0 && reinterpret_cast<uintptr_t>(at.workspace) % 16 != 0) return kMisaligned;
  const size_t made_bytes = bytes_of(*all[kPlaces[op][2]]);
  // The descriptions may be gone, or others, when the stream comes to it. It writes where it works.
  give(handle->stream, [=] {
    const bool is_there = needed == 0 || is_ours(at.workspace, at.workspace_bytes);
    if (needed > 0 && is_there) std::memset(at.workspace, 0xFF, at.workspace_bytes);
    run_any(op, algorithm, c, at.first, at.second, at.made);
    if (!is_there) std::memset(at.made, 0xFF, made_bytes);  // NaN
  });
  return kSuccess;
}

// EMULATED_CUDNN_VERSION, EMULATED_CUDNN_CUDA: those of another library.
size_t number_in(const char* variable, size_t usual) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::strtoul(text, nullptr, 10) : usual;
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() { return number_in("EMULATED_CUDNN_VERSION", 91002); }
size_t cudnnGetCudartVersion() { return number_in("EMULATED_CUDNN_CUDA", 12080); }
const char* cudnnGetErrorString(int status) {
  switch (status) {
    case kSuccess: return "CUDNN_STATUS_SUCCESS";
    case kNotInitialized: return "CUDNN_STATUS_NOT_INITIALIZED";
    case kBadParam: return "CUDNN_STATUS_BAD_PARAM";
    case kNullPointer: return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case kMisaligned: return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    case kTooSmall: return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
    case kShapeMismatch: return "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH";
    case kNotSupported: return "CUDNN_STATUS_NOT_SUPPORTED";
    case kInternal: return "CUDNN_STATUS_INTERNAL_ERROR";
    case kNoHostMemory: return "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
    case kNoDeviceMemory: return "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
    case kExecutionFailed: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "CUDNN_UNKNOWN_STATUS";
  }
}
int cudnnCreate(Handle** handle) {
  if (!has_context()) return kNotInitialized;
  static std::vector<Handle*>& all = *new std::vector<Handle*>();  // reachable: none is a leak
  all.push_back(*handle = new Handle);
  return kSuccess;
}
int cudnnSetStream(Handle* handle, Stream* stream) {
  if (handle == nullptr) return kBadParam;
  handle->stream = stream;
  return kSuccess;
}

int cudnnCreateTensorDescriptor(Operand** out) {
  *out = new Operand{false};
  return kSuccess;
}
int cudnnDestroyTensorDescriptor(Operand* operand) {
  delete operand;
  return kSuccess;
}
int cudnnSetTensor4dDescriptor(Operand* operand, int format, int type, int n, int c, int h, int w) {
  return operand == nullptr || operand->is_filter ? kBadParam
                                                  : set(*operand, format, type, n, c, h, w);
}
int cudnnCreateFilterDescriptor(Operand** out) {
  *out = new Operand{true};
  return kSuccess;
}
int cudnnDestroyFilterDescriptor(Operand* operand) {
  delete operand;
  return kSuccess;
}
int cudnnSetFilter4dDescriptor(Operand* operand, int type, int format, int k, int c, int h, int w) {
  return operand == nullptr || !operand->is_filter ? kBadParam
                                                   : set(*operand, format, type, k, c, h, w);
}

int cudnnCreateConvolutionDescriptor(Windows** out) {
  *out = new Windows();
  return kSuccess;
}
int cudnnDestroyConvolutionDescriptor(Windows* windows) {
  delete windows;
  return kSuccess;
}
int cudnnSetConvolution2dDescriptor(Windows* o, int pad_h, int pad_w, int stride_h, int stride_w,
                                    int dilation_h, int dilation_w, int mode, int compute) {
  if (o == nullptr || pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 ||
      dilation_w < 1) {
    return kBadParam;
  }
  *o = {pad_h,      pad_w, stride_h, stride_w,  dilation_h,
        dilation_w, mode,  compute,  o->groups, o->math};
  return kSuccess;
}
int cudnnSetConvolutionGroupCount(Windows* windows, int groups) {
  if (windows == nullptr || groups < 1) return kBadParam;
  windows->groups = groups;
  return kSuccess;
}
int cudnnSetConvolutionMathType(Windows* windows, int math) {
  if (windows == nullptr || math < 0 || math > kFmaMath) return kBadParam;
  windows->math = math;
  return kSuccess;
}

#define EMULATED_CONVOLUTION(OP, FIND, MEASURE, MAKE)                                              \
  int FIND(Handle* handle, const Operand* first, const Operand* second, const Windows* windows,    \
           const Operand* made, int wanted, int* count, Algorithm* found) {                        \
    return find(OP, handle, convolution_of(OP, first, second, windows, made), wanted, count,       \
                found);                                                                            \
  }                                                                                                \
  int MEASURE(Handle* handle, const Operand* first, const Operand* second, const Windows* windows, \
              const Operand* made, int algorithm, size_t* bytes) {                                 \
    return measure(OP, handle, convolution_of(OP, first, second, windows, made), algorithm,        \
                   bytes);                                                                         \
  }                                                                                                \
  int MAKE(Handle* handle, const void* alpha, const Operand* first, const void* at_first,          \
           const Operand* second, const void* at_second, const Windows* windows, int algorithm,    \
           void* workspace, size_t workspace_bytes, const void* beta, const Operand* made,         \
           void* at_made) {                                                                        \
    return make(OP, handle, convolution_of(OP, first, second, windows, made), algorithm,           \
                {alpha, at_first, at_second, workspace, workspace_bytes, beta, at_made});          \
  }
EMULATED_CONVOLUTION(kOutput, cudnnGetConvolutionForwardAlgorithm_v7,
                     cudnnGetConvolutionForwardWorkspaceSize, cudnnConvolutionForward)
EMULATED_CONVOLUTION(kInput, cudnnGetConvolutionBackwardDataAlgorithm_v7,
                     cudnnGetConvolutionBackwardDataWorkspaceSize, cudnnConvolutionBackwardData)
EMULATED_CONVOLUTION(kWeights, cudnnGetConvolutionBackwardFilterAlgorithm_v7,
                     cudnnGetConvolutionBackwardFilterWorkspaceSize, cudnnConvolutionBackwardFilter)
#undef EMULATED_CONVOLUTION
}
