// What the engine tells of its work: the one place that writes debug output (MITHRIL_DEBUG,
// MITHRIL_DUMP) and log records (MITHRIL_LOG, or loggers that a program set up itself).
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/env.h"
#include "ir/graph.h"
#include "ir/target.h"
#include "passes/pipeline.h"
#include "passes/rematerialize.h"
#include "plan/plan.h"
#include "tile/program.h"

namespace mithril {

enum class Topic : uint8_t { kPasses, kMemory, kCodegen, kRecompile, kKernels };
enum class LogLevel : uint8_t { kDebug, kInfo };

/// Holds where text goes. Called from any thread, never from two at once for one trace.
struct TraceSinks {
  std::function<void(std::string_view text)> write;  // whole lines; stderr at first
  std::function<bool(Topic, LogLevel)> listens;
  std::function<void(Topic, LogLevel, std::string_view text)> log;
};
/// For the whole process; the binding makes them Python's.
void set_trace_sinks(TraceSinks sinks);

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The report of one compile and of what is made of it later. Every event costs a look at who
/// listens; texts are made only if somebody does.
class Trace {
 public:
  explicit Trace(const core::Env& env = core::env()) : env_(env) {}

  /// `options` with observers that tell this trace, where somebody listens.
  static passes::PipelineOptions observed(passes::PipelineOptions options,
                                          const std::shared_ptr<Trace>& trace);

  void begin(std::string_view model, const ir::Target& target);
  void stage(std::string_view name, double seconds, std::string_view detail = {});
  void pass(const passes::PassRecord& record);
  void recomputed(const passes::Recomputed& made, double seconds);
  bool wants_source() const;
  void source(std::string_view text, std::string_view extension);
  void loop(std::string_view label, const tile::Program& program);
  void plan(const plan::Plan& plan);
  void recompile(const std::function<std::string()>& what);
  /// Something that the machine denies, and what happens instead.
  void jit_denied(std::string_view text);

 private:
  bool wants(int debug, Topic topic, LogLevel level) const;
  bool dumps() const { return !env_.dump.empty(); }
  void say(int debug, Topic topic, LogLevel level, std::string_view text);
  void rewrite(std::string_view op, const core::Location& where);
  void dump(const std::string& file, const std::string& text);
  std::string folder();

  const core::Env& env_;
  std::mutex mutex_;
  std::string folder_;
  bool failed_ = false;
  int graphs_ = 0, sources_ = 0, plans_ = 0;
};

}  // namespace mithril
