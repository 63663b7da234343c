#include "select/select.h"

#include <algorithm>
#include <utility>

#include "core/packed_matrix.h"
#include "core/tensor_data.h"
#include "ir/text.h"
#include "plan/schedule.h"
#include "select/selector.h"

namespace mithril::select {

using core::Code;
using core::ErrorKind;

std::vector<Operand> plain_operands(const ir::Graph& graph, const std::vector<ValueId>& values,
                                    DTypeOf as) {
  std::vector<Operand> out;
  for (const ValueId id : values) {
    Operand& operand = out.emplace_back();
    if (id == kNoValue) continue;
    operand.use.buffer = 0;
    operand.dtype = as(graph.type(id).dtype);
    operand.shape = ir::static_dims(graph.type(id).shape);
    operand.strides = contiguous_strides(operand.shape);
  }
  return out;
}

namespace {

bool has_host_operands(const ir::Graph& graph, const Node& node) {
  return std::any_of(node.operands.begin(), node.operands.end(),
                     [&](ValueId id) { return id != kNoValue && !graph.type(id).is_tensor; });
}

const KernelDef* kernel_for(const KernelTable& kernels, const ir::Graph& graph, const Node& node,
                            const SelectOptions& options, DTypeOf as = as_is) {
  if (has_host_operands(graph, node)) return nullptr;
  const auto inputs = plain_operands(graph, node.operands, as);
  const auto outputs = plain_operands(graph, node.results, as);
  const ir::OpDef& op = ir::Registry::global().get(node.op);
  return kernels.find({node, op, inputs, outputs, wants_canonical(options, op)});
}

bool is_packed(const ir::Graph& graph, ValueId id) {
  const Node* from = id == kNoValue ? nullptr : graph.producer(id);
  const core::HostValue* literal = from == nullptr ? nullptr : from->attrs.find("value");
  return literal != nullptr && literal->is_tensor() &&
         literal->as_tensor()->packed.matrix != nullptr;
}

// Whether a node that picks rows of as large a table looks at the same indices.
bool are_checked(const ir::Graph& graph, const Node& node) {
  const auto& registry = ir::Registry::global();
  const int64_t rows = ir::static_dims(graph.type(node.results[0]).shape)[0];
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& other) {
    return registry.get(other.op).name == "gather" && other.operands[1] == node.operands[1] &&
           ir::static_dims(graph.type(other.operands[0]).shape)[0] == rows;
  });
}

EpilogueSupport epilogue_support_of(const KernelTable& kernels, const ir::Graph& graph,
                                    const Node& node, const SelectOptions& options) {
  if (!graph.type(node.results[0]).is_tensor) return EpilogueSupport::kNothing;
  // Kernels for packed operands are others, which the plain ones do not tell.
  if (std::any_of(node.operands.begin(), node.operands.end(),
                  [&](ValueId id) { return is_packed(graph, id); })) {
    return EpilogueSupport::kNothing;
  }
  const KernelDef* kernel = kernel_for(kernels, graph, node, options);
  if (kernel == nullptr) return EpilogueSupport::kNothing;
  if (kernel->epilogue_support != EpilogueSupport::kRows) return kernel->epilogue_support;
  // An update in place would be half done where an index is refused.
  const bool is_matrix = graph.type(node.results[0]).shape.size() == 2;
  return is_matrix && are_checked(graph, node) ? EpilogueSupport::kRows : EpilogueSupport::kNothing;
}

// Host values are attributes by now, but for those that only data tell.
Status check_hosts(const ir::Graph& graph, std::string_view backend) {
  const auto is_host = [&](ValueId id) { return id != kNoValue && !graph.type(id).is_tensor; };
  for (const Node& node : graph.nodes) {
    const ir::OpDef& op = ir::Registry::global().get(node.op);
    const bool computes = op.is_elementwise() || graph.type(node.results[0]).is_tensor;
    const auto open = std::find_if(node.operands.begin(), node.operands.end(), is_host);
    const bool unknown =
        op.is_elementwise() && is_host(node.results[0]) && !graph.value(node.results[0]).host;
    if (!unknown && (!computes || open == node.operands.end())) continue;
    core::Error error = core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                                   "the {} backend cannot run {} on a number that only the data "
                                   "tell",
                                   backend, op.name);
    error.location = graph.location_of(node);
    error.hint = "make it a tensor, or give it in constant_keys";
    return error;
  }
  return {};
}

}  // namespace

Selector::Selector(const ir::Graph& graph, const Backend& backend, const SelectOptions& options)
    : graph_(graph),
      backend_(backend),
      options_(options),
      threads_(options.threads > 0 ? options.threads : backend.threads()),
      fusion_(fuse(graph, options.fuse, backend.most_operands())),
      buffers_(graph.values.size(), -1),
      views_(graph.values.size()),
      depends_on_(graph.values.size()) {
  if (options.fuse && options.epilogues) {
    std::function<bool(const Group&)> takes;
    if (const Backend::Takes accepts = backend.takes()) {
      takes = [this, accepts](const Group& group) {
        const auto lowered = lower_group(graph_, fusion_, group);
        return !lowered.ok() || accepts(lowered->program);  // whoever lowers it again tells why
      };
    }
    attach_epilogues(
        graph, fusion_,
        [&](const Node& node) {
          return epilogue_support_of(backend.kernels(), graph, node, options);
        },
        backend.most_operands(), takes);
  }
}

core::Result<plan::Steps> Selector::run() {
  place_inputs();
  reserve_outputs();
  for (size_t at = 0; at < fusion_.groups.size(); ++at) {
    told_at_.push_back(steps_.steps.size());
    MITHRIL_RETURN_IF_ERROR(emit(fusion_.groups[at]));
    note_nodes(fusion_.groups[at], told_at_.back());
    if (options_.report != nullptr) tell(static_cast<int32_t>(at));
  }
  MITHRIL_RETURN_IF_ERROR(copy_outputs());
  MITHRIL_RETURN_IF_ERROR(overwrite_inputs());
  put_in_order();
  return std::move(steps_);
}

BufferId Selector::add_buffer(BufferSpec::Kind kind, int32_t index, ValueId id) {
  const int64_t bytes = ir::byte_size(graph_.type(id));
  const ir::Node* maker = graph_.producer(id);
  steps_.buffers.push_back({kind, index, bytes, dtype(id), dims(id),
                            maker == nullptr ? "" : graph_.location_of(*maker).path});
  return static_cast<BufferId>(steps_.buffers.size()) - 1;
}

void Selector::give_buffer(ValueId id, BufferSpec::Kind kind, int32_t index) {
  buffer_of(id) = add_buffer(kind, index, id);
  steps_.buffers.back().value = id;
  view(id) = {id, 0, contiguous_strides(dims(id))};
}

void Selector::place_inputs() {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    if (!is_tensor(graph_.inputs[i])) continue;
    give_buffer(graph_.inputs[i], BufferSpec::Kind::kInput, static_cast<int32_t>(i));
  }
}

// The first output that names a value may be the value's own buffer; the others are copies.
void Selector::reserve_outputs() {
  output_of_.assign(graph_.values.size(), -1);
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    int32_t& output = output_of_[static_cast<size_t>(graph_.outputs[i].value)];
    if (output < 0) output = static_cast<int32_t>(i);
  }
}

// Memory for a value that a step writes.
void Selector::materialize(ValueId id) {
  const int32_t output = output_of_[static_cast<size_t>(id)];
  if (output >= 0) {
    give_buffer(id, BufferSpec::Kind::kOutput, output);
  } else {
    give_buffer(id, BufferSpec::Kind::kTemporary, 0);
  }
}

plan::OperandRef Selector::read(ValueId id) {
  unpack(view(id).base);
  return place(id);
}

plan::OperandRef Selector::place(ValueId id) {
  const View& at = view(id);
  return {buffer_of(at.base), at.offset * static_cast<int64_t>(core::size_of(dtype(id))), false};
}

// A step depends on what views of its operands depend on.
void Selector::note_nodes(const Group& group, size_t first_step) {
  std::vector<BufferId> depends_on;
  for (const ir::NodeId at : group.nodes) {
    for (const ValueId id : graph_.node(at).operands) {
      if (id == kNoValue) continue;
      const auto& more = depends_on_[static_cast<size_t>(id)];
      depends_on.insert(depends_on.end(), more.begin(), more.end());
    }
  }
  for (size_t i = first_step; i < steps_.steps.size(); ++i) {
    steps_.steps[i].nodes = group.nodes;
    steps_.steps[i].depends_on = depends_on;
  }
  if (first_step < steps_.steps.size()) return;
  const Node& node = graph_.node(group.nodes[0]);
  const ir::OpDef& op = ir::Registry::global().get(node.op);
  if (op.has(ir::Trait::kForward) && node.operands.size() > 1) {
    depends_on.push_back(buffer_of(view(node.operands[1]).base));
  }
  depends_on_[static_cast<size_t>(node.results[0])] = std::move(depends_on);
}

// Finds the data of a value that is a constant; null where it is none.
std::shared_ptr<const core::TensorData>* Selector::constant_of(ValueId id) {
  BufferSpec& buffer = steps_.buffers[static_cast<size_t>(buffer_of(id))];
  if (buffer.kind != BufferSpec::Kind::kConstant) return nullptr;
  return &steps_.constants[static_cast<size_t>(buffer.index)];
}

// Elements for readers that know no packed matrices.
void Selector::unpack(ValueId id) {
  auto* const data = constant_of(id);
  if (data == nullptr || (*data)->packed.matrix == nullptr) return;
  *data = core::unpacked(*data);
  steps_.buffers[static_cast<size_t>(buffer_of(id))].bytes =
      static_cast<int64_t>((*data)->bytes.size());
}

// Steps, and what was told of them.
void Selector::put_in_order() {
  const std::vector<int32_t> order = plan::schedule(steps_);
  std::vector<Step> steps;
  std::vector<size_t> place(order.size() + 1, order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    place[static_cast<size_t>(order[i])] = i;
    steps.push_back(std::move(steps_.steps[static_cast<size_t>(order[i])]));
  }
  steps_.steps = std::move(steps);
  if (options_.report == nullptr) return;
  // Views and constants stand before the step that followed them.
  std::vector<size_t> items(options_.report->size());
  for (size_t i = 0; i < items.size(); ++i) items[i] = i;
  std::stable_sort(items.begin(), items.end(),
                   [&](size_t a, size_t b) { return place[told_at_[a]] < place[told_at_[b]]; });
  std::vector<SelectionReport> told;
  for (const size_t item : items) told.push_back(std::move((*options_.report)[item]));
  *options_.report = std::move(told);
}

Operand Selector::operand(ValueId id) {
  Operand out;
  if (!is_tensor(id)) return out;
  const View& at = view(id);
  out.use = place(id);
  out.dtype = dtype(id);
  out.shape = dims(id);
  out.strides = at.strides;
  const auto* const data = constant_of(at.base);
  if (data == nullptr) return out;
  if (at.base == id && !(*data)->packed.transposed) out.packed = (*data)->packed.matrix;
  if (out.packed == nullptr) give_elements(out, id);
  return out;
}

void Selector::give_elements(Operand& operand, ValueId id) {
  unpack(view(id).base);
  operand.packed = nullptr;
  if (const auto* const data = constant_of(view(id).base)) {
    operand.constant = (*data)->bytes.data() + operand.use.offset;
  }
}

bool wants_canonical(const SelectOptions& options, const ir::OpDef& op) {
  return options.canonical || (options.exact_conv && op.name.starts_with("conv2d"));
}

ir::Support supports(const KernelTable& kernels, const ir::Graph& graph, const Node& node,
                     const SelectOptions& options) {
  if (!kernels.has(ir::Registry::global().get(node.op).name)) return ir::Support::kNone;
  if (kernel_for(kernels, graph, node, options) != nullptr) return ir::Support::kAsIs;
  const bool is_wide = kernel_for(kernels, graph, node, options, core::widened) != nullptr;
  return is_wide ? ir::Support::kWidened : ir::Support::kNone;
}

core::Result<plan::Steps> select_steps(const ir::Graph& graph, const Backend& backend,
                                       const SelectOptions& options) {
  MITHRIL_RETURN_IF_ERROR(check_hosts(graph, backend.name()));
  MITHRIL_RETURN_IF_ERROR(ir::check_addresses(graph));
  return Selector(graph, backend, options).run();
}

}  // namespace mithril::select
