// A model as it is at one moment: what a compiled model goes on looking at.
#pragma once
#include <memory>
#include <optional>

#include "model/model.h"

namespace mithril::model {

/// Shares the model's tree until that changes, and has a copy of its own from then on; it costs
/// nothing before. Copies are the same snapshot.
class Snapshot {
 public:
  /// Snapshots of a tree that does not change meanwhile share all that they have.
  explicit Snapshot(const Model& model);

  /// The model as it was. Not to be changed.
  const Model& model() const { return model_; }
  /// Finds what a wire of the tree was then. Throws kForeign for one that it did not have, and for
  /// one that an edit removed since. Wires of no tree are themselves.
  Connection wire(const Connection& now) const;
  /// Finds what a model of the tree was then; none for a model that it did not have.
  std::optional<Model> part(const Model& now) const;

 private:
  std::shared_ptr<Home> origin_;  // leads to where the tree is now
  Model model_;
  uint32_t nodes_ = 0, conns_ = 0;  // how many there were
};

}  // namespace mithril::model
