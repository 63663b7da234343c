// A model file is refused by a typed error, or it loads and what is written of it reads back equal.
#include "core/error.h"
#include "model/files/serialize.h"
#include "support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mithril;
  std::string text;
  try {
    const model::Loaded loaded = model::from_json(fuzz::text_of(data, size));
    text = model::to_json(loaded.model, true, loaded.training);
  } catch (const core::ErrorException&) {
    return 0;
  }
  const model::Loaded again = model::from_json(text);
  fuzz::require(model::to_json(again.model, true, again.training) == text,
                "a model that was written reads back equal");
  return 0;
}
