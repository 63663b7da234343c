// Who writes and who reads the wires of a model file, and the kinds of keys that follow.
#include <algorithm>

#include "model/files/build.h"
#include "model/files/usual.h"
#include "model/tree/cycles.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

void ModelBuilder::connect() {
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
    if (tree_.node(made->node).op != nullptr) continue;
    connect_parts(made->node);
    set_origins(*made);
    check_cycles(made->node);
  }
}

void ModelBuilder::connect_parts(NodeId id) {
  for (const NodeId child : tree_.node(id).children) {
    for (const ConnId key : tree_.node(child).conns) {
      const ConnId outer = tree_.conn(key).outer;
      if (outer == kNone) continue;
      Conn& c = tree_.conns[outer];
      if (!tree_.conn(key).produced()) {
        if (c.consumers++ == 0) c.first_consumer = key;
        continue;
      }
      if (c.produced()) {
        refuse(fmt::format("'{}' of {} is written twice", tree_.key(outer), describe(id)),
               ErrorKind::kMultiWrite, Code::kMultiWrite);
      }
      c.producer = key;
    }
  }
}

void ModelBuilder::set_origins(const Made& made) {
  for (const auto& [key, reader] : made.model->readers) {
    const auto& parts = tree_.node(made.node).children;
    if (static_cast<size_t>(reader.first) >= parts.size()) refuse("a reader that is no part");
    const ConnId from = wire(parts[static_cast<size_t>(reader.first)], reader.second);
    const ConnId to = wire(made.node, key);
    if (tree_.conn(from).outer != to) refuse("a reader that does not read");
    tree_.conns[to].first_consumer = from;
  }
  for (const ConnId conn : tree_.node(made.node).conns) {
    Conn& c = tree_.conns[conn];
    c.origin = usual_origin(tree_, c, c.first_consumer);
  }
  for (const auto& [key, origin] : made.model->origins) {
    tree_.conns[wire(made.node, key)].origin = origin;
  }
}

void ModelBuilder::check_cycles(NodeId id) const {
  const std::vector<NodeId>& parts = tree_.node(id).children;
  std::unordered_map<NodeId, size_t> waits;
  std::unordered_map<NodeId, std::vector<NodeId>> readers;
  const auto producer_of = [&](ConnId key) {
    const ConnId outer = tree_.conn(key).produced() ? kNone : tree_.conn(key).outer;
    const bool is_made = outer != kNone && tree_.conn(outer).produced();
    return is_made ? tree_.conn(tree_.conn(outer).producer).node : kNone;
  };
  std::vector<NodeId> ready;
  for (const NodeId part : parts) {
    for (const ConnId key : tree_.node(part).conns) {
      const NodeId producer = producer_of(key);
      if (producer == kNone) continue;
      ++waits[part];
      readers[producer].push_back(part);
    }
    if (waits.count(part) == 0) ready.push_back(part);
  }
  size_t done = 0;
  while (!ready.empty()) {
    const NodeId part = ready.back();
    ready.pop_back();
    ++done;
    for (const NodeId reader : readers[part]) {
      if (--waits[reader] == 0) ready.push_back(reader);
    }
  }
  if (done == parts.size() || !feeds_itself(tree_, tree_.node(id).conns)) return;
  refuse(fmt::format("the wiring of {} has a cycle", describe(id)), ErrorKind::kCycle,
         Code::kCycle);
}

// --- kinds of keys ------------------------------------------------------------------------------

void ModelBuilder::finish_models() {
  for (auto made = made_.rbegin(); made != made_.rend(); ++made) {
    set_kinds_of_keys(*made);
    if (made->model != nullptr) {
      set_edges(*made);
      bind_states(*made);
    }
  }
  for (const Made& made : made_) {
    if (made.part != nullptr) check_connected(made.node);
    for (const ConnId conn : tree_.node(made.node).conns) {
      const Conn& c = tree_.conn(conn);
      Edge& edge = tree_.edges[c.edge];
      if (c.outer == kNone && edge.label.empty()) edge.label = usual_label(c);
    }
  }
}

void ModelBuilder::set_kinds_of_keys(const Made& made) {
  const auto expose = [&](Name key) {
    const ConnId conn = wire(made.node, key);
    if (!tree_.conn(conn).produced()) {
      refuse(fmt::format("'{}' of {} is no output: nothing writes it", key, describe(made.node)));
    }
    tree_.expose(conn);
  };
  if (made.model == nullptr) {
    set_canonical(made.node, made.part->cins ? &*made.part->cins : nullptr, true);
    set_canonical(made.node, made.part->couts ? &*made.part->couts : nullptr, false);
    return;
  }
  for (const Name key : made.model->outputs) expose(key);
  for (const Name key : made.model->latent) {
    const ConnId conn = wire(made.node, key);
    if (tree_.conn(conn).produced()) refuse(fmt::format("'{}' is no input", key));
    tree_.conns[conn].latent = true;
  }
  set_canonical(made.node, &made.model->cins, true);
  set_canonical(made.node, &made.model->couts, false);
}

// Null: the usual ones of an op, whose values are not known yet, so that they come later.
void ModelBuilder::set_canonical(NodeId id, const std::vector<Name>* names, bool inputs) {
  if (names == nullptr) return;
  for (const Name name : *names) {
    const ConnId conn = wire(id, name);
    if (tree_.conn(conn).produced() == inputs) {
      refuse(fmt::format("'{}' cannot be a canonical {}", name, inputs ? "input" : "output"));
    }
    inputs ? tree_.add_cin(conn) : tree_.add_cout(conn);
  }
}

void ModelBuilder::set_edges(const Made& made) {
  const auto edge = [&](Name key) -> Edge& {
    const ConnId conn = wire(made.node, key);
    if (tree_.conn(conn).outer != kNone) {
      refuse(fmt::format("what is known of '{}' stands with an outer model", key));
    }
    return tree_.edges[tree_.conn(conn).edge];
  };
  const auto state = [&](Name key, std::optional<bool> differentiable, const HostValue* initial) {
    const uint32_t fact = tree_.new_fact(where_, "load");
    tree_.statements.push_back({wire(made.node, key), fact, differentiable,
                                initial ? std::make_shared<const HostValue>(*initial) : nullptr});
    return fact;
  };
  for (const auto& [key, is_differentiable] : made.model->differentiable) {
    edge(key).differentiable = is_differentiable;
    edge(key).differentiable_fact = state(key, is_differentiable, nullptr);
  }
  for (const auto& [key, value] : made.model->initial) {
    edge(key).value = value;
    edge(key).initial = true;
    edge(key).value_fact = state(key, {}, &value);
  }
  for (const auto& [key, label] : made.model->labels) edge(key).label = label;
}

ConnId ModelBuilder::outermost(ConnId conn) const {
  while (tree_.conn(conn).outer != kNone) conn = tree_.conn(conn).outer;
  return conn;
}

void ModelBuilder::bind_states(const Made& made) {
  for (const StateRecord& record : made.model->states) {
    const ConnId input = wire(made.node, record.input), output = wire(made.node, record.output);
    if (tree_.conn(input).produced() || !tree_.conn(output).produced()) {
      refuse(fmt::format("state goes from a computed wire to an input, not from '{}' to '{}'",
                         record.output, record.input));
    }
    for (const State& state : tree_.node(made.node).states) {
      if (state.input == input || state.output == output) refuse("state is bound twice");
    }
    tree_.node(made.node).states.push_back({input, output, record.initial});
    next_[outermost(input)] = outermost(output);
  }
}

void ModelBuilder::check_connected(NodeId id) const {
  for (const ConnId c : tree_.externals(id)) {
    if (tree_.conn(c).outer != kNone) continue;
    refuse(fmt::format("'{}' of {} is not connected", tree_.key(c), describe(id)));
  }
}

}  // namespace mithril::model
