// The texts of attention by tiles in shared memory: capitals stand for what attention.cc knows of a
// node, beside the names of device/attention_names.h.
#pragma once
#include <cstdint>

namespace mithril::cuda {

/// Rows of queries, or keys, that a block of kAttentionThreads threads has of its own: 16 a warp.
inline constexpr int64_t kTile = 64;
inline constexpr int kAttentionThreads = 128;

/// Macros that stand before both texts, and what stands behind them.
extern const char *const kTileMacros, *const kEndOfTileMacros;
/// Units are tiles of rows of a batch, past which tiles of keys stream.
extern const char* const kAttentionOfTile;
/// Units are, of each batch, tiles of rows, and then tiles of keys: of each its own gradients.
/// Tiles of SIDE keys, or rows, stream past it.
extern const char* const kGradientOfTile;

}  // namespace mithril::cuda
