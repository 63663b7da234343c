// What the loop over blocks of attention and its parts for one instruction set agree on.
#pragma once
#include <cstdint>

#include "backends/cpu/machine/cpuid.h"

namespace mithril::cpu {

/// Scores of a block: key after key, each with one number per query. Becomes the weights
/// exp(score - largest).
template <class T>
struct ScoreColumns {
  T* scores;
  int64_t keys;
  int64_t width;  // queries of a key, and the step to the next one: whole vectors
  T* largest;     // by query, of all keys up to here
  T* sum;         // by query, of the weights up to here
  T* rescale;     // by query: the factor of what was summed before this block
};

/// Scores of a block and the slopes of its weights, which lie in the same way: both become those of
/// the softmax, weights exp(score - logsumexp) and the slopes of the scores, weight · (slope -
/// mean).
template <class T>
struct SlopeColumns {
  T *scores, *slopes;
  int64_t keys, width;
  const T *logsumexp, *mean;  // by query
};

/// Does the work of ScoreColumns for one query, whose scores lie side by side.
template <class T>
struct ScoreRow {
  T* scores;
  int64_t keys;
  T largest, sum, rescale;
};

/// out = out * rescale + sum over keys of weights[key] * values[key], rows of `width` numbers.
template <class T>
struct ValueRows {
  const T* weights;
  const T* values;
  int64_t keys, step, width;
  T rescale;
  T* out;
};

/// Parts of attention over vectors of one instruction set. `weigh` is a step of the streaming
/// softmax (Milakov & Gimelshein, arXiv:1805.02867).
template <class T>
struct AttentionParts {
  int64_t lanes;
  void (*weigh_columns)(const ScoreColumns<T>&);
  /// -inf for query q from key visible[q] on; keys before `first` are not looked at.
  void (*hide_columns)(const ScoreColumns<T>&, int64_t first, const T* visible);
  /// Adds a bias that lies like the scores, or sets scores to -inf where it is -inf.
  void (*add_columns)(const ScoreColumns<T>&, const T* bias);
  void (*mask_columns)(const ScoreColumns<T>&, const T* bias);
  void (*slope_columns)(const SlopeColumns<T>&);
  /// out = largest + ln(sum), for whole vectors of queries.
  void (*log_sums)(const T* largest, const T* sum, T* out, int64_t width);
  void (*multiply)(T* out, T factor, int64_t count);
  /// out = out * factor + part.
  void (*accumulate)(T* out, const T* part, T factor, int64_t count);
  void (*weigh_row)(ScoreRow<T>&);
  /// out[k] = query . key k, for keys whose numbers lie side by side.
  void (*dot)(const T* query, const T* keys, int64_t key_step, int64_t depth, int64_t count,
              T* out);
  void (*mix)(const ValueRows<T>&);
};

struct AttentionTable {
  AttentionParts<float> f32;
  AttentionParts<double> f64;
};

#if defined(__x86_64__)
namespace avx2 {
extern const AttentionTable kAttention;
}
namespace avx512 {
extern const AttentionTable kAttention;
}
#endif

}  // namespace mithril::cpu
