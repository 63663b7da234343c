// Runs tile programs on any CPU: blocks of elements, one instruction at a time. One source, built
// per instruction set; every build gives the same bits.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/machine/cpuid.h"
#include "core/status.h"
#include "plan/kernel.h"
#include "tile/program.h"

namespace mithril::cpu {

/// A program made ready for one instruction set: independent of shapes and strides, immutable,
/// shared by threads. `run` is its kernel and `this` its KernelArgs::data.
class TileKernel {
 public:
  /// Fails with the error of verify() only. `isa` must be supported by this machine. Where its
  /// loops are `compiled`, lanes run as machine code (x86-64; see jit/); the bits are the same.
  static core::Result<std::shared_ptr<const TileKernel>> make(const tile::Program& program,
                                                              Isa isa = detect_isa(),
                                                              bool compiled = true);
  ~TileKernel();
  plan::KernelFn function() const { return function_; }
  const tile::Program& program() const { return program_; }
  Isa isa() const { return isa_; }
  /// Tells whether that output may lie on that input (same type, same strides): false where that
  /// input is read again after the output has been written.
  bool can_alias(uint32_t input, uint32_t output) const;

  struct Code;  // the interpreter's own
  const Code& code() const { return *code_; }

 private:
  TileKernel();
  tile::Program program_;
  Isa isa_ = Isa::kGeneric;
  plan::KernelFn function_ = nullptr;
  std::unique_ptr<const Code> code_;
};

/// Tells where an operand's elements lie, in elements of its type: 0 repeats, negative runs
/// backwards. One stride per dim of the domain; a row operand has no reduced strides (they are
/// ignored).
struct OperandStrides {
  std::span<const int64_t> kept;
  std::span<const int64_t> reduced;
};

/// Holds what a call needs beside buffers: KernelArgs::params, the number of units, scratch per
/// worker. Buffers are the program's inputs, then its outputs; each points at the element of index
/// 0. An output may lie exactly on an input of the same type and strides where can_alias says so;
/// no other overlap is allowed. Units may run in any order on any worker: results never depend on
/// it.
struct LoopCall {
  std::vector<int64_t> params;
  int64_t units = 0;
  size_t scratch_bytes = 0;
  const char* interpreted = nullptr;  // why it does not run as machine code; null: it does
};

/// `operands`: inputs, then outputs. Sizes must be checked already (products fit int64); a domain
/// without points gives 0 units, except that reductions over nothing give their identity (max, min:
/// -inf, +inf or the type's bound; arg*: 0).
LoopCall make_loop(const TileKernel& kernel, std::span<const int64_t> kept,
                   std::span<const int64_t> reduced, std::span<const OperandStrides> operands);

}  // namespace mithril::cpu
