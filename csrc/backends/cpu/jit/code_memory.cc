#include "backends/cpu/jit/code_memory.h"

#include <cstring>
#include <functional>
#include <unistd.h>

#include <sys/mman.h>

namespace mithril::cpu::jit {

std::shared_ptr<const CodeMemory> CodeMemory::seal(std::span<const uint8_t> code) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = (code.size() + page - 1) / page * page;
  if (size == 0) return nullptr;
  void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  std::memcpy(at, code.data(), code.size());
  if (mprotect(at, size, PROT_READ | PROT_EXEC) != 0) {
    munmap(at, size);
    return nullptr;
  }
  return std::shared_ptr<const CodeMemory>(new CodeMemory(static_cast<uint8_t*>(at), size));
}

CodeMemory::~CodeMemory() { munmap(begin_, size_); }

bool CodeMemory::contains(const void* address) const {
  const std::less<> before;
  return !before(address, begin_) && before(address, begin_ + size_);
}

}  // namespace mithril::cpu::jit
