// The text of a product in register tiles: what matrix products and convolutions share.
#pragma once
#include <cstdint>
#include <string>

#include "backends/device/products.h"

namespace mithril::opencl {

/// Columns of a panel.
int64_t gemm_panel_columns(core::DType dtype);

/// Statements that fill `panel`, rows of gemm_panel_columns() elements: places [p, p + depth),
/// columns [j, j + columns), zeros behind those.
std::string print_panel(const device::Product& product);

/// Prints panels of one item's own; or, where the tile is that of a group of items, what these do.
device::ProductText print_gemm(std::span<const device::Product> products,
                               const plan::RegisterTile& tile);
/// Units of the work are up to 256 rows of a panel of a batch; or tiles of groups.
int64_t gemm_units(std::span<const device::Product> products, const plan::RegisterTile& tile);

}  // namespace mithril::opencl
