// Functions of CUDA C by which the 32 threads of a warp multiply tiles on tensor cores.
#pragma once

namespace mithril::cuda {

/// The first architecture (80: sm_80) whose warps multiply tiles of 16 by 16 by 8 halves.
inline constexpr int kFirstWithTiles = 80;

/// m_tile_stage and what is PTX: m_tile_load, m_tile_load_transposed; for f16 and bf16
/// m_tile_multiply_…, m_tile_pair_…, m_tile_low_… and m_tile_high_…. A compiler that is not NVRTC
/// brings the latter. Fragments are those of mma.m16n8k16 and ldmatrix.m8n8 in NVIDIA's PTX ISA:
/// thread t of a warp holds of a result the rows t / 4 and t / 4 + 8, two columns each from
/// t % 4 * 2 on; of 16 columns the second 8 are those of the next registers.
extern const char* const kTileFunctions;

}  // namespace mithril::cuda
