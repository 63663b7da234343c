#include "bindings/gil.h"

#include <unistd.h>

namespace mithril::bindings {

void park_thread() noexcept {
  while (true) pause();
}

}  // namespace mithril::bindings
