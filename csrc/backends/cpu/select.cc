#include "backends/cpu/select.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/interpreter.h"
#include "backends/cpu/kernels.h"
#include "core/checked.h"
#include "core/tensor_data.h"
#include "ir/registry.h"
#include "ir/scan.h"
#include "plan/plan.h"
#include "select/fuse.h"
#include "select/tile_lowering.h"
#include "select/views.h"
#include "tile/builder.h"

namespace mithril::cpu {
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
using select::Group;
using select::View;

constexpr int64_t kUnitsPerChunk = 1;  // a loop's unit is a chunk already (see make_loop)

class Selector {
 public:
  Selector(const ir::Graph& graph, const SelectOptions& options)
      : graph_(graph),
        options_(options),
        fusion_(select::fuse(graph, options.fuse)),
        buffers_(graph.values.size(), -1),
        views_(graph.values.size()) {}

  core::Result<plan::Steps> run() {
    MITHRIL_RETURN_IF_ERROR(place_inputs());
    reserve_outputs();
    for (size_t at = 0; at < fusion_.groups.size(); ++at) {
      MITHRIL_RETURN_IF_ERROR(emit(fusion_.groups[at]));
      if (options_.story != nullptr) tell(static_cast<int32_t>(at));
    }
    MITHRIL_RETURN_IF_ERROR(copy_outputs());
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
    buffer_of(id) = *made;
    view(id) = {id, 0, select::contiguous_strides(dims(id))};
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

  plan::Use read(ValueId id) {
    const View& at = view(id);
    return {buffer_of(at.base), at.offset * static_cast<int64_t>(core::size_of(dtype(id))), false};
  }
  plan::Use write(ValueId id) { return {buffer_of(id), 0, true}; }

  // ---------------------------------------------------------------- story

  struct Told {
    std::string kernel;
    std::vector<std::string> notes;
    std::vector<std::vector<select::Story>> inner;
  };

  // What emit() noted of this group, under what fuse() says of it.
  void tell(int32_t group) {
    const bool is_step = told_.kernel != "view" && told_.kernel != "constant";
    is_step_.push_back(is_step && !told_.kernel.empty());
    select::Story story = select::story_of(graph_, fusion_, group, is_step_);
    if (!is_step_.back()) story.notes.clear();
    story.kernel = std::exchange(told_.kernel, "");
    story.inner = std::exchange(told_.inner, {});
    for (std::string& note : told_.notes) story.notes.push_back(std::move(note));
    told_.notes.clear();
    options_.story->push_back(std::move(story));
  }

  void note_kernels(const select::KernelRequest& request, const select::KernelDef* chosen) {
    if (options_.story == nullptr) return;
    for (const select::KernelDef* kernel : kernels_of(request.op.name)) {
      if (kernel == chosen) {
        if (*kernel->matches.text == 0) continue;
        told_.notes.push_back(
            fmt::format("kernel {}: it takes {}", kernel->name, kernel->matches.text));
      } else if (kernel->matches(request)) {
        told_.notes.push_back(
            fmt::format("kernel {} would do, but {} comes first", kernel->name, chosen->name));
      } else {
        told_.notes.push_back(
            fmt::format("kernel {} is not taken: it wants {}", kernel->name, kernel->matches.text));
      }
    }
  }

  // ---------------------------------------------------------------- groups

  Status emit(const Group& group) {
    if (group.is_loop) return emit_loop(group);
    const Node& node = graph_.node(group.nodes[0]);
    const ir::OpDef& op = ir::Registry::global().get(node.op);
    if (!graph_.type(node.results[0]).is_tensor) return {};  // host values are attributes by now
    if (op.name == "constant") {
      told_.kernel = "constant";
      return emit_constant(node);
    }
    if (!node.operands.empty() && is_tensor(node.operands[0])) {
      auto window = select::view_of(graph_, node, view(node.operands[0]));
      if (window) {
        view(node.results[0]) = std::move(*window);
        told_.kernel = "view";
        return {};
      }
      if (select::is_reshape(op.name)) return emit_reshape_copy(node);
    }
    if (ir::is_cond(node)) return emit_branch(node);
    return node.regions.empty() ? emit_kernel(node, op) : emit_loop_of(node);
  }

  Status emit_constant(const Node& node) {
    const ValueId id = node.results[0];
    std::shared_ptr<const core::TensorData> data;
    if (const core::HostValue* number = select::scalar_constant(graph_, id)) {
      auto made = std::make_shared<core::TensorData>();
      made->dtype = dtype(id);
      core::append_element(*made, *number);
      data = std::move(made);
    } else {
      const core::HostValue* literal = node.attrs.find("value");
      MITHRIL_CHECK(literal != nullptr && literal->is_tensor(), "a constant without a value");
      data = core::cast_literal(literal->as_tensor(), dtype(id));
    }
    steps_.constants.push_back(std::move(data));
    return give_buffer(id, Buffer::Kind::kConstant,
                       static_cast<int32_t>(steps_.constants.size()) - 1);
  }

  Status emit_loop(const Group& group) {
    auto lowered = select::lower_group(graph_, fusion_, group);
    if (!lowered.ok()) return std::move(lowered).status();
    for (const ValueId id : group.outputs) MITHRIL_RETURN_IF_ERROR(materialize(id));
    std::vector<plan::Use> uses;
    std::vector<std::vector<int64_t>> strides;  // along the domain's axes
    for (const auto& load : lowered->loads) {
      uses.push_back(read(load.value));
      strides.push_back(
          select::broadcast_strides(dims(load.value), view(load.value).strides, group.shape));
    }
    for (const ValueId id : group.outputs) {
      uses.push_back(write(id));
      strides.push_back(output_strides(group, id));
    }
    return add_loop(group, *lowered, std::move(uses), strides);
  }

  std::vector<int64_t> output_strides(const Group& group, ValueId id) const {
    const auto shape = dims(id);
    const auto own = select::contiguous_strides(shape);
    const bool is_row = fusion_.spread[static_cast<size_t>(id)] == select::Spread::kRow;
    if (!is_row || shape.size() == group.shape.size()) {
      return select::broadcast_strides(shape, own, group.shape);
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

  Status add_loop(const Group& group, const select::LoopProgram& lowered,
                  std::vector<plan::Use> uses, const std::vector<std::vector<int64_t>>& strides) {
    auto kernel = TileKernel::make(lowered.program, options_.isa);
    if (!kernel.ok()) return std::move(kernel).status();
    std::vector<std::vector<int64_t>> kept(strides.size()), reduced(strides.size());
    std::vector<OperandStrides> operands;
    for (size_t i = 0; i < strides.size(); ++i) {
      select::split_axes(lowered.inner, strides[i], kept[i], reduced[i]);
      operands.push_back({kept[i], reduced[i]});
    }
    Loop loop = make_loop(**kernel, lowered.kept, lowered.reduced, operands);
    Step step;
    step.kernel = (*kernel)->function();
    step.params = std::move(loop.params);
    step.units = loop.units;
    step.grain = kUnitsPerChunk;
    step.scratch_bytes = loop.scratch_bytes;
    step.data = *kernel;
    step.inplace = overwritable(**kernel, group, lowered, uses, strides);
    step.operands = std::move(uses);
    for (const ir::NodeId id : group.nodes) {
      if (!step.label.empty()) step.label += '+';
      step.label += ir::Registry::global().get(graph_.node(id).op).name;
    }
    step.location = graph_.location_of(graph_.node(group.nodes[0]));
    step.work.amount = operations(lowered);
    told_.kernel = "loop";
    if (loop.interpreted != nullptr && options_.story != nullptr) {
      told_.notes.push_back(fmt::format("interpreted: {}", loop.interpreted));
    }
    if (options_.on_loop) options_.on_loop(step.label, lowered.program);
    steps_.steps.push_back(std::move(step));
    return {};
  }

  static double operations(const select::LoopProgram& lowered) {
    const tile::Statistics each = tile::statistics(lowered.program);
    double rows = 1, points = 1;
    for (const int64_t size : lowered.kept) rows *= static_cast<double>(size);
    for (const int64_t size : lowered.reduced) points *= static_cast<double>(size);
    return rows * (points * static_cast<double>(each.lane_operations) +
                   static_cast<double>(each.row_operations));
  }

  // Operands that lie exactly like the first output and are read there only.
  std::vector<int32_t> overwritable(const TileKernel& kernel, const Group& group,
                                    const select::LoopProgram& lowered,
                                    const std::vector<plan::Use>& uses,
                                    const std::vector<std::vector<int64_t>>& strides) const {
    std::vector<int32_t> out;
    if (group.outputs.empty()) return out;
    const size_t output = lowered.loads.size();
    for (size_t i = 0; i < lowered.loads.size(); ++i) {
      const ValueId id = lowered.loads[i].value;
      const auto same_buffer = [&](const plan::Use& use) { return use.buffer == uses[i].buffer; };
      const bool once = std::count_if(uses.begin(), uses.end(), same_buffer) == 1;
      const bool alike = strides[i] == strides[output] && uses[i].offset == 0 &&
                         dtype(id) == dtype(group.outputs[0]);
      const bool safe = kernel.can_alias(static_cast<uint32_t>(i), 0);
      if (once && alike && safe) out.push_back(static_cast<int32_t>(i));
    }
    return out;
  }

  // ---------------------------------------------------------------- copies

  // A contiguous copy of what `source` shows, into the buffer of `uses`.
  Status add_copy(ValueId source, plan::Use target, const char* label) {
    tile::Builder tile;
    tile.store(tile.load(dtype(source)));
    auto kernel = TileKernel::make(tile.finish(), options_.isa);
    if (!kernel.ok()) return std::move(kernel).status();
    const auto shape = dims(source);
    const auto to = select::contiguous_strides(shape);
    const OperandStrides operands[] = {{view(source).strides, {}}, {to, {}}};
    Loop loop = make_loop(**kernel, shape, {}, operands);
    Step step;
    step.kernel = (*kernel)->function();
    step.params = std::move(loop.params);
    step.units = loop.units;
    step.scratch_bytes = loop.scratch_bytes;
    step.data = *kernel;
    step.operands = {read(source), target};
    step.label = label;
    steps_.steps.push_back(std::move(step));
    return {};
  }

  Status emit_reshape_copy(const Node& node) {
    MITHRIL_RETURN_IF_ERROR(materialize(node.results[0]));
    told_.kernel = "copy";
    if (options_.story != nullptr) {
      told_.notes.emplace_back("no view: the elements do not lie in the order of the new shape");
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
      if (options_.story == nullptr) continue;
      options_.story->push_back({"copy",
                                 {{"output", graph_.outputs[i].name}},
                                 dims(id),
                                 {"the value is a view, an input, a constant or another output"},
                                 {}});
    }
    return {};
  }

  // ---------------------------------------------------------------- kernels

  select::Operand operand(ValueId id) {
    select::Operand out;
    if (!is_tensor(id)) return out;
    out.use = read(id);
    out.dtype = dtype(id);
    out.shape = dims(id);
    out.strides = view(id).strides;
    const Buffer& buffer = steps_.buffers[static_cast<size_t>(out.use.buffer)];
    if (buffer.kind == Buffer::Kind::kConstant) {
      const auto& data = steps_.constants[static_cast<size_t>(buffer.index)];
      out.constant = data->bytes.data() + out.use.offset;
    }
    return out;
  }

  Status make_contiguous(select::Operand& operand, ValueId id) {
    if (!operand.present() || select::is_contiguous(operand.shape, operand.strides)) return {};
    auto copy = add_buffer(Buffer::Kind::kTemporary, 0, id);
    if (!copy.ok()) return std::move(copy).status();
    MITHRIL_RETURN_IF_ERROR(add_copy(id, {*copy, 0, true}, "copy"));
    if (options_.story != nullptr) {
      told_.notes.push_back(fmt::format("copies an operand {} first: the kernel takes no strides",
                                        to_string(graph_.type(id), graph_.dims)));
    }
    operand.use = {*copy, 0, false};
    operand.constant = nullptr;
    operand.strides = select::contiguous_strides(operand.shape);
    return {};
  }

  Status emit_kernel(const Node& node, const ir::OpDef& op) {
    std::vector<select::Operand> inputs, outputs;
    for (const ValueId id : node.operands) inputs.push_back(operand(id));
    for (const ValueId id : node.results) {
      MITHRIL_RETURN_IF_ERROR(materialize(id));
      outputs.push_back(operand(id));
      outputs.back().use.write = true;
    }
    const select::KernelDef* kernel = find_kernel({node, op, inputs, outputs, options_.exact_conv});
    if (kernel == nullptr) return unsupported(node, op);
    note_kernels({node, op, inputs, outputs}, kernel);
    for (size_t i = 0; kernel->contiguous && i < inputs.size(); ++i) {
      MITHRIL_RETURN_IF_ERROR(make_contiguous(inputs[i], node.operands[i]));
    }
    auto step = kernel->make({node, op, inputs, outputs, options_.exact_conv});
    if (!step.ok()) return std::move(step).status();
    for (const select::Operand& input : inputs) {
      if (input.present()) step->operands.push_back(input.use);
    }
    for (const select::Operand& output : outputs) step->operands.push_back(output.use);
    step->label = told_.kernel = std::string(kernel->name);
    step->location = graph_.location_of(node);
    steps_.steps.push_back(std::move(*step));
    return {};
  }

  // Regions are selected and planned like graphs of their own.
  core::Result<std::shared_ptr<const plan::Plan>> planned(const ir::Graph& region) {
    SelectOptions options = options_;
    if (options.story != nullptr) options.story = &told_.inner.emplace_back();
    MITHRIL_ASSIGN(plan::Steps steps, select_steps(region, options));
    MITHRIL_ASSIGN(plan::Plan made, plan::make_plan(std::move(steps)));
    return std::make_shared<const plan::Plan>(std::move(made));
  }

  // A step without its kernel, of contiguous operands and results in memory of their own.
  core::Result<Step> step_of(const Node& node, const ir::OpDef& op) {
    Step step;
    for (const ValueId id : node.operands) {
      select::Operand input = operand(id);
      MITHRIL_RETURN_IF_ERROR(make_contiguous(input, id));
      step.operands.push_back(input.use);
    }
    for (const ValueId id : node.results) {
      MITHRIL_RETURN_IF_ERROR(materialize(id));
      step.operands.push_back(write(id));
    }
    step.label = told_.kernel = op.name;
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
    core::Error error = core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                                   "the cpu backend has no kernel for {}({})", op.name, types);
    error.location = graph_.location_of(node);
    return error;
  }

  const ir::Graph& graph_;
  const SelectOptions& options_;
  select::Fusion fusion_;
  plan::Steps steps_;
  std::vector<BufferId> buffers_;   // by value: of its own memory
  std::vector<View> views_;         // by value
  std::vector<int32_t> output_of_;  // by value: the output that it may be written to
  Told told_;                       // of the group under way
  std::vector<bool> is_step_;       // by group; with a story only
};

// Host values are attributes by now, but for those that only data tell.
Status check_hosts(const ir::Graph& graph) {
  const auto is_host = [&](ValueId id) { return id != kNoValue && !graph.type(id).is_tensor; };
  for (const Node& node : graph.nodes) {
    const ir::OpDef& op = ir::Registry::global().get(node.op);
    const bool computes = op.is_elementwise() || graph.type(node.results[0]).is_tensor;
    const auto open = std::find_if(node.operands.begin(), node.operands.end(), is_host);
    const bool unknown =
        op.is_elementwise() && is_host(node.results[0]) && !graph.value(node.results[0]).host;
    if (!unknown && (!computes || open == node.operands.end())) continue;
    core::Error error = core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                                   "the cpu backend cannot run {} on a number that only the data "
                                   "tell",
                                   op.name);
    error.location = graph.location_of(node);
    error.hint = "make it a tensor, or give it in constant_keys";
    return error;
  }
  return {};
}

}  // namespace

namespace {

// Whether there is a kernel for the node with its tensors in types that `as` makes of theirs.
bool has_kernel(const ir::Graph& graph, const Node& node, core::DType (*as)(core::DType)) {
  const auto operand = [&](ValueId id) {
    select::Operand out;
    if (id == kNoValue) return out;
    out.use.buffer = 0;
    out.dtype = as(graph.type(id).dtype);
    out.shape = ir::static_dims(graph.type(id).shape);
    out.strides = select::contiguous_strides(out.shape);
    return out;
  };
  std::vector<select::Operand> inputs, outputs;
  for (const ValueId id : node.operands) {
    if (id != kNoValue && !graph.type(id).is_tensor) return false;
    inputs.push_back(operand(id));
  }
  for (const ValueId id : node.results) outputs.push_back(operand(id));
  return find_kernel({node, ir::Registry::global().get(node.op), inputs, outputs}) != nullptr;
}

}  // namespace

ir::Runs how_it_runs(const ir::Graph& graph, const Node& node) {
  if (!has_kernel(ir::Registry::global().get(node.op).name)) return ir::Runs::kNot;
  if (has_kernel(graph, node, [](core::DType dtype) { return dtype; })) return ir::Runs::kAsIs;
  return has_kernel(graph, node, core::widened) ? ir::Runs::kWidened : ir::Runs::kNot;
}

core::Result<plan::Steps> select_steps(const ir::Graph& graph, const SelectOptions& options) {
  MITHRIL_RETURN_IF_ERROR(check_hosts(graph));
  return Selector(graph, options).run();
}

}  // namespace mithril::cpu
