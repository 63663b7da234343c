#include "emit/c_prune.h"

#include <gtest/gtest.h>

namespace mithril::emit {
namespace {

constexpr const char* kPrelude = R"(#ifdef X
#define M_FN static
#endif
typedef float m_f32;
typedef unsigned char m_u8;

/* Of a section. */

/* Adds. */
#define M_ADD(T) \
  M_FN m_##T m_add_##T(m_##T a, m_##T b) { \
    return m_sum_##T(a, b); \
  }
M_FN m_f32 m_sum_f32(m_f32 a, m_f32 b) {
  return a + b;
}
M_FN m_u8 m_sum_u8(m_u8 a, m_u8 b) { return a + b; }
M_ADD(f32)
M_ADD(u8)
)";

TEST(PruneC, KeepsWhatIsUsedAndWhatThatUses) {
  EXPECT_EQ(prune_c(kPrelude, "x = m_add_f32(y, z);"), R"(#ifdef X
#define M_FN static
#endif
typedef float m_f32;
/* Adds. */
#define M_ADD(T) \
  M_FN m_##T m_add_##T(m_##T a, m_##T b) { \
    return m_sum_##T(a, b); \
  }
M_FN m_f32 m_sum_f32(m_f32 a, m_f32 b) {
  return a + b;
}
M_ADD(f32)
)");
}

TEST(PruneC, KeepsNothingForNobody) {
  EXPECT_EQ(prune_c(kPrelude, "m_none"), "#ifdef X\n#endif\n");
}

TEST(PruneC, FindsWholeWords) {
  EXPECT_TRUE(has_word("a = fma(b)", "fma"));
  EXPECT_FALSE(has_word("a = fmaf(b) + m_fma", "fma"));
}

}  // namespace
}  // namespace mithril::emit
