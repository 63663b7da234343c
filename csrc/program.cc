#include "program.h"

#include "passes/bind_sizes.h"
#include "plan/plan.h"

namespace mithril {

Program::Program(ir::Graph graph, ProgramOptions options)
    : graph_(std::move(graph)), options_(std::move(options)) {}

core::Result<std::shared_ptr<const Specialization>> Program::specialize(
    std::span<const std::vector<int64_t>> sizes) {
  Key key;
  for (const auto& shape : sizes) {
    key.push_back(static_cast<int64_t>(shape.size()));
    key.insert(key.end(), shape.begin(), shape.end());
  }
  if (auto found = find(key)) return found;
  MITHRIL_ASSIGN(auto made, make(sizes));  // outside the lock; the first insert wins
  const std::lock_guard lock(mutex_);
  const auto at = cache_.find(key);
  if (at != cache_.end()) return at->second.value;
  ages_.push_front(key);
  cache_[key] = {made, ages_.begin()};
  if (cache_.size() > options_.most_specializations) {
    cache_.erase(ages_.back());
    ages_.pop_back();
  }
  return made;
}

std::shared_ptr<const Specialization> Program::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto at = cache_.find(key);
  if (at == cache_.end()) return nullptr;
  ages_.splice(ages_.begin(), ages_, at->second.age);
  return at->second.value;
}

core::Result<std::shared_ptr<const Specialization>> Program::make(
    std::span<const std::vector<int64_t>> sizes) const {
  MITHRIL_ASSIGN(const auto symbols, passes::solve_symbols(graph_, sizes));
  MITHRIL_ASSIGN(const ir::Graph graph, passes::specialize(graph_, symbols, options_.passes));
  MITHRIL_ASSIGN(plan::Steps steps, cpu::select_steps(graph, options_.select));
  MITHRIL_ASSIGN(plan::Plan plan, plan::make_plan(std::move(steps)));
  std::vector<std::vector<int64_t>> shapes;
  for (const ir::Output& output : graph.outputs) {
    const ir::Type& type = graph.type(output.value);
    shapes.push_back(type.is_tensor ? ir::static_dims(type.shape) : std::vector<int64_t>{});
  }
  return std::make_shared<const Specialization>(
      Specialization{runtime::Executable(std::move(plan)), std::move(shapes)});
}

}  // namespace mithril
