// The text form of graphs: printed for people, parsed by tests; print ∘ parse is the identity.
#pragma once
#include <string>
#include <string_view>

#include "core/status.h"
#include "ir/graph.h"

namespace mithril::ir {

std::string print(const Graph& graph);

/// For graphviz: nodes with their model paths, edges with types.
std::string dot(const Graph& graph);

/// The one way that user text reaches a comment of emitted or printed text: [A-Za-z0-9_.] kept,
/// every other byte as %XX, at most 120 characters.
std::string escape_comment(std::string_view text);

/// Each line four places to the right; the text ends with its last line.
std::string indented(std::string_view text);

/// Never reads past `text` and never recurses deeper than HostValue::kMaxDepth. Types are
/// checked against what the ops infer.
core::Result<Graph> parse(std::string_view text);

/// Every invariant: topological order, operand counts, types equal to what the ops infer,
/// outputs defined. Cheap enough to run after each pass in debug builds.
core::Status verify(const Graph& graph);

/// Fails at the first value, in regions too, that has more elements than a process has addresses
/// or sizes whose product overflows, of the empty ones too. Sizes that are open are not looked at.
/// After it element_count of every value is known, and bytes do not overflow.
core::Status check_addresses(const Graph& graph);

}  // namespace mithril::ir
