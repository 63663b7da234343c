#include "select/select.h"

#include <algorithm>
#include <utility>

#include "core/checked.h"
#include "core/packed_matrix.h"
#include "core/tensor_data.h"
#include "ir/registry.h"
#include "ir/scan.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/schedule.h"
#include "select/epilogue.h"
#include "select/fuse.h"
#include "select/tile_lowering.h"
#include "select/views.h"
#include "tile/builder.h"

namespace mithril::select {
namespace {

using core::Code;
using core::ErrorKind;
using core::Status;
using ir::kNoValue;
using ir::Node;
using ir::ValueId;
using plan::Buffer;
using plan::BufferId;
using plan::Step;

using DTypeOf = core::DType (*)(core::DType);

core::DType itself(core::DType dtype) { return dtype; }

// Operands as they would lie without views, in types that `as` makes of theirs.
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

bool has_host_operands(const ir::Graph& graph, const Node& node) {
  return std::any_of(node.operands.begin(), node.operands.end(),
                     [&](ValueId id) { return id != kNoValue && !graph.type(id).is_tensor; });
}

const KernelDef* kernel_for(const KernelTable& kernels, const ir::Graph& graph, const Node& node,
                            DTypeOf as = itself) {
  if (has_host_operands(graph, node)) return nullptr;
  const auto inputs = plain_operands(graph, node.operands, as);
  const auto outputs = plain_operands(graph, node.results, as);
  return kernels.find({node, ir::Registry::global().get(node.op), inputs, outputs});
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
                                    const Node& node) {
  if (!graph.type(node.results[0]).is_tensor) return EpilogueSupport::kNothing;
  // Kernels for packed operands are others, which the plain ones do not tell.
  if (std::any_of(node.operands.begin(), node.operands.end(),
                  [&](ValueId id) { return is_packed(graph, id); })) {
    return EpilogueSupport::kNothing;
  }
  const KernelDef* kernel = kernel_for(kernels, graph, node);
  if (kernel == nullptr) return EpilogueSupport::kNothing;
  if (kernel->epilogue_support != EpilogueSupport::kRows) return kernel->epilogue_support;
  // An update in place would be half done where an index is refused.
  const bool is_matrix = graph.type(node.results[0]).shape.size() == 2;
  return is_matrix && are_checked(graph, node) ? EpilogueSupport::kRows : EpilogueSupport::kNothing;
}

class Selector {
 public:
  Selector(const ir::Graph& graph, const Backend& backend, const SelectOptions& options)
      : graph_(graph),
        backend_(backend),
        options_(options),
        threads_(options.threads > 0 ? options.threads : backend.threads()),
        fusion_(fuse(graph, options.fuse)),
        buffers_(graph.values.size(), -1),
        views_(graph.values.size()),
        waits_(graph.values.size()) {
    if (options.fuse && options.epilogues) {
      attach_epilogues(graph, fusion_, [&](const Node& node) {
        return epilogue_support_of(backend.kernels(), graph, node);
      });
    }
  }

  core::Result<plan::Steps> run() {
    MITHRIL_RETURN_IF_ERROR(place_inputs());
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

 private:
  std::vector<int64_t> dims(ValueId id) const { return ir::static_dims(graph_.type(id).shape); }
  core::DType dtype(ValueId id) const { return graph_.type(id).dtype; }
  bool is_tensor(ValueId id) const { return id != kNoValue && graph_.type(id).is_tensor; }
  BufferId& buffer_of(ValueId id) { return buffers_[static_cast<size_t>(id)]; }
  View& view(ValueId id) { return views_[static_cast<size_t>(id)]; }

  // ---------------------------------------------------------------- buffers

  static core::Result<int64_t> byte_size(const ir::Graph& graph, ValueId id) {
    const ir::Type& type = graph.type(id);
    const auto count = core::element_count(ir::static_dims(type.shape));
    const auto bytes =
        count ? core::checked_mul(*count, static_cast<int64_t>(core::size_of(type.dtype)))
              : std::nullopt;
    if (!bytes) {
      return core::fail(ErrorKind::kMemory, Code::kOutOfMemory,
                        "a value of type {} does not fit an address space",
                        to_string(type, graph.dims));
    }
    return *bytes;
  }

  core::Result<BufferId> add_buffer(Buffer::Kind kind, int32_t index, ValueId id) {
    MITHRIL_ASSIGN(const int64_t bytes, byte_size(graph_, id));
    const ir::Node* maker = graph_.producer(id);
    steps_.buffers.push_back({kind, index, bytes, dtype(id), dims(id),
                              maker == nullptr ? "" : graph_.location_of(*maker).path});
    return static_cast<BufferId>(steps_.buffers.size()) - 1;
  }

  Status give_buffer(ValueId id, Buffer::Kind kind, int32_t index) {
    auto made = add_buffer(kind, index, id);
    if (!made.ok()) return std::move(made).status();
    steps_.buffers.back().value = id;
    buffer_of(id) = *made;
    view(id) = {id, 0, contiguous_strides(dims(id))};
    return {};
  }

  Status place_inputs() {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (!is_tensor(graph_.inputs[i])) continue;
      MITHRIL_RETURN_IF_ERROR(
          give_buffer(graph_.inputs[i], Buffer::Kind::kInput, static_cast<int32_t>(i)));
    }
    return {};
  }

  // The first output that names a value may be the value's own buffer; the others are copies.
  void reserve_outputs() {
    output_of_.assign(graph_.values.size(), -1);
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      int32_t& output = output_of_[static_cast<size_t>(graph_.outputs[i].value)];
      if (output < 0) output = static_cast<int32_t>(i);
    }
  }

  // Memory for a value that a step writes.
  Status materialize(ValueId id) {
    const int32_t output = output_of_[static_cast<size_t>(id)];
    return output >= 0 ? give_buffer(id, Buffer::Kind::kOutput, output)
                       : give_buffer(id, Buffer::Kind::kTemporary, 0);
  }

  plan::OperandRef read(ValueId id) {
    unpack(view(id).base);
    return place(id);
  }
  plan::OperandRef place(ValueId id) {
    const View& at = view(id);
    return {buffer_of(at.base), at.offset * static_cast<int64_t>(core::size_of(dtype(id))), false};
  }
  plan::OperandRef write(ValueId id) { return {buffer_of(id), 0, true}; }

  // ---------------------------------------------------------------- order

  // A step waits for what views of its operands wait for.
  void note_nodes(const Group& group, size_t first_step) {
    std::vector<BufferId> waits;
    for (const ir::NodeId at : group.nodes) {
      for (const ValueId id : graph_.node(at).operands) {
        if (id == kNoValue) continue;
        const auto& more = waits_[static_cast<size_t>(id)];
        waits.insert(waits.end(), more.begin(), more.end());
      }
    }
    for (size_t i = first_step; i < steps_.steps.size(); ++i) {
      steps_.steps[i].nodes = group.nodes;
      steps_.steps[i].waits = waits;
    }
    if (first_step < steps_.steps.size()) return;
    const Node& node = graph_.node(group.nodes[0]);
    if (ir::Registry::global().get(node.op).name == "after") {
      waits.push_back(buffer_of(view(node.operands[1]).base));
    }
    waits_[static_cast<size_t>(node.results[0])] = std::move(waits);
  }

  // ---------------------------------------------------------------- report

  struct GroupReport {
    std::string kernel;
    std::vector<std::string> notes;
    std::vector<std::vector<SelectionReport>> inner;
  };

  // What emit() noted of this group, under what fuse() says of it.
  void tell(int32_t group) {
    const bool is_step = group_report_.kernel != "view" && group_report_.kernel != "constant";
    is_step_.push_back(is_step && !group_report_.kernel.empty());
    SelectionReport report = report_of(graph_, fusion_, group, is_step_);
    if (!is_step_.back()) report.notes.clear();
    report.kernel = std::exchange(group_report_.kernel, "");
    report.inner = std::exchange(group_report_.inner, {});
    for (std::string& note : group_report_.notes) report.notes.push_back(std::move(note));
    group_report_.notes.clear();
    options_.report->push_back(std::move(report));
  }

  void note_kernels(const KernelRequest& request, const KernelDef* chosen) {
    if (options_.report == nullptr) return;
    for (const KernelDef* kernel : backend_.kernels().rows_of(request.op.name)) {
      if (kernel->packed != chosen->packed) continue;
      if (kernel == chosen) {
        if (*kernel->matches.text == 0) continue;
        group_report_.notes.push_back(
            fmt::format("kernel {}: it takes {}", kernel->name, kernel->matches.text));
      } else if (kernel->matches(request)) {
        group_report_.notes.push_back(
            fmt::format("kernel {} would do, but {} comes first", kernel->name, chosen->name));
      } else {
        group_report_.notes.push_back(
            fmt::format("kernel {} is not taken: it wants {}", kernel->name, kernel->matches.text));
      }
    }
  }

  // ---------------------------------------------------------------- groups

  Status emit(const Group& group) {
    if (group.product != ir::kNoNode) return emit_product(group);
    if (group.is_loop) return emit_loop(group);
    const Node& node = graph_.node(group.nodes[0]);
    const ir::OpDef& op = ir::Registry::global().get(node.op);
    if (!graph_.type(node.results[0]).is_tensor) return {};  // host values are attributes by now
    if (op.name == "constant") {
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
      if (is_reshape(op.name)) return emit_reshape_copy(node);
    }
    if (ir::is_cond(node)) return emit_branch(node);
    return node.regions.empty() ? emit_kernel(node, op) : emit_loop_of(node);
  }

  Status emit_constant(const Node& node) {
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
    MITHRIL_RETURN_IF_ERROR(give_buffer(id, Buffer::Kind::kConstant,
                                        static_cast<int32_t>(steps_.constants.size()) - 1));
    if (packed != nullptr) steps_.buffers.back().bytes = packed->bytes();
    return {};
  }

  // What a value is the constant of, or null.
  std::shared_ptr<const core::TensorData>* constant_of(ValueId id) {
    Buffer& buffer = steps_.buffers[static_cast<size_t>(buffer_of(id))];
    if (buffer.kind != Buffer::Kind::kConstant) return nullptr;
    return &steps_.constants[static_cast<size_t>(buffer.index)];
  }

  // Elements for readers that know no packed matrices.
  void unpack(ValueId id) {
    auto* const data = constant_of(id);
    if (data == nullptr || (*data)->packed.matrix == nullptr) return;
    *data = core::unpacked(*data);
    steps_.buffers[static_cast<size_t>(buffer_of(id))].bytes =
        static_cast<int64_t>((*data)->bytes.size());
  }

  Status emit_loop(const Group& group) {
    auto lowered = lower_group(graph_, fusion_, group);
    if (!lowered.ok()) return std::move(lowered).status();
    for (const ValueId id : group.outputs) MITHRIL_RETURN_IF_ERROR(materialize(id));
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

  std::vector<int64_t> output_strides(const Group& group, ValueId id) const {
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
      const bool reduced = std::binary_search(group.reduced.begin(), group.reduced.end(),
                                              static_cast<int64_t>(axis));
      if (!reduced) out[axis] = own[next++];
    }
    return out;
  }

  Status add_loop(const Group& group, const LoopProgram& lowered,
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
  std::string label_of(const Group& group) const {
    std::string out;
    for (const ir::NodeId id : group.nodes) {
      if (id == group.product) continue;
      if (!out.empty()) out += '+';
      out += ir::Registry::global().get(graph_.node(id).op).name;
    }
    return out;
  }

  // So much for each lane and each row of a loop, in all.
  static double in_all(const LoopProgram& lowered, int64_t lane, int64_t row) {
    double rows = 1, points = 1;
    for (const int64_t size : lowered.kept) rows *= static_cast<double>(size);
    for (const int64_t size : lowered.reduced) points *= static_cast<double>(size);
    return rows * (points * static_cast<double>(lane) + static_cast<double>(row));
  }
  static double operations(const LoopProgram& lowered) {
    const tile::Statistics each = tile::statistics(lowered.program);
    return in_all(lowered, each.lane_operations, each.row_operations);
  }
  static double nanoseconds(const LoopProgram& lowered) {
    const tile::Statistics each = tile::statistics(lowered.program);
    return in_all(lowered, each.lane_cost, each.row_cost) / plan::kBasicPerNanosecond;
  }

  // Operands that lie exactly like an output and are read there only.
  std::vector<plan::InPlace> overwritable(const LoopKernel& kernel, const Group& group,
                                          const LoopProgram& lowered,
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

  // ---------------------------------------------------------------- copies

  // A contiguous copy of what `source` shows, into the buffer of `uses`.
  Status add_copy(ValueId source, plan::OperandRef target, const char* label) {
    return add_copy(read(source), dims(source), view(source).strides, target, label);
  }

  Status add_copy(plan::OperandRef source, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& from, plan::OperandRef target, const char* label) {
    tile::Builder tile;
    tile.store(tile.load(steps_.buffers[static_cast<size_t>(target.buffer)].dtype));
    MITHRIL_ASSIGN(const auto kernel, backend_.loop(tile.finish()));
    const std::vector<std::vector<int64_t>> strides{from, contiguous_strides(shape)};
    const std::vector<std::vector<int64_t>> none(strides.size());
    std::string note;
    Step step = kernel->bind({shape, {}, strides, none}, note);
    step.operands = {source, target};
    step.label = label;
    step.nanoseconds =
        static_cast<double>(steps_.buffers[static_cast<size_t>(target.buffer)].bytes) /
        plan::kBasicPerNanosecond;
    steps_.steps.push_back(std::move(step));
    return {};
  }

  Status emit_reshape_copy(const Node& node) {
    MITHRIL_RETURN_IF_ERROR(materialize(node.results[0]));
    group_report_.kernel = "copy";
    if (options_.report != nullptr) {
      group_report_.notes.emplace_back(
          "no view: the elements do not lie in the order of the new shape");
    }
    return add_copy(node.operands[0], write(node.results[0]), "copy");
  }

  Status copy_outputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const ValueId id = graph_.outputs[i].value;
      if (!is_tensor(id)) continue;
      const View& at = view(id);
      const bool own =
          at.base == id && buffer_of(id) >= 0 &&
          steps_.buffers[static_cast<size_t>(buffer_of(id))].kind == Buffer::Kind::kOutput &&
          steps_.buffers[static_cast<size_t>(buffer_of(id))].index == static_cast<int32_t>(i);
      if (own) continue;
      auto target = add_buffer(Buffer::Kind::kOutput, static_cast<int32_t>(i), id);
      if (!target.ok()) return std::move(target).status();
      MITHRIL_RETURN_IF_ERROR(add_copy(id, {*target, 0, true}, "output"));
      if (options_.report == nullptr) continue;
      told_at_.push_back(steps_.steps.size() - 1);
      options_.report->push_back({"copy",
                                  {{"output", graph_.outputs[i].name}},
                                  dims(id),
                                  {"the value is a view, an input, a constant or another output"},
                                  {}});
    }
    return {};
  }

  // What cannot be written over the input at once is copied there in the end.
  Status overwrite_inputs() {
    std::vector<BufferId> outputs(graph_.outputs.size(), -1);
    for (size_t i = 0; i < steps_.buffers.size(); ++i) {
      const Buffer& buffer = steps_.buffers[i];
      if (buffer.kind != Buffer::Kind::kOutput) continue;
      outputs[static_cast<size_t>(buffer.index)] = static_cast<BufferId>(i);
    }
    std::vector<std::pair<BufferId, BufferId>> pairs;
    for (const Donation& one : options_.overwrites) {
      pairs.emplace_back(outputs[static_cast<size_t>(one.output)],
                         buffer_of(graph_.inputs[static_cast<size_t>(one.input)]));
    }
    const auto refused = plan::overwrite_inputs(steps_, pairs);
    for (const auto& [output, input] : pairs) {
      Buffer& own = steps_.buffers[static_cast<size_t>(output)];
      own.kind = Buffer::Kind::kTemporary;
      own.index = 0;
    }
    for (const auto& [output, input] : refused) {
      const std::vector<int64_t> shape = steps_.buffers[static_cast<size_t>(output)].shape;
      MITHRIL_RETURN_IF_ERROR(add_copy({output, 0, false}, shape, contiguous_strides(shape),
                                       {input, 0, true}, "overwrite"));
    }
    return {};
  }

  // Steps, and what was told of them.
  void put_in_order() {
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

  // ---------------------------------------------------------------- kernels

  Operand operand(ValueId id) {
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

  void give_elements(Operand& operand, ValueId id) {
    unpack(view(id).base);
    operand.packed = nullptr;
    if (const auto* const data = constant_of(view(id).base)) {
      operand.constant = (*data)->bytes.data() + operand.use.offset;
    }
  }

  Status make_contiguous(Operand& operand, ValueId id) {
    if (!operand.present() || is_contiguous(operand.shape, operand.strides)) return {};
    auto copy = add_buffer(Buffer::Kind::kTemporary, 0, id);
    if (!copy.ok()) return std::move(copy).status();
    MITHRIL_RETURN_IF_ERROR(add_copy(id, {*copy, 0, true}, "copy"));
    if (options_.report != nullptr) {
      group_report_.notes.push_back(
          fmt::format("copies an operand {} first: the kernel takes no strides",
                      to_string(graph_.type(id), graph_.dims)));
    }
    operand.use = {*copy, 0, false};
    operand.constant = nullptr;
    operand.strides = contiguous_strides(operand.shape);
    return {};
  }

  // The kernel's step on `inputs`, those of the request: copied first where it takes no strides,
  // and those that are no arrays left out.
  core::Result<Step> made_by(const KernelDef& kernel, const KernelRequest& request,
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

  KernelRequest request_for(const Node& node, const ir::OpDef& op, std::span<const Operand> inputs,
                            std::span<const Operand> outputs,
                            const Epilogue* epilogue = nullptr) const {
    return {node,     op,      inputs, outputs, options_.exact_conv, options_.exact_linalg,
            epilogue, threads_};
  }

  Status emit_kernel(const Node& node, const ir::OpDef& op) {
    std::vector<Operand> inputs, outputs;
    for (const ValueId id : node.operands) inputs.push_back(operand(id));
    for (const ValueId id : node.results) {
      MITHRIL_RETURN_IF_ERROR(materialize(id));
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
    step->label = group_report_.kernel = std::string(kernel->name);
    step->location = graph_.location_of(node);
    steps_.steps.push_back(std::move(*step));
    return {};
  }

  // A kernel with an epilogue.
  Status emit_product(const Group& group) {
    const Node& node = graph_.node(group.product);
    const ir::OpDef& op = ir::Registry::global().get(node.op);
    auto lowered = lower_group(graph_, fusion_, group);
    if (!lowered.ok()) return std::move(lowered).status();
    for (const ValueId id : group.outputs) MITHRIL_RETURN_IF_ERROR(materialize(id));
    if (!group.by_rows) MITHRIL_RETURN_IF_ERROR(place_product(group, *lowered));
    std::vector<Operand> inputs;
    for (const ValueId id : node.operands) inputs.push_back(operand(id));
    Operand result = plain_operands(graph_, node.results, itself)[0];
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
  Status overwrite_rows(const Group& group, const LoopProgram& lowered,
                        const std::vector<Operand>& operands, int32_t first, Step& step) const {
    MITHRIL_ASSIGN(const auto kernel, backend_.loop(lowered.program));
    std::vector<plan::OperandRef> uses;
    std::vector<std::vector<int64_t>> strides;
    for (const Operand& operand : operands) {
      uses.push_back(operand.use);
      strides.push_back(operand.strides);
    }
    const auto result =
        static_cast<int32_t>(load_of(lowered, graph_.node(group.product).results[0]));
    for (plan::InPlace in : overwritable(*kernel, group, lowered, uses, strides)) {
      const plan::BufferId buffer = uses[static_cast<size_t>(in.operand)].buffer;
      const auto own = step.operands.begin() + first;
      const bool is_read =
          std::any_of(step.operands.begin(), own,
                      [&](const plan::OperandRef& use) { return use.buffer == buffer; });
      if (in.operand == result || is_read) continue;
      in.operand += first - (in.operand > result ? 1 : 0);
      step.inplace.push_back(in);
    }
    return {};
  }

  static size_t load_of(const LoopProgram& lowered, ValueId id) {
    const auto at = std::find_if(lowered.loads.begin(), lowered.loads.end(),
                                 [&](const auto& load) { return load.value == id; });
    return static_cast<size_t>(at - lowered.loads.begin());
  }

  // Of the program, with strides along the axes of the product's result, which has no memory by
  // rows.
  std::vector<Operand> epilogue_operands(const Group& group, const LoopProgram& lowered) {
    std::vector<Operand> out;
    const auto add = [&](ValueId id) {
      out.push_back(operand(id));
      if (out.back().packed != nullptr) give_elements(out.back(), id);
      out.back().strides = broadcast_strides(out.back().shape, out.back().strides, group.shape);
      out.back().shape = group.shape;
    };
    for (const auto& load : lowered.loads) {
      if (group.by_rows && load.value == graph_.node(group.product).results[0]) {
        out.push_back(plain_operands(graph_, {load.value}, itself)[0]);
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
  Status place_product(const Group& group, const LoopProgram& lowered) {
    const ValueId result = graph_.node(group.product).results[0];
    if (group.keeps_product) return materialize(result);
    MITHRIL_ASSIGN(const auto kernel, backend_.loop(lowered.program));
    const auto input = static_cast<uint32_t>(load_of(lowered, result));
    for (uint32_t k = 0; k < group.outputs.size(); ++k) {
      const ValueId output = group.outputs[k];
      if (dtype(output) != dtype(result) || !kernel->can_alias(input, k)) continue;
      buffer_of(result) = buffer_of(output);
      view(result) = {result, 0, contiguous_strides(dims(result))};
      return {};
    }
    return materialize(result);
  }

  // Regions are selected and planned like graphs of their own.
  core::Result<std::shared_ptr<const plan::Plan>> planned(const ir::Graph& region) {
    SelectOptions options = options_;
    options.overwrites.clear();
    if (options.report != nullptr) options.report = &group_report_.inner.emplace_back();
    MITHRIL_ASSIGN(plan::Steps steps, select_steps(region, backend_, options));
    MITHRIL_ASSIGN(plan::Plan made, plan::make_plan(std::move(steps)));
    return std::make_shared<const plan::Plan>(std::move(made));
  }

  // A step without its kernel, of contiguous operands and results in memory of their own.
  core::Result<Step> step_of(const Node& node, const ir::OpDef& op) {
    Step step;
    for (const ValueId id : node.operands) {
      Operand input = operand(id);
      if (input.packed != nullptr) give_elements(input, id);
      MITHRIL_RETURN_IF_ERROR(make_contiguous(input, id));
      step.operands.push_back(input.use);
    }
    for (const ValueId id : node.results) {
      MITHRIL_RETURN_IF_ERROR(materialize(id));
      step.operands.push_back(write(id));
    }
    step.label = group_report_.kernel = op.name;
    step.location = graph_.location_of(node);
    return step;
  }

  Status emit_loop_of(const Node& node) {
    const ir::RegionParts parts = ir::region_parts(node);
    auto loop = std::make_shared<plan::Loop>();
    const ir::Graph& body = ir::body_of(node);
    MITHRIL_ASSIGN(loop->body, planned(body));
    loop->constants = static_cast<int32_t>(parts.constants);
    if (ir::is_scan(node)) {
      loop->length = ir::length_of(ir::scan_parts(node)).value();
      loop->reverse = ir::scan_parts(node).reverse;
    } else {
      MITHRIL_ASSIGN(loop->condition, planned(*node.regions[0]));
    }
    for (size_t i = 0; i < parts.constant(0); ++i) {
      MITHRIL_ASSIGN(const int64_t bytes, byte_size(body, body.inputs[i]));
      (parts.is_x(i) ? loop->x_bytes : loop->carry_bytes).push_back(bytes);
    }
    for (size_t i = parts.carries; i < node.results.size(); ++i) {
      MITHRIL_ASSIGN(const int64_t bytes, byte_size(body, body.outputs[i].value));
      loop->y_bytes.push_back(bytes);
    }
    MITHRIL_ASSIGN(Step step, step_of(node, ir::Registry::global().get(node.op)));
    step.loop = std::move(loop);
    steps_.steps.push_back(std::move(step));
    return {};
  }

  Status emit_branch(const Node& node) {
    auto branch = std::make_shared<plan::Branch>();
    MITHRIL_ASSIGN(branch->taken, planned(*node.regions[0]));
    MITHRIL_ASSIGN(branch->other, planned(*node.regions[1]));
    branch->inputs = static_cast<int32_t>(ir::region_parts(node).inputs());
    MITHRIL_ASSIGN(Step step, step_of(node, ir::Registry::global().get(node.op)));
    step.branch = std::move(branch);
    steps_.steps.push_back(std::move(step));
    return {};
  }

  Status unsupported(const Node& node, const ir::OpDef& op) const {
    std::string types;
    for (const ValueId id : node.operands) {
      if (id == kNoValue) continue;
      types += (types.empty() ? "" : ", ") + to_string(graph_.type(id), graph_.dims);
    }
    core::Error error =
        core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                   "the {} backend has no kernel for {}({})", backend_.name(), op.name, types);
    error.location = graph_.location_of(node);
    return error;
  }

  const ir::Graph& graph_;
  const Backend& backend_;
  const SelectOptions& options_;
  int threads_;
  Fusion fusion_;
  plan::Steps steps_;
  std::vector<BufferId> buffers_;             // by value: of its own memory
  std::vector<View> views_;                   // by value
  std::vector<std::vector<BufferId>> waits_;  // by value: of views
  std::vector<int32_t> output_of_;            // by value: the output that it may be written to
  GroupReport group_report_;                  // of the group under way
  std::vector<size_t> told_at_;               // by report: the step that followed
  std::vector<bool> is_step_;                 // by group; with a report only
};

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

ir::Support supports(const KernelTable& kernels, const ir::Graph& graph, const Node& node) {
  if (!kernels.has(ir::Registry::global().get(node.op).name)) return ir::Support::kNone;
  if (kernel_for(kernels, graph, node) != nullptr) return ir::Support::kAsIs;
  return kernel_for(kernels, graph, node, core::widened) == nullptr ? ir::Support::kNone
                                                                    : ir::Support::kWidened;
}

core::Result<plan::Steps> select_steps(const ir::Graph& graph, const Backend& backend,
                                       const SelectOptions& options) {
  MITHRIL_RETURN_IF_ERROR(check_hosts(graph, backend.name()));
  return Selector(graph, backend, options).run();
}

}  // namespace mithril::select
