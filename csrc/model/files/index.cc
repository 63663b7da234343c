#include "model/files/index.h"

#include <algorithm>
#include <set>

namespace mithril::model {

namespace {

constexpr size_t kLongestPath = 120;

std::string escaped(const std::string& name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

uint64_t hash_of(std::string_view text) {  // FNV-1a
  uint64_t out = 0xCBF29CE484222325u;
  for (const char c : text) out = (out ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return out;
}

}  // namespace

FileIndex::FileIndex(const ModelTree& all, NodeId outermost) : tree(all), top(outermost) {
  number_nodes();
  find_wires();
}

// "encoder/attn"; what is nested deep gets a name of bounded length.
std::string FileIndex::id_of(NodeId parent, const std::string& name) const {
  std::string out = escaped(name);
  if (parent != top) out = ids.at(parent) + "/" + out;
  return out.size() <= kLongestPath ? out : fmt::format("~x{:016x}", hash_of(out));
}

void FileIndex::number_nodes() {
  std::vector<NodeId> stack{top};
  std::set<std::string> taken;
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    order.push_back(id);
    const Node& node = tree.node(id);
    if (node.op != nullptr) op_number.emplace(id, op_number.size());
    stack.insert(stack.end(), node.children.rbegin(), node.children.rend());
    const bool has_models = std::any_of(node.children.begin(), node.children.end(),
                                        [&](NodeId c) { return tree.node(c).op == nullptr; });
    if (!has_models) continue;
    const std::vector<std::string> names = tree.child_names(id);
    for (size_t i = 0; i < names.size(); ++i) {
      if (tree.node(node.children[i]).op != nullptr) continue;
      std::string child = id_of(id, names[i]);
      while (!taken.insert(child).second) child += '~';
      ids.emplace(node.children[i], std::move(child));
    }
  }
}

void FileIndex::find_wires() {
  for (const NodeId id : order) {
    for (const ConnId c : wires(id)) {
      if (tree.surviving(tree.conn(c).outer) == kNone)
        visible_wire.emplace(tree.root(tree.conn(c).edge), c);
    }
  }
}

std::vector<ConnId> FileIndex::wires(NodeId id) const {
  std::vector<ConnId> out;
  for (const ConnId c : tree.node(id).conns) {
    if (tree.conn(c).merged == kNone) out.push_back(c);
  }
  return out;
}

}  // namespace mithril::model
