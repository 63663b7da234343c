// The text of a graph is refused, or print ∘ parse is the identity on what is printed of it.
#include "ir/text.h"
#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mithril;
  auto graph = ir::parse(fuzz::text_of(data, size));
  if (!graph.ok()) return 0;
  const std::string text = ir::print(*graph);
  auto again = ir::parse(text);
  fuzz::require(again.ok(), "what is printed can be parsed");
  fuzz::require(ir::print(*again) == text, "what is printed is printed again");
  fuzz::require(ir::verify(*graph).ok(), "a graph that was parsed is valid");
  return 0;
}
