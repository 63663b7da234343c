#include "passes/assign_dtypes.h"

#include <set>

#include "core/tensor_data.h"
#include "ir/registry.h"
#include "passes/rewriter.h"

namespace mithril::passes {

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

// A literal that stands for a number of the precision gets the number.
ir::Node with_precision(const ir::Node& node, core::DType default_float) {
  ir::Node out = node;
  for (const auto& [name, value] : node.attrs) {
    if (!value.is_tensor() || value.as_tensor()->constant.empty()) continue;
    out.attrs.set(name, core::HostValue(core::cast_literal(value.as_tensor(), default_float)));
  }
  return out;
}

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
