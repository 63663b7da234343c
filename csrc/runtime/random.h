// Random numbers on the host: keys of parameters and their initial values, by Threefry-2x32-20.
// Counter layout, the same as in tile programs: element i of a draw comes from the block at the
// 64-bit counter i (its low and its high word) under the draw's key. Normals are tile mathematics
// and made there.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace mithril::runtime {

struct RandomKey {
  uint32_t first = 0;
  uint32_t second = 0;
  bool operator==(const RandomKey&) const = default;
};

/// Both words of the block at `counter`.
std::array<uint32_t, 2> threefry(RandomKey key, uint64_t counter);

/// The key whose words are the low and the high half of the seed.
RandomKey key_of_seed(uint64_t seed);

/// The key of the parameter at `path` ("mlp.linear_1.weight"): the block at counter FNV-1a-64 of
/// the path's bytes, under the seed's key. So initial values depend on seed, path and shape alone.
RandomKey derive_key(uint64_t seed, std::string_view path);

/// Key number `index` of those that follow from `key`: the block at counter -1 - index.
RandomKey split_key(RandomKey key, uint64_t index);

/// FNV-1a, 64 bits.
uint64_t hash_path(std::string_view path);

/// Word 0 of each element's block.
void fill_bits(RandomKey key, std::span<uint32_t> out);

/// Uniform in [low, high): low + (high - low) u, each operation rounded; what rounds up to `high`
/// becomes the number below it. u, float32: the top 24 bits of word 0 times 2^-24; float64: word
/// 0's 32 bits, then the top 21 bits of word 1, times 2^-53. Equal bounds give `low`.
void fill_uniform(RandomKey key, float low, float high, std::span<float> out);
void fill_uniform(RandomKey key, double low, double high, std::span<double> out);

/// Integers in [low, high) without bias, low <= high; equal bounds give `low`. With s = high - low
/// and x = word 0 * 2^32 + word 1: low + floor(x s / 2^64), where x s mod 2^64 is at least 2^64 mod
/// s; else the next attempt t = 1, 2, ... at counter i + t 2^48. At most 2^48 elements.
void fill_integers(RandomKey key, int64_t low, int64_t high, std::span<int64_t> out);

}  // namespace mithril::runtime
