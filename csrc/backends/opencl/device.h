// A device of OpenCL: its context, its queue, its memory and its compiled programs.
#pragma once
#include <atomic>
#include <compare>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/device/driver.h"
#include "backends/opencl/api.h"
#include "core/status.h"

namespace mithril::opencl {

/// Owns a handle of the loader and releases it.
template <class T>
class Owned {
 public:
  Owned() = default;
  /// `symbol`: of the function that gives it back.
  Owned(T handle, cl_int (*release)(T), const char* symbol)
      : handle_(handle), release_(release), symbol_(symbol) {
    device::count_object(1);
  }
  Owned(Owned&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        release_(other.release_),
        symbol_(other.symbol_) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(release_, other.release_);
    std::swap(symbol_, other.symbol_);
    return *this;
  }
  ~Owned() {
    if (handle_ == nullptr) return;
    device::give_back(release_, symbol_, handle_);
    device::count_object(-1);
  }
  T get() const { return handle_; }

 private:
  T handle_ = nullptr;
  cl_int (*release_)(T) = nullptr;
  const char* symbol_ = "";
};

/// Describes a device in its own words.
struct DeviceInfo {
  int platform = 0, device = 0;  // their numbers
  std::string id;                // "gpu:1": kind and number among those of its kind
  std::string platform_name, name, vendor, version, driver;
  bool is_cpu = false, is_gpu = false;
  bool has_doubles = false;     // float64: cl_khr_fp64
  bool rounds_exactly = false;  // takes -cl-fp32-correctly-rounded-divide-sqrt
  int64_t compute_units = 1;
  /// Items of a work group, at most, and bytes of memory that they share.
  int most_threads = 1;
  int64_t local_memory = 0;
  int64_t vector_bytes = 16;                               // of a register
  int64_t memory = 0, largest_allocation = 0;              // bytes
  int64_t parameter_bytes = device::kLeastParameterBytes;  // that a kernel takes
};

/// Lets a device stand in for another, for tests. As a GPU its memory is not the host's, and work
/// groups do what they do there.
struct StandIn {
  bool is_gpu = false;
  bool without_doubles = false;
  int most_threads = 0;              // of a group; 0: as the device says
  int64_t local_memory = 0;          // the same of bytes that a group shares
  int most_threads_of_a_kernel = 0;  // the same of each kernel
  auto operator<=>(const StandIn&) const = default;
};

/// All devices of all platforms, in the loader's order; an error where there is none.
core::Result<std::vector<DeviceInfo>> list_devices();

/// The device that `wanted` names: "" (the first GPU, else the first device), "gpu", "cpu", an id,
/// a number in the list of all devices, or "platform:device" by numbers or parts of names.
core::Result<DeviceInfo> find_device(const std::string& wanted);

/// One context and one in-order queue, which all programs of the process share.
class Device final : public device::Driver {
 public:
  /// The device that `wanted` names; every call for one device gives the same object.
  /// `threads`: how many compute units of a CPU are used; 0: all of them.
  static core::Result<std::shared_ptr<Device>> open(const std::string& wanted,
                                                    const StandIn& stand_in = {},
                                                    int64_t threads = 0);

  const DeviceInfo& info() const { return info_; }

  /// Tells whether a group of items does a tile of a product: `threads` of them.
  bool does_tiles_in_groups() const;
  /// The tile of products that are printed from now on. One that was not set is first_tile().
  plan::RegisterTile tile() const;
  core::Status set_tile(const plan::RegisterTile& tile);  // that check_tile() lets pass

  /// Limits the parameters of kernels that are printed from now on, for tests; no more than the
  /// device's own and no less than every device has.
  void limit_parameters(int64_t bytes);

  device::PrintOptions print_options() const override;
  core::Result<device::MemoryPtr> allocate(int64_t bytes) override;
  core::Result<device::MemoryPtr> constant(std::span<const std::byte> bytes) override;
  core::Result<device::MemoryPtr> operand(const void* host, int64_t bytes,
                                          bool is_written) override;
  core::Status write(device::Ref to, const void* host, int64_t bytes) override;
  core::Status read(device::Ref from, void* host, int64_t bytes) override;
  core::Result<uint8_t> read_byte(device::Ref from) override;
  core::Status copy(device::Ref from, device::Ref to, int64_t bytes) override;
  core::Result<std::byte*> map(device::Ref at, int64_t bytes, bool is_written) override;
  core::Status unmap(device::Ref at, int64_t bytes, bool is_written, std::byte* host) override;
  core::Result<std::shared_ptr<const device::Program>> build(const std::string& text) override;
  core::Status launch(const device::Kernel& kernel, std::span<const device::Ref> operands,
                      const device::Launch& launch) override;
  core::Status begin_timing() override;
  core::Result<int64_t> end_timing() override;
  core::Status finish() override;

 protected:
  bool may_round_exactly() const override { return info_.rounds_exactly; }

 private:
  Device(const Functions& functions, DeviceInfo info, cl_device id, const StandIn& stand_in);
  core::Status start();
  core::Result<device::MemoryPtr> buffer(int64_t bytes, cl_bits flags, const void* host);
  core::Result<Owned<cl_program>> compiled(const std::string& text) const;
  std::string options() const;
  /// Asks the driver how many items of a group a kernel lets run, where groups are used.
  core::Result<int> most_threads(cl_kernel kernel) const;

  const Functions& functions_;
  DeviceInfo info_;
  cl_device id_;
  StandIn stand_in_;
  Owned<cl_context> context_;
  Owned<cl_queue> queue_;
  Owned<cl_queue> timed_queue_;  // null: nothing was timed yet
  bool is_timing_ = false;
  std::vector<Owned<cl_event>> events_;  // of what is being timed
  mutable std::mutex tile_mutex_;
  plan::RegisterTile tile_;
  std::atomic<int64_t> parameter_bytes_;
  std::mutex builds_;  // one at a time: of one text there is one program
};

/// The texts of plans for OpenCL; and for GPUs, where work groups do some steps, and any number of
/// items is made one of whole groups.
extern const device::Dialect kDialect, kDialectOfGroups;

}  // namespace mithril::opencl
