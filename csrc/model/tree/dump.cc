// Text of a whole tree, so that tests can tell that nothing has changed.
#include <algorithm>

#include "model/tree/tree.h"

namespace mithril::model {

namespace {
std::string id_text(uint32_t id) { return id == kNone ? "-" : std::to_string(id); }

template <class Ids>
std::string list_text(const Ids& ids) {
  std::string out;
  for (const uint32_t id : ids) out += id_text(id) + ' ';
  return out;
}

std::string set_text(const ConnSet& set) {
  std::string out;
  for (const auto& [sequence, conn] : set) out += fmt::format("{}:{} ", sequence, conn);
  return out;
}

template <class Map>
std::string map_text(const Map& map) {
  std::vector<std::pair<std::string, uint32_t>> items(map.begin(), map.end());
  std::sort(items.begin(), items.end());
  std::string out;
  for (const auto& [name, id] : items) out += fmt::format("{}:{} ", name, id);
  return out;
}
}  // namespace

std::string ModelTree::dump() const {
  std::string out;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& n = nodes[i];
    out += fmt::format(
        "node {} parent {} {} '{}' frozen {} claimed {} children {}conns {}outputs {}cins {}couts "
        "{}next {} numbered {}names {}submodels {}states {} constraints {} initializers {} tag {} "
        "at {}\n",
        i, id_text(n.parent), n.class_name, n.name, n.frozen, n.claimed, list_text(n.children),
        list_text(n.conns), list_text(n.outputs), set_text(n.cins), set_text(n.couts),
        n.next_sequence, list_text(n.numbered), map_text(n.names), map_text(n.child_names),
        n.states.size(), n.constraints.size(), n.initializers.size(), n.tag,
        core::to_string(n.where));
  }
  for (size_t i = 0; i < conns.size(); ++i) {
    const Conn& c = conns[i];
    out += fmt::format(
        "conn {} node {} edge {} outer {} merged {} '{}' {} origin {} producer {} consumer {} {} "
        "exposed {} latent {} cin {} cout {}\n",
        i, c.node, c.edge, id_text(c.outer), id_text(c.merged), c.name, c.number, c.origin,
        id_text(c.producer), id_text(c.first_consumer), c.consumers, c.exposed, c.latent,
        id_text(c.cin), id_text(c.cout));
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    const Edge& e = edges[i];
    out += fmt::format("edge {} parent {} size {} cell {} '{}' value {} {} trainable {} diff {}\n",
                       i, id_text(e.parent), e.size, id_text(e.cell.index), e.label,
                       e.value ? to_string(*e.value) : "-", e.initial, e.trainable,
                       e.differentiable ? (*e.differentiable ? "yes" : "no") : "-");
  }
  out += fmt::format("facts {} scopes {} log {} played {}\n", facts.size(), scopes.size(),
                     log.size(), played);
  for (const Entry& e : log) {
    out += fmt::format("entry {} {} {} {} at {}\n", static_cast<int>(e.type), e.id,
                       id_text(e.other), e.fact, id_text(e.conn));
  }
  out += fmt::format("statements {}\n", statements.size());
  if (solver) out += solver->dump();
  return out;
}

}  // namespace mithril::model
