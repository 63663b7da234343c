// What became of the nodes of a graph, for people: told by who decides, never derived again.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/call.h"
#include "select/fuse.h"

namespace mithril::select {

/// One group of a graph, and the steps that it became.
struct SelectionReport {
  struct Member {
    std::string op, path;
  };
  std::string kernel;  // "loop", the kernel's name; "view", "constant": no step
  std::vector<Member> members;
  std::vector<int64_t> shape;      // a loop's domain; else that of the first result
  std::vector<std::string> notes;  // why it is so, a sentence each
  /// Says what the step computes, of backends that print plans.
  std::shared_ptr<const plan::Call> call;
  /// The graphs that it runs by itself: a loop's condition and body, two branches.
  std::vector<std::vector<SelectionReport>> inner;
};

/// Members, shape, and why the groups before that are steps (by group: `steps`) are not fused with
/// it; kernel and the rest are for who made the step.
SelectionReport report_of(const ir::Graph& graph, const Fusion& fusion, int32_t group,
                          const std::vector<bool>& steps);

}  // namespace mithril::select
