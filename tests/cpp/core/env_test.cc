#include "core/env.h"

#include <cstdlib>
#include <map>
#include <set>

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

Env parse(const std::map<std::string, std::string>& variables) {
  return parse_env([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Env, NothingSetIsQuiet) {
  const Env env = parse({});
  EXPECT_EQ(env.debug, 0);
  EXPECT_EQ(env.threads, 0);
  EXPECT_TRUE(env.jit);
  EXPECT_FALSE(env.verify || env.profile || env.poison || env.full_traceback);
  EXPECT_TRUE(env.dump.empty() && env.passes.empty() && env.log.empty());
}

TEST(Env, ReadsEveryKind) {
  const Env env = parse({{"MITHRIL_DEBUG", "3"},
                         {"MITHRIL_DUMP", "/tmp/x"},
                         {"MITHRIL_PASSES", "-fuse,+layout,,merge_common,-"},
                         {"MITHRIL_THREADS", "7"},
                         {"MITHRIL_CPU_ISA", "avx2"},
                         {"MITHRIL_JIT", "0"},
                         {"MITHRIL_LOG", "memory:debug,passes,:x,warning"},
                         {"MITHRIL_CACHE_DIR", "/tmp/objects"},
                         {"MITHRIL_POISON", "1"}});
  EXPECT_EQ(env.debug, 3);
  EXPECT_EQ(env.dump, "/tmp/x");
  ASSERT_EQ(env.passes.size(), 3u);
  EXPECT_EQ(env.passes[0].name, "fuse");
  EXPECT_FALSE(env.passes[0].on);
  EXPECT_EQ(env.passes[1].name, "layout");
  EXPECT_TRUE(env.passes[1].on);
  EXPECT_TRUE(env.passes[2].on);
  EXPECT_EQ(env.threads, 7);
  EXPECT_EQ(env.cpu_isa, "avx2");
  EXPECT_FALSE(env.jit);
  ASSERT_EQ(env.log.size(), 3u);
  EXPECT_EQ(env.log[0].level, "debug");
  EXPECT_EQ(env.log[1].topic, "passes");
  EXPECT_EQ(env.log[1].level, "info");
  EXPECT_EQ(env.log[2].topic, "");
  EXPECT_EQ(env.log[2].level, "warning");
  EXPECT_EQ(env.cache_dir, "/tmp/objects");
  EXPECT_TRUE(env.poison);
}

TEST(Env, TextThatIsNoNumberIsIgnored) {
  for (const char* text : {"", "x", "3x", "-1", "6", "99999999999999999999"}) {
    EXPECT_EQ(parse({{"MITHRIL_DEBUG", text}}).debug, 0) << text;
  }
  EXPECT_EQ(parse({{"MITHRIL_THREADS", "100000"}}).threads, 0);
  EXPECT_FALSE(parse({{"MITHRIL_VERIFY", "0"}}).verify);
}

TEST(Env, TableIsWhatIsLookedUp) {
  std::set<std::string> asked;
  parse_env([&](const char* name) -> const char* {
    asked.insert(name);
    return nullptr;
  });
  std::set<std::string> listed;
  for (const EnvVariable& row : env_table()) listed.insert(std::string(row.name));
  EXPECT_EQ(asked, listed);
  EXPECT_EQ(listed.size(), env_table().size());
}

TEST(Env, IsReadOnce) {
  const int before = env().debug;
  ::setenv("MITHRIL_DEBUG", before == 5 ? "4" : "5", 1);
  EXPECT_EQ(env().debug, before);
  ::unsetenv("MITHRIL_DEBUG");
}

}  // namespace
}  // namespace mithril::core
