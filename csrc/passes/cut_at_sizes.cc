#include "passes/cut_at_sizes.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/builder.h"
#include "ir/registry.h"
#include "passes/mentions.h"

namespace mithril::passes {

using infer::Dim;
using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

namespace {

const std::string& bounded_op(const Node& node) {
  return ir::Registry::global().get(node.op).bounded;
}

class Cutter {
 public:
  explicit Cutter(const ir::Graph& graph) : graph_(graph) {}

  core::Result<std::vector<Segment>> run() {
    find_sources();
    for (const Node& node : graph_.nodes) facts_.push_back(fact_of(node));
    find_last();
    find_segments();
    contents_.resize(static_cast<size_t>(last_) + 1);
    for (int32_t s = last_; s >= 0; --s) fill(s);
    places_.assign(graph_.values.size(), -1);
    std::vector<Segment> out;
    for (int32_t s = 0; s <= last_; ++s) {
      MITHRIL_ASSIGN(Segment made, built(contents_[static_cast<size_t>(s)], s == last_));
      out.push_back(std::move(made));
    }
    return out;
  }

 private:
  struct Fact {
    bool is_sized = false;  // by data
    bool is_free = false;   // runs nowhere, or costs nothing: it is wherever it is read
    std::vector<ValueId> operands;
    std::vector<Dim> symbols;   // that it speaks of and others tell
    std::vector<ValueId> uses;  // operands, and what tells the symbols
    int32_t segment = 0;
  };
  struct Content {
    std::vector<bool> nodes;
    std::vector<ValueId> inputs;   // values of the program
    std::vector<ValueId> outputs;  // what later segments read
  };

  // --- which values tell a size ---------------------------------------------------------------

  /// The first value with a dim `a·symbol + b` tells it: an input, else what is sized by data.
  /// Where there is none, all inputs that have it otherwise do.
  void find_sources() {
    sources_.resize(graph_.dims.symbol_count());
    for (const ValueId id : graph_.inputs) tell_linear(id);
    for (const Node& node : graph_.nodes) {
      for (const ValueId id : node.results) {
        if (!bounded_op(node).empty()) tell_linear(id);
      }
    }
    const std::vector<std::vector<ValueId>> linear = sources_;
    for (const ValueId id : graph_.inputs) {
      Mentions mentions(graph_);
      mentions.add(id);
      for (const Dim symbol : mentions.symbols()) {
        const uint32_t index = graph_.dims.symbol_index(symbol);
        if (linear[index].empty()) sources_[index].push_back(id);
      }
    }
    for (const Node& node : graph_.nodes) {
      for (const ValueId id : node.results) tell_linear(id);
    }
  }
  void tell_linear(ValueId id) {
    if (!graph_.type(id).is_tensor) return;
    for (const Dim dim : graph_.type(id).shape) {
      const auto form = dim.known() ? std::nullopt : graph_.dims.linear(dim);
      if (!form) continue;
      auto& sources = sources_[graph_.dims.symbol_index(form->x)];
      if (sources.empty()) sources.push_back(id);
    }
  }

  const std::vector<ValueId>& sources_of(Dim symbol) const {
    return sources_[graph_.dims.symbol_index(symbol)];
  }
  bool tells(ValueId id, Dim symbol) const {
    const ir::Shape& shape = graph_.type(id).shape;
    return std::any_of(shape.begin(), shape.end(), [&](Dim dim) {
      const auto form = dim.known() ? std::nullopt : graph_.dims.linear(dim);
      return form && form->x == symbol;
    });
  }

  Fact fact_of(const Node& node) const {
    Fact out;
    out.is_sized = !bounded_op(node).empty();
    const auto is_host = [&](ValueId id) { return !graph_.type(id).is_tensor; };
    for (const ValueId id : node.operands) {
      if (id != kNoValue) out.operands.push_back(id);
    }
    const bool is_constant =
        out.operands.empty() && node.regions.empty() && !ir::Registry::global().get(node.op).random;
    out.is_free = is_constant || std::any_of(node.results.begin(), node.results.end(), is_host);
    Mentions mentions(graph_);
    mentions.add(node);
    out.uses = out.operands;
    const auto is_own = [&](ValueId id) {
      return std::find(node.results.begin(), node.results.end(), id) != node.results.end();
    };
    for (const Dim symbol : mentions.symbols()) {
      const std::vector<ValueId>& sources = sources_of(symbol);
      if (std::any_of(sources.begin(), sources.end(), is_own)) continue;
      out.symbols.push_back(symbol);
      out.uses.insert(out.uses.end(), sources.begin(), sources.end());
    }
    return out;
  }

  // --- which segment a node is in ---------------------------------------------------------------

  NodeId producer(ValueId id) const { return graph_.value(id).node; }

  /// Counts the sizes that must be known one after another.
  void find_last() {
    std::vector<int32_t> levels(graph_.values.size(), 0);
    for (size_t i = 0; i < facts_.size(); ++i) {
      int32_t level = 0;
      for (const ValueId id : facts_[i].uses) {
        level = std::max(level, levels[static_cast<size_t>(id)]);
      }
      level += facts_[i].is_sized ? 1 : 0;
      for (const ValueId id : graph_.nodes[i].results) levels[static_cast<size_t>(id)] = level;
      last_ = std::max(last_, level);
    }
  }

  void find_segments() {
    for (Fact& fact : facts_) fact.segment = last_ - (fact.is_sized ? 1 : 0);
    for (size_t i = facts_.size(); i-- > 0;) {
      for (const ValueId id : facts_[i].uses) {
        if (producer(id) == ir::kNoNode) continue;
        Fact& maker = facts_[static_cast<size_t>(producer(id))];
        const int32_t latest = facts_[i].segment - (maker.is_sized ? 1 : 0);
        maker.segment = std::min(maker.segment, latest);
      }
    }
  }

  // --- what segments hold -----------------------------------------------------------------------

  bool is_made_in(const Content& content, ValueId id) const {
    const NodeId node = producer(id);
    return node != ir::kNoNode && content.nodes[static_cast<size_t>(node)] &&
           !facts_[static_cast<size_t>(node)].is_sized;
  }

  std::vector<bool> roots(int32_t segment) const {
    std::vector<bool> out(graph_.values.size(), false);
    if (segment < last_) return out;
    for (const ir::Output& output : graph_.outputs) out[static_cast<size_t>(output.value)] = true;
    for (const ir::StateBinding& state : graph_.states) {
      out[static_cast<size_t>(state.input)] = out[static_cast<size_t>(state.output)] = true;
    }
    return out;
  }

  void fill(int32_t segment) {
    Content& content = contents_[static_cast<size_t>(segment)];
    content.nodes.assign(graph_.nodes.size(), false);
    std::vector<bool> read = roots(segment);
    Mentions mentions(graph_);
    for (size_t id = 0; id < read.size(); ++id) {
      if (read[id]) mentions.add(static_cast<ValueId>(id));
    }
    for (size_t i = facts_.size(); i-- > 0;) {
      const std::vector<ValueId>& results = graph_.nodes[i].results;
      const bool is_here =
          facts_[i].is_free ? std::any_of(results.begin(), results.end(),
                                          [&](ValueId id) { return read[static_cast<size_t>(id)]; })
                            : facts_[i].segment == segment;
      if (!is_here) continue;
      content.nodes[i] = true;
      for (const ValueId id : facts_[i].operands) read[static_cast<size_t>(id)] = true;
      for (const Dim symbol : facts_[i].symbols) mentions.add_dim(symbol);
    }
    for (size_t id = 0; id < read.size(); ++id) {
      if (read[id] && !is_made_in(content, static_cast<ValueId>(id))) {
        content.inputs.push_back(static_cast<ValueId>(id));
      }
    }
    for (const ValueId id : content.inputs) mentions.add(id);
    add_sources(content, mentions);
    order_inputs(content);
  }

  // Inputs that are there may tell a symbol as well; what is added speaks of symbols, too.
  void add_sources(Content& content, Mentions& mentions) const {
    for (size_t i = 0; i < mentions.symbols().size(); ++i) {
      const Dim symbol = mentions.symbols()[i];
      std::vector<ValueId>& inputs = content.inputs;
      const bool is_told =
          std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) { return tells(id, symbol); });
      if (is_told) continue;
      for (const ValueId id : sources_of(symbol)) {
        const bool is_there = std::find(inputs.begin(), inputs.end(), id) != inputs.end();
        if (is_there || is_made_in(content, id)) continue;
        inputs.push_back(id);
        mentions.add(id);
      }
    }
  }

  // Sizes that data decide first, so that an input of the caller which differs is the one that is
  // named; and then values of other segments. What several have for an input follows in order.
  void order_inputs(Content& content) {
    const auto rank = [&](ValueId id) {
      const NodeId node = producer(id);
      if (node == ir::kNoNode) return 2;
      return facts_[static_cast<size_t>(node)].is_sized ? 0 : 1;
    };
    std::stable_sort(content.inputs.begin(), content.inputs.end(),
                     [&](ValueId a, ValueId b) { return rank(a) < rank(b); });
    for (const ValueId id : content.inputs) {
      const NodeId node = producer(id);
      if (node == ir::kNoNode) continue;
      auto& outputs =
          contents_[static_cast<size_t>(facts_[static_cast<size_t>(node)].segment)].outputs;
      if (std::find(outputs.begin(), outputs.end(), id) == outputs.end()) outputs.push_back(id);
    }
  }

  // --- the segments as graphs -------------------------------------------------------------------

  Segment::Source source_of(ValueId id) const {
    const NodeId node = producer(id);
    if (node == ir::kNoNode) {
      const auto at = std::find(graph_.inputs.begin(), graph_.inputs.end(), id);
      return {-1, static_cast<int32_t>(at - graph_.inputs.begin())};
    }
    return {facts_[static_cast<size_t>(node)].segment, places_[static_cast<size_t>(id)]};
  }

  void add_inputs(Segment& out, const Content& content, std::vector<ValueId>& map) const {
    for (const ValueId id : content.inputs) {
      const ir::ValueInfo& info = graph_.value(id);
      const bool is_input = info.node == ir::kNoNode;
      const ValueId made = out.graph.add_input(is_input ? info.name : fmt::format("${}", id),
                                               info.type, is_input ? info.role : ir::Role::kData);
      out.graph.value(made).host = info.host;
      map[static_cast<size_t>(id)] = made;
      out.inputs.push_back(source_of(id));
    }
  }

  Node mapped(const Node& node, const std::vector<ValueId>& map) const {
    Node out = node;
    for (ValueId& id : out.operands) {
      if (id != kNoValue) id = map[static_cast<size_t>(id)];
    }
    return out;
  }

  void copy(Segment& out, const Node& node, std::vector<ValueId>& map) const {
    Node made = mapped(node, map);
    std::vector<ir::Type> types;
    for (const ValueId id : node.results) types.push_back(graph_.type(id));
    const NodeId at = out.graph.add_node(node.op, std::move(made.operands), std::move(made.attrs),
                                         std::move(types), node.location);
    out.graph.nodes[static_cast<size_t>(at)].regions = node.regions;
    for (size_t i = 0; i < node.results.size(); ++i) {
      ir::ValueInfo& info = out.graph.value(out.graph.node(at).results[i]);
      info.host = graph_.value(node.results[i]).host;
      info.name = graph_.value(node.results[i]).name;
      map[static_cast<size_t>(node.results[i])] = out.graph.node(at).results[i];
    }
  }

  // Results as large as they can be, and how many of their rows are meant. Equal nodes, which
  // differ in the symbols that they bring in, have the same ones.
  core::Status add_bounded(Segment& out, const Node& node, const std::vector<ValueId>& map) {
    const auto index = static_cast<int32_t>(out.graph.outputs.size());
    const Node made = mapped(node, map);
    for (const Bounded& one : bounded_) {
      if (one.op != node.op || one.operands != made.operands || one.attrs != node.attrs) continue;
      for (size_t i = 0; i < node.results.size(); ++i) {
        places_[static_cast<size_t>(node.results[i])] = one.first_output + static_cast<int32_t>(i);
      }
      return {};
    }
    ir::Builder builder(out.graph, node.location);
    std::vector<ir::Operand> operands;
    for (const ValueId id : made.operands) operands.emplace_back(builder.value(id));
    const auto results =
        builder.call_all(*ir::Registry::global().find(bounded_op(node)), operands, node.attrs);
    MITHRIL_RETURN_IF_ERROR(builder.take_status());
    for (size_t i = 0; i < results.size(); ++i) {
      const bool is_count = i + 1 == results.size();
      if (!is_count)
        places_[static_cast<size_t>(node.results[i])] = index + static_cast<int32_t>(i);
      add_output(out, results[i].id);
      out.counts.back() = is_count ? -1 : index + static_cast<int32_t>(node.results.size());
    }
    bounded_.push_back({node.op, made.operands, node.attrs, index});
    return {};
  }

  void add_outputs(Segment& out, const Content& content, const std::vector<ValueId>& map) {
    for (const ValueId id : content.outputs) {
      if (facts_[static_cast<size_t>(producer(id))].is_sized) continue;
      places_[static_cast<size_t>(id)] = static_cast<int32_t>(out.graph.outputs.size());
      add_output(out, map[static_cast<size_t>(id)]);
    }
  }

  static void add_output(Segment& out, ValueId value) {
    out.graph.outputs.push_back({fmt::format("${}", out.counts.size()), value});
    out.counts.push_back(-1);
  }

  void add_results(Segment& out, const std::vector<ValueId>& map) const {
    for (const ir::Output& output : graph_.outputs) {
      out.graph.outputs.push_back({output.name, map[static_cast<size_t>(output.value)]});
      out.counts.push_back(-1);
    }
    for (const ir::StateBinding& state : graph_.states) {
      out.graph.states.push_back({map[static_cast<size_t>(state.input)],
                                  map[static_cast<size_t>(state.output)], state.initial});
    }
  }

  core::Result<Segment> built(const Content& content, bool is_last) {
    Segment out;
    out.graph = graph_.frame();
    std::vector<ValueId> map(graph_.values.size(), kNoValue);
    bounded_.clear();
    add_inputs(out, content, map);
    for (size_t i = 0; i < facts_.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (!content.nodes[i]) continue;
      if (facts_[i].is_sized) {
        MITHRIL_RETURN_IF_ERROR(add_bounded(out, node, map));
      } else {
        copy(out, node, map);
      }
    }
    is_last ? add_results(out, map) : add_outputs(out, content, map);
    return out;
  }

  /// A node that is sized by data, as it stands in the segment that is being built.
  struct Bounded {
    ir::OpId op;
    std::vector<ValueId> operands;
    ir::Attrs attrs;
    int32_t first_output;
  };

  const ir::Graph& graph_;
  std::vector<std::vector<ValueId>> sources_;  // by symbol
  std::vector<Fact> facts_;                    // by node
  int32_t last_ = 0;
  std::vector<Content> contents_;  // by segment
  std::vector<int32_t> places_;    // by value: among the outputs of its segment
  std::vector<Bounded> bounded_;   // of the segment that is being built
};

}  // namespace

core::Result<std::vector<Segment>> cut_at_sizes(const ir::Graph& graph) {
  const bool any = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                               [](const Node& node) { return !bounded_op(node).empty(); });
  if (!any) return std::vector<Segment>();
  return Cutter(graph).run();
}

}  // namespace mithril::passes
