// Units of many queries: one query to a lane.
#pragma once
#include "backends/cpu/attention/attention_columns.h"

namespace mithril::cpu {

template <class T>
class ManyQueries : QueryColumns<T> {
  using Columns = QueryColumns<T>;

 public:
  using Columns::kMostBlocks;

  /// Divides what a unit has of a worker's memory.
  struct Scratch {
    struct Rows : Columns::Rows {
      T *largest, *sum;
    };
    Rows rows[kMostBlocks];
    typename Columns::Block block;
    T *part, *rescale;
    size_t bytes;

    Scratch(const Attention<T>& a, void* scratch) {
      const AttentionSizes& s = a.sizes;
      ScratchCutter cutter(scratch);
      cutter.cut<std::byte>(static_cast<int64_t>(a.product_bytes));
      for (int64_t i = 0; i < a.unit_rows / kAttentionRows; ++i) {
        rows[i].cut(s, cutter);
        rows[i].largest = cutter.cut<T>(kAttentionRows);
        rows[i].sum = cutter.cut<T>(kAttentionRows);
      }
      block.cut(s, cutter);
      part = cutter.cut<T>(s.keys > Columns::kBlockKeys ? kAttentionRows * s.width : 0);
      rescale = cutter.cut<T>(kAttentionRows);
      bytes = cutter.used();
    }
  };

  static void prepare(Attention<T>& a) {
    const AttentionSizes& s = a.sizes;
    const AttentionSteps &key = s.steps[kKey], &value = s.steps[kValue];
    a.block_keys = Columns::kBlockKeys;
    add_products(a, [&](int64_t rows, int64_t keys) {
      const int64_t lanes = Columns::lanes_of(a, rows);
      const int64_t key_step = Columns::key_step(key, s.depth);
      const int64_t value_step = Columns::key_step(value, s.width);
      const GemmDims scores{keys, lanes, s.depth, key_step, key.col, lanes, 1, lanes};
      const GemmDims values{rows, s.width, keys, 1, lanes, value_step, value.col, s.width};
      return std::pair(scores, values);
    });
  }

  ManyQueries(const Attention<T>& attention, const plan::KernelArgs& args)
      : Columns(attention, args), scratch_(attention, args.scratch) {}

  plan::KernelStatus run(int64_t unit) {
    this->begin(unit / a_.batch_units);
    const int64_t first = unit % a_.batch_units * a_.unit_rows;
    const int64_t end = std::min(first + a_.unit_rows, s_.rows());
    int64_t count = 0, most = 0;
    for (int64_t at = first; at < end; at += kAttentionRows) {
      enter(scratch_.rows[count++], at);
      start();
      most = std::max(most, now_->most_visible);
    }
    for (int64_t from = 0; from < most; from += Columns::kBlockKeys) {
      if (core::is_interrupted()) return plan::KernelStatus::kCancelled;
      this->find_keys(from, this->keys_of_block(from, most), scratch_.block);
      for (int64_t i = 0; i < count; ++i) {
        if (scratch_.rows[i].most_visible <= from) continue;
        enter(scratch_.rows[i], scratch_.rows[i].first);
        add_block(from, this->keys_of_block(from, now_->most_visible));
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      enter(scratch_.rows[i], scratch_.rows[i].first);
      finish();
    }
    return plan::KernelStatus::kOk;
  }

 private:
  using Columns::a_;
  using Columns::args_;
  using Columns::rows_;
  using Columns::s_;
  using Columns::width_;

  void enter(typename Scratch::Rows& rows, int64_t first) {
    Columns::enter(first);
    now_ = &rows;
    out_ = this->output(a_.output, s_.width);
  }

  void start() {
    this->load(*now_);
    std::fill_n(now_->largest, width_, -std::numeric_limits<T>::infinity());
    std::fill_n(now_->sum, width_, T(0));
    if (now_->most_visible == 0) std::fill_n(out_, rows_ * s_.width, T(0));
  }

  void add_block(int64_t from, int64_t keys) {
    const AttentionProducts<T>& product = a_.products.at(rows_, keys);
    T* const scores = scratch_.block.scores;
    product.scores.run(this->block_key_, now_->queries, scores, args_.scratch);
    this->add_beside(scratch_.block, *now_, from, keys);
    a_.parts->weigh_columns({scores, keys, width_, now_->largest, now_->sum, scratch_.rescale});
    T* const to = from == 0 ? out_ : scratch_.part;
    product.values.run(scores, this->block_value_, to, args_.scratch);
    for (int64_t row = 0; from > 0 && row < rows_; ++row) {
      a_.parts->accumulate(out_ + row * s_.width, to + row * s_.width, scratch_.rescale[row],
                           s_.width);
    }
  }

  void finish() {
    for (int64_t row = 0; row < rows_; ++row) {
      this->divide(out_ + row * s_.width, now_->sum[row]);
    }
    if (!a_.tells_logsumexp) return;
    a_.parts->log_sums(now_->largest, now_->sum, scratch_.rescale, width_);
    std::copy_n(scratch_.rescale, rows_, this->output(a_.output + 1, 1));
  }

  Scratch scratch_;
  typename Scratch::Rows* now_ = nullptr;  // the rows that are computed
  T* out_ = nullptr;                       // theirs
};

}  // namespace mithril::cpu
