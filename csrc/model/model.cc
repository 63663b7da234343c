// Models: making them, composing them, looking things up.
#include "model/model.h"

#include <algorithm>

#include "model/edit/extend.h"
#include "model/tree/tree.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

// --- errors -------------------------------------------------------------------------------------

void raise(core::Error error, const Location& where) {
  if (!error.location.known()) {
    std::string path = std::move(error.location.path);
    error.location = where;
    if (!path.empty()) error.location.path = std::move(path);
  }
  throw core::ErrorException(std::move(error));
}

void refuse(core::ErrorKind kind, core::Code code, std::string message, const Location& where,
            std::string hint) {
  core::Error error = core::fail(kind, code, "{}", message);
  error.hint = std::move(hint);
  raise(std::move(error), where);
}

void check(core::Status status, const Location& where, const std::string& path) {
  if (status.ok()) return;
  core::Error error = status.take();
  if (error.location.path.empty()) error.location.path = path;
  raise(std::move(error), where);
}

std::string title(const Node& node) {
  return node.name.empty() ? node.class_name : fmt::format("{} '{}'", node.class_name, node.name);
}

void unknown_key(const ModelTree& tree, NodeId node, std::string_view key, const Location& where,
                 ErrorKind kind) {
  raise(core::fail(kind, Code::kKeyUnknown, "{} has no key '{}'{}", title(tree.node(node)), key,
                   core::suggestion_or_keys(key, tree.key_names(node))),
        where);
}

void check_name(const std::string& name, const Location& where) {
  if (!name.empty() && name[0] != '$') return;
  if (name.empty()) {
    raise(core::fail(ErrorKind::kName, Code::kNameReserved, "a key cannot have the empty name"),
          where);
  }
  raise(core::fail(ErrorKind::kName, Code::kNameReserved,
                   "'{}' cannot be the name of a key: names beginning with '$' are generated ones",
                   name),
        where);
}

// --- making models ------------------------------------------------------------------------------

namespace {
std::shared_ptr<Home> new_home() {
  auto home = std::make_shared<Home>();
  home->tree = std::make_unique<ModelTree>();
  return home;
}
}  // namespace

Model::Model(std::string name, std::string class_name) : home_(new_home()) {
  Node& node = home_->tree->node(home_->tree->new_node());
  node.name = std::move(name);
  node.class_name = std::move(class_name);
}

namespace {

// "" leaves the name as it is.
void name_wire(ModelTree& tree, ConnId wire, const std::string& name, const Location& where) {
  if (name.empty() || tree.conn(wire).name == name) return;
  check_name(name, where);
  if (tree.find(tree.conn(wire).node, name) != kNone) {
    raise(core::fail(ErrorKind::kName, Code::kNameTaken, "the key '{}' exists already", name),
          where);
  }
  tree.set_name(wire, name);
}

void refuse_second_name(const ModelTree& tree, ConnId wire, const std::string& name,
                        const Location& where) {
  const Conn& c = tree.conn(wire);
  if (c.name.empty() || (c.produced() && !c.exposed)) return;
  core::Error error =
      core::fail(ErrorKind::kName, Code::kNameTaken, "create: '{}' is {} and cannot be called '{}'",
                 c.name, c.produced() ? "an output already" : "an input", name);
  error.hint = "give one of them through Buffer()";
  raise(std::move(error), where);
}
}  // namespace

Model Model::create(const std::vector<Connection>& outputs,
                    const std::vector<std::pair<std::string, Connection>>& named, std::string name,
                    Location where, std::string class_name) {
  Connections roots;
  for (const Connection& c : outputs) roots.emplace_back("", Argument::of(c));
  for (const auto& [key, c] : named) roots.emplace_back(key, Argument::of(c));
  const auto calls = needed_calls(roots);
  std::vector<Model> children;
  for (const auto& call : calls) children.push_back(call->child);
  Model model(std::move(name), std::move(class_name));
  Extension extension(model, children, where);
  for (const auto& call : calls) extension.place_call(call);
  ModelTree& tree = extension.tree();
  const NodeId node = extension.parent();
  while (tree.node(node).couts.size() != 0) {
    tree.remove_cout(tree.node(node).couts.begin()->second);
  }
  for (const auto& [key, argument] : roots) {
    const ConnId wire = extension.created_wire(argument.wire);
    if (!key.empty() && tree.conn(wire).name != key) refuse_second_name(tree, wire, key, where);
    name_wire(tree, wire, key, where);
    if (!tree.conn(wire).produced()) continue;
    if (!key.empty()) tree.expose(wire);
    tree.add_cout(wire);
  }
  tree.freeze(node);
  extension.finish();
  return model;
}

void Model::freeze() {
  const Access::At at = Access::at(*this);
  Transaction transaction(at.tree());
  at.tree().freeze(at.node);
  transaction.commit();
}

// --- composing ----------------------------------------------------------------------------------

namespace {

void refuse_child(const Access::At& child, const Location& where) {
  const Node& node = child.get();
  if (node.parent == kNone && !node.claimed) return;
  core::Error error = core::fail(ErrorKind::kFrozen, Code::kModelFrozen,
                                 "{} is a submodel already and can be used once only", title(node));
  if (node.parent != kNone && node.where.known()) {
    error.facts.push_back({fmt::format("{} is put into a model", title(node)), node.where, {}, 0});
    error.facts.push_back({"and again", where, {}, 0});
  }
  error.hint = fmt::format("make a second {} for the second place", node.class_name);
  raise(std::move(error), where);
}

void refuse_parent(const Access::At& parent, const Location& where) {
  const Node& node = parent.get();
  if (node.parent != kNone || node.claimed) {
    core::Error error = core::fail(ErrorKind::kFrozen, Code::kModelFrozen,
                                   "{} is a submodel and cannot be extended", title(node));
    error.hint = "extend it before it is put into another model";
    raise(std::move(error), where);
  }
  if (!node.frozen) return;
  const ErrorKind kind = node.op == nullptr ? ErrorKind::kFrozen : ErrorKind::kSealed;
  core::Error error =
      core::fail(kind, Code::kModelFrozen, "{} is frozen and cannot be extended", title(node));
  error.hint = "put it into a new model: model = ml.Model(); model |= it";
  raise(std::move(error), where);
}

}  // namespace

void Model::extend(const Model& child, const Connections& connections, Chain chain,
                   Location where) {
  const Access::At own = Access::at(*this), other = Access::at(child);
  if (own.home == other.home && own.node == other.node) {
    raise(core::fail(ErrorKind::kName, Code::kModelFrozen, "{} cannot be extended with itself",
                     title(own.get())),
          where);
  }
  refuse_child(other, where);
  refuse_parent(own, where);
  const Connections arguments = normalize(connections, where);
  const auto calls = needed_calls(arguments);
  std::vector<Model> children;
  for (const auto& call : calls) children.push_back(call->child);
  children.push_back(child);
  Extension extension(*this, children, where);
  for (const auto& call : calls) extension.place_call(call);
  extension.place(child, arguments, chain, false, where);
  extension.finish();
}

void Model::check_connections(const Model& child, const Connections& connections, Location where) {
  const Access::At at = Access::at(child);
  for (const auto& [key, argument] : connections) {
    const ConnId conn = at.tree().find(at.node, key);
    const bool reachable =
        conn != kNone &&
        (at.tree().kind(conn) == KeyKind::kInput || at.tree().kind(conn) == KeyKind::kOutput ||
         at.tree().conn(conn).cin != kNone || at.tree().conn(conn).cout != kNone);
    if (!reachable) unknown_key(at.tree(), at.node, key, where, ErrorKind::kKeyword);
  }
}

namespace {

// The model that an operand belongs to, if that model may still grow.
std::optional<Access::At> open_model(const Connection& wire) {
  const WireState* state = Access::state(wire).get();
  if (state->type != WireState::Type::kAttached) return std::nullopt;
  const auto [home, conn] = Access::locate(*state);
  const NodeId top = home->tree->outermost(home->tree->conn(conn).node);
  if (home->tree->node(top).frozen) return std::nullopt;
  return Access::At{home, top};
}

void refuse_two_models(const Connections& connections, const Location& where) {
  std::optional<Access::At> first;
  for (const auto& [key, argument] : connections) {
    if (argument.kind != Argument::Kind::kWire) continue;
    const auto at = open_model(argument.wire);
    if (!at) continue;
    if (!first) first = at;
    if (first->home == at->home) continue;
    raise(core::fail(ErrorKind::kValue, Code::kForeign, "operands belong to two models, {} and {}",
                     title(first->get()), title(at->get())),
          where);
  }
}

}  // namespace

std::vector<Connection> Model::call(const Model& child, const Connections& connections,
                                    Location where, Claim claim) {
  const Access::At at = Access::at(child);
  refuse_child(at, where);
  check_connections(child, connections, where);
  Connections arguments = normalize(connections, where);
  refuse_two_models(arguments, where);
  Transaction transaction(at.tree());
  auto call = std::make_shared<PendingCall>(child, std::move(arguments), where);
  call->was_frozen = at.get().frozen;
  call->outputs_before = at.get().outputs.size();
  at.tree().save_node(at.node);
  at.tree().freeze(at.node);
  at.get().claimed = true;
  std::vector<Connection> out;
  for (size_t i = 0; i < at.get().outputs.size(); ++i) {
    auto state = std::make_shared<WireState>();
    state->type = WireState::Type::kPending;
    state->where = where;
    state->call = call;
    state->result = i;
    call->results.push_back(state);
    out.push_back(Access::connection(std::move(state)));
  }
  if (claim == Claim::kNow) transaction.commit();
  return out;
}

void Model::withdraw(const std::vector<Connection>& results) {
  if (results.empty() || !results.front().pending()) return;
  const auto call = Access::state(results.front())->call;
  const Access::At at = Access::at(call->child);
  ModelTree& tree = at.tree();
  Transaction transaction(tree);
  tree.save_node(at.node);
  Node& node = at.get();
  while (node.outputs.size() > call->outputs_before) {
    tree.edit(node.outputs.back()).exposed = false;
    node.outputs.pop_back();
  }
  node.frozen = call->was_frozen;
  node.claimed = false;
  transaction.commit();
  for (const Connection& result : results) {
    WireState& state = *Access::state(result);
    state.type = WireState::Type::kKey;
    state.call.reset();
  }
}

Connection Model::call(const ir::OpDef& op, const std::vector<Argument>& operands, LeafSpec spec,
                       Location where) {
  const Model child = leaf(op, std::move(spec), where);
  const std::vector<std::string> keys = child.connect_order();
  if (operands.size() > keys.size()) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument, "{} takes {} operands, got {}",
                     op.name, keys.size(), operands.size()),
          where);
  }
  Connections connections;
  for (size_t i = 0; i < operands.size(); ++i) connections.emplace_back(keys[i], operands[i]);
  return call(child, connections, where).front();
}

void Model::take(const std::vector<std::pair<std::string, Connection>>& results, Location where) {
  refuse_parent(Access::at(*this), where);
  Connections roots;
  for (const auto& [key, wire] : results) roots.emplace_back(key, Argument::of(wire));
  const auto calls = needed_calls(roots);
  std::vector<Model> children;
  for (const auto& call : calls) children.push_back(call->child);
  Extension extension(*this, children, where);
  for (const auto& call : calls) extension.place_call(call);
  for (const auto& [key, argument] : roots) {
    const ConnId wire = extension.wire_of(argument.wire);
    name_wire(extension.tree(), wire, key, where);
    if (!key.empty()) extension.tree().expose(wire);
  }
  extension.finish();
}

// --- look-up ------------------------------------------------------------------------------------

std::optional<Connection> Model::find_connection(std::string_view key) const {
  const Access::At at = Access::at(*this);
  const ConnId conn = at.tree().find(at.node, key);
  if (conn == kNone) return std::nullopt;
  return Access::connection(at.home, conn);
}

Connection Model::connection(std::string_view key) const {
  auto found = find_connection(key);
  if (!found) {
    const Access::At at = Access::at(*this);
    unknown_key(at.tree(), at.node, key, {});
  }
  return *found;
}

std::optional<Connection> Model::find_connection(const Connection& wire) const {
  if (!wire.attached()) return std::nullopt;
  const Access::At at = Access::at(*this);
  const auto [home, conn] = Access::locate(*Access::state(wire));
  if (home != at.home) return std::nullopt;
  const ConnId found = at.tree().visible(conn, at.node);
  if (found == kNone) return std::nullopt;
  return Access::connection(at.home, found);
}

namespace {
std::vector<std::string> keys_of_kind(const Access::At& at, std::initializer_list<KeyKind> kinds) {
  std::vector<std::string> out;
  for (const ConnId c : at.get().conns) {
    if (at.tree().conn(c).merged != kNone) continue;
    const bool wanted = std::find(kinds.begin(), kinds.end(), at.tree().kind(c)) != kinds.end();
    if (wanted) out.push_back(at.tree().key(c));
  }
  return out;
}
}  // namespace

std::vector<std::string> Model::input_keys() const {
  return keys_of_kind(Access::at(*this), {KeyKind::kInput});
}

std::vector<std::string> Model::output_keys() const {
  const Access::At at = Access::at(*this);
  std::vector<std::string> out;
  for (const ConnId c : at.get().outputs) out.push_back(at.tree().key(c));
  return out;
}

std::vector<std::string> Model::external_keys() const {
  std::vector<std::string> out = input_keys();
  for (std::string& key : output_keys()) out.push_back(std::move(key));
  return out;
}

std::vector<std::string> Model::internal_keys() const {
  return keys_of_kind(Access::at(*this), {KeyKind::kInternal});
}

std::vector<std::string> Model::latent_input_keys() const {
  return keys_of_kind(Access::at(*this), {KeyKind::kLatentInput});
}

std::vector<std::string> Model::latent_output_keys() const {
  return keys_of_kind(Access::at(*this), {KeyKind::kLatentOutput});
}

std::vector<std::string> Model::all_keys() const {
  return keys_of_kind(Access::at(*this), {KeyKind::kInput, KeyKind::kLatentInput, KeyKind::kOutput,
                                          KeyKind::kLatentOutput, KeyKind::kInternal});
}

std::vector<std::string> Model::connect_order() const {
  const Access::At at = Access::at(*this);
  const Node& node = at.get();
  std::vector<std::string> out;
  if (node.op == nullptr) {
    std::vector<std::string> parameters;
    for (const ConnId c : node.conns) {
      if (at.tree().conn(c).merged != kNone || at.tree().kind(c) != KeyKind::kInput) continue;
      if (at.tree().is_valued(c)) continue;
      const Edge& edge = at.tree().edge_of(c);
      const bool trained = edge.differentiable.value_or(edge.trainable);
      (trained ? parameters : out).push_back(at.tree().key(c));
    }
    out.insert(out.end(), parameters.begin(), parameters.end());
    return out;
  }
  const auto add = [&](const std::string& key) {
    const ConnId c = at.tree().find(at.node, key);
    if (c == kNone || at.tree().conn(c).produced()) return;
    if (std::find(out.begin(), out.end(), key) == out.end()) out.push_back(key);
  };
  for (const std::string& key : node.op->connect_order) add(key);
  for (const ConnId c : node.conns) add(at.tree().conn(c).name);
  return out;
}

KeyKind Model::kind(const KeyRef& key) const {
  const Access::At at = Access::at(*this);
  return at.tree().kind(resolve(at, key, {}));
}

std::string Model::key_origin(const KeyRef& key) const {
  const Access::At at = Access::at(*this);
  return at.tree().conn(resolve(at, key, {})).origin;
}

std::vector<Connection> Model::cins() const {
  const Access::At at = Access::at(*this);
  std::vector<Connection> out;
  for (const auto& [sequence, c] : at.get().cins) out.push_back(Access::connection(at.home, c));
  return out;
}

std::vector<Connection> Model::couts() const {
  const Access::At at = Access::at(*this);
  std::vector<Connection> out;
  for (const auto& [sequence, c] : at.get().couts) out.push_back(Access::connection(at.home, c));
  return out;
}

namespace {
Connection only(const Model& model, std::vector<Connection> set, std::string_view what) {
  if (set.size() == 1) return set.front();
  raise(core::fail(ErrorKind::kKey, Code::kCanonical, "{} has {} canonical {}s, not one",
                   title(Access::at(model).get()), set.size(), what));
}
}  // namespace

Connection Model::cin() const { return only(*this, cins(), "input"); }
Connection Model::cout() const { return only(*this, couts(), "output"); }

// --- the tree -----------------------------------------------------------------------------------

const std::string& Model::name() const { return Access::at(*this).get().name; }
const std::string& Model::class_name() const { return Access::at(*this).get().class_name; }
bool Model::is_leaf() const { return op() != nullptr; }
bool Model::is_frozen() const { return Access::at(*this).get().frozen; }
const ir::OpDef* Model::op() const { return Access::at(*this).get().op; }

bool Model::is_submodel() const {
  const Access::At at = Access::at(*this);
  return at.get().parent != kNone || at.get().claimed;
}

std::optional<Model> Model::parent() const {
  const Access::At at = Access::at(*this);
  if (at.get().parent == kNone) return std::nullopt;
  return Model(at.home, at.get().parent);
}

Model Model::outermost() const {
  const Access::At at = Access::at(*this);
  return Model(at.home, at.tree().outermost(at.node));
}

std::vector<Model> Model::submodels() const {
  const Access::At at = Access::at(*this);
  std::vector<Model> out;
  for (const NodeId c : at.get().children) out.push_back(Model(at.home, c));
  return out;
}

size_t Model::submodel_count() const { return Access::at(*this).get().children.size(); }

std::vector<Model> Model::topological_submodels() const {
  const Access::At at = Access::at(*this);
  std::vector<Model> out;
  for (const NodeId c : at.tree().topological(at.node)) out.push_back(Model(at.home, c));
  return out;
}

std::vector<std::string> Model::submodel_names() const {
  const Access::At at = Access::at(*this);
  return at.tree().child_names(at.node);
}

std::vector<std::pair<std::string, Connection>> Model::wiring(const Model& submodel) const {
  const Access::At at = Access::at(*this), child = Access::at(submodel);
  std::vector<std::pair<std::string, Connection>> out;
  if (child.home != at.home || child.get().parent != at.node) return out;
  for (const ConnId c : child.get().conns) {
    const ConnId outer = at.tree().surviving(at.tree().conn(c).outer);
    if (outer != kNone) {
      out.emplace_back(at.tree().key(c), Access::connection(at.home, outer));
    }
  }
  return out;
}

std::vector<Model::StateBinding> Model::states() const {
  const Access::At at = Access::at(*this);
  std::vector<StateBinding> out;
  for (const State& state : at.get().states) {
    out.push_back({at.tree().key(at.tree().surviving(state.input)),
                   at.tree().key(at.tree().surviving(state.output)), state.initial});
  }
  return out;
}

bool Model::operator==(const Model& other) const {
  const Access::At at = Access::at(*this), to = Access::at(other);
  return at.home == to.home && at.node == to.node;
}

uint64_t Model::tag() const { return Access::at(*this).get().tag; }
void Model::set_tag(uint64_t tag) { Access::at(*this).get().tag = tag; }
std::string Model::dump() const { return Access::at(*this).tree().dump(); }

}  // namespace mithril::model
