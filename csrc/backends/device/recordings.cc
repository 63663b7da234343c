#include "backends/device/recordings.h"

#include <algorithm>
#include <utility>

#include "plan/cost.h"

namespace mithril::device {
namespace {

constexpr int64_t kMostCommands = 10'000;

}  // namespace

Recordings::Entry& Recordings::at(Addresses addresses) {
  auto found = std::find_if(entries_.begin(), entries_.end(),
                            [&](const Entry& entry) { return entry.addresses == addresses; });
  if (found == entries_.end()) {
    if (entries_.size() == kMost) entries_.pop_back();
    entries_.push_back({std::move(addresses), nullptr});
    found = entries_.end() - 1;
  } else {
    found->is_new = false;
  }
  std::rotate(entries_.begin(), found, found + 1);
  return entries_.front();
}

void Recordings::give_up() {
  has_given_up_ = true;
  entries_.clear();
}

std::optional<Commands> commands_of(const PlanCode& code) {
  Commands out;
  for (size_t at = 0; at < code.steps.size(); ++at) {
    const StepCode& step = code.steps[at];
    const plan::Step& planned = code.plan->steps[at].step;
    const bool is_launched = step.kind == StepCode::Kind::kLaunch;
    const int64_t commands = (step.product != nullptr ? 1 : 0) + (is_launched ? 1 : 0) +
                             static_cast<int64_t>(step.before.size());
    out.count += commands;
    if (commands > 0) out.nanoseconds += plan::nanoseconds_of(*code.plan, planned);
    switch (step.kind) {
      case StepCode::Kind::kNothing:
      case StepCode::Kind::kLaunch: break;
      case StepCode::Kind::kLoop: {
        if (step.second != nullptr) return {};
        const auto body = commands_of(*step.first);
        if (!body) return {};
        const auto length = static_cast<double>(planned.loop->length);
        const double count = length * static_cast<double>(body->count);
        if (count > kMostCommands) return {};
        out.count += static_cast<int64_t>(count);
        out.nanoseconds += length * body->nanoseconds;
        break;
      }
      case StepCode::Kind::kHost:
      case StepCode::Kind::kBranch: return {};
    }
    if (out.count > kMostCommands) return {};
  }
  return out;
}

}  // namespace mithril::device
