#include "passes/cond_gradient.h"

#include "ir/region.h"
#include "passes/autodiff.h"
#include "passes/backward.h"
#include "passes/remove_dead.h"

namespace mithril::passes {

using ir::Graph;
using ir::RegionParts;
using ir::Value;

core::Status pull_back_cond(ir::GradBuilder& g) {
  const ir::Node node = g.node();  // a copy: the rule appends nodes
  const RegionParts parts = ir::region_parts(node);
  std::vector<Value> operands;
  for (size_t i = 0; i < parts.constants; ++i) {
    operands.push_back(g.builder().value(node.operands[i]));
  }
  DifferentiateOptions options;
  options.keep_outputs = false;
  std::vector<size_t> wanted;
  std::vector<ir::Type> types;
  for (size_t i = 0; i < parts.constants; ++i) {
    if (!g.wants_operand(i) || !is_differentiable(operands[i].type())) continue;
    wanted.push_back(i);
    types.push_back(operands[i].type());
    options.wrt.push_back(fmt::format("k{}", i));
  }
  for (size_t i = 0; i < node.results.size(); ++i) {
    if (!g.cotangent(i)) continue;
    operands.push_back(g.cotangent(i));
    options.outputs.push_back(fmt::format("y{}", i));
  }
  ir::Regions regions;
  RegionParts made;
  made.constants = operands.size();
  for (const auto& region : node.regions) {
    Graph branch = *region;
    ir::name_parts(branch, parts);
    MITHRIL_ASSIGN(branch, differentiate(branch, options));
    ir::name_parts(branch, made);  // its inputs: the constants, then the cotangents
    MITHRIL_ASSIGN(branch, remove_dead(branch));
    regions.push_back(std::make_shared<const Graph>(std::move(branch)));
  }
  const Value predicate = g.builder().value(node.operands.back());
  const auto results =
      ir::call_cond(g.builder(), operands, predicate, std::move(regions), std::move(types));
  for (size_t i = 0; i < wanted.size(); ++i) g.d_operand(wanted[i]) = results[i];
  return {};
}

}  // namespace mithril::passes
