#include "select/epilogue.h"

#include <algorithm>

#include "core/checked.h"
#include "ir/registry.h"

namespace mithril::select {
namespace {

using ir::kNoNode;
using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

/// Blocks of few columns are read from each array in short pieces: many arrays that no cache holds
/// are read faster from end to end.
constexpr int kMostMatrices = 4;
constexpr int64_t kCachedBytes = 1 << 20;

class Attacher {
 public:
  Attacher(const ir::Graph& graph, Fusion& fusion, const EpilogueSupportOf& epilogue_support,
           size_t most_operands, const std::function<bool(const Group&)>& takes)
      : graph_(graph),
        fusion_(fusion),
        epilogue_support_(epilogue_support),
        most_operands_(most_operands),
        takes_(takes),
        operands_(graph),
        readers_(graph.values.size()) {
    for (size_t at = 0; at < graph.nodes.size(); ++at) {
      for (const ValueId id : graph.nodes[at].operands) {
        if (id != kNoValue) readers_[static_cast<size_t>(id)].push_back(static_cast<NodeId>(at));
      }
    }
    for (const ir::Output& output : graph.outputs) results_.push_back(output.value);
    for (const ir::StateBinding& state : graph.states) results_.push_back(state.output);
  }

  void run() {
    for (size_t at = 0; at < fusion_.groups.size(); ++at) {
      if (fusion_.groups[at].is_loop) try_loop(static_cast<int32_t>(at));
    }
    drop_empty(fusion_);
  }

 private:
  Group& group(int32_t at) { return fusion_.groups[static_cast<size_t>(at)]; }
  const Node& maker_in(int32_t kernel) { return graph_.node(group(kernel).nodes[0]); }

  // The kernels that the loop reads from, the last one first.
  std::vector<int32_t> kernels_before(int32_t loop) {
    std::vector<int32_t> out;
    for (const NodeId reader : group(loop).nodes) {
      for (const ValueId id : graph_.node(reader).operands) {
        const NodeId maker = id == kNoValue ? kNoNode : graph_.value(id).node;
        if (maker == kNoNode) continue;
        const int32_t from = fusion_.group_of[static_cast<size_t>(maker)];
        if (from != loop && !group(from).is_loop) out.push_back(from);
      }
    }
    std::sort(out.begin(), out.end(), std::greater<>());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  void try_loop(int32_t loop) {
    for (const int32_t kernel : kernels_before(loop)) {
      const EpilogueSupport epilogue_support = epilogue_support_(maker_in(kernel));
      const FusionBlocker why = blocker(kernel, loop, epilogue_support);
      if (why == FusionBlocker::kNone) return attach(kernel, loop, epilogue_support);
      if (group(loop).before == kernel) group(loop).blocker = why;
    }
  }

  FusionBlocker blocker(int32_t kernel, int32_t at, EpilogueSupport epilogue_support) {
    const Group& loop = group(at);
    if (epilogue_support == EpilogueSupport::kNothing) return FusionBlocker::kNoEpilogues;
    if (!loop.reduced.empty()) return FusionBlocker::kNotPointwise;
    const ValueId result = maker_in(kernel).results[0];
    if (ir::static_dims(graph_.type(result).shape) != loop.shape) return FusionBlocker::kRearranged;
    if (loop.shape.empty() || counts_positions(graph_, loop)) return FusionBlocker::kNotAtOnce;
    if (is_read_before(result, at)) return FusionBlocker::kReadEarlier;
    if (!fits(kernel, loop)) return FusionBlocker::kManyOperands;
    if (takes_ != nullptr && !takes_(loop)) return FusionBlocker::kNotOfKernels;
    if (epilogue_support == EpilogueSupport::kRows) {
      return is_read_elsewhere(result, at) ? FusionBlocker::kNoEpilogues : FusionBlocker::kNone;
    }
    return sweeps_memory(loop, graph_.type(result).dtype) ? FusionBlocker::kManyMatrices
                                                          : FusionBlocker::kNone;
  }

  // The product's own result is an operand, too, whoever reads it.
  bool fits(int32_t kernel, const Group& loop) {
    if (most_operands_ == kAnyOperands) return true;
    std::vector<NodeId> nodes = loop.nodes;
    const NodeId maker = group(kernel).nodes[0];
    nodes.insert(std::lower_bound(nodes.begin(), nodes.end(), maker), maker);
    return operands_.count(nodes) < most_operands_;
  }

  bool is_read_before(ValueId id, int32_t loop) const {
    const std::vector<NodeId>& readers = readers_[static_cast<size_t>(id)];
    return std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
      return fusion_.group_of[static_cast<size_t>(reader)] < loop;
    });
  }

  bool is_read_elsewhere(ValueId id, int32_t loop) const {
    const std::vector<NodeId>& readers = readers_[static_cast<size_t>(id)];
    return std::find(results_.begin(), results_.end(), id) != results_.end() ||
           std::any_of(readers.begin(), readers.end(), [&](NodeId reader) {
             return fusion_.group_of[static_cast<size_t>(reader)] != loop;
           });
  }

  // Arrays of the loop's own shape, read or written.
  bool sweeps_memory(const Group& loop, core::DType dtype) const {
    std::vector<ValueId> read;
    for (const NodeId reader : loop.nodes) {
      for (const ValueId id : graph_.node(reader).operands) {
        if (id == kNoValue || is_made_in(loop, id)) continue;
        if (ir::static_dims(graph_.type(id).shape) == loop.shape) read.push_back(id);
      }
    }
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    const auto matrices = static_cast<int64_t>(read.size() + loop.outputs.size());
    const auto count = core::element_count(loop.shape);
    const auto cached = kCachedBytes / static_cast<int64_t>(core::size_of(dtype)) / matrices;
    return matrices > kMostMatrices && (!count || *count > cached);
  }
  bool is_made_in(const Group& loop, ValueId id) const {
    const NodeId maker = graph_.value(id).node;
    return maker != kNoNode && std::binary_search(loop.nodes.begin(), loop.nodes.end(), maker);
  }

  void attach(int32_t kernel, int32_t at, EpilogueSupport epilogue_support) {
    Group& loop = group(at);
    loop.product = group(kernel).nodes[0];
    loop.keeps_product = is_read_elsewhere(maker_in(kernel).results[0], at);
    loop.by_rows = epilogue_support == EpilogueSupport::kRows;
    loop.nodes.insert(std::lower_bound(loop.nodes.begin(), loop.nodes.end(), loop.product),
                      loop.product);
    fusion_.group_of[static_cast<size_t>(loop.product)] = at;
    group(kernel).nodes.clear();
  }

  const ir::Graph& graph_;
  Fusion& fusion_;
  const EpilogueSupportOf& epilogue_support_;
  size_t most_operands_;
  const std::function<bool(const Group&)>& takes_;
  OperandCounter operands_;
  std::vector<std::vector<NodeId>> readers_;  // by value
  std::vector<ValueId> results_;              // of the graph
};

}  // namespace

void attach_epilogues(const ir::Graph& graph, Fusion& fusion,
                      const EpilogueSupportOf& epilogue_support, size_t most_operands,
                      const std::function<bool(const Group&)>& takes) {
  Attacher(graph, fusion, epilogue_support, most_operands, takes).run();
}

}  // namespace mithril::select
