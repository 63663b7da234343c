// The texts of attention: capitals stand for what attention.cc knows of a node.
#pragma once
#include <cstdint>

namespace mithril::device {

/// Rows and keys of a block, where items are few and long.
inline constexpr int64_t kBlockRows = 32, kBlockKeys = 64;

/// Units are rows: an item is one row, whose keys stream past.
extern const char* const kAttentionOfRow;
/// Units are rows of queries, and then those of keys: of each its own gradients.
extern const char* const kGradientOfRow;
/// Parts of that text: ROW_OF_QUERIES, KEY_AND_VALUE and SLOPE.
extern const char* const kRow;
extern const char* const kKeyAndValue;
extern const char* const kSlope;

/// Units are blocks of rows of a batch; products by vectors (kVectorProducts).
extern const char* const kAttentionOfBlock;
/// Units are batches: blocks of keys, and of each all blocks of rows.
extern const char* const kGradientOfBlocks;

/// Functions of OpenCL C that the texts of blocks stand on.
extern const char* const kVectorProducts;

}  // namespace mithril::device
