// Defines a model tree: the nodes, wires and facts below an outermost model, its solver, and the
// journal that takes back what a failed call did. Internal to model/.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/host_value.h"
#include "core/location.h"
#include "core/status.h"
#include "infer/solver.h"
#include "ir/graph.h"
#include "ir/op_def.h"
#include "model/model.h"

namespace mithril::model {

using NodeId = uint32_t;  // a model
using ConnId = uint32_t;  // a wire as one model sees it
using EdgeId = uint32_t;  // a wire through all levels
inline constexpr uint32_t kNone = UINT32_MAX;

/// The wire itself, shared by every level that sees it. Facts count at the root of the union.
struct Edge {
  EdgeId parent = kNone;
  uint32_t size = 1;
  infer::CellId cell;              // of a root; invalid until a fact about it was played
  std::string label;               // what errors call it: the user's name, else the op's key
  std::optional<HostValue> value;  // given by a user or a default
  bool initial = false;            // the value is only where training starts
  bool trainable = false;          // the op says so; a stated `false` wins
  std::optional<bool> differentiable;
  uint32_t value_fact = kNone, differentiable_fact = kNone;  // who said so
  uint32_t stamp = 0;                                        // transaction that saved it
};

/// A wire as one model sees it. Kinds of keys follow from producer, consumers and flags. The
/// conns of an outermost model stand for distinct edges.
struct Conn {
  NodeId node = kNone;
  EdgeId edge = kNone;
  ConnId outer = kNone;   // the parent's wire that this key is connected to
  ConnId merged = kNone;  // merged into that one: this one is gone
  std::string name;       // the user's; "" = `$number`
  uint32_t number = 0;
  std::string origin;       // innermost key name
  ConnId producer = kNone;  // key of a submodel; of a leaf's output: itself
  ConnId first_consumer = kNone;
  uint32_t consumers = 0;  // keys of submodels that read it
  bool exposed = false;
  bool latent = false;                 // an input that was valued before, or bound to state
  bool by_freeze = false;              // exposed because its model froze
  uint32_t cin = kNone, cout = kNone;  // place in the ordered sets of its node
  uint32_t stamp = 0;

  bool produced() const { return producer != kNone; }
};

/// The n of "$n"; 0 when it is none.
uint32_t number_of(std::string_view key);

/// Insertion-ordered set of conns; a conn knows its own sequence number.
class ConnSet {
 public:
  void insert(uint32_t sequence, ConnId conn);  // puts an undone removal back in its place
  void erase(uint32_t sequence);
  size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  void shift(uint32_t conns);  // after an append

 private:
  std::vector<std::pair<uint32_t, ConnId>> items_;  // ascending sequence
};

struct State {
  ConnId input = kNone, output = kNone;
  std::optional<HostValue> initial;
};

/// A user's relation over wires of a node.
struct UserConstraint {
  std::string name;
  std::vector<ConnId> keys;
  std::vector<uint32_t> after;
  std::vector<EdgeId> edges;  // of the keys, when it was stated
  EdgeId finished = kNone;    // holds true once it need not run again
  /// Names and function; the solver refers to them.
  struct Body {
    std::vector<std::string> names;
    infer::Rule rule;
  };
  std::shared_ptr<const Body> body;
};

struct Node {
  NodeId parent = kNone;
  const ir::OpDef* op = nullptr;  // leaf
  std::string name, class_name;
  ir::Attrs attrs;        // leaf: every `.attr`
  int32_t variadic = -1;  // leaf: number of items given as keys of their own
  bool frozen = false;
  bool claimed = false;  // taken by a functional call
  std::vector<NodeId> children;
  std::vector<ConnId> conns;    // in the order of creation
  std::vector<ConnId> outputs;  // exposed ones, in the order of exposure
  ConnSet cins, couts;
  uint32_t next_sequence = 0;
  std::vector<ConnId> numbered;                         // `$n` is at n - 1; kNone: removed
  std::unordered_map<std::string, ConnId> names;        // not of leaves: they are few
  std::unordered_map<std::string, NodeId> child_names;  // explicit ones
  std::vector<State> states;
  std::vector<UserConstraint> constraints;
  std::vector<Initializer> initializers;  // a later one counts before an earlier one
  Location where;                         // of the constructor, then of the extend that took it in
  uint64_t tag = 0;
};

/// Something the user said.
struct Fact {
  Location where;
  std::string text;
  infer::FactId id;  // in the tree's solver; invalid until played
};

/// One entry of the ordered log of facts: what the solver is (re)built from.
struct Entry {
  enum class Type : uint8_t {
    kRule,
    kKinds,
    kInterval,
    kShape,
    kValue,
    kUnify,
    kSame,
    kConstraint
  };
  Type type = Type::kRule;
  uint32_t id = kNone;     // node of a rule or constraint, else edge
  uint32_t other = kNone;  // second edge of kUnify and kSame (equal but for the value); scope;
                           // number of a constraint
  uint32_t fact = kNone;
  ConnId conn = kNone;   // where it was said: edges come and go with what is connected
  bool implied = false;  // follows from a statement of the same fact
  KindSet kinds;
  std::shared_ptr<const infer::Type> content;  // of kKinds, where it says what containers hold
  std::shared_ptr<const infer::Interval> interval;
  std::shared_ptr<const ShapeTemplate> shape;
  std::shared_ptr<const HostValue> value;
};

/// Tells whether the id of such an entry is a node's, not an edge's.
inline bool is_of_node(Entry::Type type) {
  return type == Entry::Type::kRule || type == Entry::Type::kConstraint;
}

/// States something of a wire that is no fact for inference: that it is differentiable, or where
/// its training starts.
struct Statement {
  ConnId conn = kNone;
  uint32_t fact = kNone;
  std::optional<bool> differentiable;
  std::shared_ptr<const HostValue> initial;
};

/// Tells where arrays of an appended tree begin.
struct Offsets {
  uint32_t nodes = 0, conns = 0, edges = 0;
};

/// A model tree. Not a transaction by itself: Transaction below opens one at a time.
class ModelTree {
 public:
  std::vector<Node> nodes;
  std::vector<Conn> conns;
  std::vector<Edge> edges;
  std::vector<Fact> facts;
  std::vector<infer::ScopeId> scopes;  // invalid until played
  std::vector<Entry> log;
  std::vector<Statement> statements;
  size_t played = 0;  // entries that the solver has seen
  /// Lengths of the log at which this solver ran to its end: playing the log with the same stops
  /// makes the same solver, chains of reasons included.
  std::vector<size_t> stops;
  std::unique_ptr<infer::Solver> solver;
  std::weak_ptr<Home> snapshot;  // looks at this tree until it changes (snapshot.h)

  Node& node(NodeId id) { return nodes[id]; }
  const Node& node(NodeId id) const { return nodes[id]; }
  const Conn& conn(ConnId id) const { return conns[id]; }
  size_t weight() const { return nodes.size() + conns.size(); }

  // --- reading ----------------------------------------------------------------------------------
  EdgeId root(EdgeId edge) const;
  const Edge& edge_of(ConnId conn) const { return edges[root(conns[conn].edge)]; }
  ConnId surviving(ConnId conn) const;  // follows merges
  NodeId outermost(NodeId node) const;
  KeyKind kind(ConnId conn) const;
  std::string key(ConnId conn) const;                    // "h" or "$3"
  ConnId find(NodeId node, std::string_view key) const;  // kNone if absent
  /// The wire of `node` that `conn` of a model below it is connected to; kNone if none.
  ConnId visible(ConnId conn, NodeId node) const;
  bool is_valued(ConnId conn) const;  // a value that is not just initial
  /// Keys of a child in the order in which an extend visits them: inputs, outputs, other couts.
  std::vector<ConnId> externals(NodeId node) const;
  std::vector<std::string> key_names(NodeId node) const;  // for suggestions
  std::vector<std::string> child_names(NodeId node) const;
  /// "mlp.linear_1": names from the outermost model down to the node.
  std::string path(NodeId node) const;
  std::vector<NodeId> topological(NodeId node) const;
  std::string dump() const;

  /// A tree of its own that is equal to this one, outside of transactions.
  std::unique_ptr<ModelTree> copy() const;
  /// Leaves this tree's snapshots a copy: it is about to change.
  void part_from_snapshots();

  // --- writing (inside a transaction) -----------------------------------------------------------
  Offsets append(const ModelTree& other);
  Conn& edit(ConnId conn);
  Edge& edit_edge(EdgeId root);
  NodeId new_node();
  EdgeId new_edge();
  /// A new wire of `node`; name "" gives it the next number (unless the node is a leaf).
  ConnId new_conn(NodeId node, EdgeId edge, std::string name, std::string origin);
  void set_name(ConnId conn, std::string name);
  void add_cin(ConnId conn);
  void add_cout(ConnId conn);
  void remove_cin(ConnId conn);
  void remove_cout(ConnId conn);
  void expose(ConnId conn);
  void add_child(NodeId parent, NodeId child);
  void freeze(NodeId node);
  /// Keeps the whole node for the undo; for rare changes of a node's lists.
  void save_node(NodeId node);
  uint32_t new_fact(Location where, std::string text);
  uint32_t new_scope();
  /// One wire from now on; throws on clashing values or differentiability. `where` and `by`: who
  /// said so, if the solver knew both. The larger one stays, of equals the first.
  EdgeId unite(EdgeId a, EdgeId b, std::string_view what, const Location& where = {},
               std::string_view by = {});

  // --- facts: checked against each other, logged ------------------------------------------------
  void state_type(ConnId conn, const infer::Type& type, uint32_t fact, bool implied = false);
  void state_interval(ConnId conn, const infer::Interval& interval, uint32_t fact);
  void state_shape(ConnId conn, const ShapeTemplate& shape, uint32_t scope, uint32_t fact,
                   bool implied = false);
  void state_value(ConnId conn, const HostValue& value, bool initial, uint32_t fact);
  void log_value(ConnId conn, const HostValue& value, bool initial, uint32_t fact);
  /// `is_list`: the wire holds tensors, each of which is.
  void state_differentiable(ConnId conn, bool differentiable, uint32_t fact, bool is_list = false);
  void state_rule(NodeId leaf, uint32_t fact);
  /// `constraint` has its keys, name and those it waits for. Returns its number in the node.
  uint32_t state_constraint(NodeId node, UserConstraint constraint, infer::RelationFunction relate,
                            uint32_t fact);
  /// Joins a state's wires: `input` gets next what `output` has, so they are alike but for the
  /// value.
  void state_next(ConnId input, ConnId output, uint32_t fact);

  /// Throws while a call on this tree is under way: a constraint wants to change what it is asked
  /// about, or another thread does.
  void refuse_busy(const Location& where) const;

  // --- inference --------------------------------------------------------------------------------
  /// Makes the solver, plays the log's new entries and propagates.
  core::Status infer();
  infer::CellId cell(EdgeId edge);

 private:
  friend class Transaction;
  friend class Reading;
  struct Undo {
    enum class Type : uint8_t {
      kConn,
      kEdge,
      kNode,
      kPopConn,
      kPopNumber,
      kPopChild,
      kPopOutput,
      kEraseName,
      kInsertName,
      kEraseChildName,
      kEraseCin,
      kInsertCin,
      kEraseCout,
      kInsertCout,
    };
    Type type;
    uint32_t node = kNone, a = kNone, b = kNone;
    std::string text;
  };
  bool is_old_node(NodeId id) const { return recording_ && id < start_nodes_; }
  void record(Undo::Type type, NodeId node, uint32_t a = kNone, uint32_t b = kNone,
              std::string text = {});
  void rename_initializers(ConnId conn, const std::string& name);
  void label(EdgeId root, const std::string& name);
  void start();
  void finish();
  void undo(const Undo& undo);
  void undo_to_start();
  core::Status infer_all();
  core::Status play(const Entry& entry);
  core::Status play_rule(const Entry& entry);
  core::Status play_constraint(const Entry& entry);
  std::string_view item_name(const ir::InputDef& input, size_t number);
  infer::FactId fact_id(uint32_t fact);

  std::deque<std::pair<const ir::InputDef*, std::vector<std::shared_ptr<const std::string>>>>
      item_names_;
  bool recording_ = false;
  std::atomic<int> readers_ = 0;  // flattens under way, which no constraint may disturb
  uint32_t stamp_ = 0;
  std::vector<Undo> undo_;
  std::vector<Conn> saved_conns_;
  std::vector<Edge> saved_edges_;
  std::vector<Node> saved_nodes_;
  size_t start_nodes_ = 0, start_conns_ = 0, start_edges_ = 0, start_facts_ = 0, start_scopes_ = 0,
         start_log_ = 0, start_statements_ = 0, start_played_ = 0;
  bool had_solver_ = false;
  std::vector<EdgeId> relabelled_;  // cells that must get their new name
  std::optional<infer::Mark> mark_;
};

/// Everything done to a tree until commit() is taken back by the destructor.
class Transaction {
 public:
  /// Inference that was put off says nothing new of the tree.
  enum class Purpose : uint8_t { kChange, kInference };
  explicit Transaction(ModelTree& tree, Purpose purpose = Purpose::kChange);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  ModelTree& tree_;
  bool done_ = false;
};

/// No change of the tree while it lasts.
class Reading {
 public:
  explicit Reading(ModelTree& tree) : tree_(tree) { ++tree_.readers_; }
  ~Reading() { --tree_.readers_; }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  ModelTree& tree_;
};

/// Ids that an edit took out; those above them moved down.
struct Cut {
  std::vector<uint32_t> nodes, conns;  // ascending
  size_t node_count = 0, conn_count = 0;

  /// The id after the edit; kNone for a removed one.
  static uint32_t moved(const std::vector<uint32_t>& removed, uint32_t id);
  /// One edit after another as one, of a tree that had `size` ids before the first.
  static std::vector<uint32_t> join(const std::vector<uint32_t>& first,
                                    const std::vector<uint32_t>& second, size_t size);
};

/// Tells where a model is now: in a tree of its own, at a place in another's, or in what an edit
/// made of it.
struct Home {
  std::shared_ptr<ModelTree> tree;  // shared with snapshots
  std::shared_ptr<Home> forward;
  Offsets offsets;             // in `forward`
  std::unique_ptr<Cut> cut;    // instead of offsets: `forward` is this tree after an edit
  std::weak_ptr<Home> before;  // the tree before the last edit

  Home() = default;
  ~Home();  // a long chain dies without recursion
  Home(const Home&) = delete;
  Home& operator=(const Home&) = delete;
};

/// A functional call that no model has taken in yet.
struct PendingCall {
  Model child;
  Connections connections;
  Location where;
  std::vector<std::weak_ptr<WireState>> results;  // by output key of the child
  bool was_frozen = false;                        // the child, before the call
  size_t outputs_before = 0;

  PendingCall(Model c, Connections cs, Location w)
      : child(std::move(c)), connections(std::move(cs)), where(std::move(w)) {}
  ~PendingCall();  // a chain of 10^5 calls dies without recursion
  PendingCall(const PendingCall&) = delete;
  PendingCall& operator=(const PendingCall&) = delete;
};

struct WireState {
  enum class Type : uint8_t { kKey, kPending, kAttached };
  Type type = Type::kKey;
  KeySpec spec;  // kKey
  Location where;
  std::shared_ptr<PendingCall> call;  // kPending
  size_t result = 0;
  // kAttached; brought up to date when it is asked for. kNone: removed.
  mutable std::shared_ptr<Home> home;
  mutable ConnId conn = kNone;
};

/// Handles to ids: the only way through.
struct Access {
  struct At {
    std::shared_ptr<Home> home;  // holds the tree
    NodeId node = kNone;
    ModelTree& tree() const { return *home->tree; }
    Node& get() const { return home->tree->node(node); }
  };
  static At at(const Model& model);  // throws for a model that was removed
  static bool is_removed(const Model& model);
  static bool is_removed(const WireState& state);
  static Model model(std::shared_ptr<Home> home, NodeId node) {
    return Model(std::move(home), node);
  }
  static Connection connection(std::shared_ptr<Home> home, ConnId conn);
  static Connection connection(std::shared_ptr<WireState> state) {
    return Connection(std::move(state));
  }
  static const std::shared_ptr<WireState>& state(const Connection& c) { return c.state_; }
  /// Home and conn of an attached connection, merges followed. Throws for a removed one.
  static std::pair<std::shared_ptr<Home>, ConnId> locate(const WireState& state);
};

// --- errors -------------------------------------------------------------------------------------
[[noreturn]] void raise(core::Error error, const Location& where = {});
[[noreturn]] void refuse(core::ErrorKind kind, core::Code code, std::string message,
                         const Location& where, std::string hint = {});
/// Throws a failed status as the user's error: call, path.
void check(core::Status status, const Location& where, const std::string& path);
[[noreturn]] void raise_two_values(const ModelTree& tree, std::string_view name, const Edge& a,
                                   const Edge& b);
[[noreturn]] void raise_two_differentiabilities(const ModelTree& tree, std::string_view name,
                                                const Edge& a, const Edge& b);
[[noreturn]] void unknown_key(const ModelTree& tree, NodeId node, std::string_view key,
                              const Location& where, core::ErrorKind kind = core::ErrorKind::kKey);
void check_name(const std::string& name, const Location& where);
/// Runs a user's relation. What it throws is kept until `rethrow_thrown`, as the solver knows only
/// failed statuses.
core::Status run_guarded(const infer::RelationFunction& relate, infer::Relation& relation);
void rethrow_thrown();
std::string title(const Node& node);  // "Linear 'head'" or "Linear"

/// State of an op is no wire of a model: flatten makes it. Random keys are all one `rng_key`.
bool is_random_key(const ir::InputDef& input);
bool is_next_state(const ir::OpDef& op, std::string_view output);

/// "input3": the key of a variadic input's third item.
std::string item_key(const ir::InputDef& input, size_t number);

/// The conn of `at` that a key or connection names; throws.
ConnId resolve(const Access::At& at, const KeyRef& key, const Location& where);
/// The same; any connection of the tree will do.
ConnId resolve_anywhere(const Access::At& at, const KeyRef& key, const Location& where);
/// Throws for two variadics and for negative sizes.
void check_template(const ShapeTemplate& shape, std::string_view key, const Location& where);
/// Checks the facts of a key against each other; throws.
void check_spec(const KeySpec& spec, const Location& where);
/// Logs what a key spec says.
void state_spec(ModelTree& tree, ConnId conn, const KeySpec& spec, uint32_t fact);

}  // namespace mithril::model
