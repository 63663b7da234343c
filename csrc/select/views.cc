#include "select/views.h"

#include <algorithm>

#include "core/slice.h"
#include "ir/registry.h"

namespace mithril::select {

using core::HostValue;
using ir::Node;

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> out(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    out[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return out;
}

bool is_contiguous(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

std::vector<int64_t> broadcast_strides(const std::vector<int64_t>& shape,
                                       const std::vector<int64_t>& strides,
                                       const std::vector<int64_t>& domain) {
  std::vector<int64_t> out(domain.size(), 0);
  const size_t lead = domain.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    out[lead + i] = shape[i] == 1 ? 0 : strides[i];
  }
  return out;
}

namespace {

std::optional<View> transposed(const Node& node, const View& operand) {
  const size_t rank = operand.strides.size();
  View out = operand;
  const HostValue* axes = node.attrs.find("axes");
  if (axes == nullptr || !axes->is_sequence()) {
    std::reverse(out.strides.begin(), out.strides.end());
    return out;
  }
  for (size_t i = 0; i < rank; ++i) {
    int64_t axis = axes->items()[i].as_int();
    if (axis < 0) axis += static_cast<int64_t>(rank);
    out.strides[i] = operand.strides[static_cast<size_t>(axis)];
  }
  return out;
}

std::optional<View> swapped(const Node& node, const View& operand) {
  const auto rank = static_cast<int64_t>(operand.strides.size());
  const auto at = [&](const char* name) {
    const int64_t axis = node.attrs.find(name)->as_int();
    return static_cast<size_t>(axis < 0 ? axis + rank : axis);
  };
  View out = operand;
  std::swap(out.strides[at("axis1")], out.strides[at("axis2")]);
  return out;
}

// Groups of dims with equal products: each group must be laid out without gaps in the source.
std::optional<View> reshaped(const std::vector<int64_t>& from, const View& operand,
                             const std::vector<int64_t>& to) {
  View out = operand;
  out.strides.assign(to.size(), 0);
  std::vector<int64_t> sizes, strides;  // of the source, without dims of size 1
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i] == 0) {
      out.strides = contiguous_strides(to);
      return out;
    }
    if (from[i] == 1) continue;
    sizes.push_back(from[i]);
    strides.push_back(operand.strides[i]);
  }
  size_t source = 0;
  size_t target = 0;
  while (source < sizes.size()) {
    int64_t have = sizes[source];
    size_t source_end = source + 1;
    size_t target_end = target;
    int64_t want = 1;
    while (want != have || target_end == target) {
      if (want < have) {
        want *= to[target_end++];
      } else {
        have *= sizes[source_end++];
      }
    }
    for (size_t i = source; i + 1 < source_end; ++i) {
      if (strides[i] != strides[i + 1] * sizes[i + 1]) return std::nullopt;
    }
    int64_t stride = strides[source_end - 1];
    for (size_t i = target_end; i-- > target;) {
      out.strides[i] = stride;
      stride *= to[i];
    }
    source = source_end;
    target = target_end;
  }
  return out;
}

// Integers, slices, none and one ellipsis; anything else needs a gather.
std::optional<View> indexed(const Node& node, const std::vector<int64_t>& shape,
                            const View& operand) {
  const HostValue* index = node.attrs.find("index");
  if (index == nullptr) return std::nullopt;
  const HostValue::Tuple items =
      index->is_sequence() && !index->is_list() ? index->items() : HostValue::Tuple{*index};
  size_t used = 0;
  for (const HostValue& item : items) {
    const bool basic = item.is_int() || item.is_slice() || item.is_none() || item.is_ellipsis();
    if (!basic) return std::nullopt;
    if (item.is_int() || item.is_slice()) ++used;
  }
  View out{operand.base, operand.offset, {}};
  size_t axis = 0;
  for (const HostValue& item : items) {
    if (item.is_none()) {
      out.strides.push_back(0);
    } else if (item.is_ellipsis()) {
      for (size_t i = shape.size() - used; i > 0; --i)
        out.strides.push_back(operand.strides[axis++]);
    } else if (item.is_int()) {
      const int64_t at = item.as_int() < 0 ? item.as_int() + shape[axis] : item.as_int();
      out.offset += at * operand.strides[axis++];
    } else {
      const auto taken = core::slice_indices(item.as_slice(), shape[axis]);
      if (taken.length > 0) out.offset += taken.start * operand.strides[axis];
      // A step of 2⁶² from the only place that is taken leads nowhere.
      out.strides.push_back((taken.length > 1 ? taken.step : 1) * operand.strides[axis++]);
    }
  }
  while (axis < shape.size()) out.strides.push_back(operand.strides[axis++]);
  return out;
}

}  // namespace

std::optional<View> view_of(const ir::Graph& graph, const Node& node, const View& operand) {
  using ir::Trait;
  const ir::OpDef& op = ir::Registry::global().get(node.op);
  const auto from = ir::static_dims(graph.type(node.operands[0]).shape);
  const auto to = ir::static_dims(graph.type(node.results[0]).shape);
  if (op.has(Trait::kTranspose)) {
    return node.attrs.find("axis1") == nullptr ? transposed(node, operand) : swapped(node, operand);
  }
  if (op.has(Trait::kBroadcast)) {
    return View{operand.base, operand.offset, broadcast_strides(from, operand.strides, to)};
  }
  if (op.name == "index") return indexed(node, from, operand);
  if (op.has(Trait::kReshape)) return reshaped(from, operand, to);
  if (op.has(Trait::kForward)) return operand;
  return std::nullopt;
}

}  // namespace mithril::select
