#include "backends/opencl/tiles.h"

#include <algorithm>
#include <iterator>

#include "backends/device/block_products.h"

namespace mithril::opencl {
namespace {

using core::Code;
using core::ErrorKind;

/// Describes a class of devices: those whose groups have at least so many items, or whose registers
/// have at least so many bytes.
struct Class {
  bool has_groups;
  int64_t least;
  plan::RegisterTile tile;
};
// The first that fits. Items of groups have the tile that CUDA has; 32 registers of 64 bytes hold 8
// rows of 2 vectors, 16 smaller ones hold 6.
constexpr Class kClasses[] = {
    {true, 256, device::kBlockTile}, {true, 64, {.rows = 4, .vectors = 4, .threads = 64}},
    {false, 64, {8, 2, 64}},         {false, 32, {6, 2, 32}},
    {false, 0, {6, 2, 16}},
};
constexpr int64_t kMostOwn = 8;  // rows and columns of an item of a group

bool fits_groups(const DeviceInfo& info, const plan::RegisterTile& tile) {
  return info.is_gpu && tile.threads <= info.most_threads &&
         device::block_product_bytes(tile) <= info.local_memory;
}

core::Status check_group_tile(const DeviceInfo& info, const plan::RegisterTile& tile) {
  const bool is_square = tile.threads > 0 && device::threads_of_tile(tile.threads) == tile.threads;
  const auto is_own = [](int64_t count) { return count >= 1 && count <= kMostOwn; };
  if (is_square && is_own(tile.rows) && is_own(tile.vectors) && fits_groups(info, tile)) return {};
  return core::fail(ErrorKind::kValue, Code::kValueArgument,
                    "OpenCL: a tile of {} rows and {} columns for each of {} items; requires 1 to "
                    "{} rows and columns, and 64 or 256 items that fit the device: it has groups "
                    "of {} with {} bytes",
                    tile.rows, tile.vectors, tile.threads, kMostOwn, info.most_threads,
                    info.local_memory);
}

}  // namespace

plan::RegisterTile first_tile(const DeviceInfo& info) {
  const Class& own = *std::find_if(std::begin(kClasses), std::end(kClasses), [&](const Class& one) {
    return one.has_groups ? one.least <= info.most_threads && fits_groups(info, one.tile)
                          : one.least <= info.vector_bytes;
  });
  return own.tile;
}

core::Status check_tile(const DeviceInfo& info, const plan::RegisterTile& tile) {
  if (first_tile(info).threads > 0) return check_group_tile(info, tile);
  const bool is_vector =
      tile.vector_bytes == 16 || tile.vector_bytes == 32 || tile.vector_bytes == 64;
  const bool is_whole = is_vector &&
                        (tile.vectors == 1 || tile.vectors == 2 || tile.vectors == 4) &&
                        tile.vectors * tile.vector_bytes <= 128;
  if (is_whole && tile.rows >= 1 && tile.rows <= 16) return {};
  return core::fail(ErrorKind::kValue, Code::kValueArgument,
                    "OpenCL: a tile of {} rows of {} vectors of {} bytes; requires 1 to 16 rows "
                    "of 1, 2 or 4 vectors of 16, 32 or 64 bytes, 128 together",
                    tile.rows, tile.vectors, tile.vector_bytes);
}

}  // namespace mithril::opencl
