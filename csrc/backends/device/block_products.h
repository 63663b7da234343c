// The text of a product that threads of a block do together: a work group in the words of OpenCL.
#pragma once
#include "backends/device/products.h"

namespace mithril::device {

/// The tile that threads do together as long as none was measured.
inline constexpr plan::RegisterTile kBlockTile = {.rows = 4, .vectors = 4, .threads = 256};

ProductText print_block_product(const Product& product, const plan::RegisterTile& tile);
/// Units of the work are tiles of all threads of a batch.
int64_t block_product_units(const Product& product, const plan::RegisterTile& tile);
/// Bytes that the threads of a tile share, of products in float64.
int64_t block_product_bytes(const plan::RegisterTile& tile);

}  // namespace mithril::device
