#include "backends/cpu/jit/code_memory.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace mithril::cpu::jit {
namespace {

TEST(CodeMemory, NothingIsNoCode) { EXPECT_EQ(CodeMemory::seal({}), nullptr); }

#if defined(__x86_64__)

// lea eax, [rdi + 1]; ret
const std::vector<uint8_t> kAddOne = {0x8d, 0x47, 0x01, 0xc3};

TEST(CodeMemory, RunsWhatWasWritten) {
  const auto code = CodeMemory::seal(kAddOne);
  ASSERT_NE(code, nullptr);
  const auto add_one = code->function<int (*)(int)>();
  EXPECT_EQ(add_one(41), 42);
  EXPECT_TRUE(code->contains(reinterpret_cast<const void*>(add_one)));
  EXPECT_FALSE(code->contains(kAddOne.data()));
}

TEST(CodeMemory, FunctionsStandAtOffsets) {
  std::vector<uint8_t> two = kAddOne;
  two.insert(two.end(), {0x8d, 0x47, 0x02, 0xc3});
  const auto code = CodeMemory::seal(two);
  ASSERT_NE(code, nullptr);
  EXPECT_EQ(code->function<int (*)(int)>(4)(40), 42);
}

// What the system says of the mapping: readable, executable, not writable, private.
std::string protection_of(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string protection;
    words >> std::hex >> begin >> dash >> end >> protection;
    if (begin <= wanted && wanted < end) return protection;
  }
  return "unmapped";
}

TEST(CodeMemory, IsNeverWritableAndExecutable) {
  auto code = CodeMemory::seal(kAddOne);
  ASSERT_NE(code, nullptr);
  const auto* const at = code->function<const void*>();
  EXPECT_EQ(protection_of(at), "r-xp");
}

#endif

}  // namespace
}  // namespace mithril::cpu::jit
