// A device of memory that no host sees, for tests: it counts what it is asked for, fails where it
// is told to (backends/device/injection.h), and computes by the definitions of tile programs.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backends/device/driver.h"
#include "plan/plan.h"

namespace mithril::device::test {

/// The functions of the driver, as they are counted and made to fail.
inline constexpr const char* kSymbols[] = {
    "fake.allocate", "fake.constant", "fake.operand", "fake.write",  "fake.read",
    "fake.byte",     "fake.copy",     "fake.map",     "fake.unmap",  "fake.build",
    "fake.kernel",   "fake.launch",   "fake.finish",  "fake.record", "fake.recorded",
    "fake.commands", "fake.timing",   "fake.timed"};
/// The failures of calls: an error, too little memory, or one after which the device is gone.
enum Failure : int { kFails = 1, kNoMemory = 2, kLost = 3 };

/// Nanoseconds that the device says each launch of a step took.
inline constexpr int64_t kLaunchTime = 1800000000007;  // half an hour, and no round number

/// Calls wait until somebody waits for them; memory is full of NaN at first.
class FakeDriver final : public Driver {
 public:
  explicit FakeDriver(int64_t memory = int64_t{1} << 30, bool records = false)
      : Driver("Fake", "fake:0", memory), records_(records) {}
  ~FakeDriver() override { give_back({}); }

  /// Counts the calls of a function since clear(), and lists all of them in their order.
  int64_t count(const std::string& symbol) const;
  const std::vector<std::string>& log() const { return log_; }
  void clear() { log_.clear(); }
  /// Lets a lost device work again.
  void revive() { is_lost_ = false; }

  /// Looks up what a text computes by the plan that it was printed of.
  core::Result<std::shared_ptr<const Program>> load(const std::string& text,
                                                    const plan::Plan& plan);

  PrintOptions print_options() const override;
  core::Result<MemoryPtr> allocate(int64_t bytes) override;
  core::Result<MemoryPtr> constant(std::span<const std::byte> bytes) override;
  core::Result<MemoryPtr> operand(const void* host, int64_t bytes, bool is_written) override;
  core::Status write(Ref to, const void* host, int64_t bytes) override;
  core::Status read(Ref from, void* host, int64_t bytes) override;
  core::Result<uint8_t> read_byte(Ref from) override;
  core::Status copy(Ref from, Ref to, int64_t bytes) override;
  core::Result<std::byte*> map(Ref at, int64_t bytes, bool is_written) override;
  core::Status unmap(Ref at, int64_t bytes, bool is_written, std::byte* host) override;
  core::Result<std::shared_ptr<const Program>> build(const std::string& text) override;
  core::Status launch(const Kernel& kernel, std::span<const Ref> operands,
                      const Launch& launch) override;
  bool records_commands() const override { return records_; }
  core::Status begin_recording() override;
  core::Result<std::unique_ptr<const CommandBuffer>> end_recording() override;
  core::Status enqueue(const CommandBuffer& commands) override;
  std::optional<Place> place(const Ref& ref) const override;
  core::Status begin_timing() override;
  core::Result<int64_t> end_timing() override;
  core::Status finish() override;

 private:
  class Block;
  class Commands;
  class FakeKernel;
  class FakeProgram;
  core::Status begin(const char* symbol);
  using Operations = std::deque<std::function<core::Status()>>;
  void enqueue(std::function<core::Status()> operation) {
    (is_recording_ ? recorded_ : queue_).push_back(std::move(operation));
  }
  core::Status run_queue();

  Operations queue_, recorded_;
  bool records_;  // whether it has command buffers
  bool is_recording_ = false;
  std::mutex calls_mutex_;  // memory is asked for by any thread
  std::vector<std::string> log_;
  bool is_lost_ = false;
  bool is_timing_ = false;
  int64_t timed_ = 0;  // launches
};

}  // namespace mithril::device::test
