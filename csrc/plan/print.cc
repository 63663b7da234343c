#include <algorithm>

#include "plan/plan.h"

namespace mithril::plan {

int64_t bytes_of(const Plan& plan, const Step& step) {
  std::vector<BufferId> seen;
  int64_t bytes = 0;
  for (const OperandRef& use : step.operands) {
    if (std::find(seen.begin(), seen.end(), use.buffer) != seen.end()) continue;
    seen.push_back(use.buffer);
    bytes += plan.buffers[static_cast<size_t>(use.buffer)].bytes;
  }
  return bytes;
}

namespace {

std::string base_name(const Plan& plan, int32_t base) {
  if (base == Plan::kArena) return "arena";
  if (base < plan.output_base(0)) return fmt::format("input{}", base - plan.input_base(0));
  if (base < plan.constant_base(0)) return fmt::format("output{}", base - plan.output_base(0));
  return fmt::format("constant{}", base - plan.constant_base(0));
}

std::string operands(const Plan& plan, const PlannedStep& planned, bool written) {
  std::string out;
  for (size_t i = 0; i < planned.operands.size(); ++i) {
    const OperandRef& use = planned.step.operands[i];
    if (use.write != written) continue;
    const Address& at = planned.operands[i];
    out += fmt::format("{}{}+{}[{}]", out.empty() ? "" : ", ", base_name(plan, at.base), at.offset,
                       plan.buffers[static_cast<size_t>(use.buffer)].bytes);
  }
  return out;
}

}  // namespace

namespace {

std::string extent(const Step& step) {
  if (step.branch != nullptr) return "one of two";
  if (step.loop == nullptr) return fmt::format("{} units by {}", step.units, step.grain);
  if (step.loop->condition.is_there()) return "while the first holds";
  return fmt::format("{} times{}", step.loop->length, step.loop->reverse ? " backwards" : "");
}

std::vector<const Plan*> plans_of(const Step& step) {
  if (step.branch != nullptr) return {step.branch->taken.plan.get(), step.branch->other.plan.get()};
  if (step.loop == nullptr) return {};
  if (!step.loop->condition.is_there()) return {step.loop->body.plan.get()};
  return {step.loop->condition.plan.get(), step.loop->body.plan.get()};
}

// Lines of a plan; those of plans that a step runs, deeper to the right. They are few levels deep.
std::string lines(const Plan& plan, const std::string& indent) {
  std::string out;
  for (size_t at = 0; at < plan.steps.size(); ++at) {
    const Step& step = plan.steps[at].step;
    out += fmt::format("{}  {:3} {} ({}) -> {}; ", indent, at, step.label,
                       operands(plan, plan.steps[at], false), operands(plan, plan.steps[at], true));
    out += extent(step);
    if (!step.location.path.empty()) out += "; " + step.location.path;
    out += '\n';
    const std::vector<const Plan*> plans = plans_of(step);
    for (const Plan* inner : plans) {
      out += lines(*inner, indent + "    ");
      if (plans.size() > 1 && inner == plans.front()) out += indent + "    --\n";
    }
  }
  return out;
}

}  // namespace

std::string print(const Plan& plan) {
  const std::string head = fmt::format(
      "plan: {} steps, arena {} bytes, scratch {} bytes a thread, {} inputs, {} outputs, {} "
      "constants\n",
      plan.steps.size(), plan.arena_bytes, plan.scratch_bytes, plan.input_count, plan.output_count,
      plan.constants.size());
  return head + lines(plan, "");
}

}  // namespace mithril::plan
