#include "passes/push_down_slices.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/slice.h"
#include "ir/registry.h"
#include "passes/regions.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using core::HostValue;
using ir::kNoValue;
using ir::Node;
using ir::OpDef;
using ir::Operand;
using ir::Value;
using ir::ValueId;

namespace {

constexpr double kSmallestShare = 0.01;  // of the products, to be spared

/// Positions along an axis.
struct Range {
  int64_t begin = 0, end = 0;
  bool operator==(const Range&) const = default;
  int64_t size() const { return end - begin; }
};
/// A part of a value, by axis.
using Box = std::vector<Range>;
using Reads = std::vector<Box>;  // by operand

constexpr Range kFirst = {0, 1};

bool meet(const Box& a, const Box& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].end <= b[i].begin || b[i].end <= a[i].begin) return false;
  }
  return true;
}

bool holds(const Box& a, const Box& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (b[i].begin < a[i].begin || a[i].end < b[i].end) return false;
  }
  return true;
}

Box around(Box a, const Box& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = {std::min(a[i].begin, b[i].begin), std::max(a[i].end, b[i].end)};
  }
  return a;
}

double volume(const Box& box) {
  double out = 1;
  for (const Range& range : box) out *= static_cast<double>(range.size());
  return out;
}

Box whole(const ir::Type& type) {
  Box out;
  for (const infer::Dim dim : type.shape) out.push_back({0, dim.value()});
  return out;
}

// ---------------------------------------------------------------- what ops read

/// A node whose result is read in part.
struct Site {
  const ir::Graph& graph;
  const Node& node;

  Box operand(size_t i) const { return whole(graph.type(node.operands[i])); }
  Box result() const { return whole(graph.type(node.results[0])); }
  const HostValue& attr(std::string_view name) const {
    static const HostValue kNone;
    const HostValue* found = node.attrs.find(name);
    return found != nullptr ? *found : kNone;
  }
  bool is_set(std::string_view name) const { return attr(name) == HostValue(true); }
  /// Tells whether axes and sizes are attributes.
  bool is_static() const {
    return std::all_of(node.operands.begin() + 1, node.operands.end(),
                       [](ValueId id) { return id == kNoValue; });
  }
};

/// Finds what a node reads of each operand for a box of its result. First the box grows to what the
/// op can compute by itself. None where it computes the whole only.
using Needs = std::optional<Reads> (*)(const Site&, Box& box);

// An operand that is broadcast to the result, its axes being the last ones.
Box broadcast_from(Box operand, const Box& box) {
  const size_t front = box.size() - operand.size();
  for (size_t i = 0; i < operand.size(); ++i) {
    if (operand[i] != kFirst) operand[i] = box[front + i];
  }
  return operand;
}

std::optional<Reads> broadcasting(const Site& site, Box& box) {
  if (!site.is_static()) return std::nullopt;
  return Reads{broadcast_from(site.operand(0), box)};
}

// Sizes come from operands; what has its own, as numbers by their places, is computed whole.
std::optional<Reads> elementwise(const Site& site, Box& box) {
  Box from_operands(box.size(), kFirst);
  Reads out;
  for (const ValueId id : site.node.operands) {
    Box& operand = out.emplace_back();
    if (id == kNoValue || !site.graph.type(id).is_tensor) continue;
    operand = whole(site.graph.type(id));
    const size_t front = box.size() - operand.size();
    for (size_t i = 0; i < operand.size(); ++i) {
      if (operand[i] != kFirst) from_operands[front + i] = operand[i];
    }
    operand = broadcast_from(std::move(operand), box);
  }
  return from_operands == site.result() ? std::optional(out) : std::nullopt;
}

std::optional<Reads> reduction(const Site& site, Box& box) {
  if (!site.is_static()) return std::nullopt;
  Box from = site.operand(0);
  const std::vector<int64_t> axes = ir::axes_of(site.attr("axis"), from.size());
  const bool keeps = site.is_set("keepdim");
  size_t at = 0;  // of the result
  for (size_t i = 0; i < from.size(); ++i) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) != axes.end();
    if (!reduced) from[i] = box[at];
    if (!reduced || keeps) ++at;
  }
  return Reads{from};
}

// Whether a literal has no elements that lie by strides.
bool is_packed(const Node* node) {
  const HostValue* value = node == nullptr ? nullptr : node->attrs.find("value");
  return value != nullptr && value->is_tensor() && value->as_tensor()->packed.matrix != nullptr;
}

// Rows and columns, and batches of the left operand.
std::optional<Reads> product(const Site& site, Box& box) {
  Box left = site.operand(0), right = site.operand(1);
  if (left.size() < 2 || right.size() < 2) return std::nullopt;
  const Box all = site.result();
  const size_t rows = box.size() - 2;
  if (is_packed(site.graph.producer(site.node.operands[1]))) box.back() = all.back();
  right.back() = box.back();
  for (size_t i = 0; i < rows; ++i) {
    const size_t from_end = box.size() - i;
    const bool of_right = right.size() >= from_end && right[right.size() - from_end] != kFirst;
    if (of_right) box[i] = all[i];
  }
  for (size_t i = 0; i + 1 < left.size(); ++i) {
    if (left[i] != kFirst) left[i] = box[box.size() - left.size() + i];
  }
  return Reads{left, right};
}

// Queries: each one looks at all keys.
std::optional<Reads> attention(const Site& site, Box& box) {
  if (site.is_set("is_causal")) return std::nullopt;  // a query knows its place by its number
  const Range queries = box[box.size() - 2];
  box = site.result();
  box[box.size() - 2] = queries;
  Reads out = {site.operand(0), site.operand(1), site.operand(2)};
  out[0][out[0].size() - 2] = queries;
  return out;
}

std::optional<Reads> transposition(const Site& site, Box& box) {
  if (!site.is_static()) return std::nullopt;
  std::vector<int64_t> axes = ir::axes_of(site.attr("axes"), box.size());
  if (site.attr("axes").is_none()) std::reverse(axes.begin(), axes.end());
  Box from(box.size());
  for (size_t i = 0; i < axes.size(); ++i) from[static_cast<size_t>(axes[i])] = box[i];
  return Reads{from};
}

std::optional<Reads> exchange(const Site& site, Box& box) {
  if (!site.is_static()) return std::nullopt;
  const int64_t one = ir::axes_of(site.attr("axis1"), box.size())[0];
  const int64_t other = ir::axes_of(site.attr("axis2"), box.size())[0];
  Box from = box;
  std::swap(from[static_cast<size_t>(one)], from[static_cast<size_t>(other)]);
  return Reads{from};
}

// Axes that stay as they are may be read in part, those that are cut or joined as a whole.
std::optional<Reads> reshaping(const Site& site, Box& box) {
  if (!site.is_static()) return std::nullopt;
  Box from = site.operand(0);
  const Box to = site.result();
  if (volume(to) == 0) return std::nullopt;
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    if (i < from.size() && j < to.size() && from[i] == to[j]) {
      from[i++] = box[j++];
      continue;
    }
    if (i < from.size() && from[i] == kFirst) {
      ++i;
      continue;
    }
    if (j < to.size() && to[j] == kFirst) {
      ++j;
      continue;
    }
    const size_t first = j;
    int64_t left = from[i++].size(), right = to[j++].size();
    while (left != right) {
      if (left < right) {
        left *= from[i++].size();
      } else {
        right *= to[j++].size();
      }
    }
    std::copy(to.begin() + static_cast<int64_t>(first), to.begin() + static_cast<int64_t>(j),
              box.begin() + static_cast<int64_t>(first));
  }
  return Reads{from};
}

bool is_dense(const core::Slice& slice) {
  const auto is_plain = [](const HostValue& x) { return x.is_none() || x.is_int(); };
  return is_plain(slice.start) && is_plain(slice.stop) &&
         (slice.step.is_none() || slice.step == HostValue(1));
}

// Integers, dense slices, new axes.
std::optional<Reads> indexing(const Site& site, Box& box) {
  if (!site.is_static() || volume(box) == 0) return std::nullopt;
  const HostValue& index = site.attr("index");
  if (index.is_sequence() && index.is_list()) return std::nullopt;
  const HostValue::Tuple items = index.is_sequence() ? index.items() : HostValue::Tuple{index};
  Box from = site.operand(0);
  size_t named = 0;
  for (const HostValue& item : items) named += item.is_int() || item.is_slice() ? 1 : 0;
  size_t axis = 0, at = 0;  // of the operand and of the result
  const auto pass = [&](size_t count) {
    while (count-- > 0) from[axis++] = box[at++];
  };
  for (const HostValue& item : items) {
    if (item.is_none()) {
      ++at;
    } else if (item.is_ellipsis()) {
      pass(from.size() - named);
    } else if (item.is_int()) {
      const int64_t place = item.as_int() + (item.as_int() < 0 ? from[axis].end : 0);
      from[axis++] = {place, place + 1};
    } else if (item.is_slice() && is_dense(item.as_slice())) {
      const int64_t start = core::slice_indices(item.as_slice(), from[axis].end).start;
      from[axis++] = {start + box[at].begin, start + box[at].end};
      ++at;
    } else {
      return std::nullopt;
    }
  }
  pass(from.size() - axis);
  return Reads{from};
}

Needs needs_of(const OpDef& op) {
  static const std::unordered_map<std::string_view, Needs> kTable = {
      {"matmul", product},    {"plain_attention", attention}, {"transpose", transposition},
      {"swapaxes", exchange}, {"reshape", reshaping},         {"broadcast_to", broadcasting},
      {"index", indexing},
  };
  if (op.has(ir::Trait::kReduction)) return reduction;
  const auto found = kTable.find(op.name);
  if (found != kTable.end()) return found->second;
  return op.is_elementwise() && !op.random ? elementwise : nullptr;
}

// ---------------------------------------------------------------- the pass

/// Describes what is computed of a value, apart from its other parts.
struct Part {
  Box box;
  ValueId value = kNoValue;  // in the new graph
};
using Parts = std::vector<Part>;

// Parts that meet, or that are a box together, become one; so do many.
void add(Parts& parts, Box box) {
  constexpr size_t kMostParts = 4;
  for (size_t i = 0; i < parts.size();) {
    const Box both = around(parts[i].box, box);
    const bool fit = volume(both) <= volume(parts[i].box) + volume(box);
    if (!fit && !meet(parts[i].box, box) && parts.size() < kMostParts) {
      ++i;
      continue;
    }
    box = both;
    parts.erase(parts.begin() + static_cast<int64_t>(i));
    i = 0;
  }
  parts.push_back({std::move(box)});
}

class Narrowing {
 public:
  explicit Narrowing(const ir::Graph& from)
      : from_(from), rewriter_(from), live_(ir::live_values(from)), parts_(from.values.size()) {}

  core::Result<ir::Graph> run() {
    if (!knows_sizes()) return from_;
    find_parts();
    if (!pays()) return from_;
    for (const ValueId id : from_.inputs) keep(id);
    for (const Node& node : from_.nodes) {
      if (is_dead(node)) continue;
      if (is_whole(node)) {
        rewriter_.copy(node);
        for (const ValueId id : node.results) keep(id);
        continue;
      }
      for (Part& part : parts(node.results[0])) emit(node, part);
      if (!rewriter_.builder().status().ok()) break;
    }
    return rewriter_.finish();
  }

 private:
  static const OpDef& op_of(const Node& node) { return ir::Registry::global().get(node.op); }
  bool is_dead(const Node& node) const {
    return std::none_of(node.results.begin(), node.results.end(),
                        [&](ValueId id) { return live_[static_cast<size_t>(id)]; });
  }
  bool is_tensor(ValueId id) const { return id != kNoValue && from_.type(id).is_tensor; }
  /// Lists what is read of a value and, once its node was seen, what is computed.
  Parts& parts(ValueId id) { return parts_[static_cast<size_t>(id)]; }

  // ------------------------------------------------------------------------------- what is read

  // Sizes may follow from data.
  bool knows_sizes() const {
    return std::all_of(from_.values.begin(), from_.values.end(), [](const ir::ValueInfo& value) {
      return !value.type.is_tensor || ir::is_static(value.type.shape);
    });
  }

  void find_parts() {
    for (const ir::Output& output : from_.outputs) read_whole(output.value);
    for (const ir::StateBinding& state : from_.states) read_whole(state.output);
    for (size_t i = from_.nodes.size(); i-- > 0;) {
      const Node& node = from_.nodes[i];
      if (is_dead(node) || read_parts(node)) continue;
      for (const ValueId id : node.results) read_whole(id);
      for (const ValueId id : node.operands) read_whole(id);
    }
    for (const ValueId id : from_.inputs) read_whole(id);
  }

  void read_whole(ValueId id) {
    if (is_tensor(id)) parts(id) = {{whole(from_.type(id))}};
  }

  /// Reads what the parts of the result take, which grow to what the node computes. False where it
  /// computes the whole only.
  bool read_parts(const Node& node) {
    if (node.results.size() != 1 || !is_tensor(node.results[0])) return false;
    const Needs rule = needs_of(op_of(node));
    Parts& made = parts(node.results[0]);
    if (rule == nullptr) return false;
    for (bool grown = true; grown;) {
      Parts all;
      for (const Part& part : made) {
        Box box = part.box;
        if (!rule({from_, node}, box)) return false;
        add(all, std::move(box));
      }
      grown = all.size() < made.size();
      made = std::move(all);
    }
    for (Part& part : made) {
      const Reads reads = *rule({from_, node}, part.box);
      for (size_t i = 0; i < reads.size(); ++i) {
        if (is_tensor(node.operands[i])) add(parts(node.operands[i]), reads[i]);
      }
    }
    return true;
  }

  /// Tells whether enough of the products falls away.
  bool pays() {
    double all = 0, left = 0;
    for (const Node& node : from_.nodes) {
      const std::string& name = op_of(node).name;
      const bool attends = name == "plain_attention";
      if (is_dead(node) || (!attends && name != "matmul")) continue;
      const ir::Shape& inner = from_.type(node.operands[attends ? 1 : 0]).shape;
      const auto each = static_cast<double>(inner[inner.size() - (attends ? 2 : 1)].value());
      all += each * volume(whole(from_.type(node.results[0])));
      for (const Part& part : parts(node.results[0])) left += each * volume(part.box);
    }
    return all - left > kSmallestShare * all;
  }

  // ------------------------------------------------------------------------------ what is made

  bool is_whole(ValueId id) {
    return !is_tensor(id) || parts(id).front().box == whole(from_.type(id));
  }
  bool is_whole(const Node& node) {
    const auto each = [&](ValueId id) { return is_whole(id); };
    return std::all_of(node.results.begin(), node.results.end(), each) &&
           std::all_of(node.operands.begin(), node.operands.end(), each);
  }

  void keep(ValueId id) {
    if (is_tensor(id)) parts(id).front().value = rewriter_.mapped(id).id;
  }

  void emit(const Node& node, Part& part) {
    ir::Builder& builder = rewriter_.builder();
    builder.set_location(node.location);
    const OpDef& op = op_of(node);
    const Reads reads = *needs_of(op)({from_, node}, part.box);
    std::vector<Operand> operands;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const ValueId id = node.operands[i];
      const Value host = id == kNoValue ? Value() : rewriter_.mapped(id);
      operands.emplace_back(is_tensor(id) ? cut(id, reads[i]) : host);
    }
    std::vector<int64_t> shape;
    for (const Range& range : part.box) shape.push_back(range.size());
    ir::Attrs attrs = node.attrs;
    if (attrs.find("shape") != nullptr) attrs.set("shape", HostValue::ints(shape));
    Value made;
    if (op.name == "index") {  // what it takes is cut out already, with its axes
      made = builder.call("reshape", operands, {{"shape", HostValue::ints(shape)}});
    } else {
      made = builder.call(op.name, std::move(operands), std::move(attrs));
    }
    part.value = made.id;
    if (is_whole(node.results[0])) rewriter_.map(node.results[0], made);
  }

  // That box of a value, of the part that holds it.
  Value cut(ValueId id, const Box& wanted) {
    const auto part = std::find_if(parts(id).begin(), parts(id).end(),
                                   [&](const Part& p) { return holds(p.box, wanted); });
    const Value value = rewriter_.builder().value(part->value);
    if (part->box == wanted) return value;
    HostValue::Tuple slices;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const int64_t begin = wanted[i].begin - part->box[i].begin;
      slices.emplace_back(core::Slice{HostValue(begin), HostValue(begin + wanted[i].size()), {}});
    }
    return rewriter_.builder().call("index", {value},
                                    {{"index", HostValue::tuple(std::move(slices))}});
  }

  const ir::Graph& from_;
  Rewriter rewriter_;
  const std::vector<bool> live_;
  std::vector<Parts> parts_;
};

}  // namespace

core::Result<ir::Graph> push_down_slices(const ir::Graph& graph) {
  const OpDef* slices = ir::Registry::global().find("index");
  if (slices == nullptr || !has_op(graph, slices->id)) return graph;
  return Narrowing(graph).run();
}

}  // namespace mithril::passes
