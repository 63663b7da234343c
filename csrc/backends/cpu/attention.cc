// Attention without a matrix of scores: blocks of keys stream past a block of queries, whose
// softmax is kept up to date (Milakov & Gimelshein, arXiv:1805.02867; Dao et al.,
// arXiv:2205.14135). Order class: other; docs/numerics.md has the bound.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "backends/cpu/attention_tile.h"
#include "backends/cpu/gemm.h"
#include "backends/cpu/kernel_families.h"
#include "select/views.h"

namespace mithril::cpu {
namespace {

using core::DType;
using plan::KernelArgs;
using plan::KernelStatus;
using select::KernelRequest;
using select::Operand;

constexpr int64_t kRows = 64;         // queries of a unit
constexpr int64_t kKeys = 256;        // of a block
constexpr int64_t kKeyStep = 64;      // blocks at the diagonal have a multiple of it
constexpr int64_t kFewRows = 8;       // below, keys are read as they lie
constexpr int64_t kKeysOfFew = 1024;  // of a block then

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

template <class T>
struct Parts {
  const AttentionParts<T>* attention = nullptr;
  const GemmParts<T>* gemm = nullptr;
};

template <class T>
Parts<T> parts_of([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  const auto of_type = [](const auto& table) -> const auto& {
    if constexpr (sizeof(T) == sizeof(float)) {
      return table.f32;
    } else {
      return table.f64;
    }
  };
  if (isa == Isa::kAvx2) return {&of_type(avx2::kAttention), &of_type(avx2::kGemm)};
  if (isa == Isa::kAvx512) return {&of_type(avx512::kAttention), &of_type(avx512::kGemm)};
#endif
  return {};
}

// ---------------------------------------------------------------- what is asked for

// Operands of the kernel in their order; which of them are there.
enum Input : size_t { kQuery, kKey, kValue, kMask, kBias, kOffset, kInputs };

// Steps of an operand in elements. The axes of a batch are those of the keys; of the query heads
// that share a key head, each is `head` behind the other.
struct Steps {
  std::vector<int64_t> batch;
  int64_t head = 0, row = 0, col = 0;
};

struct Sizes {
  std::vector<int64_t> batch;
  int64_t heads = 1;  // of queries to a head of keys
  int64_t queries = 0, keys = 0, depth = 0, width = 0;
  Steps steps[kInputs];
  int buffer[kInputs] = {-1, -1, -1, -1, -1, -1};
  bool is_causal = false, mask_is_bool = false, offset_is_wide = false;
  int64_t offset = 0;  // where it is no operand
  double scale = 1.0;

  bool has(Input input) const { return buffer[input] >= 0; }
  int64_t rows() const { return heads * queries; }
};

const core::HostValue* find_attr(const KernelRequest& request, std::string_view name) {
  const core::HostValue* value = request.node.attrs.find(name);
  return value == nullptr || value->is_none() ? nullptr : value;
}

bool is_set(const KernelRequest& request, std::string_view name) {
  const core::HostValue* value = find_attr(request, name);
  return value != nullptr && value->is_bool() && value->as_bool();
}

int64_t shared_heads(const KernelRequest& request) {
  const auto &query = request.inputs[kQuery].shape, &key = request.inputs[kKey].shape;
  if (!is_set(request, "enable_gqa") || query.size() < 3) return 1;
  return query[query.size() - 3] / key[key.size() - 3];
}

// `of_queries`: the last axis of the batch is that of the query heads.
Steps steps_of(const Operand& operand, std::vector<int64_t> domain, bool of_queries,
               int64_t heads) {
  std::vector<int64_t> all =
      select::broadcast_strides(operand.shape, operand.strides, std::move(domain));
  Steps out;
  out.col = all.back();
  all.pop_back();
  out.row = all.back();
  all.pop_back();
  if (of_queries && !all.empty()) {
    out.head = all.back();
    all.back() *= heads;
  }
  out.batch = std::move(all);
  return out;
}

Sizes sizes_of(const KernelRequest& request) {
  Sizes out;
  const Operand &query = request.inputs[kQuery], &key = request.inputs[kKey];
  const Operand& value = request.inputs[kValue];
  const size_t rank = query.shape.size();
  out.heads = shared_heads(request);
  out.queries = query.shape[rank - 2];
  out.depth = query.shape[rank - 1];
  out.keys = key.shape[key.shape.size() - 2];
  out.width = value.shape.back();
  out.batch.assign(query.shape.begin(), query.shape.end() - 2);
  const auto domain = [&](int64_t rows, int64_t cols) {
    std::vector<int64_t> sizes = out.batch;
    sizes.insert(sizes.end(), {rows, cols});
    return sizes;
  };
  const std::vector<int64_t> of_scores = domain(out.queries, out.keys);
  out.steps[kQuery] = steps_of(query, query.shape, true, out.heads);
  if (!out.batch.empty()) out.batch.back() /= out.heads;
  out.steps[kKey] = steps_of(key, domain(out.keys, out.depth), false, out.heads);
  out.steps[kValue] = steps_of(value, domain(out.keys, out.width), false, out.heads);
  for (const Input input : {kMask, kBias}) {
    if (request.inputs.size() <= input || !request.inputs[input].present()) continue;
    out.steps[input] = steps_of(request.inputs[input], of_scores, true, out.heads);
  }
  for (size_t i = 0, next = 0; i < request.inputs.size(); ++i) {
    if (request.inputs[i].present()) out.buffer[i] = static_cast<int>(next++);
  }
  out.is_causal = is_set(request, "is_causal");
  out.mask_is_bool = out.has(kMask) && request.inputs[kMask].dtype == DType::kBool;
  out.offset_is_wide = out.has(kOffset) && request.inputs[kOffset].dtype == DType::kInt64;
  const core::HostValue* offset = find_attr(request, "offset");
  out.offset = offset == nullptr ? 0 : offset->as_int();
  const core::HostValue* scale = find_attr(request, "scale");
  out.scale =
      scale == nullptr ? 1.0 / std::sqrt(static_cast<double>(out.depth)) : scale->as_number();
  return out;
}

// ---------------------------------------------------------------- what is prepared

// Products of a block of queries: with the keys, which gives scores by key, and of their weights
// with the values.
template <class T>
struct Products {
  Gemm<T> scores, values;
};

template <class T>
struct Attention {
  Sizes sizes;
  Parts<T> parts;
  bool is_few = false;
  int64_t row_blocks = 0, output = 0;  // index of its buffer
  // By the queries of a block (whole, the last one), then by its keys: kKeyStep, 2 kKeyStep …
  // kKeys, and what is left at the end.
  std::vector<std::optional<Products<T>>> products[2];
  size_t product_bytes = 0;

  const Products<T>& product(int64_t rows, int64_t keys) const {
    return *products[rows == kRows ? 0 : 1][index_of(keys)];
  }
  static size_t index_of(int64_t keys) {
    const int64_t index = keys % kKeyStep == 0 ? keys / kKeyStep - 1 : kKeys / kKeyStep;
    return static_cast<size_t>(index);
  }
};

template <class T>
void add_products(Attention<T>& attention, int64_t rows, int64_t keys) {
  const Sizes& s = attention.sizes;
  const Steps &key = s.steps[kKey], &value = s.steps[kValue];
  auto& product = attention.products[rows == kRows ? 0 : 1][Attention<T>::index_of(keys)];
  if (product || keys == 0) return;
  const int64_t width = round_up(rows, attention.parts.attention->lanes);
  const GemmDims scores{keys, width, s.depth, key.row, key.col, kRows, 1, kRows};
  const GemmDims values{rows, s.width, keys, 1, kRows, value.row, value.col, s.width};
  product.emplace(
      Products<T>{Gemm<T>(default_isa(), scores), Gemm<T>(default_isa(), values)});
  for (const Gemm<T>* gemm : {&product->scores, &product->values}) {
    attention.product_bytes =
        std::max<size_t>(attention.product_bytes, (gemm->scratch_bytes() + 63) / 64 * 64);
  }
}

template <class T>
void add_products(Attention<T>& attention) {
  const Sizes& s = attention.sizes;
  for (auto& products : attention.products) products.resize(kKeys / kKeyStep + 1);
  for (const int64_t rows : {kRows, s.rows() % kRows}) {
    if (rows == 0 || rows > s.rows()) continue;
    const int64_t first = s.is_causal ? kKeyStep : kKeys;
    for (int64_t keys = first; keys <= std::min(kKeys, s.keys); keys += kKeyStep) {
      add_products(attention, rows, keys);
    }
    add_products(attention, rows, s.keys % kKeys);
  }
}

// Scratch of a unit, cut into arrays that begin at cache lines.
class Cutter {
 public:
  explicit Cutter(void* scratch) : at_(static_cast<std::byte*>(scratch)) {}
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

// ---------------------------------------------------------------- units

template <class T>
const T* buffer_of(const KernelArgs& args, const Sizes& sizes, Input input) {
  return static_cast<const T*>(args.buffers[sizes.buffer[input]]);
}

int64_t offset_of(const KernelArgs& args, const Sizes& sizes) {
  if (!sizes.has(kOffset)) return sizes.offset;
  const void* at = args.buffers[sizes.buffer[kOffset]];
  return sizes.offset_is_wide ? *static_cast<const int64_t*>(at)
                              : int64_t{*static_cast<const int32_t*>(at)};
}

int64_t batch_offset(const Sizes& sizes, const Steps& steps, int64_t batch) {
  int64_t offset = 0;
  for (size_t i = sizes.batch.size(); i-- > 0;) {
    offset += batch % sizes.batch[i] * steps.batch[i];
    batch /= sizes.batch[i];
  }
  return offset;
}

bool is_cancelled(const KernelArgs& args) {
  return args.cancel != nullptr && args.cancel->load(std::memory_order_relaxed);
}

// Queries of all heads that share keys are rows, head after head.
template <class T>
class Unit {
 public:
  Unit(const Attention<T>& attention, const KernelArgs& args)
      : a_(attention), s_(attention.sizes), args_(args), offset_(offset_of(args, s_)) {}

 protected:
  void begin(int64_t unit) {
    batch_ = unit / a_.row_blocks;
    first_ = unit % a_.row_blocks * kRows;
    rows_ = std::min(kRows, s_.rows() - first_);
    key_ = operand<T>(kKey);
    value_ = operand<T>(kValue);
    out_ = static_cast<T*>(args_.buffers[a_.output]) + (batch_ * s_.rows() + first_) * s_.width;
  }

  template <class E>
  const E* operand(Input input) const {
    return buffer_of<E>(args_, s_, input) + batch_offset(s_, s_.steps[input], batch_);
  }

  int64_t row_offset(Input input, int64_t row) const {
    const Steps& steps = s_.steps[input];
    return (first_ + row) / s_.queries * steps.head + (first_ + row) % s_.queries * steps.row;
  }

  // How many keys a row may look at: the first ones.
  int64_t visible(int64_t row) const {
    if (!s_.is_causal) return s_.keys;
    const int64_t place = (first_ + row) % s_.queries;
    return std::clamp<int64_t>(offset_ < s_.keys ? offset_ + place + 1 : s_.keys, 0, s_.keys);
  }

  const Attention<T>& a_;
  const Sizes& s_;
  const KernelArgs& args_;
  const int64_t offset_;
  int64_t batch_ = 0, first_ = 0, rows_ = 0;
  const T* key_ = nullptr;
  const T* value_ = nullptr;
  T* out_ = nullptr;  // of the first row
};

// Many queries: one per lane.
template <class T>
class ManyQueries : Unit<T> {
 public:
  // What a unit needs of a worker; with null for measuring.
  struct Scratch {
    T *queries, *scores, *part, *largest, *sum, *rescale, *visible, *bias, *rows;
    size_t bytes;

    Scratch(const Attention<T>& attention, void* scratch) {
      const Sizes& s = attention.sizes;
      Cutter cutter(scratch);
      cutter.cut<std::byte>(static_cast<int64_t>(attention.product_bytes));
      queries = cutter.cut<T>(s.depth * kRows);
      scores = cutter.cut<T>(kKeys * kRows);
      part = s.keys > kKeys ? cutter.cut<T>(kRows * s.width) : nullptr;
      for (T** const each : {&largest, &sum, &rescale, &visible}) *each = cutter.cut<T>(kRows);
      bias = s.has(kBias) || s.has(kMask) ? cutter.cut<T>(kKeys * kRows) : nullptr;
      rows = s.mask_is_bool ? cutter.cut<T>(kRows * kKeys) : nullptr;
      bytes = cutter.used();
    }
  };

  ManyQueries(const Attention<T>& attention, const KernelArgs& args)
      : Unit<T>(attention, args), scratch_(attention, args.scratch) {}

  KernelStatus run(int64_t unit) {
    this->begin(unit);
    load_queries();
    find_visible();
    std::fill_n(scratch_.largest, kRows, -std::numeric_limits<T>::infinity());
    std::fill_n(scratch_.sum, kRows, T(0));
    if (most_visible_ == 0) std::fill_n(out_, rows_ * s_.width, T(0));
    for (int64_t from = 0; from < most_visible_; from += kKeys) {
      if (is_cancelled(args_)) return KernelStatus::kCancelled;
      add_block(from, block_keys(from));
    }
    for (int64_t row = 0; row < rows_; ++row) divide(out_ + row * s_.width, scratch_.sum[row]);
    return KernelStatus::kOk;
  }

 private:
  using Unit<T>::a_;
  using Unit<T>::s_;
  using Unit<T>::args_;
  using Unit<T>::first_;
  using Unit<T>::rows_;
  using Unit<T>::out_;

  void divide(T* out, T sum) const {
    const T factor = T(1) / sum;
    for (int64_t i = 0; i < s_.width; ++i) out[i] *= factor;
  }

  // Calls f(first row, rows, offset of the first row) for rows of one head.
  template <class F>
  void for_heads(Input input, F f) const {
    for (int64_t row = 0; row < rows_;) {
      const int64_t left = s_.queries - (first_ + row) % s_.queries;
      const int64_t count = std::min(left, rows_ - row);
      f(row, count, this->row_offset(input, row));
      row += count;
    }
  }

  // Turned, so that a number of every query lies side by side; zeros in lanes without a query.
  void load_queries() {
    const T* const query = this->template operand<T>(kQuery);
    const Steps& steps = s_.steps[kQuery];
    for_heads(kQuery, [&](int64_t row, int64_t count, int64_t offset) {
      const bool last = row + count == rows_;
      a_.parts.gemm->pack({query + offset, steps.row, steps.col, count, s_.depth,
                           scratch_.queries + row, kRows, last ? kRows - row : count});
    });
    const T scale = static_cast<T>(s_.scale);
    for (int64_t i = 0; i < s_.depth * kRows; ++i) scratch_.queries[i] *= scale;
  }

  void find_visible() {
    if (!s_.is_causal) {
      most_visible_ = least_visible_ = s_.keys;
      return;
    }
    most_visible_ = 0;
    least_visible_ = s_.keys;
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t visible = this->visible(row);
      most_visible_ = std::max(most_visible_, visible);
      least_visible_ = std::min(least_visible_, visible);
    }
  }

  // Blocks end behind the last key that anybody looks at.
  int64_t block_keys(int64_t from) const {
    const int64_t wanted = std::min(kKeys, most_visible_ - from);
    return std::min(round_up(wanted, kKeyStep), s_.keys - from);
  }

  void add_block(int64_t from, int64_t keys) {
    const Products<T>& product = a_.product(rows_, keys);
    const Steps &key = s_.steps[kKey], &value = s_.steps[kValue];
    const int64_t width = round_up(rows_, a_.parts.attention->lanes);
    product.scores.run(this->key_ + from * key.row, scratch_.queries, scratch_.scores,
                       args_.scratch);
    const ScoreColumns<T> block{scratch_.scores,  keys,         width,           kRows,
                                scratch_.largest, scratch_.sum, scratch_.rescale};
    if (s_.has(kBias)) {
      turn(kBias, this->template operand<T>(kBias), from, keys);
      a_.parts.attention->add_columns(block, scratch_.bias);
    }
    if (least_visible_ < from + keys) hide(block, from);
    if (s_.has(kMask)) mask(block, from);
    a_.parts.attention->weigh_columns(block);
    T* const to = from == 0 ? out_ : scratch_.part;
    product.values.run(scratch_.scores, this->value_ + from * value.row, to, args_.scratch);
    for (int64_t row = 0; from > 0 && row < rows_; ++row) {
      a_.parts.attention->accumulate(out_ + row * s_.width, to + row * s_.width,
                                     scratch_.rescale[row], s_.width);
    }
  }

  // Places count from the block's first key.
  void hide(const ScoreColumns<T>& block, int64_t from) const {
    for (int64_t row = 0; row < block.width; ++row) {
      const int64_t visible = row < rows_ ? this->visible(row) - from : 0;
      scratch_.visible[row] = static_cast<T>(std::clamp<int64_t>(visible, 0, block.keys));
    }
    const int64_t first = std::max<int64_t>(least_visible_ - from, 0);
    a_.parts.attention->hide_columns(block, first, scratch_.visible);
  }

  void turn(Input input, const T* bias, int64_t from, int64_t keys) const {
    const Steps& steps = s_.steps[input];
    for_heads(input, [&](int64_t row, int64_t count, int64_t offset) {
      a_.parts.gemm->pack({bias + offset + from * steps.col, steps.row, steps.col, count, keys,
                           scratch_.bias + row, kRows, count});
    });
  }

  void mask(const ScoreColumns<T>& block, int64_t from) const {
    if (!s_.mask_is_bool) {
      turn(kMask, this->template operand<T>(kMask), from, block.keys);
      return a_.parts.attention->add_columns(block, scratch_.bias);
    }
    const auto* const mask = this->template operand<uint8_t>(kMask);
    const Steps& steps = s_.steps[kMask];
    for_heads(kMask, [&](int64_t row, int64_t count, int64_t offset) {
      const int64_t distinct = steps.row == 0 ? 1 : count;
      for (int64_t i = 0; i < distinct; ++i) {
        spread_mask(mask + offset + i * steps.row + from * steps.col, steps.col, block.keys,
                    scratch_.rows + i * kKeys);
      }
      a_.parts.gemm->pack({scratch_.rows, distinct == 1 ? 0 : kKeys, 1, count, block.keys,
                           scratch_.bias + row, kRows, count});
    });
    a_.parts.attention->mask_columns(block, scratch_.bias);
  }

  static void spread_mask(const uint8_t* mask, int64_t step, int64_t keys, T* out) {
    constexpr T kNever = -std::numeric_limits<T>::infinity();
    for (int64_t k = 0; k < keys; ++k) out[k] = mask[k * step] != 0 ? T(0) : kNever;
  }

  const Scratch scratch_;
  int64_t most_visible_ = 0, least_visible_ = 0;  // keys, of all rows
};

// Few queries, as when a text is written word by word: keys and values are read once, as they lie.
template <class T>
class FewQueries : Unit<T> {
 public:
  struct Scratch {
    T *queries, *scores;
    ScoreRow<T>* rows;
    size_t bytes;

    Scratch(const Attention<T>& attention, void* scratch) {
      const Sizes& s = attention.sizes;
      Cutter cutter(scratch);
      queries = cutter.cut<T>(s.rows() * s.depth);
      scores = cutter.cut<T>(std::min(s.keys, kKeysOfFew));
      rows = cutter.cut<ScoreRow<T>>(s.rows());
      bytes = cutter.used();
    }
  };

  FewQueries(const Attention<T>& attention, const KernelArgs& args)
      : Unit<T>(attention, args), scratch_(attention, args.scratch) {}

  KernelStatus run(int64_t unit) {
    this->begin(unit);
    load_queries();
    constexpr T kNever = -std::numeric_limits<T>::infinity();
    for (int64_t row = 0; row < rows_; ++row) scratch_.rows[row] = {scratch_.scores, 0, kNever, 0, 0};
    std::fill_n(out_, rows_ * s_.width, T(0));
    for (int64_t from = 0; from < s_.keys; from += kKeysOfFew) {
      if (is_cancelled(args_)) return KernelStatus::kCancelled;
      for (int64_t row = 0; row < rows_; ++row) add_block(row, from);
    }
    for (int64_t row = 0; row < rows_; ++row) {
      const T factor = T(1) / scratch_.rows[row].sum;
      for (int64_t i = 0; i < s_.width; ++i) out_[row * s_.width + i] *= factor;
    }
    return KernelStatus::kOk;
  }

 private:
  using Unit<T>::a_;
  using Unit<T>::s_;
  using Unit<T>::args_;
  using Unit<T>::rows_;
  using Unit<T>::out_;

  void load_queries() {
    const T* const query = this->template operand<T>(kQuery);
    const T scale = static_cast<T>(s_.scale);
    T* to = scratch_.queries;
    for (int64_t row = 0; row < rows_; ++row) {
      const T* from = query + this->row_offset(kQuery, row);
      for (int64_t i = 0; i < s_.depth; ++i) *to++ = from[i * s_.steps[kQuery].col] * scale;
    }
  }

  void add_block(int64_t row, int64_t from) {
    ScoreRow<T>& scores = scratch_.rows[row];
    scores.keys = std::min(kKeysOfFew, this->visible(row) - from);
    if (scores.keys <= 0) return;
    const Steps &key = s_.steps[kKey], &value = s_.steps[kValue];
    a_.parts.attention->dot(scratch_.queries + row * s_.depth, this->key_ + from * key.row, key.row,
                            s_.depth, scores.keys, scores.scores);
    if (s_.has(kBias)) add(kBias, row, from);
    if (s_.has(kMask)) s_.mask_is_bool ? mask(row, from) : add(kMask, row, from);
    a_.parts.attention->weigh_row(scores);
    a_.parts.attention->mix({scores.scores, this->value_ + from * value.row, scores.keys, value.row,
                             s_.width, scores.rescale, out_ + row * s_.width});
  }

  void add(Input input, int64_t row, int64_t from) {
    const int64_t step = s_.steps[input].col;
    const T* bias = this->template operand<T>(input) + this->row_offset(input, row) + from * step;
    const ScoreRow<T>& scores = scratch_.rows[row];
    for (int64_t k = 0; k < scores.keys; ++k) scores.scores[k] += bias[k * step];
  }

  void mask(int64_t row, int64_t from) {
    const int64_t step = s_.steps[kMask].col;
    const uint8_t* mask =
        this->template operand<uint8_t>(kMask) + this->row_offset(kMask, row) + from * step;
    const ScoreRow<T>& scores = scratch_.rows[row];
    for (int64_t k = 0; k < scores.keys; ++k) {
      if (mask[k * step] == 0) scores.scores[k] = -std::numeric_limits<T>::infinity();
    }
  }

  const Scratch scratch_;
};

template <class T, template <class> class Queries>
KernelStatus run_units(const KernelArgs& args, int64_t begin, int64_t end) {
  Queries<T> queries(*static_cast<const Attention<T>*>(args.data), args);
  for (int64_t unit = begin; unit < end; ++unit) {
    const KernelStatus status = queries.run(unit);
    if (status != KernelStatus::kOk) return status;
  }
  return KernelStatus::kOk;
}

// ---------------------------------------------------------------- steps

template <class T>
core::Result<plan::Step> make_step(const KernelRequest& request) {
  auto attention = std::make_shared<Attention<T>>();
  Attention<T>& a = *attention;
  a.sizes = sizes_of(request);
  a.parts = parts_of<T>(default_isa());
  const Sizes& s = a.sizes;
  for (const Operand& input : request.inputs) a.output += input.present() ? 1 : 0;
  a.row_blocks = ceil_div(s.rows(), kRows);
  a.is_few = s.rows() <= kFewRows && s.steps[kKey].col == 1 && s.steps[kValue].col == 1;
  plan::Step step;
  step.units = a.row_blocks;
  for (const int64_t size : s.batch) step.units *= size;
  step.grain = grain_of(std::min(s.rows(), kRows) * s.keys * (s.depth + s.width) / 8);
  if (a.is_few) {
    step.kernel = run_units<T, FewQueries>;
    step.scratch_bytes = typename FewQueries<T>::Scratch(a, nullptr).bytes;
  } else {
    add_products(a);
    step.kernel = run_units<T, ManyQueries>;
    step.scratch_bytes = typename ManyQueries<T>::Scratch(a, nullptr).bytes;
  }
  step.data = std::move(attention);
  return step;
}

core::Result<plan::Step> make_attention(const KernelRequest& request) {
  return request.outputs[0].dtype == DType::kFloat32 ? make_step<float>(request)
                                                     : make_step<double>(request);
}

bool has_elements(const std::vector<int64_t>& shape) {
  return std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size > 0; });
}

// Of one type; a mask may be of bools. Nothing to look at has a meaning that sums of nothing give.
// Without vectors nothing is gained over the decomposition.
bool matches(const KernelRequest& request) {
  const DType dtype = request.outputs[0].dtype;
  if (!has_real_type(request) || default_isa() == Isa::kGeneric) return false;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const Operand& input = request.inputs[i];
    const bool is_other = i == kOffset || (i == kMask && input.dtype == DType::kBool);
    if (!input.present()) continue;
    if (!has_elements(input.shape) || (!is_other && input.dtype != dtype)) return false;
  }
  return true;
}

const select::KernelDef kKernels[] = {
    {"plain_attention", "attention", select::OrderClass::kOther, false, matches, make_attention},
    {"attention", "attention", select::OrderClass::kOther, false, matches, make_attention},
};

}  // namespace

std::span<const select::KernelDef> attention_kernels() { return kKernels; }

}  // namespace mithril::cpu
