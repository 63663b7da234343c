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
  Transaction transaction(at.arena());
  try {
    change();
  } catch (core::ErrorException& failure) {
    raise(failure.error(), where);
  }
  check_inference(at.arena(), {at.node, kNone, where});
  transaction.commit();
}

// A key takes a value only if it is an input of the outermost model.
void check_outermost_input(const Access::At& at, ConnId conn, const Location& where) {
  const Arena& arena = at.arena();
  const NodeId top = arena.outermost(arena.conn(conn).node);
  const ConnId wire = arena.visible(conn, top);
  if (wire != kNone && arena.kind(wire) == KeyKind::kInput) return;
  refuse(ErrorKind::kValue, Code::kValueArgument,
         fmt::format("a value can be set for inputs of the outermost model only, and '{}' is none",
                     arena.key(conn)),
         where);
}

// After a value is known, no level counts the key as canonical input.
void drop_cins(Arena& arena, ConnId conn) {
  for (ConnId c = arena.surviving(conn); c != kNone; c = arena.surviving(arena.conn(c).outer)) {
    arena.remove_cin(c);
  }
}

}  // namespace

void Model::set_shapes(const Config<ShapeTemplate>& config, Location where) {
  const Access::At at = Access::at(*this);
  apply(at, where, [&] {
    const uint32_t scope = at.arena().new_scope();
    const uint32_t fact = at.arena().new_fact(where, "set_shapes");
    for (const auto& [key, shape] : config) {
      at.arena().state_shape(resolve_anywhere(at, key, where), shape, scope, fact);
    }
  });
}

void Model::set_types(const Config<infer::Type>& config, Location where) {
  const Access::At at = Access::at(*this);
  apply(at, where, [&] {
    const uint32_t fact = at.arena().new_fact(where, "set_types");
    for (const auto& [key, type] : config) {
      at.arena().state_type(resolve_anywhere(at, key, where), type, fact);
    }
  });
}

void Model::set_values(const Config<HostValue>& config, bool initial, Location where) {
  const Access::At at = Access::at(*this);
  apply(at, where, [&] {
    const uint32_t fact = at.arena().new_fact(where, "set_values");
    for (const auto& [key, value] : config) {
      const ConnId conn = resolve_anywhere(at, key, where);
      check_outermost_input(at, conn, where);
      at.arena().state_value(conn, value, initial, fact);
      if (!initial) drop_cins(at.arena(), conn);
    }
  });
}

void Model::set_specs(const Config<KeySpec>& config, Location where) {
  const Access::At at = Access::at(*this);
  apply(at, where, [&] {
    const uint32_t fact = at.arena().new_fact(where, "set_values");
    for (const auto& [key, spec] : config) {
      const ConnId conn = resolve_anywhere(at, key, where);
      check_outermost_input(at, conn, where);
      check_spec(spec, where);
      state_spec(at.arena(), conn, spec, fact);
      if (spec.value && !spec.initial) drop_cins(at.arena(), conn);
    }
  });
}

void Model::set_differentiability(const Config<bool>& config, Location where) {
  const Access::At at = Access::at(*this);
  apply(at, where, [&] {
    const uint32_t fact = at.arena().new_fact(where, "set_differentiability");
    for (const auto& [key, differentiable] : config) {
      at.arena().state_differentiable(resolve_anywhere(at, key, where), differentiable, fact);
    }
  });
}

namespace {

void set_canonical(const Access::At& at, const std::vector<KeyRef>& keys, bool safe, bool inputs,
                   const Location& where) {
  Arena& arena = at.arena();
  std::vector<ConnId> wanted;
  for (const KeyRef& key : keys) {
    const ConnId conn = resolve(at, key, where);
    const bool right_side = arena.conn(conn).produced() != inputs;
    if (right_side && !(inputs && arena.is_valued(conn))) {
      wanted.push_back(conn);
    } else if (safe) {
      refuse(ErrorKind::kValue, Code::kCanonical,
             fmt::format("'{}' cannot be a canonical {}: {}", arena.key(conn),
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
  for (const ConnId c : old) inputs ? arena.remove_cin(c) : arena.remove_cout(c);
  for (const ConnId c : wanted) inputs ? arena.add_cin(c) : arena.add_cout(c);
}

}  // namespace

void Model::set_cin(const std::vector<KeyRef>& keys, bool safe, Location where) {
  const Access::At at = Access::at(*this);
  Transaction transaction(at.arena());
  set_canonical(at, keys, safe, true, where);
  transaction.commit();
}

void Model::set_cout(const std::vector<KeyRef>& keys, bool safe, Location where) {
  const Access::At at = Access::at(*this);
  Transaction transaction(at.arena());
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
  const ConnId found = at.arena().find(at.node, name);
  if (found == kNone || found == conn) return;
  refuse(ErrorKind::kName, Code::kNameTaken, fmt::format("the key '{}' exists already", name),
         where);
}

void rename(const Access::At& at, ConnId conn, const std::string& name, const Location& where) {
  Arena& arena = at.arena();
  if (arena.conn(conn).name == name) return;
  check_name(name, where);
  refuse_taken(at, conn, name, where);
  if (name == "input" && arena.conn(conn).produced()) {
    refuse(ErrorKind::kName, Code::kNameReserved,
           fmt::format("the name 'input' is reserved for inputs and cannot be given to '{}'",
                       arena.key(conn)),
           where);
  }
  arena.set_name(conn, name);
}

void expose(Arena& arena, ConnId conn) {
  if (arena.conn(conn).produced()) {
    arena.expose(conn);
  } else {
    arena.edit(conn).latent = false;
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
      if (at.arena().conn(conn).produced() && at.arena().conn(conn).name.empty()) {
        refuse(ErrorKind::kKey, Code::kKeyUnknown,
               fmt::format("'{}' has no name: expose it as name='{}'", at.arena().key(conn),
                           at.arena().key(conn)),
               where);
      }
      expose(at.arena(), conn);
    }
    for (const auto& [name, key] : renamed) {
      const ConnId conn = resolve(at, key, where);
      rename(at, conn, name, where);
      expose(at.arena(), conn);
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
  Arena& arena = at.arena();
  if (arena.conn(stays).produced() && arena.conn(gone).produced()) {
    refuse(ErrorKind::kMultiWrite, Code::kMultiWrite,
           fmt::format("'{}' and '{}' are both computed and cannot be one wire", arena.key(stays),
                       arena.key(gone)),
           where);
  }
  const bool valued = arena.is_valued(stays) || arena.is_valued(gone);
  if (valued && (arena.conn(stays).produced() || arena.conn(gone).produced())) {
    refuse(ErrorKind::kMultiWrite, Code::kMultiWrite,
           fmt::format("of '{}' and '{}' one is computed and the other has a value",
                       arena.key(stays), arena.key(gone)),
           where);
  }
  arena.unite(arena.conn(stays).edge, arena.conn(gone).edge, arena.key(stays), where,
              "merge_connections");
  const bool was_cin = arena.conn(stays).cin != kNone || arena.conn(gone).cin != kNone;
  const bool was_cout = arena.conn(stays).cout != kNone || arena.conn(gone).cout != kNone;
  const bool exposed = arena.conn(stays).exposed || arena.conn(gone).exposed;
  arena.remove_cin(gone);
  arena.remove_cout(gone);
  Conn& from = arena.edit(gone);
  Conn& to = arena.edit(stays);
  if (to.first_consumer == kNone) to.first_consumer = from.first_consumer;
  to.consumers += from.consumers;
  if (from.produced()) {
    to.producer = from.producer;
    to.origin = from.origin;
  }
  to.latent = to.latent && from.latent;
  from.merged = stays;
  if (from.exposed) std::erase(arena.node(at.node).outputs, gone);
  from.exposed = false;
  if (exposed && to.produced()) arena.expose(stays);
  const bool is_cin = was_cin && !to.produced() && !arena.is_valued(stays);
  const bool is_cout = was_cout && to.produced() && (to.consumers == 0 || to.exposed);
  is_cin ? arena.add_cin(stays) : arena.remove_cin(stays);
  is_cout ? arena.add_cout(stays) : arena.remove_cout(stays);
}

void check_state(const Arena& arena, ConnId input, ConnId output, const Location& where) {
  const bool fits = !arena.conn(input).produced() && !arena.is_valued(input);
  if (fits && arena.conn(output).produced()) return;
  refuse(ErrorKind::kKey, Code::kValueArgument,
         fmt::format("state goes from a computed wire to an input, not from '{}' to '{}'",
                     arena.key(output), arena.key(input)),
         where);
}

void check_other_state(const Arena& arena, const State& other, ConnId input, ConnId output,
                       const Location& where) {
  if (arena.surviving(other.input) != input && arena.surviving(other.output) != output) return;
  refuse(ErrorKind::kKey, Code::kNameTaken,
         fmt::format("'{}' or '{}' is bound to state already", arena.key(input), arena.key(output)),
         where);
}

// A wire that carries state still does once others are one with it.
void keep_states(const Access::At& at, const Location& where) {
  Arena& arena = at.arena();
  for (const State& state : at.get().states) {
    const ConnId input = arena.surviving(state.input), output = arena.surviving(state.output);
    check_state(arena, input, output, where);
    for (const State& other : at.get().states) {
      if (&other == &state) break;
      check_other_state(arena, other, input, output, where);
    }
    if (arena.conn(input).latent) continue;
    arena.edit(input).latent = true;
    arena.remove_cin(input);
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
  Arena& arena = at.arena();
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
    arena.save_node(at.node);
    ConnId stays = conns.front();
    for (const ConnId c : conns) {
      if (arena.conn(stays).name.empty() && !arena.conn(c).name.empty()) stays = c;
    }
    for (const ConnId c : conns) {
      const std::string& other = arena.conn(c).name;
      if (c == stays || other.empty()) continue;
      if (name.empty()) {
        refuse(ErrorKind::kName, Code::kNameTaken,
               fmt::format("'{}' and '{}' both have names: say which one stays by name=",
                           arena.conn(stays).name, other),
               where);
      }
      if (other == name) stays = c;
    }
    for (const ConnId c : conns) {
      if (c == stays) continue;
      merge(at, stays, c, where);
      if (!arena.conn(c).name.empty()) arena.node(at.node).names.erase(arena.conn(c).name);
    }
    keep_states(at, where);
    check_inference(arena, {at.node, kNone, where});  // its errors name the wires as they were
    if (!name.empty()) rename(at, stays, name, where);
    if (arena.conn(stays).produced() && arena.conn(stays).name == "input") {
      refuse(ErrorKind::kName, Code::kNameReserved,
             "the name 'input' is reserved for inputs and cannot be given to a computed wire",
             where);
    }
    if (feeds_itself(arena, {stays})) {
      refuse(ErrorKind::kCycle, Code::kCycle,
             fmt::format("merging into '{}' closes a cycle", arena.key(stays)), where);
    }
  });
}

void Model::bind_state(const KeyRef& input, const KeyRef& output, std::optional<HostValue> initial,
                       Location where) {
  const Access::At at = Access::at(*this);
  Arena& arena = at.arena();
  if (at.get().frozen) {
    refuse(ErrorKind::kFrozen, Code::kModelFrozen,
           fmt::format("{} is frozen: state cannot be bound", title(at.get())), where);
  }
  apply(at, where, [&] {
    const ConnId in = resolve(at, input, where), out = resolve(at, output, where);
    check_state(arena, in, out, where);
    for (const State& state : at.get().states) check_other_state(arena, state, in, out, where);
    arena.save_node(at.node);
    arena.node(at.node).states.push_back({in, out, std::move(initial)});
    const uint32_t fact = arena.new_fact(where, "bind_state");
    arena.edit(in).latent = true;
    arena.remove_cin(in);
    arena.remove_cout(out);
    arena.state_differentiable(in, false, fact);
    arena.state_next(in, out, fact);
  });
}

}  // namespace mithril::model
