#include "backends/cuda/tile_text.h"

namespace mithril::cuda {

const char* const kTileFunctions = R"(
/* Eight halves of a row, `step` apart, side by side: those behind the first `count` are 0. */
M_FN void m_tile_stage(m_w16* to, const m_w16* from, m_i64 step, m_i64 count) {
  if (count >= 8 && step == 1 && ((m_w64)from & 15) == 0) {
    *(uint4*)to = *(const uint4*)from;
    return;
  }
  for (int e = 0; e < 8; ++e) to[e] = e < count ? from[e * step] : 0;
}
/* Two halves with 0 in place of what is not finite; `exponent`: all bits of it. */
M_FN m_w32 m_tile_finite(m_w32 pair, m_w32 exponent) {
  if ((pair & exponent) == exponent) pair &= 0xffff0000u;
  if ((pair >> 16 & exponent) == exponent) pair &= 0xffffu;
  return pair;
}
#if defined(__CUDACC_RTC__)
/* Four tiles of 8 by 8: row r of tile i begins where thread 8 i + r says, at 16 bytes. */
M_FN void m_tile_load(m_w32* to, const m_w16* row) {
  const m_w32 at = (m_w32)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}
M_FN void m_tile_load_transposed(m_w32* to, const m_w16* row) {
  const m_w32 at = (m_w32)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}
/* c += a b: 16 rows of 16 times 16 rows of 8. m_tile_pair: two halves, the first one below. */
#define M_TILE_TYPE(T) \
  M_FN void m_tile_multiply_##T(float* c, const m_w32* a, m_w32 b0, m_w32 b1) { \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #T "." #T ".f32 " \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
  } \
  M_FN m_w32 m_tile_pair_##T(float low, float high) { \
    m_w32 pair; \
    asm("cvt.rn." #T "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low)); \
    return pair; \
  }
M_TILE_TYPE(f16)
M_TILE_TYPE(bf16)
M_FN float m_tile_low_f16(m_w32 pair) {
  float out;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(out) : "r"(pair));
  return out;
}
M_FN float m_tile_high_f16(m_w32 pair) {
  float out;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(out) : "r"(pair));
  return out;
}
M_FN float m_tile_low_bf16(m_w32 pair) { return __uint_as_float(pair << 16); }
M_FN float m_tile_high_bf16(m_w32 pair) { return __uint_as_float(pair & 0xffff0000u); }
#endif
)";

}  // namespace mithril::cuda
