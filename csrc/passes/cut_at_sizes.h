// A program whose sizes follow from data, as parts that run one after another.
#pragma once
#include <vector>

#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// A part of a program. In it every size follows from those of its inputs.
struct Segment {
  /// Says what an input is: a result of an earlier segment, or an input of the program.
  struct Source {
    int32_t segment = -1;  // -1: the program's
    int32_t index = 0;     // among the outputs of that segment, or the inputs of the program
    bool operator==(const Source&) const = default;
  };
  ir::Graph graph;
  std::vector<Source> inputs;  // of the graph's inputs
  /// By output: which output tells how many of its rows are meant; -1: all of them.
  std::vector<int32_t> counts;
};

/// Before: %0 = true_places(%m) : i64[k]  %1 = gather(%x, %0) : f32[k]
/// After:  {%0, %1 = bounded_places(%m) : i64[n], i64[]}  {%p: i64[k]  %0 = gather(%x, %p) :
/// f32[k]} A segment ends where a size must be known; as few as possible. A node is in the last one
/// that it can be in, once; constants are wherever they are read. The outputs and states of the
/// program are the last one's. Empty where no node of the graph itself is sized by data: in a loop
/// or a branch there is no segment.
core::Result<std::vector<Segment>> cut_at_sizes(const ir::Graph& graph);

}  // namespace mithril::passes
