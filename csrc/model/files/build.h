// From records to a model: everything is checked here that composing would have seen to. Internal
// to model/.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/files/record.h"
#include "model/files/serialize.h"
#include "model/tree/tree.h"

namespace mithril::model {

/// Begins error texts.
inline constexpr std::string_view kWhat = "model file";

class ModelBuilder {
 public:
  ModelBuilder(const FileRecord& file, ModelTree& tree, Location where, const FindRelation& find)
      : file_(file), tree_(tree), where_(std::move(where)), find_(find) {}
  void build();

 private:
  struct Made {
    NodeId node;
    const ModelRecord* model = nullptr;  // null: an op
    const OpRecord* op = nullptr;
    const PartRecord* part = nullptr;  // null: the outermost one
  };

  // Nodes and wires.
  void make_nodes();
  void make_model(NodeId id, const ModelRecord& record);
  NodeId make_part(NodeId parent, const PartRecord& record);
  void make_op(NodeId id, const OpRecord& record);
  void add_initializers(NodeId id, const OpRecord& record);
  void add_wires(NodeId id, const ModelRecord& record, const PartRecord* part);
  void lead_out(ConnId key);
  void add_keys(NodeId id, const OpRecord& record, const std::vector<Name>& keys,
                const PartRecord* part);
  void add_wire(NodeId id, Name key, const PartRecord* part);
  void check_keys(NodeId id) const;
  void check_given(NodeId id, const PartRecord& part) const;
  EdgeId edge_of(NodeId id, Name key, const PartRecord* part, ConnId& outer);

  // Who writes, who reads, and what kinds of keys follow.
  void connect();
  void connect_parts(NodeId id);
  void set_origins(const Made& made);
  void check_cycles(NodeId id) const;
  void finish_models();
  void set_kinds_of_keys(const Made& made);
  void set_canonical(NodeId id, const std::vector<Name>* names, bool inputs);
  void set_edges(const Made& made);
  void bind_states(const Made& made);
  void check_connected(NodeId id) const;

  // What was said.
  void divide_wires();
  void divide_wire(const MergeRecord& record, const std::vector<NodeId>& ops);
  EdgeId edge_of_mention(ConnId conn);
  bool is_merged_next(size_t done) const;
  void merge_next();
  void state_facts();
  void state_op(const Made& made, size_t index);
  void state_statement(const StatementRecord& record, size_t index);
  void state(const Said& said, NodeId model, uint32_t fact, uint32_t& scope);
  void state(const Said& said, ConnId conn, ConnId next, uint32_t fact, uint32_t& scope);
  void state_constraint(const ConstraintRecord& record, uint32_t fact);
  void state_value(ConnId conn, const HostValue& value, uint32_t fact);
  void check_values() const;
  void check_order(const std::vector<Run>& order, size_t ops) const;
  Location place(const std::vector<int64_t> HistoryRecord::*list, size_t index) const;
  Location place(const std::vector<int64_t>& places, size_t index) const;

  ConnId wire(NodeId id, Name key) const;
  ConnId outermost(ConnId conn) const;
  NodeId model_named(Name id) const;
  std::string describe(NodeId id) const { return title(tree_.node(id)); }
  [[noreturn]] void refuse_unregistered(Name name) const;
  [[noreturn]] void refuse(std::string problem, core::ErrorKind kind = core::ErrorKind::kParse,
                           core::Code code = core::Code::kParse) const;

  const FileRecord& file_;
  ModelTree& tree_;
  Location where_;
  const FindRelation& find_;
  std::vector<Made> made_;  // parents before children, in the order of insertion
  std::unordered_map<Name, NodeId> by_id_;
  std::unordered_map<int64_t, uint32_t> scopes_;
  std::unordered_map<ConnId, ConnId> next_;  // outermost wires: input that carries state -> output
  /// Wires that were merged, as the history has them.
  struct Part {
    ConnId wire = kNone;
    EdgeId edge = kNone;  // until it is merged
  };
  std::vector<Part> parts_;
  size_t joined_ = 0;
  std::map<std::pair<int64_t, int64_t>, size_t> part_of_mention_;
  std::pair<int64_t, int64_t> mention_;  // (call, which of the wires that it names)
};

}  // namespace mithril::model
