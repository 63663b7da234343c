// The kernels that the device has, as rows of the table of selection.
#pragma once
#include <compare>
#include <cstdint>
#include <span>

#include "select/kernel_def.h"
#include "select/kernel_table.h"

namespace mithril::cuda {

/// Says who does products of matrices, where it can: kernels of this backend, or cuBLASLt, which
/// may round factors to TF32.
enum class Products : uint8_t { kOwn, kLibrary, kLibraryTf32 };
/// Says the same of convolutions and cuDNN, which has bfloat16 on newer devices.
enum class Convolutions : uint8_t { kOwn, kLibrary, kLibraryTf32, kLibraryWithoutBfloat16 };

/// Says who does what libraries can do, too, and what there is beside plain threads.
struct Makers {
  Products products = Products::kOwn;
  Convolutions convolutions = Convolutions::kOwn;
  bool multiplies_tiles = false;  // whether warps multiply tiles of halves (tile_text.h)
  auto operator<=>(const Makers&) const = default;
};

/// The families, in order of preference within an op.
std::span<const select::KernelFamily> kernel_families(const Makers& makers);

/// Attention of halves by tiles.
std::span<const select::KernelDef> tile_attention_kernels();

}  // namespace mithril::cuda
