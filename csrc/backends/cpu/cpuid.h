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
/// What the engine uses: MITHRIL_CPU_ISA where this machine supports it, else the best.
Isa default_isa();
inline bool supports(Isa isa) { return isa <= detect_isa(); }

/// Whether there are AMX tiles of bfloat16, with AVX512-BF16 to fill them, and the operating system
/// lets this process use them, which it is asked at the first call.
bool has_matrix_tiles();
/// What the engine uses: not where MITHRIL_CPU_ISA names a set, which is then all that is used.
bool uses_matrix_tiles();

}  // namespace mithril::cpu
