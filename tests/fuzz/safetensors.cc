// The header of a safetensors file is refused, or its places fill the data without overlap.
#include "core/safetensors.h"

#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mithril;
  constexpr size_t kLengthBytes = 2;  // the first bytes say how much data the header speaks of
  if (size < kLengthBytes) return 0;
  const int64_t length = data[0] | data[1] << 8;
  const auto places =
      core::read_safetensors(fuzz::text_of(data + kLengthBytes, size - kLengthBytes), length);
  if (!places.ok()) return 0;
  int64_t at = 0;
  for (const core::TensorPlace& place : *places) {
    fuzz::require(place.begin == at && place.end >= at, "places follow each other");
    at = place.end;
  }
  fuzz::require(at == length, "places fill the data");
  return 0;
}
