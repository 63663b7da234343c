#include "emit/opencl.h"

#include <cstdint>
#include <dlfcn.h>

namespace mithril::emit::testing {
namespace {

// Constants of CL/cl.h, which need not be installed.
constexpr uint64_t kDeviceTypeAll = 0xFFFFFFFF;
constexpr uint64_t kMemReadWrite = 1;
constexpr uint32_t kBlocking = 1;
constexpr uint32_t kProgramBuildLog = 0x1183;
constexpr int32_t kSuccess = 0;
constexpr const char* kOptions = "-cl-fp32-correctly-rounded-divide-sqrt -cl-std=CL1.2";

}  // namespace

struct OpenCl::Api {
  int32_t (*get_platforms)(uint32_t, void**, uint32_t*);
  int32_t (*get_devices)(void*, uint64_t, uint32_t, void**, uint32_t*);
  void* (*create_context)(const void*, uint32_t, void* const*, const void*, void*, int32_t*);
  void* (*create_queue)(void*, void*, uint64_t, int32_t*);
  void* (*create_program)(void*, uint32_t, const char**, const size_t*, int32_t*);
  int32_t (*build_program)(void*, uint32_t, void* const*, const char*, const void*, void*);
  int32_t (*build_info)(void*, void*, uint32_t, size_t, void*, size_t*);
  void* (*create_kernel)(void*, const char*, int32_t*);
  int32_t (*set_argument)(void*, uint32_t, size_t, const void*);
  void* (*create_buffer)(void*, uint64_t, size_t, void*, int32_t*);
  int32_t (*write)(void*, void*, uint32_t, size_t, size_t, const void*, uint32_t, const void*,
                   void*);
  int32_t (*read)(void*, void*, uint32_t, size_t, size_t, void*, uint32_t, const void*, void*);
  int32_t (*launch)(void*, void*, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t,
                    const void*, void*);
  int32_t (*release_buffer)(void*);
  int32_t (*release_kernel)(void*);
  int32_t (*release_program)(void*);
  int32_t (*release_queue)(void*);
  int32_t (*release_context)(void*);
  void *device, *context, *queue;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MITHRIL_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MITHRIL_SANITIZED 1
#endif
#endif

std::unique_ptr<OpenCl> OpenCl::open(std::string& why) {
#ifdef MITHRIL_SANITIZED
  why = "devices bring a compiler of their own, which sanitizers report";
  return nullptr;
#endif
  void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why = dlerror();
    return nullptr;
  }
  std::unique_ptr<OpenCl> out(new OpenCl());
  out->api_ = std::make_unique<Api>();
  Api& api = *out->api_;
  bool found = true;
  const auto find = [&]<class F>(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library, name));
    found = found && function != nullptr;
  };
  find(api.get_platforms, "clGetPlatformIDs");
  find(api.get_devices, "clGetDeviceIDs");
  find(api.create_context, "clCreateContext");
  find(api.create_queue, "clCreateCommandQueue");
  find(api.create_program, "clCreateProgramWithSource");
  find(api.build_program, "clBuildProgram");
  find(api.build_info, "clGetProgramBuildInfo");
  find(api.create_kernel, "clCreateKernel");
  find(api.set_argument, "clSetKernelArg");
  find(api.create_buffer, "clCreateBuffer");
  find(api.write, "clEnqueueWriteBuffer");
  find(api.read, "clEnqueueReadBuffer");
  find(api.launch, "clEnqueueNDRangeKernel");
  find(api.release_buffer, "clReleaseMemObject");
  find(api.release_kernel, "clReleaseKernel");
  find(api.release_program, "clReleaseProgram");
  find(api.release_queue, "clReleaseCommandQueue");
  find(api.release_context, "clReleaseContext");
  void* platform = nullptr;
  uint32_t count = 0;
  int32_t status = kSuccess;
  why = "the loader lacks functions, or there is no device";
  if (!found || api.get_platforms(1, &platform, &count) != kSuccess || count == 0) return nullptr;
  if (api.get_devices(platform, kDeviceTypeAll, 1, &api.device, &count) != kSuccess) return nullptr;
  api.context = api.create_context(nullptr, 1, &api.device, nullptr, nullptr, &status);
  if (status != kSuccess) return nullptr;
  api.queue = api.create_queue(api.context, api.device, 0, &status);
  return status == kSuccess ? std::move(out) : nullptr;
}

OpenCl::~OpenCl() {
  if (api_ == nullptr || api_->queue == nullptr) return;
  api_->release_queue(api_->queue);
  api_->release_context(api_->context);
}

std::unique_ptr<OpenClProgram> OpenCl::build(const std::string& source, std::string& log) const {
  const char* text = source.c_str();
  int32_t status = kSuccess;
  void* program = api_->create_program(api_->context, 1, &text, nullptr, &status);
  if (api_->build_program(program, 1, &api_->device, kOptions, nullptr, nullptr) == kSuccess) {
    return std::unique_ptr<OpenClProgram>(new OpenClProgram(*this, program));
  }
  size_t size = 0;
  api_->build_info(program, api_->device, kProgramBuildLog, 0, nullptr, &size);
  log.resize(size);
  api_->build_info(program, api_->device, kProgramBuildLog, size, log.data(), nullptr);
  api_->release_program(program);
  return nullptr;
}

OpenClProgram::~OpenClProgram() { device_.api_->release_program(program_); }

bool OpenClProgram::run(const std::string& name, int64_t begin, int64_t end,
                        const std::vector<std::vector<std::byte>*>& arrays) const {
  const OpenCl::Api& api = *device_.api_;
  int32_t status = kSuccess;
  void* kernel = api.create_kernel(program_, name.c_str(), &status);
  if (status != kSuccess) return false;
  bool good = api.set_argument(kernel, 0, sizeof begin, &begin) == kSuccess &&
              api.set_argument(kernel, 1, sizeof end, &end) == kSuccess;
  std::vector<void*> buffers;
  for (std::vector<std::byte>* array : arrays) {
    // A buffer cannot be empty.
    void* buffer =
        api.create_buffer(api.context, kMemReadWrite, array->size() + 1, nullptr, &status);
    good = good && status == kSuccess;
    if (good && !array->empty()) {
      good = api.write(api.queue, buffer, kBlocking, 0, array->size(), array->data(), 0, nullptr,
                       nullptr) == kSuccess;
    }
    const auto place = static_cast<uint32_t>(2 + buffers.size());
    good = good && api.set_argument(kernel, place, sizeof(void*), &buffer) == kSuccess;
    buffers.push_back(buffer);
  }
  const auto items = static_cast<size_t>(end - begin);
  if (good && items > 0) {
    good =
        api.launch(api.queue, kernel, 1, nullptr, &items, nullptr, 0, nullptr, nullptr) == kSuccess;
  }
  for (size_t k = 0; k < buffers.size(); ++k) {
    if (good && !arrays[k]->empty()) {
      good = api.read(api.queue, buffers[k], kBlocking, 0, arrays[k]->size(), arrays[k]->data(), 0,
                      nullptr, nullptr) == kSuccess;
    }
    api.release_buffer(buffers[k]);
  }
  api.release_kernel(kernel);
  return good;
}

}  // namespace mithril::emit::testing
