// What loops for CPUs stand on in OpenCL C, beside c_like_text.h and c_plan_text.h: vectors of 16.
#pragma once

namespace mithril::emit {

/// M_VECTORISED before a loop over elements, M_TAKE_VECTORS as M_TAKE_ALL of c_plan_text.h,
/// m_lookup(table, at, to, n), m_stream_f32(to, from, n).
extern const char* const kVectorHead;

}  // namespace mithril::emit
