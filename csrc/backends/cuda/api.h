// CUDA as this backend uses it: functions of the driver, of NVRTC and of libraries, opened at run
// time, and what their statuses mean. Nothing of CUDA is needed to build.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/device/injection.h"
#include "core/status.h"

namespace mithril::cuda {

// Types of cuda.h and nvrtc.h. Handles are distinct so that one is not taken for another.
using cu_device = int;
using cu_pointer = uint64_t;
using cu_context = struct ContextHandle*;
using cu_stream = struct StreamHandle*;
using cu_module = struct ModuleHandle*;
using cu_function = struct FunctionHandle*;
using cu_pool = struct PoolHandle*;
using cu_event = struct EventHandle*;
using cu_graph = struct GraphHandle*;
using cu_executable_graph = struct ExecutableGraphHandle*;
using nvrtc_program = struct NvrtcProgramHandle*;
using lt_handle = struct LtHandle*;
using lt_operation = struct LtOperationHandle*;
using lt_layout = struct LtLayoutHandle*;
using lt_preference = struct LtPreferenceHandle*;
using dnn_handle = struct DnnHandle*;
using dnn_operand = struct DnnOperandHandle*;  // tensors and filters
using dnn_convolution = struct DnnConvolutionHandle*;

// Constants of cuda.h that are used here.
inline constexpr int kSuccess = 0;
inline constexpr int kNvrtcOutOfMemory = 1;
inline constexpr int kOutOfMemory = 2, kNoDevice = 100, kLaunchOutOfResources = 701;
inline constexpr int kFirstOfKernels = 700, kLastOfKernels = 720;  // errors that stay in a context
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventTiming = 0, kEventWithoutTiming = 2;
inline constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76, kHasPools = 115;
inline constexpr int kPoolReleaseThreshold = 4;
inline constexpr int kCaptureRelaxed = 2;  // other threads may call what they like meanwhile

/// CUmemPoolProps: pinned memory of a device.
struct PoolProperties {
  int allocation_type = 1, handle_types = 0, location_type = 1, location = 0;
  void* security = nullptr;
  unsigned char reserved[64] = {};
};

// Constants of cublasLt.h and library_types.h.
inline constexpr int kLtFloat32 = 0, kLtFloat64 = 1, kLtFloat16 = 2,
                     kLtBfloat16 = 14;  // elements, scales
inline constexpr int kLtCompute32 = 68, kLtCompute64 = 70, kLtCompute32Tf32 = 77;
inline constexpr int kLtTransposeA = 3, kLtTransposeB = 4, kLtEpilogue = 7, kLtBiasPointer = 8;
inline constexpr int kLtTransposed = 1;
inline constexpr unsigned kLtAddBias = 4;
inline constexpr int kLtBatchCount = 5, kLtBatchStride = 6;                       // of layouts
inline constexpr int kLtMostWorkspace = 1, kLtReductions = 3, kLtAlignmentA = 5;  // of searches
inline constexpr unsigned kLtReduceComputed = 2;  // parts of a sum are kept in the type of sums
inline constexpr int kLtAllocationFailed = 3, kLtInvalidValue = 7, kLtNotSupported = 15;

/// cublasLtMatmulHeuristicResult_t, the algorithm in it as it is passed.
struct LtAlgorithm {
  uint64_t data[8] = {};
};
struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace = 0;
  int state = 0;
  float waves = 0;
  int reserved[4] = {};
};

// Constants of cudnn_graph.h and cudnn_ops.h.
inline constexpr int kDnnFloat32 = 0, kDnnFloat64 = 1, kDnnFloat16 = 2, kDnnBfloat16 = 9;
inline constexpr int kDnnRows = 0;  // layout [n, c, h, w]
inline constexpr int kDnnCorrelation = 1;
inline constexpr int kDnnDefaultMath = 0, kDnnTensorMath = 1, kDnnFmaMath = 3;
inline constexpr int kDnnDeterministic = 1;
inline constexpr int kDnnBadParameter = 2000, kDnnNotSupported = 3000;  // the first of their kinds
inline constexpr int kDnnFirstBehindNotSupported = 4000;
inline constexpr int kDnnNoHostMemory = 4003, kDnnNoDeviceMemory = 4004;

/// cudnnConvolutionFwdAlgoPerf_t, and those of the gradients, which lie alike.
struct DnnAlgorithm {
  int algorithm = 0;
  int status = 0;
  float time = 0;
  size_t memory = 0;
  int determinism = 0;
  int math = 0;
  int reserved[3] = {};
};

// Every function of the driver: name here, name in the library, parameters.
#define MITHRIL_CUDA_FUNCTIONS(X)                                                                  \
  X(init, cuInit, (unsigned))                                                                      \
  X(driver_version, cuDriverGetVersion, (int*))                                                    \
  X(device_count, cuDeviceGetCount, (int*))                                                        \
  X(get_device, cuDeviceGet, (cu_device*, int))                                                    \
  X(device_name, cuDeviceGetName, (char*, int, cu_device))                                         \
  X(device_memory, cuDeviceTotalMem_v2, (size_t*, cu_device))                                      \
  X(device_attribute, cuDeviceGetAttribute, (int*, int, cu_device))                                \
  X(retain_context, cuDevicePrimaryCtxRetain, (cu_context*, cu_device))                            \
  X(release_context, cuDevicePrimaryCtxRelease_v2, (cu_device))                                    \
  X(push_context, cuCtxPushCurrent_v2, (cu_context))                                               \
  X(pop_context, cuCtxPopCurrent_v2, (cu_context*))                                                \
  X(create_stream, cuStreamCreate, (cu_stream*, unsigned))                                         \
  X(destroy_stream, cuStreamDestroy_v2, (cu_stream))                                               \
  X(wait, cuStreamSynchronize, (cu_stream))                                                        \
  X(wait_for_context, cuCtxSynchronize, ())                                                        \
  X(let_wait, cuStreamWaitEvent, (cu_stream, cu_event, unsigned))                                  \
  X(create_event, cuEventCreate, (cu_event*, unsigned))                                            \
  X(destroy_event, cuEventDestroy_v2, (cu_event))                                                  \
  X(record_event, cuEventRecord, (cu_event, cu_stream))                                            \
  X(elapsed, cuEventElapsedTime, (float*, cu_event, cu_event))                                     \
  X(allocate, cuMemAlloc_v2, (cu_pointer*, size_t))                                                \
  X(free, cuMemFree_v2, (cu_pointer))                                                              \
  X(allocate_pinned, cuMemHostAlloc, (void**, size_t, unsigned))                                   \
  X(copy_in, cuMemcpyHtoDAsync_v2, (cu_pointer, const void*, size_t, cu_stream))                   \
  X(copy_out, cuMemcpyDtoHAsync_v2, (void*, cu_pointer, size_t, cu_stream))                        \
  X(copy, cuMemcpyDtoDAsync_v2, (cu_pointer, cu_pointer, size_t, cu_stream))                       \
  X(fill, cuMemsetD8Async, (cu_pointer, unsigned char, size_t, cu_stream))                         \
  X(load, cuModuleLoadData, (cu_module*, const void*))                                             \
  X(unload, cuModuleUnload, (cu_module))                                                           \
  X(get_function, cuModuleGetFunction, (cu_function*, cu_module, const char*))                     \
  X(launch, cuLaunchKernel,                                                                        \
    (cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cu_stream, \
     void**, void**))                                                                              \
  X(error_name, cuGetErrorName, (int, const char**))

// Those that drivers before 11.2 lack.
#define MITHRIL_CUDA_POOL_FUNCTIONS(X)                                                  \
  X(create_pool, cuMemPoolCreate, (cu_pool*, const PoolProperties*))                    \
  X(destroy_pool, cuMemPoolDestroy, (cu_pool))                                          \
  X(set_pool, cuMemPoolSetAttribute, (cu_pool, int, void*))                             \
  X(allocate_async, cuMemAllocFromPoolAsync, (cu_pointer*, size_t, cu_pool, cu_stream)) \
  X(free_async, cuMemFreeAsync, (cu_pointer, cu_stream))

// Those that drivers before 11.4 lack.
#define MITHRIL_CUDA_GRAPH_FUNCTIONS(X)                            \
  X(begin_capture, cuStreamBeginCapture_v2, (cu_stream, int))      \
  X(end_capture, cuStreamEndCapture, (cu_stream, cu_graph*))       \
  X(instantiate, cuGraphInstantiateWithFlags,                      \
    (cu_executable_graph*, cu_graph, unsigned long long))          \
  X(launch_graph, cuGraphLaunch, (cu_executable_graph, cu_stream)) \
  X(destroy_graph, cuGraphDestroy, (cu_graph))                     \
  X(destroy_executable_graph, cuGraphExecDestroy, (cu_executable_graph))

#define MITHRIL_NVRTC_FUNCTIONS(X)                                                           \
  X(version, nvrtcVersion, (int*, int*))                                                     \
  X(arch_count, nvrtcGetNumSupportedArchs, (int*))                                           \
  X(archs, nvrtcGetSupportedArchs, (int*))                                                   \
  X(create, nvrtcCreateProgram,                                                              \
    (nvrtc_program*, const char*, const char*, int, const char* const*, const char* const*)) \
  X(destroy, nvrtcDestroyProgram, (nvrtc_program*))                                          \
  X(compile, nvrtcCompileProgram, (nvrtc_program, int, const char* const*))                  \
  X(log_size, nvrtcGetProgramLogSize, (nvrtc_program, size_t*))                              \
  X(log, nvrtcGetProgramLog, (nvrtc_program, char*))                                         \
  X(ptx_size, nvrtcGetPTXSize, (nvrtc_program, size_t*))                                     \
  X(ptx, nvrtcGetPTX, (nvrtc_program, char*))                                                \
  X(cubin_size, nvrtcGetCUBINSize, (nvrtc_program, size_t*))                                 \
  X(cubin, nvrtcGetCUBIN, (nvrtc_program, char*))

// Those of cuBLASLt.
#define MITHRIL_CUBLASLT_FUNCTIONS(X)                                                          \
  X(create, cublasLtCreate, (lt_handle*))                                                      \
  X(create_operation, cublasLtMatmulDescCreate, (lt_operation*, int, int))                     \
  X(destroy_operation, cublasLtMatmulDescDestroy, (lt_operation))                              \
  X(set_operation, cublasLtMatmulDescSetAttribute, (lt_operation, int, const void*, size_t))   \
  X(create_layout, cublasLtMatrixLayoutCreate, (lt_layout*, int, uint64_t, uint64_t, int64_t)) \
  X(destroy_layout, cublasLtMatrixLayoutDestroy, (lt_layout))                                  \
  X(set_layout, cublasLtMatrixLayoutSetAttribute, (lt_layout, int, const void*, size_t))       \
  X(create_preference, cublasLtMatmulPreferenceCreate, (lt_preference*))                       \
  X(destroy_preference, cublasLtMatmulPreferenceDestroy, (lt_preference))                      \
  X(set_preference, cublasLtMatmulPreferenceSetAttribute,                                      \
    (lt_preference, int, const void*, size_t))                                                 \
  X(find, cublasLtMatmulAlgoGetHeuristic,                                                      \
    (lt_handle, lt_operation, lt_layout, lt_layout, lt_layout, lt_layout, lt_preference, int,  \
     LtHeuristic*, int*))                                                                      \
  X(multiply, cublasLtMatmul,                                                                  \
    (lt_handle, lt_operation, const void*, const void*, lt_layout, const void*, lt_layout,     \
     const void*, const void*, lt_layout, void*, lt_layout, const LtAlgorithm*, void*, size_t, \
     cu_stream))

// Those of cuDNN. A convolution and its gradients take operands of the same kinds in the same
// places: two that are read, then the description, then the result.
#define MITHRIL_CUDNN_FIND \
  (dnn_handle, dnn_operand, dnn_operand, dnn_convolution, dnn_operand, int, int*, DnnAlgorithm*)
#define MITHRIL_CUDNN_MEASURE \
  (dnn_handle, dnn_operand, dnn_operand, dnn_convolution, dnn_operand, int, size_t*)
#define MITHRIL_CUDNN_CONVOLVE                                                                   \
  (dnn_handle, const void*, dnn_operand, const void*, dnn_operand, const void*, dnn_convolution, \
   int, void*, size_t, const void*, dnn_operand, void*)
#define MITHRIL_CUDNN_FUNCTIONS(X)                                                          \
  X(create, cudnnCreate, (dnn_handle*))                                                     \
  X(set_stream, cudnnSetStream, (dnn_handle, cu_stream))                                    \
  X(create_tensor, cudnnCreateTensorDescriptor, (dnn_operand*))                             \
  X(destroy_tensor, cudnnDestroyTensorDescriptor, (dnn_operand))                            \
  X(set_tensor, cudnnSetTensor4dDescriptor, (dnn_operand, int, int, int, int, int, int))    \
  X(create_filter, cudnnCreateFilterDescriptor, (dnn_operand*))                             \
  X(destroy_filter, cudnnDestroyFilterDescriptor, (dnn_operand))                            \
  X(set_filter, cudnnSetFilter4dDescriptor, (dnn_operand, int, int, int, int, int, int))    \
  X(create_convolution, cudnnCreateConvolutionDescriptor, (dnn_convolution*))               \
  X(destroy_convolution, cudnnDestroyConvolutionDescriptor, (dnn_convolution))              \
  X(set_convolution, cudnnSetConvolution2dDescriptor,                                       \
    (dnn_convolution, int, int, int, int, int, int, int, int))                              \
  X(set_groups, cudnnSetConvolutionGroupCount, (dnn_convolution, int))                      \
  X(set_math, cudnnSetConvolutionMathType, (dnn_convolution, int))                          \
  X(find_output, cudnnGetConvolutionForwardAlgorithm_v7, MITHRIL_CUDNN_FIND)                \
  X(measure_output, cudnnGetConvolutionForwardWorkspaceSize, MITHRIL_CUDNN_MEASURE)         \
  X(make_output, cudnnConvolutionForward, MITHRIL_CUDNN_CONVOLVE)                           \
  X(find_input, cudnnGetConvolutionBackwardDataAlgorithm_v7, MITHRIL_CUDNN_FIND)            \
  X(measure_input, cudnnGetConvolutionBackwardDataWorkspaceSize, MITHRIL_CUDNN_MEASURE)     \
  X(make_input, cudnnConvolutionBackwardData, MITHRIL_CUDNN_CONVOLVE)                       \
  X(find_weights, cudnnGetConvolutionBackwardFilterAlgorithm_v7, MITHRIL_CUDNN_FIND)        \
  X(measure_weights, cudnnGetConvolutionBackwardFilterWorkspaceSize, MITHRIL_CUDNN_MEASURE) \
  X(make_weights, cudnnConvolutionBackwardFilter, MITHRIL_CUDNN_CONVOLVE)

#define MITHRIL_CUDA_MEMBER(NAME, SYMBOL, PARAMETERS) int(*NAME) PARAMETERS = nullptr;
/// The driver's functions; those of pools and of graphs are null where it has none.
struct Functions {
  MITHRIL_CUDA_FUNCTIONS(MITHRIL_CUDA_MEMBER)
  MITHRIL_CUDA_POOL_FUNCTIONS(MITHRIL_CUDA_MEMBER)
  MITHRIL_CUDA_GRAPH_FUNCTIONS(MITHRIL_CUDA_MEMBER)
  bool has_pools() const;
  bool has_graphs() const;
};
/// NVRTC's functions.
struct NvrtcFunctions {
  MITHRIL_NVRTC_FUNCTIONS(MITHRIL_CUDA_MEMBER)
};
/// cuBLASLt's functions.
struct CublasltFunctions {
  MITHRIL_CUBLASLT_FUNCTIONS(MITHRIL_CUDA_MEMBER)
  size_t (*version)() = nullptr;  // 120803 is 12.8.3
};
/// cuDNN's functions.
struct CudnnFunctions {
  MITHRIL_CUDNN_FUNCTIONS(MITHRIL_CUDA_MEMBER)
  size_t (*version)() = nullptr;       // 91002 is 9.10.2
  size_t (*cuda_version)() = nullptr;  // that it was built with: 12090 is 12.9
  const char* (*error_name)(int) = nullptr;
};
#undef MITHRIL_CUDA_MEMBER

/// Opens the driver's library once, MITHRIL_CUDA_LIB or libcuda.so.1, and initialises it. Fails,
/// with what to do, where there is none.
core::Result<const Functions*> open_driver();

/// Opens one library of NVRTC; null, and why, where it cannot be.
const NvrtcFunctions* open_nvrtc(const std::string& path, std::string& why);

/// Opens one library of cuBLASLt; null, and why, where it cannot be.
const CublasltFunctions* open_cublaslt(const std::string& path, std::string& why);

/// Opens one library of cuDNN; null, and why, where it cannot be.
const CudnnFunctions* open_cudnn(const std::string& path, std::string& why);

/// Turns a failure of a function of the driver or of a library into a typed error: MemoryError
/// where memory or resources are exhausted, UnsupportedError where a library does not do what is
/// asked for, DeviceNotAvailable otherwise.
core::Status failed(std::string_view symbol, int status);

/// The functions that can be made to fail.
std::vector<std::string> injectable_symbols();

/// Calls a function of either: `call(f.wait, "cuStreamSynchronize", stream)`.
template <class... Parameters, class... Arguments>
core::Status call(int (*function)(Parameters...), const char* symbol, Arguments... arguments) {
  int status = device::injected(symbol);
  if (status == kSuccess) status = function(arguments...);
  return status == kSuccess ? core::Status() : failed(symbol, status);
}

}  // namespace mithril::cuda
