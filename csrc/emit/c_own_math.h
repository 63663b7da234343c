// Functions of libm as text, for programs that run where there is none.
#pragma once

namespace mithril::emit {

/// m_c_fma_f32, m_sqrt_f64, m_floor_f32 …, and the names that texts of kernels have for them,
/// behind kHeadC99. Results are libm's to the bit. Compilers that know fma or a root as an
/// instruction of the processor use that.
extern const char* const kOwnMath;

}  // namespace mithril::emit
