// A size is refused, or what is printed of it is read as the same size (unless it is shortened).
#include "infer/dim.h"
#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mithril;
  infer::DimTable table;
  const auto dim = table.parse(fuzz::text_of(data, size));
  if (!dim.ok()) return 0;
  const std::string text = table.print(*dim);
  if (text.find("...") != std::string::npos) return 0;  // shortened: thousands of letters
  const auto again = table.parse(text);
  fuzz::require(again.ok() && *again == *dim, "what is printed is the same size");
  return 0;
}
