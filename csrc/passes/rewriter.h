// Rewriting by copying: a pass walks the old graph in order and emits a new one.
#pragma once
#include <optional>
#include <vector>

#include "core/interrupt.h"
#include "ir/builder.h"

namespace mithril::passes {

/// Starts with the old graph's name, inputs, sizes and locations. Values of the old graph map to
/// values of the new one; a pass copies the nodes that it keeps and maps those that it replaces.
class Rewriter {
 public:
  explicit Rewriter(const ir::Graph& from);

  const ir::Graph& from() const { return from_; }
  ir::Graph& graph() { return to_; }
  ir::Builder& builder() { return builder_; }

  ir::Value mapped(ir::ValueId old) { return {&builder_, map_[static_cast<size_t>(old)]}; }
  void map(ir::ValueId old, ir::Value value) { map_[static_cast<size_t>(old)] = value.id; }
  /// The node with operands of the new graph.
  ir::Node mapped(const ir::Node& node) const;
  /// Copies with its types: no inference.
  void copy(const ir::Node& node);
  /// Emits through the builder: types are inferred anew, casts inserted.
  void emit_again(const ir::Node& node);
  /// The same on other operands; the node has no regions.
  void emit_again(const ir::Node& node, std::vector<ir::Operand> operands);
  /// A size that `made` brings in (`x[1:]` while x is open), a symbol from number `first_new` on,
  /// becomes that of the old type: regions and attributes of other nodes speak of it.
  void keep_symbols(const ir::Type& old, ir::Value made, uint32_t first_new);
  /// Maps outputs and states; the first failure of the builder, if any.
  core::Result<ir::Graph> finish();

 private:
  const ir::Graph& from_;
  ir::Graph to_;
  ir::Builder builder_;
  std::vector<ir::ValueId> map_;
  core::InterruptCounter interrupts_{256};
};

}  // namespace mithril::passes
