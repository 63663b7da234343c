#include "model/edit/extend.h"

#include <algorithm>

#include "ir/registry.h"
#include "model/explain/explain.h"
#include "model/tree/cycles.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

// --- gathering ----------------------------------------------------------------------------------

namespace {

Connection call_sequence(const Argument& sequence, const Location& where, int depth) {
  if (depth > HostValue::kMaxDepth) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                     "tuples and lists may be nested {} deep", HostValue::kMaxDepth),
          where);
  }
  const bool is_list = sequence.kind == Argument::Kind::kList;
  const ir::OpDef* op = ir::Registry::global().lookup(is_list ? "to_list" : "to_tuple").or_throw();
  std::vector<Argument> operands;
  for (const Argument& item : sequence.items) {
    const bool nested = item.kind == Argument::Kind::kTuple || item.kind == Argument::Kind::kList;
    operands.push_back(nested ? Argument::of(call_sequence(item, where, depth + 1)) : item);
  }
  LeafSpec spec;
  spec.count = operands.size();
  return Model::call(*op, operands, std::move(spec), where);
}

}  // namespace

Connections normalize(const Connections& connections, const Location& where) {
  Connections out;
  for (const auto& [key, argument] : connections) {
    const bool sequence =
        argument.kind == Argument::Kind::kTuple || argument.kind == Argument::Kind::kList;
    out.emplace_back(key, sequence ? Argument::of(call_sequence(argument, where, 0)) : argument);
  }
  return out;
}

std::vector<std::shared_ptr<PendingCall>> needed_calls(const Connections& connections) {
  std::vector<std::shared_ptr<PendingCall>> out, stack;
  std::unordered_map<const PendingCall*, bool> done;
  const auto push = [&](const Connections& from) {
    const size_t first = stack.size();
    for (const auto& [key, argument] : from) {
      if (argument.kind != Argument::Kind::kWire) continue;
      const auto& state = Access::state(argument.wire);
      if (state->type == WireState::Type::kPending && done.count(state->call.get()) == 0) {
        stack.push_back(state->call);
      }
    }
    std::reverse(stack.begin() + static_cast<ptrdiff_t>(first), stack.end());
  };
  push(connections);
  while (!stack.empty()) {
    const std::shared_ptr<PendingCall> call = stack.back();
    const auto [entry, is_new] = done.emplace(call.get(), false);
    if (is_new) {
      push(call->connections);
      continue;
    }
    stack.pop_back();
    if (entry->second) continue;
    entry->second = true;
    out.push_back(call);
  }
  return out;
}

// --- opening and closing ------------------------------------------------------------------------

namespace {
// Below this size the parent's tree stays where it is, so that composing from small parts copies
// the part and not the whole.
constexpr size_t kSmall = 64;
}  // namespace

Extension::Extension(const Model& parent, const std::vector<Model>& children, Location where)
    : where_(std::move(where)) {
  const Access::At own = Access::at(parent);
  std::vector<std::shared_ptr<Home>> homes{own.home};
  kept_ = own.home;
  for (const Model& child : children) {
    const Access::At at = Access::at(child);
    if (std::find(homes.begin(), homes.end(), at.home) != homes.end()) continue;
    homes.push_back(at.home);
    at.tree().refuse_busy(where_);
    const size_t weight = at.tree().weight();
    if (weight > kSmall && weight > kept_->tree->weight()) kept_ = at.home;
  }
  transaction_ = std::make_unique<Transaction>(tree());
  for (const auto& home : homes) {
    if (home == kept_) continue;
    offsets_[home.get()] = tree().append(*home->tree);
    appended_.push_back(home);
  }
  parent_ = local(parent);
}

NodeId Extension::local(const Model& model) const {
  const Access::At at = Access::at(model);
  const auto found = offsets_.find(at.home.get());
  return at.node + (found == offsets_.end() ? 0 : found->second.nodes);
}

void Extension::finish() {
  check_inference(tree(), {parent_, child_, where_, children_});
  transaction_->commit();
  for (const auto& home : appended_) {
    home->forward = kept_;
    home->offsets = offsets_[home.get()];
    home->tree.reset();
  }
  for (const auto& [state, conn] : attach_) {
    state->type = WireState::Type::kAttached;
    state->home = kept_;
    state->conn = conn;
    state->call.reset();
    state->spec = {};
  }
}

// --- placing one child --------------------------------------------------------------------------

void Extension::place_call(const std::shared_ptr<PendingCall>& call) {
  place(call->child, call->connections, Chain::kPlain, true, call->where);
  const NodeId child = local(call->child);
  const std::vector<ConnId> outputs = tree().node(child).outputs;
  for (size_t i = 0; i < call->results.size(); ++i) {
    const ConnId wire = tree().surviving(tree().conn(outputs[i]).outer);
    if (const auto state = call->results[i].lock()) {
      placed_[state.get()] = wire;
      attach_.emplace_back(state, wire);
    }
  }
}

std::vector<std::pair<ConnId, const Argument*>> Extension::given_keys(
    NodeId child, const Connections& connections) {
  std::vector<std::pair<ConnId, const Argument*>> out;
  for (const auto& [key, argument] : connections) {
    const ConnId conn = tree().find(child, key);
    const bool reachable =
        conn != kNone &&
        (tree().kind(conn) == KeyKind::kInput || tree().kind(conn) == KeyKind::kOutput ||
         tree().conn(conn).cin != kNone || tree().conn(conn).cout != kNone);
    if (!reachable) unknown_key(tree(), child, key, where_);
    out.emplace_back(conn, &argument);
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto twice = std::adjacent_find(
      out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != out.end()) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument, "{}: key '{}' is given twice",
                     title(tree().node(child)), tree().key(twice->first)),
          where_);
  }
  return out;
}

Argument Extension::canonical(NodeId child,
                              const std::vector<std::pair<ConnId, const Argument*>>& given,
                              ConnId& key) {
  const Node& parent = tree().node(parent_);
  std::vector<ConnId> open;
  for (const auto& [sequence, conn] : tree().node(child).cins) {
    const auto found = std::lower_bound(given.begin(), given.end(), conn,
                                        [](const auto& a, ConnId c) { return a.first < c; });
    const bool is_given = found != given.end() && found->first == conn &&
                          found->second->kind != Argument::Kind::kOmitted;
    if (!is_given) open.push_back(conn);
  }
  if (open.empty() || parent.children.empty()) return {};
  if (open.size() > 1) {
    std::string names;
    for (const ConnId c : open) {
      names += fmt::format("{}'{}'", names.empty() ? "" : ", ", tree().key(c));
    }
    core::Error error =
        core::fail(ErrorKind::kKey, Code::kCanonical,
                   "{}: `+=` needs one free canonical input of the submodel, got {}: {}",
                   title(tree().node(child)), open.size(), names);
    error.hint = "give all but one of them, or use `|=`";
    raise(std::move(error), where_);
  }
  if (parent.couts.size() != 1) {
    core::Error error = core::fail(ErrorKind::kKey, Code::kCanonical,
                                   "{}: `+=` needs one canonical output of the model, got {}",
                                   title(tree().node(child)), parent.couts.size());
    error.hint = "choose it with `set_cout`, or use `|=`";
    raise(std::move(error), where_);
  }
  key = open.front();
  return Argument::of(Access::connection(kept_, parent.couts.begin()->second));
}

void Extension::place(const Model& model, const Connections& connections, Chain chain, bool latent,
                      const Location& where) {
  where_ = where;
  ModelTree& a = tree();
  child_ = local(model);
  children_.push_back(child_);
  const std::string& name = a.node(child_).name;
  if (!name.empty() && a.node(parent_).child_names.count(name) != 0) {
    core::Error error = core::fail(ErrorKind::kName, Code::kNameTaken,
                                   "a submodel named '{}' is in the model already", name);
    const Node& other = a.node(a.node(parent_).child_names.at(name));
    error.facts.push_back({title(other), other.where, {}, 0});
    error.facts.push_back({title(a.node(child_)), where, {}, 0});
    error.hint = "choose another name, or leave it out: unnamed submodels are numbered";
    raise(std::move(error), where);
  }
  a.freeze(child_);
  const auto given = given_keys(child_, connections);
  ConnId chained = kNone;
  const Argument canonical_wire =
      chain == Chain::kCanonical ? canonical(child_, given, chained) : Argument();
  a.add_child(parent_, child_);
  if (where.known()) a.node(child_).where = where;
  static const Argument kOmitted;
  for (const ConnId key : a.externals(child_)) {
    const auto found = std::lower_bound(given.begin(), given.end(), key,
                                        [](const auto& g, ConnId c) { return g.first < c; });
    const bool is_given = found != given.end() && found->first == key;
    connect(key, key == chained ? canonical_wire : is_given ? *found->second : kOmitted, latent);
  }
  if (!gained_.empty()) check_cycle(child_);
  gained_.clear();
}

// --- one key ------------------------------------------------------------------------------------

Extension::Target Extension::named(ConnId key, const std::string& name) {
  const ConnId existing = tree().find(parent_, name);
  if (existing != kNone) return {existing, false};
  check_name(name, where_);
  return {tree().new_conn(parent_, tree().conn(key).edge, name, tree().conn(key).origin), true};
}

ConnId Extension::wire_of(const Connection& connection) {
  const WireState& state = *Access::state(connection);
  if (const auto found = placed_.find(&state); found != placed_.end()) return found->second;
  const auto fail_foreign = [&](const std::string& name) {
    core::Error error = core::fail(ErrorKind::kKey, Code::kForeign,
                                   "connection '{}' does not belong to {} and is not visible there",
                                   name, title(tree().node(parent_)));
    error.hint = "use a wire of this model, or expose it on the way up";
    raise(std::move(error), where_);
  };
  if (state.type != WireState::Type::kAttached) fail_foreign(connection.key());
  auto [home, conn] = Access::locate(state);
  if (home != kept_) {
    const auto found = offsets_.find(home.get());
    if (found == offsets_.end()) fail_foreign(connection.key());
    conn += found->second.conns;
  }
  conn = tree().surviving(conn);
  if (child_ != kNone && tree().conn(conn).node == child_ && tree().conn(conn).outer == kNone) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                     "'{}' is a key of the submodel itself and cannot be given to it",
                     tree().key(conn)),
          where_);
  }
  const ConnId wire = tree().visible(conn, parent_);
  if (wire == kNone) fail_foreign(connection.key());
  return wire;
}

ConnId Extension::created_wire(const Connection& connection) {
  const WireState& state = *Access::state(connection);
  if (placed_.count(&state) == 0 && state.type == WireState::Type::kKey) {
    core::Error error = core::fail(ErrorKind::kKey, Code::kForeign, "create: nothing computes '{}'",
                                   state.spec.name.empty() ? "an unnamed key" : state.spec.name);
    error.hint = "give what is made of it, such as Buffer()(key)";
    raise(std::move(error), where_);
  }
  return wire_of(connection);
}

Extension::Target Extension::of_wire(ConnId key, const Connection& connection) {
  const auto& state = Access::state(connection);
  const bool placed = placed_.count(state.get()) != 0;
  if (placed || state->type != WireState::Type::kKey) return {wire_of(connection), false};
  ModelTree& a = tree();
  const Target at =
      state->spec.name.empty()
          ? Target{a.new_conn(parent_, a.conn(key).edge, "", a.conn(key).origin), true}
          : named(key, state->spec.name);
  placed_[state.get()] = at.conn;
  attach_.emplace_back(state, at.conn);
  return at;
}

Extension::Target Extension::target(ConnId key, const Argument& argument) {
  ModelTree& a = tree();
  const bool is_output = a.conn(key).produced();
  switch (argument.kind) {
    case Argument::Kind::kName:
      if (!argument.name.empty()) return named(key, argument.name);
      if (is_output) {
        raise(core::fail(ErrorKind::kKey, Code::kNameReserved,
                         "{}: output '{}' cannot be given the empty name", title(a.node(child_)),
                         a.key(key)),
              where_);
      }
      break;
    case Argument::Kind::kWire: return of_wire(key, argument.wire);
    case Argument::Kind::kValue:
      if (is_output) {
        raise(core::fail(ErrorKind::kKey, Code::kValueArgument,
                         "{}: output '{}' cannot be given a value", title(a.node(child_)),
                         a.key(key)),
              where_);
      }
      break;
    default: break;
  }
  return {a.new_conn(parent_, a.conn(key).edge, "", a.conn(key).origin), true};
}

void Extension::connect(ConnId key, const Argument& argument, bool latent) {
  ModelTree& a = tree();
  const bool was_valued = a.is_valued(key);
  const bool is_key = argument.kind == Argument::Kind::kWire &&
                      Access::state(argument.wire)->type == WireState::Type::kKey &&
                      placed_.count(Access::state(argument.wire).get()) == 0;
  const Target at = target(key, argument);
  const bool produced = a.conn(key).produced();
  if (produced && !at.fresh && a.is_valued(at.conn)) {
    fail_multi_write(at.conn, key, "has a value");
  }
  if (!at.fresh) {
    a.unite(a.conn(at.conn).edge, a.conn(key).edge, a.key(at.conn), where_, title(a.node(child_)));
  }
  a.edit(key).outer = at.conn;
  const bool omitted = argument.kind == Argument::Kind::kOmitted ||
                       (argument.kind == Argument::Kind::kName && argument.name.empty());
  if (at.fresh && !produced) {
    const bool constant = latent && argument.kind == Argument::Kind::kValue;
    a.edit(at.conn).latent = (omitted && was_valued) || constant;
  }
  if (argument.kind == Argument::Kind::kValue) {
    a.state_value(at.conn, argument.value, false,
                  a.new_fact(where_, fmt::format("{} of {}", a.key(key), title(a.node(child_)))));
  }
  if (is_key) {
    const KeySpec& spec = Access::state(argument.wire)->spec;
    if (spec.value && !spec.initial && (produced || a.conn(at.conn).produced())) {
      fail_multi_write(at.conn, key, produced ? "has a value" : "is computed, and has a value");
    }
    const bool says = spec.type || spec.shape || spec.value || spec.differentiable || spec.interval;
    if (says) {
      const Location& made = Access::state(argument.wire)->where;
      state_spec(a, at.conn, spec,
                 a.new_fact(made.known() ? made : where_, fmt::format("key '{}'", a.key(at.conn))));
    }
  }
  if (produced) {
    connect_output(key, at.conn);
  } else {
    connect_input(key, at.conn, was_valued);
  }
}

void Extension::fail_multi_write(ConnId wire, ConnId key, std::string_view what) {
  ModelTree& a = tree();
  core::Error error = core::fail(ErrorKind::kMultiWrite, Code::kMultiWrite,
                                 "'{}' {} and cannot also be written by '{}' of {}", a.key(wire),
                                 what, a.key(key), title(a.node(child_)));
  if (a.conn(wire).produced() && a.conn(a.conn(wire).producer).node != child_) {
    const Node& writer = a.node(a.conn(a.conn(wire).producer).node);
    error.facts.push_back({fmt::format("written by {}", title(writer)), writer.where, {}, 0});
  } else if (const uint32_t fact = a.edge_of(wire).value_fact; fact != kNone) {
    error.facts.push_back({"given a value", a.facts[fact].where, {}, 0});
  }
  error.facts.push_back({fmt::format("written by {}", title(a.node(child_))), where_, {}, 0});
  error.hint = fmt::format("give '{}' of {} another name", a.key(key), title(a.node(child_)));
  raise(std::move(error), where_);
}

void Extension::connect_input(ConnId key, ConnId wire, bool was_valued) {
  ModelTree& a = tree();
  const bool produced = a.conn(wire).produced();
  if (produced && was_valued) fail_multi_write(wire, key, "is computed, the key has a value");
  Conn& c = a.edit(wire);
  if (c.consumers++ == 0) c.first_consumer = key;
  if (!c.exposed) a.remove_cout(wire);
  if (a.is_valued(wire)) {
    a.remove_cin(wire);
  } else if (!produced && a.conn(key).cin != kNone) {
    a.add_cin(wire);
  }
}

bool Extension::carries_state(ConnId wire) {
  const std::vector<State>& states = tree().node(tree().conn(wire).node).states;
  return std::any_of(states.begin(), states.end(),
                     [&](const State& state) { return tree().surviving(state.input) == wire; });
}

void Extension::connect_output(ConnId key, ConnId wire) {
  ModelTree& a = tree();
  if (a.conn(wire).produced()) fail_multi_write(wire, key, "is computed already");
  if (a.conn(wire).latent && carries_state(wire)) fail_multi_write(wire, key, "carries state");
  if (a.conn(wire).name == "input") {
    raise(core::fail(ErrorKind::kName, Code::kNameReserved,
                     "the name 'input' is reserved for inputs and cannot be given to '{}' of {}",
                     a.key(key), title(a.node(child_))),
          where_);
  }
  Conn& c = a.edit(wire);
  c.producer = key;
  c.origin = a.conn(key).origin;
  c.latent = false;
  a.remove_cin(wire);
  if (c.consumers > 0) gained_.push_back(wire);
  if (a.conn(key).cout != kNone && (c.consumers == 0 || c.exposed)) a.add_cout(wire);
}

void Extension::check_cycle(NodeId child) {
  // Backwards from what the child reads: does it read what it writes?
  ModelTree& a = tree();
  std::vector<NodeId> stack{child};
  std::unordered_map<NodeId, ConnId> seen;
  while (!stack.empty()) {
    const NodeId at = stack.back();
    stack.pop_back();
    for (const ConnId c : a.node(at).conns) {
      if (a.conn(c).produced()) continue;
      const ConnId wire = a.surviving(a.conn(c).outer);
      if (wire == kNone || !a.conn(wire).produced()) continue;
      const NodeId producer = a.conn(a.conn(wire).producer).node;
      if (producer == child) {
        if (!feeds_itself(a, gained_)) return;
        core::Error error =
            core::fail(ErrorKind::kCycle, Code::kCycle,
                       "{} closes a cycle: it writes '{}', and reads what is computed from it",
                       title(a.node(child)), a.key(gained_.front()));
        if (at != child) {
          error.facts.push_back(
              {fmt::format("read by {}", title(a.node(at))), a.node(at).where, {}, 0});
        }
        error.facts.push_back({fmt::format("written by {}", title(a.node(child))), where_, {}, 0});
        error.hint = fmt::format("give the output of {} another name than '{}'",
                                 title(a.node(child)), a.key(gained_.front()));
        raise(std::move(error), where_);
      }
      if (seen.emplace(producer, wire).second) stack.push_back(producer);
    }
  }
}

}  // namespace mithril::model
