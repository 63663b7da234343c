// Memory of a device that outlives runs: what arrays of the device hold.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "backends/device/driver.h"
#include "core/status.h"

namespace mithril::device {

/// Memory with an address that stands for it wherever pointers to operands are handed on. Nothing
/// of the host lies at such an address: only the driver, which gave it, finds what it stands for.
class Storage {
 public:
  /// Fails with MemoryError, or with what the driver says.
  static core::Result<std::shared_ptr<const Storage>> make(std::shared_ptr<Driver> driver,
                                                           int64_t bytes);
  /// Memory of another library's (Driver::borrow).
  static core::Result<std::shared_ptr<const Storage>> borrow(std::shared_ptr<Driver> driver,
                                                             void* pointer, int64_t bytes,
                                                             std::shared_ptr<const void> owner);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();

  Driver& driver() const { return *driver_; }
  const std::shared_ptr<Driver>& shared_driver() const { return driver_; }
  int64_t bytes() const { return bytes_; }
  const std::byte* address() const { return address_; }

  std::optional<Driver::Place> place(int64_t offset) const {
    return driver_->place({memory_.get(), offset});
  }

  /// Says that another library is let at the memory (Memory::lend).
  void lend() const { memory_->lend(); }

  /// Copies some bytes from the host or to it, and waits for that and all before it. They lie
  /// within the memory.
  core::Status write(int64_t offset, const void* host, int64_t bytes) const;
  core::Status read(int64_t offset, void* host, int64_t bytes) const;
  /// Enqueues a copy from other memory of the same driver.
  core::Status copy(const Storage& from, int64_t offset, int64_t bytes) const;

 private:
  Storage(std::shared_ptr<Driver> driver, MemoryPtr memory, int64_t bytes);
  core::Status finished(core::Status copied) const;

  std::shared_ptr<Driver> driver_;
  MemoryPtr memory_;
  int64_t bytes_;
  const std::byte* address_;
};

}  // namespace mithril::device
