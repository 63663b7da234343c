// Steps that copy: operands that lie otherwise, outputs and inputs that are overwritten.
#include <utility>

#include "plan/cost.h"
#include "plan/schedule.h"
#include "select/selector.h"
#include "tile/builder.h"

namespace mithril::select {

// A contiguous copy of what `source` shows, into the buffer of `uses`.
Status Selector::add_copy(ValueId source, plan::OperandRef target, const char* label) {
  return add_copy(read(source), dims(source), view(source).strides, target, label);
}

Status Selector::add_copy(plan::OperandRef source, const std::vector<int64_t>& shape,
                          const std::vector<int64_t>& from, plan::OperandRef target,
                          const char* label) {
  tile::Builder tile;
  tile.store(tile.load(steps_.buffers[static_cast<size_t>(target.buffer)].dtype));
  MITHRIL_ASSIGN(const auto kernel, backend_.loop(tile.finish()));
  const std::vector<std::vector<int64_t>> strides{from, contiguous_strides(shape)};
  const std::vector<std::vector<int64_t>> none(strides.size());
  std::string note;
  Step step = kernel->bind({shape, {}, strides, none}, note);
  step.operands = {source, target};
  step.label = label;
  step.nanoseconds = static_cast<double>(steps_.buffers[static_cast<size_t>(target.buffer)].bytes) /
                     plan::kBasicPerNanosecond;
  steps_.steps.push_back(std::move(step));
  return {};
}

Status Selector::emit_reshape_copy(const Node& node) {
  materialize(node.results[0]);
  group_report_.kernel = "copy";
  if (options_.report != nullptr) {
    group_report_.notes.emplace_back(
        "no view: the elements do not lie in the order of the new shape");
  }
  return add_copy(node.operands[0], write(node.results[0]), "copy");
}

Status Selector::copy_outputs() {
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    const ValueId id = graph_.outputs[i].value;
    if (!is_tensor(id)) continue;
    const View& at = view(id);
    const bool own =
        at.base == id && buffer_of(id) >= 0 &&
        steps_.buffers[static_cast<size_t>(buffer_of(id))].kind == BufferSpec::Kind::kOutput &&
        steps_.buffers[static_cast<size_t>(buffer_of(id))].index == static_cast<int32_t>(i);
    if (own) continue;
    const BufferId target = add_buffer(BufferSpec::Kind::kOutput, static_cast<int32_t>(i), id);
    MITHRIL_RETURN_IF_ERROR(add_copy(id, {target, 0, true}, "output"));
    if (options_.report == nullptr) continue;
    told_at_.push_back(steps_.steps.size() - 1);
    options_.report->push_back({"copy",
                                {{"output", graph_.outputs[i].name}},
                                dims(id),
                                {"the value is a view, an input, a constant or another output"},
                                steps_.steps.back().call,
                                {}});
  }
  return {};
}

// What cannot be written over the input at once is copied there in the end.
Status Selector::overwrite_inputs() {
  std::vector<BufferId> outputs(graph_.outputs.size(), -1);
  for (size_t i = 0; i < steps_.buffers.size(); ++i) {
    const BufferSpec& buffer = steps_.buffers[i];
    if (buffer.kind != BufferSpec::Kind::kOutput) continue;
    outputs[static_cast<size_t>(buffer.index)] = static_cast<BufferId>(i);
  }
  std::vector<std::pair<BufferId, BufferId>> pairs;
  for (const plan::Donation& one : options_.overwrites) {
    pairs.emplace_back(outputs[static_cast<size_t>(one.output)],
                       buffer_of(graph_.inputs[static_cast<size_t>(one.input)]));
  }
  const auto refused = plan::overwrite_inputs(steps_, pairs);
  for (const auto& [output, input] : pairs) {
    BufferSpec& own = steps_.buffers[static_cast<size_t>(output)];
    own.kind = BufferSpec::Kind::kTemporary;
    own.index = 0;
  }
  for (const auto& [output, input] : refused) {
    const std::vector<int64_t> shape = steps_.buffers[static_cast<size_t>(output)].shape;
    MITHRIL_RETURN_IF_ERROR(add_copy({output, 0, false}, shape, contiguous_strides(shape),
                                     {input, 0, true}, "overwrite"));
  }
  return {};
}

Status Selector::make_contiguous(Operand& operand, ValueId id) {
  if (!operand.present() || is_contiguous(operand.shape, operand.strides)) return {};
  const BufferId copy = add_buffer(BufferSpec::Kind::kTemporary, 0, id);
  MITHRIL_RETURN_IF_ERROR(add_copy(id, {copy, 0, true}, "copy"));
  if (options_.report != nullptr) {
    group_report_.notes.push_back(
        fmt::format("copies an operand {} first: the kernel takes no strides",
                    to_string(graph_.type(id), graph_.dims)));
  }
  operand.use = {copy, 0, false};
  operand.constant = nullptr;
  operand.strides = contiguous_strides(operand.shape);
  return {};
}

}  // namespace mithril::select
