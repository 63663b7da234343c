#include "backends/cuda/device.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "backends/device/block_products.h"
#include "core/env.h"
#include "emit/c_like_text.h"

namespace mithril::cuda {
namespace {

using core::Code;
using core::ErrorKind;

constexpr int64_t kKeptBytes = 256 << 20;  // that a pool keeps when nothing uses them
constexpr int64_t kSpareShare = 4;         // a quarter of the memory may be kept for later runs
constexpr int64_t kLentShare = 16;         // a sixteenth may wait for other libraries
constexpr int64_t kGranule = 512;          // sizes of allocations are multiples
// A sixteenth of the memory for what a convolution works in: kernels of tensor cores take operands
// with channels side by side, and copies of images that lie otherwise are made there.
constexpr int64_t kWorkspaceShare = 16;
constexpr int kThreads = 128;    // of a block, where items are alone
constexpr int kFewThreads = 32;  // where there are few items
// Of a kernel. From sm_70 on CUDA 12.1 takes 32764, which nothing here needs.
constexpr int64_t kParameterBytes = 4096;
constexpr int64_t kSharedBytes = 48 << 10;  // of a block, on every device, that texts may declare

core::Result<std::vector<DeviceInfo>> list(const Functions& f) {
  int count = 0, driver = 0;
  core::Status status = call(f.device_count, "cuDeviceGetCount", &count);
  if (!status.ok()) return status;
  if (count == 0) {
    core::Error error =
        core::fail(ErrorKind::kDevice, Code::kDevice, "CUDA: the driver sees no GPU");
    error.hint = "nvidia-smi lists the GPUs; CUDA_VISIBLE_DEVICES may hide them";
    return error;
  }
  MITHRIL_RETURN_IF_ERROR(call(f.driver_version, "cuDriverGetVersion", &driver));
  std::vector<DeviceInfo> out;
  for (int i = 0; i < count; ++i) {
    DeviceInfo info;
    info.index = i;
    info.driver = driver;
    cu_device device = 0;
    MITHRIL_RETURN_IF_ERROR(call(f.get_device, "cuDeviceGet", &device, i));
    std::array<char, 256> name{};
    MITHRIL_RETURN_IF_ERROR(call(f.device_name, "cuDeviceGetName", name.data(),
                                 static_cast<int>(name.size() - 1), device));
    info.name = name.data();
    size_t memory = 0;
    MITHRIL_RETURN_IF_ERROR(call(f.device_memory, "cuDeviceTotalMem_v2", &memory, device));
    info.memory = static_cast<int64_t>(memory);
    int major = 0, minor = 0, pools = 0;
    const auto attribute = [&](int& value, int which) {
      return call(f.device_attribute, "cuDeviceGetAttribute", &value, which, device);
    };
    MITHRIL_RETURN_IF_ERROR(attribute(major, kMajor));
    MITHRIL_RETURN_IF_ERROR(attribute(minor, kMinor));
    MITHRIL_RETURN_IF_ERROR(attribute(info.multiprocessors, kMultiprocessors));
    // Drivers that know no pools do not know the attribute.
    if (f.has_pools()) MITHRIL_RETURN_IF_ERROR(attribute(pools, kHasPools));
    info.architecture = 10 * major + minor;
    info.has_pools = pools != 0;
    out.push_back(std::move(info));
  }
  return out;
}

}  // namespace

core::Result<std::vector<DeviceInfo>> list_devices() {
  MITHRIL_ASSIGN(const Functions* f, open_driver());
  return list(*f);
}

// ---------------------------------------------------------------- the device

core::Result<std::shared_ptr<Device>> Device::open(int index, const Libraries& libraries) {
  // Never destroyed: the driver may be gone by the time that a process ends.
  static auto& opened = *new std::map<int, std::shared_ptr<Device>>();
  static auto& mutex = *new std::mutex();
  MITHRIL_ASSIGN(const Functions* f, open_driver());
  const std::lock_guard lock(mutex);
  if (!opened.empty()) MITHRIL_RETURN_IF_ERROR(opened.begin()->second->check_process());
  MITHRIL_ASSIGN(const std::vector<DeviceInfo> all, list(*f));
  if (index < 0 || index >= static_cast<int>(all.size())) {
    return core::fail(ErrorKind::kDevice, Code::kDevice,
                      "CUDA: no device is 'cuda:{}'; there are cuda:0 to cuda:{}", index,
                      all.size() - 1);
  }
  const auto known = opened.find(index);
  if (known != opened.end()) return known->second;
  const DeviceInfo& info = all[static_cast<size_t>(index)];
  MITHRIL_ASSIGN(Compiler compiler, Compiler::open(libraries.nvrtc, info.driver));
  std::shared_ptr<Device> device(new Device(*f, std::move(compiler), info, libraries));
  MITHRIL_RETURN_IF_ERROR(device->start());
  return opened[index] = device;
}

Device::Device(const Functions& functions, Compiler compiler, DeviceInfo info, Libraries libraries)
    : Driver("CUDA", info.name, info.memory),
      functions_(functions),
      compiler_(std::move(compiler)),
      info_(std::move(info)),
      spare_(info_.memory / kSpareShare),
      libraries_(std::move(libraries)) {}

core::Status Device::start() {
  MITHRIL_RETURN_IF_ERROR(
      call(functions_.retain_context, "cuDevicePrimaryCtxRetain", &context_, info_.index));
  device::count_object(1);
  MITHRIL_RETURN_IF_ERROR(
      within(functions_.create_stream, "cuStreamCreate", &stream_, kStreamNonBlocking));
  device::count_object(1);
  if (info_.has_pools) MITHRIL_RETURN_IF_ERROR(start_pool());
  start_staging();
  return {};
}

// Copies are right without it.
void Device::start_staging() {
  constexpr unsigned kNoFlags = 0;
  void* pinned = nullptr;
  const core::Status status = within(functions_.allocate_pinned, "cuMemHostAlloc", &pinned,
                                     static_cast<size_t>(Staging::kBytes), kNoFlags);
  if (!status.ok()) return;
  device::count_object(1);
  staging_.open(static_cast<std::byte*>(pinned));
}

// A pool of its own: the device's default one is shared with everybody.
core::Status Device::start_pool() {
  PoolProperties properties;
  properties.location = info_.index;
  MITHRIL_RETURN_IF_ERROR(within(functions_.create_pool, "cuMemPoolCreate", &pool_, &properties));
  device::count_object(1);
  uint64_t kept = kKeptBytes;
  return within(functions_.set_pool, "cuMemPoolSetAttribute", pool_, kPoolReleaseThreshold,
                static_cast<void*>(&kept));
}

// It did not start: devices that did live as long as the process, and so does their staging.
Device::~Device() {
  if (pool_ != nullptr) release(functions_.destroy_pool, "cuMemPoolDestroy", pool_);
  for (const cu_event event : {begun_, ended_}) {
    if (event != nullptr) release(functions_.destroy_event, "cuEventDestroy_v2", event);
  }
  if (recording_ != nullptr) release(functions_.destroy_stream, "cuStreamDestroy_v2", recording_);
  if (stream_ != nullptr) release(functions_.destroy_stream, "cuStreamDestroy_v2", stream_);
  if (context_ == nullptr) return;
  device::give_back(functions_.release_context, "cuDevicePrimaryCtxRelease_v2", info_.index);
  device::count_object(-1);
}

// ---------------------------------------------------------------- memory

class Device::Buffer final : public device::Memory {
 public:
  Buffer(const Device& device, cu_pointer pointer, int64_t bytes)
      : device_(device), pointer_(pointer), bytes_(bytes) {
    device::count_object(1);
  }
  /// Shares memory of another library's.
  Buffer(const Device& device, cu_pointer pointer, std::shared_ptr<const void> owner)
      : device_(device), pointer_(pointer), owner_(std::move(owner)) {
    device::count_object(1);
  }
  ~Buffer() override {
    if (owner_ == nullptr) {
      device_.give_back(pointer_, bytes_, is_lent_);
    } else {
      static_cast<void>(device_.wait());  // the queue may still read it
    }
    device::count_object(-1);
  }
  void lend() const override { is_lent_ = true; }
  static cu_pointer at(const device::Ref& ref) {
    if (ref.memory == nullptr) return 0;
    return static_cast<const Buffer*>(ref.memory)->pointer_ + static_cast<cu_pointer>(ref.offset);
  }

 private:
  const Device& device_;
  cu_pointer pointer_;
  int64_t bytes_ = 0;
  std::shared_ptr<const void> owner_;
  mutable std::atomic<bool> is_lent_ = false;
};

std::optional<device::Driver::Place> Device::place(const device::Ref& ref) const {
  constexpr int32_t kOfDlpack = 2;
  return Place{kOfDlpack, info_.index, reinterpret_cast<void*>(Buffer::at(ref)),
               reinterpret_cast<uintptr_t>(stream_)};
}

core::Status Device::let_wait(uintptr_t queue) {
  cu_event event = nullptr;
  return in_context([&]() -> core::Status {
    MITHRIL_RETURN_IF_ERROR(
        call(functions_.create_event, "cuEventCreate", &event, kEventWithoutTiming));
    core::Status status = call(functions_.record_event, "cuEventRecord", event, stream_);
    if (status.ok()) {
      constexpr unsigned kNoFlags = 0;
      status = call(functions_.let_wait, "cuStreamWaitEvent", reinterpret_cast<cu_stream>(queue),
                    event, kNoFlags);
    }
    // The driver keeps it until then.
    device::give_back(functions_.destroy_event, "cuEventDestroy_v2", event);
    return status;
  });
}

core::Result<device::MemoryPtr> Device::borrow(void* pointer, std::shared_ptr<const void> owner) {
  return device::MemoryPtr(std::make_unique<const Buffer>(
      *this, reinterpret_cast<cu_pointer>(pointer), std::move(owner)));
}

// All that the queue does with memory comes in order: it can be taken again at once.
core::Result<cu_pointer> Device::take(int64_t bytes) {
  if (spare_.lent_bytes() > info_.memory / kLentShare) try_to_take_back_lent();
  if (const auto spare = spare_.take(bytes)) {
    if (!core::env().poison) return *spare;
    core::Status filled =
        within(functions_.fill, "cuMemsetD8Async", *spare, static_cast<unsigned char>(0xFF),
               static_cast<size_t>(bytes), stream_);
    if (filled.ok()) return *spare;
    free(*spare);
    return filled;
  }
  cu_pointer pointer = 0;
  const auto size = static_cast<size_t>(bytes);
  MITHRIL_RETURN_IF_ERROR(pool_ != nullptr
                              ? within(functions_.allocate_async, "cuMemAllocFromPoolAsync",
                                       &pointer, size, pool_, stream_)
                              : within(functions_.allocate, "cuMemAlloc_v2", &pointer, size));
  return pointer;
}

// Another library's stream may still use what was lent, and none says which.
void Device::give_back(cu_pointer pointer, int64_t bytes, bool is_lent) const {
  count_bytes(-bytes);
  if (is_lent) {
    spare_.set_aside(pointer, bytes);
  } else if (!spare_.keep(pointer, bytes)) {
    free(pointer);
  }
}

// Once all streams of the context are through: under the mutex, as a wait for them ends a
// recording.
core::Status Device::take_back_lent() {
  const auto lent = spare_.take_lent();  // what comes meanwhile is for the next time
  if (lent.empty()) return {};
  core::Status waited = within(functions_.wait_for_context, "cuCtxSynchronize");
  for (const auto& [pointer, bytes] : lent) {
    if (!waited.ok()) {
      spare_.set_aside(pointer, bytes);
    } else if (!spare_.keep(pointer, bytes)) {
      free(pointer);
    }
  }
  return waited;
}

// Whoever has the device may wait for who calls this, as the interpreter does.
void Device::try_to_take_back_lent() {
  const auto lock = try_lock();
  if (lock.owns_lock()) static_cast<void>(take_back_lent());
}

void Device::free(cu_pointer pointer) const {
  if (pool_ != nullptr) {
    dismiss(functions_.free_async, "cuMemFreeAsync", pointer, stream_);
  } else {
    dismiss(functions_.free, "cuMemFree_v2", pointer);
  }
}

void Device::free_spare() {
  for (const cu_pointer pointer : spare_.take_all()) free(pointer);
}

core::Status Device::release_spare() {
  MITHRIL_RETURN_IF_ERROR(Driver::release_spare());
  core::Status status;
  {
    const auto lock = this->lock();
    status = take_back_lent();
  }
  free_spare();
  return status;
}

core::Result<device::MemoryPtr> Device::allocate(int64_t bytes) {
  const int64_t size = std::max<int64_t>(bytes + kGranule - 1, kGranule) / kGranule * kGranule;
  auto taken = take(size);
  const bool has_spare = spare_.bytes() + spare_.lent_bytes() > 0;
  if (!taken.ok() && taken.error().kind == ErrorKind::kMemory && has_spare) {
    try_to_take_back_lent();
    free_spare();
    MITHRIL_RETURN_IF_ERROR(wait());
    taken = take(size);
  }
  if (!taken.ok()) {
    core::Status status = std::move(taken).status();
    status.error().message += fmt::format(" for {} bytes on {}", bytes, info_.name);
    return status;
  }
  count_bytes(size);
  return device::MemoryPtr(std::make_unique<const Buffer>(*this, *taken, size));
}

core::Result<device::MemoryPtr> Device::constant(std::span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  MITHRIL_ASSIGN(device::MemoryPtr memory, allocate(size));
  MITHRIL_RETURN_IF_ERROR(write({memory.get(), 0}, bytes.data(), size));
  return memory;
}

core::Result<device::MemoryPtr> Device::operand(const void* /*host*/, int64_t bytes,
                                                bool /*is_written*/) {
  return allocate(bytes);
}

core::Status Device::write(device::Ref to, const void* host, int64_t bytes) {
  return staging_.write(host, bytes, [&](const std::byte* place) {
    return within(functions_.copy_in, "cuMemcpyHtoDAsync_v2", Buffer::at(to),
                  place != nullptr ? static_cast<const void*>(place) : host,
                  static_cast<size_t>(bytes), stream_);
  });
}

core::Status Device::read(device::Ref from, void* host, int64_t bytes) {
  return staging_.read(host, bytes, [&](std::byte* place) {
    return within(functions_.copy_out, "cuMemcpyDtoHAsync_v2",
                  place != nullptr ? static_cast<void*>(place) : host, Buffer::at(from),
                  static_cast<size_t>(bytes), stream_);
  });
}

core::Result<uint8_t> Device::read_byte(device::Ref from) {
  uint8_t value = 0;
  MITHRIL_RETURN_IF_ERROR(read(from, &value, 1));
  MITHRIL_RETURN_IF_ERROR(finish());
  return value;
}

core::Status Device::copy(device::Ref from, device::Ref to, int64_t bytes) {
  return within(functions_.copy, "cuMemcpyDtoDAsync_v2", Buffer::at(to), Buffer::at(from),
                static_cast<size_t>(bytes), queue());
}

core::Result<std::byte*> Device::map(device::Ref at, int64_t bytes, bool /*is_written*/) {
  auto host = std::make_unique<std::byte[]>(static_cast<size_t>(bytes));
  MITHRIL_RETURN_IF_ERROR(read(at, host.get(), bytes));
  MITHRIL_RETURN_IF_ERROR(finish());
  return host.release();
}

core::Status Device::unmap(device::Ref at, int64_t bytes, bool is_written, std::byte* host) {
  const std::unique_ptr<std::byte[]> owned(host);
  if (!is_written) return {};
  MITHRIL_RETURN_IF_ERROR(write(at, host, bytes));
  return finish();  // before the host's memory goes
}

core::Status Device::wait() const {
  return within(functions_.wait, "cuStreamSynchronize", stream_);
}
core::Status Device::begin_timing() {
  for (cu_event* const event : {&begun_, &ended_}) {
    if (*event != nullptr) continue;
    MITHRIL_RETURN_IF_ERROR(within(functions_.create_event, "cuEventCreate", event, kEventTiming));
    device::count_object(1);
  }
  return within(functions_.record_event, "cuEventRecord", begun_, stream_);
}

core::Result<int64_t> Device::end_timing() {
  core::Status status = within(functions_.record_event, "cuEventRecord", ended_, stream_);
  core::Status waited = finish();
  MITHRIL_RETURN_IF_ERROR(std::move(status));
  MITHRIL_RETURN_IF_ERROR(std::move(waited));
  float milliseconds = 0;
  MITHRIL_RETURN_IF_ERROR(
      within(functions_.elapsed, "cuEventElapsedTime", &milliseconds, begun_, ended_));
  return std::llround(1e6 * static_cast<double>(milliseconds));
}

core::Status Device::finish() {
  const Staging::Mark mark = staging_.mark();
  core::Status status = wait();
  staging_.release(mark, status.ok());
  return status;
}

// ---------------------------------------------------------------- programs

namespace {

struct CudaKernel final : device::Kernel {
  explicit CudaKernel(cu_function given) : function(given) {}
  cu_function function;
};

// Threads that do an item together keep tiles in registers, which a compiler would spill to have
// more blocks at a time if it were not told that one is enough.
std::string entry(int threads) {
  const std::string bounds =
      threads == 0 ? fmt::to_string(kThreads) : fmt::format("{}, 1", threads);
  return fmt::format("extern \"C\" __global__ void __launch_bounds__({}) ", bounds);
}

}  // namespace

class Device::CudaProgram final : public device::Program {
 public:
  CudaProgram(const Device& device, cu_module module) : device_(device), module_(module) {
    device::count_object(1);
  }
  ~CudaProgram() override { device_.release(device_.functions_.unload, "cuModuleUnload", module_); }
  core::Result<std::unique_ptr<device::Kernel>> kernel(const std::string& name) const override {
    cu_function function = nullptr;
    MITHRIL_RETURN_IF_ERROR(device_.within(device_.functions_.get_function, "cuModuleGetFunction",
                                           &function, module_, name.c_str()));
    return std::unique_ptr<device::Kernel>(std::make_unique<CudaKernel>(function));
  }

 private:
  const Device& device_;
  cu_module module_;
};

const device::Dialect kDialect = {
    .head = &emit::kHeadCuda,
    .global = "",
    .byte = "unsigned char",
    .restricts = "__restrict__",
    .function = "static __device__ void ",
    .entry = entry,
    .item = "((m_i64)blockIdx.x * blockDim.x + threadIdx.x)",
    .block = "(m_i64)blockIdx.x",
    .may_exceed = true,
    .shared = "__shared__ ",
};

// A thread takes one element or one short row; those of neighbours lie side by side. A block takes
// a long row.
device::PrintOptions Device::print_options() const {
  return {.dialect = kDialect,
          .is_cpu = false,
          .units = info_.multiprocessors,
          .most_items = int64_t{1} << 36,
          .takes_columns = false,
          .chunk = 16,
          .threads_of_rows = kThreads,
          .shared_bytes = kSharedBytes,
          .tile = device::kBlockTile,
          .parameter_bytes = kParameterBytes};
}

core::Result<std::string> Device::compile(const std::string& text) const {
  MITHRIL_RETURN_IF_ERROR(check_process());
  return compiler_.compile(text, info_.architecture);
}

core::Result<std::shared_ptr<const device::Program>> Device::load(const std::string& text,
                                                                  const std::string& image) {
  cu_module module = nullptr;
  MITHRIL_RETURN_IF_ERROR(
      within(functions_.load, "cuModuleLoadData", &module, static_cast<const void*>(image.data())));
  return remember(text, std::make_shared<const CudaProgram>(*this, module));
}

core::Result<std::shared_ptr<const device::Program>> Device::build(const std::string& text) {
  if (auto known = loaded(text)) return known;
  MITHRIL_ASSIGN(const std::string image, compile(text));
  return load(text, image);
}

core::Status Device::launch(const device::Kernel& kernel, std::span<const device::Ref> operands,
                            const device::Launch& launch) {
  std::vector<cu_pointer> memories;
  std::vector<int64_t> offsets;
  for (const device::Ref& ref : operands) {
    memories.push_back(Buffer::at({ref.memory, 0}));
    offsets.push_back(ref.offset);
  }
  std::vector<void*> parameters;
  for (size_t i = 0; i < memories.size(); ++i) {
    parameters.push_back(&memories[i]);
    parameters.push_back(&offsets[i]);
  }
  const bool is_alone = launch.threads == 0;
  const bool has_few = launch.items < int64_t{kThreads} * info_.multiprocessors;
  const int threads = !is_alone ? launch.threads : has_few ? kFewThreads : kThreads;
  const int64_t blocks = is_alone ? (launch.items + threads - 1) / threads : launch.items;
  return within(functions_.launch, "cuLaunchKernel",
                static_cast<const CudaKernel&>(kernel).function, static_cast<unsigned>(blocks), 1U,
                1U, static_cast<unsigned>(threads), 1U, 1U, 0U, queue(), parameters.data(),
                static_cast<void**>(nullptr));
}

// ---------------------------------------------------------------- products

const core::Result<Cublaslt>& Device::product_library() {
  const std::lock_guard lock(libraries_mutex_);
  if (!products_) {
    products_ = in_context([&] { return Cublaslt::open(libraries_.cublaslt, info_.driver); });
  }
  return *products_;
}

const core::Result<Cudnn>& Device::convolution_library() {
  const std::lock_guard lock(libraries_mutex_);
  if (!convolutions_) {
    convolutions_ = in_context([&] { return Cudnn::open(libraries_.cudnn, info_.driver); });
  }
  return *convolutions_;
}

// Calls that have a smaller one keep that; by powers of two, all of those are no larger together
// than the last one.
core::Result<Workspace> Device::workspace(int64_t bytes) {
  const std::lock_guard lock(workspace_mutex_);
  if (workspace_bytes_ < bytes) {
    const auto size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
    workspace_ = {};  // before the larger one is asked for
    workspace_bytes_ = 0;
    MITHRIL_ASSIGN(workspace_.memory, allocate(size));
    workspace_.at = Buffer::at({workspace_.memory.get(), 0});
    workspace_bytes_ = size;
  }
  return workspace_;
}

core::Result<std::unique_ptr<const device::PreparedProduct>> Device::prepare(
    const plan::LibraryProduct& product) {
  const TakeWorkspace take_workspace = [this](int64_t bytes) { return workspace(bytes); };
  const auto prepared = [&]() -> core::Result<LibraryCallPtr> {
    if (const auto* const matmul = std::get_if<plan::LibraryMatmul>(&product)) {
      const core::Result<Cublaslt>& library = product_library();
      MITHRIL_CHECK(library.ok(), "a product of a library that is not open");
      return library->prepare(*matmul, take_workspace);
    }
    const core::Result<Cudnn>& library = convolution_library();
    MITHRIL_CHECK(library.ok(), "a convolution of a library that is not open");
    return library->prepare(std::get<plan::LibraryConv2d>(product), info_.memory / kWorkspaceShare,
                            take_workspace);
  };
  MITHRIL_ASSIGN(LibraryCallPtr out, in_context(prepared));
  return std::unique_ptr<const device::PreparedProduct>(std::move(out));
}

core::Status Device::multiply(const device::PreparedProduct& product,
                              std::span<const device::Ref> operands) {
  std::vector<cu_pointer> places;
  for (const device::Ref& ref : operands) places.push_back(Buffer::at(ref));
  return in_context(
      [&] { return static_cast<const LibraryCall&>(product).enqueue(places, queue()); });
}

// ---------------------------------------------------------------- graphs

class Device::Graph final : public device::CommandBuffer {
 public:
  Graph(const Device& device, cu_executable_graph executable)
      : device_(device), executable_(executable) {
    device::count_object(1);
  }
  ~Graph() override {
    device_.release(device_.functions_.destroy_executable_graph, "cuGraphExecDestroy", executable_);
  }
  cu_executable_graph executable() const { return executable_; }

 private:
  const Device& device_;
  cu_executable_graph executable_;
};

bool Device::records_commands() const { return functions_.has_graphs() && core::env().cuda_graphs; }

core::Status Device::begin_recording() {
  if (recording_ == nullptr) {
    MITHRIL_RETURN_IF_ERROR(
        within(functions_.create_stream, "cuStreamCreate", &recording_, kStreamNonBlocking));
    device::count_object(1);
  }
  MITHRIL_RETURN_IF_ERROR(
      within(functions_.begin_capture, "cuStreamBeginCapture_v2", recording_, kCaptureRelaxed));
  is_recording_ = true;
  return {};
}

core::Result<std::unique_ptr<const device::CommandBuffer>> Device::end_recording() {
  is_recording_ = false;
  cu_graph graph = nullptr;
  core::Status ended = within(functions_.end_capture, "cuStreamEndCapture", recording_, &graph);
  if (!ended.ok()) {
    release(functions_.destroy_stream, "cuStreamDestroy_v2", std::exchange(recording_, nullptr));
    return ended;
  }
  device::count_object(1);
  cu_executable_graph executable = nullptr;
  core::Status made =
      within(functions_.instantiate, "cuGraphInstantiateWithFlags", &executable, graph, 0ULL);
  release(functions_.destroy_graph, "cuGraphDestroy", graph);
  MITHRIL_RETURN_IF_ERROR(std::move(made));
  return std::unique_ptr<const device::CommandBuffer>(
      std::make_unique<const Graph>(*this, executable));
}

core::Status Device::enqueue(const device::CommandBuffer& commands) {
  return within(functions_.launch_graph, "cuGraphLaunch",
                static_cast<const Graph&>(commands).executable(), stream_);
}

}  // namespace mithril::cuda
