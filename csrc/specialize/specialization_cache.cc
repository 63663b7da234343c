#include "specialize/specialization_cache.h"

#include <fmt/ranges.h>

#include "core/checked.h"
#include "core/interrupt.h"
#include "ir/text.h"
#include "passes/bind_sizes.h"
#include "plan/memory.h"
#include "plan/plan.h"
#include "runtime/memory_limit.h"
#include "specialize/execution.h"

namespace mithril {

SpecializationCache::SpecializationCache(ir::Graph graph, SpecializationOptions options)
    : graph_(std::move(graph)), options_(std::move(options)) {
  options_.passes = Trace::observed(std::move(options_.passes), options_.trace);
}

core::Result<std::shared_ptr<const Specialization>> SpecializationCache::specialize(
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

std::shared_ptr<const Specialization> SpecializationCache::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto at = cache_.find(key);
  if (at == cache_.end()) return nullptr;
  ages_.splice(ages_.begin(), ages_, at->second.age);
  return at->second.value;
}

namespace {

// Runs a graph without inputs: the constants of a specialisation.
core::Result<std::vector<std::shared_ptr<const core::TensorData>>> evaluate_constants(
    const ir::Graph& graph, const select::Backend& host, select::SelectOptions options) {
  options.overwrites.clear();
  MITHRIL_ASSIGN(plan::Steps steps, select::select_steps(graph, host, options));
  MITHRIL_ASSIGN(plan::Plan plan, plan::make_plan(std::move(steps)));
  std::vector<std::shared_ptr<core::TensorData>> made;
  std::vector<void*> pointers;
  for (const ir::Output& output : graph.outputs) {
    auto data = std::make_shared<core::TensorData>();
    data->dtype = graph.type(output.value).dtype;
    data->shape = ir::static_dims(graph.type(output.value).shape);
    const auto count = static_cast<size_t>(core::element_count(data->shape).value_or(0));
    data->bytes.resize(count * core::size_of(data->dtype));
    pointers.push_back(data->bytes.data());
    made.push_back(std::move(data));
  }
  const core::Interrupt& interrupt = core::current_interrupt();
  runtime::RunControl control;
  control.cancel = interrupt.cancel;
  control.poll = interrupt.poll;
  control.poll_context = interrupt.context;
  MITHRIL_RETURN_IF_ERROR(runtime::HostExecutable(std::move(plan)).run({}, pointers, control));
  return std::vector<std::shared_ptr<const core::TensorData>>(made.begin(), made.end());
}

std::string print_sizes(const ir::Graph& graph, std::span<const std::vector<int64_t>> sizes) {
  std::string out;
  for (size_t i = 0; i < sizes.size() && i < graph.inputs.size(); ++i) {
    const ir::ValueInfo& input = graph.value(graph.inputs[i]);
    if (input.role == ir::Role::kParam || !input.type.is_tensor) continue;
    out += fmt::format("{}{}[{}]", out.empty() ? "" : ", ", ir::escape_comment(input.name),
                       fmt::join(sizes[i], ", "));
  }
  return out.empty() ? "constants" : out;
}

}  // namespace

core::Result<std::shared_ptr<const Specialization>> SpecializationCache::make(
    std::span<const std::vector<int64_t>> sizes) const {
  options_.trace->recompile([&] { return "specialize for " + print_sizes(graph_, sizes); });
  const Stopwatch watch;
  MITHRIL_ASSIGN(ir::Graph graph, make_static(sizes, options_.passes));
  options_.trace->stage("specialize", watch.seconds(), fmt::format("{} nodes", graph.nodes.size()));
  MITHRIL_ASSIGN(plan::Plan plan, make_plan(graph));
  MITHRIL_ASSIGN(auto smaller, fitted(graph, plan, options_.trace.get()));
  if (smaller) {
    graph = std::move(*smaller);
    MITHRIL_ASSIGN(plan, make_plan(graph));
  }
  MITHRIL_RETURN_IF_ERROR(check_memory(plan));
  MITHRIL_ASSIGN(auto executable, make_executable(std::move(plan)));
  MITHRIL_CHECK(executable != nullptr, "the {} backend made nothing of a plan",
                options_.backend->name());
  std::vector<std::vector<int64_t>> shapes;
  for (const ir::Output& output : graph.outputs) {
    const ir::Type& type = graph.type(output.value);
    shapes.push_back(type.is_tensor ? ir::static_dims(type.shape) : std::vector<int64_t>{});
  }
  return std::make_shared<const Specialization>(
      Specialization{std::move(executable), std::move(shapes)});
}

core::Result<std::shared_ptr<const runtime::Executable>> SpecializationCache::make_executable(
    plan::Plan plan) const {
  if (options_.make_executable) return options_.make_executable(std::move(plan));
  return std::shared_ptr<const runtime::Executable>(
      std::make_shared<const runtime::HostExecutable>(std::move(plan)));
}

core::Result<ir::Graph> SpecializationCache::make_static(
    std::span<const std::vector<int64_t>> sizes, const passes::PipelineOptions& options) const {
  MITHRIL_ASSIGN(const auto symbols, passes::solve_symbols(graph_, sizes));
  const passes::Evaluate evaluate = [&](const ir::Graph& constants) {
    select::SelectOptions on_host = options_.select;
    on_host.canonical = on_host.canonical || options_.canonical_constants;
    return evaluate_constants(constants, *options_.host, on_host);
  };
  return passes::specialize(
      graph_, symbols, evaluate, options, [&](const ir::Graph& within, const ir::Node& node) {
        return select::supports(options_.backend->kernels(), within, node, options_.select);
      });
}

core::Result<std::optional<ir::Graph>> SpecializationCache::fitted(const ir::Graph& graph,
                                                                   const plan::Plan& plan,
                                                                   Trace* trace) const {
  const Stopwatch watch;
  const passes::RematerializeOptions& wanted = options_.rematerialize;
  const bool was_asked = wanted.limit || wanted.rematerializes;
  passes::Execution execution = execution_of(graph, plan);
  if (!was_asked && !(wanted.unasked && passes::allocates_much(execution))) {
    return std::optional<ir::Graph>();
  }
  const passes::Measure measure = [&](const ir::Graph& g) {
    return plan_execution(g, *options_.backend, options_.select);
  };
  MITHRIL_ASSIGN(passes::Recomputed made,
                 passes::rematerialize(graph, std::move(execution), measure, wanted));
  if (!was_asked && made.nodes == 0) return std::optional<ir::Graph>();
  if (options_.passes.verify) MITHRIL_RETURN_IF_ERROR(ir::verify(made.graph));
  if (trace != nullptr) trace->recomputed(made, watch.seconds());
  return std::optional<ir::Graph>(std::move(made.graph));
}

core::Status SpecializationCache::check_memory(const plan::Plan& plan) const {
  if (const auto limit = options_.rematerialize.limit) {
    MITHRIL_RETURN_IF_ERROR(plan::check_memory(
        plan, {*limit, "the least that was found by computing values again, and memory_limit is",
               "raise memory_limit, or take smaller sizes"}));
  }
  return plan::check_memory(plan, {runtime::memory_limit()});
}

core::Result<plan::Plan> SpecializationCache::preview(
    std::span<const std::vector<int64_t>> sizes,
    std::vector<select::SelectionReport>* report) const {
  passes::PipelineOptions quiet = options_.passes;
  quiet.on_pass = nullptr;
  quiet.on_rewrite = nullptr;
  MITHRIL_ASSIGN(const ir::Graph graph, make_static(sizes, quiet));
  const auto planned = [&](const ir::Graph& g) -> core::Result<plan::Plan> {
    select::SelectOptions select = options_.select;
    select.report = report;
    if (report != nullptr) report->clear();
    MITHRIL_ASSIGN(plan::Steps steps, select::select_steps(g, *options_.backend, select));
    return plan::make_plan(std::move(steps));
  };
  MITHRIL_ASSIGN(plan::Plan plan, planned(graph));
  MITHRIL_ASSIGN(const auto smaller, fitted(graph, plan, nullptr));
  return smaller ? planned(*smaller) : std::move(plan);
}

core::Result<plan::Plan> SpecializationCache::make_plan(const ir::Graph& graph) const {
  const Stopwatch watch;
  select::SelectOptions select = options_.select;
  if (options_.trace->wants_source()) {
    select.on_loop = [this](std::string_view label, const tile::Program& program) {
      options_.trace->loop(label, program);
    };
  }
  MITHRIL_ASSIGN(plan::Steps steps, select::select_steps(graph, *options_.backend, select));
  if (const auto denied = options_.backend->take_denial(); !denied.empty()) {
    options_.trace->jit_denied(denied);
  }
  MITHRIL_ASSIGN(plan::Plan plan, plan::make_plan(std::move(steps)));
  options_.trace->stage(
      "select and plan", watch.seconds(),
      fmt::format("{} steps, {}", plan.steps.size(), options_.backend->machine()));
  options_.trace->plan(plan);
  return plan;
}

}  // namespace mithril
