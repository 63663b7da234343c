// Tile programs as text of C-like languages: C99, OpenCL C and CUDA C. Loops over elements, one
// scalar at a time; bits are those of every other executor of tile programs.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "tile/program.h"

namespace mithril::emit {

enum class Dialect : uint8_t { kC99, kOpenCl, kCuda };

/// A kernel to print: `name` is an identifier, `kept` and `reduced` count the dims of the domain.
struct CLikeKernel {
  std::string name;
  tile::Program program;
  size_t kept = 1;
  size_t reduced = 0;
};

/// A whole source with one function for each kernel, which computes the kept indices
/// [begin, end):
///   C99:     void NAME(int64_t begin, int64_t end, const int64_t* shape, const double* scalars,
///                      void* const* buffers)
///   OpenCL:  kernel void NAME(long begin, long end, global const long* shape,
///                             global const double* scalars, global T0* b0, …), one index an item
/// Buffers: inputs, then outputs. `shape`: sizes of the kept dims, of the reduced ones, and then
/// for each buffer its strides in elements along both; a row operand's reduced strides are unused.
/// To be compiled without contraction of products and sums, for devices with correctly rounded
/// division and square root.
core::Result<std::string> print_c_like(std::span<const CLikeKernel> kernels, Dialect dialect);

}  // namespace mithril::emit
