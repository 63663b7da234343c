// Machine code of the matrix product's micro-kernels, for AVX2 with FMA and for AVX-512.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/gemm/gemm_tile.h"
#include "backends/cpu/jit/code_memory.h"

namespace mithril::cpu::jit {

/// Sealed code of a micro-kernel; `run` lies in `memory` and may be called while that lives.
struct GemmCode {
  GemmTileFn run = nullptr;
  std::shared_ptr<const CodeMemory> memory;
};

/// Fresh code for every spec, in one mapping; 10-20 us each. The isa of each is kAvx2 or kAvx512,
/// its tile within gemm_most_rows. Empty where the system refuses executable memory, and on other
/// processors than x86-64.
std::vector<GemmCode> emit_gemm_tiles(std::span<const GemmTileSpec> specs);

}  // namespace mithril::cpu::jit
