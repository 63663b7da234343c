#include "select/tile_lowering.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/halves.h"
#include "ir/registry.h"
#include "tile/builder.h"

namespace mithril::select {

using core::HostValue;
using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::OpDef;
using ir::ValueId;

const HostValue* scalar_constant(const ir::Graph& graph, ValueId value) {
  const Node* node = graph.producer(value);
  if (node == nullptr || graph.type(value).rank() != 0) return nullptr;
  if (!ir::Registry::global().get(node->op).has(ir::Trait::kLiteral)) return nullptr;
  const HostValue* number = node->attrs.find("value");
  return number != nullptr && !number->is_tensor() ? number : nullptr;
}

void split_axes(const std::vector<int64_t>& inner, const std::vector<int64_t>& per_axis,
                std::vector<int64_t>& kept, std::vector<int64_t>& reduced) {
  for (size_t axis = 0; axis < per_axis.size(); ++axis) {
    const bool is_inner =
        std::binary_search(inner.begin(), inner.end(), static_cast<int64_t>(axis));
    (is_inner ? reduced : kept).push_back(per_axis[axis]);
  }
}

namespace {

constexpr int64_t kLongRow = 48;  // elements: more than beginning a row takes

class Lowering {
 public:
  Lowering(const ir::Graph& graph, const Fusion& fusion, const Group& group)
      : graph_(graph), fusion_(fusion), group_(group) {}

  core::Result<LoopProgram> run() {
    out_.inner = group_.reduced;
    if (group_.product != ir::kNoNode) {
      choose_columns();
    } else if (out_.inner.empty()) {
      choose_rows();
    }
    for (const NodeId id : group_.nodes) {
      if (id != group_.product) lower(graph_.node(id));
    }
    for (const ValueId id : group_.outputs) store(id);
    out_.program = tile_.finish();
    set_orders();
    split_axes(out_.inner, group_.shape, out_.kept, out_.reduced);
    return std::move(out_);
  }

 private:
  Spread spread(ValueId id) const { return fusion_.spread[static_cast<size_t>(id)]; }

  // What is the same everywhere has no level of its own.
  void store(ValueId id) {
    const tile::Reg value = registers_.at(id);
    if (group_.reduced.empty()) return tile_.store(value, tile::Level::kLane);
    if (value.level() != tile::Level::kUniform) return tile_.store(value);
    tile_.store(value, spread(id) == Spread::kRow ? tile::Level::kRow : tile::Level::kLane);
  }

  void lower(const Node& node) {
    const OpDef& op = ir::Registry::global().get(node.op);
    const bool on_rows =
        op.body == ir::BodyKind::kPointwise && spread(node.results[0]) == Spread::kRow;
    std::vector<tile::Reg> operands;
    for (const ValueId id : node.operands) {
      if (id != kNoValue && graph_.type(id).is_tensor) operands.push_back(read(id, on_rows));
    }
    const core::DType result = graph_.type(node.results[0]).dtype;
    const tile::Reg value = ir::pointwise(tile_, op, {operands, node.attrs, result});
    MITHRIL_CHECK(value.dtype() == result, "the body of {} gives {}, its type is {}", op.name,
                  core::name(value.dtype()), core::name(result));
    registers_[node.results[0]] = value;
  }

  tile::Reg read(ValueId id, bool on_rows) {
    const auto inside = registers_.find(id);
    if (inside != registers_.end()) return inside->second;
    const core::DType dtype = graph_.type(id).dtype;
    if (const HostValue* number = scalar_constant(graph_, id)) {
      return core::is_float(dtype) || number->is_double()
                 ? tile_.constant(dtype, number->as_number())
                 : tile_.constant_int(
                       dtype, number->is_bool() ? (number->as_bool() ? 1 : 0) : number->as_int());
    }
    const bool once = is_one(id);
    if (group_.reduced.empty())
      on_rows = !out_.inner.empty() && broadcast_from(id) <= out_.inner[0];
    auto& loaded = on_rows && !once ? row_loads_ : lane_loads_;
    const auto at = loaded.find(id);
    if (at != loaded.end()) return at->second;
    const tile::Reg value = once      ? tile_.load_uniform(dtype)
                            : on_rows ? tile_.load_row(dtype)
                                      : tile_.load(dtype);
    loaded.emplace(id, value);
    out_.loads.push_back({id, on_rows && !once});
    return value;
  }

  /// The first of the last axes of the domain that the operand does not have, or has one place of.
  int64_t broadcast_from(ValueId id) const {
    const auto& shape = graph_.type(id).shape;
    const auto missing = static_cast<int64_t>(group_.shape.size() - shape.size());
    auto axis = static_cast<int64_t>(group_.shape.size());
    while (axis > 0) {
      const int64_t own = axis - 1 - missing;
      if (own >= 0 && !is_1(shape[static_cast<size_t>(own)])) break;
      --axis;
    }
    return axis;
  }

  // A block's rows run along the last axis, or along the one before where that is a single column.
  void choose_columns() {
    const auto rank = static_cast<int64_t>(group_.shape.size());
    if (rank > 1 && group_.shape.back() == 1) out_.inner.push_back(rank - 2);
    out_.inner.push_back(rank - 1);
  }

  // A channel's number beside its image is read once for a row, where lanes would be filled with
  // it.
  void choose_rows() {
    const auto rank = static_cast<int64_t>(group_.shape.size());
    std::set<ValueId> own;
    for (const NodeId id : group_.nodes) {
      own.insert(graph_.node(id).results.begin(), graph_.node(id).results.end());
    }
    int64_t first = 0;
    for (const NodeId id : group_.nodes) {
      for (const ValueId operand : graph_.node(id).operands) {
        if (operand == kNoValue || own.contains(operand) || !graph_.type(operand).is_tensor)
          continue;
        const int64_t from = broadcast_from(operand);
        int64_t length = 1;
        for (int64_t axis = from; axis < rank; ++axis) {
          length *= group_.shape[static_cast<size_t>(axis)];
        }
        if (length >= kLongRow) first = std::max(first, from);
      }
    }
    for (int64_t axis = first; first > 0 && axis < rank; ++axis) out_.inner.push_back(axis);
  }

  static bool is_1(const infer::Dim& dim) { return dim.known() && dim.value() == 1; }

  /// One element for all points of a larger domain. (Of a single point all values are lanes.)
  bool is_one(ValueId id) const {
    const auto& shape = graph_.type(id).shape;
    const bool large = std::any_of(group_.shape.begin(), group_.shape.end(),
                                   [](int64_t size) { return size != 1; });
    return large && std::all_of(shape.begin(), shape.end(), is_1);
  }

  void set_orders() {
    const auto last = static_cast<int64_t>(group_.shape.size()) - 1;
    const bool lanes = !group_.reduced.empty() && group_.reduced.back() == last;
    for (tile::Instruction& instruction : out_.program.code) {
      if (tile::info(instruction.opcode).family == tile::Family::kReduce) {
        instruction.order = lanes ? tile::Order::kLanes : tile::Order::kRows;
      }
    }
  }

  const ir::Graph& graph_;
  const Fusion& fusion_;
  const Group& group_;
  tile::Builder tile_;
  std::map<ValueId, tile::Reg> registers_, lane_loads_, row_loads_;
  LoopProgram out_;
};

}  // namespace

core::Result<LoopProgram> lower_group(const ir::Graph& graph, const Fusion& fusion,
                                      const Group& group) {
  return Lowering(graph, fusion, group).run();
}

}  // namespace mithril::select
