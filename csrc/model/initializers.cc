// How parameters start: said of models, by patterns of names.
#include "model/tree/initializers.h"

#include <algorithm>

namespace mithril::model {

using core::Code;
using core::ErrorKind;

namespace {

/// Tells whether a name fits a pattern, in which `*` stands for any text.
bool fits(std::string_view pattern, std::string_view name) {
  size_t at = 0, next = 0;
  size_t star = std::string_view::npos, kept = 0;  // what the last `*` stands for ends at `kept`
  while (at < name.size()) {
    if (next < pattern.size() && pattern[next] == '*') {
      star = next++;
      kept = at;
    } else if (next < pattern.size() && pattern[next] == name[at]) {
      ++next;
      ++at;
    } else if (star != std::string_view::npos) {
      next = star + 1;
      at = ++kept;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(next), pattern.end(),
                     [](char c) { return c == '*'; });
}

std::vector<std::string> parameter_names(const ModelTree& tree, NodeId node) {
  Paths paths(tree);
  std::vector<std::string> out;
  for (const ConnId wire : tree.node(node).conns) {
    const Edge& edge = tree.edge_of(wire);
    const bool is_input = tree.conn(wire).merged == kNone && !tree.conn(wire).produced();
    const bool is_trained = edge.differentiable.value_or(edge.trainable);
    if (!is_input || !is_trained || tree.is_valued(wire)) continue;
    out.push_back(paths.name(wire));
  }
  return out;
}

}  // namespace

void check_initializer(const HostValue& value, const Location& where) {
  if (value.is_int() || value.is_double()) return;
  const auto& names = ir::Init::kNames;
  if (!value.is_string()) {
    refuse(ErrorKind::kValue, Code::kValueArgument,
           fmt::format("init: requires the name of an initializer or a number, got {}",
                       to_string(value)),
           where, "arrays and functions are given to randomize_params(init=...)");
  }
  if (std::find(names.begin() + 1, names.end(), value.as_string()) != names.end()) return;
  const std::vector<std::string> known(names.begin() + 1, names.end());
  refuse(ErrorKind::kValue, Code::kValueArgument,
         fmt::format("init: no initializer named '{}'{}", value.as_string(),
                     core::suggestion(value.as_string(), known)),
         where, fmt::format("there are {}", fmt::join(known, ", ")));
}

const HostValue* InitializerTable::find(NodeId leaf, EdgeId parameter) {
  const HostValue* found = nullptr;
  for (NodeId at = leaf; at != kNone; at = tree_.node(at).parent) {
    if (const HostValue* said = find_in(at, parameter)) found = said;
  }
  return found;
}

const HostValue* InitializerTable::find_in(NodeId node, EdgeId parameter) {
  const std::vector<Initializer>& said = tree_.node(node).initializers;
  if (said.empty()) return nullptr;
  const auto [first, last] = wires_of(node).equal_range(parameter);
  for (auto at = first; at != last; ++at) {
    const std::string name = paths_.name(at->second);
    const auto found = std::find_if(
        said.rbegin(), said.rend(),
        [&](const Initializer& initializer) { return fits(initializer.pattern, name); });
    if (found != said.rend()) return &found->value;
  }
  return nullptr;
}

const InitializerTable::Wires& InitializerTable::wires_of(NodeId node) {
  const auto [at, is_new] = wires_.try_emplace(node);
  if (!is_new) return at->second;
  for (const ConnId wire : tree_.node(node).conns) {
    if (tree_.conn(wire).merged != kNone) continue;
    at->second.emplace(tree_.root(tree_.conn(wire).edge), wire);
  }
  return at->second;
}

void Model::set_initializers(const std::vector<Initializer>& initializers, Location where) {
  const Access::At at = Access::at(*this);
  const std::vector<std::string> names = parameter_names(at.tree(), at.node);
  for (const Initializer& initializer : initializers) {
    check_initializer(initializer.value, where);
    const bool is_known = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return fits(initializer.pattern, name);
    });
    if (is_known) continue;
    const std::string& pattern = initializer.pattern;
    refuse(ErrorKind::kKey, Code::kKeyUnknown,
           names.empty() ? fmt::format("init: {} has no parameters", title(at.get()))
                         : fmt::format("init: {} has no parameter '{}'{}", title(at.get()), pattern,
                                       core::suggestion(pattern, names)),
           where,
           names.empty() ? "" : fmt::format("its parameters are {}", fmt::join(names, ", ")));
  }
  Transaction transaction(at.tree());
  at.tree().save_node(at.node);
  std::vector<Initializer>& all = at.get().initializers;
  for (const Initializer& initializer : initializers) {
    std::erase_if(all,
                  [&](const Initializer& former) { return former.pattern == initializer.pattern; });
    all.push_back(initializer);
  }
  transaction.commit();
}

}  // namespace mithril::model
