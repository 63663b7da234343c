#include "model/flatten/flatten_keys.h"

#include <algorithm>
#include <bit>

#include "infer/rule.h"
#include "model/explain/explain.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

FlatModel::FlatModel(Access::At at, const FlattenOptions& flatten_options, FlatGraph& result)
    : options(flatten_options), out(result), paths(at.arena()), at_(std::move(at)) {
  solver_ =
      std::make_unique<infer::Solver>(arena().solver ? arena().solver->clone() : infer::Solver());
}

// --- options ------------------------------------------------------------------------------------

ConnId FlatModel::option_key(const KeyRef& key, std::string_view what, bool must_exist) {
  if (key.wire) return resolve(at_, key, options.where);
  if (key.name.starts_with('$')) {
    raise(core::fail(ErrorKind::kKey, Code::kKeyUnknown,
                     "{}: '{}' is a generated name: give the connection, or name the key", what,
                     key.name),
          options.where);
  }
  ConnId conn = arena().find(node(), key.name);
  if (conn == kNone) {
    if (generated_.empty()) {
      for (auto& [c, name] : generated_names(arena(), node(), false, false)) generated_[name] = c;
      for (auto& [c, name] : names_by_origin(arena(), node())) generated_[name] = c;
      for (auto& [c, name] : names_by_place()) generated_[name] = c;
    }
    const auto found = generated_.find(key.name);
    if (found != generated_.end()) conn = found->second;
  }
  if (conn == kNone && must_exist) {
    raise(core::fail(ErrorKind::kKey, Code::kKeyUnknown, "{}: the model has no key '{}'{}", what,
                     key.name, core::suggestion(key.name, arena().key_names(node()))),
          options.where);
  }
  return conn;
}

std::unordered_set<EdgeId> FlatModel::option_edges(const std::vector<KeyRef>& keys,
                                                   std::string_view what) {
  std::unordered_set<EdgeId> edges;
  for (const KeyRef& key : keys) {
    const ConnId conn = option_key(key, what, true);
    if (arena().conn(conn).produced()) {
      raise(core::fail(ErrorKind::kKey, Code::kKeyUnknown, "{}: '{}' is not an input of the model",
                       what, arena().key(conn)),
            options.where);
    }
    edges.insert(edge(conn));
  }
  return edges;
}

void FlatModel::refuse_overlap() {
  const auto clash = [&](EdgeId e, std::string_view a, std::string_view b) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument, "'{}' is in {} and in {}",
                     arena().edges[e].label, a, b),
          options.where);
  };
  for (const EdgeId e : trainable_) {
    if (data_.count(e) != 0) clash(e, "trainable_keys", "data_keys");
    if (constants_.count(e) != 0) clash(e, "trainable_keys", "constant_keys");
    const Edge& at = arena().edges[e];
    if (at.value && !at.initial) {
      raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                       "trainable_keys: '{}' has a fixed value", at.label),
            options.where);
    }
  }
  for (const auto& [e, value] : constants_) {
    if (data_.count(e) != 0) clash(e, "constant_keys", "data_keys");
  }
}

void FlatModel::read_options() {
  for (const KeyRef& key : options.data_keys) {
    const ConnId conn = option_key(key, "data_keys", options.strict);
    if (conn == kNone) {
      const std::string hint = core::suggestion(key.name, arena().key_names(node()));
      out.warnings.push_back(
          {"UnusedKeyWarning",
           fmt::format("data_keys: the model has no key '{}'{}", key.name, hint)});
      out.ignored_keys.push_back(key.name);
      continue;
    }
    data_.merge(option_edges({key}, "data_keys"));
  }
  trainable_ = option_edges(options.trainable_keys, "trainable_keys");
  for (const auto& [key, value] : options.constants) {
    const EdgeId e = *option_edges({key}, "constant_keys").begin();
    if (arena().edges[e].value && !arena().edges[e].initial) {
      raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                       "constant_keys: '{}' has a value already", arena().edges[e].label),
            options.where);
    }
    constants_[e] = value;
  }
  for (const KeyRef& key : options.discard_keys) {
    const ConnId conn = option_key(key, "discard_keys", true);
    const KeyKind kind = arena().kind(conn);
    const bool is_cout = arena().conn(conn).cout != kNone;
    if (kind != KeyKind::kInput && kind != KeyKind::kOutput && !is_cout) {
      raise(core::fail(ErrorKind::kKey, Code::kKeyUnknown,
                       "discard_keys: '{}' is neither an input nor an output", arena().key(conn)),
            options.where);
    }
    discard_.insert(edge(conn));
  }
  refuse_overlap();
  for (const auto& [key, value] : options.values) {
    constants_[edge(option_key(key, "values", true))] = value;
  }
}

namespace {
// A loss compares like with like: nothing is broadcast silently.
const infer::Rule kSafeShapes = [](infer::RuleBuilder& rule) {
  rule.shape(rule.in("input"), "n ...");
  rule.same_shape(rule.in("input"), rule.in("target"));
};

// A number is like everything.
bool is_number(const HostValue* value) {
  return value != nullptr && (value->is_bool() || value->is_int() || value->is_double());
}

bool wants_safe_shapes(const Node& leaf) {
  const HostValue* safe = leaf.attrs.find("safe_shapes");
  return safe != nullptr && safe->is_bool() && safe->as_bool() && leaf.op->is_elementwise();
}
}  // namespace

core::Status FlatModel::explained(core::Status status) const {
  if (!status.ok()) explain(status.error(), arena(), *solver_, {node(), kNone, options.where});
  return status;
}

core::Status FlatModel::assert_facts() {
  const infer::FactId fact = solver_->new_fact(options.where, "compile");
  const infer::ScopeId scope = solver_->new_scope();
  for (const auto& [key, shape] : options.shapes) {
    const ConnId conn = option_key(key, "shapes", true);
    MITHRIL_RETURN_IF_ERROR(solver_->assert_shape(cell(edge(conn)), shape, scope, fact));
  }
  for (const auto& [key, item, shape] : options.item_shapes) {
    const std::vector<infer::CellId> items = tensors_of(edge(option_key(key, "shapes", true)));
    if (item >= items.size()) continue;
    MITHRIL_RETURN_IF_ERROR(solver_->assert_shape(items[item], shape, scope, fact));
  }
  for (const auto& [key, type] : options.types) {
    const ConnId conn = option_key(key, "types", true);
    MITHRIL_RETURN_IF_ERROR(solver_->assert_type(cell(edge(conn)), type, fact));
  }
  for (const auto& [key, dtype] : options.dtypes) {
    const ConnId conn = option_key(key, "types", true);
    if (arena().kind(conn) != KeyKind::kInput) {
      raise(core::fail(ErrorKind::kValue, Code::kValueArgument,
                       "types: '{}' is no input, its width follows from those of the inputs",
                       arena().key(conn)),
            options.where);
    }
    dtypes[edge(conn)] = dtype;
    const infer::KindSet kind = infer::tensor_of(core::kind(dtype));
    MITHRIL_RETURN_IF_ERROR(solver_->assert_kind(cell(edge(conn)), kind, fact));
  }
  for (const auto& [key, value] : options.constants) {
    const ConnId conn = option_key(key, "constant_keys", true);
    MITHRIL_RETURN_IF_ERROR(solver_->assert_value(cell(edge(conn)), value, fact));
  }
  for (const auto& [key, value] : options.values) {
    const ConnId conn = option_key(key, "values", true);
    MITHRIL_RETURN_IF_ERROR(solver_->assert_value(cell(edge(conn)), value, fact));
  }
  for (const FlatLeaf& leaf : leaves) {
    const Node& n = arena().node(leaf.node);
    if (!options.safe_shapes || !wants_safe_shapes(n)) continue;
    const EdgeId input = edge(arena().find(leaf.node, "input"));
    const EdgeId target = edge(arena().find(leaf.node, "target"));
    if (is_number(constant(input)) || is_number(constant(target))) continue;
    const infer::Binding names[] = {{"input", cell(input), nullptr},
                                    {"target", cell(target), nullptr}};
    MITHRIL_RETURN_IF_ERROR(solver_->add_rule(n.op->name, kSafeShapes, names, fact));
  }
  return solver_->propagate();
}

// --- what is needed -----------------------------------------------------------------------------

std::vector<NodeId> FlatModel::all_leaves() const {
  std::vector<NodeId> leaves_found, stack{node()};
  while (!stack.empty()) {
    const NodeId at = stack.back();
    stack.pop_back();
    const Node& n = arena().node(at);
    if (n.op != nullptr) leaves_found.push_back(at);
    stack.insert(stack.end(), n.children.rbegin(), n.children.rend());
  }
  return leaves_found;
}

void FlatModel::map_producers(const std::vector<NodeId>& all) {
  for (const NodeId leaf : all) {
    for (const ConnId c : arena().node(leaf).conns) {
      if (arena().conn(c).produced()) producer_[edge(c)] = c;
    }
  }
}

// Wires that depend on a discarded input.
std::unordered_set<EdgeId> FlatModel::spoiled(const std::vector<NodeId>& all) const {
  std::unordered_set<EdgeId> bad;
  for (const EdgeId e : discard_) {
    if (producer_.count(e) == 0) bad.insert(e);
  }
  for (size_t before = 0; before != bad.size() && !bad.empty();) {
    before = bad.size();
    for (const NodeId leaf : all) {
      const auto& conns = arena().node(leaf).conns;
      const bool reads = std::any_of(conns.begin(), conns.end(), [&](ConnId c) {
        return !arena().conn(c).produced() && bad.count(edge(c)) != 0;
      });
      if (!reads) continue;
      for (const ConnId c : conns) {
        if (arena().conn(c).produced()) bad.insert(edge(c));
      }
    }
  }
  return bad;
}

bool FlatModel::is_read(EdgeId e, const std::vector<NodeId>& all) const {
  return std::any_of(all.begin(), all.end(), [&](NodeId leaf) {
    const auto& conns = arena().node(leaf).conns;
    return std::any_of(conns.begin(), conns.end(),
                       [&](ConnId c) { return !arena().conn(c).produced() && edge(c) == e; });
  });
}

void FlatModel::find_outputs() {
  const Node& root = arena().node(node());
  const std::vector<NodeId> all = all_leaves();
  map_producers(all);
  const std::unordered_set<EdgeId> bad = spoiled(all);
  std::vector<ConnId> wanted = root.outputs;
  if (wanted.empty()) {
    for (const auto& [sequence, c] : root.couts) wanted.push_back(c);
  }
  std::unordered_set<std::string> taken;
  for (const ConnId c : root.conns) {
    if (arena().conn(c).merged == kNone && !arena().conn(c).name.empty()) {
      taken.insert(arena().conn(c).name);
    }
  }
  for (const ConnId c : wanted) {
    if (bad.count(edge(c)) != 0) continue;
    if (discard_.count(edge(c)) != 0) {
      if (!options.drops_discarded && is_read(edge(c), all)) unreturned_.push_back(edge(c));
      continue;
    }
    std::string name = arena().conn(c).name;
    if (name.empty()) {
      name = arena().conn(c).origin;
      while (taken.count(name) != 0) name.insert(0, 1, '_');
      taken.insert(name);
    }
    outputs.emplace_back(std::move(name), edge(c));
  }
  for (const auto& [name, wire] : options.fetch) {
    outputs.emplace_back(name, edge(resolve_anywhere(at_, wire, options.where)));
  }
  if (!outputs.empty()) return;
  if (!wanted.empty()) {
    out.warnings.push_back({"EmptyModelWarning", "discard_keys leave no output"});
    return;
  }
  if (root.children.empty() && root.op == nullptr) {
    out.warnings.push_back({"EmptyModelWarning", "the model is empty: it has no outputs"});
    return;
  }
  core::Error error = core::fail(ErrorKind::kKey, Code::kKeyMissing,
                                 "the model has no outputs: nothing is exposed, and there is no "
                                 "canonical output");
  error.hint = "expose a key with `expose_keys`, or choose one with `set_cout`";
  raise(std::move(error), options.where);
}

const std::string& FlatModel::mode(NodeId leaf) const {
  static const std::string kNoMode, kTrain = "train", kEval = "eval";
  const HostValue* given = arena().node(leaf).attrs.find("mode");
  if (given == nullptr) return kNoMode;
  for (const std::string* named : {&kTrain, &kEval}) {
    if (given->is_string() && given->as_string() == *named) return *named;
  }
  if (!given->is_none()) return kNoMode;  // another op's own mode
  return options.mode == Mode::kTrain ? kTrain : kEval;
}

bool FlatModel::has_state(NodeId leaf) const {
  const std::string& own = mode(leaf);
  return own.empty() ? options.mode == Mode::kTrain : own == "train";
}

std::unordered_set<NodeId> FlatModel::reachable() const {
  std::unordered_map<EdgeId, EdgeId> state_of;  // what feeds a state input
  for (const Binding& binding : bindings) state_of[binding.input] = binding.output;
  std::unordered_set<NodeId> needed;
  std::vector<EdgeId> stack;
  for (const auto& [name, e] : outputs) stack.push_back(e);
  stack.insert(stack.end(), unreturned_.begin(), unreturned_.end());
  while (!stack.empty()) {
    const EdgeId e = stack.back();
    stack.pop_back();
    const auto written = producer_.find(e);
    if (written == producer_.end()) {
      const auto state = state_of.find(e);
      if (state != state_of.end()) {
        stack.push_back(state->second);
        state_of.erase(state);
      }
      continue;
    }
    const NodeId leaf = arena().conn(written->second).node;
    if (!needed.insert(leaf).second) continue;
    for (const ConnId c : arena().node(leaf).conns) {
      if (!arena().conn(c).produced()) stack.push_back(edge(c));
    }
  }
  return needed;
}

void FlatModel::find_leaves() {
  std::vector<NodeId> stack{node()};
  while (!stack.empty()) {  // state bindings of all levels
    const NodeId at = stack.back();
    const Node& n = arena().node(at);
    stack.pop_back();
    for (const State& state : n.states) {
      bindings.push_back(
          {edge(arena().surviving(state.input)), edge(arena().surviving(state.output)), at});
      if (state.initial) initial_state_[bindings.back().input] = *state.initial;
    }
    stack.insert(stack.end(), n.children.rbegin(), n.children.rend());
  }
  const std::unordered_set<NodeId> needed = reachable();
  std::unordered_map<NodeId, uint8_t> seen;
  for (const NodeId start : all_leaves()) {
    if (needed.count(start) == 0) continue;
    stack.push_back(start);
    while (!stack.empty()) {
      const NodeId at = stack.back();
      uint8_t& state = seen[at];
      if (state != 0) {
        if (state == 1) leaves.push_back({at, mode(at)});
        state = 2;
        stack.pop_back();
        continue;
      }
      state = 1;
      const size_t first = stack.size();
      for (const ConnId c : arena().node(at).conns) {
        if (arena().conn(c).produced()) continue;
        const auto written = producer_.find(edge(c));
        if (written == producer_.end()) continue;
        const NodeId from = arena().conn(written->second).node;
        if (seen.find(from) == seen.end()) stack.push_back(from);
      }
      std::reverse(stack.begin() + static_cast<ptrdiff_t>(first), stack.end());
    }
  }
  for (const FlatLeaf& leaf : leaves) {
    const Node& n = arena().node(leaf.node);
    for (const ConnId c : n.conns) {
      if (arena().conn(c).produced()) continue;
      const ir::InputDef* input = n.op->find_input(arena().conn(c).name);
      readers_.emplace(edge(c), Reader{leaf.node, input});
      // A trainable key tells more than a plain reader that came first.
      Reader& reader = readers_[edge(c)];
      const bool says_more = input != nullptr && (input->trainable || !input->next.empty());
      const bool said =
          reader.input != nullptr && (reader.input->trainable || !reader.input->next.empty());
      if (says_more && !said) reader = {leaf.node, input};
    }
    for (const ir::InputDef& input : n.op->inputs) {
      needs_rng |= is_random_key(input) && has_state(leaf.node);
    }
  }
}

// --- deciding what nothing decides --------------------------------------------------------------

namespace {
// The kind that data have, or the next wider one: bool < int < float.
KindSet preferred_kind(KindSet kinds, core::Kind given) {
  for (const core::Kind kind : {core::Kind::kBool, core::Kind::kInt, core::Kind::kFloat}) {
    if (kind >= given && kinds.meets(infer::tensor_of(kind))) return infer::tensor_of(kind);
  }
  return kinds.meets(infer::kTensorInt) ? infer::kTensorInt : infer::kTensorBool;
}
}  // namespace

std::vector<EdgeId> FlatModel::open_inputs() const {
  std::vector<EdgeId> found;
  for (const ConnId c : root_inputs()) {
    const EdgeId e = edge(c);
    if (readers_.count(e) != 0 && constant(e) == nullptr) found.push_back(e);
  }
  return found;
}

std::vector<infer::CellId> FlatModel::cells_of(EdgeId e) const {
  std::vector<infer::CellId> items = tensors_of(e);
  return items.empty() ? std::vector<infer::CellId>{cell(e)} : items;
}

void FlatModel::note_open_kinds() {
  for (const EdgeId e : open_inputs()) {
    for (const infer::CellId at : cells_of(e)) {
      const KindSet kinds = solver_->kinds(at) & infer::kTensor;
      if (kinds.count() > 1) open_kinds_[at.index] = kinds;
    }
  }
}

core::Status FlatModel::decide_wire(infer::CellId at, infer::FactId fact, core::Kind given) {
  KindSet kinds = solver_->kinds(at);
  if (!kinds.decided()) {
    MITHRIL_RETURN_IF_ERROR(solver_->assert_kind(at, infer::kTensor, fact));
    MITHRIL_RETURN_IF_ERROR(solver_->propagate());
    kinds = solver_->kinds(at);
  }
  if (!kinds.is_tensor() || kinds.single()) return {};
  MITHRIL_RETURN_IF_ERROR(solver_->assert_kind(at, preferred_kind(kinds, given), fact));
  return solver_->propagate();
}

// What is trained comes first, and of data the widest: those that are tied have one kind.
core::Status FlatModel::decide_given(infer::FactId fact) {
  if (options.element_kinds.empty()) return {};
  for (const EdgeId e : open_inputs()) {
    if (!is_trained(e)) continue;
    for (const infer::CellId at : cells_of(e)) MITHRIL_RETURN_IF_ERROR(decide_wire(at, fact));
  }
  for (const core::Kind kind : {core::Kind::kFloat, core::Kind::kInt, core::Kind::kBool}) {
    for (const auto& [key, item, given] : options.element_kinds) {
      const std::vector<infer::CellId> cells = cells_of(edge(option_key(key, "evaluate", true)));
      if (given != kind || item >= cells.size()) continue;
      MITHRIL_RETURN_IF_ERROR(decide_wire(cells[item], fact, kind));
    }
  }
  return {};
}

core::Status FlatModel::decide() {
  const infer::FactId fact = solver_->new_fact(options.where, "undecided inputs are float tensors");
  note_open_kinds();
  MITHRIL_RETURN_IF_ERROR(decide_given(fact));
  for (const EdgeId e : open_inputs()) {
    MITHRIL_RETURN_IF_ERROR(decide_wire(cell(e), fact));
    for (const infer::CellId item : tensors_of(e)) {
      MITHRIL_RETURN_IF_ERROR(decide_wire(item, fact));
    }
  }
  return {};
}

const HostValue* FlatModel::constant(EdgeId e) const {
  const auto found = constants_.find(e);
  if (found != constants_.end()) return &found->second;
  const Edge& at = arena().edges[e];
  return at.value && !at.initial ? &*at.value : nullptr;
}

// --- keys ---------------------------------------------------------------------------------------

std::vector<ConnId> FlatModel::root_inputs() const {
  std::vector<ConnId> found;
  for (const ConnId c : arena().node(node()).conns) {
    if (arena().conn(c).merged == kNone && !arena().conn(c).produced()) found.push_back(c);
  }
  return found;
}

bool FlatModel::is_trained(EdgeId e) const {
  const Edge& at = arena().edges[e];
  return at.differentiable.value_or(at.trainable) || trainable_.count(e) != 0;
}

ir::Role FlatModel::role(EdgeId e, const Reader* reader, FlatKey& key) const {
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
  if (arena().edges[e].value) key.initial = arena().edges[e].value;
  if (input != nullptr && input->trainable) key.init = input->init;
  return ir::Role::kParam;
}

// The fact names the line that reads it; the hint is that line with the name put in.
void FlatModel::refuse_unnamed(EdgeId e, const std::string& name) const {
  core::Error error = core::fail(ErrorKind::kKey, Code::kUnnamedInput,
                                 "the data key '{}' has no name in the model", name);
  for (const ConnId c : root_inputs()) {
    const ConnId reader = arena().conn(c).first_consumer;
    if (edge(c) != e || reader == kNone) continue;
    const Node& node = arena().node(arena().conn(reader).node);
    error.facts.push_back(
        {fmt::format("{} : no name", arena().key(reader)), node.where, title(node), 0});
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
  const bool is_initial = arena().edges[e].value && arena().edges[e].initial;
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
  const std::vector<NodeId>& parts = arena().node(node()).children;
  const ConnId reader = arena().conn(wire).first_consumer;
  if (!options.names_of_part || parts.empty() || reader == kNone) return wire;
  const ConnId key = arena().surviving(reader);
  return arena().conn(key).node == parts.front() ? key : wire;
}

// Names of the inputs without a name, by what compile was told, where these are not numbered. Two
// that are the same, or that of a wire: the later one gets "_" in front.
std::unordered_map<ConnId, std::string> FlatModel::names_by_place() {
  std::unordered_map<ConnId, std::string> out_names;
  if (!options.path_names && options.short_names) return out_names;
  if (arena().node(node()).op != nullptr) return out_names;
  std::unordered_set<std::string> taken;
  for (const ConnId c : arena().node(node()).conns) taken.insert(arena().conn(c).name);
  const auto& cins = arena().node(node()).cins;
  const ConnId only_cin = cins.size() == 1 ? cins.begin()->second : kNone;
  for (const ConnId c : root_inputs()) {
    const ConnId key = key_of_part(c);
    if (!arena().conn(key).name.empty() || (options.path_names && c == only_cin)) continue;
    std::string name = name_by_place(key);
    while (!taken.insert(name).second) name.insert(0, 1, '_');
    out_names[c] = std::move(name);
  }
  return out_names;
}

// As the model that has the key would call it, were it compiled alone.
std::string FlatModel::name_by_place(ConnId key) {
  const NodeId part = arena().conn(key).node;
  if (!options.path_names) return paths.long_name(key, part);
  return arena().node(part).op != nullptr ? paths.key_path(part, arena().conn(key).origin, node())
                                          : paths.key_path(key, part);
}

// A constant whose readers were discarded is a mistake; what only a part without outputs reads, or
// nothing, may be given as the model has the key.
void FlatModel::refuse_unread(ConnId c) {
  const std::string said = fmt::format("constant_keys: no output depends on '{}'", arena().key(c));
  if (!options.discard_keys.empty()) {
    raise(core::fail(ErrorKind::kValue, Code::kValueArgument, "{}", said), options.where);
  }
  out.warnings.push_back({"UnusedKeyWarning", said});
}

void FlatModel::name_keys() {
  std::unordered_map<ConnId, std::string> generated;
  for (auto& [c, name] : names_by_origin(arena(), node())) generated[c] = name;
  if (options.path_names) {
    for (auto& [c, name] : generated_names(arena(), node(), true, false)) generated[c] = name;
  }
  const std::unordered_map<ConnId, std::string> by_place = names_by_place();
  const auto& cins = arena().node(node()).cins;
  std::unordered_set<std::string> taken;
  for (const ConnId c : root_inputs()) {
    const EdgeId e = edge(c);
    if (readers_.count(e) == 0) {
      if (constants_.count(e) != 0) refuse_unread(c);
      continue;
    }
    if (constant(e) != nullptr) continue;
    const bool named = !arena().conn(c).name.empty();
    const auto found = by_place.find(c);
    std::string name = found != by_place.end()                       ? found->second
                       : named || arena().node(node()).op != nullptr ? arena().conn(c).name
                                                                     : generated[c];
    while (taken.count(name) != 0) name.insert(0, 1, '_');
    taken.insert(name);
    const bool is_clear = cins.size() == 1 && c == cins.begin()->second;
    add_keys(e, std::move(name), named || is_clear, arena().key(c));
  }
  // Inputs that only an inner level sees: states bound there, numbered where layers have the same.
  std::vector<const Binding*> inner;
  std::unordered_set<EdgeId> seen;
  std::unordered_map<std::string, size_t> count, number;
  for (const auto& binding : bindings) {
    if (readers_.count(binding.input) == 0 || key_of.count(binding.input) != 0) continue;
    if (!seen.insert(binding.input).second) continue;
    inner.push_back(&binding);
    ++count[arena().edges[binding.input].label];
  }
  for (const Binding* binding : inner) {
    const EdgeId e = binding->input;
    const std::string& label = arena().edges[e].label;
    std::string name = options.path_names  ? paths.key_path(binding->owner, label, node())
                       : count[label] == 1 ? label
                                           : fmt::format("{}_{}", label, number[label]++);
    while (taken.count(name) != 0) name.insert(0, 1, '_');
    taken.insert(name);
    add_keys(e, std::move(name), true, "");
  }
}

// --- shapes -------------------------------------------------------------------------------------

void FlatModel::set_fan_in(FlatKey& key, const Reader& reader) {
  if (key.init.kind != ir::Init::Kind::kUniformFanIn) return;
  const std::string& of = key.init.fan_in_of.empty() ? reader.input->name : key.init.fan_in_of;
  const ConnId counted = arena().find(reader.leaf, of);
  const auto shape = counted == kNone ? std::nullopt : solver_->shape(cell(edge(counted)));
  if (!shape) return;
  infer::Dim product(1);
  for (const int axis : key.init.fan_in_dims) {
    if (axis < 0 || static_cast<size_t>(axis) >= shape->size()) return;
    product = solver_->dims().mul(product, (*shape)[static_cast<size_t>(axis)]);
  }
  key.fan_in = product;
}

void FlatModel::find_shapes() {
  infer::ShapeNames names;
  for (size_t i = 0; i < out.keys.size(); ++i) {
    FlatKey& key = out.keys[i];
    if (!key.kinds.is_tensor()) {
      key.rank_known = true;
      continue;
    }
    const infer::CellId at = key_cells[i];
    key.shape_text = solver_->print_shape(at, names);
    key.least_rank = std::countr_zero(solver_->possible_ranks(at));
    if (auto shape = solver_->shape(at)) {
      key.shape = std::move(*shape);
      key.rank_known = true;
    } else {
      out.unknown_ranks.push_back(key.name);
    }
    const auto reader = readers_.find(key_edges[i]);
    if (reader != readers_.end() && reader->second.input != nullptr) {
      set_fan_in(key, reader->second);
    }
  }
}

// The keys whose sizes tell it; where none shows it, those that are open.
void FlatModel::await_size(infer::Dim size) {
  const std::vector<infer::Dim> symbols = solver_->dims().symbols_of(size);
  const auto shares = [&](infer::Dim dim) {
    const std::vector<infer::Dim> own = solver_->dims().symbols_of(solver_->resolve(dim));
    return std::any_of(own.begin(), own.end(), [&](infer::Dim symbol) {
      return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
    });
  };
  const auto is_open = [&](infer::Dim dim) { return !solver_->resolve(dim).known(); };
  std::vector<std::string> telling, open;
  for (const FlatKey& key : out.keys) {
    if (std::any_of(key.shape.begin(), key.shape.end(), shares)) telling.push_back(key.name);
    if (std::any_of(key.shape.begin(), key.shape.end(), is_open)) open.push_back(key.name);
  }
  for (std::string& name : telling.empty() ? open : telling) {
    std::vector<std::string>& all = out.unknown_sizes;
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(std::move(name));
  }
}

void FlatModel::find_open_values() {
  for (const FlatKey& key : out.keys) {
    if (!key.kinds.is_tensor() && key.role == ir::Role::kData) {
      out.unknown_values.push_back(key.name);
    }
  }
}

bool FlatModel::awaits_numbers() const {
  return std::any_of(leaves.begin(), leaves.end(), [&](const FlatLeaf& leaf) {
    const ir::OpDef& op = *arena().node(leaf.node).op;
    return std::any_of(op.inputs.begin(), op.inputs.end(), [&](const ir::InputDef& input) {
      const auto& typed = op.promoted;
      const ConnId key = arena().find(leaf.node, input.name);
      if (input.kinds.may_be_tensor() || key == kNone || constant(edge(key)) != nullptr)
        return false;
      const bool is_typed = std::find(typed.begin(), typed.end(), input.name) != typed.end();
      return is_typed && !solver_->value(cell(edge(key)));
    });
  });
}

// Of known ranks and sizes that are open an op makes a result whose rank is not known.
void FlatModel::await_rank(NodeId leaf) {
  bool is_open = false;
  std::vector<infer::Dim> open;
  for (const ConnId c : arena().node(leaf).conns) {
    const infer::CellId at = cell(edge(c));
    if (!solver_->kinds(at).is_tensor()) continue;
    const auto shape = solver_->shape(at);
    if (arena().conn(c).produced()) {
      is_open = is_open || !shape;
      continue;
    }
    if (!shape) return;
    for (const infer::Dim size : *shape) {
      if (!solver_->resolve(size).known()) open.push_back(solver_->resolve(size));
    }
  }
  if (!is_open) return;
  for (const infer::Dim size : open) await_size(size);
}

void FlatModel::find_awaited() {
  for (const FlatLeaf& leaf : leaves) {
    await_rank(leaf.node);
    for (const auto& [input, axis] : arena().node(leaf.node).op->awaited) {
      const ConnId key = arena().find(leaf.node, input);
      const auto shape = key == kNone ? std::nullopt : solver_->shape(cell(edge(key)));
      if (!shape || axis >= shape->size()) continue;
      const infer::Dim size = solver_->resolve((*shape)[axis]);
      if (!size.known()) await_size(size);
    }
  }
}

}  // namespace mithril::model
