// Shared by NVIDIA's libraries: how they are opened, objects of theirs, memory that they work in,
// calls that are ready.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "backends/cuda/api.h"
#include "backends/device/driver.h"

namespace mithril::cuda {

/// Opens the first library that `open(path)` takes; an error of its own, with the reasons of all,
/// where there is none.
template <class Library, class Open>
core::Result<Library> open_first(const char* name, const std::vector<std::string>& paths,
                                 const Open& open) {
  std::vector<std::string> reasons;
  for (const std::string& path : paths) {
    core::Result<Library> one = open(path);
    if (one.ok()) return one;
    reasons.push_back(one.error().message);
  }
  return core::fail(core::ErrorKind::kDevice, core::Code::kDevice, "CUDA: no {}: {}", name,
                    fmt::join(reasons, "; "));
}

/// Says why a library at a path cannot be used.
template <class... Arguments>
core::Error unusable(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  return core::fail(core::ErrorKind::kDevice, core::Code::kDevice, text,
                    std::forward<Arguments>(arguments)...);
}

/// An object of a library, which is given back.
template <class Handle>
class LibraryObject {
 public:
  using Destroy = int (*)(Handle);
  LibraryObject() = default;
  LibraryObject(LibraryObject&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)),
        destroy_(other.destroy_),
        destroy_symbol_(other.destroy_symbol_) {}
  LibraryObject& operator=(LibraryObject&&) = delete;
  ~LibraryObject() {
    if (handle_ == nullptr) return;
    device::give_back(destroy_, destroy_symbol_, handle_);
    device::count_object(-1);
  }
  template <class Create, class... Arguments>
  core::Status make(Create create, const char* symbol, Destroy destroy, const char* destroy_symbol,
                    Arguments... arguments) {
    destroy_ = destroy;
    destroy_symbol_ = destroy_symbol;
    MITHRIL_RETURN_IF_ERROR(call(create, symbol, &handle_, arguments...));
    device::count_object(1);
    return {};
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
  Destroy destroy_ = nullptr;
  const char* destroy_symbol_ = "";
};

/// The number 0 or 1 as libraries read it, in the type of their sums.
inline const void* scale_of(int number, bool is_double) {
  static constexpr double kDoubles[] = {0, 1};
  static constexpr float kFloats[] = {0, 1};
  return is_double ? static_cast<const void*>(&kDoubles[number]) : &kFloats[number];
}

inline void* pointer_to(cu_pointer place) { return reinterpret_cast<void*>(place); }

/// Memory of the device in which libraries work, one call after another.
struct Workspace {
  std::shared_ptr<const device::Memory> memory;
  cu_pointer at = 0;
};
/// Gives a workspace of at least so many bytes.
using TakeWorkspace = std::function<core::Result<Workspace>(int64_t bytes)>;

/// A call of a library that is ready to be made, as often as somebody wants. It keeps its
/// workspace: graphs of CUDA know where that is.
class LibraryCall : public device::PreparedProduct {
 public:
  /// Enqueues it. The device's context is the current one; `operands` are those of
  /// device::Driver::multiply.
  virtual core::Status enqueue(std::span<const cu_pointer> operands, cu_stream stream) const = 0;
};
using LibraryCallPtr = std::unique_ptr<const LibraryCall>;

}  // namespace mithril::cuda
