// Which instruction sets this processor and operating system offer.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace mithril::cpu {

/// Code paths of the engine, each a superset of the one before.
enum class Isa : uint8_t {
  kGeneric,  // baseline x86-64, or any other machine; fma by a library call
  kAvx2,     // AVX2, FMA, F16C
  kAvx512,   // AVX-512 F, BW, DQ, VL on top
};
inline constexpr int kIsaCount = 3;

/// "generic", "avx2", "avx512".
std::string_view name(Isa isa);
std::optional<Isa> parse_isa(std::string_view text);

/// The best that this machine runs (CPUID and XGETBV); computed once, thread-safe.
Isa detect_isa();
/// Picks what the engine uses: MITHRIL_CPU_ISA where this machine supports it, else the best.
Isa default_isa();
inline bool supports(Isa isa) { return isa <= detect_isa(); }

/// Names what multiplies bfloat16: AVX512-BF16, or AMX where there is that, too. Ordered: a machine
/// with one has those before it.
enum class BFloatUnit : uint8_t { kNone, kPairs, kTiles };
/// The best that this machine runs; the operating system is asked for the state of tiles at the
/// first call.
BFloatUnit detect_bfloat_unit();
/// Picks what the engine uses: none where MITHRIL_CPU_ISA names a set, which is then all that is
/// used.
BFloatUnit default_bfloat_unit();

}  // namespace mithril::cpu
