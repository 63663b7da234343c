// What is known of a wire, and generated names: the reading half of Model that needs inference.
#include "model/model.h"
#include "model/naming.h"
#include "model/tree.h"

namespace mithril::model {

namespace {

// Inference that was put off (a leaf of its own) runs now; the tree itself does not change.
void settle(const Access::At& at) {
  Arena& arena = at.arena();
  if (arena.solver && arena.played == arena.log.size()) return;
  Transaction transaction(arena);
  check(arena.infer(), at.get().where, arena.path(at.node));
  transaction.commit();
}

struct Wire {
  Access::At at;
  infer::CellId cell;
  infer::Solver& solver() const { return *at.arena().solver; }
};

Wire wire(const Model& model, const KeyRef& key) {
  Access::At at = Access::at(model);
  const ConnId conn = resolve_anywhere(at, key, {});
  settle(at);
  const infer::CellId cell = at.arena().cell(at.arena().conn(conn).edge);
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
    out.push_back({ShapeItem::Type::kVariadic, 0, names.variadic(view.variadic_id)});
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

bool Model::is_valued(const KeyRef& key) const {
  const Access::At at = Access::at(*this);
  return at.arena().is_valued(resolve_anywhere(at, key, {}));
}

std::optional<HostValue> Model::value(const KeyRef& key) const {
  const Access::At at = Access::at(*this);
  const Edge& edge = at.arena().edge_of(resolve_anywhere(at, key, {}));
  if (edge.value) return edge.value;
  const Wire w = wire(*this, key);
  if (!w.solver().is_value_known(w.cell)) return std::nullopt;
  return w.solver().value(w.cell);
}

std::string Model::print_value(const KeyRef& key) const {
  const Wire w = wire(*this, key);
  return w.solver().print_value(w.cell);
}

std::optional<bool> Model::differentiable(const KeyRef& key) const {
  const Access::At at = Access::at(*this);
  const Edge& edge = at.arena().edge_of(resolve_anywhere(at, key, {}));
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

std::vector<infer::Reason> Model::why(const KeyRef& key) const {
  const Wire w = wire(*this, key);
  return w.solver().why(w.cell);
}

std::vector<std::pair<std::string, std::string>> Model::generate_keys(bool include_internals,
                                                                      bool include_outputs) const {
  const Access::At at = Access::at(*this);
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [conn, name] :
       generated_names(at.arena(), at.node, include_internals, include_outputs)) {
    out.emplace_back(at.arena().key(conn), "$" + name);
  }
  return out;
}

}  // namespace mithril::model
