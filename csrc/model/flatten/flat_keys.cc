// Keys of the inputs and names of the outputs.
#include <algorithm>

#include "model/flatten/flat_model.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

std::vector<ConnId> FlatModel::root_inputs() const {
  std::vector<ConnId> found;
  for (const ConnId c : tree().node(node()).conns) {
    if (tree().conn(c).merged == kNone && !tree().conn(c).produced()) found.push_back(c);
  }
  return found;
}

bool FlatModel::is_trained(EdgeId e) const {
  const Edge& at = tree().edges[e];
  return at.differentiable.value_or(at.trainable) || trainable_.count(e) != 0;
}

ir::Role FlatModel::role(EdgeId e, const Reader* reader, FlatKey& key) {
  const ir::InputDef* input = reader == nullptr ? nullptr : reader->input;
  const bool is_state = input != nullptr && !input->next.empty();
  if (initial_state_.count(e) != 0 || std::any_of(bindings.begin(), bindings.end(),
                                                  [&](const Binding& b) { return b.input == e; })) {
    const auto initial = initial_state_.find(e);
    if (initial != initial_state_.end()) key.initial = initial->second;
    return ir::Role::kState;
  }
  if (data_.count(e) != 0) return ir::Role::kData;
  if (is_state) {
    key.initial = input->first;
    return has_state(reader->leaf) ? ir::Role::kState : ir::Role::kParam;
  }
  if (!is_trained(e) || !key.kinds.meets(infer::kFloating)) return ir::Role::kData;
  key.trainable = true;
  if (tree().edges[e].value) key.initial = tree().edges[e].value;
  if (input != nullptr && input->trainable) key.init = input->init;
  if (reader != nullptr) initialize(e, reader->leaf, key);
  return ir::Role::kParam;
}

void FlatModel::initialize(EdgeId e, NodeId leaf, FlatKey& key) {
  const HostValue* said = key.initial ? nullptr : initializers_.find(leaf, e);
  if (said == nullptr) return;
  if (!said->is_string()) {
    key.initial = *said;
    return;
  }
  const auto& names = ir::Init::kNames;
  const auto found = std::find(names.begin(), names.end(), said->as_string());
  key.init.kind = static_cast<ir::Init::Kind>(found - names.begin());
}

// The fact names the line that reads it; the hint is that line with the name put in.
void FlatModel::refuse_unnamed(EdgeId e, const std::string& name) const {
  core::Error error = core::fail(ErrorKind::kKey, Code::kUnnamedInput,
                                 "the data key '{}' has no name in the model", name);
  for (const ConnId c : root_inputs()) {
    const ConnId reader = tree().conn(c).first_consumer;
    if (edge(c) != e || reader == kNone) continue;
    const Node& node = tree().node(tree().conn(reader).node);
    error.facts.push_back(
        {fmt::format("{} : no name", tree().key(reader)), node.where, title(node), 0});
  }
  raise(std::move(error), options.where);
}

void FlatModel::refuse_initial(const std::string& name) const {
  core::Error error = core::fail(ErrorKind::kValue, Code::kValueArgument,
                                 "'{}' has an initial value, and is not trained", name);
  error.hint = "list it in trainable_keys, mark it as differentiable, or give it as data_keys";
  raise(std::move(error), options.where);
}

std::vector<infer::CellId> FlatModel::tensors_of(EdgeId e) const {
  if (!solver_->kinds(cell(e)).subset_of(infer::kSequence)) return {};
  auto items = solver_->items(cell(e));
  const bool all = items && std::all_of(items->begin(), items->end(), [&](infer::CellId item) {
                     return solver_->kinds(item).is_tensor();
                   });
  return all ? std::move(*items) : std::vector<infer::CellId>();
}

// A list that holds anything else than tensors, or nothing, is none.
std::optional<OutputList> FlatModel::nest(std::string name, infer::CellId at, int depth) const {
  const KindSet kinds = solver_->kinds(at);
  OutputList made{std::move(name), kinds.meets(infer::kListKind), {}};
  if (kinds.is_tensor()) return made;
  if (!kinds.subset_of(infer::kSequence) || depth == HostValue::kMaxDepth) return std::nullopt;
  const auto items = solver_->items(at);
  if (!items || items->empty()) return std::nullopt;
  for (const infer::CellId item : *items) {
    auto part = nest(fmt::format("{}.{}", made.name, made.items.size()), item, depth + 1);
    if (!part) return std::nullopt;
    made.items.push_back(std::move(*part));
  }
  return made;
}

OutputList FlatModel::add_output(const std::string& name, EdgeId e) {
  const auto found = nest(name, cell(e), 0);
  if (!found || found->is_tensor()) return {name, false, {}};
  out.output_lists.push_back(*found);
  return *found;
}

void FlatModel::add_keys(EdgeId e, std::string name, bool named, const std::string& key) {
  const std::vector<infer::CellId> items = tensors_of(e);
  FlatKey made;
  made.key = key;
  for (size_t i = 0; i < items.size(); ++i) {
    made.name = fmt::format("{}.{}", name, i);
    made.list = name;
    add_key(e, items[i], made, named);
  }
  if (!items.empty()) return;
  made.name = std::move(name);
  add_key(e, cell(e), std::move(made), named);
}

void FlatModel::add_key(EdgeId e, infer::CellId at, FlatKey key, bool named) {
  key.kinds = solver_->kinds(at);
  if (const auto given = dtypes.find(e); given != dtypes.end()) key.dtype = given->second;
  const auto reader = readers_.find(e);
  key.role = role(e, reader == readers_.end() ? nullptr : &reader->second, key);
  if (trainable_.count(e) != 0 && !key.trainable) {
    raise(core::fail(ErrorKind::kDType, Code::kDTypeConflict,
                     "trainable_keys: '{}' is {}, and only tensors of floats are trained", key.name,
                     infer::to_string(key.kinds)),
          options.where);
  }
  const bool is_initial = tree().edges[e].value && tree().edges[e].initial;
  if (key.role == ir::Role::kData && is_initial && data_.count(e) == 0) refuse_initial(key.name);
  const auto open = open_kinds_.find(at.index);
  if (key.role == ir::Role::kData && open != open_kinds_.end()) key.open_kinds = open->second;
  if (key.role == ir::Role::kData && !named && options.safe_names) {
    refuse_unnamed(e, key.name);
  }
  if (reader != readers_.end()) {
    key.path = paths.path(reader->second.leaf);
    if (reader->second.input != nullptr) key.path += "." + reader->second.input->name;
  }
  if (options.path_names) key.path = key.name;
  key_of[e] = out.keys.size();
  key_edges.push_back(e);
  key_cells.push_back(at);
  out.keys.push_back(std::move(key));
}

// The key of the first part that a wire of a training model stands for, else the wire itself.
ConnId FlatModel::key_of_part(ConnId wire) const {
  const std::vector<NodeId>& parts = tree().node(node()).children;
  const ConnId reader = tree().conn(wire).first_consumer;
  if (!options.names_of_part || parts.empty() || reader == kNone) return wire;
  const ConnId key = tree().surviving(reader);
  return tree().conn(key).node == parts.front() ? key : wire;
}

// Names of the inputs without a name, by what compile was told, where these are not numbered. Two
// that are the same, or that of a wire: the later one gets "_" in front.
std::unordered_map<ConnId, std::string> FlatModel::names_by_place() {
  std::unordered_map<ConnId, std::string> out_names;
  if (!options.path_names && options.short_names) return out_names;
  if (tree().node(node()).op != nullptr) return out_names;
  std::unordered_set<std::string> taken;
  for (const ConnId c : tree().node(node()).conns) taken.insert(tree().conn(c).name);
  const auto& cins = tree().node(node()).cins;
  const ConnId only_cin = cins.size() == 1 ? cins.begin()->second : kNone;
  for (const ConnId c : root_inputs()) {
    const ConnId key = key_of_part(c);
    if (!tree().conn(key).name.empty() || (options.path_names && c == only_cin)) continue;
    std::string name = name_by_place(key);
    while (!taken.insert(name).second) name.insert(0, 1, '_');
    out_names[c] = std::move(name);
  }
  return out_names;
}

// As the model that has the key would call it, were it compiled alone.
std::string FlatModel::name_by_place(ConnId key) {
  const NodeId part = tree().conn(key).node;
  if (!options.path_names) return paths.long_name(key, part);
  return tree().node(part).op != nullptr ? paths.key_path(part, tree().conn(key).origin, node())
                                         : paths.key_path(key, part);
}

// A constant whose readers were discarded is a mistake; what only a part without outputs reads, or
// nothing, may be given as the model has the key.
void FlatModel::refuse_unread(ConnId c) {
  const std::string said = fmt::format("constant_keys: no output depends on '{}'", tree().key(c));
  if (!options.discard_keys.empty()) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument, "{}", said), options.where);
  }
  out.warnings.push_back({"UnusedKeyWarning", said});
}

void FlatModel::name_keys() {
  std::unordered_map<ConnId, std::string> generated;
  for (auto& [c, name] : names_by_origin(tree(), node())) generated[c] = name;
  if (options.path_names) {
    for (auto& [c, name] : generated_names(tree(), node(), true, false)) generated[c] = name;
  }
  const std::unordered_map<ConnId, std::string> by_place = names_by_place();
  const auto& cins = tree().node(node()).cins;
  std::unordered_set<std::string> taken;
  for (const ConnId c : root_inputs()) {
    const EdgeId e = edge(c);
    if (readers_.count(e) == 0) {
      if (constants_.count(e) != 0) refuse_unread(c);
      continue;
    }
    if (constant(e) != nullptr) continue;
    const bool named = !tree().conn(c).name.empty();
    const auto found = by_place.find(c);
    std::string name = found != by_place.end()                      ? found->second
                       : named || tree().node(node()).op != nullptr ? tree().conn(c).name
                                                                    : generated[c];
    while (taken.count(name) != 0) name.insert(0, 1, '_');
    taken.insert(name);
    const bool is_clear = cins.size() == 1 && c == cins.begin()->second;
    add_keys(e, std::move(name), named || is_clear, tree().key(c));
  }
  // Inputs that only an inner level sees: states bound there, numbered where layers have the same.
  std::vector<const Binding*> inner;
  std::unordered_set<EdgeId> seen;
  std::unordered_map<std::string, size_t> count, number;
  for (const auto& binding : bindings) {
    if (readers_.count(binding.input) == 0 || key_of.count(binding.input) != 0) continue;
    if (!seen.insert(binding.input).second) continue;
    inner.push_back(&binding);
    ++count[tree().edges[binding.input].label];
  }
  for (const Binding* binding : inner) {
    const EdgeId e = binding->input;
    const std::string& label = tree().edges[e].label;
    std::string name = options.path_names  ? paths.key_path(binding->owner, label, node())
                       : count[label] == 1 ? label
                                           : fmt::format("{}_{}", label, number[label]++);
    while (taken.count(name) != 0) name.insert(0, 1, '_');
    taken.insert(name);
    add_keys(e, std::move(name), true, "");
  }
}

}  // namespace mithril::model
