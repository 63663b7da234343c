// Attention without a matrix of scores, for plain_attention and attention.
#pragma once
#include "backends/cpu/cpuid.h"
#include "plan/steps.h"
#include "select/kernel_def.h"

namespace mithril::cpu {

/// Whether there is a kernel for the node that is worth it; says the same for all strides.
bool fits_attention(const select::KernelRequest& request, Isa isa = default_isa());

/// A step over operands as the node has them, for AVX2 or AVX-512 and what fits.
plan::Step make_attention(const select::KernelRequest& request, Isa isa = default_isa());

}  // namespace mithril::cpu
