#include "backends/cuda/cublaslt.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "backends/device/library_products.h"

namespace mithril::cuda {
namespace {

using core::Code;
using core::ErrorKind;

// Algorithms for operands at multiples of these: most lie so, and those that do not may be any
// library's.
constexpr uint32_t kUsualAlignment = 16;

/// An object of the library, which is given back.
template <class Handle>
class Owned {
 public:
  using Destroy = int (*)(Handle);
  Owned() = default;
  Owned(Owned&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), destroy_(other.destroy_) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (handle_ == nullptr) return;
    destroy_(handle_);
    device::count_object(-1);
  }
  template <class Create, class... Arguments>
  core::Status make(Create create, const char* symbol, Destroy destroy, Arguments... arguments) {
    destroy_ = destroy;
    MITHRIL_RETURN_IF_ERROR(call(create, symbol, &handle_, arguments...));
    device::count_object(1);
    return {};
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
  Destroy destroy_ = nullptr;
};

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

/// C' = B' A', as matrices by columns.
class Cublaslt::Product final : public device::PreparedProduct {
 public:
  explicit Product(const CublasltFunctions& f) : f_(f) {}

  core::Status prepare(lt_handle handle, const plan::LibraryProduct& product) {
    adds_bias_ = product.adds_bias;
    const ByColumns b = transposed(product.k, product.n, product.b_row, product.b_col);
    const ByColumns a = transposed(product.m, product.k, product.a_row, product.a_col);
    const ByColumns c = {product.n, product.m, product.m == 1 ? product.n : product.c_row};
    dtype_ = product.dtype;
    MITHRIL_RETURN_IF_ERROR(make_operation(a.is_turned, b.is_turned, product.allows_tf32));
    MITHRIL_RETURN_IF_ERROR(make_layout(left_, b, product.batches, product.b_batch));
    MITHRIL_RETURN_IF_ERROR(make_layout(right_, a, product.batches, product.a_batch));
    MITHRIL_RETURN_IF_ERROR(make_layout(result_, c, product.batches, product.c_batch));
    MITHRIL_RETURN_IF_ERROR(find(handle, kUsualAlignment, usual_));
    return find(handle, core::size_of(dtype_), any_);
  }

  int64_t workspace() const {
    return static_cast<int64_t>(std::max(usual_.workspace, any_.workspace));
  }

  core::Status multiply(lt_handle handle, const Places& at, cu_stream stream) const {
    const cu_pointer all = at.a | at.b | at.c | at.bias;
    const LtHeuristic& found = all % kUsualAlignment == 0 ? usual_ : any_;
    if (adds_bias_) MITHRIL_RETURN_IF_ERROR(set_bias(at.bias));
    const auto pointer = [](cu_pointer place) { return reinterpret_cast<void*>(place); };
    static constexpr double kOne = 1, kZero = 0;
    static constexpr float kOneFloat = 1, kZeroFloat = 0;
    const void* const one = is_double() ? static_cast<const void*>(&kOne) : &kOneFloat;
    const void* const zero = is_double() ? static_cast<const void*>(&kZero) : &kZeroFloat;
    return call(f_.multiply, "cublasLtMatmul", handle, operation_.get(), one, pointer(at.b),
                left_.get(), pointer(at.a), right_.get(), zero, pointer(at.c), result_.get(),
                pointer(at.c), result_.get(), &found.algorithm, pointer(at.workspace),
                found.workspace, stream);
  }

 private:
  core::Status set(int attribute, const void* value, size_t size) const {
    return call(f_.set_operation, "cublasLtMatmulDescSetAttribute", operation_.get(), attribute,
                value, size);
  }

  core::Status make_operation(bool turns_a, bool turns_b, bool allows_tf32) {
    const int compute = is_double() ? kLtCompute64 : allows_tf32 ? kLtCompute32Tf32 : kLtCompute32;
    MITHRIL_RETURN_IF_ERROR(operation_.make(f_.create_operation, "cublasLtMatmulDescCreate",
                                            f_.destroy_operation, compute,
                                            is_double() ? kLtFloat64 : kLtFloat32));
    const int32_t turned = kLtTransposed;
    if (turns_b) MITHRIL_RETURN_IF_ERROR(set(kLtTransposeA, &turned, sizeof turned));
    if (turns_a) MITHRIL_RETURN_IF_ERROR(set(kLtTransposeB, &turned, sizeof turned));
    const uint32_t epilogue = kLtAddBias;
    return adds_bias_ ? set(kLtEpilogue, &epilogue, sizeof epilogue) : core::Status();
  }

  core::Status set_bias(cu_pointer bias) const { return set(kLtBiasPointer, &bias, sizeof bias); }

  core::Status make_layout(Owned<lt_layout>& layout, const ByColumns& matrix, int64_t batches,
                           int64_t stride) const {
    MITHRIL_RETURN_IF_ERROR(layout.make(
        f_.create_layout, "cublasLtMatrixLayoutCreate", f_.destroy_layout, element(),
        static_cast<uint64_t>(matrix.rows), static_cast<uint64_t>(matrix.columns), matrix.between));
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
  // which part of them ends first.
  core::Status find(lt_handle handle, size_t alignment, LtHeuristic& found) const {
    Owned<lt_preference> preference;
    MITHRIL_RETURN_IF_ERROR(preference.make(f_.create_preference, "cublasLtMatmulPreferenceCreate",
                                            f_.destroy_preference));
    const auto set = [&](int attribute, const void* value, size_t size) {
      return call(f_.set_preference, "cublasLtMatmulPreferenceSetAttribute", preference.get(),
                  attribute, value, size);
    };
    const uint64_t workspace = kWorkspace;
    MITHRIL_RETURN_IF_ERROR(set(kLtMostWorkspace, &workspace, sizeof workspace));
    const uint32_t reductions = kLtReduceComputed;
    MITHRIL_RETURN_IF_ERROR(set(kLtReductions, &reductions, sizeof reductions));
    const auto multiple = static_cast<uint32_t>(alignment);
    for (int operand = 0; operand < 4; ++operand) {
      MITHRIL_RETURN_IF_ERROR(set(kLtAlignmentA + operand, &multiple, sizeof multiple));
    }
    // The bias has no attribute: its place says what it is a multiple of.
    if (adds_bias_) MITHRIL_RETURN_IF_ERROR(set_bias(alignment));
    int count = 0;
    MITHRIL_RETURN_IF_ERROR(call(f_.find, "cublasLtMatmulAlgoGetHeuristic", handle,
                                 operation_.get(), left_.get(), right_.get(), result_.get(),
                                 result_.get(), preference.get(), 1, &found, &count));
    if (count < 1) return failed("cublasLtMatmulAlgoGetHeuristic", kLtNotSupported);
    return found.state == kSuccess ? core::Status()
                                   : failed("cublasLtMatmulAlgoGetHeuristic", found.state);
  }

  bool is_double() const { return dtype_ == core::DType::kFloat64; }
  int element() const {
    switch (dtype_) {
      case core::DType::kFloat16: return kLtFloat16;
      case core::DType::kBFloat16: return kLtBfloat16;
      case core::DType::kFloat64: return kLtFloat64;
      default: return kLtFloat32;
    }
  }

  const CublasltFunctions& f_;
  Owned<lt_operation> operation_;
  Owned<lt_layout> left_, right_, result_;
  LtHeuristic usual_, any_;  // by where operands lie
  core::DType dtype_ = core::DType::kFloat32;
  bool adds_bias_ = false;
};

core::Result<Cublaslt> Cublaslt::open(const std::vector<std::string>& libraries, int newest) {
  std::vector<std::string> reasons;
  for (const std::string& path : libraries) {
    std::string why;
    Cublaslt out;
    out.functions_ = open_cublaslt(path, why);
    if (out.functions_ == nullptr) {
      reasons.push_back(why);
      continue;
    }
    out.version_ = out.functions_->version();
    const size_t major = out.version_ / 10000;
    if (major > static_cast<size_t>(newest) / 1000) {
      reasons.push_back(
          fmt::format("{} is of CUDA {}, the driver of CUDA {}", path, major, newest / 1000));
      continue;
    }
    const core::Status made = call(out.functions_->create, "cublasLtCreate", &out.handle_);
    if (made.ok()) return out;
    reasons.push_back(fmt::format("{}: {}", path, made.error().message));
  }
  return core::fail(ErrorKind::kDevice, Code::kDevice, "CUDA: no cuBLASLt: {}",
                    fmt::join(reasons, "; "));
}

std::string Cublaslt::name() const {
  return fmt::format("cuBLASLt {}.{}", version_ / 10000, version_ / 100 % 100);
}

core::Result<std::unique_ptr<const device::PreparedProduct>> Cublaslt::prepare(
    const plan::LibraryProduct& product) const {
  auto out = std::make_unique<Product>(*functions_);
  MITHRIL_RETURN_IF_ERROR(out->prepare(handle_, product));
  return std::unique_ptr<const device::PreparedProduct>(std::move(out));
}

int64_t Cublaslt::workspace_of(const device::PreparedProduct& product) {
  return static_cast<const Product&>(product).workspace();
}

core::Status Cublaslt::multiply(const device::PreparedProduct& product, const Places& at,
                                cu_stream stream) const {
  return static_cast<const Product&>(product).multiply(handle_, at, stream);
}

}  // namespace mithril::cuda
