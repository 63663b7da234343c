// Loops between marks: `scan` and `while_loop`.
#include <algorithm>
#include <memory>
#include <set>

#include "ir/scan.h"
#include "model/outline/outline_parts.h"

namespace mithril::model {

using core::Code;
using core::ErrorKind;
using core::HostValue;
using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::ValueId;

namespace {

bool is_enter(const Node& node) { return op_name(node) == "scan_enter"; }
bool is_slice(const Node& node) { return op_name(node) == "scan_slice"; }
bool is_stack(const Node& node) { return op_name(node) == "scan_stack"; }
bool is_while_exit(const Node& node) { return op_name(node) == "while_exit"; }
bool is_entry(const Node& node) { return is_enter(node) || is_slice(node); }

/// The nodes of one loop: by place in the graph.
struct Loop {
  std::map<int64_t, size_t> enters, slices, stacks, exits;  // by their index
  std::vector<bool> steps;                                  // by node: what a step does
  bool has_inner = false;                                   // marks of something else between
  bool is_while = false;
  size_t end() const { return stacks.empty() ? exits.begin()->second : stacks.begin()->second; }
  const char* name() const { return is_while ? "while" : "scan"; }
};

class Finder {
 public:
  Finder(const Graph& graph, int64_t model) : graph_(graph), model_(model) {}

  core::Result<Loop> run() {
    find_marks();
    if (loop_.stacks.empty() && loop_.exits.empty()) {
      return refused(graph_, graph_.nodes[first_mark_], "scan: a loop has no end", "");
    }
    find_steps();
    MITHRIL_RETURN_IF_ERROR(check_escapes());
    return std::move(loop_);
  }

 private:
  void find_marks() {
    for (size_t at = graph_.nodes.size(); at-- > 0;) {
      const Node& node = graph_.nodes[at];
      if (!is_of(node, model_)) continue;
      first_mark_ = at;
      auto& group = is_enter(node)   ? loop_.enters
                    : is_slice(node) ? loop_.slices
                    : is_stack(node) ? loop_.stacks
                                     : loop_.exits;
      group[number(node, "index")] = at;
      loop_.is_while |= is_while_exit(node);
    }
  }

  bool is_own_end(const Node& node) const { return is_of(node, model_) && !is_entry(node); }

  // What depends on an entry and an end depends on.
  void find_steps() {
    std::vector<bool> reached(graph_.values.size(), false), asked(graph_.values.size(), false);
    const auto any = [](const std::vector<ValueId>& ids, const std::vector<bool>& flags) {
      return std::any_of(ids.begin(), ids.end(), [&](ValueId id) {
        return id != kNoValue && flags[static_cast<size_t>(id)];
      });
    };
    const auto set = [](const std::vector<ValueId>& ids, std::vector<bool>& flags) {
      for (const ValueId id : ids) {
        if (id != kNoValue) flags[static_cast<size_t>(id)] = true;
      }
    };
    for (const Node& node : graph_.nodes) {
      const bool entry = is_entry(node) && is_of(node, model_);
      if (entry || any(node.operands, reached)) set(node.results, reached);
    }
    loop_.steps.assign(graph_.nodes.size(), false);
    for (size_t at = graph_.nodes.size(); at-- > 0;) {
      const Node& node = graph_.nodes[at];
      if (is_own_end(node)) {
        set(node.operands, asked);
      } else if (any(node.results, asked) && any(node.results, reached)) {
        set(node.operands, asked);
        loop_.steps[at] = !is_of(node, model_);
        loop_.has_inner |= is_mark(op_name(node)) && !is_of(node, model_);
      }
    }
  }

  bool is_inside(ValueId id) const {
    const ir::NodeId at = id == kNoValue ? ir::kNoNode : graph_.value(id).node;
    if (at == ir::kNoNode) return false;
    const Node& node = graph_.node(at);
    return loop_.steps[static_cast<size_t>(at)] || (is_entry(node) && is_of(node, model_));
  }

  core::Status check_escapes() const {
    const auto refuse = [&](ValueId id) {
      return refused(graph_, *graph_.producer(id),
                     fmt::format("{}: a value of one step ({}) is read outside of the loop",
                                 loop_.name(), op_name(*graph_.producer(id))),
                     loop_.is_while ? "make it an output of the body, in carry="
                                    : "make it an output of the body, in ys= or carry=");
    };
    for (size_t at = 0; at < graph_.nodes.size(); ++at) {
      const Node& node = graph_.nodes[at];
      if (loop_.steps[at] || is_own_end(node)) continue;
      for (const ValueId id : node.operands) {
        if (is_inside(id)) return refuse(id);
      }
    }
    for (const ir::Output& output : graph_.outputs) {
      if (is_inside(output.value)) return refuse(output.value);
    }
    for (const ir::StateBinding& state : graph_.states) {
      if (is_inside(state.output)) return refuse(state.output);
    }
    return {};
  }

  const Graph& graph_;
  const int64_t model_;
  Loop loop_;
  size_t first_mark_ = 0;
};

/// The scan or while_loop that a loop becomes.
class Body {
 public:
  Body(const Graph& graph, const Loop& loop)
      : graph_(graph),
        loop_(loop),
        end_(graph.nodes[loop.end()]),
        region_(graph, end_, loop.name()) {}

  core::Result<Made> make() {
    if (!loop_.is_while) MITHRIL_RETURN_IF_ERROR(find_length());
    MITHRIL_RETURN_IF_ERROR(add_carries());
    for (const auto& [index, at] : loop_.slices) add_entry(graph_.nodes[at]);
    parts_.xs = loop_.slices.size();
    for (size_t at = 0; at < graph_.nodes.size(); ++at) {
      if (loop_.steps[at]) MITHRIL_RETURN_IF_ERROR(region_.copy(graph_.nodes[at], made_.operands));
    }
    MITHRIL_RETURN_IF_ERROR(add_outputs());
    parts_.constants = made_.operands.size() - parts_.carries - parts_.xs;
    MITHRIL_ASSIGN(Graph body, region_.finish());
    loop_.is_while ? append_while(std::move(body)) : append_scan(std::move(body));
    return std::move(made_);
  }

 private:
  core::Status find_length() {
    parts_.reverse = end_.attrs.find("reverse")->as_bool();
    const HostValue* length = end_.attrs.find("length");
    const bool known = length != nullptr && (length->is_int() || length->is_symbolic());
    if (!known) {
      return refused(graph_, end_, "scan: the length is a number that only the data tell",
                     "give it in constant_keys, or loop over a sequence");
    }
    if (length->is_int() && length->as_int() < 0) {
      return core::fail(ErrorKind::kValue, Code::kValueArgument,
                        "scan: length must not be negative, got {}", length->as_int());
    }
    parts_.length = *length;
    return {};
  }

  // What the next step starts from, of each carry: every end tells. Before them an exit reads what
  // it hands on and what the loop starts from, then a length or a condition; a stack has no start.
  std::span<const ValueId> next() const {
    const size_t before = is_stack(end_) ? 2 : 3;
    return std::span(end_.operands).subspan(std::min(before, end_.operands.size()));
  }

  core::Status add_carries() {
    std::set<int64_t> known;
    for (const auto& [index, at] : loop_.enters) known.insert(index);
    for (const auto& [index, at] : loop_.exits) known.insert(index);
    for (const int64_t index : known) {
      if (index < 0 || static_cast<size_t>(index) >= next().size()) {
        return refused(graph_, end_, fmt::format("{}: a carry has no next value", loop_.name()),
                       "");
      }
      carries_.push_back(index);
      const auto enter = loop_.enters.find(index);
      if (enter != loop_.enters.end()) {
        add_entry(graph_.nodes[enter->second]);
        continue;
      }
      const ValueId start = graph_.nodes[loop_.exits.at(index)].operands[1];
      made_.operands.push_back(start);
      region_.add_input(kNoValue, graph_.type(start));
    }
    parts_.carries = carries_.size();
    return {};
  }

  void add_entry(const Node& entry) {
    made_.operands.push_back(entry.operands[0]);
    region_.add_input(entry.results[0], graph_.type(entry.results[0]));
  }

  core::Status add_outputs() {
    for (size_t i = 0; i < carries_.size(); ++i) {
      const ValueId after = next()[static_cast<size_t>(carries_[i])];
      if (after != kNoValue && !ir::agree(graph_.type(made_.operands[i]), graph_.type(after))) {
        return refused(graph_, end_,  // in a file that somebody changed
                       fmt::format("{}: the next value of a carry has another shape than what the "
                                   "loop starts from",
                                   loop_.name()),
                       "");
      }
      MITHRIL_RETURN_IF_ERROR(region_.add_output(after, made_.operands));
    }
    for (const auto& [index, at] : loop_.exits) {
      const auto place = std::find(carries_.begin(), carries_.end(), index) - carries_.begin();
      made_.results.push_back(static_cast<size_t>(place));
    }
    for (const auto& [index, at] : loop_.stacks) {
      MITHRIL_RETURN_IF_ERROR(region_.add_output(graph_.nodes[at].operands[0], made_.operands));
      made_.results.push_back(parts_.y(parts_.ys++));
      y_types_.push_back(graph_.type(graph_.nodes[at].results[0]));
    }
    return loop_.is_while ? region_.add_output(end_.operands[2], made_.operands) : core::Status();
  }

  void append_scan(Graph body) {
    ir::name_parts(body, parts_);
    made_.append = [parts = parts_, types = y_types_,
                    body = std::make_shared<const Graph>(std::move(body))](
                       ir::Builder& builder, std::span<const ir::Value> operands) {
      return ir::call_scan(builder, parts, operands, body, types);
    };
  }

  // `both`: its outputs are the next carries, then whether there is another step.
  void append_while(Graph both) {
    Graph condition = both;
    condition.name = "condition";
    condition.outputs = {both.outputs.back()};
    both.outputs.pop_back();
    ir::Regions regions;
    for (Graph* region : {&condition, &both}) {
      drop_dead(*region);
      ir::name_parts(*region, parts_, region == &both);
      regions.push_back(std::make_shared<const Graph>(std::move(*region)));
    }
    made_.append = [carries = parts_.carries, regions = std::move(regions)](
                       ir::Builder& builder, std::span<const ir::Value> operands) {
      return ir::call_while(builder, carries, operands, regions);
    };
  }

  const Graph& graph_;
  const Loop& loop_;
  const Node& end_;
  RegionWriter region_;
  Made made_;
  ir::ScanParts parts_;
  std::vector<int64_t> carries_;  // their indices
  std::vector<ir::Type> y_types_;
};

}  // namespace

core::Result<Cutout> cut_loop(const Graph& graph, int64_t model) {
  MITHRIL_ASSIGN(Loop found, Finder(graph, model).run());
  const auto loop = std::make_shared<const Loop>(std::move(found));
  Cutout out;
  out.inside = loop->steps;
  for (const auto* entries : {&loop->enters, &loop->slices}) {
    for (const auto& [index, at] : *entries) out.inside[at] = true;
  }
  for (const auto* ends : {&loop->exits, &loop->stacks}) {
    for (const auto& [index, at] : *ends) out.ends.push_back(at);
  }
  out.has_inner = loop->has_inner;
  out.make = [&graph, loop] { return Body(graph, *loop).make(); };
  return out;
}

}  // namespace mithril::model
