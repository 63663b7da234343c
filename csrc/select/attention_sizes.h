// From a node of attention to sizes, steps and options.
#pragma once
#include <array>
#include <vector>

#include "select/kernel_def.h"

namespace mithril::select {

/// Operands of the kernels, in their order; the last three are those of the gradients.
enum AttentionInput : size_t {
  kQuery,
  kKey,
  kValue,
  kMask,
  kBias,
  kOffset,
  kOutput,
  kLogsumexp,
  kOutputGradient,
  kInputs
};

/// Steps of an operand in elements. The axes of a batch are those of the keys; of the query heads
/// that share a key head, each is `head` behind the other.
struct AttentionSteps {
  std::vector<int64_t> batch;
  int64_t head = 0, row = 0, col = 0;
};

/// Holds the sizes of a node. Queries of all heads that share keys are rows, head after head.
struct AttentionSizes {
  std::vector<int64_t> batch;
  int64_t heads = 1;  // of queries to a head of keys
  int64_t queries = 0, keys = 0, depth = 0, width = 0;
  std::array<AttentionSteps, kInputs> steps;
  int buffer[kInputs] = {-1, -1, -1, -1, -1, -1, -1, -1, -1};
  bool is_causal = false, mask_is_bool = false, offset_is_wide = false;
  int64_t offset = 0;  // of the first query, where it is no operand
  double scale = 1.0;

  /// From the operands' first elements to those of a batch.
  int64_t batch_offset(AttentionInput input, int64_t number) const {
    int64_t out = 0;
    for (size_t i = batch.size(); i-- > 0; number /= batch[i]) {
      out += number % batch[i] * steps[input].batch[i];
    }
    return out;
  }
  bool has(AttentionInput input) const { return buffer[input] >= 0; }
  int64_t rows() const { return heads * queries; }
};

AttentionSizes attention_sizes(const KernelRequest& request);

}  // namespace mithril::select
