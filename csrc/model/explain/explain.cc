#include "model/explain/explain.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace mithril::model {

using core::Error;
using infer::CellId;
using infer::Conflict;
using infer::FactId;

NodeId submodel_with(const ModelTree& tree, NodeId model, NodeId node) {
  NodeId at = node;
  while (tree.node(at).parent != kNone && tree.node(at).parent != model) {
    at = tree.node(at).parent;
  }
  return tree.node(at).parent == model ? at : node;
}

ConnId key_of_cell(const ModelTree& tree, const infer::Solver& solver, NodeId node, CellId cell) {
  for (const ConnId c : tree.node(node).conns) {
    const CellId own = tree.edge_of(c).cell;
    const bool connected = tree.conn(c).outer != kNone;
    if (connected && own.valid() && solver.same_cell(own, cell)) return c;
  }
  return kNone;
}

// --- who said what ------------------------------------------------------------------------------

Narrator::Narrator(const ModelTree& tree, infer::Solver& solver) : tree_(tree), solver_(solver) {
  std::vector<uint32_t> first(tree.facts.size(), kNone);
  for (size_t i = 0; i < tree.log.size(); ++i) {
    const Entry& entry = tree.log[i];
    const bool better = first[entry.fact] == kNone || entry.type == Entry::Type::kRule;
    if (better) first[entry.fact] = static_cast<uint32_t>(i);
  }
  for (uint32_t i = 0; i < tree.facts.size(); ++i) {
    if (!tree.facts[i].id.valid()) continue;
    facts_.emplace(tree.facts[i].id.index, i);
    if (first[i] != kNone) entries_.emplace(tree.facts[i].id.index, first[i]);
  }
}

Speaker Narrator::speaker(FactId fact) const {
  const auto entry = entries_.find(fact.index);
  if (entry == entries_.end() || tree_.log[entry->second].type != Entry::Type::kRule) {
    const infer::Reason said = solver_.fact(fact);
    return {said.text, said.location, kNone};
  }
  const NodeId leaf = tree_.log[entry->second].id;
  const Location& made = tree_.facts[facts_.at(fact.index)].where;
  Speaker out{title(tree_.node(leaf)), tree_.node(leaf).where, leaf};
  if (!out.where.known()) out.where = made;
  const NodeId parent = tree_.node(leaf).parent;
  const bool nested = parent != kNone && tree_.node(parent).parent != kNone;
  if (nested) out.by += " in " + title(tree_.node(parent));
  if (made.known() && made.file == out.where.file && made.line != out.where.line) {
    out.by += fmt::format(" made in line {}", made.line);
  }
  return out;
}

std::string Narrator::limits(EdgeId root) const {
  std::string out = solver_.limits(tree_.edges[root].cell);
  for (auto entry = tree_.log.begin(); entry != tree_.log.end() && out.empty(); ++entry) {
    const bool is_stated = entry->type == Entry::Type::kInterval && tree_.root(entry->id) == root;
    if (is_stated) out = "in " + infer::to_string(*entry->interval);
  }
  return out;
}

std::string Narrator::shown(EdgeId edge) {
  const EdgeId root = tree_.root(edge);
  const Edge& at = tree_.edges[root];
  if (!at.cell.valid()) return "";
  if (side_ != nullptr && solver_.same_cell(side_->cell, at.cell)) {
    return fmt::format("{} : {}", side_->name, side_->text);
  }
  const bool is_tensor = !about_kinds && solver_.kinds(at.cell).is_tensor();
  if (is_tensor) return fmt::format("{} : {}", at.label, solver_.print_shape(at.cell, names_));
  const std::string kinds = infer::to_string(solver_.kinds(at.cell));
  const std::string limited = solver_.kinds(at.cell).is_tensor() ? "" : limits(root);
  return fmt::format("{} : {}{}{}", at.label, kinds, limited.empty() ? "" : " ", limited);
}

namespace {

/// "[N, (V1, ...), 3]" -> its items.
std::vector<std::string> split(const std::string& shape) {
  std::vector<std::string> out;
  int depth = 0;
  for (const char c : shape) {
    if (c == '(' || c == '[') ++depth;
    const bool starts = depth == 1 && (c == '[' || c == ',');
    if (starts) out.emplace_back();
    if (c == ')' || c == ']') --depth;
    if (!starts && c != ' ' && depth > 0 && !out.empty()) out.back() += c;
  }
  if (out.size() == 1 && out.front().empty()) out.clear();
  return out;
}

/// Tells whether all that is shown of a shape stands in the template.
bool says_all(const ShapeTemplate& stated, const std::string& shown) {
  const std::vector<std::string> items = split(shown);
  return std::equal(stated.begin(), stated.end(), items.begin(), items.end(),
                    [](const infer::TemplateItem& item, const std::string& text) {
                      using Type = infer::TemplateItem::Type;
                      if (item.type == Type::kSize) return text == std::to_string(item.size);
                      if (item.type == Type::kVariadic) return text.starts_with('(');
                      const auto part_of_name = [](unsigned char c) {
                        return std::isalnum(c) != 0 || c == '_' || c == '\'';
                      };
                      return !text.empty() &&
                             std::isdigit(static_cast<unsigned char>(text[0])) == 0 &&
                             std::all_of(text.begin(), text.end(), part_of_name);
                    });
}

}  // namespace

bool Narrator::states_all(FactId fact, const Conflict::Side& side) const {
  const auto number = facts_.find(fact.index);
  if (number == facts_.end() || !solver_.kinds(side.cell).is_tensor()) return false;
  return std::any_of(tree_.log.begin(), tree_.log.end(), [&](const Entry& entry) {
    if (entry.type != Entry::Type::kShape || entry.fact != number->second) return false;
    const infer::CellId cell = tree_.edges[tree_.root(entry.id)].cell;
    return cell.valid() && solver_.same_cell(cell, side.cell) && says_all(*entry.shape, side.text);
  });
}

EdgeId Narrator::edge(FactId fact) const {
  const auto found = entries_.find(fact.index);
  if (found == entries_.end()) return kNone;
  const Entry& entry = tree_.log[found->second];
  if (entry.type == Entry::Type::kConstraint) return kNone;  // of several, none foremost
  if (entry.type != Entry::Type::kRule) return tree_.root(entry.id);
  for (const ConnId c : tree_.node(entry.id).conns) {
    if (tree_.conn(c).produced()) return tree_.root(tree_.conn(c).edge);
  }
  return kNone;
}

std::string Narrator::wire(FactId fact) {
  const EdgeId found = edge(fact);
  return found == kNone ? "" : shown(found);
}

std::vector<Error::Fact> Narrator::chain(const std::vector<FactId>& facts, size_t most, int depth) {
  std::vector<Error::Fact> out;
  for (const FactId fact : facts) {
    if (out.size() == most) break;
    const Speaker from = speaker(fact);
    std::string text = wire(fact);
    if (text.empty()) text = from.by;
    Error::Fact line{std::move(text), from.where, from.by, depth};
    if (line.text == line.by) line.by.clear();
    const bool known = std::any_of(out.begin(), out.end(), [&](const Error::Fact& other) {
      return other.text == line.text && other.by == line.by && other.location == line.location;
    });
    if (!known) out.push_back(std::move(line));
  }
  return out;
}

// --- the long form ------------------------------------------------------------------------------

class Explanation {
 public:
  Explanation(const ModelTree& tree, infer::Solver& solver, const FailedCall& call)
      : tree_(tree),
        solver_(solver),
        call_(call),
        narrator_(tree, solver),
        conflict_(solver.conflict()) {}

  void write(Error& error) {
    if (conflict_.sides.empty() && conflict_.said.empty()) return;
    if (call_.where.known()) error.location = call_.where;
    narrator_.about_kinds = error.kind == core::ErrorKind::kDType;
    narrator_.names_ = conflict_.names;
    for (const Conflict::Side& side : conflict_.sides) sides_.push_back(stated(outside(side)));
    if (error.hint.empty()) error.hint = hint_for(error, tree_, solver_, call_, sides_);
    error.facts.clear();
    for (const Conflict::Side& side : sides_) {
      if (!is_mere_result(side)) add_side(error, side);
    }
    if (!conflict_.said.empty()) add_said(error);
    add_reasons(error);
    std::string plain = std::exchange(error.message, header(error.message));
    // Values are in no side's text: the solver's own words tell them.
    const bool told = !error.reasons.empty() || error.message.find(plain) != std::string::npos;
    if (error.kind == core::ErrorKind::kValue && !told) error.reasons.push_back(std::move(plain));
  }

 private:
  FactId here() const { return conflict_.rule.valid() ? conflict_.rule : conflict_.asserted; }

  bool is_of_child(FactId fact) const {
    const NodeId leaf = narrator_.speaker(fact).leaf;
    if (leaf == kNone || call_.child == kNone) return false;
    for (NodeId at = leaf; at != kNone; at = tree_.node(at).parent) {
      if (at == call_.child) return true;
    }
    return false;
  }

  // A key of the child that is as it is by the child's own rule: the wire behind it is the side.
  Conflict::Side outside(const Conflict::Side& side) {
    size_t own = 0;
    std::vector<FactId> facts;
    for (const FactId fact : side.facts) {
      if (fact != here()) facts.push_back(fact);
    }
    while (own < facts.size() && is_of_child(facts[own])) ++own;
    const EdgeId edge = own == 0 || own == facts.size() ? kNone : narrator_.edge(facts[own]);
    if (edge == kNone || !tree_.edges[edge].cell.valid()) return side;
    Conflict::Side out = side;
    out.cell = tree_.edges[edge].cell;
    if (key_of_cell(tree_, solver_, call_.child, out.cell) == kNone) return side;
    const std::string shown = narrator_.shown(edge);
    out.name = tree_.edges[edge].label;
    out.text = shown.substr(std::min(shown.size(), out.name.size() + 3));  // " : "
    out.facts.assign(facts.begin() + static_cast<ptrdiff_t>(own), facts.end());
    return out;
  }

  // A statement that says all that is known of the wire is what it rests on.
  Conflict::Side stated(Conflict::Side side) const {
    const auto found = std::find_if(side.facts.begin(), side.facts.end(), [&](FactId fact) {
      return fact != here() && !narrator_.about_kinds && narrator_.states_all(fact, side);
    });
    if (found != side.facts.end()) side.facts = {*found};
    return side;
  }

  // What an op makes of operands that clash is no side of the clash.
  bool is_mere_result(const Conflict::Side& side) const {
    if (!conflict_.rule.valid() || sides_.size() < 3) return false;
    const NodeId leaf = narrator_.speaker(conflict_.rule).leaf;
    const ConnId key = leaf == kNone ? kNone : key_of_cell(tree_, solver_, leaf, side.cell);
    return key != kNone && tree_.conn(key).produced();
  }

  void add_side(Error& error, const Conflict::Side& side) {
    std::vector<FactId> facts;
    for (const FactId fact : side.facts) {
      if (fact != here()) facts.push_back(fact);
    }
    if (facts.empty()) facts = side.facts;
    Error::Fact line{fmt::format("{} : {}", side.name, side.text), {}, {}, 0};
    if (!facts.empty()) {
      const Speaker from = narrator_.speaker(facts.front());
      line.location = from.where;
      line.by = from.by;
    }
    const std::string text = line.text;
    error.facts.push_back(std::move(line));
    if (facts.size() < 2) return;
    constexpr size_t kMostSteps = 4;
    facts.erase(facts.begin());
    narrator_.side_ = &side;
    for (Error::Fact& step : narrator_.chain(facts, kMostSteps, 1)) {
      const Error::Fact& above = error.facts.back();
      const bool same = step.location == above.location && step.by == above.by;
      if (!same) error.facts.push_back(std::move(step));
    }
  }

  void add_said(Error& error) {
    const infer::Reason said = solver_.fact(conflict_.asserted);
    error.facts.push_back({fmt::format("{} : {}", solver_.name(conflict_.about), conflict_.said),
                           said.location, narrator_.speaker(conflict_.asserted).by, 0});
  }

  void add_reasons(Error& error) {
    if (!conflict_.size_name.empty() && conflict_.sizes.size() == 2) {
      int64_t first = conflict_.sizes[0], second = conflict_.sizes[1];
      const std::string shown = sides_.empty() ? "" : sides_[0].text;
      if (shown.find(std::to_string(first)) == std::string::npos) std::swap(first, second);
      error.reasons.push_back(
          fmt::format("'{}' would have to be {} and {}", conflict_.size_name, first, second));
    }
    const Conflict::Refused& refused = conflict_.refused;
    if (error.kind == core::ErrorKind::kShape && !refused.allowed.empty()) {
      error.reasons.push_back(
          fmt::format("{} must be {}, got {}", refused.size, refused.allowed, refused.got));
    }
    if (!conflict_.rule.valid()) return;
    const Speaker op = narrator_.speaker(conflict_.rule);
    std::string rule = error.message;
    const bool elsewhere = op.where.known() &&
                           (op.where.file != call_.where.file || op.where.line != call_.where.line);
    if (elsewhere) rule += fmt::format("    <- {}, {}", op.by, core::to_string(op.where));
    error.reasons.push_back(std::move(rule));
  }

  static std::string name_of(const Node& node) {
    return node.name.empty() ? node.class_name
                             : fmt::format("'{}' ({})", node.name, node.class_name);
  }

  // Of the children that were put in the one that speaks in the clash, else the last one; of a
  // setter the submodel in which the relation failed.
  NodeId culprit() const {
    const auto submodel = [this](FactId fact) {
      const NodeId leaf = fact.valid() ? narrator_.speaker(fact).leaf : kNone;
      return leaf == kNone ? kNone : submodel_with(tree_, call_.model, leaf);
    };
    const NodeId relation = submodel(conflict_.rule);
    if (call_.child == kNone) return relation;
    std::vector<NodeId> speakers{relation};
    for (const Conflict::Side& side : conflict_.sides) {
      if (!side.facts.empty()) speakers.push_back(submodel(side.facts.front()));
    }
    if (std::find(speakers.begin(), speakers.end(), call_.child) != speakers.end()) {
      return call_.child;
    }
    const auto other = std::find_if(speakers.begin(), speakers.end(), [this](NodeId node) {
      return std::find(call_.placed.begin(), call_.placed.end(), node) != call_.placed.end();
    });
    return other == speakers.end() ? call_.child : *other;
  }

  std::string header(const std::string& message) const {
    const NodeId node = culprit();
    if (node == kNone && conflict_.united) {
      return fmt::format("'{}' and '{}' cannot be one wire", sides_[0].name, sides_[1].name);
    }
    if (node == kNone) {
      if (!conflict_.about.valid() && conflict_.rule.valid() && sides_.size() == 1) {
        return fmt::format("'{}' cannot be {}", sides_[0].name, sides_[0].text);
      }
      if (!conflict_.about.valid()) return message;
      return fmt::format("'{}' cannot be {}", solver_.name(conflict_.about), conflict_.said);
    }
    std::string written;
    for (const Conflict::Side& side : sides_) {
      const ConnId key = key_of_cell(tree_, solver_, node, side.cell);
      if (key == kNone) continue;
      const std::string name = tree_.key(tree_.surviving(tree_.conn(key).outer));
      const std::string wire = name.starts_with('$') ? tree_.key(key) : name;
      if (!tree_.conn(key).produced()) {
        return fmt::format("{} cannot take '{}'", name_of(tree_.node(node)), wire);
      }
      if (written.empty()) written = wire;
    }
    if (!written.empty()) {
      return fmt::format("{} cannot make '{}'", name_of(tree_.node(node)), written);
    }
    if (conflict_.about.valid()) {
      return fmt::format("{} cannot take '{}'", name_of(tree_.node(node)),
                         solver_.name(conflict_.about));
    }
    return fmt::format("{} does not fit: {}", name_of(tree_.node(node)), message);
  }

  const ModelTree& tree_;
  infer::Solver& solver_;
  const FailedCall& call_;
  Narrator narrator_;
  const Conflict& conflict_;
  std::vector<Conflict::Side> sides_;  // as they are seen from outside of the child
};

void explain(Error& error, const ModelTree& tree, infer::Solver& solver, const FailedCall& call) {
  Explanation(tree, solver, call).write(error);
}

void check_inference(ModelTree& tree, const FailedCall& call) {
  core::Status status = tree.infer();
  if (status.ok()) return;
  explain(status.error(), tree, *tree.solver, call);
  check(std::move(status), call.where, tree.path(call.child == kNone ? call.model : call.child));
}

}  // namespace mithril::model
