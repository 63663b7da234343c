// Graph text, read.
//
//   graph   = "graph" name ["<" dtype "," dtype ">"] "(" inputs ")" "{" line* "}"
//   input   = "%" name ":" type ["param" | "state" | "cotangent"]
//   line    = values "=" op "(" operands ["," attr "=" host]* ")" ":" types ("{" graph "}")*
//             ["#" path]                     (graphs: what the op runs by itself)
//           | "state" value "<-" value "=" host
//           | "return" [name "=" value ("," name "=" value)*]
//   type    = dtype "[" dims "]" | host kind
//   host    = number | true | false | none | string | dtype | ... | slice | tuple | list
//           | tensor "<" dtype "[" ints "]" ">" "(" numbers ")" | "'" size "'"
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include "core/checked.h"
#include "core/tensor_data.h"
#include "ir/builder.h"
#include "ir/region.h"
#include "ir/text.h"

namespace mithril::ir {
namespace {

using core::Code;
using core::ErrorKind;
using core::Status;

// What escape_comment wrote, read back.
std::string unescape_comment(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    int byte = 0;
    const char* digits = text.data() + i + 1;
    const bool escape = text[i] == '%' && i + 2 < text.size() &&
                        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    out += escape ? static_cast<char>(byte) : text[i];
    if (escape) i += 2;
  }
  return out;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), builder_(graph_) {}
  Parser(const Parser& outer, int depth)
      : text_(outer.text_), at_(outer.at_), depth_(depth), builder_(graph_) {}

  core::Result<Graph> run() {
    MITHRIL_RETURN_IF_ERROR(graph());
    skip();
    if (at_ != text_.size()) return error("text after the closing brace");
    return std::move(graph_);
  }

 private:
  Status graph() {
    MITHRIL_RETURN_IF_ERROR(header());
    while (!accept("}")) MITHRIL_RETURN_IF_ERROR(line());
    return {};
  }

  // ---------------------------------------------------------------- characters

  Status error(std::string_view what) const {
    size_t line = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) line += text_[i] == '\n' ? 1 : 0;
    return core::fail(ErrorKind::kParse, Code::kParse, "graph text, line {}: {}", line, what);
  }
  Status expected(std::string_view what) const {
    const std::string found(text_.substr(at_, std::min<size_t>(20, text_.size() - at_)));
    return error(fmt::format("expected {}, got '{}'", what, escape_comment(found)));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip() {
    while (at_ < text_.size() && (peek() == ' ' || peek() == '\n' || peek() == '\t')) ++at_;
  }
  bool accept(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  Status expect(std::string_view token) {
    return accept(token) ? Status() : expected("'" + std::string(token) + "'");
  }
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '$';
  }
  std::string_view word() {
    skip();
    const size_t start = at_;
    while (is_word(peek())) ++at_;
    return text_.substr(start, at_ - start);
  }
  core::Result<std::string> name() {
    skip();
    if (peek() == '"') return string();
    const std::string_view out = word();
    if (out.empty()) return expected("a name");
    return std::string(out);
  }
  core::Result<std::string> string() {
    std::string out;
    for (++at_; peek() != '"'; ++at_) {
      if (at_ >= text_.size()) return error("a string without end");
      if (peek() != '\\') {
        out += peek();
        continue;
      }
      ++at_;
      if (peek() != 'x') {
        out += peek();
        continue;
      }
      int byte = 0;
      const auto digits = text_.substr(at_ + 1, 2);
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
      if (digits.size() != 2 || read.ptr != digits.data() + 2) return error("a bad \\x escape");
      out += static_cast<char>(byte);
      at_ += 2;
    }
    ++at_;
    return out;
  }

  // ---------------------------------------------------------------- values and types

  core::Result<ValueId> value() {
    MITHRIL_RETURN_IF_ERROR(expect("%"));
    MITHRIL_ASSIGN(const std::string label, name());
    const auto at = labels_.find(label);
    if (at == labels_.end()) return error("no value named '%" + escape_comment(label) + "'");
    return at->second;
  }

  core::Result<Shape> shape() {
    Shape out;
    MITHRIL_RETURN_IF_ERROR(expect("["));
    while (!accept("]")) {
      if (!out.empty()) MITHRIL_RETURN_IF_ERROR(expect(","));
      skip();
      const size_t start = at_;
      for (int depth = 0; at_ < text_.size(); ++at_) {
        if (peek() == '(') ++depth;
        if (peek() == ')') --depth;
        if (depth == 0 && (peek() == ',' || peek() == ']')) break;
      }
      MITHRIL_ASSIGN(const Dim dim, graph_.dims.parse(text_.substr(start, at_ - start)));
      if (out.size() >= kMaxRank) return error("a shape of more than 64 dimensions");
      out.push_back(dim);
    }
    return out;
  }

  core::Result<HostType> host_type(std::string_view tag, int depth) {
    static constexpr std::string_view kTags[] = {"none",  "bool",  "int",      "float", "str",
                                                 "dtype", "slice", "ellipsis", "tuple", "opaque"};
    for (size_t i = 0; i < std::size(kTags); ++i) {
      if (tag != kTags[i]) continue;
      HostType out{static_cast<HostType::Tag>(i), {}};
      if (out.tag != HostType::Tag::kTuple) return out;
      if (depth >= HostValue::kMaxDepth) return error("a tuple nested too deeply");
      MITHRIL_RETURN_IF_ERROR(expect("<"));
      while (!accept(">")) {
        if (!out.items.empty()) MITHRIL_RETURN_IF_ERROR(expect(","));
        MITHRIL_ASSIGN(HostType item, host_type(word(), depth + 1));
        out.items.push_back(std::move(item));
      }
      return out;
    }
    return error("no type named '" + escape_comment(tag) + "'");
  }

  core::Result<Type> type() {
    const std::string_view tag = word();
    if (peek() == '[') {
      const auto dtype = core::parse_dtype(tag);
      if (!dtype) return error("no dtype named '" + escape_comment(tag) + "'");
      MITHRIL_ASSIGN(Shape dims, shape());
      return Type::tensor(*dtype, std::move(dims));
    }
    MITHRIL_ASSIGN(HostType host, host_type(tag, 0));
    return Type::host_value(std::move(host));
  }

  core::Result<HostValue> number() {
    skip();
    const size_t start = at_;
    while (is_word(peek()) || peek() == '-' || peek() == '+') ++at_;
    const std::string text(text_.substr(start, at_ - start));
    int64_t integer = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, integer);
    if (read.ec == std::errc() && read.ptr == end) return HostValue(integer);
    double real = 0.0;
    const auto read_real = std::from_chars(text.data(), end, real);
    const bool whole = read_real.ptr == end && !text.empty();
    if (!whole || read_real.ec == std::errc::invalid_argument) {
      at_ = start;
      return expected("a value");
    }
    if (read_real.ec == std::errc::result_out_of_range) {
      return error("the number " + text + " is out of range");
    }
    return HostValue(real);
  }

  core::Result<HostValue> sequence(std::string_view close, int depth) {
    HostValue::Tuple items;
    while (!accept(close)) {
      if (!items.empty()) {
        MITHRIL_RETURN_IF_ERROR(expect(","));
        if (accept(close)) break;  // (1,)
      }
      MITHRIL_ASSIGN(HostValue item, host(depth + 1));
      items.push_back(std::move(item));
    }
    return close == ")" ? HostValue::tuple(std::move(items)) : HostValue::list(std::move(items));
  }

  core::Result<HostValue> tensor() {
    MITHRIL_RETURN_IF_ERROR(expect("<"));
    MITHRIL_ASSIGN(const Type literal, type());
    MITHRIL_RETURN_IF_ERROR(expect(">"));
    MITHRIL_RETURN_IF_ERROR(expect("("));
    if (!literal.is_tensor || !is_static(literal.shape)) return error("a literal needs sizes");
    const auto dims = static_dims(literal.shape);
    const auto count = core::element_count(dims);
    if (!count) return error("a literal of too many elements");
    auto data = std::make_shared<core::TensorData>();
    data->dtype = literal.dtype;
    data->shape = dims;
    for (int64_t i = 0; i < *count; ++i) {
      if (i != 0) MITHRIL_RETURN_IF_ERROR(expect(","));
      MITHRIL_ASSIGN(const HostValue element, host(HostValue::kMaxDepth));
      const bool number = element.is_bool() || element.is_int() || element.is_double();
      if (!number) return error("an element of a literal is no number");
      core::append_element(*data, element);
    }
    MITHRIL_RETURN_IF_ERROR(expect(")"));
    return HostValue(std::shared_ptr<const core::TensorData>(std::move(data)));
  }

  // A slice starts with ":" or continues a value by ":".
  core::Result<HostValue> host(int depth) {
    core::Slice slice;
    if (!accept(":")) {
      MITHRIL_ASSIGN(HostValue first, atom(depth));
      const bool bound = first.is_int() || first.is_symbolic();
      if (!bound || !accept(":")) return first;
      slice.start = std::move(first);
    }
    MITHRIL_RETURN_IF_ERROR(bound(slice.stop));
    if (accept(":")) MITHRIL_RETURN_IF_ERROR(bound(slice.step));
    return HostValue(std::move(slice));
  }

  Status bound(HostValue& out) {
    skip();
    const bool given = peek() == '-' || peek() == '\'' || (peek() >= '0' && peek() <= '9');
    if (!given) return {};
    auto parsed = atom(HostValue::kMaxDepth);
    if (!parsed.ok()) return std::move(parsed).status();
    out = std::move(*parsed);
    return {};
  }

  core::Result<HostValue> atom(int depth) {
    skip();
    if (depth > HostValue::kMaxDepth) return error("a value nested too deeply");
    if (peek() == '"') {
      MITHRIL_ASSIGN(std::string text, string());
      return HostValue(std::move(text));
    }
    if (accept("'")) {
      const size_t end = text_.find('\'', at_);
      if (end == std::string_view::npos) return error("a size without end");
      MITHRIL_ASSIGN(const Dim dim, graph_.dims.parse(text_.substr(at_, end - at_)));
      at_ = end + 1;
      if (dim.known()) return HostValue(dim.value());
      return HostValue(core::SymbolicInt{dim.id()});
    }
    if (accept("...")) return HostValue(core::EllipsisValue{});
    if (accept("(")) return sequence(")", depth);
    if (accept("[")) return sequence("]", depth);
    const size_t start = at_;
    const std::string_view text = word();
    if (text == "true") return HostValue(true);
    if (text == "false") return HostValue(false);
    if (text == "none") return HostValue();
    if (text == "tensor" && peek() == '<') return tensor();
    if (const auto dtype = core::parse_dtype(text)) return HostValue(*dtype);
    at_ = start;
    return number();
  }

  // ---------------------------------------------------------------- structure

  Status header() {
    MITHRIL_RETURN_IF_ERROR(expect("graph"));
    auto graph_name = name();
    if (!graph_name.ok()) return std::move(graph_name).status();
    graph_.name = *graph_name;
    if (accept("<")) {
      const auto real = core::parse_dtype(word());
      MITHRIL_RETURN_IF_ERROR(expect(","));
      const auto integer = core::parse_dtype(word());
      MITHRIL_RETURN_IF_ERROR(expect(">"));
      if (!real || !integer) return error("the header needs two dtypes");
      graph_.default_float = *real;
      graph_.default_int = *integer;
    }
    MITHRIL_RETURN_IF_ERROR(expect("("));
    bool first = true;
    while (!accept(")")) {
      if (!first) MITHRIL_RETURN_IF_ERROR(expect(","));
      first = false;
      MITHRIL_RETURN_IF_ERROR(input());
    }
    return expect("{");
  }

  Status input() {
    MITHRIL_RETURN_IF_ERROR(expect("%"));
    auto key = name();
    if (!key.ok()) return std::move(key).status();
    MITHRIL_RETURN_IF_ERROR(expect(":"));
    auto input_type = type();
    if (!input_type.ok()) return std::move(input_type).status();
    const Role role = accept("param")       ? Role::kParam
                      : accept("state")     ? Role::kState
                      : accept("cotangent") ? Role::kCotangent
                                            : Role::kData;
    if (labels_.contains(*key)) return error("two inputs named '" + escape_comment(*key) + "'");
    labels_[*key] = graph_.add_input(*key, std::move(*input_type), role);
    return {};
  }

  Status line() {
    skip();
    if (at_ >= text_.size()) return error("the closing brace is missing");
    if (peek() == '%') return node();
    if (accept("return")) return outputs();
    if (accept("state")) return state();
    return expected("a line");
  }

  Status state() {
    StateBinding binding;
    auto input = value();
    if (!input.ok()) return std::move(input).status();
    MITHRIL_RETURN_IF_ERROR(expect("<-"));
    auto output = value();
    if (!output.ok()) return std::move(output).status();
    MITHRIL_RETURN_IF_ERROR(expect("="));
    auto initial = host(0);
    if (!initial.ok()) return std::move(initial).status();
    graph_.states.push_back({*input, *output, std::move(*initial)});
    return {};
  }

  Status outputs() {
    skip();
    while (peek() != '}' && at_ < text_.size()) {
      if (!graph_.outputs.empty()) MITHRIL_RETURN_IF_ERROR(expect(","));
      auto key = name();
      if (!key.ok()) return std::move(key).status();
      MITHRIL_RETURN_IF_ERROR(expect("="));
      auto output = value();
      if (!output.ok()) return std::move(output).status();
      graph_.outputs.push_back({std::move(*key), *output});
      skip();
    }
    return {};
  }

  Status node() {
    std::vector<std::string> names;
    do {
      MITHRIL_RETURN_IF_ERROR(expect("%"));
      auto label = name();
      if (!label.ok()) return std::move(label).status();
      names.push_back(std::move(*label));
    } while (accept(","));
    MITHRIL_RETURN_IF_ERROR(expect("="));
    const std::string op_name(word());
    auto op = Registry::global().lookup(op_name);
    if (!op.ok()) return error(op.error().message);
    std::vector<Operand> operands;
    Attrs attrs;
    MITHRIL_RETURN_IF_ERROR(arguments(operands, attrs));
    return finish_node(**op, names, std::move(operands), std::move(attrs));
  }

  Status arguments(std::vector<Operand>& operands, Attrs& attrs) {
    MITHRIL_RETURN_IF_ERROR(expect("("));
    bool first = true;
    while (!accept(")")) {
      if (!first) MITHRIL_RETURN_IF_ERROR(expect(","));
      first = false;
      skip();
      if (peek() == '%') {
        auto operand = value();
        if (!operand.ok()) return std::move(operand).status();
        operands.emplace_back(builder_.value(*operand));
        continue;
      }
      const std::string key(word());
      if (key == "_") {
        operands.emplace_back();
        continue;
      }
      MITHRIL_RETURN_IF_ERROR(expect("="));
      auto attr = host(0);
      if (!attr.ok()) return std::move(attr).status();
      attrs.set(key, std::move(*attr));
    }
    return {};
  }

  // Result types come from the text: they may name symbols that inference would make anew.
  Status finish_node(const OpDef& op, const std::vector<std::string>& names,
                     std::vector<Operand> operands, Attrs attrs) {
    MITHRIL_RETURN_IF_ERROR(expect(":"));
    std::vector<Type> types;
    do {
      auto result = type();
      if (!result.ok()) return std::move(result).status();
      types.push_back(std::move(*result));
    } while (accept(","));
    const size_t count = op.regions != 0 ? types.size() : op.outputs.size();
    if (names.size() != types.size() || names.size() != count) {
      return error(fmt::format("{} has {} results", op.name, op.outputs.size()));
    }
    Regions regions(static_cast<size_t>(op.regions));
    for (auto& inner : regions) {
      MITHRIL_ASSIGN(inner, region());
    }
    int32_t location = 0;
    if (accept("#")) {
      core::Location place;
      while (peek() == ' ') ++at_;
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      place.path = unescape_comment(text_.substr(at_, end - at_));
      at_ = end;
      location = graph_.add_location(std::move(place));
    }
    builder_.set_location(location);
    if (!regions.empty()) return finish_regions(op, names, operands, attrs, regions, types);
    const auto results = builder_.call_all(op, std::move(operands), std::move(attrs));
    if (!builder_.status().ok()) return error(builder_.status().error().message);
    for (size_t i = 0; i < names.size(); ++i) {
      Type& inferred = graph_.value(results[i].id).type;
      if (!adopt(inferred, types[i])) {
        return error(fmt::format("{} infers {}, not {}", op.name, to_string(inferred, graph_.dims),
                                 to_string(types[i], graph_.dims)));
      }
      if (!labels_.emplace(names[i], results[i].id).second) {
        return error("two values named '%" + escape_comment(names[i]) + "'");
      }
    }
    return {};
  }

  core::Result<std::shared_ptr<const Graph>> region() {
    if (depth_ == kMaxRegionDepth) return error("graphs nested too deeply");
    MITHRIL_RETURN_IF_ERROR(expect("{"));
    Parser inner(*this, depth_ + 1);
    MITHRIL_RETURN_IF_ERROR(inner.graph());
    at_ = inner.at_;
    MITHRIL_RETURN_IF_ERROR(expect("}"));
    return std::make_shared<const Graph>(std::move(inner.graph_));
  }

  Status finish_regions(const OpDef& op, const std::vector<std::string>& names,
                        const std::vector<Operand>& operands, const Attrs& attrs,
                        const Regions& regions, const std::vector<Type>& types) {
    std::vector<Value> values;
    for (const Operand& operand : operands) values.push_back(operand.value);
    const auto results = builder_.call_regions(op, values, attrs, regions, types);
    if (!builder_.status().ok()) return error(builder_.status().error().message);
    const Status checked = check_regions(graph_, graph_.nodes.back());
    if (!checked.ok()) return error(checked.error().message);
    for (size_t i = 0; i < names.size(); ++i) {
      if (!labels_.emplace(names[i], results[i].id).second) {
        return error("two values named '%" + escape_comment(names[i]) + "'");
      }
    }
    return {};
  }

  // The written type wins where inference left a size open (a fresh symbol).
  bool adopt(Type& inferred, const Type& written) const {
    if (inferred == written) return true;
    if (!inferred.is_tensor || !written.is_tensor || inferred.dtype != written.dtype ||
        inferred.rank() != written.rank()) {
      return false;
    }
    for (size_t i = 0; i < written.shape.size(); ++i) {
      if (inferred.shape[i] == written.shape[i]) continue;
      const Dim dim = inferred.shape[i];
      const bool open = !dim.known() && graph_.dims.is_symbol(dim) && !graph_.dims.is_named(dim);
      if (!open) return false;
      inferred.shape[i] = written.shape[i];
    }
    return true;
  }

  static constexpr size_t kMaxRank = 64;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  Graph graph_;
  Builder builder_;
  std::map<std::string, ValueId> labels_;
};

}  // namespace

core::Result<Graph> parse(std::string_view text) { return Parser(text).run(); }

}  // namespace mithril::ir
