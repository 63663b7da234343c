#include "runtime/executable.h"

#include <array>
#include <chrono>

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

Executable::Executable(plan::Plan plan) : plan_(std::move(plan)) {
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

  std::array<std::byte*, kOperandsOnStack> few;
  std::vector<std::byte*> many;
  const auto count = static_cast<size_t>(plan_.base_count());
  if (count > few.size()) many.resize(count);
  const std::span<std::byte*> bases(count > few.size() ? many.data() : few.data(), count);
  bases[Plan::kArena] = arena->data();
  for (int32_t i = 0; i < plan_.input_count; ++i) {
    const void* input = inputs[static_cast<size_t>(i)];
    bases[static_cast<size_t>(plan_.input_base(i))] =
        static_cast<std::byte*>(const_cast<void*>(input));
  }
  for (int32_t i = 0; i < plan_.output_count; ++i) {
    bases[static_cast<size_t>(plan_.output_base(i))] =
        static_cast<std::byte*>(outputs[static_cast<size_t>(i)]);
  }
  for (size_t i = 0; i < plan_.constants.size(); ++i) {
    const auto* data = plan_.constants[i]->bytes.data();
    bases[static_cast<size_t>(plan_.constant_base(static_cast<int32_t>(i)))] =
        const_cast<std::byte*>(data);
  }

  ThreadPool& pool = control.pool != nullptr ? *control.pool : ThreadPool::shared();
  const ScopedFloatEnvironment environment;
  plan::ErrorSlot slot;
  OperandPointers pointers;
  for (size_t at = 0; at < plan_.steps.size(); ++at) {
    const PlannedStep& planned = plan_.steps[at];
    const plan::Step& step = planned.step;
    pointers.resolve(planned, bases);
    const KernelArgs args{pointers.data(), step.params.data(), step.scalars.data(),
                          step.data.get(), scratch->data(),    0,
                          &slot,           control.cancel};
    const int64_t start = counted_.empty() ? 0 : now();
    const plan::KernelStatus status = run_step(step, args, control, pool);
    if (!counted_.empty()) counted_[at].counter->add(now() - start, counted_[at].bytes);
    if (status != plan::KernelStatus::kOk || slot.set.load(std::memory_order_relaxed) != 0) {
      return failure(status, at, slot);
    }
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
