// Attention without a matrix of scores, and its gradients.
#pragma once
#include "backends/cpu/machine/cpuid.h"
#include "plan/steps.h"
#include "select/kernel_def.h"

namespace mithril::cpu {

/// Tells whether there is a kernel for the node that is worth it; says the same for all strides.
bool fits_attention(const select::KernelRequest& request, Isa isa = default_isa());

/// The same for attention that is differentiated and for its gradients: all of it or nothing.
bool fits_trained_attention(const select::KernelRequest& request, Isa isa = default_isa());

/// A step over operands as the node has them, for AVX2 or AVX-512 and what fits.
plan::Step make_attention(const select::KernelRequest& request, Isa isa = default_isa());
plan::Step make_attention_gradient(const select::KernelRequest& request, Isa isa = default_isa());

}  // namespace mithril::cpu
