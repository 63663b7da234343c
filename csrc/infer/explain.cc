// Why something holds: from an entity back through events to the facts of the user.
#include <algorithm>
#include <unordered_map>

#include "infer/store.h"

namespace mithril::infer {
namespace {

constexpr size_t kMostFacts = 64;
constexpr size_t kMostVisits = 20000;  // an explanation is for people

}  // namespace

/// Breadth first from entities to the events before a point in time, so that nearer facts come
/// first. Follows a relation to its operands as they were when it acted.
class Explainer {
 public:
  explicit Explainer(const Store& store) : s_(store) {}

  void cell(uint32_t id, uint32_t before) { push(Entity::kCell, id, before); }
  void shape(uint32_t id, uint32_t before) { push(Entity::kShape, id, before); }
  void dim(uint32_t id, uint32_t before) { push(Entity::kDim, id, before); }

  void equality(uint32_t x, uint32_t y) {
    std::vector<std::pair<uint32_t, uint32_t>> pairs = {{x, y}};
    while (!pairs.empty() && visits_ < kMostVisits) {
      const auto [a, b] = pairs.back();
      pairs.pop_back();
      if (a == b) continue;
      ++visits_;
      const auto [edge, from_a] = newest_edge(a, b);
      if (edge == kNone) continue;
      const DimRecord& record = s_.dims_[edge];
      event(record.edge_event);
      pairs.emplace_back(a, from_a ? record.edge_a : record.edge_b);
      pairs.emplace_back(from_a ? record.edge_b : record.edge_a, b);
    }
  }

  void event(uint32_t index) {
    if (index == kNone) return;
    const Event& e = s_.events_[index];
    if (e.by_fact) {
      fact(e.reason);
      return;
    }
    const Propagator& p = s_.propagators_[e.reason];
    if (p.rule != kNone) fact(s_.rules_[p.rule].fact);
    for (uint32_t i = 0; i < p.count; ++i) {
      push(p.dims ? Entity::kDim : Entity::kCell, s_.arg(p, i), index);
    }
  }

  std::vector<uint32_t> run() {
    for (size_t at = 0; at < queue_.size() && facts_.size() < kMostFacts && visits_ < kMostVisits;
         ++at) {
      ++visits_;
      const Item item = queue_[at];
      switch (item.entity) {
        case Entity::kCell: visit_cell(item); break;
        case Entity::kShape: visit_shape(item); break;
        case Entity::kSeq: chain(Entity::kSeq, s_.seqs_[item.id].event, item.before); break;
        case Entity::kDim: chain(Entity::kDim, s_.dims_[s_.dim_root(item.id)].event, item.before);
      }
    }
    return std::move(facts_);
  }

 private:
  struct Item {
    Entity entity;
    uint32_t id;
    uint32_t before;
  };

  void push(Entity entity, uint32_t id, uint32_t before) {
    const uint64_t key = (static_cast<uint64_t>(entity) << 32) | id;
    const auto [it, fresh] = seen_.emplace(key, before);
    if (!fresh && it->second >= before) return;
    it->second = before;
    queue_.push_back({entity, id, before});
  }

  void fact(uint32_t id) {
    if (id == kNone || std::find(facts_.begin(), facts_.end(), id) != facts_.end()) return;
    facts_.push_back(id);
  }

  void chain(Entity entity, uint32_t at, uint32_t before) {
    for (; at != kNone && visits_ < kMostVisits; at = s_.events_[at].previous) {
      ++visits_;
      const Event& e = s_.events_[at];
      if (at >= before) continue;
      event(at);
      if (e.other != kNone) push(entity, e.other, before);
    }
  }

  void visit_cell(const Item& item) {
    const uint32_t root = s_.cell_root(item.id);
    const CellRecord& record = s_.cells_[root];
    chain(Entity::kCell, record.event, item.before);
    if (root != item.id) chain(Entity::kCell, s_.cells_[item.id].event, item.before);
    if (record.tag == CellRecord::Tag::kInt) push(Entity::kDim, record.value, item.before);
    if (record.tag == CellRecord::Tag::kItems) {
      for (uint32_t i = 0; i < record.length; ++i) {
        push(Entity::kCell, s_.lists_[record.value + i], item.before);
      }
    }
    if (record.shape != kNone) push(Entity::kShape, record.shape, item.before);
  }

  void visit_shape(const Item& item) {
    const uint32_t root = s_.shape_root(item.id);
    const ShapeRecord& record = s_.shapes_[root];
    chain(Entity::kShape, record.event, item.before);
    if (root != item.id) chain(Entity::kShape, s_.shapes_[item.id].event, item.before);
    for (int i = 0; i < record.count; ++i) {
      for (uint32_t at = record.reprs[i]; at != kNone; at = s_.reprs_[at].previous) {
        const Repr& repr = s_.reprs_[at];
        for (uint32_t k = 0; k < repr.count(); ++k) {
          push(Entity::kDim, s_.repr_dims_[repr.begin + k], item.before);
        }
        if (repr.seq != kNone) push(Entity::kSeq, repr.seq, item.before);
      }
    }
  }

  // The last union that made a and b equal, and whether it is on a's side of the tree.
  std::pair<uint32_t, bool> newest_edge(uint32_t a, uint32_t b) const {
    std::vector<uint32_t> path;
    for (uint32_t at = a; at != kNone; at = s_.dims_[at].parent) path.push_back(at);
    uint32_t best = kNone;
    bool from_a = false;
    uint32_t meet = b;
    const auto consider = [&](uint32_t edge, bool side) {
      if (best == kNone || s_.dims_[edge].edge_event > s_.dims_[best].edge_event) {
        best = edge;
        from_a = side;
      }
    };
    while (std::find(path.begin(), path.end(), meet) == path.end()) {
      consider(meet, false);
      meet = s_.dims_[meet].parent;
      if (meet == kNone) return {kNone, false};  // not equal
    }
    for (const uint32_t at : path) {
      if (at == meet) break;
      consider(at, true);
    }
    return {best, from_a};
  }

  const Store& s_;
  std::vector<Item> queue_;
  std::unordered_map<uint64_t, uint32_t> seen_;
  std::vector<uint32_t> facts_;
  size_t visits_ = 0;
};

std::vector<uint32_t> Store::facts_behind_cell(uint32_t cell) const {
  Explainer explainer(*this);
  explainer.cell(cell, kNone);
  return explainer.run();
}

std::vector<Reason> Store::why_cell(uint32_t cell) const {
  std::vector<Reason> out;
  for (const uint32_t fact : facts_behind_cell(cell)) {
    out.push_back({facts_[fact].text, facts_[fact].location});
  }
  return out;
}

std::vector<Reason> Store::why_dim(uint32_t dim) const {
  Explainer explainer(*this);
  const DimRecord& root = dims_[dim_root(dim)];
  if (root.known) {
    explainer.equality(dim, root.origin);
    for (uint32_t at = root.event; at != kNone; at = events_[at].previous) {
      if (events_[at].id == root.origin && events_[at].other == kNone) explainer.event(at);
    }
    explainer.event(dims_[root.origin].event);
  } else {
    explainer.dim(dim, kNone);
  }
  std::vector<Reason> out;
  for (const uint32_t fact : explainer.run()) {
    out.push_back({facts_[fact].text, facts_[fact].location});
  }
  return out;
}

void Store::explain_error(core::Error& error) {
  if (forward_) return;
  const uint32_t here = error_at_rule_ != kNone ? rules_[error_at_rule_].fact : asserting_;
  for (const uint32_t cell : blamed_) {
    if (error.facts.size() == 3) break;
    const CellRecord& record = cells_[cell_root(cell)];
    std::string name = record.name != kNone ? names_[record.name] : std::string();
    if (name.empty() && error_at_rule_ != kNone) name = binding_name(error_at_rule_, cell);
    if (name.empty() || !record.kinds.is_tensor()) continue;
    const std::vector<uint32_t> facts = facts_behind_cell(cell);
    const auto other =
        std::find_if(facts.begin(), facts.end(), [here](uint32_t f) { return f != here; });
    if (facts.empty()) continue;
    const uint32_t fact = other != facts.end() ? *other : facts.front();
    error.facts.push_back({name + " : " + print_shape(cell, error_names_), facts_[fact].location});
  }
}

}  // namespace mithril::infer
