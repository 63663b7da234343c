#include "backends/opencl/api.h"

#include <dlfcn.h>
#include <mutex>

#include "core/env.h"

namespace mithril::opencl {
namespace {

using core::Code;
using core::ErrorKind;

constexpr const char* kLibraries[] = {"libOpenCL.so.1", "libOpenCL.so",
                                      "/System/Library/Frameworks/OpenCL.framework/OpenCL"};
constexpr const char* kInstall =
    "apt-get install ocl-icd-libopencl1 pocl-opencl-icd (or the driver of a GPU)";

struct Name {
  cl_int status;
  const char* text;
};
constexpr Name kNames[] = {
    {-1, "CL_DEVICE_NOT_FOUND"},
    {-2, "CL_DEVICE_NOT_AVAILABLE"},
    {-3, "CL_COMPILER_NOT_AVAILABLE"},
    {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {-5, "CL_OUT_OF_RESOURCES"},
    {-6, "CL_OUT_OF_HOST_MEMORY"},
    {-7, "CL_PROFILING_INFO_NOT_AVAILABLE"},
    {-8, "CL_MEM_COPY_OVERLAP"},
    {-11, "CL_BUILD_PROGRAM_FAILURE"},
    {-12, "CL_MAP_FAILURE"},
    {-13, "CL_MISALIGNED_SUB_BUFFER_OFFSET"},
    {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
    {-15, "CL_COMPILE_PROGRAM_FAILURE"},
    {-16, "CL_LINKER_NOT_AVAILABLE"},
    {-17, "CL_LINK_PROGRAM_FAILURE"},
    {-30, "CL_INVALID_VALUE"},
    {-31, "CL_INVALID_DEVICE_TYPE"},
    {-32, "CL_INVALID_PLATFORM"},
    {-33, "CL_INVALID_DEVICE"},
    {-34, "CL_INVALID_CONTEXT"},
    {-35, "CL_INVALID_QUEUE_PROPERTIES"},
    {-36, "CL_INVALID_COMMAND_QUEUE"},
    {-37, "CL_INVALID_HOST_PTR"},
    {-38, "CL_INVALID_MEM_OBJECT"},
    {-42, "CL_INVALID_BINARY"},
    {-43, "CL_INVALID_BUILD_OPTIONS"},
    {-44, "CL_INVALID_PROGRAM"},
    {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
    {-46, "CL_INVALID_KERNEL_NAME"},
    {-47, "CL_INVALID_KERNEL_DEFINITION"},
    {-48, "CL_INVALID_KERNEL"},
    {-49, "CL_INVALID_ARG_INDEX"},
    {-50, "CL_INVALID_ARG_VALUE"},
    {-51, "CL_INVALID_ARG_SIZE"},
    {-52, "CL_INVALID_KERNEL_ARGS"},
    {-53, "CL_INVALID_WORK_DIMENSION"},
    {-54, "CL_INVALID_WORK_GROUP_SIZE"},
    {-55, "CL_INVALID_WORK_ITEM_SIZE"},
    {-56, "CL_INVALID_GLOBAL_OFFSET"},
    {-57, "CL_INVALID_EVENT_WAIT_LIST"},
    {-58, "CL_INVALID_EVENT"},
    {-59, "CL_INVALID_OPERATION"},
    {-61, "CL_INVALID_BUFFER_SIZE"},
    {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
    {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
};

bool is_memory(cl_int status) { return (status >= -6 && status <= -4) || status == -61; }

// Queues and contexts are never wrong by themselves. NVIDIA's driver gives -9999, which has no
// name, after an access of a kernel that it does not bear.
bool is_lost(cl_int status) {
  return status == -2 || status == -14 || status == -34 || status == -36 || status == -9999;
}

void* open_library(std::string& why) {
  for (const char* const path : kLibraries) {
    if (void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL)) return library;
    const char* const said = dlerror();
    if (why.empty() && said != nullptr) why = said;
  }
  return nullptr;
}

// The library stays open: drivers do not bear being closed.
// PoCL, which the loader may open, ends the process then.
core::Status check_environment() {
  if (!core::is_set_to_nothing("POCL_CACHE_DIR")) return {};
  core::Error error = core::fail(ErrorKind::kDevice, Code::kDevice,
                                 "OpenCL: POCL_CACHE_DIR is set to nothing, with which PoCL ends "
                                 "the process");
  error.hint = "let it name a folder, or unset it";
  return error;
}

core::Result<const Functions*> open() {
  MITHRIL_RETURN_IF_ERROR(check_environment());
  std::string why;
  void* const library = open_library(why);
  if (library == nullptr) {
    core::Error error =
        core::fail(ErrorKind::kDevice, Code::kDevice, "OpenCL's loader cannot be opened: {}", why);
    error.hint = kInstall;
    return error;
  }
  static Functions functions;
  std::string missing;
  const auto find = [&]<class F>(F& function, const char* symbol) {
    function = reinterpret_cast<F>(dlsym(library, symbol));
    if (function == nullptr && missing.empty()) missing = symbol;
  };
#define MITHRIL_OPENCL_FIND(NAME, SYMBOL, ...) find(functions.NAME, #SYMBOL);
  MITHRIL_OPENCL_STATUS_FUNCTIONS(MITHRIL_OPENCL_FIND)
  MITHRIL_OPENCL_MAKING_FUNCTIONS(MITHRIL_OPENCL_FIND)
#undef MITHRIL_OPENCL_FIND
  if (!missing.empty()) {
    return core::fail(ErrorKind::kDevice, Code::kDevice,
                      "OpenCL's loader has no function {}: version 1.2 is required", missing);
  }
  return &functions;
}

}  // namespace

std::string status_name(cl_int status) {
  for (const Name& name : kNames) {
    if (name.status == status) return name.text;
  }
  return fmt::format("status {}", status);
}

core::Status failed(std::string_view symbol, cl_int status) {
  const bool memory = is_memory(status);
  core::Error error = core::fail(memory ? ErrorKind::kMemory : ErrorKind::kDevice,
                                 memory ? Code::kOutOfMemory : Code::kDevice,
                                 "OpenCL: {} failed with {}", symbol, status_name(status));
  if (memory) error.hint = "memory_limit=, smaller sizes, or another device";
  if (is_lost(status)) {
    error.hint = "where it fails again, the driver has lost the device: start the process anew";
  }
  return error;
}

core::Result<const Functions*> open_loader() {
  static std::mutex mutex;
  static const Functions* opened = nullptr;
  const std::lock_guard lock(mutex);
  if (opened != nullptr) return opened;
  MITHRIL_ASSIGN(opened, open());  // tried again where it failed: one may have been installed
  return opened;
}

std::vector<std::string> injectable_symbols() {
  std::vector<std::string> out;
#define MITHRIL_OPENCL_NAME(NAME, SYMBOL, ...) out.emplace_back(#SYMBOL);
  MITHRIL_OPENCL_STATUS_FUNCTIONS(MITHRIL_OPENCL_NAME)
  MITHRIL_OPENCL_MAKING_FUNCTIONS(MITHRIL_OPENCL_NAME)
#undef MITHRIL_OPENCL_NAME
  return out;
}

}  // namespace mithril::opencl
