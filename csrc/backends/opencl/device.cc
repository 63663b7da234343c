#include "backends/opencl/device.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <climits>
#include <functional>
#include <map>
#include <tuple>

#include <fmt/ranges.h>

#include "backends/opencl/tiles.h"
#include "core/rounding.h"
#include "emit/c_like_text.h"
#include "emit/c_prune.h"

namespace mithril::opencl {
namespace {

using core::Code;
using core::ErrorKind;

constexpr const char* kNoDevice =
    "apt-get install pocl-opencl-icd runs OpenCL on the CPU; a GPU needs its vendor's driver";
constexpr size_t kLongestLog = 4000;
constexpr size_t kMostThreads = 1 << 16;  // of a group: more than any device has
constexpr int kRowThreads = 128;          // of a group that does a long row
constexpr int kAloneThreads = 64;         // of a group whose items are alone
constexpr int64_t kMostItems = int64_t{1} << 31, kMostGroups = 1 << 20;

core::Error unavailable(std::string message, const char* hint = kNoDevice) {
  core::Error error = core::fail(ErrorKind::kDevice, Code::kDevice, "{}", message);
  error.hint = hint;
  return error;
}

// ---------------------------------------------------------------- what the loader lists

core::Result<std::vector<cl_platform>> platforms(const Functions& f) {
  cl_uint count = 0;
  cl_int status = device::injected("clGetPlatformIDs");
  if (status == kSuccess) status = f.get_platforms(0, nullptr, &count);
  if (status == kPlatformNotFound || (status == kSuccess && count == 0)) {
    return unavailable("OpenCL: the loader knows no platform");
  }
  if (status != kSuccess) return failed("clGetPlatformIDs", status);
  std::vector<cl_platform> out(count);
  MITHRIL_RETURN_IF_ERROR(call(f.get_platforms, "clGetPlatformIDs", count, out.data(), nullptr));
  return out;
}

core::Result<std::vector<cl_device>> devices(const Functions& f, cl_platform platform) {
  cl_uint count = 0;
  cl_int status = device::injected("clGetDeviceIDs");
  if (status == kSuccess) status = f.get_devices(platform, kDeviceTypeAll, 0, nullptr, &count);
  if (status == kDeviceNotFound || (status == kSuccess && count == 0)) {
    return std::vector<cl_device>();
  }
  if (status != kSuccess) return failed("clGetDeviceIDs", status);
  std::vector<cl_device> out(count);
  MITHRIL_RETURN_IF_ERROR(
      call(f.get_devices, "clGetDeviceIDs", platform, kDeviceTypeAll, count, out.data(), nullptr));
  return out;
}

template <class Function, class Id>
core::Result<std::string> text_of(Function function, const char* symbol, Id id, cl_uint what) {
  size_t size = 0;
  MITHRIL_RETURN_IF_ERROR(call(function, symbol, id, what, size_t{0}, nullptr, &size));
  std::string out(size, '\0');
  MITHRIL_RETURN_IF_ERROR(call(function, symbol, id, what, size, out.data(), nullptr));
  return out.substr(0, out.find('\0'));
}

template <class T>
core::Result<T> number_of(const Functions& f, cl_device id, cl_uint what) {
  T out{};
  MITHRIL_RETURN_IF_ERROR(
      call(f.get_device_info, "clGetDeviceInfo", id, what, sizeof out, &out, nullptr));
  return out;
}

core::Result<DeviceInfo> describe(const Functions& f, cl_platform platform, cl_device id) {
  DeviceInfo out;
  MITHRIL_ASSIGN(out.platform_name,
                 text_of(f.get_platform_info, "clGetPlatformInfo", platform, kPlatformName));
  const auto text = [&](cl_uint what) {
    return text_of(f.get_device_info, "clGetDeviceInfo", id, what);
  };
  MITHRIL_ASSIGN(out.name, text(kDeviceName));
  MITHRIL_ASSIGN(out.vendor, text(kDeviceVendor));
  MITHRIL_ASSIGN(out.version, text(kDeviceVersion));
  MITHRIL_ASSIGN(out.driver, text(kDriverVersion));
  MITHRIL_ASSIGN(const auto type, number_of<cl_bits>(f, id, kDeviceType));
  out.is_cpu = (type & kDeviceTypeCpu) != 0;
  out.is_gpu = !out.is_cpu && (type & kDeviceTypeGpu) != 0;  // simulators say that they are all
  MITHRIL_ASSIGN(const auto units, number_of<cl_uint>(f, id, kDeviceComputeUnits));
  out.compute_units = std::max<int64_t>(units, 1);
  MITHRIL_ASSIGN(const auto floats, number_of<cl_uint>(f, id, kDeviceNativeVectorWidthFloat));
  out.vector_bytes = std::clamp<int64_t>(4 * int64_t{floats}, 16, 64);
  MITHRIL_ASSIGN(const auto memory, number_of<uint64_t>(f, id, kDeviceGlobalMemory));
  MITHRIL_ASSIGN(const auto largest, number_of<uint64_t>(f, id, kDeviceMaxAllocation));
  out.memory = static_cast<int64_t>(memory);
  out.largest_allocation = static_cast<int64_t>(largest);
  MITHRIL_ASSIGN(const auto parameters, number_of<size_t>(f, id, kDeviceMaxParameterSize));
  out.parameter_bytes = std::max(static_cast<int64_t>(parameters), device::kLeastParameterBytes);
  MITHRIL_ASSIGN(const auto threads, number_of<size_t>(f, id, kDeviceMaxWorkGroupSize));
  MITHRIL_ASSIGN(const auto shared, number_of<uint64_t>(f, id, kDeviceLocalMemory));
  out.most_threads = static_cast<int>(std::clamp<size_t>(threads, 1, kMostThreads));
  out.local_memory = static_cast<int64_t>(shared);
  MITHRIL_ASSIGN(const auto doubles, number_of<cl_bits>(f, id, kDeviceDoubleFpConfig));
  MITHRIL_ASSIGN(const auto singles, number_of<cl_bits>(f, id, kDeviceSingleFpConfig));
  out.has_doubles = doubles != 0;
  out.rounds_exactly = (singles & kFpCorrectlyRoundedDivideSqrt) != 0;
  return out;
}

struct Found {
  DeviceInfo info;
  cl_device id;
};

core::Result<std::vector<Found>> all_devices(const Functions& f) {
  MITHRIL_ASSIGN(const auto every, platforms(f));
  std::vector<Found> out;
  std::map<std::string, int> counts;  // by kind
  for (size_t p = 0; p < every.size(); ++p) {
    MITHRIL_ASSIGN(const auto ids, devices(f, every[p]));
    for (size_t d = 0; d < ids.size(); ++d) {
      MITHRIL_ASSIGN(DeviceInfo info, describe(f, every[p], ids[d]));
      info.platform = static_cast<int>(p);
      info.device = static_cast<int>(d);
      const std::string kind = info.is_cpu ? "cpu" : info.is_gpu ? "gpu" : "accelerator";
      info.id = fmt::format("{}:{}", kind, counts[kind]++);
      out.push_back({std::move(info), ids[d]});
    }
  }
  if (out.empty()) return unavailable("OpenCL: no platform has a device");
  return out;
}

// ---------------------------------------------------------------- which one is wanted

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// By number, or by a part of the name.
bool is_named(const std::string& wanted, int number, const std::string& name) {
  int parsed = -1;
  const char* const end = wanted.data() + wanted.size();
  const auto [at, error] = std::from_chars(wanted.data(), end, parsed);
  if (error == std::errc() && at == end) return parsed == number;
  return lower(name).find(lower(wanted)) != std::string::npos;
}

bool matches(const std::string& wanted, const DeviceInfo& info, size_t index) {
  if (wanted == "gpu") return info.is_gpu;
  if (wanted == "cpu") return info.is_cpu;
  if (wanted == info.id) return true;
  const size_t colon = wanted.find(':');
  if (colon == std::string::npos) return wanted == std::to_string(index);
  return is_named(wanted.substr(0, colon), info.platform, info.platform_name) &&
         is_named(wanted.substr(colon + 1), info.device, info.name);
}

core::Result<Found> find(const Functions& f, const std::string& wanted) {
  MITHRIL_ASSIGN(auto all, all_devices(f));
  if (wanted.empty()) {
    const auto gpu =
        std::find_if(all.begin(), all.end(), [](const Found& one) { return one.info.is_gpu; });
    return gpu == all.end() ? all.front() : *gpu;
  }
  std::vector<std::string> known;
  for (size_t i = 0; i < all.size(); ++i) {
    if (matches(wanted, all[i].info, i)) return all[i];
    const DeviceInfo& info = all[i].info;
    known.push_back(fmt::format("{} = '{}' = '{}:{}'", i, info.id, info.platform_name, info.name));
  }
  return unavailable(
      fmt::format("OpenCL: no device is '{}'; there is {}", wanted, fmt::join(known, ", ")),
      "OpenCLBackend() takes the first GPU, else the first device; a GPU needs its vendor's "
      "driver");
}

core::Status check_threads(const DeviceInfo& info, int64_t threads) {
  if (!info.is_cpu) {
    return core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                      "OpenCLBackend: threads={} is for CPUs, and {} is none", threads, info.name);
  }
  if (threads > info.compute_units) {
    return core::fail(ErrorKind::kValue, Code::kValueArgument,
                      "OpenCLBackend: threads={}: {} has {} compute units", threads, info.name,
                      info.compute_units);
  }
  return {};
}

/// Replaces the device by a part of it with that many compute units, which is never given back.
core::Status take_part(const Functions& f, int64_t threads, Found& found) {
  const intptr_t how[] = {kPartitionByCounts, static_cast<intptr_t>(threads),
                          kPartitionByCountsListEnd, 0};
  MITHRIL_RETURN_IF_ERROR(call(f.create_sub_devices, "clCreateSubDevices", found.id, how,
                               cl_uint{1}, &found.id, nullptr));
  found.info.compute_units = threads;
  return {};
}

void stand_in_as_gpu(const StandIn& stand_in, DeviceInfo& info) {
  info.is_cpu = false;
  info.is_gpu = true;
  if (stand_in.most_threads > 0) info.most_threads = stand_in.most_threads;
  if (stand_in.local_memory > 0) info.local_memory = stand_in.local_memory;
}

}  // namespace

core::Result<std::vector<DeviceInfo>> list_devices() {
  MITHRIL_ASSIGN(const Functions* f, open_loader());
  MITHRIL_ASSIGN(const auto all, all_devices(*f));
  std::vector<DeviceInfo> out;
  for (const Found& one : all) out.push_back(one.info);
  return out;
}

core::Result<DeviceInfo> find_device(const std::string& wanted) {
  MITHRIL_ASSIGN(const Functions* f, open_loader());
  MITHRIL_ASSIGN(const Found found, find(*f, wanted));
  return found.info;
}

// ---------------------------------------------------------------- the device

core::Result<std::shared_ptr<Device>> Device::open(const std::string& wanted,
                                                   const StandIn& stand_in, int64_t threads) {
  // Never destroyed: drivers may be gone by the time that a process ends.
  static auto& opened =
      *new std::map<std::tuple<int, int, StandIn, int64_t>, std::shared_ptr<Device>>();
  static auto& mutex = *new std::mutex();
  MITHRIL_ASSIGN(const Functions* f, open_loader());
  const std::lock_guard lock(mutex);
  if (!opened.empty()) MITHRIL_RETURN_IF_ERROR(opened.begin()->second->check_process());
  MITHRIL_ASSIGN(Found found, find(*f, wanted));
  if (threads == found.info.compute_units) threads = 0;
  if (threads != 0) MITHRIL_RETURN_IF_ERROR(check_threads(found.info, threads));
  if (stand_in.without_doubles) found.info.has_doubles = false;
  if (stand_in.is_gpu) stand_in_as_gpu(stand_in, found.info);
  const std::tuple key(found.info.platform, found.info.device, stand_in, threads);
  const auto known = opened.find(key);
  if (known != opened.end()) return known->second;
  if (threads != 0) MITHRIL_RETURN_IF_ERROR(take_part(*f, threads, found));
  std::shared_ptr<Device> device(new Device(*f, found.info, found.id, stand_in));
  MITHRIL_RETURN_IF_ERROR(device->start());
  return opened[key] = device;
}

Device::Device(const Functions& functions, DeviceInfo info, cl_device id, const StandIn& stand_in)
    : Driver("OpenCL", info.name, info.memory, info.is_cpu),
      functions_(functions),
      info_(std::move(info)),
      id_(id),
      stand_in_(stand_in),
      tile_(first_tile(info_)),
      parameter_bytes_(info_.parameter_bytes) {}

bool Device::does_tiles_in_groups() const { return first_tile(info_).threads > 0; }

void Device::limit_parameters(int64_t bytes) {
  parameter_bytes_ = std::clamp(bytes, device::kLeastParameterBytes, info_.parameter_bytes);
}

plan::RegisterTile Device::tile() const {
  const std::lock_guard lock(tile_mutex_);
  return tile_;
}

core::Status Device::set_tile(const plan::RegisterTile& tile) {
  MITHRIL_RETURN_IF_ERROR(check_tile(info_, tile));
  const std::lock_guard lock(tile_mutex_);
  tile_ = tile;
  return {};
}

core::Status Device::start() {
  const Functions& f = functions_;
  MITHRIL_ASSIGN(const cl_context context, make(f.create_context, "clCreateContext", nullptr,
                                                cl_uint{1}, &id_, nullptr, nullptr));
  context_ = {context, f.release_context, "clReleaseContext"};
  MITHRIL_ASSIGN(const cl_queue queue,
                 make(f.create_queue, "clCreateCommandQueue", context, id_, cl_bits{0}));
  queue_ = {queue, f.release_queue, "clReleaseCommandQueue"};
  return {};
}

// ---------------------------------------------------------------- memory

namespace {

/// `host`: the caller's memory that it is; null: it is memory of its own, of so many bytes.
struct Buffer final : device::Memory {
  Buffer(const Device& device, Owned<cl_mem> given, const void* place, int64_t size)
      : driver(device), memory(std::move(given)), host(place), bytes(place == nullptr ? size : 0) {
    driver.count_bytes(bytes);
  }
  ~Buffer() override { driver.count_bytes(-bytes); }
  const device::Driver& driver;
  Owned<cl_mem> memory;
  const void* host;
  int64_t bytes;
};

const Buffer& buffer_of(const device::Ref& ref) { return static_cast<const Buffer&>(*ref.memory); }
cl_mem memory_of(const device::Ref& ref) { return buffer_of(ref).memory.get(); }

}  // namespace

core::Result<device::MemoryPtr> Device::buffer(int64_t bytes, cl_bits flags, const void* host) {
  if (bytes > info_.largest_allocation) {
    core::Error error =
        core::fail(ErrorKind::kMemory, Code::kOutOfMemory,
                   "OpenCL: {} bytes in one piece on {}, whose largest_allocation is {} bytes",
                   bytes, info_.name, info_.largest_allocation);
    error.hint = "smaller sizes, or another device";
    return error;
  }
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  auto made = make(functions_.create_buffer, "clCreateBuffer", context_.get(), flags, size,
                   const_cast<void*>(host));
  if (!made.ok()) {
    core::Status status = std::move(made).status();
    status.error().message += fmt::format(" for {} bytes on {}", bytes, info_.name);
    return status;
  }
  Owned<cl_mem> memory(*made, functions_.release_buffer, "clReleaseMemObject");
  const void* const place = (flags & kMemUseHostPtr) != 0 ? host : nullptr;
  return device::MemoryPtr(std::make_unique<const Buffer>(*this, std::move(memory), place, bytes));
}

core::Result<device::MemoryPtr> Device::allocate(int64_t bytes) {
  return buffer(bytes, kMemReadWrite, nullptr);
}

// A CPU reads constants where they are.
core::Result<device::MemoryPtr> Device::constant(std::span<const std::byte> bytes) {
  const cl_bits how = info_.is_cpu ? kMemUseHostPtr : kMemCopyHostPtr;
  return buffer(static_cast<int64_t>(bytes.size()), kMemReadOnly | how, bytes.data());
}

// A CPU has the memory of the caller.
core::Result<device::MemoryPtr> Device::operand(const void* host, int64_t bytes, bool is_written) {
  if (!info_.is_cpu) return allocate(bytes);
  return buffer(bytes, (is_written ? kMemReadWrite : kMemReadOnly) | kMemUseHostPtr, host);
}

core::Status Device::write(device::Ref to, const void* host, int64_t bytes) {
  if (buffer_of(to).host == host) return {};
  return call(functions_.write_buffer, "clEnqueueWriteBuffer", queue_.get(), memory_of(to),
              kNotBlocking, static_cast<size_t>(to.offset), static_cast<size_t>(bytes), host,
              cl_uint{0}, nullptr, nullptr);
}

core::Status Device::read(device::Ref from, void* host, int64_t bytes) {
  const auto offset = static_cast<size_t>(from.offset), size = static_cast<size_t>(bytes);
  if (buffer_of(from).host != host) {
    return call(functions_.read_buffer, "clEnqueueReadBuffer", queue_.get(), memory_of(from),
                kNotBlocking, offset, size, host, cl_uint{0}, nullptr, nullptr);
  }
  // What the device wrote is in the caller's memory once it has been mapped.
  MITHRIL_ASSIGN(void* const at,
                 make(functions_.map, "clEnqueueMapBuffer", queue_.get(), memory_of(from),
                      kNotBlocking, kMapRead, offset, size, cl_uint{0}, nullptr, nullptr));
  return call(functions_.unmap, "clEnqueueUnmapMemObject", queue_.get(), memory_of(from), at,
              cl_uint{0}, nullptr, nullptr);
}

core::Result<uint8_t> Device::read_byte(device::Ref from) {
  uint8_t value = 0;
  MITHRIL_RETURN_IF_ERROR(call(functions_.read_buffer, "clEnqueueReadBuffer", queue_.get(),
                               memory_of(from), kBlocking, static_cast<size_t>(from.offset),
                               size_t{1}, &value, cl_uint{0}, nullptr, nullptr));
  return value;
}

core::Status Device::copy(device::Ref from, device::Ref to, int64_t bytes) {
  return call(functions_.copy_buffer, "clEnqueueCopyBuffer", queue_.get(), memory_of(from),
              memory_of(to), static_cast<size_t>(from.offset), static_cast<size_t>(to.offset),
              static_cast<size_t>(bytes), cl_uint{0}, nullptr, nullptr);
}

core::Result<std::byte*> Device::map(device::Ref at, int64_t bytes, bool is_written) {
  MITHRIL_ASSIGN(void* const host,
                 make(functions_.map, "clEnqueueMapBuffer", queue_.get(), memory_of(at), kBlocking,
                      is_written ? kMapRead | kMapWrite : kMapRead, static_cast<size_t>(at.offset),
                      static_cast<size_t>(bytes), cl_uint{0}, nullptr, nullptr));
  return static_cast<std::byte*>(host);
}

core::Status Device::unmap(device::Ref at, int64_t /*bytes*/, bool /*is_written*/,
                           std::byte* host) {
  return call(functions_.unmap, "clEnqueueUnmapMemObject", queue_.get(), memory_of(at),
              static_cast<void*>(host), cl_uint{0}, nullptr, nullptr);
}

// To note times makes a queue slower, so what is timed has one of its own.
core::Status Device::begin_timing() {
  if (timed_queue_.get() == nullptr) {
    MITHRIL_ASSIGN(const cl_queue queue, make(functions_.create_queue, "clCreateCommandQueue",
                                              context_.get(), id_, kQueueProfiling));
    timed_queue_ = {queue, functions_.release_queue, "clReleaseCommandQueue"};
  }
  MITHRIL_RETURN_IF_ERROR(finish());
  is_timing_ = true;
  return {};
}

core::Result<int64_t> Device::end_timing() {
  is_timing_ = false;
  const std::vector<Owned<cl_event>> events = std::exchange(events_, {});
  MITHRIL_RETURN_IF_ERROR(call(functions_.finish, "clFinish", timed_queue_.get()));
  uint64_t nanoseconds = 0;
  for (const Owned<cl_event>& event : events) {
    uint64_t start = 0, end = 0;
    for (const auto& [what, to] :
         {std::pair(kProfilingStart, &start), std::pair(kProfilingEnd, &end)}) {
      MITHRIL_RETURN_IF_ERROR(call(functions_.get_profiling_info, "clGetEventProfilingInfo",
                                   event.get(), what, sizeof *to, static_cast<void*>(to), nullptr));
    }
    nanoseconds += end - std::min(start, end);
  }
  return static_cast<int64_t>(nanoseconds);
}

core::Status Device::finish() { return call(functions_.finish, "clFinish", queue_.get()); }

// ---------------------------------------------------------------- programs

namespace {

struct ClKernel final : device::Kernel {
  ClKernel(Owned<cl_kernel> given, int most_threads)
      : Kernel(most_threads), kernel(std::move(given)) {}
  Owned<cl_kernel> kernel;
};

class ClProgram final : public device::Program {
 public:
  /// `most_threads`: of a kernel, whom it asks for that of its groups.
  using MostThreads = std::function<core::Result<int>(cl_kernel)>;
  ClProgram(const Functions& functions, Owned<cl_program> program, MostThreads most_threads)
      : functions_(functions),
        program_(std::move(program)),
        most_threads_(std::move(most_threads)) {}
  core::Result<std::unique_ptr<device::Kernel>> kernel(const std::string& name) const override {
    MITHRIL_ASSIGN(const cl_kernel made,
                   make(functions_.create_kernel, "clCreateKernel", program_.get(), name.c_str()));
    Owned<cl_kernel> kernel(made, functions_.release_kernel, "clReleaseKernel");
    MITHRIL_ASSIGN(const int most, most_threads_(made));
    return std::unique_ptr<device::Kernel>(std::make_unique<ClKernel>(std::move(kernel), most));
  }

 private:
  const Functions& functions_;
  Owned<cl_program> program_;
  MostThreads most_threads_;
};

std::string entry(int threads) {
  if (threads == 0) return "__kernel void ";
  return fmt::format("__kernel __attribute__((reqd_work_group_size({}, 1, 1))) void ", threads);
}

constexpr device::Dialect dialect(bool may_exceed) {
  return {.head = &emit::kHeadOpenCl,
          .global = "__global ",
          .byte = "uchar",
          .restricts = "restrict",
          .function = "static void ",
          .entry = entry,
          .item = "(m_i64)get_global_id(0)",
          .block = "(m_i64)get_group_id(0)",
          .may_exceed = may_exceed,
          .shared = "__local ",
          .passes_shared = true};
}

}  // namespace

const device::Dialect kDialect = dialect(false), kDialectOfGroups = dialect(true);

// On a GPU an item takes one element or one short row; those of neighbours lie side by side. A
// group takes a long row.
device::PrintOptions Device::print_options() const {
  device::PrintOptions out = {.dialect = info_.is_gpu ? kDialectOfGroups : kDialect,
                              .is_cpu = info_.is_cpu,
                              .units = info_.compute_units,
                              .has_doubles = info_.has_doubles,
                              .is_vectored = info_.is_cpu,
                              .tile = tile(),
                              .parameter_bytes = parameter_bytes_};
  if (!info_.is_gpu) return out;
  out.most_items = kMostItems;
  out.most_groups = kMostGroups;
  out.takes_columns = false;
  out.chunk = 16;
  out.shared_bytes = info_.local_memory;
  out.threads_of_rows = kRowThreads;
  out.limit_threads(info_.most_threads);
  return out;
}

core::Result<int> Device::most_threads(cl_kernel kernel) const {
  if (!info_.is_gpu) return INT_MAX;
  size_t threads = 0;
  MITHRIL_RETURN_IF_ERROR(call(functions_.get_kernel_info, "clGetKernelWorkGroupInfo", kernel, id_,
                               kKernelWorkGroupSize, sizeof threads, &threads, nullptr));
  if (stand_in_.most_threads_of_a_kernel > 0) return stand_in_.most_threads_of_a_kernel;
  return static_cast<int>(std::clamp<size_t>(threads, 1, kMostThreads));
}

std::string Device::options() const {
  return info_.rounds_exactly ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
                              : "-cl-std=CL1.2";
}

core::Result<std::shared_ptr<const device::Program>> Device::build(const std::string& text) {
  MITHRIL_CHECK(info_.has_doubles || !emit::has_word(text, "double"),
                "a kernel with doubles for {}, which has none", info_.name);
  const std::lock_guard lock(builds_);
  if (auto known = loaded(text)) return known;
  MITHRIL_ASSIGN(Owned<cl_program> program, compiled(text));
  return remember(text, std::make_shared<const ClProgram>(
                            functions_, std::move(program),
                            [this](cl_kernel kernel) { return most_threads(kernel); }));
}

core::Result<Owned<cl_program>> Device::compiled(const std::string& text) const {
  const char* source = text.c_str();
  MITHRIL_ASSIGN(const cl_program made, make(functions_.create_program, "clCreateProgramWithSource",
                                             context_.get(), cl_uint{1}, &source, nullptr));
  Owned<cl_program> program(made, functions_.release_program, "clReleaseProgram");
  core::Status status = call(functions_.build_program, "clBuildProgram", made, cl_uint{1}, &id_,
                             options().c_str(), nullptr, nullptr);
  if (status.ok()) return program;
  size_t size = 0;
  std::string log;
  const auto ask = [&](size_t room, char* to, size_t* needed) {
    return call(functions_.get_build_info, "clGetProgramBuildInfo", made, id_, kProgramBuildLog,
                room, static_cast<void*>(to), needed)
        .ok();
  };
  if (ask(0, nullptr, &size)) {
    log.resize(size);
    if (!ask(size, log.data(), nullptr)) log.clear();
    log.resize(std::min({log.find('\0'), log.size(), kLongestLog}));
  }
  status.error().message += fmt::format(" on {}", info_.name);
  if (!log.empty()) status.error().message += ":\n" + log;
  return status;
}

core::Status Device::launch(const device::Kernel& kernel, std::span<const device::Ref> operands,
                            const device::Launch& launch) {
  const cl_kernel handle = static_cast<const ClKernel&>(kernel).kernel.get();
  cl_uint argument = 0;
  for (const device::Ref& ref : operands) {
    const cl_mem memory = ref.memory == nullptr ? nullptr : memory_of(ref);
    MITHRIL_RETURN_IF_ERROR(call(functions_.set_argument, "clSetKernelArg", handle, argument++,
                                 sizeof(cl_mem), &memory));
    MITHRIL_RETURN_IF_ERROR(call(functions_.set_argument, "clSetKernelArg", handle, argument++,
                                 sizeof(int64_t), &ref.offset));
  }
  auto items = static_cast<size_t>(launch.items);
  size_t group = 1;                              // a CPU compiles a kernel for each size of a group
  if (launch.threads > kernel.most_threads()) {  // as drivers say, if they do
    return failed("clEnqueueNDRangeKernel", kInvalidWorkGroupSize);
  }
  if (launch.threads > 0) {
    group = static_cast<size_t>(launch.threads);
    items *= group;
  } else if (info_.is_gpu) {
    group = static_cast<size_t>(std::min(kAloneThreads, kernel.most_threads()));
    items = static_cast<size_t>(core::round_up(launch.items, static_cast<int64_t>(group)));
  }
  const bool is_sized = info_.is_cpu || info_.is_gpu;
  const auto enqueue = [&](cl_queue queue, cl_event* event) {
    return call(functions_.launch, "clEnqueueNDRangeKernel", queue, handle, cl_uint{1}, nullptr,
                &items, is_sized ? &group : nullptr, cl_uint{0}, nullptr, event);
  };
  if (!is_timing_) return enqueue(queue_.get(), nullptr);
  cl_event event = nullptr;
  MITHRIL_RETURN_IF_ERROR(enqueue(timed_queue_.get(), &event));
  events_.emplace_back(event, functions_.release_event, "clReleaseEvent");
  return {};
}

}  // namespace mithril::opencl
