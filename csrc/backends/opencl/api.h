// OpenCL as this backend uses it: the loader's functions, opened at run time, and what their
// statuses mean. Nothing of OpenCL is needed to build.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backends/device/injection.h"
#include "core/status.h"

namespace mithril::opencl {

// Types of CL/cl.h. Handles are distinct so that one is not taken for another.
using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_bool = cl_uint;
using cl_bits = uint64_t;
using cl_platform = struct PlatformHandle*;
using cl_device = struct DeviceHandle*;
using cl_context = struct ContextHandle*;
using cl_queue = struct QueueHandle*;
using cl_program = struct ProgramHandle*;
using cl_kernel = struct KernelHandle*;
using cl_mem = struct MemHandle*;
using cl_event = struct EventHandle*;

// Constants of CL/cl.h that are used here.
inline constexpr cl_int kSuccess = 0;
inline constexpr cl_int kDeviceNotFound = -1, kInvalidWorkGroupSize = -54;
inline constexpr cl_int kPlatformNotFound = -1001;  // of the loader
inline constexpr cl_bool kBlocking = 1, kNotBlocking = 0;
inline constexpr cl_bits kDeviceTypeCpu = 2, kDeviceTypeGpu = 4, kDeviceTypeAll = 0xFFFFFFFF;
inline constexpr cl_bits kMemReadWrite = 1, kMemReadOnly = 4, kMemUseHostPtr = 8;
inline constexpr cl_bits kMemCopyHostPtr = 32;
inline constexpr cl_bits kMapRead = 1, kMapWrite = 2;
inline constexpr cl_bits kFpCorrectlyRoundedDivideSqrt = 128;
inline constexpr cl_uint kPlatformName = 0x0902;
inline constexpr cl_uint kDeviceType = 0x1000, kDeviceComputeUnits = 0x1002;
inline constexpr cl_uint kDeviceMaxWorkGroupSize = 0x1004, kDeviceLocalMemory = 0x1023;
inline constexpr cl_uint kDeviceMaxAllocation = 0x1010, kDeviceMaxParameterSize = 0x1017;
inline constexpr cl_uint kKernelWorkGroupSize = 0x11B0;
inline constexpr cl_uint kDeviceSingleFpConfig = 0x101B, kDeviceGlobalMemory = 0x101F;
inline constexpr cl_uint kDeviceName = 0x102B, kDeviceVendor = 0x102C, kDriverVersion = 0x102D;
inline constexpr cl_uint kDeviceVersion = 0x102F, kDeviceDoubleFpConfig = 0x1032;
inline constexpr cl_uint kDeviceNativeVectorWidthFloat = 0x103A;
inline constexpr cl_uint kProgramBuildLog = 0x1183;
inline constexpr cl_bits kQueueProfiling = 2;
inline constexpr cl_uint kProfilingStart = 0x1282, kProfilingEnd = 0x1283;
inline constexpr intptr_t kPartitionByCounts = 0x1087, kPartitionByCountsListEnd = 0;

// Every function: name here, name in the loader, result, parameters.
#define MITHRIL_OPENCL_STATUS_FUNCTIONS(X)                                                         \
  X(get_platforms, clGetPlatformIDs, (cl_uint, cl_platform*, cl_uint*))                            \
  X(get_platform_info, clGetPlatformInfo, (cl_platform, cl_uint, size_t, void*, size_t*))          \
  X(get_devices, clGetDeviceIDs, (cl_platform, cl_bits, cl_uint, cl_device*, cl_uint*))            \
  X(get_device_info, clGetDeviceInfo, (cl_device, cl_uint, size_t, void*, size_t*))                \
  X(create_sub_devices, clCreateSubDevices,                                                        \
    (cl_device, const intptr_t*, cl_uint, cl_device*, cl_uint*))                                   \
  X(build_program, clBuildProgram,                                                                 \
    (cl_program, cl_uint, const cl_device*, const char*, void*, void*))                            \
  X(get_build_info, clGetProgramBuildInfo,                                                         \
    (cl_program, cl_device, cl_uint, size_t, void*, size_t*))                                      \
  X(get_kernel_info, clGetKernelWorkGroupInfo,                                                     \
    (cl_kernel, cl_device, cl_uint, size_t, void*, size_t*))                                       \
  X(set_argument, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void*))                       \
  X(launch, clEnqueueNDRangeKernel,                                                                \
    (cl_queue, cl_kernel, cl_uint, const size_t*, const size_t*, const size_t*, cl_uint,           \
     const cl_event*, cl_event*))                                                                  \
  X(read_buffer, clEnqueueReadBuffer,                                                              \
    (cl_queue, cl_mem, cl_bool, size_t, size_t, void*, cl_uint, const cl_event*, cl_event*))       \
  X(write_buffer, clEnqueueWriteBuffer,                                                            \
    (cl_queue, cl_mem, cl_bool, size_t, size_t, const void*, cl_uint, const cl_event*, cl_event*)) \
  X(copy_buffer, clEnqueueCopyBuffer,                                                              \
    (cl_queue, cl_mem, cl_mem, size_t, size_t, size_t, cl_uint, const cl_event*, cl_event*))       \
  X(unmap, clEnqueueUnmapMemObject,                                                                \
    (cl_queue, cl_mem, void*, cl_uint, const cl_event*, cl_event*))                                \
  X(finish, clFinish, (cl_queue))                                                                  \
  X(get_profiling_info, clGetEventProfilingInfo, (cl_event, cl_uint, size_t, void*, size_t*))      \
  X(release_event, clReleaseEvent, (cl_event))                                                     \
  X(release_context, clReleaseContext, (cl_context))                                               \
  X(release_queue, clReleaseCommandQueue, (cl_queue))                                              \
  X(release_program, clReleaseProgram, (cl_program))                                               \
  X(release_kernel, clReleaseKernel, (cl_kernel))                                                  \
  X(release_buffer, clReleaseMemObject, (cl_mem))

// Those that make something; the status comes out by the last parameter, which is not listed.
#define MITHRIL_OPENCL_MAKING_FUNCTIONS(X)                                                    \
  X(create_context, clCreateContext, cl_context,                                              \
    (const intptr_t*, cl_uint, const cl_device*, void*, void*, cl_int*))                      \
  X(create_queue, clCreateCommandQueue, cl_queue, (cl_context, cl_device, cl_bits, cl_int*))  \
  X(create_program, clCreateProgramWithSource, cl_program,                                    \
    (cl_context, cl_uint, const char**, const size_t*, cl_int*))                              \
  X(create_kernel, clCreateKernel, cl_kernel, (cl_program, const char*, cl_int*))             \
  X(create_buffer, clCreateBuffer, cl_mem, (cl_context, cl_bits, size_t, void*, cl_int*))     \
  X(map, clEnqueueMapBuffer, void*,                                                           \
    (cl_queue, cl_mem, cl_bool, cl_bits, size_t, size_t, cl_uint, const cl_event*, cl_event*, \
     cl_int*))

/// The loader's functions.
struct Functions {
#define MITHRIL_OPENCL_MEMBER(NAME, SYMBOL, PARAMETERS) cl_int(*NAME) PARAMETERS = nullptr;
  MITHRIL_OPENCL_STATUS_FUNCTIONS(MITHRIL_OPENCL_MEMBER)
#undef MITHRIL_OPENCL_MEMBER
#define MITHRIL_OPENCL_MEMBER(NAME, SYMBOL, RESULT, PARAMETERS) RESULT(*NAME) PARAMETERS = nullptr;
  MITHRIL_OPENCL_MAKING_FUNCTIONS(MITHRIL_OPENCL_MEMBER)
#undef MITHRIL_OPENCL_MEMBER
};

/// Names a status: "CL_OUT_OF_RESOURCES"; "status -9999" where it has no name.
std::string status_name(cl_int status);

/// Turns a failure of a function of the loader into a typed error: MemoryError where memory or
/// resources are exhausted, DeviceNotAvailable otherwise, with what to do where that is how a
/// driver tells that it has lost its device.
core::Status failed(std::string_view symbol, cl_int status);

/// Opens the loader once. Fails, with the line to type, where there is none.
core::Result<const Functions*> open_loader();

/// The functions that can be made to fail.
std::vector<std::string> injectable_symbols();

/// Calls a function that gives a status: `call(f.finish, "clFinish", queue)`.
template <class... Parameters, class... Arguments>
core::Status call(cl_int (*function)(Parameters...), const char* symbol, Arguments... arguments) {
  cl_int status = device::injected(symbol);
  if (status == kSuccess) status = function(arguments...);
  return status == kSuccess ? core::Status() : failed(symbol, status);
}

/// Calls a function that makes something, with all arguments but the status.
template <class T, class... Parameters, class... Arguments>
core::Result<T> make(T (*function)(Parameters...), const char* symbol, Arguments... arguments) {
  cl_int status = device::injected(symbol);
  T made = nullptr;
  if (status == kSuccess) made = function(arguments..., &status);
  if (status == kSuccess && made == nullptr) status = -9999;
  if (status != kSuccess) return failed(symbol, status);
  return made;
}

}  // namespace mithril::opencl
