// What is known of a wire, and generated names: the reading half of Model that needs inference.
#include <unordered_set>

#include "model/explain/explain.h"
#include "model/model.h"
#include "model/tree/naming.h"
#include "model/tree/tree.h"

namespace mithril::model {

namespace {

// Inference that was put off (a leaf of its own) runs now; the tree itself does not change.
void settle(const Access::At& at) {
  ModelTree& tree = at.tree();
  if (tree.solver && tree.played == tree.log.size()) return;
  Transaction transaction(tree, Transaction::Purpose::kInference);
  check_inference(tree, {at.node, kNone, at.get().where});
  transaction.commit();
}

struct Wire {
  Access::At at;
  infer::CellId cell;
  infer::Solver& solver() const { return *at.tree().solver; }
};

Wire wire(const Model& model, const KeyRef& key) {
  Access::At at = Access::at(model);
  const ConnId conn = resolve_anywhere(at, key, {});
  settle(at);
  const infer::CellId cell = at.tree().cell(at.tree().conn(conn).edge);
  return {std::move(at), cell};
}

ShapeItem item(const infer::Solver& solver, infer::Dim dim, infer::ShapeNames& names) {
  ShapeItem out;
  if (dim.known()) {
    out.size = dim.value();
  } else {
    out.type = ShapeItem::Type::kSymbol;
    out.name = names.dim(solver.dims(), dim);
  }
  return out;
}

std::vector<ShapeItem> items(const infer::Solver& solver, const infer::ShapeView& view,
                             infer::ShapeNames& names) {
  std::vector<ShapeItem> out;
  for (const infer::Dim dim : view.prefix) out.push_back(item(solver, dim, names));
  if (view.variadic) {
    const std::string& own = view.variadic_name;
    out.push_back(
        {ShapeItem::Type::kVariadic, 0, own.empty() ? names.variadic(view.variadic_id) : own});
  }
  for (const infer::Dim dim : view.suffix) out.push_back(item(solver, dim, names));
  return out;
}

}  // namespace

void Model::solve() const { settle(Access::at(*this)); }

KindSet Model::kinds(const KeyRef& key) const {
  const Wire w = wire(*this, key);
  return w.solver().kinds(w.cell);
}

infer::Type Model::type(const KeyRef& key) const {
  const Wire w = wire(*this, key);
  return w.solver().type(w.cell);
}

bool Model::is_valued(const KeyRef& key) const {
  const Access::At at = Access::at(*this);
  return at.tree().is_valued(resolve_anywhere(at, key, {}));
}

std::optional<HostValue> Model::value(const KeyRef& key) const {
  const Access::At at = Access::at(*this);
  const Edge& edge = at.tree().edge_of(resolve_anywhere(at, key, {}));
  if (edge.value) return edge.value;
  const Wire w = wire(*this, key);
  if (!w.solver().is_value_known(w.cell)) return std::nullopt;
  return w.solver().value(w.cell);
}

std::vector<std::string> Model::sources(const KeyRef& key) const {
  const Access::At at = Access::at(*this);
  const ModelTree& a = at.tree();
  std::unordered_map<EdgeId, NodeId> writers;
  for (NodeId id = 0; id < a.nodes.size(); ++id) {
    if (a.node(id).op == nullptr) continue;
    for (const ConnId c : a.node(id).conns) {
      if (a.conn(c).produced()) writers[a.root(a.conn(c).edge)] = id;
    }
  }
  std::vector<EdgeId> stack{a.root(a.conn(resolve_anywhere(at, key, {})).edge)};
  std::unordered_set<EdgeId> reached{stack.front()};
  while (!stack.empty()) {
    const auto writer = writers.find(stack.back());
    stack.pop_back();
    if (writer == writers.end()) continue;
    for (const ConnId c : a.node(writer->second).conns) {
      const EdgeId read = a.root(a.conn(c).edge);
      if (!a.conn(c).produced() && reached.insert(read).second) stack.push_back(read);
    }
  }
  std::vector<std::string> out;
  for (const std::string& name : input_keys()) {
    if (reached.count(a.root(a.conn(a.find(at.node, name)).edge)) != 0) out.push_back(name);
  }
  return out;
}

std::string Model::print_value(const KeyRef& key) const {
  const Wire w = wire(*this, key);
  return w.solver().print_value(w.cell);
}

std::optional<bool> Model::differentiable(const KeyRef& key) const {
  const Access::At at = Access::at(*this);
  const Edge& edge = at.tree().edge_of(resolve_anywhere(at, key, {}));
  if (edge.value && !edge.initial) return false;
  if (edge.differentiable) return edge.differentiable;
  if (edge.trainable) return true;
  return std::nullopt;
}

std::optional<std::vector<ShapeItem>> Model::shape(const KeyRef& key,
                                                   infer::ShapeNames& names) const {
  const Wire w = wire(*this, key);
  const bool is_tensor = w.solver().kinds(w.cell).is_tensor();
  if (!is_tensor && !w.solver().has_shape(w.cell)) return std::nullopt;
  return items(w.solver(), w.solver().shape_view(w.cell), names);
}

std::vector<std::vector<ShapeItem>> Model::shapes(const KeyRef& key,
                                                  infer::ShapeNames& names) const {
  const Wire w = wire(*this, key);
  std::vector<std::vector<ShapeItem>> out;
  if (!w.solver().kinds(w.cell).is_tensor() && !w.solver().has_shape(w.cell)) return out;
  for (const infer::ShapeView& view : w.solver().representations(w.cell)) {
    out.push_back(items(w.solver(), view, names));
  }
  return out;
}

std::string Model::print_shape(const KeyRef& key, infer::ShapeNames& names) const {
  const Wire w = wire(*this, key);
  return w.solver().print_shape(w.cell, names);
}

std::vector<std::pair<std::string, std::string>> Model::generate_keys(bool include_internals,
                                                                      bool include_outputs) const {
  const Access::At at = Access::at(*this);
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [conn, name] :
       generated_names(at.tree(), at.node, include_internals, include_outputs)) {
    out.emplace_back(at.tree().key(conn), "$" + name);
  }
  return out;
}

}  // namespace mithril::model
