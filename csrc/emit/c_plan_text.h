// What printed plans carry beside the instructions of c_like_text.h, and the texts of structured
// kernels.
#pragma once
#include <string>
#include <string_view>

namespace mithril::emit {

/// M_PARALLEL before a loop that M_THREADS threads share.
extern const char* const kThreads;
/// Trouble, and how reductions take many elements at a time.
extern const char* const kPlanHead;

/// The text of a file of reference/ or backends/c/ as the build found it: "dims", "matmul" …; empty
/// where there is none of that name.
std::string_view kernel_file(std::string_view name);

/// Returns the text that defines a kernel's functions: "dims", "copy", "matmul.f32" (its text for
/// elements of float32; f64, u32, u64 alike).
std::string kernel_text(std::string_view name);

}  // namespace mithril::emit
