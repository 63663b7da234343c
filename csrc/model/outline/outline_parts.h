// What outline.cc shares with the finders of loops and of branches. Internal to them.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ir/region.h"
#include "model/outline/outline.h"

namespace mithril::model {

/// A node that owns graphs, before it is appended.
struct Made {
  std::vector<ir::ValueId> operands;  // in the graph that it is cut from
  std::function<std::vector<ir::Value>(ir::Builder&, std::span<const ir::Value>)> append;
  std::vector<size_t> results;  // by end: which result it is
};

/// Nodes that become one.
struct Cutout {
  std::vector<bool> inside;  // by node: held by regions, or an entry
  std::vector<size_t> ends;  // whose results the new node makes; it stands at the first
  bool has_inner = false;    // marks of something else are inside: that comes first
  std::function<core::Result<Made>()> make;
};

/// The cut at the marks of one model; `graph` outlives it.
core::Result<Cutout> cut_loop(const ir::Graph& graph, int64_t model);
core::Result<Cutout> cut_branches(const ir::Graph& graph, const Owners& owners, int64_t model);

const std::string& op_name(const ir::Node& node);
int64_t number(const ir::Node& node, std::string_view attr);
/// Tells whether it is a mark of the model.
bool is_of(const ir::Node& node, int64_t model);
core::Error refused(const ir::Graph& graph, const ir::Node& node, std::string message,
                    std::string hint);
/// Removes nodes that no output needs.
void drop_dead(ir::Graph& graph);

/// A region that is being made of nodes of a graph.
class RegionWriter {
 public:
  /// `end` is where errors are placed; `what` names the op in them.
  RegionWriter(const ir::Graph& from, const ir::Node& end, std::string what);

  /// An input that stands for a value of `from`, or for none.
  void add_input(ir::ValueId outside, const ir::Type& type);
  /// The value inside. Numbers stay numbers; other values that are not inside become inputs, and
  /// are appended to `operands`.
  core::Result<ir::ValueId> mapped(ir::ValueId id, std::vector<ir::ValueId>& operands);
  core::Status copy(const ir::Node& node, std::vector<ir::ValueId>& operands);
  core::Status add_output(ir::ValueId id, std::vector<ir::ValueId>& operands);
  /// Fails where regions are nested too deeply.
  core::Result<ir::Graph> finish();

 private:
  const ir::Graph& from_;
  const ir::Node& end_;
  const std::string what_;
  ir::Graph region_;
  std::map<ir::ValueId, ir::ValueId> map_;
};

}  // namespace mithril::model
