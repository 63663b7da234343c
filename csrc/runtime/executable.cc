#include "runtime/executable.h"

#include <array>
#include <chrono>
#include <cstring>

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

int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

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
  for (const PlannedStep& planned : plan_.steps) {
    const bool is_loop = planned.step.loop != nullptr;
    bodies_.push_back(is_loop ? std::make_shared<const Executable>(*planned.step.loop->body)
                              : nullptr);
  }
  Profile* const profile = Profile::process();
  if (profile == nullptr) return;
  for (const PlannedStep& planned : plan_.steps) {
    const plan::Step& step = planned.step;
    counted_.push_back({&profile->counter(step.label), plan::bytes_of(plan_, step)});
  }
}

Status Executable::run(std::span<const void* const> inputs, std::span<void* const> outputs,
                       const RunControl& control) const {
  auto arena = take_arena(static_cast<size_t>(plan_.arena_bytes));
  if (!arena.ok()) return std::move(arena).status();
  auto scratch = take_arena(plan_.scratch_bytes);
  if (!scratch.ok()) return std::move(scratch).status();
  Bases bases(plan_, arena->data());
  for (size_t i = 0; i < inputs.size(); ++i) bases.set_input(i, inputs[i]);
  for (size_t i = 0; i < outputs.size(); ++i) bases.set_output(i, outputs[i]);
  const ScopedFloatEnvironment environment;
  return run_steps(bases, scratch->data(), control);
}

Status Executable::run_steps(Bases& bases, std::byte* scratch, const RunControl& control) const {
  ThreadPool& pool = control.pool != nullptr ? *control.pool : ThreadPool::shared();
  plan::ErrorSlot slot;
  OperandPointers pointers;
  for (size_t at = 0; at < plan_.steps.size(); ++at) {
    const PlannedStep& planned = plan_.steps[at];
    const plan::Step& step = planned.step;
    pointers.resolve(planned, bases.get());
    const int64_t start = counted_.empty() ? 0 : now();
    if (step.loop != nullptr) {
      MITHRIL_RETURN_IF_ERROR(run_loop(at, pointers.data(), control));
    } else {
      const KernelArgs args{
          pointers.data(), step.params.data(), step.scalars.data(), step.data.get(), scratch, 0,
          &slot,           control.cancel};
      const plan::KernelStatus status = run_step(step, args, control, pool);
      if (status != plan::KernelStatus::kOk || slot.set.load(std::memory_order_relaxed) != 0) {
        return failure(status, at, slot);
      }
    }
    if (!counted_.empty()) counted_[at].counter->add(now() - start, counted_[at].bytes);
  }
  return {};
}

namespace {

/// Where the carries of a loop are: each in two places, which steps read and write in turn, so that
/// the last step writes the loop's result.
class Carries {
 public:
  Carries(const plan::Loop& loop, void* const* before, void* const* results, std::byte* spare)
      : loop_(loop), before_(before), results_(results) {
    for (const int64_t bytes : loop.carry_bytes) {
      spare_.push_back(spare);
      spare += rounded(bytes);
    }
  }
  static int64_t rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  /// What step `number` of the loop reads and writes.
  const void* read(size_t i, int64_t number) const {
    return number == 0 ? before_[i] : write(i, number - 1);
  }
  void* write(size_t i, int64_t number) const {
    return (loop_.length - 1 - number) % 2 == 0 ? results_[i] : spare_[i];
  }
  /// A loop without steps.
  void hand_on() const {
    for (size_t i = 0; i < spare_.size(); ++i) {
      std::memcpy(results_[i], before_[i], static_cast<size_t>(loop_.carry_bytes[i]));
    }
  }

 private:
  const plan::Loop& loop_;
  void* const* before_;
  void* const* results_;
  std::vector<std::byte*> spare_;
};

void* place(void* base, int64_t at, int64_t bytes) {
  return static_cast<std::byte*>(base) + at * bytes;
}

}  // namespace

// One arena for all steps: nothing is allocated between them.
Status Executable::run_loop(size_t at, void* const* operands, const RunControl& control) const {
  const plan::Loop& loop = *plan_.steps[at].step.loop;
  const Executable& body = *bodies_[at];
  const size_t carries = loop.carry_bytes.size(), xs = loop.x_bytes.size();
  const size_t inputs = carries + xs + static_cast<size_t>(loop.constants);
  int64_t spare_bytes = 0;
  for (const int64_t bytes : loop.carry_bytes) spare_bytes += Carries::rounded(bytes);
  auto spare = take_arena(static_cast<size_t>(spare_bytes));
  if (!spare.ok()) return std::move(spare).status();
  auto arena = take_arena(static_cast<size_t>(body.plan_.arena_bytes));
  if (!arena.ok()) return std::move(arena).status();
  auto scratch = take_arena(body.plan_.scratch_bytes);
  if (!scratch.ok()) return std::move(scratch).status();
  Bases bases(body.plan_, arena->data());
  const Carries carry(loop, operands, operands + inputs, spare->data());
  if (loop.length == 0) carry.hand_on();
  for (size_t i = carries + xs; i < inputs; ++i) bases.set_input(i, operands[i]);
  for (int64_t number = 0; number < loop.length; ++number) {
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
    MITHRIL_RETURN_IF_ERROR(body.run_steps(bases, scratch->data(), control));
    const bool cancelled = control.cancel != nullptr && control.cancel->load();
    if (cancelled) return failure(plan::KernelStatus::kCancelled, at, {});
  }
  return {};
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
        ErrorKind::kValue, Code::kValueArgument, "{}: matrix {} is {}", step.label, slot.position,
        slot.what == plan::BadData::kSingular ? "singular" : "not positive definite");
  } else if (slot.set.load() != 0) {
    error = core::fail(ErrorKind::kIndex, Code::kIndexBounds,
                       "{}: index {} at position {} is out of bounds for size {}", step.label,
                       slot.value, slot.position, slot.bound);
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
