// What the executor of plans asks of a device: memory, programs, and a queue in which everything
// happens in order. opencl/ and cuda/ implement it.
#pragma once
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "backends/device/lead.h"
#include "backends/device/plan_code.h"
#include "core/status.h"

namespace mithril::device {

/// Memory of a device; its destructor gives it back.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;
  /// Says that another library was let at it: its queues may use it when it is given back.
  virtual void lend() const {}
};
using MemoryPtr = std::unique_ptr<const Memory>;

/// A place in memory of the device; null: no memory, as nothing is there.
struct Ref {
  const Memory* memory = nullptr;
  int64_t offset = 0;
  Ref operator+(int64_t bytes) const { return {memory, offset + bytes}; }
  bool operator==(const Ref&) const = default;
};

/// A function of a program that can be launched.
class Kernel {
 public:
  explicit Kernel(int most_threads = INT_MAX) : most_threads_(most_threads) {}
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;
  /// Counts the threads that may do an item of it together: what it keeps in registers may not
  /// leave room for all that the device has.
  int most_threads() const { return most_threads_; }

 private:
  int most_threads_;
};

/// A source as the device has it.
class Program {
 public:
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  virtual ~Program() = default;
  virtual core::Result<std::unique_ptr<Kernel>> kernel(const std::string& name) const = 0;
};

/// A product, or a convolution, that a library is ready to do.
class PreparedProduct {
 public:
  PreparedProduct() = default;
  PreparedProduct(const PreparedProduct&) = delete;
  PreparedProduct& operator=(const PreparedProduct&) = delete;
  virtual ~PreparedProduct() = default;
};

/// Launches and copies on the device that are enqueued as one, with the operands that they had when
/// they were recorded: a graph of CUDA.
class CommandBuffer {
 public:
  CommandBuffer() = default;
  CommandBuffer(const CommandBuffer&) = delete;
  CommandBuffer& operator=(const CommandBuffer&) = delete;
  virtual ~CommandBuffer() = default;
};

/// Memory for temporaries of a run.
struct DeviceArena {
  MemoryPtr memory;
  int64_t bytes = 0;
};

/// Holds what a device was measured to do in a second at best.
struct Peak {
  double float32 = 0, float64 = 0;  // multiplications and additions
  double bandwidth = 0;             // bytes read and written
};

/// One device with one queue, which all programs of the process share. Whoever enqueues holds
/// lock(). What was enqueued may run until finish(): operands live as long.
class Driver {
 public:
  /// `kind`: "OpenCL"; `name`: of the device; `memory`: its bytes; `is_cpu`: it is one.
  Driver(std::string kind, std::string name, int64_t memory, bool is_cpu = false);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  virtual ~Driver() = default;

  const std::string& kind() const { return kind_; }
  const std::string& name() const { return name_; }
  int64_t memory() const { return memory_; }
  /// Takes the device for this thread. A run may begin within a run of the same thread: of a
  /// handler of signals, between two steps.
  ///
  /// A run that has it polls for interrupts (runtime::RunControl), which takes Python's lock:
  /// nobody may wait for the device while they hold that one, or both wait for ever.
  std::unique_lock<std::recursive_mutex> lock();
  /// Takes it if nobody else has it.
  std::unique_lock<std::recursive_mutex> try_lock() { return {mutex_, std::try_to_lock}; }
  /// Lets `check` be called before every lock(), which finds who breaks that rule.
  static void check_before_locks(void (*check)());

  /// Fails in a process that was forked from the one that opened the device: drivers do not survive
  /// that.
  core::Status check_process() const;

  /// Tells whether float arithmetic has IEEE 754's bits (self_test.h). Tried once.
  core::Result<bool> has_exact_bits();

  /// Measures what the device can do at best (peak.h), once: some tens of milliseconds, and what
  /// its compiler takes.
  core::Result<Peak> peak();
  /// The same, if it was measured.
  std::optional<Peak> known_peak();

  /// Finds what was built of a text; null where nothing of it is in use any more.
  std::shared_ptr<const Program> loaded(const std::string& text);

  /// Memory for temporaries of a run, who holds the lock and gives it back in the end.
  core::Result<DeviceArena> take_arena(int64_t bytes);
  void give_back(DeviceArena arena) { arena_ = std::move(arena); }

  /// Counts memory that was allocated, or given back (less than 0). Any thread may.
  void count_bytes(int64_t change) const;
  /// Bytes of the device that are in use, and the most that were; operands that lie in the caller's
  /// memory are not among them.
  int64_t used_bytes() const { return used_bytes_; }
  int64_t peak_bytes() const { return peak_bytes_; }
  /// Gives back to the driver what is kept for later runs. Fails where nobody can wait for those
  /// who may still read of it, whose memory is kept.
  virtual core::Status release_spare();

  /// An address at which nothing of the host lies, which stands for memory that outlives runs until
  /// take_address() is called. Any thread may ask.
  const std::byte* give_address(const Memory& memory, int64_t bytes);
  void take_address(const std::byte* address);
  /// Tells whether some driver gave the address.
  static bool is_given(const void* address);
  /// The place that an address of this driver stands for.
  Ref stored(const void* address) const;

  /// Nanoseconds, estimated, of what was enqueued since somebody waited. Whoever has the lock sets
  /// it.
  std::atomic<double>& unwaited() { return unwaited_; }
  /// Tells how far the host may be ahead of the queue. Under the lock.
  Lead& lead() { return lead_; }
  /// Waits where `more` nanoseconds behind what is enqueued would be too far ahead. Under the lock.
  core::Status stay_near(double more);
  /// Waits until all that was enqueued is done. Under the lock; wait_for_all() takes it.
  core::Status settle();
  core::Status wait_for_all();

  /// Says how plans are printed for the device.
  virtual PrintOptions print_options() const = 0;

  /// Memory of at least one byte.
  virtual core::Result<MemoryPtr> allocate(int64_t bytes) = 0;
  /// Memory with these bytes in it, which live as long.
  virtual core::Result<MemoryPtr> constant(std::span<const std::byte> bytes) = 0;
  /// Memory for an operand of the caller; that of the caller itself where the device can use it.
  virtual core::Result<MemoryPtr> operand(const void* host, int64_t bytes, bool is_written) = 0;

  /// A place as other libraries know it: DLPack's kind and number of the device, a pointer, and the
  /// queue that they may wait in for what they do there.
  struct Place {
    int32_t kind = 0, index = 0;
    void* pointer = nullptr;
    uintptr_t queue = 0;
  };
  /// Nothing where no other library could read memory of the device.
  virtual std::optional<Place> place(const Ref& /*ref*/) const { return {}; }
  /// Lets another library's queue wait for all that was enqueued, and the host for nothing; only
  /// where there are places.
  virtual core::Status let_wait(uintptr_t queue);
  /// Memory of another library's at a pointer, which `owner` keeps; only where there are places.
  virtual core::Result<MemoryPtr> borrow(void* pointer, std::shared_ptr<const void> owner);

  /// Enqueues a copy from the host, or to it. Nothing moves where memory is the caller's itself.
  virtual core::Status write(Ref to, const void* host, int64_t bytes) = 0;
  virtual core::Status read(Ref from, void* host, int64_t bytes) = 0;
  /// Waits for all before it, and gives one byte.
  virtual core::Result<uint8_t> read_byte(Ref from) = 0;
  virtual core::Status copy(Ref from, Ref to, int64_t bytes) = 0;

  /// Waits for all before it, and lets the host at some bytes until unmap() is called with the
  /// same arguments.
  virtual core::Result<std::byte*> map(Ref at, int64_t bytes, bool is_written) = 0;
  virtual core::Status unmap(Ref at, int64_t bytes, bool is_written, std::byte* host) = 0;

  /// Compiles a text, or takes what was compiled of it before. An error has the compiler's words.
  virtual core::Result<std::shared_ptr<const Program>> build(const std::string& text) = 0;
  /// Enqueues a kernel; each operand is passed as its memory and its offset.
  virtual core::Status launch(const Kernel& kernel, std::span<const Ref> operands,
                              const Launch& launch) = 0;

  /// Makes a library ready for a product, and enqueues it; only where plans have such products.
  /// UnsupportedError where the library cannot. `operands`: both factors, the result and, where
  /// they are added, the bias and the addend.
  virtual core::Result<std::unique_ptr<const PreparedProduct>> prepare(
      const plan::LibraryProduct& product);
  virtual core::Status multiply(const PreparedProduct& product, std::span<const Ref> operands);

  /// Tells whether the device has command buffers, and place() tells places: the next three
  /// functions are called only then.
  virtual bool records_commands() const { return false; }
  /// Until end_recording(), which is called whatever happens, launch() and copy() are recorded
  /// instead of enqueued, and nothing else is called under the lock.
  virtual core::Status begin_recording();
  virtual core::Result<std::unique_ptr<const CommandBuffer>> end_recording();
  virtual core::Status enqueue(const CommandBuffer& commands);

  /// Measures launch() and multiply() until end_timing(), which is called whatever happens; nothing
  /// else is called under the lock meanwhile.
  virtual core::Status begin_timing() = 0;
  /// Waits for them, and gives the nanoseconds that the device took by its own clock.
  virtual core::Result<int64_t> end_timing() = 0;

  /// Waits as settle() does, which also notes it.
  virtual core::Status finish() = 0;

 protected:
  /// Lets loaded() find the program for as long as somebody has it; returns it.
  std::shared_ptr<const Program> remember(const std::string& text,
                                          std::shared_ptr<const Program> program);
  /// Says false where the device tells of itself that it rounds otherwise.
  virtual bool may_round_exactly() const { return true; }

 private:
  std::string kind_, name_;
  int64_t memory_;
  int64_t process_;
  std::recursive_mutex mutex_;
  DeviceArena arena_;  // of the last run; empty while it is taken
  std::atomic<double> unwaited_ = 0;
  Lead lead_;
  mutable std::atomic<int64_t> used_bytes_ = 0, peak_bytes_ = 0;
  struct Given {
    const Memory* memory;
    int64_t bytes;
  };
  mutable std::mutex addresses_mutex_;
  std::map<uintptr_t, Given> addresses_;
  std::mutex programs_mutex_;
  std::map<std::string, std::weak_ptr<const Program>> programs_;  // by text
  std::optional<bool> is_exact_;
  std::optional<Peak> peak_;
};

}  // namespace mithril::device
