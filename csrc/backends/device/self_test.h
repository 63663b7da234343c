// Tries whether a device computes with the bits of IEEE 754, as the engine does.
#pragma once
#include "backends/device/driver.h"

namespace mithril::device {

/// Tells whether float32 keeps subnormals, and rounds products, quotients, square roots and fma as
/// it should, and no product with the sum behind it. The caller holds the driver's mutex.
core::Result<bool> has_exact_bits(Driver& driver);

}  // namespace mithril::device
