// Options of programs that the CPU runs.
#pragma once
#include <memory>

#include "backends/cpu/select.h"
#include "specialize/specialization_cache.h"

namespace mithril {

inline SpecializationOptions on_cpu() {
  SpecializationOptions options;
  options.backend = options.host = std::make_shared<const cpu::Backend>();
  return options;
}

}  // namespace mithril
