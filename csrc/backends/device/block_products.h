// The text of a product that threads of a block do together: a work group in the words of OpenCL.
#pragma once
#include "backends/device/products.h"

namespace mithril::device {

/// Is what threads do together as long as no tile was measured.
inline constexpr plan::RegisterTile kBlockTile = {.rows = 4, .vectors = 4, .threads = 256};

/// Counts the threads of a group of at most `most` that do a tile together: a square number, or
/// none.
int threads_of_tile(int64_t most);

/// Prints one loop over tiles for all products: each thread comes to the same barriers as often,
/// and compilers that split kernels at barriers (PoCL's) have one nest of loops to split.
ProductText print_block_product(std::span<const Product> products, const plan::RegisterTile& tile);
/// Counts tiles of all threads, of all batches.
int64_t block_product_units(std::span<const Product> products, const plan::RegisterTile& tile);
/// Counts the bytes that the threads of a tile share, of products in float64.
int64_t block_product_bytes(const plan::RegisterTile& tile);

}  // namespace mithril::device
