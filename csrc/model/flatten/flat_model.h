// The first half of flatten: options resolved to wires, facts of the compile asserted on a copy of
// the solver, keys with their roles and names. Internal to model/.
#pragma once
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "infer/solver.h"
#include "model/flatten/flatten.h"
#include "model/tree/initializers.h"
#include "model/tree/naming.h"
#include "model/tree/tree.h"

namespace mithril::model {

/// One op of the tree that the outputs need.
struct FlatLeaf {
  NodeId node = kNone;
  std::string mode;  // "train", "eval"; "" for ops without such an attribute
};

/// Everything about one flatten but the graph. Members are filled in the order of the calls.
class FlatModel {
 public:
  FlatModel(Access::At at, const FlattenOptions& options, FlatGraph& out);

  void read_options();  // keys of the options -> edges; warnings (K11), errors of 2.13
  core::Status explained(core::Status status) const;
  [[noreturn]] void refuse_unnamed(EdgeId e, const std::string& name) const;
  core::Status assert_facts();  // shapes, kinds, constants on the copied solver
  void find_outputs();
  void find_leaves();     // needed ones, in the order of dependence
  core::Status decide();  // undecided inputs become tensors of what calls give, else of floats
  void name_keys();       // FlatKey of each input that is read
  void find_shapes();     // ranks, symbols, fan-in
  void find_awaited();    // sizes that bodies need
  /// Tells whether an op's element type follows from numbers that only calls give.
  bool awaits_numbers() const;
  /// Inputs that are no tensors and have no value.
  void find_open_values();

  ModelTree& tree() const { return at_.tree(); }
  NodeId node() const { return at_.node; }
  infer::Solver& solver() { return *solver_; }
  EdgeId edge(ConnId conn) const { return tree().root(tree().conn(conn).edge); }
  infer::CellId cell(EdgeId edge) const { return tree().edges[edge].cell; }
  /// The value of a wire that is no run-time input: constants of the options, then the model's.
  const HostValue* constant(EdgeId edge) const;
  const std::string& mode(NodeId leaf) const;
  bool has_state(NodeId leaf) const;  // the leaf's state is carried from call to call

  /// The tensors of a list or tuple; nothing for other wires.
  std::vector<infer::CellId> tensors_of(EdgeId edge) const;
  /// Says what an output consists of, and takes note of lists. A wire that is neither a tensor nor
  /// a nest of them counts as a tensor.
  OutputList add_output(const std::string& name, EdgeId edge);

  const FlattenOptions& options;
  FlatGraph& out;
  std::vector<std::pair<std::string, EdgeId>> outputs;  // name -> wire
  std::vector<FlatLeaf> leaves;
  std::unordered_map<EdgeId, core::DType> dtypes;
  std::vector<EdgeId> key_edges;              // of out.keys
  std::vector<infer::CellId> key_cells;       // of out.keys
  std::unordered_map<EdgeId, size_t> key_of;  // edge -> index of out.keys
  struct Binding {
    EdgeId input, output;
    NodeId owner = kNone;
  };
  std::vector<Binding> bindings;  // of bind_state
  bool needs_rng = false;
  Paths paths;

 private:
  struct Reader {
    NodeId leaf = kNone;
    const ir::InputDef* input = nullptr;
  };
  ConnId option_key(const KeyRef& key, std::string_view what, bool must_exist);
  std::unordered_set<EdgeId> option_edges(const std::vector<KeyRef>& keys, std::string_view what);
  void refuse_overlap();
  std::vector<NodeId> all_leaves() const;
  std::vector<ConnId> root_inputs() const;
  void map_producers(const std::vector<NodeId>& all);
  std::unordered_set<NodeId> reachable() const;
  std::unordered_set<EdgeId> spoiled(const std::vector<NodeId>& all) const;
  bool is_read(EdgeId edge, const std::vector<NodeId>& all) const;
  /// One, or those of the tensors of a list; `key`: the model's.
  void add_keys(EdgeId edge, std::string name, bool named, const std::string& key);
  void add_key(EdgeId edge, infer::CellId cell, FlatKey key, bool named);
  std::unordered_map<ConnId, std::string> names_by_place();
  std::string name_by_place(ConnId key);
  ConnId key_of_part(ConnId wire) const;
  ir::Role role(EdgeId edge, const Reader* reader, FlatKey& key);
  /// Takes what models around the leaf that reads a parameter say of its start.
  void initialize(EdgeId edge, NodeId leaf, FlatKey& key);
  void refuse_unread(ConnId conn);
  [[noreturn]] void refuse_initial(const std::string& name) const;
  std::optional<OutputList> nest(std::string name, infer::CellId cell, int depth) const;
  void await_size(infer::Dim size);
  void await_rank(NodeId leaf);
  void set_fan_in(FlatKey& key, const Reader* reader);
  void note_open_kinds();
  core::Status decide_given(infer::FactId fact);
  core::Status decide_wire(infer::CellId cell, infer::FactId fact,
                           core::Kind given = core::Kind::kFloat);
  bool is_trained(EdgeId edge) const;
  /// Inputs of the root that ops read, and that have no value.
  std::vector<EdgeId> open_inputs() const;
  /// The wire's, or those of the tensors in it.
  std::vector<infer::CellId> cells_of(EdgeId edge) const;

  Access::At at_;
  std::unique_ptr<infer::Solver> solver_;
  std::unordered_set<EdgeId> data_, trainable_, discard_;
  std::vector<EdgeId> unreturned_;  // discarded outputs that an op reads: their inputs stay keys
  std::unordered_map<EdgeId, HostValue> constants_;
  std::unordered_map<EdgeId, ConnId> producer_;  // leaf's key that writes the wire
  std::unordered_map<EdgeId, Reader> readers_;   // first needed leaf that reads it
  std::unordered_map<EdgeId, HostValue> initial_state_;
  std::unordered_map<uint32_t, KindSet> open_kinds_;  // by cell: before anything was decided
  std::unordered_map<std::string, ConnId> generated_;
  InitializerTable initializers_{at_.tree(), paths};
};

}  // namespace mithril::model
