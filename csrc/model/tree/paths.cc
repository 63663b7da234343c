// Look-up by path: names of submodels with dots between them, and last the key of a wire.
#include <algorithm>

#include "core/text.h"
#include "model/tree/tree.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

namespace {

// The submodel that the longest possible beginning of `path` names, as names may have dots in
// them; the rest of the path is left. Unnamed submodels are found in lower case, too.
NodeId step(const ModelTree& tree, NodeId at, std::string_view& path) {
  const std::vector<std::string> names = tree.child_names(at);
  const auto& children = tree.node(at).children;
  size_t best = names.size(), length = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (name.size() > path.size() || name.size() <= length) continue;
    if (path.size() > name.size() && path[name.size()] != '.') continue;
    const std::string_view head = path.substr(0, name.size());
    const bool unnamed = tree.node(children[i]).name.empty();
    if (head != name && !(unnamed && head == core::lower_case(name))) continue;
    best = i;
    length = name.size();
  }
  if (best == names.size()) return kNone;
  path.remove_prefix(std::min(length + 1, path.size()));
  return children[best];
}

[[noreturn]] void unknown_part(const ModelTree& tree, NodeId at, std::string_view part,
                               bool wires) {
  std::vector<std::string> known = tree.child_names(at);
  if (wires) {
    for (std::string& key : tree.key_names(at)) known.push_back(std::move(key));
  }
  raise(core::fail(ErrorKind::kKey, Code::kKeyUnknown, "{} has no submodel{} '{}'{}",
                   title(tree.node(at)), wires ? " or key" : "", part,
                   core::suggestion(part, known)));
}

std::string_view head_of(std::string_view path) { return path.substr(0, path.find('.')); }

}  // namespace

Model Model::submodel(std::string_view path) const {
  const Access::At at = Access::at(*this);
  NodeId node = at.node;
  do {
    const NodeId next = step(at.tree(), node, path);
    if (next == kNone) unknown_part(at.tree(), node, head_of(path), false);
    node = next;
  } while (!path.empty());
  return Access::model(at.home, node);
}

Connection Model::connection_at(std::string_view path) const {
  const Access::At at = Access::at(*this);
  NodeId node = at.node;
  while (true) {
    const ConnId conn = at.tree().find(node, path);
    if (conn != kNone) return Access::connection(at.home, conn);
    if (path.find('.') == std::string_view::npos) {
      unknown_key(at.tree(), node, path, {});
    }
    const NodeId next = step(at.tree(), node, path);
    if (next == kNone) unknown_part(at.tree(), node, head_of(path), true);
    node = next;
  }
}

bool Model::is_removed() const { return Access::is_removed(*this); }

}  // namespace mithril::model
