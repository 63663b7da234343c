#include "passes/assign_dtypes.h"

#include <set>

#include "core/tensor_data.h"
#include "ir/region.h"
#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using core::HostValue;

namespace {

// Operands of a node whose dtypes differ, a float number beside integers included.
core::Status check_mixed(Rewriter& rewriter, const ir::Node& node) {
  std::set<std::string> dtypes;
  bool only_integers = true;
  for (const ir::ValueId id : node.operands) {
    if (id == ir::kNoValue || !rewriter.mapped(id).type().is_tensor) continue;
    const core::DType dtype = rewriter.mapped(id).dtype();
    only_integers = only_integers && !core::is_float(dtype);
    dtypes.insert(std::string(core::to_string(dtype)));
  }
  const ir::OpDef& op = ir::Registry::global().get(node.op);
  for (const ir::InputDef& input : op.inputs) {
    const core::HostValue* number = node.attrs.find(input.name);
    if (!input.is_key && number != nullptr && number->is_double() && only_integers) {
      dtypes.insert("float");
    }
  }
  if (dtypes.size() < 2) return {};
  std::string told;
  for (const std::string& dtype : dtypes) told += (told.empty() ? "" : " and ") + dtype;
  core::Error error = core::fail(core::ErrorKind::kDType, core::Code::kDTypeOperand,
                                 "{} mixes {}, and auto_scalar_promotion is off", op.name, told);
  error.hint = "cast one of the operands";
  error.location = rewriter.from().location_of(node);
  return error;
}

core::Status check_literals(Rewriter& rewriter, const ir::Node& node, core::DType default_float) {
  for (const auto& [name, value] : node.attrs) {
    if (!value.is_tensor()) continue;
    const auto number = core::beyond_range(*value.as_tensor(), default_float);
    if (!number) continue;
    core::Error error = core::fail(core::ErrorKind::kOverflow, core::Code::kOverflow,
                                   "a constant must be in the range of {}, got {}",
                                   core::name(default_float), core::to_string(HostValue(*number)));
    error.location = rewriter.from().location_of(node);
    return error;
  }
  return {};
}

// A literal that stands for a number of the precision gets the number.
ir::Node with_precision(const ir::Node& node, core::DType default_float) {
  ir::Node out = node;
  for (const auto& [name, value] : node.attrs) {
    if (!value.is_tensor() || value.as_tensor()->constant.empty()) continue;
    out.attrs.set(name, core::HostValue(core::cast_literal(value.as_tensor(), default_float)));
  }
  return out;
}

struct Widths {
  core::DType default_float, default_int;
  bool promote_mixed;
};

// A carry has one dtype before, within and after the loop: what it starts with and what steps make
// of it are promoted to. A result of branches has what both are promoted to.
class TypedRegions {
 public:
  TypedRegions(Rewriter& rewriter, const ir::Node& node, const Widths& widths)
      : rewriter_(rewriter), node_(node), parts_(ir::region_parts(node)), widths_(widths) {
    for (const ir::ValueId id : node.operands) dtypes_.push_back(rewriter.mapped(id).dtype());
  }

  core::Status run() {
    MITHRIL_ASSIGN(std::vector<ir::Graph> typed, typed_regions());
    std::vector<ir::Type> types;
    for (size_t i = 0; i < node_.results.size(); ++i) {
      types.push_back(rewriter_.from().type(node_.results[i]));
      types.back().dtype = i < parts_.carries ? dtypes_[i] : joined(typed, i);
    }
    ir::Regions regions;
    for (size_t at = 0; at < typed.size(); ++at) {
      ir::Builder inside(typed[at]);
      for (size_t i = 0; i < types.size() && ir::gives_results(node_, at); ++i) {
        ir::Output& output = typed[at].outputs[i];
        output.value = ir::cast(inside.value(output.value), types[i].dtype).id;
      }
      MITHRIL_RETURN_IF_ERROR(inside.take_status());
      regions.push_back(std::make_shared<const ir::Graph>(std::move(typed[at])));
    }
    rewriter_.builder().set_location(node_.location);
    std::vector<ir::Value> operands;
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      operands.push_back(ir::cast(rewriter_.mapped(node_.operands[i]), dtypes_[i]));
    }
    const ir::OpDef& op = ir::Registry::global().get(node_.op);
    const auto results = rewriter_.builder().call_regions(op, operands, node_.attrs,
                                                          std::move(regions), std::move(types));
    for (size_t i = 0; i < results.size(); ++i) rewriter_.map(node_.results[i], results[i]);
    return {};
  }

 private:
  // Promotion only widens, so this ends.
  core::Result<std::vector<ir::Graph>> typed_regions() {
    while (true) {
      std::vector<std::pair<ir::ValueId, core::DType>> inputs;
      for (size_t i = 0; i < parts_.inputs(); ++i) {  // they come first in what a pass makes
        inputs.emplace_back(static_cast<ir::ValueId>(i), dtypes_[i]);
      }
      std::vector<ir::Graph> typed;
      for (const auto& region : node_.regions) {
        MITHRIL_ASSIGN(ir::Graph graph,
                       assign_dtypes(*region, widths_.default_float, widths_.default_int,
                                     widths_.promote_mixed, inputs));
        typed.push_back(std::move(graph));
      }
      bool widened = false;
      for (size_t i = 0; i < parts_.carries; ++i) {
        const core::DType both = core::promote(dtypes_[i], joined(typed, i));
        widened |= both != dtypes_[i];
        dtypes_[i] = both;
      }
      if (!widened) return typed;
    }
  }

  core::DType joined(const std::vector<ir::Graph>& typed, size_t result) const {
    const auto of = [&](const ir::Graph& graph) {
      return graph.type(graph.outputs[result].value).dtype;
    };
    return ir::is_cond(node_) ? core::promote(of(typed[0]), of(typed[1])) : of(typed.back());
  }

  Rewriter& rewriter_;
  const ir::Node& node_;
  const ir::RegionParts parts_;
  const Widths widths_;
  std::vector<core::DType> dtypes_;  // of operands
};

}  // namespace

core::Result<ir::Graph> assign_dtypes(const ir::Graph& graph, core::DType default_float,
                                      core::DType default_int, bool promote_mixed,
                                      std::span<const std::pair<ir::ValueId, core::DType>> widths) {
  Rewriter rewriter(graph);
  rewriter.graph().default_float = default_float;
  rewriter.graph().default_int = default_int;
  for (const auto& [id, dtype] : widths) rewriter.graph().value(id).type.dtype = dtype;
  for (const ir::ValueId id : rewriter.graph().inputs) {
    ir::Type& type = rewriter.graph().value(id).type;
    if (!type.is_tensor) continue;
    if (type.dtype == core::DType::kAnyFloat) type.dtype = default_float;
    if (type.dtype == core::DType::kAnyInt) type.dtype = default_int;
  }
  for (const ir::Node& node : graph.nodes) {
    if (!node.regions.empty()) {
      const Widths all{default_float, default_int, promote_mixed};
      MITHRIL_RETURN_IF_ERROR(TypedRegions(rewriter, node, all).run());
      continue;
    }
    MITHRIL_RETURN_IF_ERROR(check_literals(rewriter, node, default_float));
    const size_t before = rewriter.graph().nodes.size();
    rewriter.emit_again(with_precision(node, default_float));
    const bool casts = rewriter.graph().nodes.size() > before + 1;
    if (!promote_mixed && casts && rewriter.builder().status().ok()) {
      MITHRIL_RETURN_IF_ERROR(check_mixed(rewriter, node));
    }
  }
  return rewriter.finish();
}

}  // namespace mithril::passes
