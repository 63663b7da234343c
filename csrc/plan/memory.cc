#include "plan/memory.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "core/checked.h"

namespace mithril::plan {
namespace {

using core::Code;
using core::ErrorKind;

// No sum is more than the largest number: that is more than any machine has.
int64_t sum(int64_t a, int64_t b) { return core::checked_add(a, b).value_or(INT64_MAX); }

// Of a plan that a step runs: all that it allocates but its outputs, which are the step's.
int64_t own_bytes(const Plan& plan);

int64_t region_bytes(const Step& step) {
  if (step.branch != nullptr) {
    return std::max(own_bytes(*step.branch->taken), own_bytes(*step.branch->other));
  }
  if (step.loop == nullptr) return 0;
  int64_t bytes = own_bytes(*step.loop->body);
  if (step.loop->condition.is_there()) bytes = sum(bytes, own_bytes(*step.loop->condition));
  for (const int64_t carry : step.loop->carry_bytes) bytes = sum(bytes, carry);  // a second place
  return bytes;
}

int64_t most_region_bytes(const Plan& plan) {
  int64_t most = 0;
  for (const PlannedStep& planned : plan.steps) most = std::max(most, region_bytes(planned.step));
  return most;
}

int64_t own_bytes(const Plan& plan) {
  return sum(sum(plan.arena_bytes, static_cast<int64_t>(plan.scratch_bytes)),
             most_region_bytes(plan));
}

/// Holds when the buffers of the arena are in use, and where they lie.
class Timeline {
 public:
  explicit Timeline(const Plan& plan) : plan_(plan), lives_(plan.buffers.size()) {
    for (size_t at = 0; at < plan.steps.size(); ++at) note(static_cast<int32_t>(at));
  }

  /// Buffers in use at a step. An operand whose bytes the step's output takes over is left out.
  std::vector<BufferId> at(int32_t step) const {
    std::vector<BufferId> out;
    for (size_t i = 0; i < lives_.size(); ++i) {
      const auto id = static_cast<BufferId>(i);
      if (is_alive(id, step) && !is_taken_over(id, step)) out.push_back(id);
    }
    return out;
  }

  std::vector<int64_t> bytes() const {
    std::vector<int64_t> change(plan_.steps.size() + 1, 0), out;
    for (size_t i = 0; i < lives_.size(); ++i) {
      const auto id = static_cast<BufferId>(i);
      const Life& life = lives_[i];
      if (life.first < 0) continue;
      const int32_t end = is_taken_over(id, life.last) ? life.last : life.last + 1;
      change[static_cast<size_t>(life.first)] += plan_.buffers[i].bytes;
      change[static_cast<size_t>(end)] -= plan_.buffers[i].bytes;
    }
    int64_t live = 0;
    for (size_t at = 0; at < plan_.steps.size(); ++at) {
      live += change[at];
      out.push_back(sum(live, region_bytes(plan_.steps[at].step)));
    }
    return out;
  }

  int32_t writer(BufferId id) const { return lives_[static_cast<size_t>(id)].first; }

 private:
  struct Life {
    int32_t first = -1, last = -1;
    int64_t offset = 0;
  };

  void note(int32_t at) {
    const PlannedStep& planned = plan_.steps[static_cast<size_t>(at)];
    for (size_t i = 0; i < planned.operands.size(); ++i) {
      const OperandRef& use = planned.step.operands[i];
      if (plan_.buffers[static_cast<size_t>(use.buffer)].kind != BufferSpec::Kind::kTemporary)
        continue;
      Life& life = lives_[static_cast<size_t>(use.buffer)];
      life.last = at;
      if (life.first >= 0) continue;
      life.first = at;
      life.offset = planned.operands[i].offset - use.offset;
    }
  }

  bool is_alive(BufferId id, int32_t step) const {
    const Life& life = lives_[static_cast<size_t>(id)];
    return life.first >= 0 && life.first <= step && step <= life.last;
  }

  // By an output of that step, which begins where the buffer did.
  bool is_taken_over(BufferId id, int32_t step) const {
    const Life& life = lives_[static_cast<size_t>(id)];
    if (life.last != step || life.first == step) return false;
    const std::vector<OperandRef>& uses = plan_.steps[static_cast<size_t>(step)].step.operands;
    for (auto use = uses.rbegin(); use != uses.rend() && use->write; ++use) {  // outputs come last
      const Life& other = lives_[static_cast<size_t>(use->buffer)];
      if (other.first == step && other.offset == life.offset) return true;
    }
    return false;
  }

  const Plan& plan_;
  std::vector<Life> lives_;  // by buffer; first -1: not in the arena
};

std::vector<Contributor> contributors(const Plan& plan, const Timeline& timeline, int32_t step) {
  std::vector<Contributor> out;
  for (const BufferId id : timeline.at(step)) {
    out.push_back({id, plan.buffers[static_cast<size_t>(id)].bytes, timeline.writer(id)});
  }
  const int64_t region = region_bytes(plan.steps[static_cast<size_t>(step)].step);
  if (region > 0) out.push_back({-1, region, step});
  std::stable_sort(out.begin(), out.end(),
                   [](const Contributor& a, const Contributor& b) { return a.bytes > b.bytes; });
  return out;
}

/// All but what is in use when.
MemoryUse totals(const Plan& plan) {
  MemoryUse out;
  out.arena = plan.arena_bytes;
  out.regions = most_region_bytes(plan);
  out.scratch = static_cast<int64_t>(plan.scratch_bytes);
  for (const BufferSpec& buffer : plan.buffers) {
    if (buffer.kind == BufferSpec::Kind::kInput) out.inputs = sum(out.inputs, buffer.bytes);
    if (buffer.kind == BufferSpec::Kind::kOutput) out.outputs = sum(out.outputs, buffer.bytes);
    if (buffer.kind == BufferSpec::Kind::kConstant)
      out.constants = sum(out.constants, buffer.bytes);
  }
  return out;
}

}  // namespace

int64_t MemoryUse::allocated() const { return sum(sum(arena, regions), sum(scratch, outputs)); }

std::vector<int64_t> live_bytes(const Plan& plan) { return Timeline(plan).bytes(); }

MemoryUse memory_use(const Plan& plan) {
  MemoryUse out = totals(plan);
  if (plan.steps.empty()) return out;
  const Timeline timeline(plan);
  const std::vector<int64_t> live = timeline.bytes();
  out.peak_step = static_cast<int32_t>(std::max_element(live.begin(), live.end()) - live.begin());
  out.live = live[static_cast<size_t>(out.peak_step)];
  out.contributors = contributors(plan, timeline, out.peak_step);
  return out;
}

std::string print_bytes(int64_t bytes) {
  constexpr std::array kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  auto value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  for (; value >= 999.95 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

namespace {

// "360.0 GB float32[300000, 300000] of gemm in 'net.a'".
std::string describe(const Plan& plan, const BufferSpec& buffer, int32_t writer) {
  std::string out = fmt::format("{} {}[{}]", print_bytes(buffer.bytes), core::name(buffer.dtype),
                                fmt::join(buffer.shape, ", "));
  if (writer >= 0) out += " of " + plan.steps[static_cast<size_t>(writer)].step.label;
  if (!buffer.path.empty()) out += " in '" + buffer.path + "'";
  return out;
}

// The step that writes an output first.
int32_t writer_of(const Plan& plan, BufferId id) {
  for (size_t at = 0; at < plan.steps.size(); ++at) {
    for (const OperandRef& use : plan.steps[at].step.operands) {
      if (use.write && use.buffer == id) return static_cast<int32_t>(at);
    }
  }
  return -1;
}

/// The largest of what is in the arena at its peak, and of the outputs.
std::vector<Contributor> largest(const Plan& plan, const MemoryUse& use, size_t most) {
  std::vector<Contributor> out = use.contributors;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    if (plan.buffers[i].kind != BufferSpec::Kind::kOutput) continue;
    const auto id = static_cast<BufferId>(i);
    out.push_back({id, plan.buffers[i].bytes, writer_of(plan, id)});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Contributor& a, const Contributor& b) { return a.bytes > b.bytes; });
  if (out.size() > most) out.resize(most);
  return out;
}

// "a run at these sizes takes 2.0 GB (1.5 GB of intermediates, 0.5 GB of outputs)".
std::string describe(const MemoryUse& use) {
  return fmt::format("a run at these sizes takes {} ({} of intermediates, {} of outputs)",
                     print_bytes(use.allocated()), print_bytes(use.allocated() - use.outputs),
                     print_bytes(use.outputs));
}

void list_largest(const Plan& plan, const MemoryUse& use, core::Error& error) {
  constexpr size_t kShown = 3;
  for (const Contributor& one : largest(plan, use, kShown)) {
    const std::string text =
        one.buffer >= 0 ? describe(plan, plan.buffers[static_cast<size_t>(one.buffer)], one.writer)
                        : fmt::format("{} inside of {}", print_bytes(one.bytes),
                                      plan.steps[static_cast<size_t>(one.writer)].step.label);
    error.message += "\n  " + text;
  }
}

}  // namespace

core::Status check_memory(const Plan& plan, const Limit& limit) {
  if (totals(plan).allocated() <= limit.bytes) return {};
  const MemoryUse use = memory_use(plan);
  core::Error error = core::fail(ErrorKind::kMemory, Code::kOutOfMemory, "memory: {}, {} {}",
                                 describe(use), limit.text, print_bytes(limit.bytes));
  list_largest(plan, use, error);
  error.hint = limit.hint;
  return error;
}

void name_largest(const Plan& plan, core::Error& error) {
  const MemoryUse use = memory_use(plan);
  error.message += "; " + describe(use);
  list_largest(plan, use, error);
}

}  // namespace mithril::plan
