#include "backends/cuda/api.h"

#include <atomic>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <span>
#include <utility>

#include "core/env.h"

namespace mithril::cuda {
namespace {

using core::Code;
using core::ErrorKind;

constexpr const char* kInstall =
    "install the driver of an NVIDIA GPU (Debian: apt-get install nvidia-driver)";

struct Name {
  int status;
  const char* text;
};
// Of nvrtc.h; the driver and cuDNN name their own.
constexpr Name kNvrtcNames[] = {
    {kNvrtcOutOfMemory, "NVRTC_ERROR_OUT_OF_MEMORY"},
    {2, "NVRTC_ERROR_PROGRAM_CREATION_FAILURE"},
    {3, "NVRTC_ERROR_INVALID_INPUT"},
    {4, "NVRTC_ERROR_INVALID_PROGRAM"},
    {5, "NVRTC_ERROR_INVALID_OPTION"},
    {6, "NVRTC_ERROR_COMPILATION"},
    {7, "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"},
    {11, "NVRTC_ERROR_INTERNAL_ERROR"},
};

// Of cublas_api.h.
constexpr Name kCublasNames[] = {
    {1, "CUBLAS_STATUS_NOT_INITIALIZED"}, {kLtAllocationFailed, "CUBLAS_STATUS_ALLOC_FAILED"},
    {7, "CUBLAS_STATUS_INVALID_VALUE"},   {8, "CUBLAS_STATUS_ARCH_MISMATCH"},
    {11, "CUBLAS_STATUS_MAPPING_ERROR"},  {13, "CUBLAS_STATUS_EXECUTION_FAILED"},
    {14, "CUBLAS_STATUS_INTERNAL_ERROR"}, {15, "CUBLAS_STATUS_NOT_SUPPORTED"},
};

enum class Library : uint8_t { kDriver, kNvrtc, kCublaslt, kCudnn };

Library library_of(std::string_view symbol) {
  if (symbol.starts_with("nvrtc")) return Library::kNvrtc;
  if (symbol.starts_with("cudnn")) return Library::kCudnn;
  return symbol.starts_with("cublas") ? Library::kCublaslt : Library::kDriver;
}

const Functions* opened = nullptr;                         // set once
std::atomic<const CudnnFunctions*> opened_cudnn{nullptr};  // whichever was opened last

const char* found_in(std::span<const Name> names, int status) {
  for (const Name& name : names) {
    if (name.status == status) return name.text;
  }
  return nullptr;
}

std::string name_of(Library library, int status) {
  const char* text = nullptr;
  switch (library) {
    case Library::kNvrtc: text = found_in(kNvrtcNames, status); break;
    case Library::kCublaslt: text = found_in(kCublasNames, status); break;
    case Library::kCudnn:
      if (const CudnnFunctions* const f = opened_cudnn) text = f->error_name(status);
      break;
    case Library::kDriver:
      if (opened == nullptr || opened->error_name(status, &text) != kSuccess) text = nullptr;
      break;
  }
  return text != nullptr ? text : fmt::format("status {}", status);
}

core::Error unavailable(const std::string& message, const char* hint) {
  core::Error error = core::fail(ErrorKind::kDevice, Code::kDevice, "{}", message);
  error.hint = hint;
  return error;
}

template <class Function>
void find(void* library, Function& function, const char* symbol, std::string& missing) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (function == nullptr && missing.empty()) missing = symbol;
}

// The library stays open: drivers do not bear being closed.
core::Result<const Functions*> open() {
  const std::string& chosen = core::env().cuda_lib;
  const char* const path = chosen.empty() ? "libcuda.so.1" : chosen.c_str();
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return unavailable(
        fmt::format("CUDA's driver cannot be opened: {}", why == nullptr ? path : why), kInstall);
  }
  static Functions functions;
  std::string missing, no_pools, no_graphs;
#define MITHRIL_CUDA_FIND(NAME, SYMBOL, ...) find(library, functions.NAME, #SYMBOL, missing);
  MITHRIL_CUDA_FUNCTIONS(MITHRIL_CUDA_FIND)
#undef MITHRIL_CUDA_FIND
#define MITHRIL_CUDA_FIND(NAME, SYMBOL, ...) find(library, functions.NAME, #SYMBOL, no_pools);
  MITHRIL_CUDA_POOL_FUNCTIONS(MITHRIL_CUDA_FIND)
#undef MITHRIL_CUDA_FIND
#define MITHRIL_CUDA_FIND(NAME, SYMBOL, ...) find(library, functions.NAME, #SYMBOL, no_graphs);
  MITHRIL_CUDA_GRAPH_FUNCTIONS(MITHRIL_CUDA_FIND)
#undef MITHRIL_CUDA_FIND
  if (!missing.empty()) {
    return unavailable(fmt::format("CUDA's driver has no function {}", missing),
                       "a driver of CUDA 11 or later is required");
  }
  opened = &functions;  // for names of errors
  core::Status status = call(functions.init, "cuInit", 0U);
  if (!status.ok()) {
    opened = nullptr;  // tried again
    status.error().hint = "nvidia-smi says whether the driver sees a GPU";
    return status;
  }
  return &functions;
}

}  // namespace

bool Functions::has_pools() const {
  return create_pool != nullptr && destroy_pool != nullptr && set_pool != nullptr &&
         allocate_async != nullptr && free_async != nullptr;
}

bool Functions::has_graphs() const {
  return begin_capture != nullptr && end_capture != nullptr && instantiate != nullptr &&
         launch_graph != nullptr && destroy_graph != nullptr && destroy_executable_graph != nullptr;
}

core::Result<const Functions*> open_driver() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (opened != nullptr) return opened;
  return open();  // tried again where it failed: one may have been installed
}

namespace {

/// Opens a library once for all. `find_all(library, functions, missing)` finds its functions.
template <class AllFunctions, class FindAll>
const AllFunctions* open_once(const std::string& path, const char* required, std::string& why,
                              const FindAll& find_all) {
  static std::mutex mutex;
  static auto& libraries = *new std::map<std::string, AllFunctions>();
  const std::lock_guard lock(mutex);
  const auto known = libraries.find(path);
  if (known != libraries.end()) return &known->second;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const said = dlerror();
    why = said == nullptr ? path : said;
    return nullptr;
  }
  AllFunctions functions;
  std::string missing;
  find_all(library, functions, missing);
  if (!missing.empty()) {
    why = fmt::format("{} has no function {}: {} or later is required", path, missing, required);
    return nullptr;
  }
  return &libraries.emplace(path, functions).first->second;
}

}  // namespace

#define MITHRIL_CUDA_FIND(NAME, SYMBOL, ...) find(library, functions.NAME, #SYMBOL, missing);
const NvrtcFunctions* open_nvrtc(const std::string& path, std::string& why) {
  return open_once<NvrtcFunctions>(path, "NVRTC of CUDA 11.2", why,
                                   [](void* library, auto& functions, std::string& missing) {
                                     MITHRIL_NVRTC_FUNCTIONS(MITHRIL_CUDA_FIND)
                                   });
}

const CublasltFunctions* open_cublaslt(const std::string& path, std::string& why) {
  return open_once<CublasltFunctions>(
      path, "cuBLASLt of CUDA 11", why, [](void* library, auto& functions, std::string& missing) {
        MITHRIL_CUBLASLT_FUNCTIONS(MITHRIL_CUDA_FIND)
        find(library, functions.version, "cublasLtGetVersion", missing);
      });
}

const CudnnFunctions* open_cudnn(const std::string& path, std::string& why) {
  const CudnnFunctions* const out = open_once<CudnnFunctions>(
      path, "cuDNN 9", why, [](void* library, auto& functions, std::string& missing) {
        MITHRIL_CUDNN_FUNCTIONS(MITHRIL_CUDA_FIND)
        find(library, functions.version, "cudnnGetVersion", missing);
        find(library, functions.cuda_version, "cudnnGetCudartVersion", missing);
        find(library, functions.error_name, "cudnnGetErrorString", missing);
      });
  if (out != nullptr) opened_cudnn = out;
  return out;
}
#undef MITHRIL_CUDA_FIND

namespace {

// Tells whether memory or resources are exhausted.
bool is_memory(Library library, int status) {
  switch (library) {
    case Library::kDriver: return status == kOutOfMemory || status == kLaunchOutOfResources;
    case Library::kNvrtc: return status == kNvrtcOutOfMemory;
    case Library::kCublaslt: return status == kLtAllocationFailed;
    case Library::kCudnn: return status == kDnnNoHostMemory || status == kDnnNoDeviceMemory;
  }
  return false;
}

// Tells whether a library says, as it is asked and before it computes anything, that it does not do
// that.
bool cannot_do(Library library, std::string_view symbol, int status) {
  if (library == Library::kCudnn) {
    const bool is_question = symbol.starts_with("cudnnGet") ||
                             (symbol.starts_with("cudnnSet") && symbol != "cudnnSetStream");
    return is_question && status >= kDnnBadParameter && status < kDnnFirstBehindNotSupported;
  }
  return library == Library::kCublaslt && symbol == "cublasLtMatmulAlgoGetHeuristic" &&
         (status == kLtInvalidValue || status == kLtNotSupported);
}

}  // namespace

core::Status failed(std::string_view symbol, int status) {
  const Library library = library_of(symbol);
  const bool is_driver = library == Library::kDriver;
  const bool memory = is_memory(library, status);
  const bool cannot = cannot_do(library, symbol, status);
  const auto [kind, code] = memory   ? std::pair(ErrorKind::kMemory, Code::kOutOfMemory)
                            : cannot ? std::pair(ErrorKind::kUnsupported, Code::kUnsupported)
                                     : std::pair(ErrorKind::kDevice, Code::kDevice);
  core::Error error =
      core::fail(kind, code, "CUDA: {} failed with {}", symbol, name_of(library, status));
  if (memory) {
    error.hint = "memory_limit=, smaller sizes, or another device";
  } else if (is_driver && status >= kFirstOfKernels && status <= kLastOfKernels) {
    error.hint = "a kernel's error stays with the device until the process ends: start it anew";
  }
  return error;
}

std::vector<std::string> injectable_symbols() {
  std::vector<std::string> out;
#define MITHRIL_CUDA_NAME(NAME, SYMBOL, ...) out.emplace_back(#SYMBOL);
  MITHRIL_CUDA_FUNCTIONS(MITHRIL_CUDA_NAME)
  MITHRIL_CUDA_POOL_FUNCTIONS(MITHRIL_CUDA_NAME)
  MITHRIL_CUDA_GRAPH_FUNCTIONS(MITHRIL_CUDA_NAME)
  MITHRIL_NVRTC_FUNCTIONS(MITHRIL_CUDA_NAME)
  MITHRIL_CUBLASLT_FUNCTIONS(MITHRIL_CUDA_NAME)
  MITHRIL_CUDNN_FUNCTIONS(MITHRIL_CUDA_NAME)
#undef MITHRIL_CUDA_NAME
  return out;
}

}  // namespace mithril::cuda
