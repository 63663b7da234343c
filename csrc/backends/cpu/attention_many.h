// Units of many queries: one query to a lane.
#pragma once
#include <limits>

#include "backends/cpu/attention_unit.h"

namespace mithril::cpu {

template <class T>
class ManyQueries : AttentionUnit<T> {
 public:
  static constexpr int64_t kBlockKeys = 128;  // with kAttentionRows, scores of a block are near
  static constexpr int64_t kMostBlocks = 4;   // of rows, for which keys and values are read once

  /// What a unit has of a worker's memory.
  struct Scratch {
    struct Rows {  // that are computed at once
      T *queries, *largest, *sum;
      int64_t* visible;
      int64_t first, most_visible, least_visible;
    };
    Rows rows[kMostBlocks];
    T *keys, *scores, *values, *part, *rescale, *limits, *bias, *mask;
    size_t bytes;

    Scratch(const Attention<T>& a, void* scratch) {
      const AttentionSizes& s = a.sizes;
      ScratchCutter cutter(scratch);
      cutter.cut<std::byte>(static_cast<int64_t>(a.product_bytes));
      for (int64_t i = 0; i < a.unit_rows / kAttentionRows; ++i) {
        rows[i].queries = cutter.cut<T>(s.depth * kAttentionRows);
        rows[i].largest = cutter.cut<T>(kAttentionRows);
        rows[i].sum = cutter.cut<T>(kAttentionRows);
        rows[i].visible = cutter.cut<int64_t>(kAttentionRows);
      }
      keys = cutter.cut<T>(is_copied(s.steps[kKey]) ? kBlockKeys * copied_step(s.depth) : 0);
      scores = cutter.cut<T>(kBlockKeys * kAttentionRows);
      values = cutter.cut<T>(is_copied(s.steps[kValue]) ? kBlockKeys * copied_step(s.width) : 0);
      part = cutter.cut<T>(s.keys > kBlockKeys ? kAttentionRows * s.width : 0);
      rescale = cutter.cut<T>(kAttentionRows);
      limits = cutter.cut<T>(kAttentionRows);
      bias = cutter.cut<T>(s.has(kBias) || s.has(kMask) ? kBlockKeys * kAttentionRows : 0);
      mask = cutter.cut<T>(s.mask_is_bool ? kBlockKeys * kAttentionRows : 0);
      bytes = cutter.used();
    }
  };

  static void prepare(Attention<T>& a) {
    const AttentionSizes& s = a.sizes;
    const AttentionSteps &key = s.steps[kKey], &value = s.steps[kValue];
    a.block_keys = kBlockKeys;
    add_products(a, [&](int64_t rows, int64_t keys) {
      const int64_t lanes = lanes_of(a, rows);
      GemmDims scores{keys, lanes, s.depth, key.row, key.col, lanes, 1, lanes};
      GemmDims values{rows, s.width, keys, 1, lanes, value.row, value.col, s.width};
      if (is_copied(key)) scores.a_row = copied_step(s.depth);
      if (is_copied(value)) values.b_row = copied_step(s.width);
      return std::pair(scores, values);
    });
  }

  ManyQueries(const Attention<T>& attention, const plan::KernelArgs& args)
      : AttentionUnit<T>(attention, args), scratch_(attention, args.scratch) {}

  plan::KernelStatus run(int64_t unit) {
    this->begin(unit);
    const int64_t first = this->first_, end = std::min(first + a_.unit_rows, s_.rows());
    int64_t count = 0, most = 0;
    for (int64_t at = first; at < end; at += kAttentionRows) {
      enter(scratch_.rows[count++], at);
      start();
      most = std::max(most, now_->most_visible);
    }
    for (int64_t from = 0; from < most; from += kBlockKeys) {
      if (this->is_cancelled()) return plan::KernelStatus::kCancelled;
      find_keys(from, this->keys_of_block(from, most));
      for (int64_t i = 0; i < count; ++i) {
        if (scratch_.rows[i].most_visible <= from) continue;
        enter(scratch_.rows[i], scratch_.rows[i].first);
        add_block(from, this->keys_of_block(from, now_->most_visible));
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      enter(scratch_.rows[i], scratch_.rows[i].first);
      for (int64_t row = 0; row < rows_; ++row) this->divide(row, now_->sum[row]);
    }
    return plan::KernelStatus::kOk;
  }

 private:
  using AttentionUnit<T>::a_;
  using AttentionUnit<T>::s_;
  using AttentionUnit<T>::args_;
  using AttentionUnit<T>::rows_;
  using AttentionUnit<T>::out_;

  // Rows that lie whole pages apart, or a simple part of one, fall on few sets of the first cache.
  static bool shares_sets(int64_t step) { return step * int64_t{sizeof(T)} % 1024 == 0; }
  static bool is_copied(const AttentionSteps& steps) {
    return steps.col == 1 && steps.row != 0 && shares_sets(steps.row);
  }
  static int64_t copied_step(int64_t width) {
    return shares_sets(width) ? width + 64 / int64_t{sizeof(T)} : width;
  }

  // Where the products read the rows of a block.
  const T* rows_of(const T* from, const AttentionSteps& steps, int64_t keys, int64_t width,
                   T* copy) const {
    if (!is_copied(steps)) return from;
    a_.gemm->pack({from, 1, steps.row, width, keys, copy, copied_step(width), width});
    return copy;
  }

  void find_keys(int64_t from, int64_t keys) {
    const AttentionSteps &key = s_.steps[kKey], &value = s_.steps[kValue];
    block_key_ = rows_of(this->key_ + from * key.row, key, keys, s_.depth, scratch_.keys);
    block_value_ = rows_of(this->value_ + from * value.row, value, keys, s_.width, scratch_.values);
  }

  void enter(typename Scratch::Rows& rows, int64_t first) {
    AttentionUnit<T>::enter(first);
    rows.first = first;
    now_ = &rows;
    width_ = lanes_of(a_, rows_);
  }

  void start() {
    load_queries();
    now_->most_visible = this->find_visible(now_->visible);
    now_->least_visible = *std::min_element(now_->visible, now_->visible + rows_);
    std::fill_n(now_->largest, width_, -std::numeric_limits<T>::infinity());
    std::fill_n(now_->sum, width_, T(0));
    if (now_->most_visible == 0) std::fill_n(out_, rows_ * s_.width, T(0));
  }

  static int64_t lanes_of(const Attention<T>& a, int64_t rows) {
    return (rows + a.parts->lanes - 1) / a.parts->lanes * a.parts->lanes;
  }

  // Turned, so that a number of every query lies side by side; zeros in lanes without a query.
  void load_queries() {
    const T* const query = this->template operand<T>(kQuery);
    const AttentionSteps& steps = s_.steps[kQuery];
    this->for_heads([&](int64_t row, int64_t count, int64_t head, int64_t place) {
      const int64_t lanes = row + count == rows_ ? width_ - row : count;
      a_.gemm->pack({query + head * steps.head + place * steps.row, steps.row, steps.col, count,
                     s_.depth, now_->queries + row, width_, lanes});
    });
    a_.parts->multiply(now_->queries, static_cast<T>(s_.scale), s_.depth * width_);
  }

  void add_block(int64_t from, int64_t keys) {
    const AttentionProducts<T>& product = a_.product(rows_, keys);
    const ScoreColumns<T> block{scratch_.scores, keys,      width_,
                                now_->largest,   now_->sum, scratch_.rescale};
    product.scores.run(block_key_, now_->queries, scratch_.scores, args_.scratch);
    if (s_.has(kBias)) add(block, kBias, from);
    if (now_->least_visible < from + keys) hide(block, from);
    if (s_.has(kMask)) s_.mask_is_bool ? mask(block, from) : add(block, kMask, from);
    a_.parts->weigh_columns(block);
    T* const to = from == 0 ? out_ : scratch_.part;
    product.values.run(scratch_.scores, block_value_, to, args_.scratch);
    for (int64_t row = 0; from > 0 && row < rows_; ++row) {
      a_.parts->accumulate(out_ + row * s_.width, to + row * s_.width, scratch_.rescale[row],
                           s_.width);
    }
  }

  // Limits count from the block's first key.
  void hide(const ScoreColumns<T>& block, int64_t from) const {
    for (int64_t row = 0; row < block.width; ++row) {
      const int64_t visible = row < rows_ ? now_->visible[row] - from : 0;
      scratch_.limits[row] = static_cast<T>(std::clamp<int64_t>(visible, 0, block.keys));
    }
    a_.parts->hide_columns(block, std::max<int64_t>(now_->least_visible - from, 0),
                           scratch_.limits);
  }

  void add(const ScoreColumns<T>& block, AttentionInput input, int64_t from) const {
    const T* const bias = this->template operand<T>(input);
    const AttentionSteps& steps = s_.steps[input];
    this->for_heads([&](int64_t row, int64_t count, int64_t head, int64_t place) {
      const T* const first = bias + head * steps.head + place * steps.row + from * steps.col;
      a_.gemm->pack(
          {first, steps.row, steps.col, count, block.keys, scratch_.bias + row, width_, count});
    });
    a_.parts->add_columns(block, scratch_.bias);
  }

  // Bools become 0 and -inf on the way.
  void mask(const ScoreColumns<T>& block, int64_t from) const {
    const auto* const mask = this->template operand<uint8_t>(kMask);
    const AttentionSteps& steps = s_.steps[kMask];
    this->for_heads([&](int64_t row, int64_t count, int64_t head, int64_t place) {
      const uint8_t* const first = mask + head * steps.head + place * steps.row + from * steps.col;
      const int64_t distinct = steps.row == 0 ? 1 : count;
      for (int64_t i = 0; i < distinct; ++i) {
        spread_mask(first + i * steps.row, steps.col, block.keys, scratch_.mask + i * kBlockKeys);
      }
      a_.gemm->pack({scratch_.mask, distinct == 1 ? 0 : kBlockKeys, 1, count, block.keys,
                     scratch_.bias + row, width_, count});
    });
    a_.parts->mask_columns(block, scratch_.bias);
  }

  static void spread_mask(const uint8_t* mask, int64_t step, int64_t keys, T* out) {
    constexpr T kNever = -std::numeric_limits<T>::infinity();
    for (int64_t k = 0; k < keys; ++k) out[k] = mask[k * step] != 0 ? T(0) : kNever;
  }

  Scratch scratch_;
  typename Scratch::Rows* now_ = nullptr;  // the rows that are computed
  int64_t width_ = 0;                      // their lanes
  const T* block_key_ = nullptr;
  const T* block_value_ = nullptr;
};

}  // namespace mithril::cpu
