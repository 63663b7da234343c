#include "model/summary.h"

#include <algorithm>
#include <unordered_map>

#include "model/tree/naming.h"
#include "model/tree/tree.h"

namespace mithril::model {

namespace {

// Types as Python writes them: "Tensor[int | float]", "int | None".
std::string type_text(KindSet kinds) {
  using infer::ValueKind;
  static constexpr std::pair<ValueKind, const char*> kTensors[] = {
      {ValueKind::kTensorInt, "int"},
      {ValueKind::kTensorFloat, "float"},
      {ValueKind::kTensorBool, "bool"}};
  static constexpr std::pair<ValueKind, const char*> kOthers[] = {
      {ValueKind::kInt, "int"},           {ValueKind::kFloat, "float"},
      {ValueKind::kBool, "bool"},         {ValueKind::kStr, "str"},
      {ValueKind::kTuple, "tuple"},       {ValueKind::kList, "list"},
      {ValueKind::kSlice, "slice"},       {ValueKind::kEllipsis, "..."},
      {ValueKind::kDType, "Dtype"},       {ValueKind::kPaddingType, "PaddingType"},
      {ValueKind::kConstant, "Constant"}, {ValueKind::kDict, "dict"},
      {ValueKind::kOpaque, "object"},     {ValueKind::kNone, "None"}};
  if (kinds == infer::kAny) return "Any";
  std::string out;
  const auto add = [](std::string& text, const char* word) {
    text += (text.empty() ? "" : " | ") + std::string(word);
  };
  std::string elements;
  for (const auto& [kind, word] : kTensors) {
    if (kinds.has(kind)) add(elements, word);
  }
  if (!elements.empty()) out = "Tensor[" + elements + "]";
  for (const auto& [kind, word] : kOthers) {
    if (kinds.has(kind)) add(out, word);
  }
  return out;
}

std::vector<std::string> shape_text(const std::vector<ShapeItem>& shape, bool symbolic) {
  std::vector<std::string> out;
  for (const ShapeItem& item : shape) {
    switch (item.type) {
      case ShapeItem::Type::kSize: out.push_back(std::to_string(item.size)); break;
      case ShapeItem::Type::kSymbol: out.push_back(symbolic ? item.name : "None"); break;
      case ShapeItem::Type::kVariadic:
        out.push_back(symbolic ? fmt::format("({}, ...)", item.name) : "...");
        break;
    }
  }
  return out;
}

/// Rows of one model's table.
class Summarizer {
 public:
  Summarizer(const Model& model, const SummaryOptions& options, infer::ShapeNames& names)
      : model_(model), options_(options), shown_(names), at_(Access::at(model)) {
    const std::vector<std::string> children = tree().child_names(at_.node);
    for (size_t i = 0; i < children.size(); ++i) {
      names_[tree().node(at_.node).children[i]] = children[i];
    }
    for (auto& [conn, name] : generated_names(tree(), at_.node, true, true)) {
      generated_[conn] = name;
    }
    for (const NodeId child : tree().node(at_.node).children) {
      for (const ConnId c : tree().node(child).conns) {
        const ConnId wire = tree().surviving(tree().conn(c).outer);
        if (wire != kNone && !tree().conn(c).produced()) readers_[wire].push_back(c);
      }
    }
  }

  SummaryTable table(std::string title) {
    SummaryTable out;
    out.title = std::move(title);
    std::vector<NodeId> order = tree().topological(at_.node);
    if (tree().node(at_.node).op != nullptr) order = {at_.node};
    for (const NodeId child : order) {
      SummaryBlock block;
      block.name = child == at_.node ? out.title : names_[child];
      for (const ConnId c : tree().externals(child)) block.rows.push_back(row(c));
      out.blocks.push_back(std::move(block));
    }
    return out;
  }

 private:
  const ModelTree& tree() const { return at_.tree(); }

  SummaryRow row(ConnId key) {
    SummaryRow out;
    out.key = tree().key(key);
    out.is_output = tree().conn(key).produced();
    const KeyRef wire(Access::connection(at_.home, key));
    const auto shapes = model_.shapes(wire, shown_);
    if (!shapes.empty()) out.shape = shape_text(shapes[0], options_.symbolic);
    out.type = type_text(model_.kinds(wire));
    out.connections = connections(key);
    return out;
  }

  std::string link(ConnId key) { return names_[tree().conn(key).node] + "." + tree().key(key); }

  std::vector<std::string> connections(ConnId key) {
    const ConnId wire = tree().surviving(tree().conn(key).outer);
    if (wire == kNone || key == wire) return {};
    const Conn& c = tree().conn(wire);
    std::vector<std::string> out;
    if (tree().conn(key).produced()) {
      for (const ConnId reader : readers_[wire]) out.push_back(link(reader));
      if (out.empty() && !c.name.empty()) out.push_back("'" + c.name + "'");
      return out;
    }
    if (c.produced()) return {link(c.producer)};
    if (const auto& value = tree().edge_of(wire).value) return {core::to_string(*value)};
    return {c.name.empty() ? "'$" + generated_[wire] + "'" : "'" + c.name + "'"};
  }

  const Model& model_;
  const SummaryOptions& options_;
  infer::ShapeNames& shown_;
  Access::At at_;
  std::unordered_map<NodeId, std::string> names_;
  std::unordered_map<ConnId, std::string> generated_;
  std::unordered_map<ConnId, std::vector<ConnId>> readers_;
};

}  // namespace

std::vector<SummaryTable> summarize(const Model& model, const SummaryOptions& options) {
  model.solve();
  infer::ShapeNames names;
  std::string title = options.title.empty() ? model.name() : options.title;
  if (title.empty()) title = model.class_name();
  std::vector<SummaryTable> out{Summarizer(model, options, names).table(std::move(title))};
  std::vector<Model> level{model};
  for (int depth = 0; depth < options.depth && !level.empty(); ++depth) {
    std::vector<Model> next;
    for (const Model& parent : level) {
      const std::vector<Model> children = parent.submodels();
      const std::vector<std::string> child_names = parent.submodel_names();
      for (size_t i = 0; i < children.size(); ++i) {
        if (children[i].is_leaf()) continue;
        out.push_back(Summarizer(children[i], options, names).table(child_names[i]));
        next.push_back(children[i]);
      }
    }
    level = std::move(next);
  }
  return out;
}

}  // namespace mithril::model
