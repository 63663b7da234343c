#include "backends/device/executable.h"

#include <algorithm>
#include <climits>
#include <map>
#include <utility>

#include "plan/cost.h"
#include "plan/memory.h"
#include "runtime/profile.h"

namespace mithril::device {
namespace {

using core::Status;
using plan::BufferSpec;
using plan::Plan;
using plan::PlannedStep;
using runtime::RunControl;

std::vector<int64_t> bytes_of(const Plan& plan, BufferSpec::Kind kind, int32_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count), 0);
  for (const BufferSpec& buffer : plan.buffers) {
    if (buffer.kind == kind) out[static_cast<size_t>(buffer.index)] = buffer.bytes;
  }
  return out;
}

// Tells of each input whether a step writes over it (plan::Donation).
std::vector<bool> overwritten_inputs(const Plan& plan) {
  std::vector<bool> out(static_cast<size_t>(plan.input_count), false);
  for (const PlannedStep& planned : plan.steps) {
    for (const plan::OperandRef& use : planned.step.operands) {
      const BufferSpec& buffer = plan.buffers[static_cast<size_t>(use.buffer)];
      if (!use.write || buffer.kind != BufferSpec::Kind::kInput) continue;
      out[static_cast<size_t>(buffer.index)] = true;
    }
  }
  return out;
}

int64_t bytes_of(const Plan& plan, const plan::OperandRef& use) {
  return plan.buffers[static_cast<size_t>(use.buffer)].bytes - use.offset;
}

// A step that a kernel of the engine runs, as a plan of its own: its operands come in and go out.
Plan alone(const Plan& plan, const PlannedStep& planned) {
  Plan out;
  out.scratch_bytes = planned.step.scratch_bytes;
  for (const plan::OperandRef& use : planned.step.operands) {
    ++(use.write ? out.output_count : out.input_count);
  }
  out.steps.push_back({planned.step, {}});
  plan::Step& step = out.steps.back().step;
  int32_t input = 0, output = 0;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    plan::OperandRef& use = step.operands[i];
    BufferSpec buffer = plan.buffers[static_cast<size_t>(use.buffer)];
    buffer.kind = use.write ? BufferSpec::Kind::kOutput : BufferSpec::Kind::kInput;
    buffer.index = use.write ? output : input;
    out.steps.back().operands.push_back(
        {use.write ? out.output_base(output++) : out.input_base(input++), 0});
    use = {static_cast<plan::BufferId>(i), 0, use.write};
    out.buffers.push_back(std::move(buffer));
  }
  return out;
}

// Says what takes the most where a driver refused memory.
Status named(Status status, const Plan& plan) {
  if (!status.ok() && status.error().kind == core::ErrorKind::kMemory) {
    plan::name_largest(plan, status.error());
  }
  return status;
}

}  // namespace

// ---------------------------------------------------------------- what is made once

core::Result<std::shared_ptr<const Executable>> Executable::make(std::shared_ptr<Driver> driver,
                                                                 plan::Plan plan,
                                                                 const Build& build) {
  MITHRIL_RETURN_IF_ERROR(driver->check_process());
  std::shared_ptr<Executable> out(new Executable(std::move(driver), std::move(plan)));
  out->input_bytes_ = bytes_of(out->plan_, BufferSpec::Kind::kInput, out->plan_.input_count);
  out->output_bytes_ = bytes_of(out->plan_, BufferSpec::Kind::kOutput, out->plan_.output_count);
  out->is_overwritten_ = overwritten_inputs(out->plan_);
  MITHRIL_RETURN_IF_ERROR(
      plan::check_memory(out->plan_, {out->driver_->memory(), "and the device has"}));
  PrintOptions options = out->driver_->print_options();
  MITHRIL_RETURN_IF_ERROR(named(out->compile(std::move(options), build), out->plan_));
  MITHRIL_RETURN_IF_ERROR(named(out->prepare_report(), out->plan_));
  out->prepare_recording();
  return std::shared_ptr<const Executable>(std::move(out));
}

core::Status Executable::compile(PrintOptions options, const Build& build) {
  MITHRIL_ASSIGN(source_, print_plan(plan_, options));
  MITHRIL_RETURN_IF_ERROR(prepare_products(*source_.code, options.refused));
  if (!options.refused.empty()) {
    MITHRIL_ASSIGN(source_, print_plan(plan_, options));
  }
  for (;;) {
    MITHRIL_RETURN_IF_ERROR(build_source(build));
    MITHRIL_ASSIGN(const int most, most_threads(*source_.code));
    if (most == INT_MAX) return prepare(*source_.code);
    options.limit_threads(most);  // fewer each time
    MITHRIL_ASSIGN(source_, print_plan(plan_, options));
  }
}

core::Status Executable::build_source(const Build& build) {
  kernels_.clear();
  if (source_.text.empty()) return {};
  MITHRIL_ASSIGN(program_, build(source_.text));
  return {};
}

core::Result<int> Executable::most_threads(const PlanCode& code) {
  int out = INT_MAX;
  const auto look = [&](const std::string& name, const Launch& launch) -> core::Status {
    if (launch.threads == 0) return {};
    MITHRIL_ASSIGN(const Kernel* const kernel, kernel_of(name));
    if (kernel->most_threads() < launch.threads) out = std::min(out, kernel->most_threads());
    return {};
  };
  for (const StepCode& step : code.steps) {
    if (step.kind == StepCode::Kind::kLaunch) {
      MITHRIL_RETURN_IF_ERROR(look(step.kernel, step.launch));
    }
    for (const KernelLaunch& one : step.before) {
      MITHRIL_RETURN_IF_ERROR(look(one.kernel, one.launch));
    }
    for (const PlanCode* inner : {step.first.get(), step.second.get()}) {
      if (inner == nullptr) continue;
      MITHRIL_ASSIGN(const int most, most_threads(*inner));
      out = std::min(out, most);
    }
  }
  return out;
}

// What the queue still runs needs the kernels and the constants. Others may enqueue meanwhile.
Executable::~Executable() {
  if (driver_->unwaited() == 0 || !driver_->check_process().ok()) return;
  static_cast<void>(driver_->finish());
}

core::Result<const Kernel*> Executable::kernel_of(const std::string& name) {
  const auto at = kernels_.find(name);
  if (at != kernels_.end()) return at->second.get();
  MITHRIL_ASSIGN(std::unique_ptr<Kernel> kernel, program_->kernel(name));
  return kernels_.emplace(name, std::move(kernel)).first->second.get();
}

core::Status Executable::prepare_products(const PlanCode& code,
                                          std::set<const plan::LibraryProduct*>& refused) {
  for (const StepCode& step : code.steps) {
    if (step.product != nullptr) {
      auto made = driver_->prepare(*step.product);
      if (made.ok()) {
        products_.emplace(step.product.get(), std::move(*made));
      } else if (made.error().kind == core::ErrorKind::kUnsupported) {
        refused.insert(step.product.get());
      } else {
        return std::move(made).status();
      }
    }
    if (step.first != nullptr) {
      MITHRIL_RETURN_IF_ERROR(prepare_products(*step.first, refused));
    }
    if (step.second != nullptr) {
      MITHRIL_RETURN_IF_ERROR(prepare_products(*step.second, refused));
    }
  }
  return {};
}

core::Status Executable::prepare(const PlanCode& code) {
  Prepared prepared;
  MITHRIL_RETURN_IF_ERROR(prepare_constants(*code.plan, prepared));
  for (size_t at = 0; at < code.steps.size(); ++at) {
    const StepCode& step = code.steps[at];
    prepared.host.emplace_back();
    prepared.kernels.push_back(nullptr);
    prepared.before.emplace_back();
    prepared.chains.push_back(nullptr);
    if (step.chain != nullptr) {
      MITHRIL_ASSIGN(prepared.chains.back(), kernel_of(step.chain->kernel));
    }
    if (step.kind == StepCode::Kind::kHost) {
      prepared.host.back() =
          std::make_unique<const runtime::HostExecutable>(alone(*code.plan, code.plan->steps[at]));
    } else if (step.kind == StepCode::Kind::kLaunch) {
      MITHRIL_ASSIGN(prepared.kernels.back(), kernel_of(step.kernel));
    }
    for (const KernelLaunch& one : step.before) {
      MITHRIL_ASSIGN(const Kernel* const kernel, kernel_of(one.kernel));
      prepared.before.back().push_back(kernel);
    }
    if (step.first != nullptr) MITHRIL_RETURN_IF_ERROR(prepare(*step.first));
    if (step.second != nullptr) MITHRIL_RETURN_IF_ERROR(prepare(*step.second));
  }
  prepared_.emplace(&code, std::move(prepared));
  return {};
}

core::Status Executable::prepare_constants(const Plan& plan, Prepared& prepared) const {
  for (const auto& constant : plan.constants) {
    prepared.constants.emplace_back();
    if (constant->bytes.empty()) continue;
    MITHRIL_ASSIGN(prepared.constants.back(), driver_->constant(constant->bytes));
  }
  return {};
}

core::Status Executable::prepare_report() {
  if (source_.checked.empty()) return {};
  MITHRIL_ASSIGN(report_, driver_->allocate(sizeof(Report)));
  return {};
}

// Interrupts end a run between steps, and a step that overwrites an input waits for the report of
// indices before it: what is recorded is short, and does not wait.
void Executable::prepare_recording() {
  if (!driver_->records_commands()) return;
  const auto commands = commands_of(*source_.code);
  if (!commands || commands->count < 2) return;
  const bool waits =
      !source_.checked.empty() &&
      std::find(is_overwritten_.begin(), is_overwritten_.end(), true) != is_overwritten_.end();
  is_recordable_ = commands->nanoseconds <= driver_->lead().most() && !waits;
  nanoseconds_ = commands->nanoseconds;
}

// ---------------------------------------------------------------- a run

class Executable::Run {
 public:
  Run(const Executable& executable, const RunControl& control)
      : executable_(executable),
        driver_(*executable.driver_),
        control_(control),
        outer_(std::exchange(executable.innermost_, this)),
        unwaited_(driver_.unwaited()) {}
  ~Run() {
    executable_.innermost_ = outer_;
    driver_.give_back(std::move(arena_));
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Status run(std::span<const void* const> inputs, std::span<void* const> outputs) {
    MITHRIL_RETURN_IF_ERROR(driver_.stay_near(0));  // of runs before
    if (outer_ != nullptr) MITHRIL_RETURN_IF_ERROR(outer_->keep_report());
    const PlanCode& code = *executable_.source_.code;
    Bases bases = bases_of(code);
    MITHRIL_ASSIGN(arena_, driver_.take_arena(code.bytes));
    bases[Plan::kArena] = {arena_.memory.get(), 0};
    Status status = bring_in(inputs, outputs, bases);
    if (status.ok()) status = all_steps(code, bases);
    if (status.ok() && !given_.empty()) status = refuse();
    if (status.ok()) status = take_out(inputs, outputs, bases);
    if (status.ok() && is_unsure_) status = ask_for_report();
    if (status.ok() && !has_host_memory_) return is_cancelled() ? interrupted() : Status();
    Status end = driver_.settle();  // whatever happened: memory of the host must live until then
    if (!status.ok()) return status;
    MITHRIL_RETURN_IF_ERROR(std::move(end));
    MITHRIL_RETURN_IF_ERROR(reported());
    return is_cancelled() ? interrupted() : Status();
  }

 private:
  using Bases = std::vector<Ref>;

  // ---- operands of the caller

  /// Memory for each input and output; inputs are on their way into it.
  Status bring_in(std::span<const void* const> inputs, std::span<void* const> outputs,
                  Bases& bases) {
    const std::vector<int64_t>&in = executable_.input_bytes_, &out = executable_.output_bytes_;
    std::map<const void*, size_t> written;  // outputs by place
    for (size_t i = 0; i < out.size() && i < outputs.size(); ++i) {
      if (outputs[i] == nullptr || out[i] == 0) continue;
      written[outputs[i]] = i;
      MITHRIL_ASSIGN(bases[output_base(i)], memory_of(outputs[i], out[i], true));
    }
    for (size_t i = 0; i < in.size() && i < inputs.size(); ++i) {
      if (inputs[i] == nullptr || in[i] == 0) continue;
      const auto same = written.find(inputs[i]);
      const bool is_given = same != written.end();  // the output overwrites it
      Ref& ref = bases[input_base(i)];
      if (is_given) {
        given_.push_back(output_base(same->second));
        ref = bases[output_base(same->second)];
      } else {
        MITHRIL_ASSIGN(ref, memory_of(inputs[i], in[i], executable_.is_overwritten_[i]));
      }
      if (Driver::is_given(inputs[i])) continue;
      MITHRIL_RETURN_IF_ERROR(driver_.write(ref, inputs[i], in[i]));
    }
    return {};
  }

  core::Result<Ref> memory_of(const void* at, int64_t bytes, bool is_written) {
    if (Driver::is_given(at)) return driver_.stored(at);
    has_host_memory_ = true;
    MITHRIL_ASSIGN(auto memory, driver_.operand(at, bytes, is_written));
    operands_.push_back(std::move(memory));
    return Ref{operands_.back().get(), 0};
  }

  Status take_out(std::span<const void* const> inputs, std::span<void* const> outputs,
                  const Bases& bases) {
    const std::vector<int64_t>&in = executable_.input_bytes_, &out = executable_.output_bytes_;
    for (size_t i = 0; i < in.size() && i < inputs.size(); ++i) {
      const Ref& ref = bases[input_base(i)];
      if (!executable_.is_overwritten_[i] || ref.memory == nullptr) continue;
      if (Driver::is_given(inputs[i])) continue;
      MITHRIL_RETURN_IF_ERROR(driver_.read(ref, const_cast<void*>(inputs[i]), in[i]));
    }
    for (size_t i = 0; i < out.size() && i < outputs.size(); ++i) {
      const Ref& ref = bases[output_base(i)];
      if (ref.memory == nullptr || Driver::is_given(outputs[i])) continue;
      MITHRIL_RETURN_IF_ERROR(driver_.read(ref, outputs[i], out[i]));
    }
    return {};
  }

  size_t input_base(size_t i) const {
    return static_cast<size_t>(executable_.plan_.input_base(static_cast<int32_t>(i)));
  }
  size_t output_base(size_t i) const {
    return static_cast<size_t>(executable_.plan_.output_base(static_cast<int32_t>(i)));
  }

  // ---- indices that are out of bounds

  // Clears what runs before reported, ahead of the first step that may.
  Status open_report() {
    static constexpr Report kNone;
    if (executable_.report_ == nullptr || has_report_) return {};
    has_report_ = true;
    return driver_.write({executable_.report_.get(), 0}, &kNone, sizeof kNone);
  }

  // Before a run within this one, which reports to the same place.
  Status keep_report() {
    if (is_unsure_) {
      MITHRIL_RETURN_IF_ERROR(ask_for_report());
      MITHRIL_RETURN_IF_ERROR(driver_.settle());
    }
    has_report_ = false;
    return {};
  }

  Status ask_for_report() {
    is_unsure_ = false;
    if (found_.is_there != 0) return {};  // the first one is told
    has_host_memory_ = true;
    return driver_.read({executable_.report_.get(), 0}, &found_, sizeof found_);
  }

  // The last operand of a step that may report.
  Status add_report(std::vector<Ref>& operands) {
    operands.push_back({executable_.report_.get(), 0});
    is_unsure_ = true;
    return open_report();
  }

  // Turns the report that was asked for, once it is there, into an error.
  Status reported() const {
    if (found_.is_there == 0) return {};
    const CheckedStep& checked = executable_.source_.checked.at(static_cast<size_t>(found_.step));
    return runtime::index_error(found_.value, checked.bound,
                                checked.plan->steps[checked.step].step.location);
  }

  // Waits for what steps so far report: what comes next cannot be taken back.
  Status refuse() {
    if (is_unsure_) {
      MITHRIL_RETURN_IF_ERROR(ask_for_report());
      MITHRIL_RETURN_IF_ERROR(driver_.settle());
    }
    return reported();
  }

  // Tells whether a step of the outermost plan writes where an input of the caller is.
  bool overwrites(const PlanCode& code, const PlannedStep& planned) const {
    if (&code != executable_.source_.code.get()) return false;
    for (size_t i = 0; i < planned.operands.size(); ++i) {
      if (!planned.step.operands[i].write) continue;
      const auto base = static_cast<size_t>(planned.operands[i].base);
      const bool is_input =
          base >= input_base(0) && base < input_base(executable_.input_bytes_.size());
      if (is_input || std::find(given_.begin(), given_.end(), base) != given_.end()) return true;
    }
    return false;
  }

  // ---- steps

  const Prepared& prepared(const PlanCode& code) const { return executable_.prepared_.at(&code); }

  Bases bases_of(const PlanCode& code) const {
    Bases out(static_cast<size_t>(code.plan->base_count()));
    const auto& constants = prepared(code).constants;
    for (size_t i = 0; i < constants.size(); ++i) {
      out[static_cast<size_t>(code.plan->constant_base(static_cast<int32_t>(i)))] = {
          constants[i].get(), 0};
    }
    return out;
  }

  static Ref operand(const PlannedStep& planned, size_t i, const Bases& bases) {
    const plan::Address& at = planned.operands[i];
    return bases[static_cast<size_t>(at.base)] + at.offset;
  }

  // The steps of the plan. Where their operands are as they were in a run before, they are
  // recorded; from then on they are enqueued as one.
  Status all_steps(const PlanCode& code, const Bases& bases) {
    const bool may_wait = !executable_.source_.checked.empty() && !given_.empty();
    if (!executable_.is_recordable_ || may_wait || is_timed()) return steps(code, bases);
    // A run of this executable within the poll finds, makes and drops entries.
    MITHRIL_RETURN_IF_ERROR(poll(executable_.nanoseconds_));
    const bool is_long = executable_.nanoseconds_ > driver_.lead().nanoseconds();
    if (is_long || executable_.recordings_.has_given_up()) return steps(code, bases);
    Recordings::Entry& entry = executable_.recordings_.at(addresses(bases));
    if (entry.is_new) return steps(code, bases);
    MITHRIL_RETURN_IF_ERROR(open_report());
    if (entry.commands == nullptr) {
      auto commands = recorded(code, bases);
      if (!commands.ok()) {
        executable_.recordings_.give_up();
        return steps(code, bases);
      }
      entry.commands = std::move(*commands);
    }
    unwaited_ += executable_.nanoseconds_;
    is_unsure_ = !executable_.source_.checked.empty();
    return driver_.enqueue(*entry.commands);
  }

  // Constants stay where they are.
  Recordings::Addresses addresses(const Bases& bases) const {
    Recordings::Addresses out;
    const auto end = static_cast<size_t>(executable_.plan_.constant_base(0));
    for (size_t base = 0; base < end; ++base) {
      const bool is_there = bases[base].memory != nullptr;
      out.push_back(is_there ? driver_.place(bases[base]).value().pointer : nullptr);
    }
    return out;
  }

  core::Result<std::unique_ptr<const CommandBuffer>> recorded(const PlanCode& code,
                                                              const Bases& bases) {
    MITHRIL_RETURN_IF_ERROR(driver_.begin_recording());
    is_recording_ = true;
    Status status = steps(code, bases);
    is_recording_ = false;
    auto commands = driver_.end_recording();
    if (!status.ok()) return status;
    return commands;
  }

  bool is_timed() const {
    return control_.recording != nullptr || runtime::Profile::process() != nullptr;
  }

  Status steps(const PlanCode& code, const Bases& bases) {
    const Prepared& made = prepared(code);
    const Ref behind = bases[Plan::kArena] + rounded_up(code.plan->arena_bytes);
    const bool is_timed = this->is_timed();
    for (size_t at = 0; at < code.steps.size(); ++at) {
      if (code.steps[at].chain != nullptr && !is_timed) {
        MITHRIL_RETURN_IF_ERROR(chain(code, *made.chains[at], at, bases, behind));
        at += code.steps[at].chain->count - 1;
        continue;
      }
      MITHRIL_RETURN_IF_ERROR(begin(plan::nanoseconds_of(*code.plan, code.plan->steps[at].step)));
      if (is_unsure_ && overwrites(code, code.plan->steps[at])) MITHRIL_RETURN_IF_ERROR(refuse());
      MITHRIL_RETURN_IF_ERROR(is_timed ? timed_step(code, made, at, bases, behind)
                                       : step(code, made, at, bases, behind));
    }
    return {};
  }

  // The device times its kernels, the host what it takes part in.
  Status timed_step(const PlanCode& code, const Prepared& made, size_t at, const Bases& bases,
                    Ref behind) {
    const StepCode& step = code.steps[at];
    const int64_t start = runtime::now();
    if (step.kind != StepCode::Kind::kLaunch && step.product == nullptr) {
      MITHRIL_RETURN_IF_ERROR(this->step(code, made, at, bases, behind));
      MITHRIL_RETURN_IF_ERROR(driver_.settle());
      note(*code.plan, at, runtime::now() - start, start, 1);
      return {};
    }
    // Timed kernels have a queue apart.
    if (step.is_checked) MITHRIL_RETURN_IF_ERROR(open_report());
    MITHRIL_RETURN_IF_ERROR(driver_.begin_timing());
    Status status = this->step(code, made, at, bases, behind);
    auto nanoseconds = driver_.end_timing();
    MITHRIL_RETURN_IF_ERROR(std::move(status));
    MITHRIL_ASSIGN(const int64_t elapsed, std::move(nanoseconds));
    unwaited_ = 0;
    note(*code.plan, at, elapsed, start, 0);
    return {};
  }

  Status step(const PlanCode& code, const Prepared& made, size_t at, const Bases& bases,
              Ref behind) {
    const StepCode& step = code.steps[at];
    const PlannedStep& planned = code.plan->steps[at];
    if (step.product != nullptr) {
      MITHRIL_RETURN_IF_ERROR(multiply(*step.product, planned, bases));
    }
    switch (step.kind) {
      case StepCode::Kind::kNothing: return {};
      case StepCode::Kind::kLaunch: return launch(step, planned, made, at, bases, behind);
      case StepCode::Kind::kHost: return on_host(*code.plan, planned, *made.host[at], bases);
      case StepCode::Kind::kLoop: return loop(step, planned, bases, behind);
      case StepCode::Kind::kBranch: return branch(step, planned, bases, behind);
    }
    return {};
  }

  Status chain(const PlanCode& code, const Kernel& kernel, size_t at, const Bases& bases,
               Ref behind) {
    const Chain& chain = *code.steps[at].chain;
    MITHRIL_RETURN_IF_ERROR(begin(chain.nanoseconds));
    for (size_t i = 0; i < chain.count && is_unsure_; ++i) {
      if (overwrites(code, code.plan->steps[at + i])) MITHRIL_RETURN_IF_ERROR(refuse());
    }
    std::vector<Ref> operands;
    for (const size_t base : chain.bases) operands.push_back(bases[base]);
    if (chain.has_scratch) operands.push_back(behind);
    if (chain.is_checked) MITHRIL_RETURN_IF_ERROR(add_report(operands));
    return driver_.launch(kernel, operands, {1, 0});
  }

  Status multiply(const plan::LibraryProduct& product, const PlannedStep& planned,
                  const Bases& bases) {
    std::vector<Ref> operands;
    size_t result = 2;
    const auto* const matmul = std::get_if<plan::LibraryMatmul>(&product);
    if (matmul != nullptr) result = matmul->c;
    for (const size_t i : {size_t{0}, size_t{1}, result}) {
      operands.push_back(operand(planned, i, bases));
    }
    if (matmul != nullptr && matmul->adds_bias) {
      operands.push_back(operand(planned, matmul->bias, bases));
    }
    if (matmul != nullptr && matmul->adds_matrix) {
      operands.push_back(operand(planned, matmul->addend, bases));
    }
    return driver_.multiply(*executable_.products_.at(&product), operands);
  }

  std::vector<Ref> passed(const std::vector<size_t>& which, const PlannedStep& planned,
                          const Bases& bases) const {
    std::vector<Ref> out;
    for (const size_t i : which) out.push_back(operand(planned, i, bases));
    return out;
  }

  Status launch(const StepCode& step, const PlannedStep& planned, const Prepared& made, size_t at,
                const Bases& bases, Ref behind) {
    for (size_t i = 0; i < step.before.size(); ++i) {
      MITHRIL_RETURN_IF_ERROR(driver_.launch(*made.before[at][i],
                                             passed(step.before[i].operands, planned, bases),
                                             step.before[i].launch));
    }
    std::vector<Ref> operands = passed(step.operands, planned, bases);
    if (step.has_scratch) operands.push_back(behind);
    if (step.is_checked) MITHRIL_RETURN_IF_ERROR(add_report(operands));
    return driver_.launch(*made.kernels[at], operands, step.launch);
  }

  // ---- the engine's kernels

  /// Some of the device's memory, where the host is let at it.
  struct Mapped {
    Ref first;
    int64_t bytes = 0;
    bool is_written = false;
    std::byte* at = nullptr;
    bool has(const Ref& ref) const {
      return ref.memory == first.memory && ref.offset >= first.offset &&
             ref.offset <= first.offset + bytes;
    }
  };

  // Operands that touch or overlap are one piece of memory.
  std::vector<Mapped> wanted(const Plan& plan, const PlannedStep& planned, const Bases& bases) {
    std::vector<Mapped> all, out;
    for (size_t i = 0; i < planned.operands.size(); ++i) {
      const plan::OperandRef& use = planned.step.operands[i];
      const Ref ref = operand(planned, i, bases);
      const int64_t bytes = bytes_of(plan, use);
      if (ref.memory != nullptr && bytes > 0) all.push_back({ref, bytes, use.write});
    }
    std::sort(all.begin(), all.end(), [](const Mapped& a, const Mapped& b) {
      return std::pair(a.first.memory, a.first.offset) < std::pair(b.first.memory, b.first.offset);
    });
    for (const Mapped& one : all) {
      if (out.empty() || !out.back().has(one.first)) {
        out.push_back(one);
        continue;
      }
      Mapped& last = out.back();
      const int64_t end = std::max(last.first.offset + last.bytes, one.first.offset + one.bytes);
      last.bytes = end - last.first.offset;
      last.is_written = last.is_written || one.is_written;
    }
    return out;
  }

  Status on_host(const Plan& plan, const PlannedStep& planned,
                 const runtime::HostExecutable& executable, const Bases& bases) {
    std::vector<Mapped> mapped = wanted(plan, planned, bases);
    Status status = map(mapped);
    if (status.ok()) status = run_mapped(planned, executable, bases, mapped);
    for (const Mapped& one : mapped) {
      if (one.at == nullptr) continue;
      Status unmapped = driver_.unmap(one.first, one.bytes, one.is_written, one.at);
      if (status.ok()) status = std::move(unmapped);
    }
    return status;
  }

  Status map(std::vector<Mapped>& mapped) {
    for (Mapped& one : mapped) {
      MITHRIL_ASSIGN(one.at, driver_.map(one.first, one.bytes, one.is_written));
    }
    unwaited_ = 0;
    return {};
  }

  Status run_mapped(const PlannedStep& planned, const runtime::HostExecutable& executable,
                    const Bases& bases, const std::vector<Mapped>& mapped) {
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (size_t i = 0; i < planned.operands.size(); ++i) {
      const Ref ref = operand(planned, i, bases);
      const auto one = std::find_if(mapped.begin(), mapped.end(),
                                    [&](const Mapped& piece) { return piece.has(ref); });
      const bool is_there = ref.memory != nullptr && one != mapped.end();
      void* const place = is_there ? one->at + (ref.offset - one->first.offset) : nullptr;
      if (planned.step.operands[i].write) {
        outputs.push_back(place);
      } else {
        inputs.push_back(place);
      }
    }
    RunControl control = control_;
    control.recording = nullptr;  // the step is noted as one of this plan
    return executable.run(inputs, outputs, control);
  }

  // ---- plans in plans

  core::Result<bool> read_bool(Ref ref) {
    MITHRIL_RETURN_IF_ERROR(refuse());
    MITHRIL_ASSIGN(const uint8_t value, driver_.read_byte(ref));
    unwaited_ = 0;
    return value != 0;
  }

  Status copy(Ref from, Ref to, int64_t bytes) {
    if (bytes == 0 || from == to) return {};
    return driver_.copy(from, to, bytes);
  }

  // Carries are in two places, which steps read and write in turn; the last of `length` steps
  // writes the results.
  Status loop(const StepCode& step, const PlannedStep& planned, const Bases& outer, Ref behind) {
    const plan::RegionLoop& loop = *planned.step.loop;
    const size_t carries = loop.carry_bytes.size(), xs = loop.x_bytes.size();
    const size_t inputs = carries + xs + static_cast<size_t>(loop.constants);
    std::vector<Ref> before, results, spare;
    for (size_t i = 0; i < carries; ++i) {
      before.push_back(operand(planned, i, outer));
      results.push_back(operand(planned, inputs + i, outer));
      spare.push_back(behind);
      behind = behind + rounded_up(loop.carry_bytes[i]);
    }
    const auto write = [&](size_t i, int64_t number) {
      return (loop.length - 1 - number) % 2 == 0 ? results[i] : spare[i];
    };
    const auto read = [&](size_t i, int64_t number) {
      return number == 0 ? before[i] : write(i, number - 1);
    };
    Bases body = bases_of(*step.first);
    const Plan& plan = *step.first->plan;
    const auto input = [&](size_t i) -> Ref& {
      return body[static_cast<size_t>(plan.input_base(static_cast<int32_t>(i)))];
    };
    const auto output = [&](size_t i) -> Ref& {
      return body[static_cast<size_t>(plan.output_base(static_cast<int32_t>(i)))];
    };
    for (size_t i = carries + xs; i < inputs; ++i) input(i) = operand(planned, i, outer);
    int64_t number = 0;
    for (; step.second != nullptr || number < loop.length; ++number) {
      if (step.second != nullptr) {
        const auto carry = [&](size_t i) { return read(i, number); };
        MITHRIL_ASSIGN(const bool go, condition(*step.second, planned, outer, behind, carry));
        if (!go) break;
      }
      const int64_t here = loop.reverse ? loop.length - 1 - number : number;
      for (size_t i = 0; i < carries; ++i) {
        input(i) = read(i, number);
        output(i) = write(i, number);
      }
      for (size_t i = 0; i < xs; ++i) {
        input(carries + i) = operand(planned, carries + i, outer) + here * loop.x_bytes[i];
      }
      for (size_t i = 0; i < loop.y_bytes.size(); ++i) {
        output(carries + i) =
            operand(planned, inputs + carries + i, outer) + here * loop.y_bytes[i];
      }
      body[Plan::kArena] = behind;
      MITHRIL_RETURN_IF_ERROR(steps(*step.first, body));
    }
    for (size_t i = 0; i < carries; ++i) {
      MITHRIL_RETURN_IF_ERROR(copy(read(i, number), results[i], loop.carry_bytes[i]));
    }
    return {};
  }

  // Its bool lies behind its own memory.
  template <class Carry>
  core::Result<bool> condition(const PlanCode& code, const PlannedStep& planned, const Bases& outer,
                               Ref behind, const Carry& carry) {
    const plan::RegionLoop& loop = *planned.step.loop;
    const size_t carries = loop.carry_bytes.size();
    MITHRIL_RETURN_IF_ERROR(poll(0));  // also where neither it nor the body has steps
    Bases bases = bases_of(code);
    for (size_t i = 0; i < carries + static_cast<size_t>(loop.constants); ++i) {
      bases[static_cast<size_t>(code.plan->input_base(static_cast<int32_t>(i)))] =
          i < carries ? carry(i) : operand(planned, i + loop.x_bytes.size(), outer);
    }
    const Ref go = behind + code.bytes;
    bases[static_cast<size_t>(code.plan->output_base(0))] = go;
    bases[Plan::kArena] = behind;
    MITHRIL_RETURN_IF_ERROR(steps(code, bases));
    return read_bool(go);
  }

  Status branch(const StepCode& step, const PlannedStep& planned, const Bases& outer, Ref behind) {
    const auto inputs = static_cast<size_t>(planned.step.branch->inputs);
    MITHRIL_ASSIGN(const bool is_taken, read_bool(operand(planned, inputs, outer)));
    const PlanCode& code = is_taken ? *step.first : *step.second;
    Bases bases = bases_of(code);
    for (size_t i = 0; i < inputs; ++i) {
      bases[static_cast<size_t>(code.plan->input_base(static_cast<int32_t>(i)))] =
          operand(planned, i, outer);
    }
    for (size_t i = 0; inputs + 1 + i < planned.operands.size(); ++i) {
      bases[static_cast<size_t>(code.plan->output_base(static_cast<int32_t>(i)))] =
          operand(planned, inputs + 1 + i, outer);
    }
    bases[Plan::kArena] = behind;
    return steps(code, bases);
  }

  // ---- interrupts and times

  bool is_cancelled() const { return control_.cancel != nullptr && control_.cancel->load(); }
  static Status interrupted() {
    return core::fail(core::ErrorKind::kInterrupted, core::Code::kInterrupted, "interrupted");
  }

  // Before a step: an interrupt ends the run between steps.
  Status begin(double nanoseconds) {
    if (is_recording_) return {};
    MITHRIL_RETURN_IF_ERROR(poll(nanoseconds));
    unwaited_ += nanoseconds;
    return {};
  }

  // The queue is never far ahead of who waits for it, and whoever has waited, whatever for, asks. A
  // handler of signals may run this executable then.
  Status poll(double nanoseconds) {
    if (control_.poll != nullptr) {
      MITHRIL_RETURN_IF_ERROR(driver_.stay_near(nanoseconds));
      if (unwaited_ == 0) control_.poll(control_.poll_context);
    }
    return is_cancelled() ? interrupted() : reported();
  }

  // `threads`: of the host; 0: the device does it.
  void note(const Plan& plan, size_t at, int64_t elapsed, int64_t start, int threads) const {
    const plan::Step& step = plan.steps[at].step;
    if (runtime::Profile* const profile = runtime::Profile::process()) {
      profile->counter(step.label).add(elapsed, plan::bytes_of(plan, step));
    }
    if (control_.recording == nullptr) return;
    control_.recording->add(
        {&plan, static_cast<int32_t>(at), threads, runtime::thread_id(), start, elapsed});
  }

  const Executable& executable_;
  Driver& driver_;
  const RunControl& control_;
  Run* const outer_;  // the run of this executable that polls; null: there is none
  DeviceArena arena_;
  std::vector<MemoryPtr> operands_;
  std::vector<size_t> given_;     // bases of outputs that are inputs, too
  bool is_recording_ = false;     // whether steps are recorded, not enqueued
  bool has_report_ = false;       // whether what lies in the report is this run's
  bool is_unsure_ = false;        // whether steps may have reported what nobody has asked for
  bool has_host_memory_ = false;  // whether the queue reads or writes some
  Report found_;
  std::atomic<double>& unwaited_;
};

core::Status Executable::run(std::span<const void* const> inputs, std::span<void* const> outputs,
                             const RunControl& control) const {
  MITHRIL_RETURN_IF_ERROR(driver_->check_process());
  const auto lock = driver_->lock();
  return named(Run(*this, control).run(inputs, outputs), plan_);
}

}  // namespace mithril::device
