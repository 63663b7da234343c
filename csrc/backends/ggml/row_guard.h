// What stands around a product of ggml whose weights are in blocks: ggml rounds the other operand's
// rows to numbers with small scales, which lose NaN and whatever is very large or small.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mithril::ggml {

/// Tells where the parts of a product lie; pointers to pointers, for memory moves between calls.
struct Product {
  const float* const* rows;        // [count, width]
  float* const* scaled;            // the same, as ggml gets to see them
  float* const* results;           // [count, weights]
  const std::byte* const* blocks;  // [weights, width] in blocks
  const double* factor;            // that the blocks' numbers still have to be multiplied by
  int64_t count, width, weights, row_bytes;
  void (*to_float)(const void* blocks, float* numbers, int64_t count);  // of ggml
};

/// Gives ggml rows whose largest element is near 1, by powers of two, and scales the results back,
/// both exactly. The results of rows that hold inf or NaN are computed here. `prepare` comes
/// before ggml's product and `finish` behind it, each on `threads` threads at once, one part each;
/// neither throws or allocates.
class RowGuard {
 public:
  explicit RowGuard(const Product& product);
  void prepare(int thread, int threads);
  void finish(int thread, int threads);

 private:
  void compute(int64_t row);

  Product product_;
  std::vector<double> scales_;  // of each row; inf or NaN where the row has some
  std::vector<float> weights_;  // one row of them
};

}  // namespace mithril::ggml
