// Programs whose sizes follow from data: programs of the engine that run one after another.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bindings/native_program.h"
#include "passes/cut_at_sizes.h"

namespace mithril::bindings {

/// Runs the segments of a graph (passes/cut_at_sizes.h). Between two of them the counts of those
/// results are read whose sizes follow from data, and the next one takes that many rows.
class SegmentedProgram final : public ArrayProgram {
 public:
  /// A program for each segment, in order.
  SegmentedProgram(ir::Graph graph, std::vector<passes::Segment> segments,
                   const std::vector<std::shared_ptr<ArrayProgram>>& programs);

  size_t output_count() const override { return programs_.back()->output_count(); }

  bool try_run(std::span<const Input> inputs, std::span<PyObject*> outputs) override;

  /// The methods of NativeProgram, of all segments together. Sizes that data decide are as large as
  /// they can be in what is told of plans; an error says so where no plan takes them.
  py::list run(const py::list& arrays, bool donates_state);
  py::list report(const Sizes& sizes) const;
  py::dict memory(const Sizes& sizes, int32_t step) const;
  py::dict symbols(const OpenSizes& shapes) const { return symbols_of(graph_, shapes); }
  py::list sizes(const std::map<std::string, int64_t>& symbols) const {
    return sizes_of(graph_, symbols);
  }

 private:
  using Results = std::vector<std::vector<py::object>>;  // of each segment

  bool try_run(std::span<const Input> inputs, std::span<PyObject*> outputs, bool donates_state);
  std::vector<Input> gather(size_t segment, std::span<const Input> inputs,
                            const Results& results) const;
  bool run_segment(size_t segment, std::span<const Input> inputs, Results& results) const;
  void drop_after(size_t segment, Results& results) const;

  /// Shapes of the inputs of each segment at most.
  std::vector<Sizes> largest_sizes(const Sizes& sizes) const;
  /// Bytes of what segments hand on that is there while each of them runs.
  std::vector<int64_t> held_bytes(const std::vector<Sizes>& sizes) const;

  ir::Graph graph_;
  std::vector<passes::Segment> segments_;
  std::vector<std::shared_ptr<NativeProgram>> programs_;
  std::vector<std::vector<size_t>> last_reader_;  // of each output of each segment
};

}  // namespace mithril::bindings
