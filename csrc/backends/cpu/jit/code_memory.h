// Memory for machine code that is made at run time: written once, then sealed for execution.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace mithril::cpu::jit {

/// Sealed machine code, in a private mapping that is never writable again. Freed with its last
/// owner, so whoever may still call it holds it.
class CodeMemory {
 public:
  /// A copy of `code`, which must run wherever it stands. Null where the system refuses executable
  /// memory (or any): callers then do without.
  static std::shared_ptr<const CodeMemory> seal(std::span<const uint8_t> code);

  ~CodeMemory();
  CodeMemory(const CodeMemory&) = delete;
  CodeMemory& operator=(const CodeMemory&) = delete;

  bool contains(const void* address) const;
  /// The function that begins `offset` bytes into the code.
  template <class Function>
  Function function(size_t offset = 0) const {
    return reinterpret_cast<Function>(begin_ + offset);
  }

 private:
  CodeMemory(uint8_t* begin, size_t size) : begin_(begin), size_(size) {}

  uint8_t* begin_;
  size_t size_;  // of the mapping
};

}  // namespace mithril::cpu::jit
