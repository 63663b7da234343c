// Nodes that have a kernel, alone or with what follows them as its epilogue.
#include <algorithm>
#include <utility>

#include "select/selector.h"

namespace mithril::select {

// The kernel's step on `inputs`, those of the request: copied first where it takes no strides,
// and those that are no arrays left out.
core::Result<Step> Selector::made_by(const KernelDef& kernel, const KernelRequest& request,
                                     std::vector<Operand>& inputs) {
  for (size_t i = 0; kernel.contiguous && i < inputs.size(); ++i) {
    MITHRIL_RETURN_IF_ERROR(make_contiguous(inputs[i], request.node.operands[i]));
  }
  auto step = kernel.make(request);
  if (!step.ok()) return step;
  for (const Operand& input : inputs) {
    if (input.present()) step->operands.push_back(input.use);
  }
  return step;
}

KernelRequest Selector::request_for(const Node& node, const ir::OpDef& op,
                                    std::span<const Operand> inputs,
                                    std::span<const Operand> outputs,
                                    const Epilogue* epilogue) const {
  return {node, op, inputs, outputs, wants_canonical(options_, op), epilogue, threads_};
}

void Selector::add_workspace(const Node& node, Step& step) {
  if (step.workspace_bytes == 0) return;
  const core::DType dtype = core::DType::kFloat32;
  const int64_t elements = step.workspace_bytes / static_cast<int64_t>(core::size_of(dtype));
  step.operands.push_back({static_cast<BufferId>(steps_.buffers.size()), 0, true});
  steps_.buffers.push_back({BufferSpec::Kind::kTemporary,
                            0,
                            step.workspace_bytes,
                            dtype,
                            {elements},
                            graph_.location_of(node).path});
}

Status Selector::emit_kernel(const Node& node, const ir::OpDef& op) {
  std::vector<Operand> inputs, outputs;
  for (const ValueId id : node.operands) inputs.push_back(operand(id));
  for (const ValueId id : node.results) {
    materialize(id);
    outputs.push_back(operand(id));
    outputs.back().use.write = true;
  }
  const KernelRequest request = request_for(node, op, inputs, outputs);
  const KernelDef* kernel = backend_.kernels().find(request);
  if (kernel == nullptr && request.has_packed()) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].packed != nullptr) give_elements(inputs[i], node.operands[i]);
    }
    kernel = backend_.kernels().find(request);
  }
  if (kernel == nullptr) return unsupported(node, op);
  note_kernels(request, kernel);
  auto step = made_by(*kernel, request, inputs);
  if (!step.ok()) return std::move(step).status();
  for (const Operand& output : outputs) step->operands.push_back(output.use);
  add_workspace(node, *step);
  step->label = group_report_.kernel = std::string(kernel->name);
  step->location = graph_.location_of(node);
  steps_.steps.push_back(std::move(*step));
  return {};
}

// A kernel with an epilogue.
Status Selector::emit_product(const Group& group) {
  const Node& node = graph_.node(group.product);
  const ir::OpDef& op = ir::Registry::global().get(node.op);
  auto lowered = lower_group(graph_, fusion_, group);
  if (!lowered.ok()) return std::move(lowered).status();
  for (const ValueId id : group.outputs) materialize(id);
  if (!group.by_rows) MITHRIL_RETURN_IF_ERROR(place_product(group, *lowered));
  std::vector<Operand> inputs;
  for (const ValueId id : node.operands) inputs.push_back(operand(id));
  Operand result = plain_operands(graph_, node.results, as_is)[0];
  result.use = group.by_rows ? plan::OperandRef() : write(node.results[0]);
  const auto operands = epilogue_operands(group, *lowered);
  const Epilogue epilogue{lowered->program, operands, load_of(*lowered, node.results[0])};
  const KernelRequest request = request_for(node, op, inputs, {&result, 1}, &epilogue);
  const KernelDef* kernel = backend_.kernels().find(request);
  MITHRIL_CHECK(kernel != nullptr, "{} takes no epilogue", op.name);
  auto step = made_by(*kernel, request, inputs);
  if (!step.ok()) return std::move(step).status();
  if (result.present()) step->operands.push_back(result.use);
  const auto first = static_cast<int32_t>(step->operands.size());
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i != epilogue.result) step->operands.push_back(operands[i].use);
  }
  if (group.by_rows)
    MITHRIL_RETURN_IF_ERROR(overwrite_rows(group, *lowered, operands, first, *step));
  add_workspace(node, *step);
  step->nanoseconds += nanoseconds(*lowered);
  step->label = fmt::format("{}+{}", kernel->name, label_of(group));
  step->location = graph_.location_of(node);
  note_kernels(request, kernel);
  group_report_.kernel = kernel->name;
  if (options_.on_loop) options_.on_loop(step->label, lowered->program);
  steps_.steps.push_back(std::move(*step));
  return {};
}

// Operands of an epilogue by rows, the first of which is that of the step, may be overwritten as
// those of a loop: the kernel has read its own by then, or they are others.
Status Selector::overwrite_rows(const Group& group, const LoopProgram& lowered,
                                const std::vector<Operand>& operands, int32_t first,
                                Step& step) const {
  MITHRIL_ASSIGN(const auto kernel, backend_.loop(lowered.program));
  std::vector<plan::OperandRef> uses;
  std::vector<std::vector<int64_t>> strides;
  for (const Operand& operand : operands) {
    uses.push_back(operand.use);
    strides.push_back(operand.strides);
  }
  const auto result = static_cast<int32_t>(load_of(lowered, graph_.node(group.product).results[0]));
  for (plan::InPlace in : overwritable(*kernel, group, lowered, uses, strides)) {
    const plan::BufferId buffer = uses[static_cast<size_t>(in.operand)].buffer;
    const auto own = step.operands.begin() + first;
    const bool is_read = std::any_of(step.operands.begin(), own, [&](const plan::OperandRef& use) {
      return use.buffer == buffer;
    });
    if (in.operand == result || is_read) continue;
    in.operand += first - (in.operand > result ? 1 : 0);
    step.inplace.push_back(in);
  }
  return {};
}

size_t Selector::load_of(const LoopProgram& lowered, ValueId id) {
  const auto at = std::find_if(lowered.loads.begin(), lowered.loads.end(),
                               [&](const auto& load) { return load.value == id; });
  return static_cast<size_t>(at - lowered.loads.begin());
}

// Of the program, with strides along the axes of the product's result, which has no memory by
// rows.
std::vector<Operand> Selector::epilogue_operands(const Group& group, const LoopProgram& lowered) {
  std::vector<Operand> out;
  const auto add = [&](ValueId id) {
    out.push_back(operand(id));
    if (out.back().packed != nullptr) give_elements(out.back(), id);
    out.back().strides = broadcast_strides(out.back().shape, out.back().strides, group.shape);
    out.back().shape = group.shape;
  };
  for (const auto& load : lowered.loads) {
    if (group.by_rows && load.value == graph_.node(group.product).results[0]) {
      out.push_back(plain_operands(graph_, {load.value}, as_is)[0]);
      out.back().use = {};
    } else {
      add(load.value);
    }
  }
  for (const ValueId id : group.outputs) {
    add(id);
    out.back().use.write = true;
  }
  return out;
}

// The product lies in the output that takes its place, element by element; else, and where others
// read it, it has memory of its own.
Status Selector::place_product(const Group& group, const LoopProgram& lowered) {
  const ValueId result = graph_.node(group.product).results[0];
  if (group.keeps_product) {
    materialize(result);
    return {};
  }
  MITHRIL_ASSIGN(const auto kernel, backend_.loop(lowered.program));
  const auto input = static_cast<uint32_t>(load_of(lowered, result));
  for (uint32_t k = 0; k < group.outputs.size(); ++k) {
    const ValueId output = group.outputs[k];
    if (dtype(output) != dtype(result) || !kernel->can_alias(input, k)) continue;
    buffer_of(result) = buffer_of(output);
    view(result) = {result, 0, contiguous_strides(dims(result))};
    return {};
  }
  materialize(result);
  return {};
}

}  // namespace mithril::select
