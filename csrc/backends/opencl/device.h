// A device of OpenCL: its context, its queue, its memory and its compiled programs.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/api.h"
#include "core/status.h"

namespace mithril::opencl {

/// Owns a handle of the loader and releases it.
template <class T>
class Owned {
 public:
  Owned() = default;
  Owned(T handle, cl_int (*release)(T)) : handle_(handle), release_(release) { count_object(1); }
  Owned(Owned&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), release_(other.release_) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Owned() {
    if (handle_ == nullptr) return;
    release_(handle_);
    count_object(-1);
  }
  T get() const { return handle_; }

 private:
  T handle_ = nullptr;
  cl_int (*release_)(T) = nullptr;
};

/// Describes a device in its own words.
struct DeviceInfo {
  int platform = 0, device = 0;  // their numbers
  std::string id;                // "gpu:1": kind and number among those of its kind
  std::string platform_name, name, vendor, version, driver;
  bool is_cpu = false, is_gpu = false;
  bool has_doubles = false;     // cl_khr_fp64
  bool rounds_exactly = false;  // takes -cl-fp32-correctly-rounded-divide-sqrt
  int64_t compute_units = 1;
  int64_t memory = 0, largest_allocation = 0;  // bytes
};

/// All devices of all platforms, in the loader's order; an error where there is none.
core::Result<std::vector<DeviceInfo>> list_devices();

/// The device that `wanted` names: "" (the first GPU, else the first device), "gpu", "cpu", an id,
/// a number in the list of all devices, or "platform:device" by numbers or parts of names.
core::Result<DeviceInfo> find_device(const std::string& wanted);

struct DeviceArena {
  Owned<cl_mem> memory;
  int64_t bytes = 0;
};

/// One context and one in-order queue, which all programs of the process share. Whoever enqueues
/// holds `mutex()`.
class Device {
 public:
  /// The device that `wanted` names; every call for one device gives the same object.
  /// `as_gpu`: it is treated as if its memory were not the host's, whatever it is, for tests.
  static core::Result<std::shared_ptr<Device>> open(const std::string& wanted, bool as_gpu = false);

  const DeviceInfo& info() const { return info_; }
  const Functions& functions() const { return functions_; }
  cl_queue queue() const { return queue_.get(); }
  /// A run may begin within a run of the same thread: of a handler of signals, between two steps.
  std::recursive_mutex& mutex() { return mutex_; }

  /// Fails in a process that was forked from the one that opened the device: drivers do not survive
  /// that.
  core::Status check_process() const;

  /// Memory of the device, of at least one byte. `host` with kMemUseHostPtr or kMemCopyHostPtr.
  core::Result<Owned<cl_mem>> allocate(int64_t bytes, cl_bits flags = kMemReadWrite,
                                       const void* host = nullptr) const;

  /// Memory for temporaries of a run, who holds the mutex and gives it back in the end.
  core::Result<DeviceArena> take_arena(int64_t bytes);
  void give_back(DeviceArena arena) { arena_ = std::move(arena); }

  /// Compiles a text, or takes what was compiled of it before. An error has the compiler's words.
  core::Result<std::shared_ptr<const Owned<cl_program>>> build(const std::string& text);
  core::Result<Owned<cl_kernel>> kernel(cl_program program, const std::string& name) const;

  /// Waits until all that was enqueued is done.
  core::Status finish() const;

  /// Tells whether float arithmetic has IEEE 754's bits: subnormals, fma, correctly rounded
  /// division and square root. Tried once, on the device.
  core::Result<bool> has_exact_bits();

 private:
  Device(const Functions& functions, DeviceInfo info, cl_device id);
  core::Status start();
  core::Result<Owned<cl_program>> compiled(const std::string& text) const;
  std::string options() const;
  core::Result<bool> try_exact_bits();

  const Functions& functions_;
  DeviceInfo info_;
  cl_device id_;
  int64_t process_;
  Owned<cl_context> context_;
  Owned<cl_queue> queue_;
  std::recursive_mutex mutex_;
  DeviceArena arena_;  // of the last run; empty while it is taken
  std::mutex programs_mutex_;
  std::map<std::string, std::weak_ptr<const Owned<cl_program>>> programs_;  // by text
  std::optional<bool> is_exact_;
};

}  // namespace mithril::opencl
