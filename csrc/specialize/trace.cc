#include "specialize/trace.h"

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "ir/text.h"
#include "plan/memory.h"

namespace mithril {
namespace {

void write_to_stderr(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

struct Sinks {
  std::mutex mutex;
  std::shared_ptr<const TraceSinks> current = std::make_shared<const TraceSinks>(
      TraceSinks{write_to_stderr, [](Topic, LogLevel) { return false; },
                 [](Topic, LogLevel, std::string_view) {}});
};

Sinks& process_sinks() {
  static auto* const sinks = new Sinks;  // threads may tell something while the process ends
  return *sinks;
}

std::shared_ptr<const TraceSinks> sinks() {
  const std::lock_guard lock(process_sinks().mutex);
  return process_sinks().current;
}

constexpr int kLogOnly = 6;  // MITHRIL_DEBUG ends before

std::string indented(std::string_view text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  out.resize(out.find_last_not_of(' ') + 1);
  return out;
}

}  // namespace

void set_trace_sinks(TraceSinks sinks) {
  const std::lock_guard lock(process_sinks().mutex);
  process_sinks().current = std::make_shared<const TraceSinks>(std::move(sinks));
}

passes::PipelineOptions Trace::observed(passes::PipelineOptions options,
                                        const std::shared_ptr<Trace>& trace) {
  if (!trace) return options;
  if (trace->dumps() || trace->wants(2, Topic::kPasses, LogLevel::kDebug)) {
    options.on_pass = [trace](const passes::PassRecord& record) { trace->pass(record); };
  }
  if (trace->env_.debug >= 5) {
    options.on_rewrite = [trace](std::string_view op, const core::Location& where) {
      trace->rewrite(op, where);
    };
  }
  return options;
}

// --- events -------------------------------------------------------------------------------------

void Trace::begin(std::string_view model, const ir::Target& target) {
  if (!wants(1, Topic::kPasses, LogLevel::kInfo)) return;
  say(1, Topic::kPasses, LogLevel::kInfo,
      fmt::format("compile '{}' for {} ({}, {})", ir::escape_comment(model), target.name,
                  core::short_name(target.default_float), core::short_name(target.default_int)));
}

void Trace::stage(std::string_view name, double seconds, std::string_view detail) {
  if (!wants(1, Topic::kPasses, LogLevel::kInfo)) return;
  say(1, Topic::kPasses, LogLevel::kInfo,
      fmt::format("{:<18} {:9.3f} ms  {}", name, 1e3 * seconds, detail));
}

void Trace::pass(const passes::PassRecord& record) {
  if (wants(2, Topic::kPasses, LogLevel::kDebug)) {
    say(2, Topic::kPasses, LogLevel::kDebug,
        fmt::format("  {:<16} {:9.3f} ms  {}", record.name, 1e3 * record.seconds,
                    record.changed ? "changed" : "unchanged"));
  }
  if (env_.debug >= 3 && record.changed) sinks()->write(indented(ir::print(record.graph)));
  if (!dumps()) return;
  const std::lock_guard lock(mutex_);
  const std::string file = fmt::format("{:02}_{}", graphs_++, record.name);
  dump(file + ".ir", ir::print(record.graph));
  dump(file + ".dot", ir::dot(record.graph));
}

void Trace::recomputed(const passes::Recomputed& made, double seconds) {
  stage("rematerialize", seconds,
        fmt::format("{} values again, {} to {}", made.nodes, plan::print_bytes(made.before),
                    plan::print_bytes(made.after)));
  pass({"rematerialize", seconds, made.nodes > 0, made.graph});
}

void Trace::rewrite(std::string_view op, const core::Location& where) {
  say(5, Topic::kPasses, LogLevel::kDebug,
      fmt::format("    rewrite {}{}{}", op, where.path.empty() ? "" : " of ",
                  ir::escape_comment(where.path)));
}

bool Trace::wants_source() const { return dumps() || wants(4, Topic::kCodegen, LogLevel::kDebug); }

void Trace::source(std::string_view text, std::string_view extension) {
  if (wants(4, Topic::kCodegen, LogLevel::kDebug)) {
    say(4, Topic::kCodegen, LogLevel::kDebug, fmt::format("source ({})", extension));
    if (env_.debug >= 4) sinks()->write(indented(text));
  }
  if (!dumps()) return;
  const std::lock_guard lock(mutex_);
  dump(fmt::format("kernel_{}.{}", ++sources_, extension), std::string(text));
}

void Trace::loop(std::string_view label, const tile::Program& program) {
  source(fmt::format("// {}\n{}", label, tile::print(program)), "tile");
}

void Trace::plan(const plan::Plan& plan) {
  if (wants(5, Topic::kMemory, LogLevel::kInfo)) {
    say(5, Topic::kMemory, LogLevel::kInfo,
        fmt::format("{} steps, arena {} bytes, scratch {} bytes a thread", plan.steps.size(),
                    plan.arena_bytes, plan.scratch_bytes));
  }
  if (wants(kLogOnly, Topic::kKernels, LogLevel::kDebug)) {
    for (const plan::PlannedStep& planned : plan.steps) {
      say(kLogOnly, Topic::kKernels, LogLevel::kDebug, planned.step.label);
    }
  }
  if (env_.debug >= 5) sinks()->write(indented(plan::print(plan)));
  if (!dumps()) return;
  const std::lock_guard lock(mutex_);
  const int number = ++plans_;
  dump(number == 1 ? "plan.txt" : fmt::format("plan_{}.txt", number), plan::print(plan));
}

void Trace::recompile(const std::function<std::string()>& what) {
  if (wants(1, Topic::kRecompile, LogLevel::kInfo)) {
    say(1, Topic::kRecompile, LogLevel::kInfo, what());
  }
}

void Trace::jit_denied(std::string_view text) { say(1, Topic::kCodegen, LogLevel::kInfo, text); }

// --- where it goes ------------------------------------------------------------------------------

bool Trace::wants(int debug, Topic topic, LogLevel level) const {
  return env_.debug >= debug || sinks()->listens(topic, level);
}

void Trace::say(int debug, Topic topic, LogLevel level, std::string_view text) {
  const auto to = sinks();
  if (env_.debug >= debug) to->write(fmt::format("mithril: {}\n", text));
  if (to->listens(topic, level)) to->log(topic, level, text);
}

// The first compile of a process that writes gets the folder itself, the others numbers in it.
std::string Trace::folder() {
  static std::atomic<int> count{0};
  if (folder_.empty()) {
    const int number = ++count;
    folder_ = number == 1 ? env_.dump : fmt::format("{}/{}", env_.dump, number);
  }
  return folder_;
}

void Trace::dump(const std::string& file, const std::string& text) {
  if (failed_) return;
  const std::filesystem::path path = std::filesystem::path(folder()) / file;
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (out) return;
  failed_ = true;  // said once
  sinks()->write(fmt::format("mithril: MITHRIL_DUMP: cannot write {}\n", path.string()));
}

}  // namespace mithril
