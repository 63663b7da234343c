#include "runtime/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

namespace mithril::runtime {

namespace {

constexpr std::array<int, 8> kRotations = {13, 15, 26, 6, 17, 29, 16, 24};
constexpr uint32_t kParity = 0x1BD11BDA;

RandomKey key_from(const std::array<uint32_t, 2>& block) { return {block[0], block[1]}; }

float unit_float(const std::array<uint32_t, 2>& block) {
  return static_cast<float>(block[0] >> 8) * 0x1p-24f;
}

double unit_double(const std::array<uint32_t, 2>& block) {
  const uint64_t bits = uint64_t{block[0]} << 21 | block[1] >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

template <class T, class Unit>
void fill_real(RandomKey key, T low, T high, std::span<T> out, Unit unit) {
  const T below = std::nextafter(high, low);
  for (size_t i = 0; i < out.size(); ++i) {
    const T scaled = (high - low) * unit(threefry(key, i));
    out[i] = std::min(low + scaled, below);
  }
}

}  // namespace

// Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011), section 4.1.
std::array<uint32_t, 2> threefry(RandomKey key, uint64_t counter) {
  const std::array<uint32_t, 3> keys = {key.first, key.second, key.first ^ key.second ^ kParity};
  uint32_t x0 = static_cast<uint32_t>(counter) + keys[0];
  uint32_t x1 = static_cast<uint32_t>(counter >> 32) + keys[1];
  for (uint32_t round = 0; round < 20; ++round) {
    x0 += x1;
    x1 = std::rotl(x1, kRotations[round % 8]) ^ x0;
    if (round % 4 != 3) continue;
    const uint32_t injection = round / 4 + 1;
    x0 += keys[injection % 3];
    x1 += keys[(injection + 1) % 3] + injection;
  }
  return {x0, x1};
}

RandomKey key_of_seed(uint64_t seed) {
  return {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
}

RandomKey derive_key(uint64_t seed, std::string_view path) {
  return key_from(threefry(key_of_seed(seed), hash_path(path)));
}

RandomKey split_key(RandomKey key, uint64_t index) { return key_from(threefry(key, ~index)); }

uint64_t hash_path(std::string_view path) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : path) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

void fill_bits(RandomKey key, std::span<uint32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = threefry(key, i)[0];
}

void fill_uniform(RandomKey key, float low, float high, std::span<float> out) {
  fill_real(key, low, high, out, unit_float);
}

void fill_uniform(RandomKey key, double low, double high, std::span<double> out) {
  fill_real(key, low, high, out, unit_double);
}

void fill_integers(RandomKey key, int64_t low, int64_t high, std::span<int64_t> out) {
  const uint64_t size = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  if (size == 0) {
    std::fill(out.begin(), out.end(), low);
    return;
  }
  const uint64_t biased = (0 - size) % size;  // 2^64 mod size
  for (size_t i = 0; i < out.size(); ++i) {
    for (uint64_t attempt = 0;; ++attempt) {
      const auto block = threefry(key, i + (attempt << 48));
      const uint64_t bits = uint64_t{block[0]} << 32 | block[1];
      __extension__ using Wide = unsigned __int128;
      const Wide product = static_cast<Wide>(bits) * size;
      if (static_cast<uint64_t>(product) < biased) continue;
      const uint64_t value = static_cast<uint64_t>(low) + static_cast<uint64_t>(product >> 64);
      out[i] = static_cast<int64_t>(value);
      break;
    }
  }
}

}  // namespace mithril::runtime
