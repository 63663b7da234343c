// A model's tree as JSON. Order is that of creation everywhere, so that a change of the model
// changes the lines about it and no others.
#include "model/files/write.h"

#include <algorithm>

#include "model/files/serialize.h"
#include "model/files/usual.h"
#include "model/files/value.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

namespace {

class TreeWriter {
 public:
  TreeWriter(const ModelTree& tree, NodeId top) : tree_(tree), index_(tree, top), log_(index_) {}
  std::string write(bool history, std::string_view training);

 private:
  void write_model(NodeId id);
  void write_leaf(NodeId id);
  void write_initializers(NodeId id);
  void write_wires(NodeId id);
  void write_sets(NodeId id);
  void write_origins(NodeId id);
  void write_edges(NodeId id);
  void write_states(NodeId id);
  void write_child(NodeId id);
  void write_child_keys(NodeId id);

  void text(std::string_view key, const std::string& value, std::string_view usual = "") {
    write_text(out_, key, value, usual);
  }
  template <class Conns>
  void keys(std::string_view key, const Conns& conns);

  const ModelTree& tree_;
  const FileIndex index_;
  const FileLog log_;
  core::JsonWriter out_;
  FactWriter facts_{out_, index_, log_};
};

std::string TreeWriter::write(bool history, std::string_view training) {
  out_.begin_object();
  text("format", "mithril-model");
  text("version", fmt::format("{}.{}", kFileMajor, kFileMinor));
  out_.key("model");
  write_model(index_.top);
  out_.key("submodels");
  out_.begin_object();
  for (const NodeId id : index_.order) {
    if (id == index_.top || tree_.node(id).op != nullptr) continue;
    out_.key(index_.ids.at(id));
    write_model(id);
  }
  out_.end_object();
  facts_.write_calls();
  if (!training.empty()) {
    out_.key("training");
    core::JsonReader in(training, "training");
    core::copy_value(in, out_);
    in.finish();
    in.status().or_throw();
  }
  if (history) write_history(out_, index_, log_);
  out_.end_object();
  return out_.take();
}

template <class Conns>
void TreeWriter::keys(std::string_view key, const Conns& conns) {
  out_.key(key);
  out_.begin_array();
  for (const ConnId c : conns) out_.string(tree_.key(c));
  out_.end_array();
}

std::vector<ConnId> members(const ConnSet& set) {
  std::vector<ConnId> out;
  for (const auto& [sequence, conn] : set) out.push_back(conn);
  return out;
}

void TreeWriter::write_model(NodeId id) {
  const Node& node = tree_.node(id);
  out_.begin_object();
  text("name", node.name);
  text("class", node.class_name, usual_class(node.op));
  if (id == index_.top && node.op == nullptr && node.frozen) {
    out_.key("frozen");
    out_.boolean(true);
  }
  if (node.op != nullptr) write_leaf(id);
  write_initializers(id);
  write_wires(id);
  write_sets(id);
  if (node.op == nullptr) write_origins(id);
  write_edges(id);
  write_states(id);
  if (node.op == nullptr) {
    out_.key("parts");
    out_.begin_array();
    for (const NodeId child : node.children) write_child(child);
    out_.end_array();
  }
  out_.end_object();
}

void TreeWriter::write_initializers(NodeId id) {
  const std::vector<Initializer>& all = tree_.node(id).initializers;
  if (all.empty()) return;
  out_.key("initializers");
  out_.begin_object();
  for (const Initializer& initializer : all) {
    out_.key(initializer.pattern);
    write_value(out_, initializer.value, "an initializer");
  }
  out_.end_object();
}

void TreeWriter::write_wires(NodeId id) {
  const Node& node = tree_.node(id);
  const std::vector<ConnId> conns = index_.wires(id);
  keys("wires", conns);
  uint32_t last = 0;
  for (const ConnId c : conns) {
    if (tree_.conn(c).name.empty()) last = std::max(last, tree_.conn(c).number);
  }
  if (last == node.numbered.size()) return;
  out_.key("numbered");
  out_.integer(static_cast<int64_t>(node.numbered.size()));
}

void TreeWriter::write_sets(NodeId id) {
  const Node& node = tree_.node(id);
  std::vector<ConnId> latent;
  for (const ConnId c : index_.wires(id)) {
    if (tree_.conn(c).latent) latent.push_back(c);
  }
  keys("outputs", node.outputs);
  keys("cins", members(node.cins));
  keys("couts", members(node.couts));
  if (!latent.empty()) keys("latent", latent);
}

// Which key reads a wire first, and the innermost name: as submodels in their order make them.
void TreeWriter::write_origins(NodeId id) {
  std::unordered_map<ConnId, std::pair<size_t, ConnId>> readers;
  const Node& node = tree_.node(id);
  for (size_t i = 0; i < node.children.size(); ++i) {
    for (const ConnId c : index_.wires(node.children[i])) {
      const ConnId outer = tree_.surviving(tree_.conn(c).outer);
      if (outer != kNone && !tree_.conn(c).produced()) readers.emplace(outer, std::pair(i, c));
    }
  }
  bool any = false;
  const auto each = [&](std::string_view key, auto is_unusual, auto write) {
    any = false;
    for (const ConnId c : index_.wires(id)) {
      const auto found = readers.find(c);
      const ConnId reader = found == readers.end() ? kNone : found->second.second;
      if (!is_unusual(tree_.conn(c), reader)) continue;
      if (!any) {
        out_.key(key);
        out_.begin_object();
      }
      any = true;
      out_.key(tree_.key(c));
      write(tree_.conn(c));
    }
    if (any) out_.end_object();
  };
  each(
      "origins",
      [&](const Conn& c, ConnId reader) { return c.origin != usual_origin(tree_, c, reader); },
      [&](const Conn& c) { out_.string(c.origin); });
  each(
      "readers",
      [&](const Conn& c, ConnId reader) {
        return c.first_consumer != kNone && tree_.surviving(c.first_consumer) != reader;
      },
      [&](const Conn& c) {
        const ConnId reader = tree_.surviving(c.first_consumer);
        const auto& siblings = node.children;
        const auto part = std::find(siblings.begin(), siblings.end(), tree_.conn(reader).node);
        out_.begin_array(true);
        out_.integer(part - siblings.begin());
        out_.string(tree_.key(reader));
        out_.end_array();
      });
}

// What is known of a wire through all levels stands with the outermost model that sees it.
void TreeWriter::write_edges(NodeId id) {
  const auto each = [&](std::string_view key, auto is_wanted, auto write) {
    bool any = false;
    for (const ConnId c : index_.wires(id)) {
      const Edge& edge = tree_.edge_of(c);
      if (index_.wire(tree_.conn(c).edge) != c || !is_wanted(edge, c)) continue;
      if (!any) {
        out_.key(key);
        out_.begin_object();
      }
      any = true;
      out_.key(tree_.key(c));
      write(edge);
    }
    if (any) out_.end_object();
  };
  each(
      "differentiable", [](const Edge& e, ConnId) { return e.differentiable.has_value(); },
      [&](const Edge& e) { out_.boolean(*e.differentiable); });
  each(
      "initial", [](const Edge& e, ConnId) { return e.value && e.initial; },
      [&](const Edge& e) { write_value(out_, *e.value, fmt::format("wire '{}'", e.label)); });
  each(
      "labels", [&](const Edge& e, ConnId c) { return e.label != usual_label(tree_.conn(c)); },
      [&](const Edge& e) { out_.string(e.label); });
}

void TreeWriter::write_states(NodeId id) {
  const Node& node = tree_.node(id);
  if (node.states.empty()) return;
  out_.key("states");
  out_.begin_array();
  for (const State& state : node.states) {
    out_.begin_object();
    text("input", tree_.key(tree_.surviving(state.input)));
    text("output", tree_.key(tree_.surviving(state.output)));
    if (state.initial) {
      out_.key("initial");
      write_value(out_, *state.initial, "a state");
    }
    out_.end_object();
  }
  out_.end_array();
}

void TreeWriter::write_child(NodeId id) {
  const Node& node = tree_.node(id);
  out_.begin_object();
  if (node.op == nullptr) {
    text("model", index_.ids.at(id));
    write_child_keys(id);
  } else {
    text("name", node.name);
    write_leaf(id);
    write_initializers(id);
    write_child_keys(id);
    const std::vector<ConnId> cins = members(node.cins), couts = members(node.couts);
    if (cins != usual_cins(tree_, id)) keys("cins", cins);
    if (couts != usual_couts(tree_, id)) keys("couts", couts);
  }
  out_.end_object();
}

void TreeWriter::write_leaf(NodeId id) {
  const Node& node = tree_.node(id);
  if (node.op->family == "opaque") {
    core::Error error =
        core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                   "{} calls a function of this process, and no file can hold that", title(node));
    error.hint =
        "give the function a name on the backends (register_function) and write"
        " ml.Lambda(\"name\", ...)";
    raise(std::move(error));
  }
  text("op", node.op->name);
  text("class", node.class_name, usual_class(node.op));
  if (!node.attrs.empty()) {
    out_.key("attrs");
    out_.begin_object();
    for (const auto& [name, value] : node.attrs) {
      out_.key(name);
      write_value(out_, value, fmt::format("'{}' of {}", name, title(node)));
    }
    out_.end_object();
  }
  if (node.variadic >= 0) {
    out_.key("items");
    out_.integer(node.variadic);
  }
  facts_.write_op(id);
}

void TreeWriter::write_child_keys(NodeId id) {
  out_.key("wires");
  out_.begin_object();
  for (const ConnId c : index_.wires(id)) {
    const ConnId outer = tree_.surviving(tree_.conn(c).outer);
    if (outer == kNone && tree_.node(id).op == nullptr) continue;
    out_.key(tree_.key(c));
    outer == kNone ? out_.null() : out_.string(tree_.key(outer));
  }
  out_.end_object();
}

}  // namespace

std::string to_json(const Model& model, bool history, std::string_view training) {
  const Access::At at = Access::at(model);
  if (at.get().parent != kNone) {
    core::Error error =
        core::fail(ErrorKind::kValue, Code::kValueArgument,
                   "{} is a submodel, and files hold whole models", title(at.get()));
    error.hint = "write the outermost model";
    raise(std::move(error));
  }
  model.solve();
  return TreeWriter(at.tree(), at.node).write(history, training);
}

}  // namespace mithril::model
