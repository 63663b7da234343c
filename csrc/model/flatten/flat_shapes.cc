// Sizes of keys, and which of them something waits for.
#include <algorithm>
#include <bit>

#include "model/flatten/flat_model.h"

namespace mithril::model {

// What an op does not say of a parameter is counted as of weights: all axes but the first.
void FlatModel::set_fan_in(FlatKey& key, const Reader* reader) {
  std::vector<infer::Dim> shape = key.shape;
  std::vector<int> dims;
  const ir::InputDef* input = reader == nullptr ? nullptr : reader->input;
  if (input != nullptr && input->init.kind == ir::Init::Kind::kUniformFanIn) {
    const std::string& of = input->init.fan_in_of;
    const ConnId counted = tree().find(reader->leaf, of.empty() ? input->name : of);
    const auto found = counted == kNone ? std::nullopt : solver_->shape(cell(edge(counted)));
    if (!found) return;
    shape = *found;
    dims = input->init.fan_in_dims;
  } else {
    if (!key.rank_known) return;
    for (size_t axis = shape.size() > 1 ? 1 : 0; axis < shape.size(); ++axis) {
      dims.push_back(static_cast<int>(axis));
    }
  }
  infer::Dim product(1);
  for (const int axis : dims) {
    if (axis < 0 || static_cast<size_t>(axis) >= shape.size()) return;
    product = solver_->dims().mul(product, shape[static_cast<size_t>(axis)]);
  }
  key.fan_in = product;
}

void FlatModel::find_shapes() {
  infer::ShapeNames names;
  for (size_t i = 0; i < out.keys.size(); ++i) {
    FlatKey& key = out.keys[i];
    if (!key.kinds.is_tensor()) {
      key.rank_known = true;
      continue;
    }
    const infer::CellId at = key_cells[i];
    key.shape_text = solver_->print_shape(at, names);
    key.least_rank = std::countr_zero(solver_->possible_ranks(at));
    if (auto shape = solver_->shape(at)) {
      key.shape = std::move(*shape);
      key.rank_known = true;
    } else {
      out.unknown_ranks.push_back(key.name);
    }
    const auto reader = readers_.find(key_edges[i]);
    if (key.role == ir::Role::kParam) {
      set_fan_in(key, reader == readers_.end() ? nullptr : &reader->second);
    }
  }
}

// The keys whose sizes tell it; where none shows it, those that are open.
void FlatModel::await_size(infer::Dim size) {
  const std::vector<infer::Dim> symbols = solver_->dims().symbols_of(size);
  const auto shares = [&](infer::Dim dim) {
    const std::vector<infer::Dim> own = solver_->dims().symbols_of(solver_->resolve(dim));
    return std::any_of(own.begin(), own.end(), [&](infer::Dim symbol) {
      return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
    });
  };
  const auto is_open = [&](infer::Dim dim) { return !solver_->resolve(dim).known(); };
  std::vector<std::string> telling, open;
  for (const FlatKey& key : out.keys) {
    if (std::any_of(key.shape.begin(), key.shape.end(), shares)) telling.push_back(key.name);
    if (std::any_of(key.shape.begin(), key.shape.end(), is_open)) open.push_back(key.name);
  }
  for (std::string& name : telling.empty() ? open : telling) {
    std::vector<std::string>& all = out.unknown_sizes;
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(std::move(name));
  }
}

void FlatModel::find_open_values() {
  for (const FlatKey& key : out.keys) {
    if (!key.kinds.is_tensor() && key.role == ir::Role::kData) {
      out.unknown_values.push_back(key.name);
    }
  }
}

bool FlatModel::awaits_numbers() const {
  return std::any_of(leaves.begin(), leaves.end(), [&](const FlatLeaf& leaf) {
    const ir::OpDef& op = *tree().node(leaf.node).op;
    return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const ir::InputDef& input) {
      const auto& typed = op.promoted;
      const ConnId key = tree().find(leaf.node, input.name);
      if (input.kinds.may_be_tensor() || key == kNone || constant(edge(key)) != nullptr)
        return false;
      const bool is_typed = std::find(typed.begin(), typed.end(), input.name) != typed.end();
      return is_typed && !solver_->value(cell(edge(key)));
    });
  });
}

// Of known ranks and sizes that are open an op makes a result whose rank is not known.
void FlatModel::await_rank(NodeId leaf) {
  bool is_open = false;
  std::vector<infer::Dim> open;
  for (const ConnId c : tree().node(leaf).conns) {
    const infer::CellId at = cell(edge(c));
    if (!solver_->kinds(at).is_tensor()) continue;
    const auto shape = solver_->shape(at);
    if (tree().conn(c).produced()) {
      is_open = is_open || !shape;
      continue;
    }
    if (!shape) return;
    for (const infer::Dim size : *shape) {
      if (!solver_->resolve(size).known()) open.push_back(solver_->resolve(size));
    }
  }
  if (!is_open) return;
  for (const infer::Dim size : open) await_size(size);
}

void FlatModel::find_awaited() {
  for (const FlatLeaf& leaf : leaves) {
    await_rank(leaf.node);
    for (const auto& [input, axis] : tree().node(leaf.node).op->awaited) {
      const ConnId key = tree().find(leaf.node, input);
      const auto shape = key == kNone ? std::nullopt : solver_->shape(cell(edge(key)));
      if (!shape || axis >= shape->size()) continue;
      const infer::Dim size = solver_->resolve((*shape)[axis]);
      if (!size.known()) await_size(size);
    }
  }
}

}  // namespace mithril::model
