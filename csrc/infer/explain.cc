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

  uint32_t nearest_rule(const std::vector<uint32_t>& facts) const {
    for (const uint32_t fact : facts) {
      const auto found = std::find_if(s_.rules_.begin(), s_.rules_.end(),
                                      [fact](const RuleRecord& rule) { return rule.fact == fact; });
      if (found != s_.rules_.end()) return static_cast<uint32_t>(found - s_.rules_.begin());
    }
    return kNone;
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
        case Entity::kDim: visit_dim(item);
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

  // Of the class that the dim was in then.
  void visit_dim(const Item& item) {
    uint32_t at = item.id;
    while (s_.dims_[at].parent != kNone && s_.dims_[at].edge_event < item.before) {
      at = s_.dims_[at].parent;
    }
    chain(Entity::kDim, s_.dims_[at].event, item.before);
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

std::vector<uint32_t> Store::facts_behind_dim(uint32_t dim) const {
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
  return explainer.run();
}

std::vector<Reason> Store::reasons(const std::vector<uint32_t>& facts) const {
  std::vector<Reason> out;
  for (const uint32_t fact : facts) {
    out.push_back({facts_[fact].text, facts_[fact].location, {}, 0});
  }
  return out;
}

std::vector<Reason> Store::why_cell(uint32_t cell) const {
  return reasons(facts_behind_cell(cell));
}

std::vector<Reason> Store::why_dim(uint32_t dim) const { return reasons(facts_behind_dim(dim)); }

// --- conflicts --------------------------------------------------------------------------------

uint32_t Store::cell_with(uint32_t dim) const {
  const auto shows = [&](uint32_t cell) {
    const uint32_t shape = shape_if_any(cell);
    if (shape == kNone) return false;
    const ShapeRecord& record = shapes_[shape_root(shape)];
    for (int i = 0; i < record.count; ++i) {
      const Dims dims = expand(reprs_[record.reprs[i]]);
      const auto same = [&](uint32_t d) { return dim_root(d) == dim_root(dim); };
      if (std::any_of(dims.prefix.begin(), dims.prefix.end(), same)) return true;
      if (std::any_of(dims.suffix.begin(), dims.suffix.end(), same)) return true;
    }
    return false;
  };
  for (const uint32_t cell : blamed_) {
    if (shows(cell)) return cell;
  }
  if (error_at_rule_ == kNone) return kNone;
  const RuleRecord& rule = rules_[error_at_rule_];
  for (uint32_t i = 0; i < rule.binding_count; ++i) {
    const uint32_t cell = bindings_[rule.bindings + i].cell.index;
    if (shows(cell)) return cell;
  }
  return kNone;
}

std::string_view Store::size_name(uint32_t rule, uint32_t dim) const {
  if (rule == kNone || dim == kNone) return {};
  for (uint32_t at = scopes_[rules_[rule].scope]; at != kNone; at = scope_entries_[at].next) {
    const ScopeEntry& entry = scope_entries_[at];
    if (entry.entity == Entity::kDim && dim_root(entry.id) == dim_root(dim)) return entry.name;
  }
  return {};
}

namespace {
// Items in place of a list of wires; tensors before axes and other values.
std::vector<uint32_t> blamed_in_order(Store& s, const std::vector<uint32_t>& blamed) {
  std::vector<uint32_t> out;
  for (const uint32_t cell : blamed) {
    const auto items = s.items(cell);
    if (!items || items->empty()) out.push_back(cell);
    if (items) out.insert(out.end(), items->begin(), items->end());
  }
  std::stable_partition(out.begin(), out.end(), [&](uint32_t cell) { return s.is_tensor(cell); });
  return out;
}
}  // namespace

/// A tensor's shape, a value, or a kind: what is known of a cell in one short text.
std::string Store::fact_text(uint32_t cell) {
  const CellRecord& record = cells_[cell_root(cell)];
  if (record.kinds.is_tensor()) return print_shape(cell, error_names_);
  const bool shown = record.tag != kUnknownTag && !record.kinds.may_be_tensor();
  if (!shown) return to_string(record.kinds);
  const std::string limited = record.tag == CellRecord::Tag::kInt ? limits(record.value) : "";
  return limited.empty() ? print_value(cell) : to_string(record.kinds) + " " + limited;
}

Store::Ends Store::ends(uint32_t a, uint32_t b) {
  Ends out;
  const uint32_t cells[] = {a, b};
  for (size_t i = 0; i < 2; ++i) {
    out.roots[i] = cell_root(cells[i]);
    out.shapes[i] = shape_if_any(cells[i]);
    out.cells[i] = cells_[out.roots[i]];
    if (out.shapes[i] != kNone) out.shape_records[i] = shapes_[out.shapes[i]];
    out.texts[i] = fact_text(cells[i]);
  }
  if (out.shapes[0] == out.shapes[1]) out.shapes[1] = kNone;
  out.events = static_cast<uint32_t>(events_.size());
  return out;
}

/// Both sides of wires that cannot be one, from the records as they were when there were two.
void Store::describe_ends(const Ends& ends) {
  const auto exchange = [this](const Ends& to) {
    Ends from = to;
    for (size_t i = 0; i < 2; ++i) {
      from.cells[i] = std::exchange(cells_[to.roots[i]], to.cells[i]);
      if (to.shapes[i] == kNone) continue;
      from.shape_records[i] = std::exchange(shapes_[to.shapes[i]], to.shape_records[i]);
    }
    return from;
  };
  if (ends.roots[0] == ends.roots[1]) return;
  const Ends failed = exchange(ends);
  const bool about_kinds = error_ && error_->kind == core::ErrorKind::kDType;
  for (size_t i = 0; i < 2; ++i) {
    Explainer explainer(*this);
    explainer.cell(ends.roots[i], ends.events);
    const uint32_t name = ends.cells[i].name;
    shown_before_.push_back({ends.roots[i], name == kNone ? "" : names_[name],
                             about_kinds ? to_string(ends.cells[i].kinds) : ends.texts[i],
                             explainer.run()});
  }
  exchange(failed);
}

Conflict::Side Store::side(uint32_t cell, const std::vector<uint32_t>& facts) {
  Conflict::Side out;
  out.cell = CellId{cell};
  const CellRecord& record = cells_[cell_root(cell)];
  if (record.name != kNone) out.name = names_[record.name];
  if (out.name.empty()) out.name = binding_name(error_at_rule_, cell);
  const auto before = std::find_if(shown_before_.begin(), shown_before_.end(),
                                   [cell](const Shown& shown) { return shown.cell == cell; });
  out.text = before != shown_before_.end() ? before->text : fact_text(cell);
  for (const uint32_t fact : facts) out.facts.push_back(FactId{fact});
  return out;
}

void Store::describe_conflict() {
  const uint32_t rule = error_at_rule_;
  conflict_.sides.clear();
  conflict_.rule = rule == kNone ? FactId{} : FactId{rules_[rule].fact};
  conflict_.asserted = FactId{asserting_};
  if (asserting_ == kNone) conflict_.about = CellId{};
  conflict_.said.clear();
  conflict_.size_name.clear();
  conflict_.sizes.clear();
  conflict_.refused = std::move(refused_);
  conflict_.united = shown_before_.size() == 2;
  if (conflict_.united) {
    for (const Shown& shown : shown_before_) {
      conflict_.sides.push_back({CellId{shown.cell}, shown.name, shown.text, {}});
      for (const uint32_t fact : shown.facts) {
        if (fact != asserting_) conflict_.sides.back().facts.push_back(FactId{fact});
      }
    }
    if (clash_.met) {
      conflict_.sizes = {clash_.values[0], clash_.values[1]};
      for (const uint32_t dim : clash_.dims) {
        if (dim == kNone || !conflict_.size_name.empty()) continue;
        conflict_.size_name = size_name(Explainer(*this).nearest_rule(facts_behind_dim(dim)), dim);
      }
    }
    return;
  }
  const uint32_t here = rule != kNone ? rules_[rule].fact : asserting_;
  const auto only_here = [here](const std::vector<uint32_t>& facts) {
    return std::all_of(facts.begin(), facts.end(), [here](uint32_t f) { return f == here; });
  };
  const auto add = [&](uint32_t cell, const std::vector<uint32_t>& facts) {
    // A size that this very statement gave: what else is known of the wire is the other side.
    Conflict::Side found = side(cell, only_here(facts) ? facts_behind_cell(cell) : facts);
    const bool known = std::any_of(conflict_.sides.begin(), conflict_.sides.end(), [&](auto& s) {
      return s.cell == found.cell || (s.name == found.name && s.text == found.text);
    });
    if (!known && !found.name.empty()) conflict_.sides.push_back(std::move(found));
  };
  if (clash_.met) {
    conflict_.sizes = {clash_.values[0], clash_.values[1]};
    for (const uint32_t dim : clash_.dims) {
      if (dim == kNone) continue;
      const std::vector<uint32_t> facts = facts_behind_dim(dim);
      const uint32_t by = rule != kNone ? rule : Explainer(*this).nearest_rule(facts);
      if (conflict_.size_name.empty()) conflict_.size_name = size_name(by, dim);
      const uint32_t cell = cell_with(dim);
      if (cell != kNone) add(cell, facts);
    }
  }
  constexpr size_t kMostSides = 3;
  for (const uint32_t cell : blamed_in_order(*this, blamed_)) {
    if (conflict_.sides.size() >= (clash_.met ? 2 : kMostSides)) break;
    const std::vector<uint32_t> facts = facts_behind_cell(cell);
    if (!facts.empty()) add(cell, facts);
  }
  if (rule == kNone || !conflict_.sides.empty()) return;
  // A relation between sizes: all wires of the op are sides.
  for (uint32_t i = 0; i < rules_[rule].binding_count; ++i) {
    if (conflict_.sides.size() == kMostSides) break;
    const uint32_t cell = bindings_[rules_[rule].bindings + i].cell.index;
    const std::vector<uint32_t> facts = facts_behind_cell(cell);
    if (is_tensor(cell) && !facts.empty()) add(cell, facts);
  }
}

void Store::explain_error(core::Error& error) {
  if (forward_) return;
  describe_conflict();
  for (Conflict::Side& side : conflict_.sides) {
    const bool about_kinds = error.kind == core::ErrorKind::kDType && !conflict_.united;
    if (about_kinds) side.text = to_string(kinds(side.cell.index));
  }
  conflict_.names = error_names_;
  const uint32_t here = error_at_rule_ != kNone ? rules_[error_at_rule_].fact : asserting_;
  for (const Conflict::Side& side : conflict_.sides) {
    if (side.facts.empty()) continue;
    const auto other = std::find_if(side.facts.begin(), side.facts.end(),
                                    [here](FactId f) { return f.index != here; });
    const FactId fact = other != side.facts.end() ? *other : side.facts.front();
    error.facts.push_back(
        {side.name + " : " + side.text, facts_[fact.index].location, facts_[fact.index].text, 0});
  }
}

}  // namespace mithril::infer
