// What the solver knows by ids, said with the names and places that the user knows.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "infer/solver.h"
#include "model/tree/tree.h"

namespace mithril::model {

/// "Flatten 'flat'" at a line, and the leaf whose rule it is (kNone: something that was stated).
struct Speaker {
  std::string by;
  Location where;
  NodeId leaf = kNone;
};

/// Reads the facts of a solver that a tree was played into, or of a clone of it.
class Narrator {
 public:
  Narrator(const ModelTree& tree, infer::Solver& solver);

  bool about_kinds = false;  // show kinds and not shapes

  Speaker speaker(infer::FactId fact) const;
  /// "pixels : [N, 16, 32]": the wire that a fact is about and what is known of it now, or "".
  std::string wire(infer::FactId fact);
  /// The wire that a fact is about; invalid if none.
  EdgeId edge(infer::FactId fact) const;
  /// One line per fact, each place once.
  std::vector<core::Error::Fact> chain(const std::vector<infer::FactId>& facts, size_t most,
                                       int depth);

 private:
  friend class Explanation;
  std::string shown(EdgeId edge);
  /// "in [1, 8]" of a number on a wire, or "".
  std::string limits(EdgeId root) const;
  /// The statement of the fact that gives the wire's whole shape as it is shown.
  bool states_all(infer::FactId fact, const infer::Conflict::Side& side) const;

  const ModelTree& tree_;
  infer::Solver& solver_;
  infer::ShapeNames names_;
  const infer::Conflict::Side* side_ = nullptr;     // a wire that is shown as it was there
  std::unordered_map<uint32_t, uint32_t> entries_;  // solver's fact -> first entry of the log
  std::unordered_map<uint32_t, uint32_t> facts_;    // solver's fact -> the tree's
};

/// The call that failed: on which model, and which child it was about (kNone: a setter). It may
/// have put in others before that one.
struct FailedCall {
  NodeId model = kNone;
  NodeId child = kNone;
  Location where;
  std::vector<NodeId> placed{};
};

/// Rewrites an error of inference into the long form: who cannot take what, both facts with their
/// places, what they follow from, why they clash, what to change. `solver` is as it failed.
void explain(core::Error& error, const ModelTree& tree, infer::Solver& solver,
             const FailedCall& call);

/// Runs inference; throws what it finds, explained.
void check_inference(ModelTree& tree, const FailedCall& call);

/// Says what to change, or "" where nothing is known. `sides` are the wires of the clash; what the
/// solver tells of it may name keys of the child instead.
std::string hint_for(const core::Error& error, const ModelTree& tree, infer::Solver& solver,
                     const FailedCall& call, const std::vector<infer::Conflict::Side>& sides);

/// The wire of `node`'s that has the cell: a key of it that is connected to the parent.
ConnId key_of_cell(const ModelTree& tree, const infer::Solver& solver, NodeId node,
                   infer::CellId cell);

/// The submodel of `model` that `node` is or lies in; `node` itself if it is not below.
NodeId submodel_with(const ModelTree& tree, NodeId model, NodeId node);

}  // namespace mithril::model
