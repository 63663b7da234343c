// Rows by index: gather, and the sum of rows that is its gradient.
#include "backends/c/kernel_families.h"
#include "select/kernel_dims.h"

namespace mithril::c {
namespace {

using core::DType;
using select::KernelRequest;

plan::FunctionCall indexed(const char* name, const ref_gather_dims& d) {
  plan::FunctionCall call;
  call.name = name;
  call.declarations = declared(d);
  call.check = plan::FunctionCall::Check::kIndex;
  call.index = 1;
  call.bound = d.bound;
  return call;
}

core::Result<plan::Step> make_gather(const KernelRequest& request) {
  const ref_gather_dims d = select::gather_dims(request.inputs[0].shape, request.inputs[1].shape);
  plan::FunctionCall call = indexed("gather", d);
  call.texts = {"gather"};
  call.call = fmt::format("ref_gather_{}(&d, {}, a0, a1, a2, begin, end)",
                          suffix_of(request.inputs[1]), core::size_of(request.outputs[0].dtype));
  return step_of(std::move(call), d.count);
}

// Integers wrap, as unsigned ones do.
std::string_view unsigned_twin(DType dtype) {
  return dtype == DType::kInt32 ? "u32" : dtype == DType::kInt64 ? "u64" : core::short_name(dtype);
}

core::Result<plan::Step> make_scatter(const KernelRequest& request) {
  const DType dtype = request.outputs[0].dtype;
  const ref_gather_dims d = select::gather_dims(request.outputs[0].shape, request.inputs[1].shape);
  const std::string_view suffix = unsigned_twin(dtype);
  const std::string type = dtype == DType::kInt32   ? "uint32_t"
                           : dtype == DType::kInt64 ? "uint64_t"
                                                    : fmt::format("m_{}", core::short_name(dtype));
  plan::FunctionCall call = indexed("scatter_add", d);
  call.texts = {fmt::format("gather_grad.{}", suffix)};
  call.call = fmt::format("ref_gather_grad_{}_{}(&d, a1, (const {}*)a0, ({}*)a2, begin, end)",
                          suffix_of(request.inputs[1]), suffix, type, type);
  return step_of(std::move(call), std::max<int64_t>(d.bound, 1));
}

constexpr auto kCanonical = select::OrderClass::kCanonical;
const select::KernelDef kKernels[] = {
    {"gather", "gather", kCanonical, true, select::kIndices<1>, make_gather},
    {"embedding_grad", "scatter_add", kCanonical, true, select::kScatterTypes, make_scatter},
};

}  // namespace

std::span<const select::KernelDef> row_kernels() { return kKernels; }

}  // namespace mithril::c
