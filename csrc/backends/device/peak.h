// How much a device can compute and move at best.
#pragma once
#include "backends/device/driver.h"

namespace mithril::device {

/// Measures it by short kernels: multiply-adds of either type in as many independent chains as keep
/// its units busy, and a copy of more memory than caches hold. Under the driver's mutex.
core::Result<Peak> measure_peak(Driver& driver);

}  // namespace mithril::device
