// Editing: what a user asks for, checked, and made as a draft that is adopted or thrown away.
#include "model/edit/edit.h"

#include <algorithm>
#include <unordered_map>

#include "model/edit/extend.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

namespace {

// Edits of structure need an outermost model that may still grow.
void refuse_frozen(const Access::At& at, std::string_view what, const Location& where) {
  const Node& top = at.tree().node(at.tree().outermost(at.node));
  if (top.claimed) {
    refuse(ErrorKind::kFrozen, Code::kModelFrozen,
           fmt::format("{}: {} is part of an expression that no model has taken in yet", what,
                       title(top)),
           where);
  }
  if (!top.frozen) return;
  refuse(ErrorKind::kFrozen, Code::kModelFrozen, fmt::format("{}: {} is frozen", what, title(top)),
         where, top.op != nullptr ? "an op has nothing in it to edit" : "call unfreeze() first");
}

// The node of a model below `at`.
NodeId below(const Access::At& at, const Model& model, std::string_view what,
             const Location& where) {
  const Access::At other = Access::at(model);
  if (other.home == at.home && other.node == at.node) {
    refuse(
        ErrorKind::kValue, Code::kValueArgument,
        fmt::format("{}: requires a submodel of {}, got the model itself", what, title(at.get())),
        where);
  }
  NodeId above = other.home == at.home ? at.tree().node(other.node).parent : kNone;
  while (above != kNone && above != at.node) above = at.tree().node(above).parent;
  if (above == kNone) {
    refuse(ErrorKind::kKey, Code::kForeign,
           fmt::format("{}: {} is not in {}", what, title(other.get()), title(at.get())), where);
  }
  return other.node;
}

}  // namespace

// --- copies -------------------------------------------------------------------------------------

namespace {

/// The whole tree with all that was said, id by id. A part of a tree needs a draft: its keys are
/// those of an outermost model then.
Model copy_whole(const Access::At& at) {
  const auto home = std::make_shared<Home>();
  home->tree = std::make_unique<ModelTree>();
  home->tree->append(at.tree());
  return Access::model(home, at.node);
}

}  // namespace

Model Model::clone(std::optional<std::string> name) const {
  const Access::At at = Access::at(*this);
  const bool is_part = at.get().parent != kNone || at.get().claimed;
  Model copy = is_part ? Draft(at, at.node, {}).model(at.node) : copy_whole(at);
  const Access::At to = Access::at(copy);
  for (Node& node : to.tree().nodes) node.tag = 0;
  Node& root = to.tree().node(to.node);
  root.claimed = false;
  if (name) root.name = std::move(*name);
  return copy;
}

void Model::unfreeze(Location where) {
  const Access::At at = Access::at(*this);
  const Node& node = at.get();
  if (node.parent != kNone || node.claimed) {
    refuse(ErrorKind::kFrozen, Code::kModelFrozen,
           fmt::format("unfreeze: {} is a submodel", title(node)), where,
           "unfreeze a clone of it, and put that in by replace");
  }
  if (node.op != nullptr) {
    refuse(ErrorKind::kFrozen, Code::kModelFrozen,
           fmt::format("unfreeze: {} is one op and cannot be extended", title(node)), where);
  }
  if (!node.frozen) return;
  ModelTree& tree = at.tree();
  Transaction transaction(tree);
  tree.save_node(at.node);
  tree.node(at.node).frozen = false;
  for (const ConnId c : node.outputs) {
    if (tree.conn(c).by_freeze) tree.edit(c).exposed = false;
  }
  std::erase_if(tree.node(at.node).outputs, [&](ConnId c) { return !tree.conn(c).exposed; });
  for (const ConnId c : node.conns) {
    if (tree.conn(c).by_freeze) tree.edit(c).by_freeze = false;
  }
  transaction.commit();
}

// --- remove -------------------------------------------------------------------------------------

void Model::remove(const std::vector<Model>& submodels, Location where) {
  const Access::At at = Access::at(*this);
  refuse_frozen(at, "remove", where);
  Deletion deletion;
  for (const Model& model : submodels) {
    deletion.nodes.push_back(below(at, model, "remove", where));
  }
  if (deletion.nodes.empty()) return;
  Draft draft(at, at.tree().outermost(at.node), deletion);
  draft.adopt();
}

// --- replace ------------------------------------------------------------------------------------

namespace {

/// Tells which key of the new model takes the wire of which key of the old one.
class Matching {
 public:
  using Keys = std::vector<std::pair<std::string, std::string>>;

  Matching(Access::At old, const Access::At& made, const Keys& keys, const Location& where)
      : old_(std::move(old)), new_(made), where_(where) {
    read(keys);
    for (const ConnId key : old_.tree().externals(old_.node)) by_name(key);
    by_place(true);
    by_place(false);
    for (const ConnId key : old_.tree().externals(old_.node)) {
      if (pairs_.count(key) == 0) drop(key);
    }
  }

  /// Old key -> new key, as ids of their trees.
  const std::vector<std::pair<ConnId, ConnId>>& ordered() const { return ordered_; }

 private:
  ConnId wire(ConnId key) const { return old_.tree().surviving(old_.tree().conn(key).outer); }

  bool is_open(ConnId key) const {
    const KeyKind kind = new_.tree().kind(key);
    return kind == KeyKind::kInput || kind == KeyKind::kOutput ||
           new_.tree().conn(key).cout != kNone;
  }

  void read(const Keys& keys) {
    for (const auto& [from, to] : keys) {
      const ConnId key = old_.tree().find(old_.node, from);
      if (key == kNone || wire(key) == kNone) {
        unknown_key(old_.tree(), old_.node, from, where_);
      }
      if (to.empty()) {
        left_out_.insert(key);
        continue;
      }
      const ConnId other = new_.tree().find(new_.node, to);
      if (other == kNone || !is_open(other)) unknown_key(new_.tree(), new_.node, to, where_);
      if (old_.tree().conn(key).produced() != new_.tree().conn(other).produced()) {
        refuse(ErrorKind::kKey, Code::kValueArgument,
               fmt::format("replace: '{}' of {} and '{}' of {} are not both inputs or both outputs",
                           from, title(old_.get()), to, title(new_.get())),
               where_);
      }
      if (taken_.count(other) != 0) {
        refuse(ErrorKind::kKey, Code::kValueArgument,
               fmt::format("replace: '{}' of {} is given to two keys", to, title(new_.get())),
               where_);
      }
      pair(key, other);
    }
  }

  void pair(ConnId key, ConnId other) {
    pairs_[key] = other;
    taken_.insert(other);
    ordered_.emplace_back(key, other);
  }

  void by_name(ConnId key) {
    if (pairs_.count(key) != 0 || left_out_.count(key) != 0) return;
    const Conn& c = old_.tree().conn(key);
    if (c.name.empty()) return;
    const ConnId other = new_.tree().find(new_.node, c.name);
    if (other == kNone || !is_open(other) || taken_.count(other) != 0) return;
    if (new_.tree().conn(other).produced() == c.produced()) pair(key, other);
  }

  ConnId only_open(const Access::At& at, bool inputs, bool is_old) const {
    ConnId found = kNone;
    for (const auto& [sequence, c] : inputs ? at.get().cins : at.get().couts) {
      const bool done = is_old ? pairs_.count(c) + left_out_.count(c) != 0 : taken_.count(c) != 0;
      if (done) continue;
      if (found != kNone) return kNone;
      found = c;
    }
    return found;
  }

  void by_place(bool inputs) {
    const ConnId key = only_open(old_, inputs, true), other = only_open(new_, inputs, false);
    if (key != kNone && other != kNone && wire(key) != kNone) pair(key, other);
  }

  // A wire that nobody would miss may go; of others the user says so.
  void drop(ConnId key) const {
    const ConnId w = wire(key);
    if (w == kNone || left_out_.count(key) != 0) return;
    const Conn& c = old_.tree().conn(w);
    const bool is_output = old_.tree().conn(key).produced();
    const bool missed = is_output ? c.consumers > 0 || c.exposed || !c.name.empty()
                                  : c.produced() || !c.name.empty();
    if (!missed) return;
    const std::string name = old_.tree().key(key);
    refuse(ErrorKind::kKey, Code::kKeyUnknown,
           fmt::format("replace: {} has no {} '{}' for the wire '{}'", title(new_.get()),
                       is_output ? "output" : "input", name, old_.tree().key(w)),
           where_,
           fmt::format("say which key takes it, keys={{\"{0}\": ...}}, or leave it out, "
                       "keys={{\"{0}\": None}}",
                       name));
  }

  const Access::At old_;
  const Access::At& new_;
  const Location& where_;
  std::unordered_map<ConnId, ConnId> pairs_;
  std::vector<std::pair<ConnId, ConnId>> ordered_;
  std::unordered_set<ConnId> left_out_, taken_;
};

// Values of a key that was valued before it met the wire make the wire a latent input.
void settle_latent(ModelTree& tree, ConnId wire, bool key_is_valued) {
  const Conn& c = tree.conn(wire);
  if (c.produced() || !c.name.empty() || c.consumers > 0) return;
  const auto said = [&](const Entry& e) {
    return e.type == Entry::Type::kValue && tree.surviving(e.conn) == wire;
  };
  if (std::any_of(tree.log.begin(), tree.log.end(), said)) return;
  tree.edit(wire).latent = key_is_valued;
}

// Canonical wires of the old key are those of the new one, or none.
void settle_canonical(ModelTree& tree, ConnId wire) {
  const Conn& c = tree.conn(wire);
  const NodeId parent = c.node;
  if (c.produced()) {
    if (tree.conn(c.producer).cout == kNone && !c.exposed) tree.remove_cout(wire);
    return;
  }
  if (c.cin == kNone) return;
  for (const NodeId child : tree.node(parent).children) {
    for (const auto& [sequence, key] : tree.node(child).cins) {
      if (tree.surviving(tree.conn(key).outer) == wire) return;
    }
  }
  tree.remove_cin(wire);
}

// The last child takes the place and, if it has no name of its own, the name of the one before.
void take_place(ModelTree& tree, NodeId parent, size_t place, const std::string& name,
                const Location& where) {
  tree.save_node(parent);
  Node& node = tree.node(parent);
  const NodeId child = node.children.back();
  std::rotate(node.children.begin() + static_cast<ptrdiff_t>(place), node.children.end() - 1,
              node.children.end());
  if (name.empty() || !tree.node(child).name.empty()) return;
  if (node.child_names.count(name) != 0) {
    refuse(ErrorKind::kName, Code::kNameTaken,
           fmt::format("a submodel named '{}' is in the model already", name), where);
  }
  tree.save_node(child);
  tree.node(child).name = name;
  tree.node(parent).child_names.emplace(name, child);
}

// The wires that wait for the keys of the new model.
Connections wires_for(const Draft& draft, const ModelTree& old, const ModelTree& made,
                      const Matching& matching) {
  Connections out;
  for (const auto& [key, other] : matching.ordered()) {
    const ConnId wire = old.surviving(old.conn(key).outer);
    const bool valued = made.is_valued(other) && !old.conn(key).produced();
    settle_latent(draft.tree(), draft.conn(wire), valued);
    out.emplace_back(made.key(other), Argument::of(draft.wire(wire)));
  }
  return out;
}

void settle_place(Extension& extension, const Connections& connections, const ModelTree& tree,
                  NodeId old, const Location& where) {
  ModelTree& grown = extension.tree();
  for (const auto& [key, argument] : connections) {
    settle_canonical(grown, extension.wire_of(argument.wire));
  }
  const auto& siblings = tree.node(tree.node(old).parent).children;
  const auto place = std::find(siblings.begin(), siblings.end(), old) - siblings.begin();
  take_place(grown, extension.parent(), static_cast<size_t>(place), tree.node(old).name, where);
  for (NodeId n = extension.parent(); grown.node(n).parent != kNone; n = grown.node(n).parent) {
    lift_keys(grown, n);
  }
}

void refuse_replacement(const Access::At& made, const Location& where) {
  if (made.get().parent == kNone && !made.get().claimed) return;
  refuse(ErrorKind::kFrozen, Code::kModelFrozen,
         fmt::format("replace: {} is a submodel already", title(made.get())), where,
         "give a clone of it");
}

}  // namespace

void Model::replace(const Model& submodel, const Model& replacement,
                    const std::vector<std::pair<std::string, std::string>>& keys, Location where) {
  const Access::At at = Access::at(*this), made = Access::at(replacement);
  refuse_frozen(at, "replace", where);
  const NodeId old = below(at, submodel, "replace", where);
  refuse_replacement(made, where);
  if (made.home == at.home) {
    refuse(ErrorKind::kValue, Code::kValueArgument,
           fmt::format("replace: {} cannot become a part of itself", title(made.get())), where);
  }
  const ModelTree& tree = at.tree();
  const Matching matching({at.home, old}, made, keys, where);
  Deletion deletion{{old}, {}, {}};
  for (const auto& [key, other] : matching.ordered()) {
    deletion.waiting.push_back(tree.surviving(tree.conn(key).outer));
  }
  Draft draft(at, tree.outermost(at.node), deletion);
  const Connections connections = wires_for(draft, tree, made.tree(), matching);
  Extension extension(draft.model(tree.node(old).parent), {replacement}, where);
  extension.place(replacement, connections, Chain::kPlain, false, where);
  settle_place(extension, connections, tree, old, where);
  extension.finish();
  draft.adopt();
}

// --- extract ------------------------------------------------------------------------------------

namespace {

class Extraction {
 public:
  using Named = std::vector<std::pair<std::string, KeyRef>>;

  Extraction(const Access::At& at, const Location& where) : at_(at), where_(where) {}

  Model run(const Named& inputs, const Named& outputs, std::string name) {
    for (const auto& [key, wire] : inputs) {
      inputs_.emplace_back(key, resolve(at_, wire, where_));
      boundary_.insert(inputs_.back().second);
    }
    for (const auto& [key, wire] : outputs) {
      outputs_.emplace_back(key, resolve(at_, wire, where_));
      check_output(outputs_.back().second);
    }
    find_needed();
    Deletion deletion;
    for (const NodeId child : at_.get().children) {
      if (needed_.count(child) == 0) deletion.nodes.push_back(child);
    }
    const Draft draft(at_, at_.node, deletion);
    check_inputs(draft);
    finish(draft, std::move(name));
    return draft.model(at_.node);
  }

 private:
  const Conn& conn(ConnId id) const { return at_.tree().conn(id); }

  void check_output(ConnId wire) const {
    const bool cut = boundary_.count(wire) != 0;
    if (!cut && conn(wire).produced()) return;
    refuse(ErrorKind::kValue, Code::kValueArgument,
           fmt::format("extract: '{}' is an input{} and no output", at_.tree().key(wire),
                       cut ? " of what is asked for" : " of the model"),
           where_);
  }

  void find_needed() {
    std::vector<ConnId> stack;
    for (const auto& [name, wire] : outputs_) stack.push_back(wire);
    while (!stack.empty()) {
      const ConnId wire = stack.back();
      stack.pop_back();
      if (boundary_.count(wire) != 0 || !conn(wire).produced()) continue;
      const NodeId writer = conn(conn(wire).producer).node;
      if (!needed_.insert(writer).second) continue;
      for (const ConnId key : at_.tree().node(writer).conns) {
        const ConnId outer = at_.tree().surviving(conn(key).outer);
        if (outer != kNone && !conn(key).produced()) stack.push_back(outer);
      }
    }
  }

  void check_inputs(const Draft& draft) const {
    for (const auto& [name, wire] : inputs_) {
      const ConnId kept = draft.conn(wire);
      if (kept != kNone && !draft.tree().conn(kept).produced()) continue;
      const std::string key = at_.tree().key(wire);
      refuse(
          ErrorKind::kValue, Code::kValueArgument,
          kept == kNone
              ? fmt::format("extract: the outputs do not depend on '{}'", key)
              : fmt::format("extract: '{}' is computed by a submodel that the outputs need", key),
          where_);
    }
  }

  void finish(const Draft& draft, std::string name) const {
    ModelTree& tree = draft.tree();
    for (Node& node : tree.nodes) node.tag = 0;
    const NodeId root = draft.node(at_.node);
    Node& node = tree.node(root);
    node.name = std::move(name);
    node.frozen = node.claimed = false;
    for (ConnId c : std::vector<ConnId>(node.outputs)) {
      tree.conns[c].exposed = tree.conns[c].by_freeze = false;
    }
    node.outputs.clear();
    while (node.couts.size() != 0) tree.remove_cout(node.couts.begin()->second);
    for (const auto& [key, wire] : inputs_) rename(tree, draft.conn(wire), key);
    for (const auto& [key, wire] : outputs_) {
      rename(tree, draft.conn(wire), key);
      tree.expose(draft.conn(wire));
      tree.add_cout(draft.conn(wire));
    }
  }

  void rename(ModelTree& tree, ConnId wire, const std::string& name) const {
    if (name.empty() || tree.conn(wire).name == name) return;
    check_name(name, where_);
    if (tree.find(tree.conn(wire).node, name) != kNone) {
      refuse(ErrorKind::kName, Code::kNameTaken,
             fmt::format("extract: the name '{}' is taken by another wire", name), where_);
    }
    if (name == "input" && tree.conn(wire).produced()) {
      refuse(ErrorKind::kName, Code::kNameReserved,
             "the name 'input' is reserved for inputs and cannot be given to an output", where_);
    }
    tree.set_name(wire, name);
  }

  const Access::At& at_;
  const Location& where_;
  std::vector<std::pair<std::string, ConnId>> inputs_, outputs_;
  std::unordered_set<ConnId> boundary_;
  std::unordered_set<NodeId> needed_;
};

}  // namespace

Model Model::extract(const std::vector<std::pair<std::string, KeyRef>>& inputs,
                     const std::vector<std::pair<std::string, KeyRef>>& outputs, std::string name,
                     Location where) const {
  const Access::At at = Access::at(*this);
  return Extraction(at, where).run(inputs, outputs, std::move(name));
}

// --- what was said ------------------------------------------------------------------------------

void Model::clear(const std::vector<KeyRef>& keys, Facets facets, Location where) {
  const Access::At at = Access::at(*this);
  Deletion deletion;
  for (const KeyRef& key : keys) {
    deletion.said.emplace_back(resolve_anywhere(at, key, where), facets);
  }
  if (deletion.said.empty()) return;
  Draft draft(at, at.tree().outermost(at.node), deletion);
  draft.adopt();
}

void Model::change(const KeyRef& key, const KeySpec& spec, Location where) {
  const Access::At at = Access::at(*this);
  check_spec(spec, where);
  const ConnId conn = resolve_anywhere(at, key, where);
  Facets facets = 0;
  if (spec.value) facets |= kValueFacet;
  if (spec.shape) facets |= kShapeFacet;
  if (spec.type) facets |= kTypeFacet;
  if (spec.differentiable) facets |= kDifferentiabilityFacet;
  Draft draft(at, at.tree().outermost(at.node), {{}, {}, {{conn, facets}}});
  Model model = draft.model(at.node);
  const KeyRef wire = draft.wire(conn);
  if (spec.type) model.set_types({{wire, *spec.type}}, where);
  if (spec.shape) model.set_shapes({{wire, *spec.shape}}, where);
  if (spec.value) model.set_values({{wire, *spec.value}}, spec.initial, where);
  if (spec.differentiable) model.set_differentiability({{wire, *spec.differentiable}}, where);
  draft.adopt();
}

}  // namespace mithril::model
