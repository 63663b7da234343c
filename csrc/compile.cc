#include "compile.h"

#include <algorithm>

#include "ir/op_def.h"
#include "passes/assign_dtypes.h"
#include "passes/cast_policy.h"
#include "passes/decompose.h"
#include "passes/expand_gradients.h"
#include "passes/own_ops.h"

namespace mithril {
namespace {

std::string node_count(const ir::Graph& graph) {
  return fmt::format("{} nodes", graph.nodes.size());
}

/// Runs `make` as a stage that is a pass, too.
template <class Make>
core::Result<ir::Graph> staged(const CompileOptions& options, std::string_view name, Make make) {
  const Stopwatch watch;
  MITHRIL_ASSIGN(ir::Graph graph, make());
  const double seconds = watch.seconds();
  options.trace->stage(name, seconds, node_count(graph));
  if (options.passes.on_pass) options.passes.on_pass({name, seconds, true, graph});
  return graph;
}

// Gradients of composites are written with values of their bodies: with the body in the place of
// the op these are computed once, and no kernel for the whole op is run besides.
core::Result<ir::Graph> with_shared_bodies(const ir::Graph& graph, const ir::Target& target) {
  if (!target.shares_bodies) return graph;
  return passes::decompose_if(graph, [](const ir::OpDef& op) {
    return op.body == ir::BodyKind::kCompose && op.gradient && !op.checks_sizes;
  });
}

core::Result<ir::Graph> differentiated(const Compiled& compiled,
                                       const passes::DifferentiateOptions& request) {
  return staged(compiled.options, "autodiff", [&]() -> core::Result<ir::Graph> {
    MITHRIL_ASSIGN(const ir::Graph graph, passes::differentiate(compiled.typed, request));
    return with_shared_bodies(graph, compiled.options.target);
  });
}

core::Result<ir::Graph> optimized(const ir::Graph& graph, const CompileOptions& options,
                                  const passes::PipelineOptions& passes) {
  const Stopwatch watch;
  MITHRIL_ASSIGN(ir::Graph out, passes::optimize(graph, options.target, passes));
  options.trace->stage("optimize", watch.seconds(), node_count(out));
  return out;
}

core::Result<ir::Graph> optimized(const ir::Graph& graph, const CompileOptions& options) {
  return optimized(graph, options, options.passes);
}

passes::PipelineOptions recording(passes::PipelineOptions options, std::vector<PassTime>& times) {
  options.on_pass = [next = std::move(options.on_pass), &times](const passes::PassRecord& record) {
    times.push_back({std::string(record.name), record.seconds, record.changed});
    if (next) next(record);
  };
  return options;
}

core::Status flatten(const model::Model& model, Compiled& out) {
  const Stopwatch watch;
  MITHRIL_ASSIGN(out.interface, model::flatten(model, out.options.flatten));
  const ir::Graph& graph = out.interface.graph;
  const double seconds = watch.seconds();
  out.options.trace->begin(graph.name, out.options.target);
  const bool deferred = out.interface.deferred();
  out.options.trace->stage("flatten", seconds, deferred ? "shapes are open" : node_count(graph));
  if (out.options.passes.on_pass) out.options.passes.on_pass({"flatten", seconds, true, graph});
  return {};
}

std::vector<std::pair<ir::ValueId, core::DType>> widths_of(const model::FlatGraph& interface) {
  std::vector<std::pair<ir::ValueId, core::DType>> out;
  for (const model::FlatKey& key : interface.keys) {
    if (key.dtype && key.value != ir::kNoValue) out.emplace_back(key.value, *key.dtype);
  }
  return out;
}
}  // namespace

namespace {
using CompiledPtr = std::shared_ptr<const Compiled>;

core::Result<CompiledPtr> compile_once(const model::Model& model, CompileOptions options) {
  auto out = std::make_shared<Compiled>();
  options.passes = Trace::observed(std::move(options.passes), options.trace);
  out->options = std::move(options);
  const ir::Target& target = out->options.target;
  MITHRIL_RETURN_IF_ERROR(flatten(model, *out));
  if (!out->interface.deferred()) {
    MITHRIL_ASSIGN(out->typed, staged(out->options, "assign_dtypes", [&] {
                     return passes::assign_dtypes(out->interface.graph, target.default_float,
                                                  target.default_int, out->options.promote_mixed,
                                                  widths_of(out->interface));
                   }));
    if (target.compute_float) {
      MITHRIL_ASSIGN(out->typed, staged(out->options, "cast_policy", [&] {
                       return passes::cast_policy(out->typed, *target.compute_float);
                     }));
    }
    MITHRIL_ASSIGN(out->typed, passes::take_own_gradients(std::move(out->typed), target));
    // Ops stay whole in `typed`: a second derivative is that of their rules, not of their bodies.
    ir::Graph shared;
    const bool has_gradients = passes::has_gradients(out->typed);
    if (has_gradients) {
      MITHRIL_ASSIGN(out->typed, staged(out->options, "expand_gradients",
                                        [&] { return passes::expand_gradients(out->typed); }));
      MITHRIL_ASSIGN(shared, with_shared_bodies(out->typed, target));
    }
    const ir::Graph& whole = has_gradients ? shared : out->typed;
    const CompileOptions& said = out->options;
    MITHRIL_ASSIGN(out->forward, said.report
                                     ? optimized(whole, said, recording(said.passes, out->records))
                                     : optimized(whole, said));
  }
  return CompiledPtr(std::move(out));
}

// Kernels take numbers as constants; what is in a list that only calls give decides shapes.
bool has_open_number(const model::FlatGraph& interface, bool binds_numbers) {
  return std::any_of(interface.keys.begin(), interface.keys.end(), [&](const auto& key) {
    return !key.kinds.is_tensor() && (binds_numbers || key.kinds.meets(infer::kSequence));
  });
}

// A number that is not known may look like a wrong one, so that any error counts.
bool may_await_values(const core::Result<CompiledPtr>& compiled) {
  if (!compiled.ok()) return true;
  const Compiled& whole = **compiled;
  return has_open_number(whole.interface, whole.options.target.binds_numbers);
}
}  // namespace

core::Result<CompiledPtr> compile(const model::Model& model, CompileOptions options) {
  core::Result<CompiledPtr> whole = compile_once(model, options);
  if (options.flatten.await_values || !may_await_values(whole)) return whole;
  options.flatten.await_values = true;
  core::Result<CompiledPtr> interface = compile_once(model, std::move(options));
  if (!interface.ok() || (*interface)->interface.unknown_values.empty()) return whole;
  return interface;
}

core::Result<ir::Graph> Compiled::optimize(const ir::Graph& graph) const {
  return optimized(graph, options);
}

core::Result<ir::Graph> Compiled::gradient(const passes::DifferentiateOptions& request) const {
  MITHRIL_ASSIGN(const ir::Graph graph, differentiated(*this, request));
  return optimized(graph, options);
}

core::Result<ir::Graph> Compiled::step(const passes::DifferentiateOptions& request,
                                       const passes::Optimizer& optimizer) const {
  MITHRIL_ASSIGN(const ir::Graph gradient, differentiated(*this, request));
  MITHRIL_ASSIGN(const ir::Graph graph, staged(options, "append_optimizer", [&] {
                   return passes::append_optimizer(gradient, optimizer, request.wrt);
                 }));
  return optimized(graph, options);
}

}  // namespace mithril
