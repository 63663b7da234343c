#include "backends/device/driver.h"

#include <algorithm>
#include <atomic>
#include <unistd.h>
#include <utility>

#include "backends/device/peak.h"
#include "backends/device/self_test.h"
#include "runtime/recording.h"

namespace mithril::device {
namespace {

// No process has memory there: addresses of x86-64 and AArch64 have at most 57 bits.
constexpr uintptr_t kFirstAddress = uintptr_t{1} << 62;
constexpr uintptr_t kAddressAlignment = 256;

std::atomic<void (*)()> check_of_locks{nullptr};

}  // namespace

Driver::Driver(std::string kind, std::string name, int64_t memory, bool is_cpu)
    : kind_(std::move(kind)),
      name_(std::move(name)),
      memory_(memory),
      process_(getpid()),
      lead_(is_cpu ? Lead::kMostOfCpu : Lead::kMostOfGpu) {}

core::Status Driver::check_process() const {
  if (getpid() == process_) return {};
  core::Error error = core::fail(
      core::ErrorKind::kDevice, core::Code::kDevice,
      "{}: this process was forked from one that uses the device {}; drivers do not survive a fork",
      kind_, name_);
  error.hint = "start processes by spawn, or use the backend in the child only";
  return error;
}

std::unique_lock<std::recursive_mutex> Driver::lock() {
  if (void (*const check)() = check_of_locks) check();
  return std::unique_lock(mutex_);
}

void Driver::check_before_locks(void (*check)()) { check_of_locks = check; }

core::Result<bool> Driver::has_exact_bits() {
  MITHRIL_RETURN_IF_ERROR(check_process());
  const auto lock = this->lock();
  if (!may_round_exactly()) return false;
  if (!is_exact_) {
    MITHRIL_ASSIGN(is_exact_, device::has_exact_bits(*this));
  }
  return *is_exact_;
}

core::Result<Peak> Driver::peak() {
  MITHRIL_RETURN_IF_ERROR(check_process());
  const std::lock_guard lock(mutex_);
  if (!peak_) {
    MITHRIL_ASSIGN(peak_, measure_peak(*this));
  }
  return *peak_;
}

std::optional<Peak> Driver::known_peak() {
  const std::lock_guard lock(mutex_);
  return peak_;
}

std::shared_ptr<const Program> Driver::loaded(const std::string& text) {
  const std::lock_guard lock(programs_mutex_);
  const auto at = programs_.find(text);
  return at == programs_.end() ? nullptr : at->second.lock();
}

std::shared_ptr<const Program> Driver::remember(const std::string& text,
                                                std::shared_ptr<const Program> program) {
  const std::lock_guard lock(programs_mutex_);
  std::erase_if(programs_, [](const auto& known) { return known.second.expired(); });
  programs_[text] = program;
  return program;
}

core::Result<MemoryPtr> Driver::borrow(void* /*pointer*/, std::shared_ptr<const void> /*owner*/) {
  return core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported,
                    "{}: no other library shares memory with {}", kind_, name_);
}

core::Status Driver::let_wait(uintptr_t /*queue*/) {
  return core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported,
                    "{}: no other library waits for {}", kind_, name_);
}

namespace {

core::Status no_commands() {
  return core::fail(core::ErrorKind::kInternal, core::Code::kInternal,
                    "the device has no command buffers");
}

}  // namespace

core::Status Driver::begin_recording() { return no_commands(); }
core::Result<std::unique_ptr<const CommandBuffer>> Driver::end_recording() { return no_commands(); }
core::Status Driver::enqueue(const CommandBuffer& /*commands*/) { return no_commands(); }

namespace {

core::Status no_products() {
  return core::fail(core::ErrorKind::kInternal, core::Code::kInternal,
                    "the device has no library for products");
}

}  // namespace

core::Result<std::unique_ptr<const PreparedProduct>> Driver::prepare(
    const plan::LibraryProduct& /*product*/) {
  return no_products();
}
core::Status Driver::multiply(const PreparedProduct& /*product*/,
                              std::span<const Ref> /*operands*/) {
  return no_products();
}

core::Result<DeviceArena> Driver::take_arena(int64_t bytes) {
  DeviceArena out = std::exchange(arena_, {});
  if (out.memory != nullptr && out.bytes >= bytes) return out;
  out = {};  // before the larger one is asked for
  MITHRIL_ASSIGN(out.memory, allocate(bytes));
  out.bytes = bytes;
  return out;
}

void Driver::count_bytes(int64_t change) const {
  const int64_t used = used_bytes_ += change;
  int64_t peak = peak_bytes_;
  while (peak < used && !peak_bytes_.compare_exchange_weak(peak, used)) continue;
}

core::Status Driver::release_spare() {
  const auto lock = this->lock();
  arena_ = {};
  return {};
}

core::Status Driver::settle() {
  core::Status status = finish();
  // After a wait that failed the queue may still run programs, which wait again before they end.
  unwaited_ = status.ok() ? 0.0 : std::max<double>(unwaited_, 1);
  return status;
}

core::Status Driver::stay_near(double more) {
  if (unwaited_ == 0 || unwaited_ + more <= lead_.nanoseconds()) return {};
  const double enqueued = unwaited_;
  const int64_t start = runtime::now();
  MITHRIL_RETURN_IF_ERROR(settle());
  lead_.note_wait(enqueued, static_cast<double>(runtime::now() - start));
  return {};
}

core::Status Driver::wait_for_all() {
  MITHRIL_RETURN_IF_ERROR(check_process());
  const auto lock = this->lock();
  return settle();
}

// Addresses are never given twice: there are enough of them.
const std::byte* Driver::give_address(const Memory& memory, int64_t bytes) {
  static std::atomic<uintptr_t> next{kFirstAddress};
  const auto blocks = static_cast<uintptr_t>(bytes) / kAddressAlignment + 1;
  const uintptr_t address = next.fetch_add(blocks * kAddressAlignment);
  const std::lock_guard lock(addresses_mutex_);
  addresses_.emplace(address, Given{&memory, bytes});
  return reinterpret_cast<const std::byte*>(address);
}

void Driver::take_address(const std::byte* address) {
  const std::lock_guard lock(addresses_mutex_);
  addresses_.erase(reinterpret_cast<uintptr_t>(address));
}

bool Driver::is_given(const void* address) {
  return reinterpret_cast<uintptr_t>(address) >= kFirstAddress;
}

Ref Driver::stored(const void* address) const {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  const std::lock_guard lock(addresses_mutex_);
  auto at = addresses_.upper_bound(wanted);
  MITHRIL_CHECK(at != addresses_.begin(), "an address of another device");
  --at;
  const auto offset = static_cast<int64_t>(wanted - at->first);
  MITHRIL_CHECK(offset <= at->second.bytes, "an address of another device");
  return {at->second.memory, offset};
}

}  // namespace mithril::device
