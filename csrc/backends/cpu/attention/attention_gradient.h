// Units of the gradients of attention: blocks of keys stream past some queries again, whose weights
// follow from the logarithm of their sum (Dao, arXiv:2307.08691, algorithm 2).
#pragma once
#include "backends/cpu/attention/attention_columns.h"
#include "core/rounding.h"

namespace mithril::cpu {

/// Products of a block. Its scores and the slopes of its weights have a query to a lane.
template <class T>
struct GradientProducts {
  Gemm<T> scores, slopes, queries, keys, values;
};

template <class T>
struct AttentionGradient : Attention<T> {
  BlockTable<GradientProducts<T>> gradients;
  bool tells_scores = false;
  /// Rows and keys are units of their own, which find the weights each by itself; else a batch is
  /// one unit.
  bool is_split = false;
  int64_t row_units = 0;
};

template <class T>
class GradientUnits : QueryColumns<T> {
  using Columns = QueryColumns<T>;

 public:
  static constexpr int64_t kUnitRows = Columns::kMostBlocks * kAttentionRows;
  static constexpr int64_t kUnitKeys = 4 * Columns::kBlockKeys;

  /// Divides what a unit has of a worker's memory.
  struct Scratch {
    struct Rows : Columns::Rows {
      T* query_rows;        // scaled, as they lie
      T* gradients;         // of the output, turned
      T* gradient_rows;     // as they lie
      T *logsumexp, *mean;  // of the slopes
    };
    Rows rows[Columns::kMostBlocks];
    typename Columns::Block block;
    T *slopes, *outputs;
    size_t bytes;

    Scratch(const Attention<T>& a, void* scratch) {
      const AttentionSizes& s = a.sizes;
      ScratchCutter cutter(scratch);
      cutter.cut<std::byte>(static_cast<int64_t>(a.product_bytes));
      const int64_t blocks =
          std::min(Columns::kMostBlocks, core::ceil_div(s.rows(), kAttentionRows));
      for (int64_t i = 0; i < blocks; ++i) {
        rows[i].cut(s, cutter);
        rows[i].query_rows = cutter.cut<T>(kAttentionRows * Columns::copied_step(s.depth));
        rows[i].gradients = cutter.cut<T>(s.width * kAttentionRows);
        rows[i].gradient_rows = cutter.cut<T>(kAttentionRows * Columns::copied_step(s.width));
        rows[i].logsumexp = cutter.cut<T>(kAttentionRows);
        rows[i].mean = cutter.cut<T>(kAttentionRows);
      }
      block.cut(s, cutter);
      slopes = cutter.cut<T>(Columns::kBlockKeys * kAttentionRows);
      outputs = cutter.cut<T>(kAttentionRows * s.width);
      bytes = cutter.used();
    }
  };

  static void prepare(AttentionGradient<T>& a) {
    const AttentionSizes& s = a.sizes;
    a.block_keys = Columns::kBlockKeys;
    a.row_units = core::ceil_div(s.rows(), kUnitRows);
    a.batch_units = a.is_split ? a.row_units + core::ceil_div(s.keys, kUnitKeys) : 1;
    const AttentionSteps &key = s.steps[kKey], &value = s.steps[kValue];
    const int64_t key_step = Columns::key_step(key, s.depth);
    const int64_t value_step = Columns::key_step(value, s.width);
    const int64_t query_step = Columns::copied_step(s.depth);
    const int64_t gradient_step = Columns::copied_step(s.width);
    const auto make = [&](int64_t rows, int64_t keys) {
      const int64_t lanes = Columns::lanes_of(a, rows);
      const auto product = [&](const GemmDims& dims, bool adds) {
        GemmOptions options;
        options.may_add = adds;
        Gemm<T> made(a.isa, dims, options);
        a.product_bytes = std::max(a.product_bytes, made.scratch_bytes());
        return made;
      };
      return GradientProducts<T>{
          product({keys, lanes, s.depth, key_step, key.col, lanes, 1, lanes}, false),
          product({keys, lanes, s.width, value_step, value.col, lanes, 1, lanes}, false),
          product({rows, s.depth, keys, 1, lanes, key_step, key.col, s.depth}, true),
          product({keys, s.depth, rows, lanes, 1, query_step, 1, s.depth}, true),
          product({keys, s.width, rows, lanes, 1, gradient_step, 1, s.width}, true)};
    };
    a.gradients.fill(s, a.block_keys, make);
  }

  GradientUnits(const AttentionGradient<T>& attention, const plan::KernelArgs& args)
      : Columns(attention, args), g_(attention), scratch_(attention, args.scratch) {}

  plan::KernelStatus run(int64_t unit) {
    this->begin(unit / g_.batch_units);
    find_part(unit % g_.batch_units);
    if (part_.gives_keys) clear_keys();
    for (int64_t row = part_.first_row; row < part_.end_row; row += kUnitRows) {
      const plan::KernelStatus status = run_rows(row, std::min(part_.end_row, row + kUnitRows));
      if (status != plan::KernelStatus::kOk) return status;
    }
    return plan::KernelStatus::kOk;
  }

 private:
  using Columns::args_;
  using Columns::rows_;
  using Columns::s_;
  using Columns::width_;

  /// Says what of a batch a unit looks at, and whose gradients it finds.
  struct Part {
    int64_t first_row, end_row, first_key, end_key;
    bool gives_rows, gives_keys;
  };

  void find_part(int64_t unit) {
    part_ = {0, s_.rows(), 0, s_.keys, true, true};
    if (!g_.is_split) return;
    part_.gives_rows = unit < g_.row_units;
    part_.gives_keys = !part_.gives_rows;
    if (part_.gives_rows) {
      part_.first_row = unit * kUnitRows;
      part_.end_row = std::min(part_.first_row + kUnitRows, s_.rows());
    } else {
      part_.first_key = (unit - g_.row_units) * kUnitKeys;
      part_.end_key = std::min(part_.first_key + kUnitKeys, s_.keys);
    }
  }

  // What the gradients of keys or values have from a key of the batch on.
  T* of_key(int64_t buffer, int64_t key, int64_t width) const {
    return static_cast<T*>(args_.buffers[buffer]) + (this->batch_ * s_.keys + key) * width;
  }

  void clear_keys() const {
    const int64_t keys = part_.end_key - part_.first_key;
    std::fill_n(of_key(g_.output + 1, part_.first_key, s_.depth), keys * s_.depth, T(0));
    std::fill_n(of_key(g_.output + 2, part_.first_key, s_.width), keys * s_.width, T(0));
  }

  plan::KernelStatus run_rows(int64_t first, int64_t end) {
    int64_t count = 0, most = 0;
    for (int64_t at = first; at < end; at += kAttentionRows) {
      enter(scratch_.rows[count++], at);
      start();
      most = std::max(most, now_->most_visible);
    }
    most = std::min(most, part_.end_key);
    for (int64_t from = part_.first_key; from < most; from += Columns::kBlockKeys) {
      if (core::is_interrupted()) return plan::KernelStatus::kCancelled;
      this->find_keys(from, this->keys_of_block(from, most), scratch_.block);
      for (int64_t i = 0; i < count; ++i) {
        if (scratch_.rows[i].most_visible <= from) continue;
        enter(scratch_.rows[i], scratch_.rows[i].first);
        add_block(from, this->keys_of_block(from, std::min(most, now_->most_visible)));
      }
    }
    for (int64_t i = 0; part_.gives_rows && i < count; ++i) {
      enter(scratch_.rows[i], scratch_.rows[i].first);
      finish();
    }
    return plan::KernelStatus::kOk;
  }

  void enter(typename Scratch::Rows& rows, int64_t first) {
    Columns::enter(first);
    now_ = &rows;
  }

  void start() {
    this->load(*now_);
    const int64_t query_step = Columns::copied_step(s_.depth);
    copy(kQuery, s_.depth, now_->query_rows, query_step);
    g_.parts->multiply(now_->query_rows, static_cast<T>(s_.scale), rows_ * query_step);
    this->turn(kOutputGradient, s_.width, now_->gradients);
    copy(kOutputGradient, s_.width, now_->gradient_rows, Columns::copied_step(s_.width));
    find_sums();
    if (!part_.gives_rows) return;
    std::fill_n(this->output(g_.output, s_.depth), rows_ * s_.depth, T(0));
    if (g_.tells_scores) {
      std::fill_n(this->output(g_.output + 3, s_.keys), rows_ * s_.keys, T(0));
    }
  }

  // An operand of the rows as it lies, `step` apart.
  void copy(AttentionInput input, int64_t width, T* to, int64_t step) const {
    const T* const from = this->template operand<T>(input);
    const AttentionSteps& steps = s_.steps[input];
    this->for_heads([&](int64_t row, int64_t count, int64_t head, int64_t place) {
      g_.gemm->pack({from + head * steps.head + place * steps.row, steps.col, steps.row, width,
                     count, to + row * step, step, width});
    });
  }

  // The weighted mean of a row's slopes is the product of the output with its gradient.
  void find_sums() const {
    std::fill_n(now_->logsumexp, width_, T(0));
    std::fill_n(now_->mean, width_, T(0));
    copy(kLogsumexp, 1, now_->logsumexp, 1);
    copy(kOutput, s_.width, scratch_.outputs, s_.width);
    const int64_t step = Columns::copied_step(s_.width);
    for (int64_t row = 0; row < rows_; ++row) {
      g_.parts->dot(now_->gradient_rows + row * step, scratch_.outputs + row * s_.width, s_.width,
                    s_.width, 1, now_->mean + row);
    }
  }

  void add_block(int64_t from, int64_t keys) {
    const GradientProducts<T>& product = g_.gradients.at(rows_, keys);
    T *const weights = scratch_.block.scores, *const slopes = scratch_.slopes;
    void* const memory = args_.scratch;
    product.scores.run(this->block_key_, now_->queries, weights, memory);
    this->add_beside(scratch_.block, *now_, from, keys);
    product.slopes.run(this->block_value_, now_->gradients, slopes, memory);
    g_.parts->slope_columns({weights, slopes, keys, width_, now_->logsumexp, now_->mean});
    if (part_.gives_keys) {
      T* const key_gradient = of_key(g_.output + 1, from, s_.depth);
      T* const value_gradient = of_key(g_.output + 2, from, s_.width);
      product.keys.add(slopes, now_->query_rows, key_gradient, memory);
      product.values.add(weights, now_->gradient_rows, value_gradient, memory);
    }
    if (!part_.gives_rows) return;
    product.queries.add(slopes, this->block_key_, this->output(g_.output, s_.depth), memory);
    if (!g_.tells_scores) return;
    T* const scores = this->output(g_.output + 3, s_.keys) + from;
    g_.gemm->pack({slopes, width_, 1, keys, rows_, scores, s_.keys, keys});
  }

  // A row that sees nothing has no weights to speak of.
  void finish() const {
    T* const out = this->output(g_.output, s_.depth);
    g_.parts->multiply(out, static_cast<T>(s_.scale), rows_ * s_.depth);
    constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
    for (int64_t row = 0; row < rows_; ++row) {
      if (now_->visible[row] == 0) std::fill_n(out + row * s_.depth, s_.depth, kNaN);
    }
  }

  const AttentionGradient<T>& g_;
  Scratch scratch_;
  Part part_{};
  typename Scratch::Rows* now_ = nullptr;  // the rows that are computed
};

}  // namespace mithril::cpu
