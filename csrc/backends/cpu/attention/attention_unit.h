// What units of attention share: the products that are made ready for a node, and the place of a
// unit's queries.
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

#include "backends/cpu/attention/attention_tile.h"
#include "backends/cpu/gemm/gemm.h"
#include "core/interrupt.h"
#include "plan/kernel.h"
#include "select/attention_sizes.h"

namespace mithril::cpu {

using select::AttentionSizes;
using select::AttentionSteps;
using enum select::AttentionInput;
using select::AttentionInput;

/// Rows that are computed at once.
inline constexpr int64_t kAttentionRows = 64;
/// The last block that is looked at has a multiple of so many keys, or all that are left.
inline constexpr int64_t kAttentionKeyStep = 64;

/// Products of a block of keys with the queries, and of the weights with its values.
template <class T>
struct AttentionProducts {
  Gemm<T> scores, values;
};

/// Keeps one for each size of a block: of kAttentionRows or the last rows, by one step of keys,
/// two … a block, and what is left at the end.
template <class Made>
class BlockTable {
 public:
  /// Calls make(rows, keys) for each size that a node has.
  template <class Make>
  void fill(const AttentionSizes& s, int64_t block_keys, Make make) {
    block_keys_ = block_keys;
    const int64_t least = s.is_causal ? kAttentionKeyStep : block_keys;
    const auto add = [&](int64_t rows, int64_t keys) {
      std::optional<Made>& made = entries_[rows == kAttentionRows ? 0 : 1][index_of(keys)];
      if (!made) made.emplace(make(rows, keys));
    };
    for (auto& entries : entries_) {
      entries.resize(static_cast<size_t>(block_keys / kAttentionKeyStep + 1));
    }
    for (const int64_t rows : {std::min(s.rows(), kAttentionRows), s.rows() % kAttentionRows}) {
      if (rows == 0) continue;
      for (int64_t keys = least; keys <= std::min(block_keys, s.keys); keys += kAttentionKeyStep) {
        add(rows, keys);
      }
      if (s.keys % block_keys != 0) add(rows, s.keys % block_keys);
    }
  }

  const Made& at(int64_t rows, int64_t keys) const {
    return *entries_[rows == kAttentionRows ? 0 : 1][index_of(keys)];
  }

 private:
  size_t index_of(int64_t keys) const {
    const bool whole = keys % kAttentionKeyStep == 0;
    return static_cast<size_t>((whole ? keys - 1 : block_keys_) / kAttentionKeyStep);
  }

  int64_t block_keys_ = 0;
  std::vector<std::optional<Made>> entries_[2];
};

template <class T>
struct Attention {
  AttentionSizes sizes;
  Isa isa = Isa::kGeneric;
  const AttentionParts<T>* parts = nullptr;
  const GemmParts<T>* gemm = nullptr;
  int64_t unit_rows = 0;  // of a unit, and how many units a batch has
  int64_t batch_units = 0;
  int64_t output = 0;  // which buffer is the first one
  bool tells_logsumexp = false;
  int64_t block_keys = 0;  // but for the last one
  BlockTable<AttentionProducts<T>> products;
  size_t product_bytes = 0;
};

/// Makes the products of all blocks. `dims(rows, keys)` gives those of the scores and of the
/// values.
template <class T, class Dims>
void add_products(Attention<T>& attention, Dims dims) {
  const auto make = [&](int64_t rows, int64_t keys) {
    const auto [scores, values] = dims(rows, keys);
    AttentionProducts<T> made{Gemm<T>(attention.isa, scores), Gemm<T>(attention.isa, values)};
    for (const Gemm<T>* gemm : {&made.scores, &made.values}) {
      attention.product_bytes = std::max(attention.product_bytes, gemm->scratch_bytes());
    }
    return made;
  };
  attention.products.fill(attention.sizes, attention.block_keys, make);
}

/// Cuts scratch into arrays that begin at cache lines; of nothing, to see what they take.
class ScratchCutter {
 public:
  explicit ScratchCutter(void* scratch) : at_(static_cast<std::byte*>(scratch)) {}
  template <class T>
  T* cut(int64_t count) {
    auto* const out = reinterpret_cast<T*>(at_ + used_);
    used_ += (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return out;
  }
  size_t used() const { return used_; }

 private:
  std::byte* at_;
  size_t used_ = 0;
};

/// A unit: rows of one batch, at most kAttentionRows of them at a time. Results are summed where
/// they are stored.
template <class T>
class AttentionUnit {
 public:
  AttentionUnit(const Attention<T>& attention, const plan::KernelArgs& args)
      : a_(attention), s_(attention.sizes), args_(args), offset_(offset()) {}

 protected:
  void begin(int64_t batch) {
    batch_ = batch;
    key_ = operand<T>(kKey);
    value_ = operand<T>(kValue);
  }

  /// Turns to the rows from `first` on.
  void enter(int64_t first) {
    first_ = first;
    rows_ = std::min(kAttentionRows, s_.rows() - first_);
  }

  /// Points at what these rows have of an output with `width` numbers for each.
  T* output(int64_t buffer, int64_t width) const {
    return static_cast<T*>(args_.buffers[buffer]) + (batch_ * s_.rows() + first_) * width;
  }

  template <class E>
  const E* operand(AttentionInput input) const {
    return static_cast<const E*>(args_.buffers[s_.buffer[input]]) + s_.batch_offset(input, batch_);
  }

  /// Calls f(row, count, head, place) for runs of rows that are queries of one head.
  template <class F>
  void for_heads(F f) const {
    for (int64_t row = 0; row < rows_;) {
      const int64_t head = (first_ + row) / s_.queries, place = (first_ + row) % s_.queries;
      const int64_t count = std::min(s_.queries - place, rows_ - row);
      f(row, count, head, place);
      row += count;
    }
  }

  /// Tells how many keys each row may look at, the first ones; the most of any row.
  int64_t find_visible(int64_t* visible) const {
    int64_t most = 0;
    for_heads([&](int64_t row, int64_t count, int64_t, int64_t place) {
      for (int64_t i = 0; i < count; ++i) {
        const bool all = !s_.is_causal || offset_ >= s_.keys;
        const int64_t seen =
            all ? s_.keys : std::clamp<int64_t>(offset_ + place + i + 1, 0, s_.keys);
        visible[row + i] = seen;
        most = std::max(most, seen);
      }
    });
    return most;
  }

  /// Keys of the block that begins at `from`, where no row looks at more than `most`.
  int64_t keys_of_block(int64_t from, int64_t most) const {
    const int64_t wanted = std::min(a_.block_keys, most - from) + kAttentionKeyStep - 1;
    return std::min(wanted / kAttentionKeyStep * kAttentionKeyStep, s_.keys - from);
  }

  /// The one division of a row. One that saw nothing becomes NaN.
  void divide(T* row, T sum) const { a_.parts->multiply(row, T(1) / sum, s_.width); }

  const Attention<T>& a_;
  const AttentionSizes& s_;
  const plan::KernelArgs& args_;
  const int64_t offset_;  // place of the first query
  int64_t batch_ = 0, first_ = 0, rows_ = 0;
  const T* key_ = nullptr;
  const T* value_ = nullptr;

 private:
  int64_t offset() const {
    if (!s_.has(kOffset)) return s_.offset;
    const void* at = args_.buffers[s_.buffer[kOffset]];
    return s_.offset_is_wide ? *static_cast<const int64_t*>(at)
                             : int64_t{*static_cast<const int32_t*>(at)};
  }
};

}  // namespace mithril::cpu
