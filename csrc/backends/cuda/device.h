// A device of CUDA: its primary context, a stream, its memory and its loaded programs.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/cuda/api.h"
#include "backends/cuda/compiler.h"
#include "backends/cuda/cublaslt.h"
#include "backends/cuda/cudnn.h"
#include "backends/cuda/spare_memory.h"
#include "backends/cuda/staging.h"
#include "backends/device/driver.h"

namespace mithril::cuda {

/// Describes a device in the driver's words.
struct DeviceInfo {
  int index = 0;
  std::string name;
  int64_t memory = 0;    // bytes
  int architecture = 0;  // 90: sm_90
  int multiprocessors = 1;
  int driver = 0;  // version of CUDA that it speaks: 12080 is 12.8
  bool has_pools = false;
};

/// All devices, in the driver's order; an error where there is none.
core::Result<std::vector<DeviceInfo>> list_devices();

/// Says where NVIDIA's libraries may be, in order of preference.
struct Libraries {
  std::vector<std::string> nvrtc, cublaslt, cudnn;
};

/// Uses the context that the frameworks of the process share, and a stream of its own. The thread's
/// current context is as it was after each call.
class Device final : public device::Driver {
 public:
  /// Every call for one index gives the same object, whose libraries are those of the first one.
  static core::Result<std::shared_ptr<Device>> open(int index, const Libraries& libraries);
  ~Device() override;

  const DeviceInfo& info() const { return info_; }
  const Compiler& compiler() const { return compiler_; }
  std::string compiler_identity() const { return compiler_.identity(info_.architecture); }

  /// The library that does products of matrices, or why there is none; and that of convolutions.
  /// Each is opened once, when it is first asked for.
  const core::Result<Cublaslt>& product_library();
  const core::Result<Cudnn>& convolution_library();

  /// Compiles a text for this device.
  core::Result<std::string> compile(const std::string& text) const;
  /// Loads what compile() made of a text.
  core::Result<std::shared_ptr<const device::Program>> load(const std::string& text,
                                                            const std::string& image);

  device::PrintOptions print_options() const override;
  core::Result<device::MemoryPtr> allocate(int64_t bytes) override;
  core::Result<device::MemoryPtr> constant(std::span<const std::byte> bytes) override;
  core::Result<device::MemoryPtr> operand(const void* host, int64_t bytes,
                                          bool is_written) override;
  std::optional<Place> place(const device::Ref& ref) const override;
  core::Status let_wait(uintptr_t queue) override;
  core::Result<device::MemoryPtr> borrow(void* pointer, std::shared_ptr<const void> owner) override;
  core::Status write(device::Ref to, const void* host, int64_t bytes) override;
  core::Status read(device::Ref from, void* host, int64_t bytes) override;
  core::Result<uint8_t> read_byte(device::Ref from) override;
  core::Status copy(device::Ref from, device::Ref to, int64_t bytes) override;
  core::Result<std::byte*> map(device::Ref at, int64_t bytes, bool is_written) override;
  core::Status unmap(device::Ref at, int64_t bytes, bool is_written, std::byte* host) override;
  core::Result<std::shared_ptr<const device::Program>> build(const std::string& text) override;
  core::Status launch(const device::Kernel& kernel, std::span<const device::Ref> operands,
                      const device::Launch& launch) override;
  core::Result<std::unique_ptr<const device::PreparedProduct>> prepare(
      const plan::LibraryProduct& product) override;
  core::Status multiply(const device::PreparedProduct& product,
                        std::span<const device::Ref> operands) override;
  bool records_commands() const override;
  core::Status begin_recording() override;
  core::Result<std::unique_ptr<const device::CommandBuffer>> end_recording() override;
  core::Status enqueue(const device::CommandBuffer& commands) override;
  core::Status begin_timing() override;
  core::Result<int64_t> end_timing() override;
  core::Status finish() override;
  core::Status release_spare() override;

 private:
  class Buffer;
  class CudaProgram;
  class Graph;
  Device(const Functions& functions, Compiler compiler, DeviceInfo info, Libraries libraries);
  core::Status start();
  core::Status start_pool();
  void start_staging();
  core::Status wait() const;
  core::Result<cu_pointer> take(int64_t bytes);
  core::Result<Workspace> workspace(int64_t bytes);
  void give_back(cu_pointer pointer, int64_t bytes, bool is_lent) const;
  core::Status take_back_lent();
  void try_to_take_back_lent();
  void free(cu_pointer pointer) const;
  void free_spare();
  cu_stream queue() const { return is_recording_ ? recording_ : stream_; }

  /// Does something with the device's context as the current one.
  template <class Function>
  auto in_context(const Function& function) const -> decltype(function()) {
    MITHRIL_RETURN_IF_ERROR(call(functions_.push_context, "cuCtxPushCurrent_v2", context_));
    struct Popped {
      const Functions& functions;
      ~Popped() {
        cu_context own = nullptr;
        functions.pop_context(&own);
      }
    } const popped{functions_};
    return function();
  }
  /// Calls a function so.
  template <class... Parameters, class... Arguments>
  core::Status within(int (*function)(Parameters...), const char* symbol,
                      Arguments... arguments) const {
    return in_context([&]() -> core::Status { return call(function, symbol, arguments...); });
  }
  /// The same for what must not fail: it gives something back. False where the device is gone.
  template <class... Parameters, class... Arguments>
  bool dismiss(int (*function)(Parameters...), const char* symbol, Arguments... arguments) const {
    if (functions_.push_context(context_) != kSuccess) return false;
    device::give_back(function, symbol, arguments...);
    cu_context own = nullptr;
    functions_.pop_context(&own);
    return true;
  }
  /// Gives an object back, which is counted.
  template <class... Parameters, class... Arguments>
  void release(int (*function)(Parameters...), const char* symbol, Arguments... arguments) const {
    if (dismiss(function, symbol, arguments...)) device::count_object(-1);
  }

  const Functions& functions_;
  Compiler compiler_;
  DeviceInfo info_;
  cu_context context_ = nullptr;
  cu_stream stream_ = nullptr;
  cu_pool pool_ = nullptr;  // null: memory comes from the driver at once
  mutable SpareMemory spare_;
  Staging staging_;
  cu_event begun_ = nullptr, ended_ = nullptr;  // of what is being timed; null: nothing was yet
  // Records graphs: memory may be given back to the other one meanwhile, by any thread.
  cu_stream recording_ = nullptr;
  bool is_recording_ = false;
  const Libraries libraries_;
  std::mutex libraries_mutex_;
  std::optional<core::Result<Cublaslt>> products_;
  std::optional<core::Result<Cudnn>> convolutions_;
  std::mutex workspace_mutex_;
  Workspace workspace_;  // the largest so far
  int64_t workspace_bytes_ = 0;
};

/// The texts of plans for CUDA.
extern const device::Dialect kDialect;

}  // namespace mithril::cuda
