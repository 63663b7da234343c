// Square matrices and factors on the reference's texts, a matrix a unit.
#include "backends/c/kernel_families.h"
#include "select/kernel_dims.h"

namespace mithril::c {
namespace {

using plan::FunctionCall;
using select::KernelRequest;

/// The function of the op's own name, with `arguments` behind the dims.
plan::Step matrices(const KernelRequest& request, const char* text, const ref_linalg_dims& d,
                    const char* arguments, int64_t scratch, FunctionCall::Check check) {
  const select::Operand& matrix = request.inputs[0];
  FunctionCall call;
  call.name = request.op.name;
  call.texts = {text_of(text, matrix)};
  call.declarations = declared(d);
  call.call =
      fmt::format("ref_{}_{}(&d, {}, begin, end)", request.op.name, suffix_of(matrix), arguments);
  call.check = check;
  plan::Step step = step_of(std::move(call), d.batch, grain_of(d.n * d.n * std::max(d.n, d.k)));
  step.scratch_bytes = static_cast<size_t>(scratch) * core::size_of(matrix.dtype);
  return step;
}

template <FunctionCall::Check kCheck = FunctionCall::Check::kNone>
core::Result<plan::Step> make(const KernelRequest& request, const char* arguments,
                              int64_t scratch) {
  return matrices(request, "linalg", select::linalg_dims(request), arguments, scratch, kCheck);
}

int64_t square(const KernelRequest& request) {
  return request.inputs[0].shape.back() * request.inputs[0].shape.back();
}

core::Result<plan::Step> make_cholesky(const KernelRequest& request) {
  return make<FunctionCall::Check::kNotPositiveDefinite>(request, "a0, a1", 0);
}
core::Result<plan::Step> make_solve_triangular(const KernelRequest& request) {
  return make(request, "a0, a1, a2", 0);
}
core::Result<plan::Step> make_solve(const KernelRequest& request) {
  return make<FunctionCall::Check::kSingular>(request, "a0, a1, a2, scratch", square(request));
}
core::Result<plan::Step> make_det(const KernelRequest& request) {
  return make(request, "a0, a1, scratch", square(request));
}
core::Result<plan::Step> make_scaled_det(const KernelRequest& request) {
  return make(request, "a0, a1, a2, scratch", square(request));
}
core::Result<plan::Step> make_cofactor(const KernelRequest& request) {
  return make(request, "a0, a1, scratch", 2 * square(request) + request.inputs[0].shape.back());
}
core::Result<plan::Step> make_eigh(const KernelRequest& request) {
  return make(request, "a0, a1, a2, scratch", square(request));
}

core::Result<plan::Step> factors(const KernelRequest& request, const char* arguments) {
  const ref_linalg_dims d = select::factor_dims(request);
  const int64_t p = std::min(d.n, d.k);
  return matrices(request, "factors", d, arguments, d.n * d.k + p * std::max<int64_t>(p, 3),
                  FunctionCall::Check::kNone);
}
core::Result<plan::Step> make_qr(const KernelRequest& request) {
  return factors(request, "a0, a1, a2, scratch");
}
core::Result<plan::Step> make_svd(const KernelRequest& request) {
  return factors(request, "a0, a1, a2, a3, scratch");
}

constexpr auto kCanonical = select::OrderClass::kCanonical;
const select::KernelDef kKernels[] = {
    {"cholesky", "cholesky", kCanonical, true, kRealType, make_cholesky},
    {"solve_triangular", "solve_triangular", kCanonical, true, kRealType, make_solve_triangular},
    {"solve", "solve", kCanonical, true, kRealType, make_solve},
    {"det", "det", kCanonical, true, kRealType, make_det},
    {"scaled_det", "scaled_det", kCanonical, true, kRealType, make_scaled_det},
    {"cofactor", "cofactor", kCanonical, true, kRealType, make_cofactor},
    {"eigh", "eigh", kCanonical, true, kRealType, make_eigh},
    {"qr", "qr", kCanonical, true, kRealType, make_qr},
    {"svd", "svd", kCanonical, true, kRealType, make_svd},
};

}  // namespace

std::span<const select::KernelDef> linalg_kernels() { return kKernels; }

}  // namespace mithril::c
