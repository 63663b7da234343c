// Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011).
#pragma once
#include <array>
#include <cstdint>

namespace mithril::tile {

inline constexpr int kThreefryRotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
inline constexpr uint32_t kThreefryParity = 0x1BD11BDA;

/// Both words of block (counter0, counter1) under the key (key0, key1).
inline std::array<uint32_t, 2> threefry2x32(uint32_t key0, uint32_t key1, uint32_t counter0,
                                            uint32_t counter1) {
  const uint32_t keys[3] = {key0, key1, key0 ^ key1 ^ kThreefryParity};
  uint32_t x0 = counter0 + key0, x1 = counter1 + key1;
  for (uint32_t round = 0; round < 20; ++round) {
    const int left = kThreefryRotations[round % 8];
    x0 += x1;
    x1 = (x1 << left | x1 >> (32 - left)) ^ x0;
    if (round % 4 != 3) continue;
    const uint32_t injection = round / 4 + 1;
    x0 += keys[injection % 3];
    x1 += keys[(injection + 1) % 3] + injection;
  }
  return {x0, x1};
}

}  // namespace mithril::tile
