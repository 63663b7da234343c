#include "passes/layout.h"

#include <algorithm>
#include <array>
#include <span>

#include "ir/registry.h"
#include "passes/regions.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using core::HostValue;
using infer::Dim;
using ir::kNoValue;
using ir::Node;
using ir::OpDef;
using ir::Operand;
using ir::Value;
using ir::ValueId;

namespace {

constexpr size_t kRank = 4;
using Axes = std::array<int64_t, kRank>;
// Axis i of one layout is axis kTo…[i] of the other one.
constexpr Axes kToLast = {0, 2, 3, 1};
constexpr Axes kToFirst = {0, 3, 1, 2};

HostValue as_host(const Axes& axes) { return HostValue::ints({axes.begin(), axes.end()}); }

// Whether the axes that are longer than 1 stay in their order: then nothing moves.
bool moves_nothing(const ir::Shape& shape, const Axes& axes) {
  int64_t last = -1;
  for (const int64_t axis : axes) {
    if (shape[static_cast<size_t>(axis)] == Dim(1)) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

Value moved(Value x, const Axes& axes) {
  if (!moves_nothing(x.shape(), axes)) return transpose(x, as_host(axes));
  ir::Shape shape;
  for (const int64_t axis : axes) shape.push_back(x.shape()[static_cast<size_t>(axis)]);
  return reshape(x, ir::shape_value(shape));
}

// With axes of size 1 in front.
ir::Shape as_image(const ir::Shape& shape) {
  ir::Shape out(kRank - shape.size(), Dim(1));
  out.insert(out.end(), shape.begin(), shape.end());
  return out;
}

class Layout {
 public:
  Layout(const ir::Graph& from, const ir::Target& target)
      : from_(from), target_(target), rewriter_(from), last_(from.values.size(), kNoValue) {}

  core::Result<ir::Graph> run() {
    for (const Node& node : from_.nodes) {
      rewriter_.builder().set_location(node.location);
      const bool done = rewrite(op_of(node), node);
      if (!rewriter_.builder().status().ok()) return rewriter_.finish();
      if (done) continue;
      for (const ValueId id : node.operands) {
        if (id != kNoValue) first(id);
      }
      rewriter_.copy(node);
    }
    for (const ir::Output& output : from_.outputs) first(output.value);
    for (const ir::StateBinding& state : from_.states) first(state.output);
    return rewriter_.finish();
  }

 private:
  static const OpDef& op_of(const Node& node) { return ir::Registry::global().get(node.op); }
  const ir::Type& type(ValueId id) const { return from_.type(id); }

  // ---------------------------------------------------------------------------- the two layouts

  bool has_first(ValueId id) { return static_cast<bool>(rewriter_.mapped(id)); }
  bool has_last(ValueId id) const { return last_[static_cast<size_t>(id)] != kNoValue; }
  /// Tells whether it was computed with channels last, and nobody needed it otherwise so far.
  bool lives_last(ValueId id) { return has_last(id) && !has_first(id); }
  void set_last(ValueId id, Value value) { last_[static_cast<size_t>(id)] = value.id; }

  Value first(ValueId id) {
    if (!has_first(id)) {
      const Value image = rewriter_.builder().value(last_[static_cast<size_t>(id)]);
      rewriter_.map(id, moved(image, kToFirst));
    }
    return rewriter_.mapped(id);
  }

  Value last(ValueId id) {
    if (!has_last(id)) {
      Value image = rewriter_.mapped(id);
      if (image.rank() < kRank) image = reshape(image, ir::shape_value(as_image(image.shape())));
      set_last(id, moved(image, kToLast));
    }
    return rewriter_.builder().value(last_[static_cast<size_t>(id)]);
  }

  // ----------------------------------------------------------------------------------- rewrites

  bool rewrite(const OpDef& op, const Node& node) {
    if (node.results.size() != 1 || !type(node.results[0]).is_tensor) return false;
    if (target_.keeps_whole.contains(op.name + "_channels_last")) return slide(op, node);
    if (op.is_elementwise()) return compute(op, node);
    if (op.has(ir::Trait::kReduction)) return reduce(op, node);
    if (op.name == "pad") return pad(op, node);
    return op.name == "concat" && join(op, node);
  }

  Value emit(const OpDef& op, std::vector<Operand> operands, ir::Attrs attrs) {
    const auto results = rewriter_.builder().call_all(op, std::move(operands), std::move(attrs));
    return results.empty() ? Value() : results[0];
  }

  // A window over images. Pools follow what comes; a convolution is worth the way.
  bool slide(const OpDef& op, const Node& node) {
    const ValueId image = node.operands[0];
    if (type(image).rank() != kRank || (op.name != "conv2d" && !lives_last(image))) return false;
    std::vector<Operand> operands{last(image)};
    for (size_t i = 1; i < node.operands.size(); ++i)
      operands.emplace_back(first(node.operands[i]));
    const auto id = ir::Registry::global().find(op.name + "_channels_last");
    set_last(node.results[0], emit(*id, std::move(operands), node.attrs));
    return true;
  }

  // An elementwise op follows its operands: where fewer of them would have to move.
  bool compute(const OpDef& op, const Node& node) {
    if (type(node.results[0]).rank() != kRank || reads_position(op, node)) return false;
    bool any_lives_last = false;
    int balance = 0;  // of transposes: to compute it as it was, less those with channels last
    for (const ValueId id : node.operands) {
      if (id == kNoValue || !type(id).is_tensor || has_last(id) == has_first(id)) continue;
      any_lives_last |= has_last(id);
      if (moves_nothing(as_image(type(id).shape), kToLast)) continue;
      balance += has_last(id) ? 1 : -1;
    }
    if (!any_lives_last || balance < 0) return false;
    std::vector<Operand> operands;
    for (const ValueId id : node.operands) {
      if (id == kNoValue) {
        operands.emplace_back(Value());
      } else {
        const bool moves = type(id).is_tensor && type(id).rank() > 0;
        operands.emplace_back(moves ? last(id) : first(id));
      }
    }
    set_last(node.results[0], emit(op, std::move(operands), node.attrs));
    return true;
  }

  // Elements that depend on their place (random numbers) would change with the layout.
  bool reads_position(const OpDef& op, const Node& node) const {
    tile::Builder builder;
    std::vector<tile::Reg> lanes;
    for (const ValueId id : node.operands) {
      lanes.push_back(id == kNoValue ? tile::Reg() : builder.load(type(id).dtype));
    }
    builder.store(op.pointwise(builder, {lanes, node.attrs, type(node.results[0]).dtype}));
    return tile::reads_position(builder.finish());
  }

  bool reduce(const OpDef& op, const Node& node) {
    const ValueId image = node.operands[0];
    const bool wired = std::any_of(node.operands.begin() + 1, node.operands.end(),
                                   [](ValueId id) { return id != kNoValue; });
    if (!lives_last(image) || wired) return false;
    std::array<bool, kRank> reduced{};
    const HostValue* given = node.attrs.find("axis");
    for (const int64_t axis : ir::axes_of(given == nullptr ? HostValue() : *given, kRank)) {
      reduced[static_cast<size_t>(axis)] = true;
    }
    std::vector<int64_t> axes, kept;
    for (size_t i = 0; i < kRank; ++i) {
      const auto axis = static_cast<size_t>(kToLast[i]);
      if (reduced[axis]) {
        axes.push_back(static_cast<int64_t>(i));
      } else {
        kept.push_back(kToLast[i]);
      }
    }
    const bool keeps_rank = type(node.results[0]).rank() == kRank;
    if (!keeps_rank && !std::is_sorted(kept.begin(), kept.end())) return false;
    ir::Attrs attrs = node.attrs;
    attrs.set("axis", HostValue::ints(axes));
    const Value result = emit(op, {last(image)}, std::move(attrs));
    if (keeps_rank) {
      set_last(node.results[0], result);
    } else {
      rewriter_.map(node.results[0], result);
    }
    return true;
  }

  bool pad(const OpDef& op, const Node& node) {
    const HostValue* widths = node.attrs.find("pad_width");
    const bool each = widths != nullptr && widths->is_sequence() && widths->items().size() == kRank;
    if (!each || !lives_last(node.operands[0])) return false;
    HostValue::Tuple moved_widths;
    for (const int64_t axis : kToLast) {
      moved_widths.push_back(widths->items()[static_cast<size_t>(axis)]);
    }
    ir::Attrs attrs = node.attrs;
    attrs.set("pad_width", HostValue::tuple(std::move(moved_widths)));
    set_last(node.results[0], emit(op, {last(node.operands[0])}, std::move(attrs)));
    return true;
  }

  bool join(const OpDef& op, const Node& node) {
    const HostValue* axis = node.attrs.find("axis");
    if (type(node.results[0]).rank() != kRank || axis == nullptr || !axis->is_int()) return false;
    const std::span<const ValueId> images = std::span(node.operands).subspan(1);  // behind the axis
    const auto there =
        std::count_if(images.begin(), images.end(), [&](ValueId id) { return lives_last(id); });
    if (there == 0 || 2 * there < std::ssize(images)) return false;
    std::vector<Operand> operands{Value()};
    for (const ValueId id : images) operands.emplace_back(last(id));
    ir::Attrs attrs = node.attrs;
    attrs.set("axis", HostValue(kToFirst[static_cast<size_t>(ir::axes_of(*axis, kRank)[0])]));
    set_last(node.results[0], emit(op, std::move(operands), std::move(attrs)));
    return true;
  }

  const ir::Graph& from_;
  const ir::Target& target_;
  Rewriter rewriter_;
  std::vector<ValueId> last_;  // values of the old graph -> images [n, h, w, c] of the new one
};

}  // namespace

bool wants_channels_last(const ir::Graph& graph, const ir::Target& target) {
  if (!target.keeps_whole.contains("conv2d_channels_last") || target.decompose_all) return false;
  return has_op(graph, ir::Registry::global().find("conv2d")->id);
}

core::Result<ir::Graph> layout(const ir::Graph& graph, const ir::Target& target) {
  return Layout(graph, target).run();
}

}  // namespace mithril::passes
