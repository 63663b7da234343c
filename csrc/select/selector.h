// The state of one selection. Its functions are in the files that they are named after: select.cc
// (buffers, operands, order), lower.cc (loops), lower_kernels.cc, copies.cc, regions.cc, report.cc.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/registry.h"
#include "plan/steps.h"
#include "select/epilogue.h"
#include "select/fuse.h"
#include "select/select.h"
#include "select/tile_lowering.h"
#include "select/views.h"

namespace mithril::select {

using core::Status;
using ir::kNoValue;
using ir::Node;
using ir::ValueId;
using plan::BufferId;
using plan::BufferSpec;
using plan::Step;

using DTypeOf = core::DType (*)(core::DType);

inline core::DType as_is(core::DType dtype) { return dtype; }

/// Operands as they would lie without views, in types that `as` makes of theirs.
std::vector<Operand> plain_operands(const ir::Graph& graph, const std::vector<ValueId>& values,
                                    DTypeOf as = as_is);

/// Turns one graph into steps, group by group; used once.
class Selector {
 public:
  Selector(const ir::Graph& graph, const Backend& backend, const SelectOptions& options);
  /// For graphs that ir::check_addresses takes.
  core::Result<plan::Steps> run();

 private:
  /// Holds what is told of the group under way.
  struct GroupReport {
    std::string kernel;
    std::vector<std::string> notes;
    std::vector<std::vector<SelectionReport>> inner;
  };

  std::vector<int64_t> dims(ValueId id) const { return ir::static_dims(graph_.type(id).shape); }
  core::DType dtype(ValueId id) const { return graph_.type(id).dtype; }
  bool is_tensor(ValueId id) const { return id != kNoValue && graph_.type(id).is_tensor; }
  BufferId& buffer_of(ValueId id) { return buffers_[static_cast<size_t>(id)]; }
  View& view(ValueId id) { return views_[static_cast<size_t>(id)]; }
  plan::OperandRef write(ValueId id) { return {buffer_of(id), 0, true}; }

  // select.cc: buffers, operands and order
  BufferId add_buffer(BufferSpec::Kind kind, int32_t index, ValueId id);
  void give_buffer(ValueId id, BufferSpec::Kind kind, int32_t index);
  void place_inputs();
  void reserve_outputs();
  void materialize(ValueId id);
  plan::OperandRef read(ValueId id);
  plan::OperandRef place(ValueId id);
  void note_nodes(const Group& group, size_t first_step);
  std::shared_ptr<const core::TensorData>* constant_of(ValueId id);
  void unpack(ValueId id);
  void put_in_order();
  Operand operand(ValueId id);
  void give_elements(Operand& operand, ValueId id);

  // lower.cc
  Status emit(const Group& group);
  Status emit_constant(const Node& node);
  Status emit_loop(const Group& group);
  std::vector<int64_t> output_strides(const Group& group, ValueId id) const;
  Status add_loop(const Group& group, const LoopProgram& lowered,
                  std::vector<plan::OperandRef> uses,
                  const std::vector<std::vector<int64_t>>& strides);
  std::string label_of(const Group& group) const;
  static double in_all(const LoopProgram& lowered, int64_t lane, int64_t row);
  static double operations(const LoopProgram& lowered);
  static double nanoseconds(const LoopProgram& lowered);
  std::vector<plan::InPlace> overwritable(const LoopKernel& kernel, const Group& group,
                                          const LoopProgram& lowered,
                                          const std::vector<plan::OperandRef>& uses,
                                          const std::vector<std::vector<int64_t>>& strides) const;

  // lower_kernels.cc
  core::Result<Step> made_by(const KernelDef& kernel, const KernelRequest& request,
                             std::vector<Operand>& inputs);
  KernelRequest request_for(const Node& node, const ir::OpDef& op, std::span<const Operand> inputs,
                            std::span<const Operand> outputs,
                            const Epilogue* epilogue = nullptr) const;
  void add_workspace(const Node& node, Step& step);
  Status emit_kernel(const Node& node, const ir::OpDef& op);
  Status emit_product(const Group& group);
  Status overwrite_rows(const Group& group, const LoopProgram& lowered,
                        const std::vector<Operand>& operands, int32_t first, Step& step) const;
  static size_t load_of(const LoopProgram& lowered, ValueId id);
  std::vector<Operand> epilogue_operands(const Group& group, const LoopProgram& lowered);
  Status place_product(const Group& group, const LoopProgram& lowered);

  // copies.cc
  Status add_copy(ValueId source, plan::OperandRef target, const char* label);
  Status add_copy(plan::OperandRef source, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& from, plan::OperandRef target, const char* label);
  Status emit_reshape_copy(const Node& node);
  Status copy_outputs();
  Status overwrite_inputs();
  Status make_contiguous(Operand& operand, ValueId id);

  // regions.cc
  core::Result<plan::Region> selected(const ir::Graph& region);
  core::Result<Step> step_of(const Node& node, const ir::OpDef& op);
  Status emit_loop_of(const Node& node);
  Status emit_branch(const Node& node);

  // report.cc
  void tell(int32_t group);
  void note_kernels(const KernelRequest& request, const KernelDef* chosen);
  Status unsupported(const Node& node, const ir::OpDef& op) const;

  const ir::Graph& graph_;
  const Backend& backend_;
  const SelectOptions& options_;
  int threads_;
  Fusion fusion_;
  plan::Steps steps_;
  std::vector<BufferId> buffers_;                  // by value: of its own memory
  std::vector<View> views_;                        // by value
  std::vector<std::vector<BufferId>> depends_on_;  // by value: of views
  std::vector<int32_t> output_of_;                 // by value: the output that it may be written to
  GroupReport group_report_;                       // of the group under way
  std::vector<size_t> told_at_;                    // by report: the step that followed
  std::vector<bool> is_step_;                      // by group; with a report only
};

}  // namespace mithril::select
