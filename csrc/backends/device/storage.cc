#include "backends/device/storage.h"

#include <utility>

namespace mithril::device {

core::Result<std::shared_ptr<const Storage>> Storage::make(std::shared_ptr<Driver> driver,
                                                           int64_t bytes) {
  MITHRIL_RETURN_IF_ERROR(driver->check_process());
  MITHRIL_ASSIGN(MemoryPtr memory, driver->allocate(bytes));
  return std::shared_ptr<const Storage>(new Storage(std::move(driver), std::move(memory), bytes));
}

core::Result<std::shared_ptr<const Storage>> Storage::borrow(std::shared_ptr<Driver> driver,
                                                             void* pointer, int64_t bytes,
                                                             std::shared_ptr<const void> owner) {
  MITHRIL_RETURN_IF_ERROR(driver->check_process());
  MITHRIL_ASSIGN(MemoryPtr memory, driver->borrow(pointer, std::move(owner)));
  return std::shared_ptr<const Storage>(new Storage(std::move(driver), std::move(memory), bytes));
}

Storage::Storage(std::shared_ptr<Driver> driver, MemoryPtr memory, int64_t bytes)
    : driver_(std::move(driver)), memory_(std::move(memory)), bytes_(bytes) {
  address_ = driver_->give_address(*memory_, bytes_);
}

// Drivers do not survive a fork, and so memory is not given back there.
Storage::~Storage() {
  driver_->take_address(address_);
  if (!driver_->check_process().ok()) static_cast<void>(memory_.release());
}

// Waits, whatever became of the copy: the host's memory must live until then.
core::Status Storage::finished(core::Status copied) const {
  core::Status end = driver_->settle();
  return copied.ok() ? std::move(end) : std::move(copied);
}

core::Status Storage::write(int64_t offset, const void* host, int64_t bytes) const {
  if (bytes == 0) return {};
  MITHRIL_RETURN_IF_ERROR(driver_->check_process());
  const auto lock = driver_->lock();
  return finished(driver_->write({memory_.get(), offset}, host, bytes));
}

core::Status Storage::read(int64_t offset, void* host, int64_t bytes) const {
  if (bytes == 0) return {};
  MITHRIL_RETURN_IF_ERROR(driver_->check_process());
  const auto lock = driver_->lock();
  return finished(driver_->read({memory_.get(), offset}, host, bytes));
}

core::Status Storage::copy(const Storage& from, int64_t offset, int64_t bytes) const {
  if (bytes == 0) return {};
  MITHRIL_RETURN_IF_ERROR(driver_->check_process());
  const auto lock = driver_->lock();
  return driver_->copy({from.memory_.get(), offset}, {memory_.get(), 0}, bytes);
}

}  // namespace mithril::device
