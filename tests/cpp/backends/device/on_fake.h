// Options of programs that the fake device runs.
#pragma once
#include <memory>

#include "backends/device/fake_driver.h"
#include "select/kernel_table.h"
#include "specialize/specialization_cache.h"

namespace mithril::device::test {

/// The product of two matrices of float32 as the device's own kernel; the host's kernels else.
const select::KernelTable& fake_kernels();
/// The same product as two kernels, one after the other, with a workspace between.
const select::KernelTable& phased_kernels();
/// The product that reports elements of the left matrix that are 3 or more as bad indices.
const select::KernelTable& checked_kernels();
/// No kernel of the device's own.
const select::KernelTable& host_kernels();

SpecializationOptions on_fake(const std::shared_ptr<FakeDriver>& driver,
                              const select::KernelTable& kernels = fake_kernels());

/// A graph as the device's passes leave it.
core::Result<ir::Graph> optimized(const ir::Graph& graph,
                                  const select::KernelTable& kernels = fake_kernels());

}  // namespace mithril::device::test
