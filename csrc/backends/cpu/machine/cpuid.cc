#include "backends/cpu/machine/cpuid.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <unistd.h>

#include <sys/syscall.h>
#endif

#include "core/env.h"

namespace mithril::cpu {

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    default: return "generic";
  }
}

std::optional<Isa> parse_isa(std::string_view text) {
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (name(isa) == text) return isa;
  }
  return std::nullopt;
}

#if defined(__x86_64__)
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned part = 0) {
  Registers r;
  if (__get_cpuid_count(leaf, part, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }

/// Tells which register states the operating system saves (XCR0).
unsigned saved_states() {
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

Isa detect() {
  const Registers one = cpuid(1), seven = cpuid(7);
  constexpr unsigned xmm_ymm = 0x6, zmm = 0xe6;
  if (!has(one.c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C) || !has(seven.b, bit_AVX2)) {
    return Isa::kGeneric;
  }
  const unsigned saved = saved_states();
  if (!has(saved, xmm_ymm)) return Isa::kGeneric;
  constexpr unsigned avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
  return has(seven.b, avx512) && has(saved, zmm) ? Isa::kAvx512 : Isa::kAvx2;
}

// Linux gives a process the state of tiles, 8 KiB a thread, only when it asks.
bool may_keep_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

BFloatUnit find_bfloat_unit() {
  constexpr unsigned avx512_bf16 = 1U << 5;
  if (detect_isa() != Isa::kAvx512 || !has(cpuid(7, 1).a, avx512_bf16)) return BFloatUnit::kNone;
  constexpr unsigned amx = 1U << 22 | 1U << 24;  // bfloat16, tiles
  constexpr unsigned tile_states = 0x60000;
  const bool tiles = has(cpuid(7).d, amx) && has(saved_states(), tile_states) && may_keep_tiles();
  return tiles ? BFloatUnit::kTiles : BFloatUnit::kPairs;
}

}  // namespace

Isa detect_isa() {
  static const Isa isa = detect();
  return isa;
}

BFloatUnit detect_bfloat_unit() {
  static const BFloatUnit unit = find_bfloat_unit();
  return unit;
}
#else
Isa detect_isa() { return Isa::kGeneric; }
BFloatUnit detect_bfloat_unit() { return BFloatUnit::kNone; }
#endif

Isa default_isa() {
  static const Isa isa = [] {
    const std::optional<Isa> forced = parse_isa(core::env().cpu_isa);
    return forced && supports(*forced) ? *forced : detect_isa();
  }();
  return isa;
}

BFloatUnit default_bfloat_unit() {
  return parse_isa(core::env().cpu_isa) ? BFloatUnit::kNone : detect_bfloat_unit();
}

}  // namespace mithril::cpu
