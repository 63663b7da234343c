#include "backends/cuda/cublaslt.h"

#include <algorithm>
#include <utility>

#include "backends/device/library_products.h"

namespace mithril::cuda {
namespace {

// Algorithms for operands at multiples of these: most lie so, and those that do not may be any
// library's.
constexpr uint32_t kUsualAlignment = 16;

/// A matrix as the library has it, by columns: those of ours by rows are transposed there.
struct ByColumns {
  int64_t rows = 0, columns = 0, between = 0;  // elements between columns
  bool is_turned = false;                      // it stands for its transpose
};

// The transpose of a matrix with these strides, whose rows or columns lie side by side.
ByColumns transposed(int64_t rows, int64_t columns, int64_t row, int64_t column) {
  if (device::lies_by_rows(rows, columns, row, column)) {
    return {columns, rows, rows == 1 ? columns : row, false};
  }
  return {rows, columns, columns == 1 ? rows : column, true};
}

}  // namespace

/// D' = B' A' + C', as matrices by columns; C is what is added, if anything is, and lies as D does.
class Cublaslt::Product final : public LibraryCall {
 public:
  Product(const CublasltFunctions& f, lt_handle handle) : f_(f), handle_(handle) {}

  core::Status prepare(const plan::LibraryMatmul& product, const TakeWorkspace& take_workspace) {
    adds_bias_ = product.adds_bias;
    adds_matrix_ = product.adds_matrix;
    const ByColumns b = transposed(product.k, product.n, product.b_row, product.b_col);
    const ByColumns a = transposed(product.m, product.k, product.a_row, product.a_col);
    const ByColumns c = {product.n, product.m, product.m == 1 ? product.n : product.c_row};
    is_double_ = product.result == core::DType::kFloat64;
    const int factor = element(product.dtype), result = element(product.result);
    MITHRIL_RETURN_IF_ERROR(make_operation(a.is_turned, b.is_turned, product.allows_tf32));
    MITHRIL_RETURN_IF_ERROR(make_layout(left_, factor, b, product.batches, product.b_batch));
    MITHRIL_RETURN_IF_ERROR(make_layout(right_, factor, a, product.batches, product.a_batch));
    MITHRIL_RETURN_IF_ERROR(make_layout(result_, result, c, product.batches, product.c_batch));
    MITHRIL_RETURN_IF_ERROR(find(kUsualAlignment, kUsualAlignment, usual_));
    MITHRIL_RETURN_IF_ERROR(
        find(core::size_of(product.dtype), core::size_of(product.result), any_));
    if (usual_.workspace == 0 && any_.workspace == 0) return {};
    MITHRIL_ASSIGN(workspace_, take_workspace(kWorkspace));
    return {};
  }

  core::Status enqueue(std::span<const cu_pointer> operands, cu_stream stream) const override {
    const cu_pointer a = operands[0], b = operands[1], d = operands[2];
    const cu_pointer bias = adds_bias_ ? operands[3] : 0;
    const cu_pointer c = adds_matrix_ ? operands.back() : d;
    const cu_pointer all = a | b | c | d | bias;
    const LtHeuristic& found = all % kUsualAlignment == 0 ? usual_ : any_;
    if (adds_bias_) MITHRIL_RETURN_IF_ERROR(set_bias(bias));
    return call(f_.multiply, "cublasLtMatmul", handle_, operation_.get(), scale_of(1, is_double_),
                pointer_to(b), left_.get(), pointer_to(a), right_.get(),
                scale_of(adds_matrix_ ? 1 : 0, is_double_), pointer_to(c), result_.get(),
                pointer_to(d), result_.get(), &found.algorithm, pointer_to(workspace_.at),
                found.workspace, stream);
  }

 private:
  core::Status set(int attribute, const void* value, size_t size) const {
    return call(f_.set_operation, "cublasLtMatmulDescSetAttribute", operation_.get(), attribute,
                value, size);
  }

  core::Status make_operation(bool turns_a, bool turns_b, bool allows_tf32) {
    const int compute = is_double_ ? kLtCompute64 : allows_tf32 ? kLtCompute32Tf32 : kLtCompute32;
    MITHRIL_RETURN_IF_ERROR(operation_.make(f_.create_operation, "cublasLtMatmulDescCreate",
                                            f_.destroy_operation, "cublasLtMatmulDescDestroy",
                                            compute, is_double_ ? kLtFloat64 : kLtFloat32));
    const int32_t turned = kLtTransposed;
    if (turns_b) MITHRIL_RETURN_IF_ERROR(set(kLtTransposeA, &turned, sizeof turned));
    if (turns_a) MITHRIL_RETURN_IF_ERROR(set(kLtTransposeB, &turned, sizeof turned));
    const uint32_t epilogue = kLtAddBias;
    return adds_bias_ ? set(kLtEpilogue, &epilogue, sizeof epilogue) : core::Status();
  }

  core::Status set_bias(cu_pointer bias) const { return set(kLtBiasPointer, &bias, sizeof bias); }

  core::Status make_layout(LibraryObject<lt_layout>& layout, int element, const ByColumns& matrix,
                           int64_t batches, int64_t stride) const {
    MITHRIL_RETURN_IF_ERROR(layout.make(f_.create_layout, "cublasLtMatrixLayoutCreate",
                                        f_.destroy_layout, "cublasLtMatrixLayoutDestroy", element,
                                        static_cast<uint64_t>(matrix.rows),
                                        static_cast<uint64_t>(matrix.columns), matrix.between));
    if (batches == 1) return {};
    const auto count = static_cast<int32_t>(batches);
    const auto set = [&](int attribute, const void* value, size_t size) {
      return call(f_.set_layout, "cublasLtMatrixLayoutSetAttribute", layout.get(), attribute, value,
                  size);
    };
    MITHRIL_RETURN_IF_ERROR(set(kLtBatchCount, &count, sizeof count));
    return set(kLtBatchStride, &stride, sizeof stride);
  }

  // The algorithm that the library expects to be the fastest, of those whose sums do not depend on
  // which part of them ends first. Factors, and result and bias, lie at multiples of so many bytes.
  core::Status find(size_t of_factors, size_t of_result, LtHeuristic& found) const {
    LibraryObject<lt_preference> preference;
    MITHRIL_RETURN_IF_ERROR(preference.make(f_.create_preference, "cublasLtMatmulPreferenceCreate",
                                            f_.destroy_preference,
                                            "cublasLtMatmulPreferenceDestroy"));
    const auto set = [&](int attribute, const void* value, size_t size) {
      return call(f_.set_preference, "cublasLtMatmulPreferenceSetAttribute", preference.get(),
                  attribute, value, size);
    };
    const uint64_t workspace = kWorkspace;
    MITHRIL_RETURN_IF_ERROR(set(kLtMostWorkspace, &workspace, sizeof workspace));
    const uint32_t reductions = kLtReduceComputed;
    MITHRIL_RETURN_IF_ERROR(set(kLtReductions, &reductions, sizeof reductions));
    for (int operand = 0; operand < 4; ++operand) {  // A, B, C and D
      const auto multiple = static_cast<uint32_t>(operand < 2 ? of_factors : of_result);
      MITHRIL_RETURN_IF_ERROR(set(kLtAlignmentA + operand, &multiple, sizeof multiple));
    }
    // The bias has no attribute: its place says what it is a multiple of.
    if (adds_bias_) MITHRIL_RETURN_IF_ERROR(set_bias(of_result));
    int count = 0;
    MITHRIL_RETURN_IF_ERROR(call(f_.find, "cublasLtMatmulAlgoGetHeuristic", handle_,
                                 operation_.get(), left_.get(), right_.get(), result_.get(),
                                 result_.get(), preference.get(), 1, &found, &count));
    if (count < 1) return failed("cublasLtMatmulAlgoGetHeuristic", kLtNotSupported);
    return found.state == kSuccess ? core::Status()
                                   : failed("cublasLtMatmulAlgoGetHeuristic", found.state);
  }

  static int element(core::DType dtype) {
    switch (dtype) {
      case core::DType::kFloat16: return kLtFloat16;
      case core::DType::kBFloat16: return kLtBfloat16;
      case core::DType::kFloat64: return kLtFloat64;
      default: return kLtFloat32;
    }
  }

  const CublasltFunctions& f_;
  lt_handle handle_;
  LibraryObject<lt_operation> operation_;
  LibraryObject<lt_layout> left_, right_, result_;
  LtHeuristic usual_, any_;  // by where operands lie
  Workspace workspace_;
  bool is_double_ = false;
  bool adds_bias_ = false;
  bool adds_matrix_ = false;
};

core::Result<Cublaslt> Cublaslt::open(const std::vector<std::string>& libraries, int newest) {
  return open_first<Cublaslt>("cuBLASLt", libraries,
                              [&](const std::string& path) { return open(path, newest); });
}

core::Result<Cublaslt> Cublaslt::open(const std::string& path, int newest) {
  std::string why;
  Cublaslt out;
  out.functions_ = open_cublaslt(path, why);
  if (out.functions_ == nullptr) return unusable("{}", why);
  out.version_ = out.functions_->version();
  const size_t major = out.version_ / 10000;
  if (major > static_cast<size_t>(newest) / 1000) {
    return unusable("{} is of CUDA {}, the driver of CUDA {}", path, major, newest / 1000);
  }
  const core::Status made = call(out.functions_->create, "cublasLtCreate", &out.handle_);
  if (!made.ok()) return unusable("{}: {}", path, made.error().message);
  return out;
}

std::string Cublaslt::name() const {
  return fmt::format("cuBLASLt {}.{}", version_ / 10000, version_ / 100 % 100);
}

core::Result<LibraryCallPtr> Cublaslt::prepare(const plan::LibraryMatmul& product,
                                               const TakeWorkspace& take_workspace) const {
  auto out = std::make_unique<Product>(*functions_, handle_);
  MITHRIL_RETURN_IF_ERROR(out->prepare(product, take_workspace));
  return LibraryCallPtr(std::move(out));
}

}  // namespace mithril::cuda
