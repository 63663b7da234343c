// A size is refused, or what is printed of it is read as the same size.
#include "infer/dim.h"
#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mithril;
  infer::DimTable table;
  const auto dim = table.parse(fuzz::text_of(data, size));
  if (!dim.ok()) return 0;
  const auto again = table.parse(table.print(*dim));
  fuzz::require(again.ok() && *again == *dim, "what is printed is the same size");
  return 0;
}
