// Kernels along one axis: recurrences, orders, transforms; who wrote a place last, and where
// masks are true.
#include "backends/c/kernel_families.h"
#include "reference/reference.h"
#include "select/kernel_dims.h"

namespace mithril::c {
namespace {

using plan::FunctionCall;
using select::KernelRequest;

plan::Step along_axis(const char* text, const char* name, const ref_axis_dims& d,
                      const std::string& call, int64_t work) {
  FunctionCall out;
  out.name = name;
  out.texts = {text};
  out.declarations = declared(d);
  out.call = call;
  return step_of(std::move(out), d.outer * d.inner, grain_of(work));
}

core::Result<plan::Step> make_scan(const KernelRequest& request) {
  const ref_axis_dims d = select::axis_dims(request, "reverse");
  return along_axis(
      "scan", "linear_scan", d,
      fmt::format("ref_linear_scan_{}(&d, a0, a1, a2, begin, end)", suffix_of(request.inputs[0])),
      d.n);
}

core::Result<plan::Step> make_argsort(const KernelRequest& request) {
  constexpr int64_t kWorkOfElement = 16;  // about the rounds of merging
  const ref_axis_dims d = select::axis_dims(request, "descending");
  plan::Step step =
      along_axis("sort", "argsort", d,
                 fmt::format("ref_argsort_{}(&d, {}, a0, a1, scratch, begin, end)",
                             suffix_of(request.inputs[0]), core::size_of(request.outputs[0].dtype)),
                 d.n * kWorkOfElement);
  step.scratch_bytes = static_cast<size_t>(2 * d.n) * sizeof(int64_t);
  return step;
}

core::Result<plan::Step> make_writers(const KernelRequest& request) {
  const int64_t bound = request.outputs[0].shape[0];
  const ref_gather_dims d = select::gather_dims({bound}, request.inputs[0].shape);
  FunctionCall call;
  call.name = "last_writers";
  call.texts = {"sort"};
  call.declarations = declared(d);
  call.call = fmt::format("ref_last_writers_{}(&d, {}, a0, a1, begin, end)",
                          suffix_of(request.inputs[0]), core::size_of(request.outputs[0].dtype));
  call.check = FunctionCall::Check::kIndex;
  call.index = 0;
  call.bound = bound;
  return step_of(std::move(call), bound, std::max<int64_t>(bound, 1));
}

core::Result<plan::Step> make_places(const KernelRequest& request) {
  const select::Operand& places = request.outputs[0];
  FunctionCall call;
  call.name = "bounded_places";
  call.texts = {"true_places"};
  call.call = fmt::format("ref_true_places_{}({}, a0, a1, a2, begin, end)", suffix_of(places),
                          places.shape[0]);
  return step_of(std::move(call), 1);
}

// The roots of unity are made anew for each call, behind the scratch of the transform.
core::Result<plan::Step> make_transform(const KernelRequest& request) {
  const ref_axis_dims d = select::axis_dims(request, "inverse");
  const bool is_real = request.op.name == "rdft";
  const bool has_imaginary = request.inputs.size() > 1 && request.inputs[1].present();
  const std::string operands = is_real         ? "a0, a1, a2"
                               : has_imaginary ? "a0, a1, a2, a3"
                                               : "a0, 0, a1, a2";
  const int64_t scratch = ref_dft_scratch(d.n);
  plan::Step step = along_axis(
      "dft", is_real ? "rdft" : "dft", d,
      fmt::format("double* const memory_of_lines = scratch;\n"
                  "  double* const roots = memory_of_lines + {0};\n"
                  "  ref_dft_prepare({1}, roots, memory_of_lines);\n"
                  "  ref_{2}_{3}(&d, roots, {4}, memory_of_lines, begin, end)",
                  scratch, d.n, is_real ? "rdft" : "dft", suffix_of(request.inputs[0]), operands),
      1);
  step.grain = step.units;  // the roots are for all
  step.scratch_bytes = static_cast<size_t>(scratch + ref_dft_table(d.n)) * sizeof(double);
  return step;
}

constexpr auto kCanonical = select::OrderClass::kCanonical;
const select::KernelDef kKernels[] = {
    {"linear_scan", "linear_scan", kCanonical, true, select::kNumberType, make_scan},
    {"argsort", "argsort", kCanonical, true, select::kNumberType, make_argsort},
    {"last_writers", "last_writers", kCanonical, true, select::kIndices<0>, make_writers},
    {"bounded_places", "bounded_places", kCanonical, true, nullptr, make_places},
    {"dft", "dft", kCanonical, true, kRealType, make_transform},
    {"rdft", "rdft", kCanonical, true, kRealType, make_transform},
};

}  // namespace

std::span<const select::KernelDef> axis_kernels() { return kKernels; }

}  // namespace mithril::c
