// Setters, exposure, canonical sets, names, merging and state: what is done to wires in place.
#include <algorithm>
#include <functional>

#include "model/explain/explain.h"
#include "model/tree/cycles.h"
#include "model/tree/tree.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

namespace {

/// Runs `change` and inference as one step that happens or does not.
void apply(const Access::At& at, const Location& where, const std::function<void()>& change) {
  Transaction transaction(at.tree());
  try {
    change();
  } catch (core::ErrorException& failure) {
    raise(failure.error(), where);
  }
  check_inference(at.tree(), {at.node, kNone, where});
  transaction.commit();
}

// A key takes a value only if it is an input of the outermost model.
void check_outermost_input(const Access::At& at, ConnId conn, const Location& where) {
  const ModelTree& tree = at.tree();
  const NodeId top = tree.outermost(tree.conn(conn).node);
  const ConnId wire = tree.visible(conn, top);
  if (wire != kNone && tree.kind(wire) == KeyKind::kInput) return;
  refuse(ErrorKind::kValue, Code::kValueArgument,
         fmt::format("a value can be set for inputs of the outermost model only, and '{}' is none",
                     tree.key(conn)),
         where);
}

// After a value is known, no level counts the key as canonical input.
void drop_cins(ModelTree& tree, ConnId conn) {
  for (ConnId c = tree.surviving(conn); c != kNone; c = tree.surviving(tree.conn(c).outer)) {
    tree.remove_cin(c);
  }
}

}  // namespace

void Model::set_shapes(const Config<ShapeTemplate>& config, Location where) {
  const Access::At at = Access::at(*this);
  apply(at, where, [&] {
    const uint32_t scope = at.tree().new_scope();
    const uint32_t fact = at.tree().new_fact(where, "set_shapes");
    for (const auto& [key, shape] : config) {
      at.tree().state_shape(resolve_anywhere(at, key, where), shape, scope, fact);
    }
  });
}

void Model::set_types(const Config<infer::Type>& config, Location where) {
  const Access::At at = Access::at(*this);
  apply(at, where, [&] {
    const uint32_t fact = at.tree().new_fact(where, "set_types");
    for (const auto& [key, type] : config) {
      at.tree().state_type(resolve_anywhere(at, key, where), type, fact);
    }
  });
}

void Model::set_values(const Config<HostValue>& config, bool initial, Location where) {
  const Access::At at = Access::at(*this);
  apply(at, where, [&] {
    const uint32_t fact = at.tree().new_fact(where, "set_values");
    for (const auto& [key, value] : config) {
      const ConnId conn = resolve_anywhere(at, key, where);
      check_outermost_input(at, conn, where);
      at.tree().state_value(conn, value, initial, fact);
      if (!initial) drop_cins(at.tree(), conn);
    }
  });
}

void Model::set_specs(const Config<KeySpec>& config, Location where) {
  const Access::At at = Access::at(*this);
  apply(at, where, [&] {
    const uint32_t fact = at.tree().new_fact(where, "set_values");
    for (const auto& [key, spec] : config) {
      const ConnId conn = resolve_anywhere(at, key, where);
      check_outermost_input(at, conn, where);
      check_spec(spec, where);
      state_spec(at.tree(), conn, spec, fact);
      if (spec.value && !spec.initial) drop_cins(at.tree(), conn);
    }
  });
}

void Model::set_differentiability(const Config<bool>& config, Location where) {
  const Access::At at = Access::at(*this);
  apply(at, where, [&] {
    const uint32_t fact = at.tree().new_fact(where, "set_differentiability");
    for (const auto& [key, differentiable] : config) {
      at.tree().state_differentiable(resolve_anywhere(at, key, where), differentiable, fact);
    }
  });
}

namespace {

void set_canonical(const Access::At& at, const std::vector<KeyRef>& keys, bool safe, bool inputs,
                   const Location& where) {
  ModelTree& tree = at.tree();
  std::vector<ConnId> wanted;
  for (const KeyRef& key : keys) {
    const ConnId conn = resolve(at, key, where);
    const bool right_side = tree.conn(conn).produced() != inputs;
    if (right_side && !(inputs && tree.is_valued(conn))) {
      wanted.push_back(conn);
    } else if (safe) {
      refuse(ErrorKind::kValue, Code::kCanonical,
             fmt::format("'{}' cannot be a canonical {}: {}", tree.key(conn),
                         inputs ? "input" : "output",
                         right_side ? "it has a value"
                         : inputs   ? "it is computed in the model"
                                    : "it is an input"),
             where);
    }
  }
  const ConnSet& set = inputs ? at.get().cins : at.get().couts;
  std::vector<ConnId> old;
  for (const auto& [sequence, conn] : set) old.push_back(conn);
  for (const ConnId c : old) inputs ? tree.remove_cin(c) : tree.remove_cout(c);
  for (const ConnId c : wanted) inputs ? tree.add_cin(c) : tree.add_cout(c);
}

}  // namespace

void Model::set_cin(const std::vector<KeyRef>& keys, bool safe, Location where) {
  const Access::At at = Access::at(*this);
  Transaction transaction(at.tree());
  set_canonical(at, keys, safe, true, where);
  transaction.commit();
}

void Model::set_cout(const std::vector<KeyRef>& keys, bool safe, Location where) {
  const Access::At at = Access::at(*this);
  Transaction transaction(at.tree());
  set_canonical(at, keys, safe, false, where);
  transaction.commit();
}

namespace {

void refuse_nested(const Access::At& at, std::string_view what, const Location& where) {
  if (at.get().parent == kNone && !at.get().claimed) return;
  refuse(ErrorKind::kFrozen, Code::kModelFrozen,
         fmt::format("{} is a submodel: {} works on outermost models only", title(at.get()), what),
         where);
}

void refuse_taken(const Access::At& at, ConnId conn, const std::string& name,
                  const Location& where) {
  const ConnId found = at.tree().find(at.node, name);
  if (found == kNone || found == conn) return;
  refuse(ErrorKind::kName, Code::kNameTaken, fmt::format("the key '{}' exists already", name),
         where);
}

void rename(const Access::At& at, ConnId conn, const std::string& name, const Location& where) {
  ModelTree& tree = at.tree();
  if (tree.conn(conn).name == name) return;
  check_name(name, where);
  refuse_taken(at, conn, name, where);
  if (name == "input" && tree.conn(conn).produced()) {
    refuse(ErrorKind::kName, Code::kNameReserved,
           fmt::format("the name 'input' is reserved for inputs and cannot be given to '{}'",
                       tree.key(conn)),
           where);
  }
  tree.set_name(conn, name);
}

void expose(ModelTree& tree, ConnId conn) {
  if (tree.conn(conn).produced()) {
    tree.expose(conn);
  } else {
    tree.edit(conn).latent = false;
  }
}

}  // namespace

void Model::expose_keys(const std::vector<KeyRef>& keys,
                        const std::vector<std::pair<std::string, KeyRef>>& renamed,
                        Location where) {
  const Access::At at = Access::at(*this);
  refuse_nested(at, "expose_keys", where);
  apply(at, where, [&] {
    for (const KeyRef& key : keys) {
      const ConnId conn = resolve(at, key, where);
      if (at.tree().conn(conn).produced() && at.tree().conn(conn).name.empty()) {
        refuse(ErrorKind::kKey, Code::kKeyUnknown,
               fmt::format("'{}' has no name: expose it as name='{}'", at.tree().key(conn),
                           at.tree().key(conn)),
               where);
      }
      expose(at.tree(), conn);
    }
    for (const auto& [name, key] : renamed) {
      const ConnId conn = resolve(at, key, where);
      rename(at, conn, name, where);
      expose(at.tree(), conn);
    }
  });
}

void Model::rename_key(const KeyRef& key, const std::string& name, Location where) {
  const Access::At at = Access::at(*this);
  if (at.get().op != nullptr) {
    refuse(ErrorKind::kFrozen, Code::kModelFrozen,
           fmt::format("keys of {} are those of its op and keep their names", title(at.get())),
           where);
  }
  apply(at, where, [&] { rename(at, resolve(at, key, where), name, where); });
}

namespace {

// `gone` becomes `stays`.
void merge(const Access::At& at, ConnId stays, ConnId gone, const Location& where) {
  ModelTree& tree = at.tree();
  if (tree.conn(stays).produced() && tree.conn(gone).produced()) {
    refuse(ErrorKind::kMultiWrite, Code::kMultiWrite,
           fmt::format("'{}' and '{}' are both computed and cannot be one wire", tree.key(stays),
                       tree.key(gone)),
           where);
  }
  const bool valued = tree.is_valued(stays) || tree.is_valued(gone);
  if (valued && (tree.conn(stays).produced() || tree.conn(gone).produced())) {
    refuse(ErrorKind::kMultiWrite, Code::kMultiWrite,
           fmt::format("of '{}' and '{}' one is computed and the other has a value",
                       tree.key(stays), tree.key(gone)),
           where);
  }
  tree.unite(tree.conn(stays).edge, tree.conn(gone).edge, tree.key(stays), where,
             "merge_connections");
  const bool was_cin = tree.conn(stays).cin != kNone || tree.conn(gone).cin != kNone;
  const bool was_cout = tree.conn(stays).cout != kNone || tree.conn(gone).cout != kNone;
  const bool exposed = tree.conn(stays).exposed || tree.conn(gone).exposed;
  tree.remove_cin(gone);
  tree.remove_cout(gone);
  Conn& from = tree.edit(gone);
  Conn& to = tree.edit(stays);
  if (to.first_consumer == kNone) to.first_consumer = from.first_consumer;
  to.consumers += from.consumers;
  if (from.produced()) {
    to.producer = from.producer;
    to.origin = from.origin;
  }
  to.latent = to.latent && from.latent;
  from.merged = stays;
  if (from.exposed) std::erase(tree.node(at.node).outputs, gone);
  from.exposed = false;
  if (exposed && to.produced()) tree.expose(stays);
  const bool is_cin = was_cin && !to.produced() && !tree.is_valued(stays);
  const bool is_cout = was_cout && to.produced() && (to.consumers == 0 || to.exposed);
  is_cin ? tree.add_cin(stays) : tree.remove_cin(stays);
  is_cout ? tree.add_cout(stays) : tree.remove_cout(stays);
}

void check_state(const ModelTree& tree, ConnId input, ConnId output, const Location& where) {
  const bool fits = !tree.conn(input).produced() && !tree.is_valued(input);
  if (fits && tree.conn(output).produced()) return;
  refuse(ErrorKind::kKey, Code::kValueArgument,
         fmt::format("state goes from a computed wire to an input, not from '{}' to '{}'",
                     tree.key(output), tree.key(input)),
         where);
}

void check_other_state(const ModelTree& tree, const State& other, ConnId input, ConnId output,
                       const Location& where) {
  if (tree.surviving(other.input) != input && tree.surviving(other.output) != output) return;
  refuse(ErrorKind::kKey, Code::kNameTaken,
         fmt::format("'{}' or '{}' is bound to state already", tree.key(input), tree.key(output)),
         where);
}

// A wire that carries state still does once others are one with it.
void keep_states(const Access::At& at, const Location& where) {
  ModelTree& tree = at.tree();
  for (const State& state : at.get().states) {
    const ConnId input = tree.surviving(state.input), output = tree.surviving(state.output);
    check_state(tree, input, output, where);
    for (const State& other : at.get().states) {
      if (&other == &state) break;
      check_other_state(tree, other, input, output, where);
    }
    if (tree.conn(input).latent) continue;
    tree.edit(input).latent = true;
    tree.remove_cin(input);
  }
}

}  // namespace

void Model::merge_connections(const std::vector<KeyRef>& keys, const std::string& name,
                              Location where) {
  const Access::At at = Access::at(*this);
  refuse_nested(at, "merge_connections", where);
  if (at.get().op != nullptr) {
    refuse(ErrorKind::kFrozen, Code::kModelFrozen,
           fmt::format("keys of {} are those of its op", title(at.get())), where);
  }
  ModelTree& tree = at.tree();
  apply(at, where, [&] {
    std::vector<ConnId> conns;
    for (const KeyRef& key : keys) {
      const ConnId conn = resolve(at, key, where);
      if (std::find(conns.begin(), conns.end(), conn) == conns.end()) conns.push_back(conn);
    }
    if (keys.size() < 2) {
      refuse(ErrorKind::kValue, Code::kValueArgument,
             fmt::format("merge_connections: requires two wires or more, got {}", keys.size()),
             where);
    }
    if (conns.size() < 2 && name.empty()) return;
    tree.save_node(at.node);
    ConnId stays = conns.front();
    for (const ConnId c : conns) {
      if (tree.conn(stays).name.empty() && !tree.conn(c).name.empty()) stays = c;
    }
    for (const ConnId c : conns) {
      const std::string& other = tree.conn(c).name;
      if (c == stays || other.empty()) continue;
      if (name.empty()) {
        refuse(ErrorKind::kName, Code::kNameTaken,
               fmt::format("'{}' and '{}' both have names: say which one stays by name=",
                           tree.conn(stays).name, other),
               where);
      }
      if (other == name) stays = c;
    }
    for (const ConnId c : conns) {
      if (c == stays) continue;
      merge(at, stays, c, where);
      if (!tree.conn(c).name.empty()) tree.node(at.node).names.erase(tree.conn(c).name);
    }
    keep_states(at, where);
    check_inference(tree, {at.node, kNone, where});  // its errors name the wires as they were
    if (!name.empty()) rename(at, stays, name, where);
    if (tree.conn(stays).produced() && tree.conn(stays).name == "input") {
      refuse(ErrorKind::kName, Code::kNameReserved,
             "the name 'input' is reserved for inputs and cannot be given to a computed wire",
             where);
    }
    if (feeds_itself(tree, {stays})) {
      refuse(ErrorKind::kCycle, Code::kCycle,
             fmt::format("merging into '{}' closes a cycle", tree.key(stays)), where);
    }
  });
}

void Model::bind_state(const KeyRef& input, const KeyRef& output, std::optional<HostValue> initial,
                       Location where) {
  const Access::At at = Access::at(*this);
  ModelTree& tree = at.tree();
  if (at.get().frozen) {
    refuse(ErrorKind::kFrozen, Code::kModelFrozen,
           fmt::format("{} is frozen: state cannot be bound", title(at.get())), where);
  }
  apply(at, where, [&] {
    const ConnId in = resolve(at, input, where), out = resolve(at, output, where);
    check_state(tree, in, out, where);
    for (const State& state : at.get().states) check_other_state(tree, state, in, out, where);
    tree.save_node(at.node);
    tree.node(at.node).states.push_back({in, out, std::move(initial)});
    const uint32_t fact = tree.new_fact(where, "bind_state");
    tree.edit(in).latent = true;
    tree.remove_cin(in);
    tree.remove_cout(out);
    tree.state_differentiable(in, false, fact);
    tree.state_next(in, out, fact);
  });
}

}  // namespace mithril::model
