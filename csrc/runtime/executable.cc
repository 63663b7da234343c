#include "runtime/executable.h"

#include <algorithm>
#include <cstring>

#include "plan/cost.h"
#include "runtime/arena_pool.h"

namespace mithril::runtime {

using core::Code;
using core::ErrorKind;
using core::Status;
using plan::KernelArgs;
using plan::Plan;
using plan::PlannedStep;

core::Error index_error(int64_t value, int64_t bound, const core::Location& location) {
  core::Error error = core::fail(ErrorKind::kIndex, Code::kIndexBounds,
                                 "index {} is out of bounds for an axis of size {}", value, bound);
  error.location = location;
  return error;
}

namespace {

// Handing work to other threads and waiting for them takes some microseconds.
constexpr double kWorthThreads = 10'000;
// Letting another thread of Python in may cost a switch, and its whole turn if it is busy.
constexpr double kBrief = 20'000;
constexpr double kBetweenPolls = 100'000;  // estimated: the truth may be a hundred times as much

// With work that is not known the grain alone decides.
bool is_worth_threads(const plan::Step& step, double nanoseconds) {
  return step.units > step.grain && (step.nanoseconds == 0 || nanoseconds >= kWorthThreads);
}

size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

HostExecutable::HostExecutable(plan::Plan plan) : plan_(std::move(plan)) {
  const auto of = [](const std::shared_ptr<const plan::Plan>& inner) {
    return inner == nullptr ? nullptr : std::make_shared<const HostExecutable>(*inner);
  };
  for (const PlannedStep& planned : plan_.steps) {
    const plan::RegionLoop* loop = planned.step.loop.get();
    const plan::Branch* branch = planned.step.branch.get();
    inner_.push_back(loop != nullptr     ? Inner{of(loop->body.plan), of(loop->condition.plan)}
                     : branch != nullptr ? Inner{of(branch->taken.plan), of(branch->other.plan)}
                                         : Inner{});
    add_dispatch(planned);
  }
  double nanoseconds = 0;
  for (const Dispatch& step : dispatch_) nanoseconds += step.nanoseconds;
  is_brief_ = nanoseconds < kBrief;
  Profile* const profile = Profile::process();
  if (profile == nullptr) return;
  for (const PlannedStep& planned : plan_.steps) {
    const plan::Step& step = planned.step;
    counted_.push_back({&profile->counter(step.label), plan::bytes_of(plan_, step)});
  }
}

void HostExecutable::add_dispatch(const PlannedStep& planned) {
  const plan::Step& step = planned.step;
  const bool runs = step.kernel != nullptr || step.loop != nullptr || step.branch != nullptr;
  MITHRIL_CHECK(runs, "{}: its backend gave no kernel for the host", step.label);
  const double nanoseconds = plan::nanoseconds_of(plan_, step);
  dispatch_.push_back({step.kernel, step.params.data(), step.scalars.data(), step.data.get(),
                       step.units, step.grain, step.scratch_bytes, addresses_.size(), nanoseconds,
                       is_worth_threads(step, nanoseconds)});
  addresses_.insert(addresses_.end(), planned.operands.begin(), planned.operands.end());
}

/// The memory of a run, in one block: the arena, what kernels need for themselves, the pointers
/// that addresses start from, and those of all operands.
class HostExecutable::Frame {
 public:
  Status take(const HostExecutable& executable) {
    const Plan& plan = executable.plan_;
    const size_t arena = round_up(static_cast<size_t>(plan.arena_bytes));
    const size_t scratch = round_up(plan.scratch_bytes);
    const auto bases = static_cast<size_t>(plan.base_count());
    const size_t pointers = (bases + executable.addresses_.size()) * sizeof(void*);
    auto block = take_arena(arena + scratch + pointers);
    if (!block.ok()) return std::move(block).status();
    block_ = std::move(*block);
    executable_ = &executable;
    scratch_ = block_.data() + arena;
    bases_ = reinterpret_cast<std::byte**>(scratch_ + scratch);
    operands_ = reinterpret_cast<void**>(bases_ + bases);
    bases_[Plan::kArena] = block_.data();
    for (size_t i = 0; i < plan.constants.size(); ++i) {
      const auto* data = plan.constants[i]->bytes.data();
      bases_[plan.constant_base(static_cast<int32_t>(i))] = const_cast<std::byte*>(data);
    }
    return {};
  }

  /// Inputs and outputs that no step reads or writes have no base.
  void set_input(size_t at, const void* data) {
    if (at >= static_cast<size_t>(plan().input_count)) return;
    bases_[plan().input_base(static_cast<int32_t>(at))] =
        static_cast<std::byte*>(const_cast<void*>(data));
  }
  void set_output(size_t at, void* data) {
    if (at >= static_cast<size_t>(plan().output_count)) return;
    bases_[plan().output_base(static_cast<int32_t>(at))] = static_cast<std::byte*>(data);
  }

  /// Once inputs and outputs are set: where the operands of all steps are.
  void* const* resolve() {
    const std::vector<plan::Address>& addresses = executable_->addresses_;
    for (size_t i = 0; i < addresses.size(); ++i) {
      operands_[i] = bases_[addresses[i].base] + addresses[i].offset;
    }
    return operands_;
  }
  std::byte* scratch() const { return scratch_; }

 private:
  const Plan& plan() const { return executable_->plan_; }

  const HostExecutable* executable_ = nullptr;
  Arena block_;
  std::byte* scratch_ = nullptr;
  std::byte** bases_ = nullptr;
  void** operands_ = nullptr;
};

Status HostExecutable::run(std::span<const void* const> inputs, std::span<void* const> outputs,
                           const RunControl& control) const {
  Frame frame;
  MITHRIL_RETURN_IF_ERROR(frame.take(*this));
  for (size_t i = 0; i < inputs.size(); ++i) frame.set_input(i, inputs[i]);
  for (size_t i = 0; i < outputs.size(); ++i) frame.set_output(i, outputs[i]);
  const core::ScopedInterrupt interrupt({control.cancel, control.poll, control.poll_context});
  const ScopedFloatEnvironment environment;
  return run_steps(frame, control);
}

Status HostExecutable::run_steps(Frame& frame, const RunControl& control) const {
  ThreadPool& pool = control.pool != nullptr ? *control.pool : ThreadPool::shared();
  const bool is_timed = !counted_.empty() || control.recording != nullptr;
  void* const* const operands = frame.resolve();
  plan::ErrorSlot slot;
  double unpolled = 0;
  for (size_t at = 0; at < dispatch_.size(); ++at) {
    const Dispatch& step = dispatch_[at];
    unpolled += step.nanoseconds;
    if (unpolled > kBetweenPolls && control.poll != nullptr) {
      control.poll(control.poll_context);
      unpolled = 0;
    }
    const int64_t start = is_timed ? now() : 0;
    void* const* const own = operands + step.first_operand;
    if (step.kernel == nullptr) {
      MITHRIL_RETURN_IF_ERROR(run_region(at, own, control));
    } else {
      const KernelArgs args{own, step.params, step.scalars,  step.data, frame.scratch(),
                            0,   &slot,       control.cancel};
      const plan::KernelStatus status = run_kernel(step, args, control, pool);
      if (status != plan::KernelStatus::kOk || slot.set.load(std::memory_order_relaxed) != 0) {
        return failure(status, at, slot);
      }
    }
    if (is_timed) note(at, start, control, pool);
  }
  return {};
}

plan::KernelStatus HostExecutable::run_kernel(const Dispatch& step, const KernelArgs& args,
                                              const RunControl& control, ThreadPool& pool) {
  if (step.is_shared) {
    const RunOptions options{step.scratch_bytes, control.cancel, control.poll,
                             control.poll_context};
    return pool.run_kernel(step.kernel, args, step.units, step.grain, options);
  }
  const auto is_cancelled = [&] { return control.cancel != nullptr && control.cancel->load(); };
  if (is_cancelled()) return plan::KernelStatus::kCancelled;
  const plan::KernelStatus status = step.kernel(args, 0, step.units);
  return is_cancelled() ? plan::KernelStatus::kCancelled : status;
}

Status HostExecutable::run_region(size_t at, void* const* operands,
                                  const RunControl& control) const {
  const bool is_loop = plan_.steps[at].step.loop != nullptr;
  return is_loop ? run_loop(at, operands, control) : run_branch(at, operands, control);
}

void HostExecutable::note(size_t at, int64_t start, const RunControl& control,
                          const ThreadPool& pool) const {
  const int64_t elapsed = now() - start;
  if (!counted_.empty()) counted_[at].counter->add(elapsed, counted_[at].bytes);
  if (control.recording == nullptr) return;
  const Dispatch& step = dispatch_[at];
  const int64_t grain = std::max<int64_t>(step.is_shared ? step.grain : step.units, 1);
  const int64_t chunks = (step.units + grain - 1) / grain;
  const int64_t threads = std::clamp<int64_t>(chunks, 1, pool.thread_count());
  control.recording->add({&plan_, static_cast<int32_t>(at), static_cast<int32_t>(threads),
                          thread_id(), start, elapsed});
}

namespace {

/// Tells where the carries of a loop are: each in two places, which steps read and write in turn.
class Carries {
 public:
  Carries(const plan::RegionLoop& loop, void* const* before, void* const* results)
      : loop_(loop), before_(before), results_(results) {}

  Status take_memory() {
    size_t bytes = 0;
    for (const int64_t carry : loop_.carry_bytes) bytes += round_up(static_cast<size_t>(carry));
    auto spare = take_arena(bytes);
    if (!spare.ok()) return std::move(spare).status();
    spare_ = std::move(*spare);
    std::byte* at = spare_.data();
    for (const int64_t carry : loop_.carry_bytes) {
      places_.push_back(at);
      at += round_up(static_cast<size_t>(carry));
    }
    return {};
  }

  /// Give what step `number` of the loop reads and writes. The last of `length` steps writes
  /// results.
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
  const plan::RegionLoop& loop_;
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
Status HostExecutable::run_loop(size_t at, void* const* operands, const RunControl& control) const {
  const plan::RegionLoop& loop = *plan_.steps[at].step.loop;
  const HostExecutable &body = *inner_[at].first, *condition = inner_[at].second.get();
  const size_t carries = loop.carry_bytes.size(), xs = loop.x_bytes.size();
  const size_t inputs = carries + xs + static_cast<size_t>(loop.constants);
  Frame frame, asking;
  MITHRIL_RETURN_IF_ERROR(frame.take(body));
  bool go = true;
  if (condition != nullptr) {
    MITHRIL_RETURN_IF_ERROR(asking.take(*condition));
    asking.set_output(0, &go);
  }
  Carries carry(loop, operands, operands + inputs);
  MITHRIL_RETURN_IF_ERROR(carry.take_memory());
  for (size_t i = carries + xs; i < inputs; ++i) {
    frame.set_input(i, operands[i]);
    if (condition != nullptr) asking.set_input(i, operands[i]);
  }
  int64_t number = 0;
  for (; condition != nullptr || number < loop.length; ++number) {
    if (condition != nullptr) {
      for (size_t i = 0; i < carries; ++i) asking.set_input(i, carry.read(i, number));
      MITHRIL_RETURN_IF_ERROR(condition->run_steps(asking, control));
      if (!go) break;
    }
    const int64_t here = loop.reverse ? loop.length - 1 - number : number;
    for (size_t i = 0; i < carries; ++i) {
      frame.set_input(i, carry.read(i, number));
      frame.set_output(i, carry.write(i, number));
    }
    for (size_t i = 0; i < xs; ++i) {
      frame.set_input(carries + i, place(operands[carries + i], here, loop.x_bytes[i]));
    }
    for (size_t i = 0; i < loop.y_bytes.size(); ++i) {
      frame.set_output(carries + i, place(operands[inputs + carries + i], here, loop.y_bytes[i]));
    }
    MITHRIL_RETURN_IF_ERROR(body.run_steps(frame, control));
    if (control.poll != nullptr) control.poll(control.poll_context);
    const bool cancelled = control.cancel != nullptr && control.cancel->load();
    if (cancelled) return failure(plan::KernelStatus::kCancelled, at, {});
  }
  carry.finish(number);
  return {};
}

Status HostExecutable::run_branch(size_t at, void* const* operands,
                                  const RunControl& control) const {
  const plan::Branch& branch = *plan_.steps[at].step.branch;
  const auto inputs = static_cast<size_t>(branch.inputs);
  const bool is_taken = *static_cast<const bool*>(operands[inputs]);
  const HostExecutable& chosen = is_taken ? *inner_[at].first : *inner_[at].second;
  Frame frame;
  MITHRIL_RETURN_IF_ERROR(frame.take(chosen));
  for (size_t i = 0; i < inputs; ++i) frame.set_input(i, operands[i]);
  const size_t outputs = plan_.steps[at].step.operands.size() - inputs - 1;
  for (size_t i = 0; i < outputs; ++i) frame.set_output(i, operands[inputs + 1 + i]);
  return chosen.run_steps(frame, control);
}

Status HostExecutable::failure(plan::KernelStatus status, size_t at,
                               const plan::ErrorSlot& slot) const {
  const plan::Step& step = plan_.steps[at].step;
  const plan::Part part = slot.set.load() != 0 && slot.step >= 0
                              ? step.parts[static_cast<size_t>(slot.step)]
                              : plan::Part{step.label, step.location};
  core::Error error;
  if (slot.set.load() != 0 && slot.what != plan::BadData::kIndex) {
    const std::string op = part.label.substr(0, part.label.find('.'));  // without the kernel's name
    error =
        core::fail(ErrorKind::kValue, Code::kValueArgument, "{}: a matrix is {}", op,
                   slot.what == plan::BadData::kSingular ? "singular" : "not positive definite");
  } else if (slot.set.load() != 0) {
    error = index_error(slot.value, slot.bound, part.location);
  } else if (status == plan::KernelStatus::kCancelled) {
    error = core::fail(ErrorKind::kInterrupted, Code::kInterrupted, "interrupted");
  } else if (status == plan::KernelStatus::kNoMemory) {
    error = core::fail(ErrorKind::kMemory, Code::kOutOfMemory, "{}: no memory for scratch space",
                       step.label);
  } else {
    error = core::fail(ErrorKind::kInternal, Code::kInternal,
                       "kernel {} failed; this is a bug in mithril", step.label);
  }
  error.location = part.location;
  return error;
}

}  // namespace mithril::runtime
