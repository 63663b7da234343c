// The kernels that the device has, as rows of the table of selection.
#pragma once
#include <cstdint>
#include <span>

#include "select/kernel_def.h"
#include "select/kernel_table.h"

namespace mithril::cuda {

/// Says who does products of matrices, where it can: kernels of this backend, or cuBLASLt, which
/// may round factors to TF32.
enum class Products : uint8_t { kOwn, kLibrary, kLibraryTf32 };

/// The families, in order of preference within an op.
std::span<const select::KernelFamily> kernel_families(Products products);

}  // namespace mithril::cuda
