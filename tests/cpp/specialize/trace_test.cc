// Covers: compile.cc
#include "specialize/trace.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "ir/text.h"

namespace mithril {
namespace {

constexpr std::string_view kText = R"(graph m<f32, i64>(%x: f32[4], %w: f32[4] param) {
  %0 = multiply(%x, %w) : f32[4]
  return y=%0
}
)";

/// What a trace says while it lives; the process's sinks are put back to silence.
struct Heard {
  std::string written;
  std::vector<std::pair<Topic, std::string>> logged;
  explicit Heard(bool listens) {
    set_trace_sinks({[this](std::string_view text) { written += text; },
                     [listens](Topic, LogLevel) { return listens; },
                     [this](Topic topic, LogLevel, std::string_view text) {
                       logged.emplace_back(topic, text);
                     }});
  }
  ~Heard() {
    set_trace_sinks({[](std::string_view) {}, [](Topic, LogLevel) { return false; },
                     [](Topic, LogLevel, std::string_view) {}});
  }
};

core::Env env(int debug, std::string dump = {}) {
  core::Env out;
  out.debug = debug;
  out.dump = std::move(dump);
  return out;
}

ir::Graph graph() { return std::move(ir::parse(kText)).or_throw(); }

void tell(Trace& trace) {
  trace.begin("m", ir::Target{});
  trace.stage("flatten", 0.001, "1 nodes");
  trace.pass({"decompose", 0.001, true, graph()});
  trace.source("text\n", "py");
  trace.plan(plan::Plan{});
  trace.recompile([] { return std::string("again"); });
}

TEST(Trace, IsSilentAtFirst) {
  Heard heard(false);
  const core::Env quiet = env(0);
  Trace trace(quiet);
  tell(trace);
  trace.recompile([]() -> std::string {
    ADD_FAILURE() << "nobody listens";
    return "";
  });
  EXPECT_EQ(heard.written, "");
  EXPECT_TRUE(heard.logged.empty());
  EXPECT_FALSE(Trace::observed({}, std::make_shared<Trace>(quiet)).on_pass);
}

TEST(Trace, EachLevelSaysMore) {
  const char* const marks[] = {"flatten", "decompose", "multiply", "text", "plan:"};
  for (int level = 1; level <= 5; ++level) {
    Heard heard(false);
    const core::Env loud = env(level);
    Trace trace(loud);
    tell(trace);
    for (int i = 1; i <= 5; ++i) {
      EXPECT_EQ(heard.written.find(marks[i - 1]) != std::string::npos, i <= level)
          << level << ": " << heard.written;
    }
  }
}

TEST(Trace, LogsUnderTopics) {
  Heard heard(true);
  const core::Env quiet = env(0);
  Trace trace(quiet);
  tell(trace);
  EXPECT_EQ(heard.written, "");
  std::set<Topic> topics;
  for (const auto& [topic, text] : heard.logged) topics.insert(topic);
  EXPECT_EQ(topics,
            (std::set<Topic>{Topic::kPasses, Topic::kMemory, Topic::kCodegen, Topic::kRecompile}));
}

TEST(Trace, DumpsWhatParsesAgain) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "mithril_trace_test";
  std::filesystem::remove_all(folder);
  Heard heard(false);
  const core::Env dumping = env(0, folder.string());
  Trace trace(dumping);
  tell(trace);
  std::stringstream text;
  text << std::ifstream(folder / "00_decompose.ir").rdbuf();
  EXPECT_EQ(text.str(), ir::print(graph()));
  for (const char* file : {"00_decompose.dot", "kernel_1.py", "plan.txt"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / file)) << file;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mithril
