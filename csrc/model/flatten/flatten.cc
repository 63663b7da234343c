#include "model/flatten/flatten.h"

#include <algorithm>

#include "core/interrupt.h"
#include "core/tensor_data.h"
#include "ir/builder.h"
#include "model/flatten/flat_model.h"
#include "model/outline/outline.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;

namespace {

/// Represents a wire in the graph. Lists of tensors exist here only: graphs have operands.
struct Flat {
  enum class Type : uint8_t { kNone, kValue, kHost, kList };
  Type type = Type::kNone;
  ir::Value value;
  HostValue host;
  std::vector<Flat> items;
  bool is_list = false;

  static Flat of(ir::Value value) { return {Type::kValue, value, {}, {}, false}; }
  static Flat of(HostValue host) { return {Type::kHost, {}, std::move(host), {}, false}; }
};

ir::HostType host_type(KindSet kinds) {
  using Tag = ir::HostType::Tag;
  if (!kinds.single()) return {Tag::kOpaque, {}};
  switch (kinds.only()) {
    case infer::ValueKind::kBool: return {Tag::kBool, {}};
    case infer::ValueKind::kInt: return {Tag::kInt, {}};
    case infer::ValueKind::kFloat: return {Tag::kFloat, {}};
    case infer::ValueKind::kStr: return {Tag::kStr, {}};
    case infer::ValueKind::kDType: return {Tag::kDType, {}};
    case infer::ValueKind::kSlice: return {Tag::kSlice, {}};
    default: return {Tag::kOpaque, {}};
  }
}

ir::DType abstract_dtype(KindSet kinds) {
  if (kinds.has(infer::ValueKind::kTensorFloat)) return ir::DType::kAnyFloat;
  return kinds.has(infer::ValueKind::kTensorInt) ? ir::DType::kAnyInt : ir::DType::kBool;
}

/// The second half of flatten: nodes.
class Emitter {
 public:
  explicit Emitter(FlatModel& flat)
      : flat_(flat), graph_(flat.out.graph), builder_(flat.out.graph) {}

  core::Status run();

 private:
  void read_solver();
  void name_symbols();
  void add_inputs();
  core::Status emit(const FlatLeaf& leaf);
  core::Status emit_node(const FlatLeaf& flat_leaf, std::vector<ir::Operand> operands,
                         ir::Attrs attrs, std::optional<HostValue> collected);
  core::Status check_in_loop(const FlatLeaf& leaf) const;
  bool says_more(ir::Value a, ir::Value b) const;
  core::Status emit_outputs();
  core::Status emit_output(const OutputList& output, const Flat& flat);
  void emit_states();

  Flat wire(EdgeId edge);
  Flat literal(const HostValue& value);
  std::optional<ir::Operand> operand(const Flat& flat);
  bool expand(const Flat& list, std::vector<ir::Operand>& operands);
  std::optional<Flat> dissolve(const Node& leaf, const std::vector<Flat>& items);
  std::optional<HostValue> collect(const Node& leaf, const ir::Attrs& attrs,
                                   const std::vector<Flat>& items);
  std::optional<Flat> select(const Node& leaf, const ir::Attrs& attrs,
                             const std::vector<Flat>& inputs);
  core::Status emit_pieces(const Node& leaf, std::vector<ir::Operand> operands, ir::Attrs attrs);
  void set_result(const Node& leaf, NodeId id, size_t output, Flat flat);
  ir::Value with_known_sizes(EdgeId edge, ir::Value value);
  bool is_simpler(infer::Dim size, infer::Dim than) const;
  ir::Value& random_key(NodeId leaf);
  void follow_states(const FlatLeaf& leaf, const std::vector<ir::Value>& results);
  void spread_differentiability(const ir::OpDef& op, const std::vector<ir::Operand>& operands,
                                const std::vector<ir::Value>& results);
  core::Status unsupported(NodeId leaf, std::string_view what) const;

  FlatModel& flat_;
  ir::Graph& graph_;
  ir::Builder builder_;
  std::unordered_map<EdgeId, Flat> wires_;
  std::unordered_map<EdgeId, HostValue> hosts_;      // known host values of wires
  std::unordered_map<EdgeId, ir::Shape> shapes_;     // of tensors, as the solver has them
  std::unordered_map<EdgeId, ir::Value> new_state_;  // of state keys, as of now
  ir::Value rng_input_, rng_;                        // first and current random key
  ir::Value fixed_rng_;                              // of draws whose state is not carried
  std::vector<bool> differentiable_;                 // by value id
  std::unordered_set<NodeId> loops_;                 // models that are one, or branches
  std::vector<int64_t> owners_;                      // by node: the leaf that made it
  core::InterruptCounter interrupts_{256};
};

// Sizes that nobody named get u1, u2 …, in the order in which keys show them.
void Emitter::name_symbols() {
  infer::DimTable& dims = graph_.dims;
  int next = 1;
  const auto name = [&](infer::Dim dim) {
    if (dim.known()) return;
    for (const infer::Dim symbol : dims.symbols_of(dim)) {
      if (dims.is_named(symbol)) continue;
      while (!dims.set_name(symbol, fmt::format("u{}", next))) ++next;
      ++next;
    }
  };
  for (const FlatKey& key : flat_.out.keys) {
    for (const infer::Dim dim : key.shape) name(dim);
  }
}

// Before the table of sizes is copied: a value or a shape may make new symbols.
void Emitter::read_solver() {
  ModelTree& tree = flat_.tree();
  for (const FlatLeaf& leaf : flat_.leaves) {
    interrupts_.check(1);
    for (const ConnId c : tree.node(leaf.node).conns) {
      const EdgeId edge = flat_.edge(c);
      if (hosts_.count(edge) != 0 || flat_.constant(edge) != nullptr) continue;
      if (flat_.solver().kinds(flat_.cell(edge)).may_be_tensor()) {
        if (!tree.conn(c).produced()) continue;
        if (auto shape = flat_.solver().shape(flat_.cell(edge))) shapes_[edge] = std::move(*shape);
        continue;
      }
      if (auto value = flat_.solver().value(flat_.cell(edge))) hosts_[edge] = std::move(*value);
    }
  }
}

void Emitter::add_inputs() {
  for (size_t i = 0; i < flat_.out.keys.size(); ++i) {
    FlatKey& key = flat_.out.keys[i];
    const EdgeId edge = flat_.key_edges[i];
    ir::Type type = key.kinds.is_tensor() ? ir::Type::tensor(abstract_dtype(key.kinds), key.shape)
                                          : ir::Type::host_value(host_type(key.kinds));
    const ir::Value input = builder_.input(key.name, std::move(type), key.role);
    key.value = input.id;
    if (key.list.empty()) {
      wires_[edge] = Flat::of(input);
    } else {
      wires_[edge].type = Flat::Type::kList;
      wires_[edge].items.push_back(Flat::of(input));
    }
    differentiable_.resize(graph_.values.size());
    differentiable_[static_cast<size_t>(input.id)] = key.trainable;
    if (key.role == ir::Role::kState) new_state_[edge] = input;
  }
  if (!flat_.needs_rng) return;
  FlatKey key;
  key.name = "rng_key";
  key.role = ir::Role::kState;
  key.kinds = infer::kTensorInt;
  key.shape = {infer::Dim(2)};
  key.shape_text = "[2]";
  key.rank_known = true;
  key.initial = HostValue("key");
  rng_input_ = rng_ =
      builder_.input(key.name, ir::Type::tensor(ir::DType::kAnyInt, key.shape), key.role);
  key.value = rng_input_.id;
  flat_.out.keys.push_back(std::move(key));
}

Flat Emitter::literal(const HostValue& value) {
  if (value.is_tensor()) return Flat::of(builder_.constant(value.as_tensor()));
  const bool nested =
      value.is_sequence() &&
      std::any_of(value.items().begin(), value.items().end(),
                  [](const HostValue& item) { return item.is_tensor() || item.is_sequence(); });
  if (!nested) return Flat::of(value);
  Flat list;
  list.type = Flat::Type::kList;
  list.is_list = value.is_list();
  bool any_tensor = false;
  for (const HostValue& item : value.items()) {
    list.items.push_back(literal(item));  // nesting is bounded by HostValue::kMaxDepth
    any_tensor |= list.items.back().type != Flat::Type::kHost;
  }
  return any_tensor ? list : Flat::of(value);
}

Flat Emitter::wire(EdgeId edge) {
  const auto found = wires_.find(edge);
  const auto known = hosts_.find(edge);
  if (known != hosts_.end()) {
    // A list of tensors whose values are all known has operands as any other list of tensors.
    const bool is_list = found != wires_.end() && found->second.type == Flat::Type::kList;
    if (is_list) return found->second;
    Flat flat = literal(known->second);
    if (flat.type == Flat::Type::kList) wires_[edge] = flat;
    return flat;
  }
  if (found != wires_.end()) return found->second;
  const HostValue* constant = flat_.constant(edge);
  if (constant == nullptr) return {};
  return wires_[edge] = literal(*constant);
}

std::optional<ir::Operand> Emitter::operand(const Flat& flat) {
  switch (flat.type) {
    case Flat::Type::kNone: return ir::Operand();
    case Flat::Type::kValue: return ir::Operand(flat.value);
    case Flat::Type::kHost: return ir::Operand(flat.host);
    case Flat::Type::kList: return std::nullopt;
  }
  return std::nullopt;
}

// The items of a list as operands; false when one of them is a list again.
bool Emitter::expand(const Flat& list, std::vector<ir::Operand>& operands) {
  for (const Flat& item : list.items) {
    auto one = operand(item);
    if (!one) return false;
    operands.push_back(std::move(*one));
  }
  return true;
}

// to_tuple and to_list of tensors are no nodes.
std::optional<Flat> Emitter::dissolve(const Node& leaf, const std::vector<Flat>& items) {
  const bool collects =
      leaf.variadic >= 0 && leaf.op->outputs.front().dtype.result == ir::DTypeRule::Result::kHost;
  if (!collects) return std::nullopt;
  const bool any_tensor = std::any_of(items.begin(), items.end(), [](const Flat& item) {
    return item.type == Flat::Type::kList ||
           (item.type == Flat::Type::kValue && item.value.type().is_tensor);
  });
  if (!any_tensor) return std::nullopt;
  Flat out;
  out.type = Flat::Type::kList;
  out.items = items;
  return out;
}

// list[1], list[0:2] where the list holds tensors.
std::optional<Flat> Emitter::select(const Node& leaf, const ir::Attrs& attrs,
                                    const std::vector<Flat>& inputs) {
  const ir::OpDef& op = *leaf.op;
  const bool indexes = op.host && op.inputs.size() == 2 &&
                       op.inputs[0].kinds.meets(infer::kSequence) && !inputs.empty() &&
                       inputs[0].type == Flat::Type::kList;
  if (!indexes) return std::nullopt;
  // The op itself says which items: it is asked about a list of their numbers.
  HostValue::Tuple numbers;
  for (size_t i = 0; i < inputs[0].items.size(); ++i) numbers.emplace_back(static_cast<int64_t>(i));
  if (inputs[1].type != Flat::Type::kHost) return std::nullopt;
  const HostValue operands[] = {HostValue::list(std::move(numbers)), inputs[1].host};
  ir::Attrs with_index = attrs;
  with_index.set(op.inputs[1].name, inputs[1].host);
  const std::vector<ir::Type> types{ir::Type::host_value({}), ir::Type::host_value({})};
  auto chosen = op.host({operands, with_index, graph_.dims, types});
  if (!chosen.ok()) {
    builder_.fail(std::move(chosen).status());
    return Flat{};
  }
  if (chosen->is_int()) return inputs[0].items[static_cast<size_t>(chosen->as_int())];
  Flat out;
  out.type = Flat::Type::kList;
  for (const HostValue& number : chosen->items()) {
    out.items.push_back(inputs[0].items[static_cast<size_t>(number.as_int())]);
  }
  return out;
}

// The value of a tuple or list whose items are all known.
std::optional<HostValue> Emitter::collect(const Node& leaf, const ir::Attrs& attrs,
                                          const std::vector<Flat>& items) {
  if (!leaf.op->host) return std::nullopt;
  std::vector<HostValue> values;
  std::vector<ir::Type> types;
  for (const Flat& item : items) {
    if (item.type != Flat::Type::kHost) return std::nullopt;
    values.push_back(item.host);
    types.push_back(ir::Type::host_value(ir::type_of(item.host)));
  }
  auto value = leaf.op->host({values, attrs, graph_.dims, types});
  if (!value.ok()) return std::nullopt;
  return std::move(*value);
}

void Emitter::set_result(const Node& leaf, NodeId id, size_t output, Flat flat) {
  const ConnId conn = flat_.tree().find(id, leaf.op->outputs[output].name);
  if (conn == kNone) return;
  const EdgeId edge = flat_.edge(conn);
  if (flat.type == Flat::Type::kValue && !flat_.solver().is_value_known(flat_.cell(edge))) {
    // What the graph says of sizes counts: the solver has a symbol of its own for a broadcast size.
    const ir::ValueInfo& info = graph_.value(flat.value.id);
    if (!info.type.is_tensor && info.host) hosts_[edge] = *info.host;
  }
  if (flat.type == Flat::Type::kValue) flat.value = with_known_sizes(edge, flat.value);
  wires_[edge] = std::move(flat);
}

// Tells whether a size speaks of some symbols of another one and of no others: `T` beside
// `broadcast(T, u)`.
bool Emitter::is_simpler(infer::Dim size, infer::Dim than) const {
  const std::vector<infer::Dim> few = graph_.dims.symbols_of(size);
  const std::vector<infer::Dim> all = graph_.dims.symbols_of(than);
  return few.size() < all.size() && std::all_of(few.begin(), few.end(), [&](infer::Dim symbol) {
           return std::find(all.begin(), all.end(), symbol) != all.end();
         });
}

// An op tells forward what it makes; a number that the solver has from elsewhere (s*t is 1152, for
// a weight reads it), or a size that it united with a simpler one, is stated, and checked against
// the sizes of each call.
ir::Value Emitter::with_known_sizes(EdgeId edge, ir::Value value) {
  const ir::Type& type = value.type();
  const auto is_open = [](infer::Dim dim) { return !dim.known(); };
  if (!type.is_tensor || std::none_of(type.shape.begin(), type.shape.end(), is_open)) return value;
  const auto known = shapes_.find(edge);
  if (known == shapes_.end() || known->second.size() != type.rank()) return value;
  HostValue::Tuple sizes(type.rank());
  bool any = false, any_symbol = false;
  for (size_t i = 0; i < type.rank(); ++i) {
    const infer::Dim told = type.shape[i], size = known->second[i];
    if (told.known() || (!size.known() && !is_simpler(size, told))) continue;
    sizes[i] = ir::size_value(size);
    any = true;
    any_symbol = any_symbol || !size.known();
  }
  if (!any) return value;
  for (size_t i = 0; i < type.rank() && any_symbol; ++i) {
    if (sizes[i].is_none()) sizes[i] = ir::size_value(type.shape[i]);
  }
  const ir::Value out = builder_.call("known_sizes", {value},
                                      {{"sizes", HostValue::tuple(std::move(sizes))},
                                       {"wire", HostValue(flat_.tree().edges[edge].label)}});
  if (!out) return value;
  differentiable_.resize(graph_.values.size());
  differentiable_[static_cast<size_t>(out.id)] = differentiable_[static_cast<size_t>(value.id)];
  return out;
}

core::Status Emitter::unsupported(NodeId leaf, std::string_view what) const {
  core::Error error = core::fail(ErrorKind::kUnsupported, Code::kUnsupported, "{}: {}",
                                 flat_.tree().node(leaf).op->name, what);
  error.location = flat_.tree().node(leaf).where;
  error.location.path = flat_.paths.path(leaf);
  return error;
}

// The key that the next draw takes. Without state they start with the same one at every call.
ir::Value& Emitter::random_key(NodeId leaf) {
  if (flat_.has_state(leaf)) return rng_;
  if (fixed_rng_) return fixed_rng_;
  auto data = std::make_shared<core::TensorData>();
  data->dtype = ir::DType::kAnyInt;
  data->shape = {2};
  for (const int64_t word : {0, 42}) core::append_element(*data, HostValue(word));
  fixed_rng_ = builder_.constant(std::move(data));
  return fixed_rng_;
}

void Emitter::spread_differentiability(const ir::OpDef& op,
                                       const std::vector<ir::Operand>& operands,
                                       const std::vector<ir::Value>& results) {
  differentiable_.resize(graph_.values.size());
  const bool any = std::any_of(operands.begin(), operands.end(), [&](const ir::Operand& o) {
    return o.value && differentiable_[static_cast<size_t>(o.value.id)];
  });
  if (!any || !op.differentiable) return;
  for (const ir::Value& result : results) {
    if (!result || !result.type().is_tensor || !core::is_float(result.dtype())) continue;
    differentiable_[static_cast<size_t>(result.id)] = true;
  }
}

void Emitter::follow_states(const FlatLeaf& leaf, const std::vector<ir::Value>& results) {
  const ir::OpDef& op = *flat_.tree().node(leaf.node).op;
  const bool carried = flat_.has_state(leaf.node);
  for (const ir::InputDef& input : op.inputs) {
    if (input.next.empty() || (!carried && input.optional)) continue;
    const ir::Value next = results[static_cast<size_t>(op.output_index(input.next))];
    if (is_random_key(input)) {
      random_key(leaf.node) = next;
      continue;
    }
    if (!carried) continue;
    const ConnId conn = flat_.tree().find(leaf.node, input.name);
    if (conn == kNone) continue;
    const EdgeId edge = flat_.edge(conn);
    // Two layers that share statistics move them one after the other.
    const auto state = new_state_.find(edge);
    if (state == new_state_.end()) continue;
    state->second = next;
    wires_[edge] = Flat::of(next);
  }
}

// An op whose one result is a list: its body gives the pieces.
core::Status Emitter::emit_pieces(const Node& leaf, std::vector<ir::Operand> operands,
                                  ir::Attrs attrs) {
  ir::Node node;
  node.op = leaf.op->id;
  for (const ir::Operand& o : operands) node.operands.push_back(o.value.id);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].host) attrs.set(leaf.op->inputs[i].name, *operands[i].host);
  }
  node.attrs = std::move(attrs);
  builder_.enter(*leaf.op, node);
  const std::vector<ir::Value> pieces = leaf.op->compose(builder_);
  if (!builder_.status().ok()) return {};
  spread_differentiability(*leaf.op, operands, pieces);
  Flat list;
  list.type = Flat::Type::kList;
  list.is_list = true;
  for (const ir::Value& piece : pieces) list.items.push_back(Flat::of(piece));
  const ConnId first = leaf.conns.back();
  set_result(leaf, flat_.tree().conn(first).node, 0, std::move(list));
  return {};
}

// A step is a function: what moves from call to call would have to move from step to step.
core::Status Emitter::check_in_loop(const FlatLeaf& flat_leaf) const {
  const Node& leaf = flat_.tree().node(flat_leaf.node);
  bool inside = false;
  for (NodeId at = leaf.parent; at != kNone && !loops_.empty(); at = flat_.tree().node(at).parent) {
    inside |= loops_.count(at) != 0;
  }
  if (!inside) return {};
  const bool carried = flat_.has_state(flat_leaf.node);
  const auto moves = [&](const ir::InputDef& input) {
    return !input.next.empty() && (carried || (is_random_key(input) && !input.optional));
  };
  const bool has_state = std::any_of(leaf.op->inputs.begin(), leaf.op->inputs.end(), moves);
  if (has_state) return unsupported(flat_leaf.node, "random numbers and state in a loop or branch");
  if (leaf.op->name == "gradient") {
    return unsupported(flat_leaf.node, "derivatives inside of a loop or branch");
  }
  return {};
}

core::Status Emitter::emit(const FlatLeaf& flat_leaf) {
  const NodeId id = flat_leaf.node;
  const Node& leaf = flat_.tree().node(id);
  const ir::OpDef& op = *leaf.op;
  core::Location location = leaf.where;
  location.path = flat_.paths.path(id);
  builder_.set_location(graph_.add_location(std::move(location)));

  ir::Attrs attrs = leaf.attrs;
  MITHRIL_RETURN_IF_ERROR(check_in_loop(flat_leaf));
  if (is_mark(op.name)) attrs.set("loop", HostValue(static_cast<int64_t>(leaf.parent)));
  if (!flat_leaf.mode.empty()) attrs.set("mode", HostValue(flat_leaf.mode));
  std::vector<Flat> inputs;
  std::vector<ir::Operand> operands;
  std::optional<HostValue> collected;
  for (const ir::InputDef& input : op.inputs) {
    if (is_random_key(input)) {
      const bool absent = input.optional && !flat_.has_state(id);
      operands.push_back(absent ? ir::Operand() : ir::Operand(random_key(id)));
      inputs.emplace_back();
      continue;
    }
    if (input.variadic && leaf.variadic >= 0) {
      const size_t first = inputs.size();
      for (int32_t i = 1; i <= leaf.variadic; ++i) {
        const ConnId item = flat_.tree().find(id, item_key(input, static_cast<size_t>(i)));
        inputs.push_back(wire(flat_.edge(item)));
      }
      if (auto list = dissolve(leaf, inputs)) {
        set_result(leaf, id, 0, std::move(*list));
        return {};
      }
      collected = collect(leaf, attrs, inputs);
      for (size_t i = first; i < inputs.size(); ++i) operands.push_back(*operand(inputs[i]));
      continue;
    }
    const ConnId conn = flat_.tree().find(id, input.name);
    inputs.push_back(conn == kNone ? Flat{} : wire(flat_.edge(conn)));
    const Flat& given = inputs.back();
    if (given.type == Flat::Type::kList && input.variadic) {
      if (!expand(given, operands)) return unsupported(id, "lists of lists cannot be operands");
      continue;
    }
    if (input.variadic && given.type == Flat::Type::kHost) {
      attrs.set(input.name, given.host);  // an index whose value is known
      continue;
    }
    if (given.type == Flat::Type::kNone && input.variadic) continue;
    auto one = operand(given);
    operands.push_back(one ? std::move(*one) : ir::Operand());
    if (!one && !op.inputs.front().kinds.meets(infer::kSequence) &&
        op.body != ir::BodyKind::kNone) {
      return unsupported(id, fmt::format("'{}' is a list of tensors", input.name));
    }
  }
  if (auto chosen = select(leaf, attrs, inputs)) {
    set_result(leaf, id, 0, std::move(*chosen));
    return builder_.take_status();
  }
  const bool passes_list = !inputs.empty() && inputs[0].type == Flat::Type::kList &&
                           op.body == ir::BodyKind::kNone && op.inputs.size() == 1;
  if (passes_list) {  // buffer
    set_result(leaf, id, 0, inputs[0]);
    return {};
  }
  const bool is_pieces = op.body == ir::BodyKind::kCompose && op.outputs.size() == 1 &&
                         op.outputs.front().dtype.result == ir::DTypeRule::Result::kHost;
  if (is_pieces) {
    MITHRIL_RETURN_IF_ERROR(emit_pieces(leaf, std::move(operands), std::move(attrs)));
    return builder_.take_status();
  }
  return emit_node(flat_leaf, std::move(operands), std::move(attrs), std::move(collected));
}

// Whether more sizes of the first one are numbers or names than of the second one.
bool Emitter::says_more(ir::Value a, ir::Value b) const {
  const auto plain = [&](ir::Value value) {
    const ir::Shape& shape = value.shape();
    return std::count_if(shape.begin(), shape.end(),
                         [&](infer::Dim dim) { return dim.known() || graph_.dims.is_symbol(dim); });
  };
  return plain(a) > plain(b);
}

// `collected`: what a container of known values is.
core::Status Emitter::emit_node(const FlatLeaf& flat_leaf, std::vector<ir::Operand> operands,
                                ir::Attrs attrs, std::optional<HostValue> collected) {
  const NodeId id = flat_leaf.node;
  const Node& leaf = flat_.tree().node(id);
  // Sizes of a carry are those that it starts with: the solver knows that steps keep them.
  const bool is_exit = leaf.op->name == "scan_exit" || leaf.op->name == "while_exit";
  if (is_exit) operands[0] = operands[1];
  // Likewise with branches: the sizes of the one count that says more of them.
  const bool is_join = leaf.op->name == "cond_join";
  const std::vector<ir::Operand> branches(operands.begin(), operands.begin() + (is_join ? 2 : 0));
  if (is_join) {
    const bool second = says_more(branches[1].value, branches[0].value);
    operands[0] = operands[1] = branches[second ? 1 : 0];
  }
  const std::vector<ir::Value> results = builder_.call_all(*leaf.op, operands, std::move(attrs));
  if (!builder_.status().ok()) return builder_.take_status();
  for (size_t i = 0; i < branches.size(); ++i) {
    graph_.nodes.back().operands[i] = branches[i].value.id;
  }
  spread_differentiability(*leaf.op, operands, results);
  if (collected) {
    ir::ValueInfo& made = graph_.value(results.front().id);
    made.type = ir::Type::host_value(ir::type_of(*collected));
    made.host = std::move(collected);
  }
  for (size_t i = 0; i < results.size(); ++i) set_result(leaf, id, i, Flat::of(results[i]));
  follow_states(flat_leaf, results);
  return {};
}

core::Status Emitter::emit_outputs() {
  for (const auto& [name, edge] : flat_.outputs) {
    const auto found = wires_.find(edge);
    const OutputList output = flat_.add_output(name, edge);
    MITHRIL_RETURN_IF_ERROR(emit_output(output, found == wires_.end() ? Flat() : found->second));
  }
  return {};
}

core::Status Emitter::emit_output(const OutputList& output, const Flat& flat) {
  if (!output.is_tensor() && flat.type == Flat::Type::kList &&
      output.items.size() == flat.items.size()) {
    for (size_t i = 0; i < flat.items.size(); ++i) {  // nesting is bounded by HostValue::kMaxDepth
      MITHRIL_RETURN_IF_ERROR(emit_output(output.items[i], flat.items[i]));
    }
    return {};
  }
  if (flat.type != Flat::Type::kValue) {
    const bool is_list = flat.type == Flat::Type::kList;
    core::Error error =
        core::fail(ErrorKind::kUnsupported, Code::kUnsupported, "output '{}' is {}", output.name,
                   is_list ? "a list of more than tensors and lists of them"
                           : "no tensor that the model computes");
    error.hint = is_list ? "expose its items" : "";
    error.location = flat_.options.where;
    return error;
  }
  builder_.output(output.name, flat.value);
  flat_.out.outputs.push_back(output.name);
  flat_.out.output_differentiable.push_back(differentiable_[static_cast<size_t>(flat.value.id)]);
  return {};
}

void Emitter::emit_states() {
  std::unordered_map<EdgeId, EdgeId> bound;
  for (const auto& binding : flat_.bindings) bound[binding.input] = binding.output;
  for (size_t i = 0; i < flat_.key_edges.size(); ++i) {
    const FlatKey& key = flat_.out.keys[i];
    if (key.role != ir::Role::kState) continue;
    const EdgeId edge = flat_.key_edges[i];
    const auto output = bound.find(edge);
    const ir::ValueId next =
        output == bound.end() ? new_state_[edge].id : wires_[output->second].value.id;
    graph_.states.push_back({key.value, next, key.initial.value_or(HostValue(0.0))});
  }
  if (rng_input_) graph_.states.push_back({rng_input_.id, rng_.id, HostValue("key")});
}

core::Status Emitter::run() {
  for (const FlatLeaf& leaf : flat_.leaves) {
    const Node& node = flat_.tree().node(leaf.node);
    if (is_mark(node.op->name)) loops_.insert(node.parent);
  }
  read_solver();
  graph_.dims = flat_.solver().dims();
  name_symbols();
  add_inputs();
  for (const FlatLeaf& leaf : flat_.leaves) {
    interrupts_.check(1);
    MITHRIL_RETURN_IF_ERROR(emit(leaf));
    if (!builder_.status().ok()) return builder_.take_status();
    owners_.resize(graph_.nodes.size(), static_cast<int64_t>(leaf.node));
  }
  differentiable_.resize(graph_.values.size());
  MITHRIL_RETURN_IF_ERROR(emit_outputs());
  emit_states();
  const auto is_inside = [&](int64_t leaf, int64_t model) {
    NodeId at = static_cast<NodeId>(leaf);
    while (at != kNone && at != static_cast<NodeId>(model)) at = flat_.tree().node(at).parent;
    return at != kNone;
  };
  MITHRIL_ASSIGN(graph_, outline(std::move(graph_), {std::move(owners_), is_inside}));
  return {};
}

/// The names of an output's tensors.
void add_names(const OutputList& output, std::vector<std::string>& names) {
  if (output.is_tensor()) names.push_back(output.name);
  for (const OutputList& item : output.items) add_names(item, names);
}

core::Status fill(const Access::At& at, const FlattenOptions& options, FlatGraph& out) {
  FlatModel flat(at, options, out);
  out.graph.name = at.get().name;
  flat.read_options();
  flat.find_outputs();
  core::check_interrupt();
  flat.find_leaves();
  core::check_interrupt();
  MITHRIL_RETURN_IF_ERROR(flat.explained(flat.assert_facts()));
  MITHRIL_RETURN_IF_ERROR(flat.explained(flat.decide()));
  core::check_interrupt();
  flat.name_keys();
  flat.find_shapes();
  flat.find_awaited();
  if (options.await_values || flat.awaits_numbers()) flat.find_open_values();
  core::check_interrupt();
  if (!out.deferred() && !options.await_values) return Emitter(flat).run();
  out.graph.dims = flat.solver().dims();
  for (const auto& [name, edge] : flat.outputs) {
    add_names(flat.add_output(name, edge), out.outputs);
  }
  return {};
}

}  // namespace

core::Result<FlatGraph> flatten(const Model& model, const FlattenOptions& options) {
  try {
    const Access::At at = Access::at(model);
    if (at.get().parent != kNone || at.get().claimed) {
      return core::fail(ErrorKind::kValue, Code::kModelFrozen,
                        "{} is a submodel and cannot be compiled by itself", title(at.get()));
    }
    model.solve();
    const Reading reading(at.tree());
    FlatGraph out;
    core::Status status = fill(at, options, out);
    if (!status.ok()) rethrow_thrown();
    if (!status.ok() && !status.error().location.known()) {
      status.error().location = options.where;
    }
    if (!status.ok()) return status;
    return out;
  } catch (const core::ErrorException& failure) {
    return failure.error();
  }
}

}  // namespace mithril::model
