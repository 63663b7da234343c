// Products with packed weights (core/packed_matrix.h). Order class: other; docs/numerics.md has the
// bounds. Equal bits for any units and threads.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "backends/cpu/gemm/gemm.h"
#include "backends/cpu/gemm/low_precision_parts.h"
#include "backends/cpu/machine/cpuid.h"
#include "core/packed_matrix.h"

namespace mithril::cpu {

/// Tells how a product with packed weights is computed.
enum class PackedWay : uint8_t {
  kFewRows,   // weights become float32 in registers: as fast as they are read
  kExpanded,  // weights become float32 in scratch, for the blocked product of float32
  kRounded    // x is rounded to bfloat16, for products of bfloat16
};

struct PackedOptions {
  Isa isa = default_isa();
  BFloatUnit unit = default_bfloat_unit();
  int threads = 1;
};

/// y[rows, n] = x[rows, k] W, of contiguous x and y; ready to run.
class PackedProduct {
 public:
  PackedProduct(std::shared_ptr<const core::PackedMatrix> weights, int64_t rows,
                const PackedOptions& options);

  PackedWay way() const { return way_; }
  /// Parts of y that may be computed at the same time, in any order, and how many of them are worth
  /// handing out.
  int64_t units() const { return row_groups_ * strips(); }
  int64_t grain() const { return grain_; }
  /// Counts the bytes that `run` wants of each thread, 64-byte aligned; not cleared.
  size_t scratch_bytes() const { return scratch_bytes_; }
  /// False where `cancel` was set meanwhile; it may be null.
  bool run(int64_t begin, int64_t end, const float* x, float* y, void* scratch,
           const std::atomic<bool>* cancel = nullptr) const;

 private:
  struct Strip {
    int64_t row, rows, begin, end;  // of panels
  };

  void prepare_expanded();
  void prepare_rounded(int threads);
  PackedPanels panels() const;
  int64_t strips() const;
  Strip strip(int64_t unit) const;
  bool run_expanded(const Strip& part, const float* x, float* y, std::byte* scratch,
                    const std::atomic<bool>* cancel) const;
  void run_rounded(int64_t begin, int64_t end, const float* x, float* y, uint16_t* rounded) const;
  const Gemm<float>& gemm_of(int64_t columns, int64_t depth) const;

  std::shared_ptr<const core::PackedMatrix> weights_;
  const LowPrecisionParts* parts_;
  Isa isa_;
  BFloatUnit unit_;
  PackedWay way_;
  int64_t rows_;
  int64_t row_groups_ = 1, group_ = 0;  // of rows
  int64_t width_ = 1;                   // of a strip, in panels
  int64_t grain_ = 1;
  int64_t rounded_step_ = 0;  // elements between rounded rows
  size_t scratch_bytes_ = 0;
  std::vector<Gemm<float>> gemms_;  // of a whole and a last strip, with a whole and a last block
};

}  // namespace mithril::cpu
