#include "runtime/memory_limit.h"

#include <unistd.h>

#include <gtest/gtest.h>

namespace mithril::runtime {
namespace {

TEST(MemoryLimit, IsAtMostWhatTheMachineHas) {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  EXPECT_GT(memory_limit(), 0);
  EXPECT_LE(memory_limit(), machine);
}

TEST(MemoryLimit, ReadsNumbersOnly) {
  EXPECT_EQ(parse_limit("4096\n"), 4096);
  EXPECT_EQ(parse_limit("4096"), 4096);
  for (const char* none : {"max\n", "", "-1\n", "0\n", "12x", "99999999999999999999\n"}) {
    EXPECT_EQ(parse_limit(none), std::nullopt) << none;
  }
}

TEST(MemoryLimit, GroupsAroundAGroupCountToo) {
  using Files = std::vector<std::string>;
  EXPECT_EQ(limit_files("0::/a/b\n"),
            (Files{"/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max",
                   "/sys/fs/cgroup/memory.max"}));
  EXPECT_EQ(limit_files("0::/\n"), (Files{"/sys/fs/cgroup/memory.max"}));
  EXPECT_EQ(limit_files("3:cpu:/x\n2:memory:/x\n"),
            (Files{"/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                   "/sys/fs/cgroup/memory/memory.limit_in_bytes"}));
  EXPECT_TRUE(limit_files("").empty());
  EXPECT_TRUE(limit_files("nonsense\n:\n").empty());
}

}  // namespace
}  // namespace mithril::runtime
