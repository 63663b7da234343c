#include "passes/liveness.h"

#include <algorithm>
#include <cmath>

#include "core/checked.h"
#include "ir/registry.h"
#include "ir/text.h"

namespace mithril::passes {
namespace {

using ir::kNoValue;
using ir::Node;
using ir::ValueId;
using Place = Execution::Place;

core::Result<int64_t> elements(const ir::Graph& graph, ValueId id) {
  const ir::Type& type = graph.type(id);
  if (!type.is_tensor) return int64_t{0};
  if (!ir::is_static(type.shape)) {
    core::Error error =
        core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported,
                   "gradient_checkpointing: the sizes of {} are not known when its program is made",
                   to_string(type, graph.dims));
    if (const Node* node = graph.producer(id)) error.location = graph.location_of(*node);
    error.hint = "give the sizes of all inputs in shapes=, or static_shapes=True";
    return error;
  }
  return core::product(ir::static_dims(type.shape));
}

bool is_constant(const Node& node) { return node.operands.empty(); }

bool is_movement(const ir::Graph& graph, const Node& node) {
  const auto is_tensor = [&](ValueId id) { return id != kNoValue && graph.type(id).is_tensor; };
  const ir::OpDef& op = ir::Registry::global().get(node.op);
  if (op.body != ir::BodyKind::kNone || !node.regions.empty() || node.operands.empty())
    return false;
  const auto tensors = std::count_if(node.operands.begin(), node.operands.end(), is_tensor);
  return is_tensor(node.operands[0]) && (tensors == 1 || op.has(ir::Trait::kForward));
}

class Walk {
 public:
  explicit Walk(const ir::Graph& graph) : graph_(graph), last_(graph.values.size(), -1) {}

  core::Result<Execution> run() {
    MITHRIL_RETURN_IF_ERROR(ir::check_addresses(graph_));
    MITHRIL_RETURN_IF_ERROR(count_elements());
    place_values();
    number_steps();
    add_up();
    return std::move(out_);
  }

 private:
  core::Status count_elements() {
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      MITHRIL_ASSIGN(const int64_t count, elements(graph_, static_cast<ValueId>(i)));
      counts_.push_back(count);
    }
    return {};
  }

  int64_t count(ValueId id) const { return counts_[static_cast<size_t>(id)]; }
  Execution::Memory& memory(ValueId id) { return out_.memory[static_cast<size_t>(id)]; }
  ValueId& base(ValueId id) { return base_[static_cast<size_t>(id)]; }

  void place_values() {
    out_.memory.resize(graph_.values.size());
    base_.assign(graph_.values.size(), kNoValue);
    const auto place = [&](ValueId id, Place as) {
      if (!graph_.type(id).is_tensor) return;
      memory(id) = {as, count(id) * static_cast<int64_t>(core::size_of(graph_.type(id).dtype))};
      base(id) = id;
    };
    for (const ValueId id : graph_.inputs) place(id, Place::kHeld);
    for (const Node& node : graph_.nodes) {
      if (is_movement(graph_, node)) {
        base(node.results[0]) = base(node.operands[0]);
        continue;
      }
      for (const ValueId id : node.results) {
        place(id, is_constant(node) ? Place::kHeld : Place::kTemporary);
      }
    }
    const auto hold = [&](ValueId id) {
      if (id != kNoValue && base(id) != kNoValue) memory(base(id)).place = Place::kHeld;
    };
    for (const ir::Output& output : graph_.outputs) hold(output.value);
    for (const ir::StateBinding& state : graph_.states) hold(state.output);
  }

  void number_steps() {
    for (const Node& node : graph_.nodes) {
      const bool waits =
          is_movement(graph_, node) || is_constant(node) || !graph_.type(node.results[0]).is_tensor;
      out_.step_of.push_back(waits ? -1 : steps_++);
      out_.flops.push_back(flops(node));
    }
  }

  // Where two operands are contracted the root of the three sizes' product is the number of
  // multiplications: of m*k, k*n and m*n it is m*k*n.
  double flops(const Node& node) const {
    const ir::OpDef& op = ir::Registry::global().get(node.op);
    std::vector<double> read;
    double written = 0;
    for (const ValueId id : node.operands) {
      if (id != kNoValue) read.push_back(static_cast<double>(count(id)));
    }
    for (const ValueId id : node.results) {
      written = std::max(written, static_cast<double>(count(id)));
    }
    std::sort(read.begin(), read.end(), std::greater<>());
    const double most = std::max(written, read.empty() ? 0 : read[0]);
    if (op.body != ir::BodyKind::kKernel || read.size() < 2) return most;
    return std::max(most, 2 * std::sqrt(read[0] * read[1] * written));
  }

  void add_up() {
    std::vector<int64_t> change(static_cast<size_t>(steps_) + 1, 0);
    int64_t outputs = 0;
    for (size_t at = 0; at < graph_.nodes.size(); ++at) {
      for (const ValueId id : graph_.nodes[at].operands) note_use(id, out_.step_of[at]);
      for (const ValueId id : graph_.nodes[at].results) note_use(id, out_.step_of[at]);
    }
    for (size_t at = 0; at < graph_.nodes.size(); ++at) {
      for (const ValueId id : graph_.nodes[at].results) {
        const Execution::Memory& own = memory(id);
        const int32_t step = out_.step_of[at];
        if (step < 0 || own.place == Place::kNone) continue;
        if (own.place == Place::kHeld) {
          outputs += own.bytes;
          continue;
        }
        change[static_cast<size_t>(step)] += own.bytes;
        change[static_cast<size_t>(last_[static_cast<size_t>(id)]) + 1] -= own.bytes;
      }
    }
    int64_t live = 0;
    for (int32_t step = 0; step < steps_; ++step) {
      live += change[static_cast<size_t>(step)];
      out_.live.push_back(live);
      out_.bytes = std::max(out_.bytes, live + outputs);
    }
  }

  void note_use(ValueId id, int32_t step) {
    if (id == kNoValue || base(id) == kNoValue) return;
    int32_t& last = last_[static_cast<size_t>(base(id))];
    last = std::max(last, step);
  }

  const ir::Graph& graph_;
  Execution out_;
  std::vector<int64_t> counts_;
  std::vector<ValueId> base_;
  std::vector<int32_t> last_;  // by base: the step that reads it last
  int32_t steps_ = 0;
};

}  // namespace

core::Result<Execution> liveness(const ir::Graph& graph) { return Walk(graph).run(); }

}  // namespace mithril::passes
