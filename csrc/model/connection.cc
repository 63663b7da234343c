// Handles to wires and to places in trees: what they stand for now, and what arguments are made of.
#include <algorithm>

#include "model/tree/tree.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

// --- access -------------------------------------------------------------------------------------

Home::~Home() {
  std::shared_ptr<Home> next = std::move(forward);
  while (next && next.use_count() == 1) {
    std::shared_ptr<Home> after = std::move(next->forward);
    next = std::move(after);
  }
}

uint32_t Cut::moved(const std::vector<uint32_t>& removed, uint32_t id) {
  const auto at = std::lower_bound(removed.begin(), removed.end(), id);
  if (at != removed.end() && *at == id) return kNone;
  return id - static_cast<uint32_t>(at - removed.begin());
}

std::vector<uint32_t> Cut::join(const std::vector<uint32_t>& first,
                                const std::vector<uint32_t>& second, size_t size) {
  std::vector<uint32_t> out;
  uint32_t passed = 0;  // of `first`
  const auto pass_to = [&](uint32_t id) {
    while (passed < first.size() && first[passed] <= id + passed) out.push_back(first[passed++]);
  };
  for (const uint32_t id : second) {
    pass_to(id);
    if (id + passed >= size) return out;
    out.push_back(id + passed);
  }
  out.insert(out.end(), first.begin() + passed, first.end());
  return out;
}

namespace {

// Brings a handle up to date.
void follow(std::shared_ptr<Home>& home, uint32_t& id, uint32_t Offsets::*offset,
            std::vector<uint32_t> Cut::*removed) {
  while (home->forward) {
    if (id != kNone) {
      id = home->cut ? Cut::moved((*home->cut).*removed, id) : id + home->offsets.*offset;
    }
    std::shared_ptr<Home> next = home->forward;
    home = std::move(next);
  }
}

[[noreturn]] void raise_removed(std::string_view what) {
  core::Error error = core::fail(ErrorKind::kKey, Code::kForeign,
                                 "this {} is no more: an edit removed it from its model", what);
  error.hint = "look it up again: model[\"path\"] or model.get_submodel(\"path\")";
  raise(std::move(error));
}

}  // namespace

bool Access::is_removed(const Model& model) {
  follow(model.home_, model.node_, &Offsets::nodes, &Cut::nodes);
  return model.node_ == kNone;
}

bool Access::is_removed(const WireState& state) {
  if (state.type != WireState::Type::kAttached) return false;
  follow(state.home, state.conn, &Offsets::conns, &Cut::conns);
  return state.conn == kNone;
}

Access::At Access::at(const Model& model) {
  if (is_removed(model)) raise_removed("submodel");
  return {model.home_, model.node_};
}

Connection Access::connection(std::shared_ptr<Home> home, ConnId conn) {
  auto state = std::make_shared<WireState>();
  state->type = WireState::Type::kAttached;
  state->home = std::move(home);
  state->conn = conn;
  return Connection(std::move(state));
}

std::pair<std::shared_ptr<Home>, ConnId> Access::locate(const WireState& state) {
  if (is_removed(state)) raise_removed("wire");
  return {state.home, state.home->tree->surviving(state.conn)};
}

ConnId resolve(const Access::At& at, const KeyRef& key, const Location& where) {
  if (!key.wire) {
    const ConnId found = at.tree().find(at.node, key.name);
    if (found == kNone) unknown_key(at.tree(), at.node, key.name, where);
    return found;
  }
  const ConnId found = at.tree().visible(resolve_anywhere(at, key, where), at.node);
  if (found == kNone) {
    raise(core::fail(ErrorKind::kKey, Code::kForeign, "connection '{}' is not visible in {}",
                     key.wire->key(), title(at.get())),
          where);
  }
  return found;
}

ConnId resolve_anywhere(const Access::At& at, const KeyRef& key, const Location& where) {
  if (!key.wire) return resolve(at, key, where);
  const WireState& state = *Access::state(*key.wire);
  if (state.type == WireState::Type::kAttached) {
    const auto [home, conn] = Access::locate(state);
    if (home == at.home) return conn;
  }
  if (state.type == WireState::Type::kKey && !state.spec.name.empty()) {
    return resolve(at, KeyRef(state.spec.name), where);
  }
  raise(core::fail(ErrorKind::kKey, Code::kForeign, "connection '{}' does not belong to {}",
                   key.wire->key(), title(at.get())),
        where);
}

// --- pending calls ------------------------------------------------------------------------------

PendingCall::~PendingCall() {
  std::vector<Connections> work;
  work.push_back(std::move(connections));
  while (!work.empty()) {
    Connections level = std::move(work.back());
    work.pop_back();
    for (auto& [key, argument] : level) {
      auto state = Access::state(argument.wire);  // the handle's share and this one
      const bool last = state.use_count() == 2 && state->call && state->call.use_count() == 1;
      if (last) work.push_back(std::move(state->call->connections));
    }
  }
}

// --- Connection ---------------------------------------------------------------------------------

Connection::Connection() : state_(std::make_shared<WireState>()) {}

Connection Connection::key(KeySpec spec, Location location) {
  check_spec(spec, location);
  auto state = std::make_shared<WireState>();
  state->spec = std::move(spec);
  state->where = std::move(location);
  return Connection(std::move(state));
}

bool Connection::attached() const { return state_->type == WireState::Type::kAttached; }
bool Connection::is_removed() const { return Access::is_removed(*state_); }
bool Connection::pending() const { return state_->type == WireState::Type::kPending; }

std::string Connection::key() const {
  if (!attached()) return state_->spec.name;
  const auto [home, conn] = Access::locate(*state_);
  return home->tree->key(conn);
}

bool Connection::is_autogenerated() const {
  if (!attached()) return state_->spec.name.empty();
  const auto [home, conn] = Access::locate(*state_);
  return home->tree->conn(conn).name.empty();
}

bool Connection::is_exposed() const {
  if (!attached()) return false;
  const auto [home, conn] = Access::locate(*state_);
  return home->tree->conn(conn).exposed;
}

std::optional<Model> Connection::model() const {
  if (!attached()) return std::nullopt;
  const auto [home, conn] = Access::locate(*state_);
  return Access::model(home, home->tree->conn(conn).node);
}

const KeySpec& Connection::spec() const { return state_->spec; }

void Connection::set_spec(KeySpec spec) {
  MITHRIL_CHECK(state_->type == WireState::Type::kKey,
                "facts of an attached wire are set by its model");
  check_spec(spec, state_->where);
  state_->spec = std::move(spec);
}

bool Connection::same_wire(const Connection& other) const {
  if (state_ == other.state_) return true;
  if (!attached() || !other.attached() || is_removed() || other.is_removed()) return false;
  const auto [home, conn] = Access::locate(*state_);
  const auto [other_home, other_conn] = Access::locate(*other.state_);
  if (home != other_home) return false;
  const ModelTree& tree = *home->tree;
  return tree.root(tree.conn(conn).edge) == tree.root(tree.conn(other_conn).edge);
}

// --- Argument -----------------------------------------------------------------------------------

Argument Argument::named(std::string name) {
  Argument out;
  out.kind = Kind::kName;
  out.name = std::move(name);
  return out;
}

Argument Argument::of(Connection wire) {
  Argument out;
  out.kind = Kind::kWire;
  out.wire = std::move(wire);
  return out;
}

Argument Argument::of(HostValue value) {
  Argument out;
  out.kind = Kind::kValue;
  out.value = std::move(value);
  return out;
}

Argument Argument::sequence(std::vector<Argument> items, bool is_list) {
  Argument out;
  out.kind = is_list ? Kind::kList : Kind::kTuple;
  out.items = std::move(items);
  return out;
}

}  // namespace mithril::model
