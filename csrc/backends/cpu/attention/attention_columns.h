// What units with one query to a lane share: turned queries, blocks of keys, and what stands beside
// the scores.
#pragma once
#include <limits>

#include "backends/cpu/attention/attention_unit.h"

namespace mithril::cpu {

template <class T>
class QueryColumns : protected AttentionUnit<T> {
 public:
  static constexpr int64_t kBlockKeys = 128;  // with kAttentionRows, scores of a block are near
  static constexpr int64_t kMostBlocks = 4;   // of rows, for which keys and values are read once

 protected:
  /// Rows that are computed at once.
  struct Rows {
    T* queries;  // turned and scaled
    int64_t* visible;
    int64_t first, most_visible, least_visible;

    void cut(const AttentionSizes& s, ScratchCutter& cutter) {
      queries = cutter.cut<T>(s.depth * kAttentionRows);
      visible = cutter.cut<int64_t>(kAttentionRows);
    }
  };

  /// Divides what a block of keys has of a worker's memory.
  struct Block {
    T *keys, *values;  // copies, where the products do not read them as they lie
    T* scores;
    T *limits, *bias, *mask;

    void cut(const AttentionSizes& s, ScratchCutter& cutter) {
      keys = cutter.cut<T>(is_copied(s.steps[kKey]) ? kBlockKeys * copied_step(s.depth) : 0);
      values = cutter.cut<T>(is_copied(s.steps[kValue]) ? kBlockKeys * copied_step(s.width) : 0);
      scores = cutter.cut<T>(kBlockKeys * kAttentionRows);
      limits = cutter.cut<T>(kAttentionRows);
      bias = cutter.cut<T>(s.has(kBias) || s.has(kMask) ? kBlockKeys * kAttentionRows : 0);
      mask = cutter.cut<T>(s.mask_is_bool ? kBlockKeys * kAttentionRows : 0);
    }
  };

  using AttentionUnit<T>::AttentionUnit;
  using AttentionUnit<T>::a_;
  using AttentionUnit<T>::s_;
  using AttentionUnit<T>::rows_;

  // Rows that lie whole pages apart, or a simple part of one, fall on few sets of the first cache.
  static bool shares_sets(int64_t step) { return step * int64_t{sizeof(T)} % 1024 == 0; }
  static bool is_copied(const AttentionSteps& steps) {
    return steps.col == 1 && steps.row != 0 && shares_sets(steps.row);
  }
  static int64_t copied_step(int64_t width) {
    return shares_sets(width) ? width + 64 / int64_t{sizeof(T)} : width;
  }
  /// From a key of a block to the next one, for products.
  static int64_t key_step(const AttentionSteps& steps, int64_t width) {
    return is_copied(steps) ? copied_step(width) : steps.row;
  }

  static int64_t lanes_of(const Attention<T>& a, int64_t rows) {
    return (rows + a.parts->lanes - 1) / a.parts->lanes * a.parts->lanes;
  }

  /// Turns to the rows from `first` on.
  void enter(int64_t first) {
    AttentionUnit<T>::enter(first);
    width_ = lanes_of(a_, rows_);
  }

  void load(Rows& rows) const {
    rows.first = this->first_;
    turn(kQuery, s_.depth, rows.queries);
    a_.parts->multiply(rows.queries, static_cast<T>(s_.scale), s_.depth * width_);
    rows.most_visible = this->find_visible(rows.visible);
    rows.least_visible = *std::min_element(rows.visible, rows.visible + rows_);
  }

  /// An operand of the rows, so that a number of every row lies side by side; zeros in lanes
  /// without a row.
  void turn(AttentionInput input, int64_t width, T* to) const {
    const T* const from = this->template operand<T>(input);
    const AttentionSteps& steps = s_.steps[input];
    this->for_heads([&](int64_t row, int64_t count, int64_t head, int64_t place) {
      const int64_t lanes = row + count == rows_ ? width_ - row : count;
      a_.gemm->pack({from + head * steps.head + place * steps.row, steps.row, steps.col, count,
                     width, to + row, width_, lanes});
    });
  }

  /// Keys and values of a block, where the products read them.
  void find_keys(int64_t from, int64_t keys, const Block& block) {
    const AttentionSteps &key = s_.steps[kKey], &value = s_.steps[kValue];
    block_key_ = rows_of(this->key_ + from * key.row, key, keys, s_.depth, block.keys);
    block_value_ = rows_of(this->value_ + from * value.row, value, keys, s_.width, block.values);
  }

  /// Scores of keys from `from` on become what the softmax takes.
  void add_beside(const Block& block, const Rows& rows, int64_t from, int64_t keys) const {
    const ScoreColumns<T> columns{block.scores, keys, width_, nullptr, nullptr, nullptr};
    if (s_.has(kBias)) add(columns, block, kBias, from);
    if (rows.least_visible < from + keys) hide(columns, block, rows, from);
    if (s_.has(kMask)) {
      s_.mask_is_bool ? mask(columns, block, from) : add(columns, block, kMask, from);
    }
  }

  int64_t width_ = 0;  // lanes of the rows
  const T* block_key_ = nullptr;
  const T* block_value_ = nullptr;

 private:
  const T* rows_of(const T* from, const AttentionSteps& steps, int64_t keys, int64_t width,
                   T* copy) const {
    if (!is_copied(steps)) return from;
    a_.gemm->pack({from, 1, steps.row, width, keys, copy, copied_step(width), width});
    return copy;
  }

  // Limits count from the block's first key.
  void hide(const ScoreColumns<T>& columns, const Block& block, const Rows& rows,
            int64_t from) const {
    for (int64_t row = 0; row < columns.width; ++row) {
      const int64_t visible = row < rows_ ? rows.visible[row] - from : 0;
      block.limits[row] = static_cast<T>(std::clamp<int64_t>(visible, 0, columns.keys));
    }
    a_.parts->hide_columns(columns, std::max<int64_t>(rows.least_visible - from, 0), block.limits);
  }

  void add(const ScoreColumns<T>& columns, const Block& block, AttentionInput input,
           int64_t from) const {
    const T* const bias = this->template operand<T>(input);
    const AttentionSteps& steps = s_.steps[input];
    this->for_heads([&](int64_t row, int64_t count, int64_t head, int64_t place) {
      const T* const first = bias + head * steps.head + place * steps.row + from * steps.col;
      a_.gemm->pack(
          {first, steps.row, steps.col, count, columns.keys, block.bias + row, width_, count});
    });
    a_.parts->add_columns(columns, block.bias);
  }

  // Bools become 0 and -inf on the way.
  void mask(const ScoreColumns<T>& columns, const Block& block, int64_t from) const {
    const auto* const mask = this->template operand<uint8_t>(kMask);
    const AttentionSteps& steps = s_.steps[kMask];
    this->for_heads([&](int64_t row, int64_t count, int64_t head, int64_t place) {
      const uint8_t* const first = mask + head * steps.head + place * steps.row + from * steps.col;
      const int64_t distinct = steps.row == 0 ? 1 : count;
      for (int64_t i = 0; i < distinct; ++i) {
        spread_mask(first + i * steps.row, steps.col, columns.keys, block.mask + i * kBlockKeys);
      }
      a_.gemm->pack({block.mask, distinct == 1 ? 0 : kBlockKeys, 1, count, columns.keys,
                     block.bias + row, width_, count});
    });
    a_.parts->mask_columns(columns, block.bias);
  }

  static void spread_mask(const uint8_t* mask, int64_t step, int64_t keys, T* out) {
    constexpr T kNever = -std::numeric_limits<T>::infinity();
    for (int64_t k = 0; k < keys; ++k) out[k] = mask[k * step] != 0 ? T(0) : kNever;
  }
};

}  // namespace mithril::cpu
