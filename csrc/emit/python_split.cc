#include "emit/python_split.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "ir/registry.h"

namespace mithril::emit {

using core::HostValue;
using core::Slice;

namespace {

struct Piece {
  size_t axis = 0;
  int64_t start = 0, stop = 0;
  size_t node = 0;
};

bool is_whole(const Slice& slice) {
  return slice.start.is_none() && slice.stop.is_none() && slice.step.is_none();
}

// What the node takes of its operand, if that is all of it but for one axis.
std::optional<Piece> piece_of(const ir::Graph& graph, const ir::Node& node) {
  if (ir::Registry::global().get(node.op).name != "index" || node.operands.size() != 1) return {};
  const ir::Type& type = graph.type(node.operands[0]);
  const HostValue* index = node.attrs.find("index");
  if (!type.is_tensor || index == nullptr || !index->is_sequence()) return {};
  std::optional<Piece> out;
  for (size_t axis = 0; axis < index->items().size(); ++axis) {
    const HostValue& item = index->items()[axis];
    if (!item.is_slice()) return {};
    const Slice& slice = item.as_slice();
    if (is_whole(slice)) continue;
    const bool plain = slice.start.is_int() && slice.stop.is_int() && slice.step.is_none();
    if (out || !plain || !type.shape[axis].known()) return {};
    out = Piece{axis, slice.start.as_int(), slice.stop.as_int()};
  }
  return out;
}

bool cover(const std::vector<Piece>& pieces, int64_t size) {
  int64_t end = 0;
  for (const Piece& piece : pieces) {
    if (piece.start != end) return false;
    end = piece.stop;
  }
  return end == size && pieces.size() > 1;
}

}  // namespace

size_t Split::first_node() const { return *std::min_element(nodes.begin(), nodes.end()); }

std::vector<Split> find_splits(const ir::Graph& graph) {
  std::map<std::tuple<ir::ValueId, size_t, std::string>, std::vector<Piece>> groups;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    std::optional<Piece> piece = piece_of(graph, node);
    if (!piece) continue;
    piece->node = i;
    groups[{node.operands[0], piece->axis, graph.location_of(node).path}].push_back(*piece);
  }
  std::vector<Split> out;
  for (auto& [key, pieces] : groups) {
    const auto& [whole, axis, path] = key;
    std::stable_sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::tie(a.start, a.stop) < std::tie(b.start, b.stop);
    });
    if (!cover(pieces, graph.type(whole).shape[axis].value())) continue;
    Split split{whole, axis, {}, {}};
    for (const Piece& piece : pieces) {
      split.nodes.push_back(piece.node);
      split.sizes.push_back(piece.stop - piece.start);
    }
    out.push_back(std::move(split));
  }
  return out;
}

}  // namespace mithril::emit
