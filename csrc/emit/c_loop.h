// Loops of a plan as text of C99: domain and strides are numbers, so that compilers vectorise; bits
// are those of every other executor of tile programs.
#pragma once
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "plan/call.h"

namespace mithril::emit {

/// The body of a function, indented by two. `operands`: the names of its pointers, those that are
/// one memory with the same name. `definitions` gets what must stand before it. `parallel`: the
/// outermost loop carries M_PARALLEL.
core::Result<std::string> print_c_loop(const plan::LoopCall& loop,
                                       std::span<const std::string> operands, bool parallel,
                                       std::set<std::string>& definitions);

/// A loop in pieces that may run side by side.
struct CLoopUnits {
  std::string body;   // of a function that does the units [begin, end), indented by two
  int64_t units = 0;  // 0: there is nothing to do
  int threads = 0;    // that do a unit together; 0: one does it alone
  std::vector<plan::SharedArray> shared;  // by those threads
};

/// Says how a loop is cut into units.
struct CLoopCut {
  int64_t piece = 4096;       // elements along the last dim, where there are no rows
  bool takes_columns = true;  // whether rows that lie side by side are done 64 at a time
  int64_t chunk = 512;        // elements between a loop and a reduction
  bool is_vectored = false;   // whether it is printed for vectors of 16 (c_vector_loop.h)
  int threads = 0;            // that may do a long row together (c_block_loop.h), or none
  int64_t shared_bytes = 0;   // of memory that they share
};

/// The same loop for devices that run many functions at once. A unit is a row, 64 columns of rows
/// that lie side by side, or, where there are no rows, up to a piece of elements.
core::Result<CLoopUnits> print_c_loop_units(const plan::LoopCall& loop,
                                            std::span<const std::string> operands,
                                            const CLoopCut& cut,
                                            std::set<std::string>& definitions);

/// The elements `count` from `from` on of a loop without rows, in row-major order of its domain:
/// the body of a function that takes both numbers.
core::Result<std::string> print_c_loop_stretch(const plan::LoopCall& loop,
                                               std::span<const std::string> operands,
                                               const CLoopCut& cut,
                                               std::set<std::string>& definitions);

}  // namespace mithril::emit
