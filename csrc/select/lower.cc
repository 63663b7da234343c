// Groups of nodes as steps: constants, views and fused loops.
#include <algorithm>
#include <utility>

#include "core/tensor_data.h"
#include "ir/region.h"
#include "ir/scan.h"
#include "plan/cost.h"
#include "select/selector.h"

namespace mithril::select {

Status Selector::emit(const Group& group) {
  if (group.product != ir::kNoNode) return emit_product(group);
  if (group.is_loop) return emit_loop(group);
  const Node& node = graph_.node(group.nodes[0]);
  const ir::OpDef& op = ir::Registry::global().get(node.op);
  if (!graph_.type(node.results[0]).is_tensor) return {};  // host values are attributes by now
  if (op.has(ir::Trait::kLiteral)) {
    group_report_.kernel = "constant";
    return emit_constant(node);
  }
  if (!node.operands.empty() && is_tensor(node.operands[0])) {
    auto window = view_of(graph_, node, view(node.operands[0]));
    if (window) {
      view(node.results[0]) = std::move(*window);
      group_report_.kernel = "view";
      return {};
    }
    if (op.has(ir::Trait::kReshape)) return emit_reshape_copy(node);
  }
  if (ir::is_cond(node)) return emit_branch(node);
  return node.regions.empty() ? emit_kernel(node, op) : emit_loop_of(node);
}

Status Selector::emit_constant(const Node& node) {
  const ValueId id = node.results[0];
  std::shared_ptr<const core::TensorData> data;
  if (const core::HostValue* number = scalar_constant(graph_, id)) {
    auto made = std::make_shared<core::TensorData>();
    made->dtype = dtype(id);
    core::append_element(*made, *number);
    data = std::move(made);
  } else {
    const core::HostValue* literal = node.attrs.find("value");
    MITHRIL_CHECK(literal != nullptr && literal->is_tensor(), "a constant without a value");
    data = core::cast_literal(literal->as_tensor(), dtype(id));
  }
  const auto packed = data->packed.matrix;
  steps_.constants.push_back(std::move(data));
  give_buffer(id, BufferSpec::Kind::kConstant, static_cast<int32_t>(steps_.constants.size()) - 1);
  if (packed != nullptr) steps_.buffers.back().bytes = packed->bytes();
  return {};
}

Status Selector::emit_loop(const Group& group) {
  auto lowered = lower_group(graph_, fusion_, group);
  if (!lowered.ok()) return std::move(lowered).status();
  for (const ValueId id : group.outputs) materialize(id);
  std::vector<plan::OperandRef> uses;
  std::vector<std::vector<int64_t>> strides;  // along the domain's axes
  for (const auto& load : lowered->loads) {
    uses.push_back(read(load.value));
    strides.push_back(broadcast_strides(dims(load.value), view(load.value).strides, group.shape));
  }
  for (const ValueId id : group.outputs) {
    uses.push_back(write(id));
    strides.push_back(output_strides(group, id));
  }
  return add_loop(group, *lowered, std::move(uses), strides);
}

std::vector<int64_t> Selector::output_strides(const Group& group, ValueId id) const {
  const auto shape = dims(id);
  const auto own = contiguous_strides(shape);
  const bool is_row = fusion_.spread[static_cast<size_t>(id)] == Spread::kRow;
  if (!is_row || shape.size() == group.shape.size()) {
    return broadcast_strides(shape, own, group.shape);
  }
  // Reduced axes are gone from the value: its axes are the kept ones, in order.
  std::vector<int64_t> out(group.shape.size(), 0);
  size_t next = 0;
  for (size_t axis = 0; axis < out.size(); ++axis) {
    const bool reduced =
        std::binary_search(group.reduced.begin(), group.reduced.end(), static_cast<int64_t>(axis));
    if (!reduced) out[axis] = own[next++];
  }
  return out;
}

Status Selector::add_loop(const Group& group, const LoopProgram& lowered,
                          std::vector<plan::OperandRef> uses,
                          const std::vector<std::vector<int64_t>>& strides) {
  MITHRIL_ASSIGN(const auto kernel, backend_.loop(lowered.program));
  std::vector<std::vector<int64_t>> kept(strides.size()), reduced(strides.size());
  for (size_t i = 0; i < strides.size(); ++i) {
    split_axes(lowered.inner, strides[i], kept[i], reduced[i]);
  }
  std::string note;
  Step step = kernel->bind({lowered.kept, lowered.reduced, kept, reduced}, note);
  step.inplace = overwritable(*kernel, group, lowered, uses, strides);
  step.operands = std::move(uses);
  step.label = label_of(group);
  step.location = graph_.location_of(graph_.node(group.nodes[0]));
  step.work.amount = operations(lowered);
  step.nanoseconds = nanoseconds(lowered);
  group_report_.kernel = "loop";
  if (!note.empty() && options_.report != nullptr) group_report_.notes.push_back(std::move(note));
  if (options_.on_loop) options_.on_loop(step.label, lowered.program);
  steps_.steps.push_back(std::move(step));
  return {};
}

// Its ops but for the product.
std::string Selector::label_of(const Group& group) const {
  std::string out;
  for (const ir::NodeId id : group.nodes) {
    if (id == group.product) continue;
    if (!out.empty()) out += '+';
    out += ir::Registry::global().get(graph_.node(id).op).name;
  }
  return out;
}

// So much for each lane and each row of a loop, in all.
double Selector::in_all(const LoopProgram& lowered, int64_t lane, int64_t row) {
  double rows = 1, points = 1;
  for (const int64_t size : lowered.kept) rows *= static_cast<double>(size);
  for (const int64_t size : lowered.reduced) points *= static_cast<double>(size);
  return rows * (points * static_cast<double>(lane) + static_cast<double>(row));
}

double Selector::operations(const LoopProgram& lowered) {
  const tile::Statistics each = tile::statistics(lowered.program);
  return in_all(lowered, each.lane_operations, each.row_operations);
}

double Selector::nanoseconds(const LoopProgram& lowered) {
  const tile::Statistics each = tile::statistics(lowered.program);
  return in_all(lowered, each.lane_cost, each.row_cost) / plan::kBasicPerNanosecond;
}

// Operands that lie exactly like an output and are read there only.
std::vector<plan::InPlace> Selector::overwritable(
    const LoopKernel& kernel, const Group& group, const LoopProgram& lowered,
    const std::vector<plan::OperandRef>& uses,
    const std::vector<std::vector<int64_t>>& strides) const {
  std::vector<plan::InPlace> out;
  for (size_t i = 0; i < lowered.loads.size(); ++i) {
    const ValueId id = lowered.loads[i].value;
    const auto same_buffer = [&](const plan::OperandRef& use) {
      return use.buffer == uses[i].buffer;
    };
    const bool once = std::count_if(uses.begin(), uses.end(), same_buffer) == 1;
    if (!once || uses[i].offset != 0) continue;
    for (size_t k = 0; k < group.outputs.size(); ++k) {
      const bool alike =
          strides[i] == strides[lowered.loads.size() + k] && dtype(id) == dtype(group.outputs[k]);
      if (!alike || !kernel.can_alias(static_cast<uint32_t>(i), static_cast<uint32_t>(k))) {
        continue;
      }
      out.push_back({static_cast<int32_t>(k), static_cast<int32_t>(i)});
    }
  }
  return out;
}

}  // namespace mithril::select
