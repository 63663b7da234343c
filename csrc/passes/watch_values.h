// A program that tells, beside its results, which of its values hold NaN.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/location.h"
#include "core/status.h"
#include "ir/graph.h"

namespace mithril::passes {

/// A float value of the program that is looked at.
struct Watch {
  /// Says where it comes from: given ones are made by nothing that could be blamed.
  enum class Source : uint8_t { kInput, kConstant, kForward, kGradient };
  Source source = Source::kForward;
  std::string name;            // of the input, or of the op that makes it
  core::Location location;     // of that op
  std::vector<int32_t> reads;  // the watches of what that op reads
};

struct Watched {
  ir::Graph graph;             // its last output counts: integers, one for each watch
  std::vector<Watch> watches;  // in the order of computation
  std::vector<int32_t> ends;   // those that are results of the program
};

inline constexpr std::string_view kWatchOutput = "$watch";

/// Before: graph f(%x: f32[n]) {  %0 = log(%x)   return y=%0 }
/// After:  … %1 = isnan(%x)  %2 = sum(%1) …  %n = concat(%3, %6)   return y=%0, $watch=%n
/// Counts NaN, or with `infinities` everything that is not finite. What the outputs `forward` and
/// the states need is the forward part, the rest is of gradients.
core::Result<Watched> watch_values(const ir::Graph& graph, std::span<const std::string> forward,
                                   bool infinities);

}  // namespace mithril::passes
