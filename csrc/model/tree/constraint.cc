// Relations over wires that users state: kept with their model, played into its solver.
#include <algorithm>
#include <exception>

#include "infer/relation.h"
#include "model/tree/tree.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

namespace {

std::exception_ptr& thrown() {
  thread_local std::exception_ptr pointer;
  return pointer;
}

// Terms: the keys, the own flag, the flags of those that finish first.
infer::RelationFunction gated(infer::RelationFunction relate, int keys, int gates) {
  return [relate = std::move(relate), keys, gates](infer::Relation& relation) -> core::Status {
    for (int i = 0; i < gates; ++i) {
      if (!relation.value(keys + 1 + i)) return {};
    }
    MITHRIL_RETURN_IF_ERROR(run_guarded(relate, relation));
    if (!relation.finished()) return {};
    return relation.set_value(keys, HostValue(true));
  };
}

// What errors call the terms; each name once.
std::vector<std::string> term_names(const ModelTree& tree, const std::vector<ConnId>& keys,
                                    size_t gates) {
  std::vector<std::string> names;
  const auto add = [&names](std::string name) {
    while (std::find(names.begin(), names.end(), name) != names.end()) name += '\'';
    names.push_back(std::move(name));
  };
  for (const ConnId key : keys) add(tree.key(key));
  for (size_t i = 0; i <= gates; ++i) add("finished");
  return names;
}

std::shared_ptr<const UserConstraint::Body> make_body(const ModelTree& tree,
                                                      const UserConstraint& constraint,
                                                      infer::RelationFunction relate) {
  auto body = std::make_shared<UserConstraint::Body>();
  body->names = term_names(tree, constraint.keys, constraint.after.size());
  const auto function = gated(std::move(relate), static_cast<int>(constraint.keys.size()),
                              static_cast<int>(constraint.after.size()));
  body->rule = [names = body->names, function](infer::RuleBuilder& rule) {
    std::vector<infer::Term> terms_of;
    for (const std::string& name : names) terms_of.push_back(rule.in(name));
    rule.custom(terms_of, function);
  };
  return body;
}

void check_constraint(const Node& node, const Constraint& constraint, const Location& where) {
  if (constraint.keys.empty()) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                     "add_constraint: requires one key or more"),
          where);
  }
  if (std::max(constraint.keys.size(), constraint.after.size()) > kMostConstraintKeys) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                     "add_constraint: requires at most {} keys and dependencies, got {} and {}",
                     kMostConstraintKeys, constraint.keys.size(), constraint.after.size()),
          where);
  }
  for (const uint32_t number : constraint.after) {
    if (number < node.constraints.size()) continue;
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                     "add_constraint: a dependency is no constraint of {}", title(node)),
          where);
  }
}

}  // namespace

core::Status run_guarded(const infer::RelationFunction& relate, infer::Relation& relation) {
  try {
    return relate(relation);
  } catch (...) {
    thrown() = std::current_exception();
    return core::fail(ErrorKind::kValue, Code::kValueArgument, "a constraint has failed");
  }
}

void rethrow_thrown() {
  if (thrown()) std::rethrow_exception(std::exchange(thrown(), nullptr));
}

uint32_t Model::add_constraint(Constraint constraint, Location where) {
  const Access::At at = Access::at(*this);
  ModelTree& tree = at.tree();
  check_constraint(at.get(), constraint, where);
  Transaction transaction(tree);
  UserConstraint added;
  for (const KeyRef& key : constraint.keys) {
    added.keys.push_back(resolve(at, key, where));
    added.edges.push_back(tree.root(tree.conn(added.keys.back()).edge));
  }
  added.name = std::move(constraint.name);
  added.after = std::move(constraint.after);
  const uint32_t number =
      tree.state_constraint(at.node, std::move(added), std::move(constraint.relate),
                            tree.new_fact(where, "add_constraint"));
  check(tree.infer(), where, tree.path(at.node));
  transaction.commit();
  return number;
}

std::vector<Model::ConstraintEntry> Model::constraints() const {
  const Access::At at = Access::at(*this);
  std::vector<ConstraintEntry> out;
  for (const UserConstraint& constraint : at.get().constraints) {
    ConstraintEntry& entry = out.emplace_back();
    entry.name = constraint.name;
    entry.after = constraint.after;
    for (const ConnId c : constraint.keys) {
      entry.keys.push_back(at.tree().key(at.tree().surviving(c)));
    }
  }
  return out;
}

uint32_t ModelTree::state_constraint(NodeId node, UserConstraint constraint,
                                     infer::RelationFunction relate, uint32_t fact) {
  constraint.finished = new_edge();
  constraint.body = make_body(*this, constraint, std::move(relate));
  save_node(node);
  const auto number = static_cast<uint32_t>(nodes[node].constraints.size());
  nodes[node].constraints.push_back(std::move(constraint));
  Entry entry;
  entry.type = Entry::Type::kConstraint;
  entry.id = node;
  entry.other = number;
  entry.fact = fact;
  log.push_back(std::move(entry));
  return number;
}

core::Status ModelTree::play_constraint(const Entry& entry) {
  const Node& n = nodes[entry.id];
  const UserConstraint& constraint = n.constraints[entry.other];
  std::vector<EdgeId> terms = constraint.edges;
  terms.push_back(constraint.finished);
  for (const uint32_t number : constraint.after) terms.push_back(n.constraints[number].finished);
  std::vector<infer::Binding> bindings;
  for (size_t i = 0; i < terms.size(); ++i) {
    bindings.push_back({constraint.body->names[i], cell(terms[i]), nullptr});
  }
  return solver->add_rule("add_constraint", constraint.body->rule, bindings, fact_id(entry.fact));
}

}  // namespace mithril::model
