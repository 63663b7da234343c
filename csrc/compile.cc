#include "compile.h"

#include "passes/assign_dtypes.h"

namespace mithril {

core::Result<std::shared_ptr<const Compiled>> compile(const model::Model& model,
                                                      CompileOptions options) {
  auto out = std::make_shared<Compiled>();
  const ir::Target& target = options.target;
  MITHRIL_ASSIGN(out->interface, model::flatten(model, options.flatten));
  if (!out->interface.deferred()) {
    MITHRIL_ASSIGN(out->typed, passes::assign_dtypes(out->interface.graph, target.default_float,
                                                     target.default_int));
    MITHRIL_ASSIGN(out->forward, passes::optimize(out->typed, target, options.passes));
  }
  out->options = std::move(options);
  return std::shared_ptr<const Compiled>(std::move(out));
}

core::Result<ir::Graph> Compiled::gradient(const passes::DifferentiateOptions& request) const {
  MITHRIL_ASSIGN(const ir::Graph graph, passes::differentiate(typed, request));
  return passes::optimize(graph, options.target, options.passes);
}

core::Result<ir::Graph> Compiled::step(const passes::DifferentiateOptions& request,
                                       const passes::Optimizer& optimizer) const {
  MITHRIL_ASSIGN(const ir::Graph gradient, passes::differentiate(typed, request));
  MITHRIL_ASSIGN(const ir::Graph graph, passes::append_optimizer(gradient, optimizer, request.wrt));
  return passes::optimize(graph, options.target, options.passes);
}

}  // namespace mithril
