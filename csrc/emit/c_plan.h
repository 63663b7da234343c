// A whole plan as one source of C99, with nothing below it but libm: what a C backend compiles and
// what is exported.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "plan/plan.h"

namespace mithril::emit {

struct CPlanOptions {
  std::string name = "mithril";  // an identifier, before every name that others see
  int threads = 1;               // that share loops where a compiler has OpenMP
  bool freestanding = false;     // without libm: the text has its functions itself
};

/// The entry is
///   int NAME_run(const void* const* inputs, void* const* outputs, const void* const* constants,
///                void* arena, NAME_context* context)
/// with pointers in the order of the plan's inputs, outputs and `constants`, and 64-byte aligned
/// memory of `arena_bytes`. It allocates nothing, keeps nothing and prints nothing.
struct CPlan {
  std::string text;    // source, complete in itself
  std::string header;  // what callers include
  int64_t arena_bytes = 0;
  bool needs_libm = false;  // names functions of it
  std::vector<std::shared_ptr<const core::TensorData>> constants;
  std::vector<plan::Part> parts;  // what context->step counts
};

/// Every step of the plan, and of the plans in it, has a `call`, a loop or a branch.
core::Result<CPlan> print_c_plan(const plan::Plan& plan, const CPlanOptions& options);

/// Tells whether `name` can stand before names of C: at most 64 letters, digits and underscores.
bool is_c_name(std::string_view name);

}  // namespace mithril::emit
