// The part of a product that a device keeps in registers, as each class of devices begins with it;
// for one device `ml.tune` finds what is faster.
#pragma once
#include "backends/opencl/device.h"

namespace mithril::opencl {

/// Chooses the tile of the device's class, by work groups on GPUs whose groups are large enough.
plan::RegisterTile first_tile(const DeviceInfo& info);

/// Fails where the device cannot do products in the tile.
core::Status check_tile(const DeviceInfo& info, const plan::RegisterTile& tile);

}  // namespace mithril::opencl
