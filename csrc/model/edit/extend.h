// One `|=`, `+=` or `create`, from gathering what it needs to committing it. Internal to model/.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "model/tree/tree.h"

namespace mithril::model {

/// Sequences with connections in them become calls of to_tuple and to_list.
Connections normalize(const Connections& connections, const Location& where);

/// Calls that the arguments need and no model has yet, operands before their users.
std::vector<std::shared_ptr<PendingCall>> needed_calls(const Connections& connections);

/// Puts models into one: appends their trees to the largest of them, wires, infers. Nothing is
/// changed unless finish() returns.
class Extension {
 public:
  Extension(const Model& parent, const std::vector<Model>& children, Location where);
  /// `latent`: constants of expressions are no inputs of the model.
  void place(const Model& child, const Connections& connections, Chain chain, bool latent,
             const Location& where);
  void place_call(const std::shared_ptr<PendingCall>& call);
  /// The wire that a handle stands for here, after placing; throws kForeign.
  ConnId wire_of(const Connection& connection);
  /// The same for what `create` is given: a key that nothing computes and nothing reads is refused.
  ConnId created_wire(const Connection& connection);
  ModelTree& tree() { return *kept_->tree; }
  NodeId parent() const { return parent_; }
  void finish();

 private:
  struct Target {
    ConnId conn = kNone;
    bool fresh = false;
  };
  NodeId local(const Model& model) const;
  void connect(ConnId key, const Argument& argument, bool latent);
  Target target(ConnId key, const Argument& argument);
  Target named(ConnId key, const std::string& name);
  Target of_wire(ConnId key, const Connection& connection);
  void connect_input(ConnId key, ConnId wire, bool was_valued);
  void connect_output(ConnId key, ConnId wire);
  bool carries_state(ConnId wire);
  Argument canonical(NodeId child, const std::vector<std::pair<ConnId, const Argument*>>& given,
                     ConnId& key);
  std::vector<std::pair<ConnId, const Argument*>> given_keys(NodeId child,
                                                             const Connections& connections);
  void check_cycle(NodeId child);
  [[noreturn]] void fail_multi_write(ConnId wire, ConnId key, std::string_view what);

  std::shared_ptr<Home> kept_;
  std::vector<std::shared_ptr<Home>> appended_;
  std::unordered_map<const Home*, Offsets> offsets_;
  std::unique_ptr<Transaction> transaction_;
  NodeId parent_ = kNone;
  NodeId child_ = kNone;          // being placed
  std::vector<NodeId> children_;  // that were placed
  Location where_;
  std::unordered_map<const WireState*, ConnId> placed_;
  std::vector<std::pair<std::shared_ptr<WireState>, ConnId>> attach_;
  std::vector<ConnId> gained_;  // wires that had readers and got a writer
};

}  // namespace mithril::model
