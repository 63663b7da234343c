// Graph text, written. The grammar stands in parse.cc.
#include <fmt/format.h>

#include "ir/registry.h"
#include "ir/text.h"

namespace mithril::ir {
namespace {

bool is_plain_name(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
  };
  if (name.empty() || !letter(name[0])) return false;
  for (const char c : name) {
    if (!letter(c) && !(c >= '0' && c <= '9') && c != '.') return false;
  }
  return true;
}

std::string quoted(const std::string& name) { return core::to_string(HostValue(name)); }

std::string name_text(const std::string& name) { return is_plain_name(name) ? name : quoted(name); }

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph), labels_(graph.values.size()) {
    for (const ValueId id : graph.inputs) label(id) = "%" + name_text(graph.value(id).name);
    int32_t next = 0;
    for (const Node& node : graph.nodes) {
      for (const ValueId id : node.results) label(id) = fmt::format("%{}", next++);
    }
  }

  std::string run() {
    out_ = "graph " + name_text(graph_.name.empty() ? "model" : graph_.name);
    if (graph_.is_concrete()) {
      out_ +=
          fmt::format("<{}, {}>", short_name(graph_.default_float), short_name(graph_.default_int));
    }
    print_inputs();
    for (const Node& node : graph_.nodes) print_node(node);
    for (const StateBinding& state : graph_.states) {
      out_ += fmt::format("  state {} <- {} = {}\n", label(state.input), label(state.output),
                          host(state.initial));
    }
    print_outputs();
    return out_ + "}\n";
  }

 private:
  std::string& label(ValueId id) { return labels_[static_cast<size_t>(id)]; }

  std::string host(const HostValue& value) {
    return core::to_string(value, [this](core::SymbolicInt symbol) {
      const std::string text = graph_.dims.print(Dim::expression(symbol.expr));
      return "'" + text + "'";
    });
  }

  void print_inputs() {
    static constexpr const char* kRoles[] = {"", " param", " state", " cotangent"};
    out_ += "(";
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueInfo& info = graph_.value(graph_.inputs[i]);
      if (i != 0) out_ += ", ";
      out_ += label(graph_.inputs[i]) + ": " + to_string(info.type, graph_.dims) +
              kRoles[static_cast<size_t>(info.role)];
    }
    out_ += ") {\n";
  }

  // Absent operands at the end are left out; `_` stands for one in the middle.
  void print_operands(const OpDef& op, const Node& node) {
    size_t count = node.operands.size();
    while (count > 0 && node.operands[count - 1] == kNoValue) --count;
    bool first = true;
    const auto comma = [&] {
      if (!first) out_ += ", ";
      first = false;
    };
    for (size_t i = 0; i < count; ++i) {
      comma();
      out_ += node.operands[i] == kNoValue ? "_" : label(node.operands[i]);
    }
    for (const auto& [name, value] : node.attrs) {
      if (is_default(op, name, value)) continue;
      comma();
      out_ += name + "=" + host(value);
    }
  }

  static bool is_default(const OpDef& op, const std::string& name, const HostValue& value) {
    const InputDef* input = op.find_input(name);
    if (input != nullptr) return input->default_value && *input->default_value == value;
    for (const AttrDef& attr : op.attrs) {
      if (attr.name == name) return attr.default_value && *attr.default_value == value;
    }
    return false;
  }

  void print_node(const Node& node) {
    const OpDef& op = Registry::global().get(node.op);
    out_ += "  ";
    for (size_t i = 0; i < node.results.size(); ++i) {
      out_ += (i == 0 ? "" : ", ") + label(node.results[i]);
    }
    out_ += " = " + op.name + "(";
    print_operands(op, node);
    out_ += ") : ";
    for (size_t i = 0; i < node.results.size(); ++i) {
      out_ += (i == 0 ? "" : ", ") + to_string(graph_.type(node.results[i]), graph_.dims);
    }
    for (const auto& region : node.regions) print_region(*region);
    const std::string& path = graph_.location_of(node).path;
    if (!path.empty()) out_ += "  # " + escape_comment(path);
    out_ += "\n";
  }

  // A line of the region is a line of the text: strings and paths have none inside.
  void print_region(const Graph& region) {
    out_ += " {\n" + indented(Printer(region).run()) + "  }";
  }

  void print_outputs() {
    out_ += "  return";
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Output& output = graph_.outputs[i];
      out_ += (i == 0 ? " " : ", ") + name_text(output.name) + "=" + label(output.value);
    }
    out_ += "\n";
  }

  const Graph& graph_;
  std::vector<std::string> labels_;
  std::string out_;
};

}  // namespace

std::string escape_comment(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string out;
  for (const char c : text) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_';
    const std::string piece =
        kept ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    if (out.size() + piece.size() > kLongest) break;
    out += piece;
  }
  return out;
}

std::string indented(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at) + 1;
    out += "    ";
    out += text.substr(at, end - at);
    at = end;
  }
  return out;
}

std::string print(const Graph& graph) { return Printer(graph).run(); }

}  // namespace mithril::ir
