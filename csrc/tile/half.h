// float16 and bfloat16 as bits: exact widening, rounding to nearest even. Straight-line, so that
// loops over them vectorise.
#pragma once
#include <bit>
#include <cstdint>

namespace mithril::tile {

inline float bfloat_to_float(uint16_t h) {
  return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

inline uint16_t float_to_bfloat(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = (u >> 16) | 0x40u;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(h & 0x7fffu) << 13;
  // Exponent 31 means inf or NaN; everything else is a rescaling, exact also for subnormals.
  const float scaled = std::bit_cast<float>(rest) * 0x1p112f;
  const uint32_t bits =
      rest >= (0x1fu << 23) ? (rest | 0x7f800000u) : std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(bits | sign);
}

inline uint16_t float_to_half(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  // Normal results: rebias, round the 13 dropped bits to nearest even; overflow carries into inf.
  const uint32_t normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
  // Subnormal results: adding 0.5 leaves the result, rounded to multiples of 2^-24, in the low
  // bits.
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(a) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  uint32_t h = a < (113u << 23) ? small : normal;
  h = a >= (143u << 23) ? 0x7c00u : h;
  h = a > 0x7f800000u ? 0x7e00u : h;
  return static_cast<uint16_t>(h | sign);
}

/// Rounds once: through float32 with rounding to odd, which keeps what the second rounding needs.
inline float double_to_float_odd(double x) {
  const auto f = static_cast<float>(x);
  const auto back = static_cast<double>(f);
  const uint32_t u = std::bit_cast<uint32_t>(f);
  const uint64_t magnitude = std::bit_cast<uint64_t>(x) & 0x7fffffffffffffffu;
  const uint64_t rounded = std::bit_cast<uint64_t>(back) & 0x7fffffffffffffffu;
  const bool exact = !(back != x) || back != back || (u & 1u) != 0;
  const uint32_t odd = rounded > magnitude ? u - 1 : u + 1;  // towards the side of x; f was even
  return std::bit_cast<float>(exact ? u : odd);
}

}  // namespace mithril::tile
