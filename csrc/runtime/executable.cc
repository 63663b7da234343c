#include "runtime/executable.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "runtime/arena_pool.h"

namespace mithril::runtime {

using core::Code;
using core::ErrorKind;
using core::Status;
using plan::KernelArgs;
using plan::Plan;
using plan::PlannedStep;

namespace {

// Few enough for the stack in almost every step; larger ones (a wide concat) go to the heap.
constexpr size_t kOperandsOnStack = 32;

class OperandPointers {
 public:
  void resolve(const PlannedStep& step, std::span<std::byte* const> bases) {
    void** out = stack_.data();
    if (step.operands.size() > stack_.size()) {
      heap_.resize(step.operands.size());
      out = heap_.data();
    }
    for (size_t i = 0; i < step.operands.size(); ++i) {
      out[i] = bases[static_cast<size_t>(step.operands[i].base)] + step.operands[i].offset;
    }
    data_ = out;
  }
  void* const* data() const { return data_; }

 private:
  std::array<void*, kOperandsOnStack> stack_;
  std::vector<void*> heap_;
  void* const* data_ = nullptr;
};

}  // namespace

/// The pointers that addresses start from.
class Executable::Bases {
 public:
  Bases(const Plan& plan, std::byte* arena) : plan_(plan) {
    const auto count = static_cast<size_t>(plan.base_count());
    if (count > few_.size()) many_.resize(count);
    bases_ = {count > few_.size() ? many_.data() : few_.data(), count};
    bases_[Plan::kArena] = arena;
    for (size_t i = 0; i < plan.constants.size(); ++i) {
      const auto* data = plan.constants[i]->bytes.data();
      bases_[static_cast<size_t>(plan.constant_base(static_cast<int32_t>(i)))] =
          const_cast<std::byte*>(data);
    }
  }
  Bases(const Bases&) = delete;
  Bases& operator=(const Bases&) = delete;

  /// Inputs and outputs that no step reads or writes have no base.
  void set_input(size_t at, const void* data) {
    if (at >= static_cast<size_t>(plan_.input_count)) return;
    bases_[static_cast<size_t>(plan_.input_base(static_cast<int32_t>(at)))] =
        static_cast<std::byte*>(const_cast<void*>(data));
  }
  void set_output(size_t at, void* data) {
    if (at >= static_cast<size_t>(plan_.output_count)) return;
    bases_[static_cast<size_t>(plan_.output_base(static_cast<int32_t>(at)))] =
        static_cast<std::byte*>(data);
  }
  std::span<std::byte* const> get() const { return bases_; }

 private:
  const Plan& plan_;
  std::array<std::byte*, kOperandsOnStack> few_;
  std::vector<std::byte*> many_;
  std::span<std::byte*> bases_;
};

Executable::Executable(plan::Plan plan) : plan_(std::move(plan)) {
  const auto of = [](const std::shared_ptr<const plan::Plan>& inner) {
    return inner == nullptr ? nullptr : std::make_shared<const Executable>(*inner);
  };
  for (const PlannedStep& planned : plan_.steps) {
    const plan::Loop* loop = planned.step.loop.get();
    const plan::Branch* branch = planned.step.branch.get();
    has_regions_ |= loop != nullptr || branch != nullptr;
    inner_.push_back(loop != nullptr     ? Inner{of(loop->body), of(loop->condition)}
                     : branch != nullptr ? Inner{of(branch->taken), of(branch->other)}
                                         : Inner{});
  }
  Profile* const profile = Profile::process();
  if (profile == nullptr) return;
  for (const PlannedStep& planned : plan_.steps) {
    const plan::Step& step = planned.step;
    counted_.push_back({&profile->counter(step.label), plan::bytes_of(plan_, step)});
  }
}

/// The memory of a run: what steps hand to each other, and what kernels need for themselves.
class Executable::Workspace {
 public:
  Status take(const Plan& plan) {
    auto arena = take_arena(static_cast<size_t>(plan.arena_bytes));
    if (!arena.ok()) return std::move(arena).status();
    auto scratch = take_arena(plan.scratch_bytes);
    if (!scratch.ok()) return std::move(scratch).status();
    arena_ = std::move(*arena);
    scratch_ = std::move(*scratch);
    return {};
  }
  std::byte* arena() const { return arena_.data(); }
  std::byte* scratch() const { return scratch_.data(); }

 private:
  Arena arena_, scratch_;
};

Status Executable::run(std::span<const void* const> inputs, std::span<void* const> outputs,
                       const RunControl& control) const {
  Workspace workspace;
  MITHRIL_RETURN_IF_ERROR(workspace.take(plan_));
  Bases bases(plan_, workspace.arena());
  for (size_t i = 0; i < inputs.size(); ++i) bases.set_input(i, inputs[i]);
  for (size_t i = 0; i < outputs.size(); ++i) bases.set_output(i, outputs[i]);
  const ScopedFloatEnvironment environment;
  return run_steps(bases, workspace.scratch(), control);
}

Status Executable::run_steps(Bases& bases, std::byte* scratch, const RunControl& control) const {
  ThreadPool& pool = control.pool != nullptr ? *control.pool : ThreadPool::shared();
  const bool is_timed = !counted_.empty() || control.recording != nullptr;
  plan::ErrorSlot slot;
  OperandPointers pointers;
  for (size_t at = 0; at < plan_.steps.size(); ++at) {
    const PlannedStep& planned = plan_.steps[at];
    const plan::Step& step = planned.step;
    pointers.resolve(planned, bases.get());
    const int64_t start = is_timed ? now() : 0;
    if (step.loop != nullptr) {
      MITHRIL_RETURN_IF_ERROR(run_loop(at, pointers.data(), control));
    } else if (step.branch != nullptr) {
      MITHRIL_RETURN_IF_ERROR(run_branch(at, pointers.data(), control));
    } else {
      const KernelArgs args{
          pointers.data(), step.params.data(), step.scalars.data(), step.data.get(), scratch, 0,
          &slot,           control.cancel};
      const plan::KernelStatus status = run_step(step, args, control, pool);
      if (status != plan::KernelStatus::kOk || slot.set.load(std::memory_order_relaxed) != 0) {
        return failure(status, at, slot);
      }
    }
    if (is_timed) note(at, start, control, pool);
  }
  return {};
}

void Executable::note(size_t at, int64_t start, const RunControl& control,
                      const ThreadPool& pool) const {
  const int64_t elapsed = now() - start;
  if (!counted_.empty()) counted_[at].counter->add(elapsed, counted_[at].bytes);
  if (control.recording == nullptr) return;
  const plan::Step& step = plan_.steps[at].step;
  const int64_t chunks = (step.units + step.grain - 1) / std::max<int64_t>(step.grain, 1);
  const int64_t threads = std::clamp<int64_t>(chunks, 1, pool.thread_count());
  control.recording->add({&plan_, static_cast<int32_t>(at), static_cast<int32_t>(threads),
                          thread_id(), start, elapsed});
}

namespace {

/// Where the carries of a loop are: each in two places, which steps read and write in turn.
class Carries {
 public:
  Carries(const plan::Loop& loop, void* const* before, void* const* results)
      : loop_(loop), before_(before), results_(results) {}

  Status take_memory() {
    size_t bytes = 0;
    for (const int64_t carry : loop_.carry_bytes) bytes += rounded(carry);
    auto spare = take_arena(bytes);
    if (!spare.ok()) return std::move(spare).status();
    spare_ = std::move(*spare);
    std::byte* at = spare_.data();
    for (const int64_t carry : loop_.carry_bytes) {
      places_.push_back(at);
      at += rounded(carry);
    }
    return {};
  }

  /// What step `number` of the loop reads and writes. The last of `length` steps writes results.
  const void* read(size_t i, int64_t number) const {
    return number == 0 ? before_[i] : write(i, number - 1);
  }
  void* write(size_t i, int64_t number) const {
    return (loop_.length - 1 - number) % 2 == 0 ? results_[i] : places_[i];
  }
  /// After `steps` steps, of which nobody knew that there would be no more: results are in place.
  void finish(int64_t steps) const {
    for (size_t i = 0; i < places_.size(); ++i) {
      const void* last = read(i, steps);
      if (last == results_[i]) continue;
      std::memcpy(results_[i], last, static_cast<size_t>(loop_.carry_bytes[i]));
    }
  }

 private:
  static size_t rounded(int64_t bytes) { return (static_cast<size_t>(bytes) + 63) / 64 * 64; }

  const plan::Loop& loop_;
  void* const* before_;
  void* const* results_;
  Arena spare_;
  std::vector<std::byte*> places_;
};

void* place(void* base, int64_t at, int64_t bytes) {
  return static_cast<std::byte*>(base) + at * bytes;
}

}  // namespace

// One arena for all steps: nothing is allocated between them.
Status Executable::run_loop(size_t at, void* const* operands, const RunControl& control) const {
  const plan::Loop& loop = *plan_.steps[at].step.loop;
  const Executable &body = *inner_[at].first, *condition = inner_[at].second.get();
  const size_t carries = loop.carry_bytes.size(), xs = loop.x_bytes.size();
  const size_t inputs = carries + xs + static_cast<size_t>(loop.constants);
  Workspace workspace, asking;
  MITHRIL_RETURN_IF_ERROR(workspace.take(body.plan_));
  Bases bases(body.plan_, workspace.arena());
  std::optional<Bases> asked;
  bool go = true;
  if (condition != nullptr) {
    MITHRIL_RETURN_IF_ERROR(asking.take(condition->plan_));
    asked.emplace(condition->plan_, asking.arena());
    asked->set_output(0, &go);
  }
  Carries carry(loop, operands, operands + inputs);
  MITHRIL_RETURN_IF_ERROR(carry.take_memory());
  for (size_t i = carries + xs; i < inputs; ++i) {
    bases.set_input(i, operands[i]);
    if (asked) asked->set_input(i, operands[i]);
  }
  int64_t number = 0;
  for (; asked || number < loop.length; ++number) {
    if (asked) {
      for (size_t i = 0; i < carries; ++i) asked->set_input(i, carry.read(i, number));
      MITHRIL_RETURN_IF_ERROR(condition->run_steps(*asked, asking.scratch(), control));
      if (!go) break;
    }
    const int64_t here = loop.reverse ? loop.length - 1 - number : number;
    for (size_t i = 0; i < carries; ++i) {
      bases.set_input(i, carry.read(i, number));
      bases.set_output(i, carry.write(i, number));
    }
    for (size_t i = 0; i < xs; ++i) {
      bases.set_input(carries + i, place(operands[carries + i], here, loop.x_bytes[i]));
    }
    for (size_t i = 0; i < loop.y_bytes.size(); ++i) {
      bases.set_output(carries + i, place(operands[inputs + carries + i], here, loop.y_bytes[i]));
    }
    MITHRIL_RETURN_IF_ERROR(body.run_steps(bases, workspace.scratch(), control));
    const bool cancelled = control.cancel != nullptr && control.cancel->load();
    if (cancelled) return failure(plan::KernelStatus::kCancelled, at, {});
  }
  carry.finish(number);
  return {};
}

Status Executable::run_branch(size_t at, void* const* operands, const RunControl& control) const {
  const plan::Branch& branch = *plan_.steps[at].step.branch;
  const auto inputs = static_cast<size_t>(branch.inputs);
  const bool is_taken = *static_cast<const bool*>(operands[inputs]);
  const Executable& chosen = is_taken ? *inner_[at].first : *inner_[at].second;
  Workspace workspace;
  MITHRIL_RETURN_IF_ERROR(workspace.take(chosen.plan_));
  Bases bases(chosen.plan_, workspace.arena());
  for (size_t i = 0; i < inputs; ++i) bases.set_input(i, operands[i]);
  const size_t outputs = plan_.steps[at].step.operands.size() - inputs - 1;
  for (size_t i = 0; i < outputs; ++i) bases.set_output(i, operands[inputs + 1 + i]);
  return chosen.run_steps(bases, workspace.scratch(), control);
}

plan::KernelStatus Executable::run_step(const plan::Step& step, const KernelArgs& args,
                                        const RunControl& control, ThreadPool& pool) const {
  if (step.units > step.grain) {
    const RunOptions options{step.scratch_bytes, control.cancel, control.poll,
                             control.poll_context};
    return pool.run_kernel(step.kernel, args, step.units, step.grain, options);
  }
  if (control.poll != nullptr) control.poll(control.poll_context);
  const bool cancelled = control.cancel != nullptr && control.cancel->load();
  return cancelled ? plan::KernelStatus::kCancelled : step.kernel(args, 0, step.units);
}

Status Executable::failure(plan::KernelStatus status, size_t at,
                           const plan::ErrorSlot& slot) const {
  const plan::Step& step = plan_.steps[at].step;
  core::Error error;
  if (slot.set.load() != 0 && slot.what != plan::BadData::kIndex) {
    error = core::fail(
        ErrorKind::kValue, Code::kValueArgument, "{}: a matrix is {}", step.label,
        slot.what == plan::BadData::kSingular ? "singular" : "not positive definite");
  } else if (slot.set.load() != 0) {
    error = core::fail(ErrorKind::kIndex, Code::kIndexBounds,
                       "index {} is out of bounds for an axis of size {}", slot.value, slot.bound);
  } else if (status == plan::KernelStatus::kCancelled) {
    error = core::fail(ErrorKind::kInterrupted, Code::kInterrupted, "interrupted");
  } else if (status == plan::KernelStatus::kNoMemory) {
    error = core::fail(ErrorKind::kMemory, Code::kOutOfMemory, "{}: no memory for scratch space",
                       step.label);
  } else {
    error = core::fail(ErrorKind::kInternal, Code::kInternal,
                       "kernel {} failed; this is a bug in mithril", step.label);
  }
  error.location = step.location;
  return error;
}

}  // namespace mithril::runtime
