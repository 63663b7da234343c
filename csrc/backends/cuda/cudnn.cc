// By the functions that cuDNN 9 calls legacy: they choose among its kernels as its graphs do, and a
// convolution is one call of fixed operands. libcudnn_cnn.so has them, and is refused by the linker
// where a library that it stands on is missing; libcudnn.so, which finds each when it is first
// called, ends the process then.
#include "backends/cuda/cudnn.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

namespace mithril::cuda {
namespace {

using core::ErrorKind;
using Makes = plan::LibraryConv2d::Makes;

constexpr size_t kOldest = 90000;
// More than a library has: 8 kinds, each with tensor cores and without.
constexpr int kMostFound = 32;

// Algorithms add up the products of a window and its weights, in an order that is the same in every
// run. Not admitted: Winograd's and Fourier transforms, through which an infinite, NaN or huge
// element reaches results whose windows do not hold it; and those that add parts of a sum as they
// come (ALGO_0 of both gradients, ALGO_3 of that of weights), which bits depend on.
// cudnnConvolutionFwdAlgo_t: IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, GEMM.
constexpr int kOfOutput[] = {0, 1, 2};
// cudnnConvolutionBwdDataAlgo_t and cudnnConvolutionBwdFilterAlgo_t: ALGO_1.
constexpr int kOfGradient[] = {1};

/// The functions of one of the three ops, with their names.
struct Operation {
  int(*find) MITHRIL_CUDNN_FIND;
  const char* find_name;
  int(*measure) MITHRIL_CUDNN_MEASURE;
  const char* measure_name;
  int(*make) MITHRIL_CUDNN_CONVOLVE;
  const char* make_name;
  std::span<const int> algorithms;
};

Operation operation_of(const CudnnFunctions& f, Makes makes) {
  switch (makes) {
    case Makes::kOutput:
      return {f.find_output,    "cudnnGetConvolutionForwardAlgorithm_v7",
              f.measure_output, "cudnnGetConvolutionForwardWorkspaceSize",
              f.make_output,    "cudnnConvolutionForward",
              kOfOutput};
    case Makes::kInput:
      return {f.find_input,    "cudnnGetConvolutionBackwardDataAlgorithm_v7",
              f.measure_input, "cudnnGetConvolutionBackwardDataWorkspaceSize",
              f.make_input,    "cudnnConvolutionBackwardData",
              kOfGradient};
    case Makes::kWeights: break;
  }
  return {f.find_weights,    "cudnnGetConvolutionBackwardFilterAlgorithm_v7",
          f.measure_weights, "cudnnGetConvolutionBackwardFilterWorkspaceSize",
          f.make_weights,    "cudnnConvolutionBackwardFilter",
          kOfGradient};
}

int element_of(core::DType dtype) {
  switch (dtype) {
    case core::DType::kFloat16: return kDnnFloat16;
    case core::DType::kBFloat16: return kDnnBfloat16;
    case core::DType::kFloat64: return kDnnFloat64;
    default: return kDnnFloat32;
  }
}

// Default math would round factors of float32 to TF32.
int math_of(const plan::LibraryConv2d& convolution) {
  switch (convolution.dtype) {
    case core::DType::kFloat64: return kDnnDefaultMath;
    case core::DType::kFloat32: return convolution.allows_tf32 ? kDnnTensorMath : kDnnFmaMath;
    default: return kDnnTensorMath;
  }
}

int number(int64_t size) { return static_cast<int>(size); }

}  // namespace

/// Serves calls in turn: a handle of the library is one thread's at a time.
struct Cudnn::Handle {
  dnn_handle handle = nullptr;
  std::mutex mutex;
};

class Cudnn::Convolution final : public LibraryCall {
 public:
  Convolution(const CudnnFunctions& f, std::shared_ptr<Handle> handle)
      : f_(f), handle_(std::move(handle)) {}

  core::Status prepare(const plan::LibraryConv2d& convolution, int64_t most_workspace,
                       const TakeWorkspace& take_workspace) {
    operation_ = operation_of(f_, convolution.makes);
    is_double_ = convolution.dtype == core::DType::kFloat64;
    is_input_made_ = convolution.makes == Makes::kInput;
    MITHRIL_RETURN_IF_ERROR(describe(convolution));
    const std::lock_guard lock(handle_->mutex);
    return choose(math_of(convolution), most_workspace, take_workspace);
  }

  core::Status enqueue(std::span<const cu_pointer> operands, cu_stream stream) const override {
    const std::lock_guard lock(handle_->mutex);
    MITHRIL_RETURN_IF_ERROR(call(f_.set_stream, "cudnnSetStream", handle_->handle, stream));
    const auto [first, second] = read_operands(operands[0], operands[1]);
    const auto [first_kind, second_kind, made_kind] = descriptions_;
    return call(operation_.make, operation_.make_name, handle_->handle, scale_of(1, is_double_),
                first_kind, pointer_to(first), second_kind, pointer_to(second), windows_.get(),
                algorithm_, pointer_to(workspace_.at), workspace_bytes_, scale_of(0, is_double_),
                made_kind, pointer_to(operands[2]));
  }

 private:
  // conv2d_dx has the cotangent before the weights, the library behind them.
  template <class T>
  std::pair<T, T> read_operands(T first, T second) const {
    return is_input_made_ ? std::pair(second, first) : std::pair(first, second);
  }

  core::Status describe(const plan::LibraryConv2d& c) {
    const int element = element_of(c.dtype);
    MITHRIL_RETURN_IF_ERROR(
        describe_images(images_, element, c.batch, c.groups * c.c_in, c.h_in, c.w_in));
    MITHRIL_RETURN_IF_ERROR(
        describe_images(results_, element, c.batch, c.groups * c.c_out, c.h_out, c.w_out));
    MITHRIL_RETURN_IF_ERROR(weights_.make(f_.create_filter, "cudnnCreateFilterDescriptor",
                                          f_.destroy_filter, "cudnnDestroyFilterDescriptor"));
    MITHRIL_RETURN_IF_ERROR(call(f_.set_filter, "cudnnSetFilter4dDescriptor", weights_.get(),
                                 element, kDnnRows, number(c.groups * c.c_out), number(c.c_in),
                                 number(c.kh), number(c.kw)));
    const dnn_operand x = images_.get(), w = weights_.get(), y = results_.get();
    switch (c.makes) {
      case Makes::kOutput: descriptions_ = {x, w, y}; break;
      case Makes::kInput: descriptions_ = {w, y, x}; break;
      case Makes::kWeights: descriptions_ = {x, y, w}; break;
    }
    return describe_windows(c);
  }

  core::Status describe_images(LibraryObject<dnn_operand>& images, int element, int64_t batch,
                               int64_t channels, int64_t height, int64_t width) const {
    MITHRIL_RETURN_IF_ERROR(images.make(f_.create_tensor, "cudnnCreateTensorDescriptor",
                                        f_.destroy_tensor, "cudnnDestroyTensorDescriptor"));
    return call(f_.set_tensor, "cudnnSetTensor4dDescriptor", images.get(), kDnnRows, element,
                number(batch), number(channels), number(height), number(width));
  }

  core::Status describe_windows(const plan::LibraryConv2d& c) {
    MITHRIL_RETURN_IF_ERROR(windows_.make(f_.create_convolution, "cudnnCreateConvolutionDescriptor",
                                          f_.destroy_convolution,
                                          "cudnnDestroyConvolutionDescriptor"));
    MITHRIL_RETURN_IF_ERROR(
        call(f_.set_convolution, "cudnnSetConvolution2dDescriptor", windows_.get(), number(c.pad_h),
             number(c.pad_w), number(c.stride_h), number(c.stride_w), number(c.dilation_h),
             number(c.dilation_w), kDnnCorrelation, is_double_ ? kDnnFloat64 : kDnnFloat32));
    MITHRIL_RETURN_IF_ERROR(
        call(f_.set_groups, "cudnnSetConvolutionGroupCount", windows_.get(), number(c.groups)));
    return call(f_.set_math, "cudnnSetConvolutionMathType", windows_.get(), math_of(c));
  }

  core::Status choose(int math, int64_t most_workspace, const TakeWorkspace& take_workspace) {
    const auto [first, second, made] = descriptions_;
    std::array<DnnAlgorithm, kMostFound> found;
    int count = 0;
    MITHRIL_RETURN_IF_ERROR(call(operation_.find, operation_.find_name, handle_->handle, first,
                                 second, windows_.get(), made, kMostFound, &count, found.data()));
    core::Status status = failed(operation_.find_name, kDnnNotSupported);  // if none is left
    for (int i = 0; i < count; ++i) {
      const DnnAlgorithm& one = found[static_cast<size_t>(i)];
      if (!is_admitted(one, math)) continue;
      core::Status taken = take(one.algorithm, most_workspace, take_workspace);
      if (taken.ok()) return taken;
      const ErrorKind kind = taken.error().kind;
      if (kind != ErrorKind::kUnsupported && kind != ErrorKind::kMemory) return taken;
      if (kind == ErrorKind::kMemory) status = std::move(taken);  // more than that none does it
    }
    return status;
  }

  // The library may name an algorithm once with tensor cores and once without. The description says
  // which are used.
  bool is_admitted(const DnnAlgorithm& one, int math) const {
    const auto& admitted = operation_.algorithms;
    const bool rounds =
        math == kDnnFmaMath && one.math != kDnnFmaMath && one.math != kDnnDefaultMath;
    return one.status == kSuccess && one.determinism == kDnnDeterministic && !rounds &&
           std::find(admitted.begin(), admitted.end(), one.algorithm) != admitted.end();
  }

  core::Status take(int algorithm, int64_t most_workspace, const TakeWorkspace& take_workspace) {
    const auto [first, second, made] = descriptions_;
    size_t bytes = 0;
    MITHRIL_RETURN_IF_ERROR(call(operation_.measure, operation_.measure_name, handle_->handle,
                                 first, second, windows_.get(), made, algorithm, &bytes));
    if (bytes > static_cast<size_t>(most_workspace)) {
      return failed(operation_.measure_name, kDnnNotSupported);
    }
    if (bytes > 0) {
      MITHRIL_ASSIGN(workspace_, take_workspace(static_cast<int64_t>(bytes)));
    }
    algorithm_ = algorithm;
    workspace_bytes_ = bytes;
    return {};
  }

  const CudnnFunctions& f_;
  std::shared_ptr<Handle> handle_;
  Operation operation_{};
  LibraryObject<dnn_operand> images_, weights_, results_;
  LibraryObject<dnn_convolution> windows_;
  std::array<dnn_operand, 3> descriptions_{};  // in the library's order; the last is made
  bool is_double_ = false, is_input_made_ = false;
  int algorithm_ = 0;
  Workspace workspace_;
  size_t workspace_bytes_ = 0;
};

core::Result<Cudnn> Cudnn::open(const std::vector<std::string>& libraries, int newest) {
  return open_first<Cudnn>("cuDNN", libraries,
                           [&](const std::string& path) { return open(path, newest); });
}

core::Result<Cudnn> Cudnn::open(const std::string& path, int newest) {
  std::string why;
  Cudnn out;
  out.functions_ = open_cudnn(path, why);
  if (out.functions_ == nullptr) return unusable("{}", why);
  const size_t version = out.functions_->version(), cuda = out.functions_->cuda_version() / 1000;
  if (version < kOldest) {
    return unusable("{} is of version {}: cuDNN 9 is required", path, version);
  }
  if (cuda > static_cast<size_t>(newest) / 1000) {
    return unusable("{} is of CUDA {}, the driver of CUDA {}", path, cuda, newest / 1000);
  }
  out.handle_ = std::make_shared<Handle>();
  const core::Status made = call(out.functions_->create, "cudnnCreate", &out.handle_->handle);
  if (!made.ok()) return unusable("{}: {}", path, made.error().message);
  return out;
}

std::string Cudnn::name() const {
  const size_t version = functions_->version();
  return fmt::format("cuDNN {}.{}", version / 10000, version / 100 % 100);
}

core::Result<LibraryCallPtr> Cudnn::prepare(const plan::LibraryConv2d& convolution,
                                            int64_t most_workspace,
                                            const TakeWorkspace& take_workspace) const {
  auto out = std::make_unique<Convolution>(*functions_, handle_);
  MITHRIL_RETURN_IF_ERROR(out->prepare(convolution, most_workspace, take_workspace));
  return LibraryCallPtr(std::move(out));
}

}  // namespace mithril::cuda
