// Units of few queries, as when a text is written word by word: one key to a lane.
#pragma once
#include <limits>

#include "backends/cpu/attention/attention_unit.h"

namespace mithril::cpu {

template <class T>
class FewQueries : AttentionUnit<T> {
 public:
  static constexpr int64_t kMostRows = 8;
  static constexpr int64_t kBlockKeys = 512;

  /// Divides what a unit has of a worker's memory.
  struct Scratch {
    T *queries, *scores, *part, *largest, *sum;
    int64_t* visible;
    size_t bytes;

    Scratch(const Attention<T>& a, void* scratch) {
      const AttentionSizes& s = a.sizes;
      ScratchCutter cutter(scratch);
      cutter.cut<std::byte>(static_cast<int64_t>(a.product_bytes));
      queries = cutter.cut<T>(s.rows() * s.depth);
      scores = cutter.cut<T>(s.rows() * kBlockKeys);
      part = cutter.cut<T>(s.rows() * s.width);
      largest = cutter.cut<T>(s.rows());
      sum = cutter.cut<T>(s.rows());
      visible = cutter.cut<int64_t>(s.rows());
      bytes = cutter.used();
    }
  };

  static void prepare(Attention<T>& a) {
    const AttentionSizes& s = a.sizes;
    const AttentionSteps &key = s.steps[kKey], &value = s.steps[kValue];
    a.block_keys = kBlockKeys;
    if (reads_in_place(s)) return;
    add_products(a, [&](int64_t rows, int64_t keys) {
      const GemmDims scores{rows, keys, s.depth, s.depth, 1, key.col, key.row, kBlockKeys};
      const GemmDims values{rows, s.width, keys, kBlockKeys, 1, value.row, value.col, s.width};
      return std::pair(scores, values);
    });
  }

  FewQueries(const Attention<T>& attention, const plan::KernelArgs& args)
      : AttentionUnit<T>(attention, args), scratch_(attention, args.scratch) {}

  plan::KernelStatus run(int64_t unit) {
    this->begin(unit);
    this->enter(0);
    out_ = this->output(a_.output, s_.width);
    load_queries();
    const int64_t most = this->find_visible(scratch_.visible);
    std::fill_n(scratch_.largest, rows_, -std::numeric_limits<T>::infinity());
    std::fill_n(scratch_.sum, rows_, T(0));
    std::fill_n(out_, rows_ * s_.width, T(0));
    for (int64_t from = 0; from < most; from += kBlockKeys) {
      if (core::is_interrupted()) return plan::KernelStatus::kCancelled;
      reads_in_place(s_) ? add_in_place(from) : add_block(from, this->keys_of_block(from, most));
    }
    for (int64_t row = 0; row < rows_; ++row)
      this->divide(out_ + row * s_.width, scratch_.sum[row]);
    return plan::KernelStatus::kOk;
  }

 private:
  using AttentionUnit<T>::a_;
  using AttentionUnit<T>::s_;
  using AttentionUnit<T>::args_;
  using AttentionUnit<T>::rows_;

  // One query reads each number once: nothing is worth being packed.
  static bool reads_in_place(const AttentionSizes& s) {
    return s.rows() == 1 && s.steps[kKey].col == 1 && s.steps[kValue].col == 1;
  }

  void load_queries() {
    const T* const query = this->template operand<T>(kQuery);
    const AttentionSteps& steps = s_.steps[kQuery];
    const T scale = static_cast<T>(s_.scale);
    T* to = scratch_.queries;
    this->for_heads([&](int64_t, int64_t count, int64_t head, int64_t place) {
      const T* from = query + head * steps.head + place * steps.row;
      for (int64_t i = 0; i < count; ++i, from += steps.row) {
        for (int64_t k = 0; k < s_.depth; ++k) *to++ = from[k * steps.col] * scale;
      }
    });
  }

  void add_in_place(int64_t from) {
    const AttentionSteps &key = s_.steps[kKey], &value = s_.steps[kValue];
    const int64_t keys = std::min(kBlockKeys, scratch_.visible[0] - from);
    a_.parts->dot(scratch_.queries, this->key_ + from * key.row, key.row, s_.depth, keys,
                  scratch_.scores);
    const T rescale = weigh(from, 0, 0, 0, keys);
    a_.parts->mix({scratch_.scores, this->value_ + from * value.row, keys, value.row, s_.width,
                   rescale, out_});
  }

  void add_block(int64_t from, int64_t keys) {
    const AttentionProducts<T>& product = a_.products.at(rows_, keys);
    product.scores.run(scratch_.queries, this->key_ + from * s_.steps[kKey].row, scratch_.scores,
                       args_.scratch);
    this->for_heads([&](int64_t first, int64_t count, int64_t head, int64_t place) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = first + i;
        const int64_t seen = std::clamp<int64_t>(scratch_.visible[row] - from, 0, keys);
        const T rescale = seen == 0 ? T(1) : weigh(from, row, head, place + i, seen);
        T* const scores = scratch_.scores + row * kBlockKeys;
        std::fill(scores + seen, scores + keys, T(0));
        a_.parts->multiply(out_ + row * s_.width, rescale, s_.width);
      }
    });
    product.values.run(scratch_.scores, this->value_ + from * s_.steps[kValue].row, scratch_.part,
                       args_.scratch);
    a_.parts->accumulate(out_, scratch_.part, T(1), rows_ * s_.width);
  }

  // Scores of a row, its first `keys` in the block, become weights.
  T weigh(int64_t from, int64_t row, int64_t head, int64_t place, int64_t keys) {
    T* const scores = scratch_.scores + row * kBlockKeys;
    const auto offset = [&](AttentionInput input) {
      const AttentionSteps& steps = s_.steps[input];
      return head * steps.head + place * steps.row + from * steps.col;
    };
    if (s_.has(kBias)) add(kBias, offset(kBias), keys, scores);
    if (s_.has(kMask)) {
      s_.mask_is_bool ? mask(offset(kMask), keys, scores) : add(kMask, offset(kMask), keys, scores);
    }
    ScoreRow<T> state{scores, keys, scratch_.largest[row], scratch_.sum[row], T(1)};
    a_.parts->weigh_row(state);
    scratch_.largest[row] = state.largest;
    scratch_.sum[row] = state.sum;
    return state.rescale;
  }

  void add(AttentionInput input, int64_t offset, int64_t keys, T* scores) const {
    const T* const bias = this->template operand<T>(input) + offset;
    for (int64_t k = 0; k < keys; ++k) scores[k] += bias[k * s_.steps[input].col];
  }

  void mask(int64_t offset, int64_t keys, T* scores) const {
    const uint8_t* const mask = this->template operand<uint8_t>(kMask) + offset;
    for (int64_t k = 0; k < keys; ++k) {
      if (mask[k * s_.steps[kMask].col] == 0) scores[k] = -std::numeric_limits<T>::infinity();
    }
  }

  const Scratch scratch_;
  T* out_ = nullptr;
};

}  // namespace mithril::cpu
