// One line a node. Sizes get their values from the first tensor that shows them.
#include "emit/python.h"

#include <algorithm>
#include <map>
#include <optional>

#include "emit/python_literal.h"
#include "emit/python_split.h"
#include "emit/python_tile.h"
#include "ir/halves.h"
#include "ir/registry.h"
#include "ir/scan.h"
#include "ir/text.h"
#include "tile/builder.h"

namespace mithril::emit {

using core::Code;
using core::DType;
using core::ErrorKind;
using core::HostValue;
using core::Result;
using core::Status;
using infer::Dim;
using ir::BodyKind;
using ir::DTypeRule;
using ir::kNoValue;
using ir::Node;
using ir::OpDef;
using ir::ValueId;

namespace {

// Position of inputs in the order of lines; node k has position k.
constexpr int32_t kBeforeNodes = -1;

class PythonPrinter {
 public:
  PythonPrinter(const ir::Graph& graph, const ir::Target& target, PythonPrinter* outer = nullptr,
                std::string_view label = "")
      : graph_(graph),
        target_(target),
        outer_(outer),
        label_(label),
        depth_(outer == nullptr ? 0 : outer->depth_ + 1),
        last_use_(graph.values.size(), kBeforeNodes) {}

  Result<PythonSource> run() {
    name_values();
    if (target_.keeps_whole.contains("split_with_sizes")) join_splits();
    find_last_uses();
    lines_.resize(graph_.nodes.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      at_ = static_cast<int32_t>(i);
      MITHRIL_RETURN_IF_ERROR(print_node(graph_.nodes[i]));
    }
    at_ = static_cast<int32_t>(graph_.nodes.size());
    MITHRIL_ASSIGN(const std::string result, print_return());
    MITHRIL_RETURN_IF_ERROR(place_sizes());
    source_.text = assemble(result);
    return std::move(source_);
  }

 private:
  struct Line {
    std::string functions;  // defined before the statements: what the op runs by itself
    std::vector<std::string> statements;
    std::string comment;
  };

  // ------------------------------------------------------------------------- names and lifetimes

  void name_values() {
    int32_t next = 0;
    numbers_.assign(graph_.values.size(), 0);
    for (const ValueId id : graph_.inputs) numbers_[index(id)] = next++;
    for (const Node& node : graph_.nodes) {
      for (const ValueId id : node.results) numbers_[index(id)] = next++;
    }
  }

  // The pieces of a split are made where the first one is.
  void join_splits() {
    splits_ = find_splits(graph_);
    for (const Split& split : splits_) {
      for (const size_t node : split.nodes) split_of_[static_cast<int32_t>(node)] = &split;
    }
  }

  int32_t place_of(int32_t node) const {
    const auto split = split_of_.find(node);
    return split == split_of_.end() ? node : static_cast<int32_t>(split->second->first_node());
  }

  void find_last_uses() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId id : graph_.nodes[i].operands) {
        if (id == kNoValue) continue;
        int32_t& last = last_use_[index(id)];
        last = std::max(last, place_of(static_cast<int32_t>(i)));
      }
    }
    const auto end = static_cast<int32_t>(graph_.nodes.size());
    for (const ir::Output& output : graph_.outputs) last_use_[index(output.value)] = end;
    for (const ir::StateBinding& state : graph_.states) last_use_[index(state.output)] = end;
  }

  static size_t index(ValueId id) { return static_cast<size_t>(id); }
  std::string name(ValueId id) const { return fmt::format("v{}", numbers_[index(id)]); }
  static const OpDef& op_of(const Node& node) { return ir::Registry::global().get(node.op); }

  Status unsupported(const Node& node, std::string_view reason) const {
    core::Error error =
        core::fail(ErrorKind::kUnsupported, Code::kUnsupported,
                   "{}: the {} backend cannot run it: {}", op_of(node).name, target_.name, reason);
    error.location = graph_.location_of(node);
    return error;
  }

  // ------------------------------------------------------------------------------------ literals

  Result<std::string> literal(const HostValue& value) {
    PythonLiterals literals;
    literals.size = [this](core::SymbolicInt s) { return size_text(Dim::expression(s.expr)); };
    literals.constant = [this](const HostValue& constant) { return add_constant(constant); };
    return python_literal(value, literals);
  }

  // Those of bodies are counted with those of the whole.
  std::string add_constant(const HostValue& constant) {
    if (outer_ != nullptr) return outer_->add_constant(constant);
    source_.constants.push_back(constant);
    return fmt::format("C[{}]", source_.constants.size() - 1);
  }

  std::string size_text(Dim dim) {
    if (dim.known()) return fmt::format("{}", dim.value());
    for (const Dim symbol : graph_.dims.symbols_of(dim)) {
      first_use_.emplace(graph_.dims.symbol_index(symbol), at_);
    }
    std::string text =
        graph_.dims.print_python(dim, [this](Dim symbol) { return size_name(symbol); });
    // What print_python writes for expressions beyond its bounds.
    if (text.find("...") != std::string::npos || text.find("overflow") != std::string::npos) {
      oversized_ = true;
    }
    return text;
  }

  std::string size_name(Dim symbol) const {
    const uint32_t index = graph_.dims.symbol_index(symbol);
    return depth_ == 0 ? fmt::format("n{}", index) : fmt::format("n{}_{}", index, depth_);
  }

  std::string shape_text(const ir::Shape& shape) {
    std::string out = "(";
    for (size_t i = 0; i < shape.size(); ++i) out += (i == 0 ? "" : ", ") + size_text(shape[i]);
    return out + (shape.size() == 1 ? ",)" : ")");
  }

  // ------------------------------------------------------------------------------------ operands

  // The number that a rank-0 `constant` node stands for, if it is one.
  const HostValue* number_of(ValueId id) const {
    const Node* node = graph_.producer(id);
    if (node == nullptr || !op_of(*node).has(ir::Trait::kLiteral)) return nullptr;
    const HostValue* value = node->attrs.find("value");
    const bool number = value != nullptr && (value->is_bool() || value->is_int() ||
                                             value->is_double() || value->is_symbolic());
    return number && graph_.type(id).rank() == 0 ? value : nullptr;
  }

  std::string number_text(ValueId id) {
    const HostValue& value = *number_of(id);
    const DType dtype = graph_.type(id).dtype;
    if (!value.is_symbolic()) return python_number(value, dtype);
    return size_text(Dim::expression(value.as_symbolic().expr));
  }

  Result<std::string> operand(ValueId id) {
    const ir::ValueInfo& info = graph_.value(id);
    if (!info.type.is_tensor && info.host && info.node != ir::kNoNode) return literal(*info.host);
    if (number_of(id) != nullptr) {
      return fmt::format("ops.scalar({}, {})", number_text(id),
                         python_dtype(graph_.type(id).dtype));
    }
    return name(id);
  }

  // A number takes the dtype of a neighbour that is an array of that dtype.
  bool has_strong_neighbour(const Node& node, ValueId id) const {
    if (graph_.type(id).dtype == DType::kBFloat16) return false;  // NumPy would widen
    return std::any_of(node.operands.begin(), node.operands.end(), [&](ValueId other) {
      return other != kNoValue && graph_.type(other).is_tensor && number_of(other) == nullptr &&
             graph_.type(other).dtype == graph_.type(id).dtype;
    });
  }

  Result<std::string> call_operand(const Node& node, ValueId id) {
    const bool weak =
        op_of(node).is_elementwise() && number_of(id) != nullptr && has_strong_neighbour(node, id);
    if (weak) return number_text(id);
    return operand(id);
  }

  // --------------------------------------------------------------------------------------- nodes

  Status print_node(const Node& node) {
    if (is_spelled_where_used(node) || place_of(at_) != at_) return {};
    if (!node.regions.empty()) return print_regions(node);
    if (split_of_.contains(at_)) return print_split(*split_of_.at(at_));
    const OpDef& op = op_of(node);
    Line& line = lines_[static_cast<size_t>(at_)];
    oversized_ = false;
    MITHRIL_ASSIGN(const std::string expression, print_op(op, node, line));
    if (oversized_) return unsupported(node, "a size expression is too long");
    std::string targets;
    for (size_t i = 0; i < node.results.size(); ++i) {
      targets += (i == 0 ? "" : ", ") + name(node.results[i]);
    }
    if (op.outputs.size() == 1 && targets.find(',') == std::string::npos) {
      line.statements.push_back(targets + " = " + expression);
    } else {
      line.statements.push_back(targets + (node.results.size() == 1 ? ", = " : " = ") + expression);
    }
    line.comment = ir::escape_comment(graph_.location_of(node).path);
    add_deletions(node, node.results, line);
    return {};
  }

  // One call, whose gradient is one concatenation: that of each slice is a padded copy.
  Status print_split(const Split& split) {
    std::vector<ValueId> pieces;
    std::string targets, sizes;
    for (const size_t node : split.nodes) pieces.push_back(graph_.nodes[node].results[0]);
    for (const ValueId id : pieces) targets += (targets.empty() ? "" : ", ") + name(id);
    for (const int64_t size : split.sizes)
      sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
    MITHRIL_ASSIGN(const std::string whole, operand(split.whole));
    Line& line = lines_[static_cast<size_t>(at_)];
    line.statements.push_back(
        fmt::format("{} = ops.split_with_sizes({}, ({}), {})", targets, whole, sizes, split.axis));
    const Node& first = graph_.nodes[static_cast<size_t>(at_)];
    line.comment = ir::escape_comment(graph_.location_of(first).path);
    add_deletions(first, pieces, line);
    return {};
  }

  // Regions are functions beside the statements, which see the sizes that stand out here.
  Status print_regions(const Node& node) {
    Line& line = lines_[static_cast<size_t>(at_)];
    static constexpr const char* kLabels[][2] = {
        {"step", ""}, {"taken", "other"}, {"condition", "step"}};
    const auto& labels = kLabels[ir::is_cond(node) ? 1 : ir::is_while(node) ? 2 : 0];
    std::string arguments;
    for (size_t at = 0; at < node.regions.size(); ++at) {
      PythonPrinter region(*node.regions[at], target_, this, labels[at]);
      MITHRIL_ASSIGN(const PythonSource source, region.run());
      line.functions += source.text;
      arguments += region.function_name() + ", ";
    }
    oversized_ = false;
    MITHRIL_ASSIGN(const std::string rest, region_operands(node));
    std::string targets;
    for (const ValueId id : node.results) targets += name(id) + ", ";
    line.statements.push_back(fmt::format("{}= ops.{}({}{})", targets.substr(0, targets.size() - 1),
                                          op_of(node).name, arguments, rest));
    if (oversized_) return unsupported(node, "a size expression is too long");
    line.comment = ir::escape_comment(graph_.location_of(node).path);
    add_deletions(node, node.results, line);
    return {};
  }

  // "(carries), (xs), (constants), …" of a scan; those of the others have no xs, or no carries.
  Result<std::string> region_operands(const Node& node) {
    const ir::RegionParts parts = ir::region_parts(node);
    std::string out;
    const auto add = [&](size_t from, size_t count) -> Status {
      out += out.empty() ? "(" : ", (";
      for (size_t i = from; i < from + count; ++i) {
        MITHRIL_ASSIGN(const std::string text, operand(node.operands[i]));
        out += text + ", ";
      }
      out += ")";
      return {};
    };
    if (!ir::is_cond(node)) MITHRIL_RETURN_IF_ERROR(add(0, parts.carries));
    if (ir::is_scan(node)) MITHRIL_RETURN_IF_ERROR(add(parts.x(0), parts.xs));
    MITHRIL_RETURN_IF_ERROR(add(parts.constant(0), parts.constants));
    if (ir::is_cond(node)) {
      MITHRIL_ASSIGN(const std::string predicate, operand(node.operands.back()));
      out += ", " + predicate;
    }
    if (ir::is_scan(node)) out += ", " + scan_extent(node);
    return out;
  }

  std::string scan_extent(const Node& node) {
    const ir::ScanParts parts = ir::scan_parts(node);
    std::string ys;
    for (size_t i = 0; i < parts.ys; ++i) {
      const ir::Type& type = graph_.type(node.results[parts.y(i)]);
      ys += fmt::format("({}, {}), ", shape_text(type.shape), python_dtype(type.dtype));
    }
    return fmt::format("({}), {}, {}", ys, size_text(ir::length_of(parts)),
                       parts.reverse ? "True" : "False");
  }

  // Known host values and numbers have no variable.
  bool is_spelled_where_used(const Node& node) const {
    if (node.results.size() != 1) return false;
    const ir::ValueInfo& info = graph_.value(node.results[0]);
    if (!info.type.is_tensor) return info.host.has_value();
    return number_of(node.results[0]) != nullptr;
  }

  void add_deletions(const Node& node, const std::vector<ValueId>& results, Line& line) const {
    std::string dead;
    const auto add = [&](ValueId id) { dead += (dead.empty() ? "del " : ", ") + name(id); };
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const ValueId id = node.operands[i];
      if (id == kNoValue || last_use_[index(id)] != at_ || graph_.value(id).node == ir::kNoNode) {
        continue;
      }
      const auto begin = node.operands.begin();
      const bool seen = std::find(begin, begin + static_cast<ptrdiff_t>(i), id) !=
                        begin + static_cast<ptrdiff_t>(i);
      if (!seen && !is_spelled_where_used(*graph_.producer(id))) add(id);
    }
    for (const ValueId id : results) {
      if (last_use_[index(id)] == kBeforeNodes) add(id);
    }
    // All statements but the last one are the temporaries t0, t1 … of a tile expression.
    for (size_t i = 0; i + 1 < line.statements.size(); ++i) {
      dead += fmt::format("{}t{}", dead.empty() ? "del " : ", ", i);
    }
    if (!dead.empty()) line.statements.push_back(dead);
  }

  Result<std::string> print_op(const OpDef& op, const Node& node, Line& line) {
    const bool on_host = std::none_of(node.operands.begin(), node.operands.end(), [&](ValueId id) {
      return id != kNoValue && graph_.type(id).is_tensor;
    });
    if (on_host && !graph_.type(node.results[0]).is_tensor) return print_call("host", op, node);
    if (op.has(ir::Trait::kLiteral)) return literal(*node.attrs.find("value"));
    const bool has_tile = op.body == BodyKind::kPointwise || op.body == BodyKind::kRow;
    const bool has_function = target_.keeps_whole.contains(op.name);
    // A function with an instruction's name is that instruction: the op may be more (an addition
    // of bools, a floor that gives integers).
    if (has_function && !(has_tile && is_instruction(op.name))) return print_function(op, node);
    if (has_tile) return print_tile(op, node, line);
    return unsupported(node, "it has no function of that name");
  }

  static bool is_instruction(std::string_view name) {
    return std::any_of(tile::kOpcodes.begin(), tile::kOpcodes.end(),
                       [&](const tile::OpcodeInfo& info) { return info.python == name; });
  }

  // A call of the function of the op's name, cast if the dtype is the engine's choice.
  Result<std::string> print_function(const OpDef& op, const Node& node) {
    MITHRIL_ASSIGN(std::string call, print_call("ops", op, node));
    if (node.results.size() != 1 || !graph_.type(node.results[0]).is_tensor) return call;
    const DTypeRule::Result rule = op.outputs[0].dtype.result;
    const bool chosen =
        rule == DTypeRule::Result::kDefaultInt || rule == DTypeRule::Result::kDefaultFloat;
    return chosen ? astype(call, graph_.type(node.results[0]).dtype) : call;
  }

  static std::string astype(const std::string& text, DType dtype) {
    return fmt::format("ops.astype({}, {})", text, python_dtype(dtype));
  }

  Result<std::string> print_call(std::string_view module, const OpDef& op, const Node& node) {
    if (!is_python_name(op.name)) return unsupported(node, "its name is no Python name");
    std::string arguments;
    const auto add = [&](std::string_view key, const std::string& text) {
      if (!arguments.empty()) arguments += ", ";
      if (!key.empty()) arguments += std::string(key) + "=";
      arguments += text;
    };
    bool by_position = true;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      const ir::InputDef& input = op.inputs[i];
      if (!is_python_name(input.name))
        return unsupported(node, "an input's name is no Python name");
      const bool absent = input.variadic
                              ? node.attrs.find(input.name) != nullptr && !has_items(op)
                              : i >= node.operands.size() || node.operands[i] == kNoValue;
      if (absent) {
        by_position = false;
        continue;
      }
      MITHRIL_ASSIGN(const std::string text, print_input(node, i, input));
      add(by_position ? "" : input.name, text);
    }
    for (const auto& [key, value] : node.attrs) {
      if (has_items(op) && key == op.inputs.back().name) continue;  // printed as operands
      if (!is_python_name(key)) return unsupported(node, "an attribute's name is no Python name");
      MITHRIL_ASSIGN(const std::string text, print_attribute(op, node, key, value));
      add(key, text);
    }
    return fmt::format("{}.{}({})", module, op.name, arguments);
  }

  // Containers: items that are known are in an attribute, with none where an operand stands.
  static bool has_items(const OpDef& op) {
    return op.body == ir::BodyKind::kHost && !op.inputs.empty() && op.inputs.back().variadic;
  }

  Result<std::string> print_input(const Node& node, size_t i, const ir::InputDef& input) {
    if (!input.variadic) return call_operand(node, node.operands[i]);
    std::string items = "[";
    const HostValue* known = node.attrs.find(input.name);
    for (size_t k = i; k < node.operands.size(); ++k) {
      const bool is_known = known != nullptr && node.operands[k] == kNoValue;
      MITHRIL_ASSIGN(const std::string text,
                     is_known ? literal(known->items()[k - i]) : operand(node.operands[k]));
      items += (k == i ? "" : ", ") + text;
    }
    return items + "]";
  }

  // A dtype attribute that was left open is what the graph decided.
  Result<std::string> print_attribute(const OpDef& op, const Node& node, const std::string& key,
                                      const HostValue& value) {
    const DTypeRule& rule = op.outputs[0].dtype;
    if (rule.result == DTypeRule::Result::kAttr && rule.name == key) {
      return python_dtype(graph_.type(node.results[0]).dtype);
    }
    return key == "axis" ? axes(value) : literal(value);
  }

  // Frameworks take several axes as a tuple.
  Result<std::string> axes(const HostValue& value) {
    return literal(value.is_list() ? HostValue::tuple(value.items()) : value);
  }

  // ------------------------------------------------------------------------------ tile expressions

  Result<std::string> print_tile(const OpDef& op, const Node& node, Line& line) {
    std::vector<TileOperand> operands;
    MITHRIL_ASSIGN(const tile::Program program, tile_program(op, node, operands));
    TileContext context;
    context.operands = operands;
    for (const auto& [key, text] :
         {std::pair{"axis", &context.axis}, std::pair{"keepdim", &context.keepdim}}) {
      const HostValue* value = node.attrs.find(key);
      if (value == nullptr) continue;
      MITHRIL_ASSIGN(*text, axes(*value));
    }
    if (tile::reads_position(program)) {
      context.shape = shape_text(graph_.type(node.results[0]).shape);
    }
    auto text = python_tile(program, context);
    if (!text.ok()) return unsupported(node, text.error().message);
    for (std::string& temporary : text->temporaries) line.statements.push_back(temporary);
    return text->expression;
  }

  Result<tile::Program> tile_program(const OpDef& op, const Node& node,
                                     std::vector<TileOperand>& operands) {
    tile::Builder builder;
    std::vector<tile::Reg> registers;
    for (const ValueId id : node.operands) {
      if (id == kNoValue) {
        registers.emplace_back();
        continue;
      }
      const ir::Type& type = graph_.type(id);
      const bool is_number = number_of(id) != nullptr || !type.is_tensor;
      MITHRIL_ASSIGN(std::string text,
                     number_of(id) != nullptr ? Result<std::string>(number_text(id)) : operand(id));
      operands.push_back({std::move(text), is_number});
      registers.push_back(
          builder.load(type.is_tensor ? type.dtype : graph_.type(node.results[0]).dtype));
    }
    const ir::PointwiseCall call{registers, node.attrs, graph_.type(node.results[0]).dtype};
    builder.store(ir::pointwise(builder, op, call));
    return builder.finish();
  }

  // --------------------------------------------------------------------------------------- sizes

  // A tensor dimension from which a symbol can be read, and where it is there to be read.
  struct SizeSource {
    ValueId value = kNoValue;
    size_t axis = 0;
    int64_t a = 1, b = 0;  // dimension = a * symbol + b
    int32_t position = kBeforeNodes;
    bool exact() const { return a == 1 && b == 0; }
  };

  Status place_sizes() {
    for (const auto& [symbol, first_use] : first_use_) {
      const Dim dim = graph_.dims.symbol_at(symbol);
      const std::optional<SizeSource> source = find_source(dim, first_use);
      if (source) {
        size_lines_[source->position].push_back(size_name(dim) + " = " + source_text(*source));
      } else if (!place_factor(dim, first_use)) {
        MITHRIL_RETURN_IF_ERROR(place_outer_size(dim, first_use));
      }
    }
    return {};
  }

  std::string source_text(const SizeSource& source) const {
    const std::string size = fmt::format("{}.shape[{}]", name(source.value), source.axis);
    std::string text = size;
    if (source.b != 0) text = fmt::format("({} - {})", size, source.b);
    if (source.a != 1) text += fmt::format(" // {}", source.a);
    return text;
  }

  // A size that only products show (`k*g` heads of queries beside `k` of keys): an input's size by
  // what other inputs show of it.
  bool place_factor(Dim symbol, int32_t first_use) {
    infer::DimTable dims = graph_.dims;
    for (const ValueId id : graph_.inputs) {
      const ir::Type& type = graph_.type(id);
      for (size_t axis = 0; type.is_tensor && axis < type.rank(); ++axis) {
        if (type.shape[axis].known() || !dims.contains(type.shape[axis], symbol)) continue;
        const auto others = dims.divide_exact(type.shape[axis], symbol);
        if (!others || dims.contains(*others, symbol)) continue;
        bool shown = true;
        int32_t position = kBeforeNodes;
        const std::string text = dims.print_python(*others, [&](Dim other) {
          const std::optional<SizeSource> source = find_source(other, first_use);
          shown = shown && source;
          if (source) position = std::max(position, source->position);
          return source ? "(" + source_text(*source) + ")" : std::string();
        });
        if (!shown) continue;
        size_lines_[position].push_back(
            fmt::format("{} = {}.shape[{}] // ({} or 1)", size_name(symbol), name(id), axis, text));
        return true;
      }
    }
    return false;
  }

  // A size that nothing in the body shows is that of the same name outside.
  Status place_outer_size(Dim symbol, int32_t first_use) {
    const bool shared = outer_ != nullptr && graph_.dims.is_named(symbol);
    if (!shared) return unreadable(symbol, first_use);
    const auto outer = outer_->graph_.dims.find_symbol(graph_.dims.name_of(symbol));
    if (!outer) return unreadable(symbol, first_use);
    size_lines_[kBeforeNodes].push_back(size_name(symbol) + " = " + outer_->size_text(*outer));
    return {};
  }

  std::optional<SizeSource> find_source(Dim symbol, int32_t first_use) const {
    std::optional<SizeSource> best;
    const auto consider = [&](ValueId id, int32_t position) {
      const ir::Type& type = graph_.type(id);
      const bool dead = last_use_[index(id)] == kBeforeNodes;  // a result that is deleted at once
      if (dead && position != kBeforeNodes) return;
      for (size_t axis = 0; type.is_tensor && axis < type.rank(); ++axis) {
        if (best && best->exact()) return;
        const Dim dim = type.shape[axis];
        if (dim.known()) continue;
        const auto form = graph_.dims.linear(dim);
        if (!form || form->x != symbol || form->a == 0) continue;
        const SizeSource source{id, axis, form->a, form->b, position};
        if (!best || source.exact()) best = source;
      }
    };
    for (const ValueId id : graph_.inputs) consider(id, kBeforeNodes);
    for (int32_t i = 0; i < first_use && !(best && best->exact()); ++i) {
      const Node& node = graph_.nodes[static_cast<size_t>(i)];
      if (is_spelled_where_used(node)) continue;
      for (const ValueId id : node.results) consider(id, i);
    }
    return best;
  }

  Status unreadable(Dim symbol, int32_t first_use) const {
    const bool in_node = first_use < static_cast<int32_t>(graph_.nodes.size());
    core::Error error = core::fail(
        ErrorKind::kShape, Code::kShapeUnknown,
        "{}: the size {} is needed, and no input or earlier result shows it",
        in_node ? op_of(graph_.nodes[static_cast<size_t>(first_use)]).name : "the outputs",
        graph_.dims.name_of(symbol));
    if (in_node) error.location = graph_.location_of(graph_.nodes[static_cast<size_t>(first_use)]);
    error.hint = "give it in shapes=";
    return error;
  }

  // ------------------------------------------------------------------------------------ assembly

  Result<std::string> print_return() {
    std::string items;
    const auto add = [&](ValueId id) -> Status {
      const std::optional<HostValue>& host = graph_.value(id).host;
      if (host && host->is_dtype()) {  // the engine's own word for it, not the framework's
        items += fmt::format("host.Dtype(\"{}\"), ", core::name(host->as_dtype()));
        return {};
      }
      MITHRIL_ASSIGN(const std::string text, operand(id));
      items += text + ", ";
      return {};
    };
    for (const ir::Output& output : graph_.outputs) MITHRIL_RETURN_IF_ERROR(add(output.value));
    for (const ir::StateBinding& state : graph_.states) MITHRIL_RETURN_IF_ERROR(add(state.output));
    if (items.empty()) return std::string("return ()");
    return "return (" + items.substr(0, items.size() - 1) + ")";
  }

  std::string assemble(const std::string& result) {
    std::string parameters;
    for (const ValueId id : graph_.inputs)
      parameters += (parameters.empty() ? "" : ", ") + name(id);
    std::string out = "def " + function_name() + "(" + parameters + "):\n";
    const auto add_sizes = [&](int32_t position) {
      for (const std::string& line : size_lines_[position]) out += "    " + line + "\n";
    };
    add_sizes(kBeforeNodes);
    for (size_t i = 0; i < lines_.size(); ++i) {
      const Line& line = lines_[i];
      out += ir::indented(line.functions);
      if (!line.statements.empty()) out += fmt::format("    {}", join(line.statements));
      if (!line.comment.empty()) out += "  # " + line.comment;
      if (!line.statements.empty()) out += "\n";
      add_sizes(static_cast<int32_t>(i));
    }
    return out + "    " + result + "\n";
  }

  std::string function_name() const {
    return outer_ == nullptr ? "evaluate" : std::string(label_) + place();
  }

  // Of a function: the numbers of the nodes that it is in.
  std::string place() const {
    return outer_ == nullptr ? "" : fmt::format("{}_{}", outer_->place(), outer_->at_);
  }

  static std::string join(const std::vector<std::string>& statements) {
    std::string out;
    for (const std::string& statement : statements) out += (out.empty() ? "" : "; ") + statement;
    return out;
  }

  const ir::Graph& graph_;
  const ir::Target& target_;
  PythonPrinter* const outer_;  // of the graph that a region is in
  const std::string_view label_;
  const int depth_;
  PythonSource source_;
  std::vector<int32_t> numbers_;   // of values, in order of inputs and results
  std::vector<int32_t> last_use_;  // node that reads a value last
  std::vector<Split> splits_;
  std::map<int32_t, const Split*> split_of_;                // by node
  std::vector<Line> lines_;                                 // by node
  std::map<uint32_t, int32_t> first_use_;                   // symbol → node
  std::map<int32_t, std::vector<std::string>> size_lines_;  // after which node
  int32_t at_ = kBeforeNodes;                               // the node being printed
  bool oversized_ = false;
};

}  // namespace

Result<PythonSource> python(const ir::Graph& graph, const ir::Target& target) {
  return PythonPrinter(graph, target).run();
}

}  // namespace mithril::emit
