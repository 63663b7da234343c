// The interpreter's loop: walks the domain in tiles and runs a schedule's steps on each.
#include <cstring>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "backends/cpu/loops/isa_parts.h"
#include "backends/cpu/loops/tile_code.h"
#include "core/interrupt.h"

namespace mithril::cpu::MITHRIL_ISA {
namespace {

using tile::Level;

struct Space {
  const int64_t* dims;
  const int64_t* strides;
  int64_t count;  // of dims
};

constexpr int64_t kMaxDims = 64;  // as NumPy
constexpr int64_t kPointsBetweenPolls = 1 << 14;

// Calls f(offset, stride, n) for runs along the last dim that cover the row-major positions
// [begin, begin + count).
template <class F>
inline void for_runs(const Space& space, int64_t begin, int64_t count, const F& f) {
  if (space.count == 0) return f(0, 0, count);
  const int64_t last = space.count - 1;
  const int64_t stride = space.strides[last];
  if (last == 0) return f(begin * stride, stride, count);
  int64_t index[kMaxDims];
  int64_t offset = 0, rest = begin;
  for (int64_t d = last; d >= 0; --d) {
    index[d] = rest % space.dims[d];
    rest /= space.dims[d];
    offset += index[d] * space.strides[d];
  }
  while (count > 0) {
    const int64_t left = space.dims[last] - index[last];
    const int64_t n = left < count ? left : count;
    f(offset, stride, n);
    count -= n;
    // Only the first run may begin inside a row.
    offset -= index[last] * stride;
    index[last] = 0;
    for (int64_t d = last - 1; d >= 0; --d) {
      offset += space.strides[d];
      if (++index[d] < space.dims[d]) break;
      offset -= space.dims[d] * space.strides[d];
      index[d] = 0;
    }
  }
}

inline int64_t offset_at(const Space& space, int64_t position) {
  if (space.count == 1) return position * space.strides[0];
  int64_t offset = 0;
  for (int64_t d = space.count - 1; d >= 0; --d) {
    offset += position % space.dims[d] * space.strides[d];
    position /= space.dims[d];
  }
  return offset;
}

template <size_t bytes>
inline void copy_fixed(char* to, const char* from) {
  __builtin_memcpy(to, from, bytes);
}

// Short runs are common (broadcast rows): two overlapping moves instead of a call.
inline void copy_bytes(void* to, const void* from, size_t n) {
  auto* y = static_cast<char*>(to);
  const auto* x = static_cast<const char*>(from);
  if (n > 256) {
    std::memcpy(y, x, n);
  } else if (n >= 16) {
    for (size_t i = 0; i + 16 <= n; i += 16) copy_fixed<16>(y + i, x + i);
    copy_fixed<16>(y + n - 16, x + n - 16);
  } else if (n >= 8) {
    copy_fixed<8>(y, x);
    copy_fixed<8>(y + n - 8, x + n - 8);
  } else if (n >= 4) {
    copy_fixed<4>(y, x);
    copy_fixed<4>(y + n - 4, x + n - 4);
  } else {
    for (size_t i = 0; i < n; ++i) y[i] = x[i];
  }
}

// Whole lines past the caches: a plain store would read them first.
inline void stream_bytes(char* to, const char* from, size_t n) {
#if defined(__x86_64__)
  const size_t head = -reinterpret_cast<uintptr_t>(to) & 63;
  if (n < head + 64) return copy_bytes(to, from, n);
  copy_bytes(to, from, head);
  size_t i = head;
  for (; n - i >= 64; i += 64) {
    for (size_t part = i; part < i + 64; part += 16) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + part));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + part), bytes);
    }
  }
  copy_bytes(to + i, from + i, n - i);
#else
  copy_bytes(to, from, n);
#endif
}

// Other threads see what was streamed before they see that the kernel is done.
inline void finish_streams() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

template <class T>
inline T* copy_in(T* to, const T* from, int64_t stride, int64_t n) {
  if (stride == 1) {
    copy_bytes(to, from, static_cast<size_t>(n) * sizeof(T));
  } else if (stride == 0) {
    const T value = *from;
    for (int64_t i = 0; i < n; ++i) to[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * stride];
  }
  return to + n;
}

template <class T>
inline const T* copy_out(T* to, const T* from, int64_t stride, int64_t n) {
  if (stride == 1) {
    copy_bytes(to, from, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * stride] = from[i];
  }
  return from + n;
}

template <class T>
void fill(void* to, const void* value, int64_t n) {
  T one;
  std::memcpy(&one, value, sizeof one);
  T* out = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = one;
}

void fill_bytes(void* to, const void* value, int64_t n, int32_t size) {
  switch (size) {
    case 1: return fill<uint8_t>(to, value, n);
    case 2: return fill<uint16_t>(to, value, n);
    case 4: return fill<uint32_t>(to, value, n);
    default: return fill<uint64_t>(to, value, n);
  }
}

/// Says what a tile covers: rows of the kept domain, and positions of the reduced one (pointwise:
/// one "row", and positions of the kept domain).
struct Tile {
  int64_t row0, rows, r0, count;
  int64_t points() const { return rows * count; }
};

class Runner {
 public:
  Runner(const plan::KernelArgs& args)
      : args_(args),
        code_(static_cast<const TileKernel*>(args.data)->code()),
        header_(*reinterpret_cast<const LoopHeader*>(args.params)),
        plan_(*code_.made[header_.layout][header_.recompute][header_.mode]),
        layout_(static_cast<Layout>(header_.layout)),
        inputs_(static_cast<int32_t>(code_.program.inputs.size())),
        buffers_(inputs_ + static_cast<int32_t>(code_.program.outputs.size())) {
    kept_dims_ = args.params + kHeaderWords;
    reduced_dims_ = kept_dims_ + header_.kept_dims;
    operands_ = reduced_dims_ + header_.reduced_dims;
    operand_words_ = 1 + header_.kept_dims + header_.reduced_dims;
    offsets_ = operands_ + header_.operands * operand_words_;
    scratch_ = static_cast<char*>(args.scratch);
    pointers_ = static_cast<void**>(args.scratch);
    state_bytes_ = 64 + 2 * (header_.depth + 1) * row_bytes();
    for (size_t s = 0; s < plan_.slots.size(); ++s) pointers_[s] = scratch_ + offsets_[s];
  }

  plan::KernelStatus run(int64_t begin, int64_t end) {
    for (int32_t s = plan_.setup.begin; s < plan_.setup.end; ++s) setup(plan_.steps.data()[s]);
    for (size_t s = 0; s < plan_.sections.size(); ++s) {
      fill_invariants(plan_.sections.data()[s].rows);
      fill_invariants(plan_.sections.data()[s].lanes);
    }
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t from = unit * header_.unit;
      const int64_t to = from + header_.unit < header_.kept ? from + header_.unit : header_.kept;
      switch (layout_) {
        case Layout::kPointwise: run_points(from, to); break;
        case Layout::kBlock: run_block(from, to); break;
        default: run_rows(from, to);
      }
      if (interrupted_) return plan::KernelStatus::kCancelled;
    }
    if (streams_) finish_streams();
    return plan::KernelStatus::kOk;
  }

 private:
  // ---- operands

  int64_t flags(int32_t operand) const { return operands_[operand * operand_words_]; }
  Space kept(int32_t operand) const {
    return {kept_dims_, operands_ + operand * operand_words_ + 1, header_.kept_dims};
  }
  Space reduced(int32_t operand) const {
    return {reduced_dims_, operands_ + operand * operand_words_ + 1 + header_.kept_dims,
            header_.reduced_dims};
  }

  /// The two loops of a lane operand over the tile, outer first.
  template <class F>
  void for_lanes(int32_t operand, const Tile& tile, const F& f) const {
    const Space kept_space = kept(operand), reduced_space = reduced(operand);
    if (layout_ == Layout::kPointwise) return for_runs(kept_space, tile.r0, tile.count, f);
    const bool across = layout_ == Layout::kRowAcross;
    const Space& outer = across ? reduced_space : kept_space;
    const Space& inner = across ? kept_space : reduced_space;
    const int64_t o0 = across ? tile.r0 : tile.row0, outers = across ? tile.count : tile.rows;
    const int64_t i0 = across ? tile.row0 : tile.r0, inners = across ? tile.rows : tile.count;
    for_runs(outer, o0, outers, [&](int64_t base, int64_t step, int64_t n) {
      for (int64_t k = 0; k < n; ++k, base += step) {
        for_runs(inner, i0, inners,
                 [&](int64_t offset, int64_t stride, int64_t m) { f(base + offset, stride, m); });
      }
    });
  }

  template <class F>
  void for_elements(int32_t operand, Level level, const Tile& tile, const F& f) const {
    if (level == Level::kLane) return for_lanes(operand, tile, f);
    for_runs(kept(operand), tile.row0, tile.rows, f);
  }

  /// Offset of the tile's first element where its elements lie side by side in tile order, else -1.
  int64_t direct_offset(int32_t operand, Level level, const Tile& tile) const {
    const int64_t flag = flags(operand);
    if (level == Level::kRow) {
      return (flag & kKeptContiguous) != 0 ? tile.row0 : -1;
    }
    if ((flag & kInnerContiguous) == 0) return -1;
    if (layout_ == Layout::kPointwise) return tile.r0;
    const bool across = layout_ == Layout::kRowAcross;
    const int64_t outers = across ? tile.count : tile.rows;
    const int64_t inners = across ? tile.rows : tile.count;
    const int64_t length = across ? header_.kept : header_.reduced;
    if (outers != 1 && ((flag & kOuterChained) == 0 || inners != length)) return -1;
    const int64_t inner0 = across ? tile.row0 : tile.r0;
    const Space outer = across ? reduced(operand) : kept(operand);
    const int64_t outer0 = across ? tile.r0 : tile.row0;
    return inner0 + offset_at(outer, outer0);
  }

  void fetch(const TileStep& step, const Tile& tile) {
    if (step.index >= buffers_) return positions(step, tile);
    char* const base = static_cast<char*>(args_.buffers[step.index]);
    if ((flags(step.index) & (kSingle | kInvariant)) != 0) return;  // filled once
    const int64_t direct = direct_offset(step.index, step.level, tile);
    if (direct >= 0) {
      pointers_[step.out] = base + direct * step.size;
      return;
    }
    pointers_[step.out] = scratch_ + offsets_[step.out];
    gather_bytes(step, base, tile);
  }

  void gather_bytes(const TileStep& step, const char* base, const Tile& tile) {
    switch (step.size) {
      case 1: return gather<uint8_t>(step, base, tile);
      case 2: return gather<uint16_t>(step, base, tile);
      case 4: return gather<uint32_t>(step, base, tile);
      default: return gather<uint64_t>(step, base, tile);
    }
  }

  // Blocks that are the same in every tile are filled once.
  void fill_invariants(const StepRange& range) {
    for (int32_t s = range.begin; s < range.end; ++s) {
      const TileStep& step = plan_.steps.data()[s];
      if (step.kind != StepKind::kFetch || step.index >= buffers_) continue;
      const int64_t flag = flags(step.index);
      const auto* base = static_cast<const char*>(args_.buffers[step.index]);
      if ((flag & kSingle) != 0) {
        fill_bytes(pointers_[step.out], base, block_points(step.level), step.size);
      } else if ((flag & kInvariant) != 0) {
        repeat(step, base);
      }
    }
  }

  // One period, then its copies, doubling.
  void repeat(const TileStep& step, const char* base) {
    const bool pointwise = layout_ == Layout::kPointwise;
    const int64_t period = pointwise ? kept_dims_[header_.kept_dims - 1] : header_.reduced;
    gather_bytes(step, base, {0, 1, 0, period});
    auto* block = static_cast<char*>(pointers_[step.out]);
    const int64_t bytes = header_.capacity * step.size;
    for (int64_t done = period * step.size; done < bytes; done *= 2) {
      std::memcpy(block + done, block,
                  static_cast<size_t>(done < bytes - done ? done : bytes - done));
    }
  }

  int64_t block_points(Level level) const {
    if (level == Level::kRow) return header_.tile_rows;
    return header_.capacity;
  }

  template <class T>
  void gather(const TileStep& step, const char* base, const Tile& tile) {
    T* to = static_cast<T*>(pointers_[step.out]);
    const T* from = reinterpret_cast<const T*>(base);
    for_elements(step.index, step.level, tile, [&](int64_t offset, int64_t stride, int64_t n) {
      to = copy_in(to, from + offset, stride, n);
    });
  }

  void positions(const TileStep& step, const Tile& tile) {
    auto* to = static_cast<int64_t*>(pointers_[step.out]);
    for_elements(step.index, step.level, tile, [&](int64_t offset, int64_t stride, int64_t n) {
      for (int64_t i = 0; i < n; ++i) to[i] = offset + i * stride;
      to += n;
    });
  }

  void bind(const TileStep& step, const Tile& tile) {
    char* const base = static_cast<char*>(args_.buffers[step.index]);
    const int64_t direct = direct_offset(step.index, step.level, tile);
    char* const to = base + direct * step.size;
    const bool streams = header_.mode == static_cast<int64_t>(Mode::kStreaming);
    bool safe = direct >= 0 &&
                (streams ? reinterpret_cast<uintptr_t>(to) % 64 == 0 : !is_streamed(step.index));
    for (int32_t h = 0; h < step.hazard_count; ++h) {
      const int32_t input = plan_.hazards.data()[step.partner + h];
      safe = safe && args_.buffers[input] != args_.buffers[step.index];
    }
    streams_ = streams_ || streams;
    pointers_[step.out] = safe ? to : scratch_ + offsets_[step.out];
  }

  // Lines of an operand that is overwritten are in the cache already.
  bool is_streamed(int32_t output) const {
    if ((flags(output) & kStreamed) == 0) return false;
    for (int32_t k = 0; k < inputs_; ++k) {
      if (args_.buffers[k] == args_.buffers[output]) return false;
    }
    return true;
  }

  void store(const TileStep& step, const Tile& tile) {
    char* const base = static_cast<char*>(args_.buffers[step.index]);
    const int64_t direct = direct_offset(step.index, step.level, tile);
    const void* from = pointers_[step.a];
    if (direct >= 0) {
      char* const to = base + direct * step.size;
      const int64_t count = step.level == Level::kRow ? tile.rows : tile.points();
      const auto n = static_cast<size_t>(count * step.size);
      if (to == from) return;
      if (!is_streamed(step.index)) {
        std::memcpy(to, from, n);
        return;
      }
      streams_ = true;
      return stream_bytes(to, static_cast<const char*>(from), n);
    }
    switch (step.size) {
      case 1: return scatter<uint8_t>(step, base, tile);
      case 2: return scatter<uint16_t>(step, base, tile);
      case 4: return scatter<uint32_t>(step, base, tile);
      default: return scatter<uint64_t>(step, base, tile);
    }
  }

  template <class T>
  void scatter(const TileStep& step, char* base, const Tile& tile) {
    const T* from = static_cast<const T*>(pointers_[step.a]);
    T* to = reinterpret_cast<T*>(base);
    for_elements(step.index, step.level, tile, [&](int64_t offset, int64_t stride, int64_t n) {
      from = copy_out(to + offset, from, stride, n);
    });
  }

  // ---- steps

  void setup(const TileStep& step) {
    switch (step.kind) {
      case StepKind::kConstant: std::memcpy(pointers_[step.out], &step.bits, 8); break;
      case StepKind::kScalar: {
        const double* value = args_.scalars + step.index;
        if (step.fn == nullptr) {
          std::memcpy(pointers_[step.out], value, sizeof *value);
        } else {
          step.fn(pointers_[step.out], value, nullptr, nullptr, 1);
        }
        break;
      }
      case StepKind::kFetch:
        std::memcpy(pointers_[step.out], args_.buffers[step.index], static_cast<size_t>(step.size));
        break;
      case StepKind::kFill:
        fill_bytes(pointers_[step.out], pointers_[step.a], block_points(step.level), step.size);
        break;
      default: call(step, 1);
    }
  }

  void call(const TileStep& step, int64_t n) {
    const void* a = step.a >= 0 ? pointers_[step.a] : nullptr;
    const void* b = step.b >= 0 ? pointers_[step.b] : nullptr;
    const void* c = step.c >= 0 ? pointers_[step.c] : nullptr;
    step.fn(pointers_[step.out], a, b, c, n);
  }

  // Between tiles, once in so many points: one may take microseconds, or be one of millions.
  void poll(const Tile& tile) {
    unpolled_ += tile.points();
    if (unpolled_ < kPointsBetweenPolls) return;
    unpolled_ = 0;
    interrupted_ = core::is_interrupted();
  }

  void steps(const StepRange& range, const Tile& tile) {
    poll(tile);
    for (int32_t s = range.begin; s < range.end; ++s) {
      const TileStep& step = plan_.steps.data()[s];
      switch (step.kind) {
        case StepKind::kCall:
          call(step, step.level == Level::kRow ? tile.rows : tile.points());
          break;
        case StepKind::kFetch: fetch(step, tile); break;
        case StepKind::kBind: bind(step, tile); break;
        case StepKind::kStore: store(step, tile); break;
        case StepKind::kExpand: expand(step, tile); break;
        case StepKind::kReduce: reduce(step, tile); break;
        case StepKind::kScan: scan(step, tile); break;
        case StepKind::kCompiled: compiled(plan_.compiled.data()[step.index], tile); break;
        default: break;
      }
    }
  }

  void expand(const TileStep& step, const Tile& tile) {
    auto* to = static_cast<char*>(pointers_[step.out]);
    const auto* from = static_cast<const char*>(pointers_[step.a]);
    const int64_t size = step.size;
    if (layout_ == Layout::kRowAcross) {
      for (int64_t r = 0; r < tile.count; ++r) {
        std::memcpy(to + r * tile.rows * size, from, static_cast<size_t>(tile.rows * size));
      }
      return;
    }
    switch (step.size) {
      case 1: return expand_rows<uint8_t>(to, from, tile);
      case 2: return expand_rows<uint16_t>(to, from, tile);
      case 4: return expand_rows<uint32_t>(to, from, tile);
      default: return expand_rows<uint64_t>(to, from, tile);
    }
  }

  template <class T>
  static void expand_rows(void* to, const void* from, const Tile& tile) {
    T* out = static_cast<T*>(to);
    const T* value = static_cast<const T*>(from);
    for (int64_t row = 0; row < tile.rows; ++row, out += tile.count) {
      for (int64_t i = 0; i < tile.count; ++i) out[i] = value[row];
    }
  }

  // ---- reductions

  int64_t row_bytes() const { return (header_.tile_rows * 8 + 63) / 64 * 64; }

  /// Running state of one reduction for the rows of the tile.
  struct State {
    int64_t* in_block;  // elements taken into the running value (kRowAcross)
    int64_t* blocks;    // finished blocks
    char* value;
    char* rest;   // what rounding took from it, if the reduction keeps that
    char* stack;  // finished partial results, the largest first, each with its rest
  };
  State state(int32_t reduction) const {
    char* at = scratch_ + header_.state_offset + reduction * state_bytes_;
    auto* counters = reinterpret_cast<int64_t*>(at);
    const int32_t running = plan_.reductions.data()[reduction].running;
    char* value = running >= 0 ? static_cast<char*>(pointers_[running]) : at + 64;
    return {counters, counters + 1, value, at + 64 + row_bytes(), at + 64 + 2 * row_bytes()};
  }
  char* partial(const State& s, int64_t index) const { return s.stack + 2 * index * row_bytes(); }
  char* rest_of(char* partial) const { return partial + row_bytes(); }

  // Sums of one block have none.
  bool keeps_rest(const Reduction& reduction) const {
    const bool lanes = reduction.order == tile::Order::kLanes;
    const int64_t block = lanes ? tile::kLanesBlock : tile::kRowsBlock;
    return reduction.sums.join != nullptr && header_.reduced > block;
  }

  static int64_t height(int64_t blocks) {
    return __builtin_popcountll(static_cast<uint64_t>(blocks));
  }

  // A finished block joins those before it as in binary counting: that is the pairwise tree.
  void push(const Reduction& reduction, const State& s, int64_t rows) {
    const auto bytes = static_cast<size_t>(rows * reduction.size);
    int64_t top = height(*s.blocks);
    for (int64_t b = *s.blocks; (b & 1) != 0; b >>= 1) {
      join(reduction, partial(s, --top), s.value, s.rest, rows);
    }
    std::memcpy(partial(s, top), s.value, bytes);
    if (keeps_rest(reduction)) std::memcpy(rest_of(partial(s, top)), s.rest, bytes);
    ++*s.blocks;
    *s.in_block = 0;
  }

  void join(const Reduction& reduction, char* left, void* value, void* rest, int64_t rows) const {
    if (!keeps_rest(reduction)) return reduction.combine(value, left, value, nullptr, rows);
    reduction.sums.join(left, rest_of(left), value, rest, rows);
  }

  // A block of which `value` is the plain sum.
  void push_plain(const Reduction& reduction, const State& s, int64_t rows) {
    if (keeps_rest(reduction)) {
      std::memset(s.rest, 0, static_cast<size_t>(rows * reduction.size));
    }
    push(reduction, s, rows);
  }

  void begin(int32_t index) {
    const State s = state(index);
    *s.in_block = 0;
    *s.blocks = 0;
  }

  void reduce(const TileStep& step, const Tile& tile) {
    const Reduction& reduction = plan_.reductions.data()[step.index];
    const State s = state(step.index);
    if (tile.count == 0) return;
    if (reduction.extreme != nullptr) {
      return reduction.extreme({s.value, static_cast<int64_t*>(pointers_[reduction.out]),
                                pointers_[step.a], tile.rows, tile.count, row_stride(tile),
                                r_stride(tile), tile.r0});
    }
    if (layout_ == Layout::kRowAcross) return reduce_across(reduction, s, step, tile);
    take_rows(reduction, s, step.a, tile.rows, tile.count);
  }

  // n elements of each row, of a slot.
  void take_rows(const Reduction& reduction, const State& s, int32_t slot, int64_t rows,
                 int64_t n) {
    void* const rest = keeps_rest(reduction) ? s.rest : nullptr;
    reduction.row_reduce(s.value, rest, pointers_[slot], rows, n, reduction.order);
    push(reduction, s, rows);
  }

  void reduce_across(const Reduction& reduction, const State& s, const TileStep& step,
                     const Tile& tile) {
    const auto* x = static_cast<const char*>(pointers_[step.a]);
    const int64_t bytes = tile.rows * reduction.size;
    for (int64_t r = 0; r < tile.count; ++r, x += bytes) {
      if (*s.in_block == 0) {
        std::memcpy(s.value, x, static_cast<size_t>(bytes));
      } else {
        reduction.combine(s.value, s.value, x, nullptr, tile.rows);
      }
      if (++*s.in_block == tile::kRowsBlock) push_plain(reduction, s, tile.rows);
    }
  }

  void finish(int32_t index, const Tile& tile) {
    const Reduction& reduction = plan_.reductions.data()[index];
    if (reduction.scan != nullptr) return;
    void* const out = pointers_[reduction.out];
    if (header_.reduced == 0) {
      const bool is_index = reduction.extreme != nullptr;
      const uint64_t value = is_index ? 0 : reduction.identity;
      return fill_bytes(out, &value, tile.rows, is_index ? 8 : reduction.size);
    }
    if (reduction.extreme != nullptr) return;
    const State s = state(index);
    if (*s.in_block > 0) push_plain(reduction, s, tile.rows);
    const auto bytes = static_cast<size_t>(tile.rows * reduction.size);
    int64_t top = height(*s.blocks) - 1;
    std::memcpy(out, partial(s, top), bytes);
    if (keeps_rest(reduction)) std::memcpy(s.rest, rest_of(partial(s, top)), bytes);
    while (--top >= 0) join(reduction, partial(s, top), out, s.rest, tile.rows);
    if (keeps_rest(reduction)) reduction.sums.settle(out, s.rest, tile.rows);
  }

  void compiled(const CompiledStep& step, const Tile& tile) {
    const int64_t reductions = static_cast<int64_t>(step.reductions.size());
    if (layout_ == Layout::kRowAcross) {
      if (reductions == 0) return step.fn(pointers_, tile.count, tile.rows, 0);
      return reduce_compiled_across(step, tile);
    }
    step.fn(pointers_, tile.rows, tile.count, 0);
    for (int64_t k = 0; k < reductions; ++k) {
      const CompiledStep::Reduced& r = step.reductions.data()[k];
      const Reduction& reduction = plan_.reductions.data()[r.reduction];
      const State s = state(r.reduction);
      take_rows(reduction, s, r.slot, tile.rows, r.partials);
    }
  }

  // In runs that end where a block does; all reductions of a step are equally far.
  void reduce_compiled_across(const CompiledStep& step, const Tile& tile) {
    const int64_t reductions = static_cast<int64_t>(step.reductions.size());
    const int64_t* const in_block = state(step.reductions.data()[0].reduction).in_block;
    for (int64_t r = 0; r < tile.count;) {
      const int64_t left = tile.count - r, room = tile::kRowsBlock - *in_block;
      const int64_t n = left < room ? left : room;
      for (int64_t k = 0; *in_block == 0 && k < reductions; ++k) {
        const int32_t index = step.reductions.data()[k].reduction;
        const Reduction& reduction = plan_.reductions.data()[index];
        fill_bytes(state(index).value, &reduction.beginning, tile.rows, reduction.size);
      }
      step.fn(pointers_, r + n, tile.rows, r);
      for (int64_t k = 0; k < reductions; ++k) {
        const int32_t index = step.reductions.data()[k].reduction;
        const State s = state(index);
        *s.in_block += n;
        if (*s.in_block == tile::kRowsBlock) {
          push_plain(plan_.reductions.data()[index], s, tile.rows);
        }
      }
      r += n;
    }
  }

  int64_t row_stride(const Tile& tile) const {
    return layout_ == Layout::kRowAcross ? 1 : tile.count;
  }
  int64_t r_stride(const Tile& tile) const { return layout_ == Layout::kRowAcross ? tile.rows : 1; }

  void scan(const TileStep& step, const Tile& tile) {
    const Reduction& reduction = plan_.reductions.data()[step.index];
    reduction.scan({pointers_[step.out], state(step.index).value, pointers_[step.a], tile.rows,
                    tile.count, row_stride(tile), r_stride(tile), tile.r0});
  }

  // ---- the domain

  void run_points(int64_t from, int64_t to) {
    const StepRange& lanes = plan_.sections.data()[0].lanes;
    for (int64_t at = from; at < to && !interrupted_; at += header_.tile_r) {
      const int64_t n = to - at < header_.tile_r ? to - at : header_.tile_r;
      steps(lanes, {0, 1, at, n});
    }
  }

  void run_rows(int64_t from, int64_t to) {
    for (int64_t row = from; row < to && !interrupted_; row += header_.tile_rows) {
      const int64_t rows = to - row < header_.tile_rows ? to - row : header_.tile_rows;
      const int64_t count = static_cast<int64_t>(plan_.sections.size());
      for (int64_t s = 0; s < count; ++s) section(plan_.sections.data()[s], row, rows);
    }
  }

  // Operands are where they are: one call for all rows.
  void run_block(int64_t from, int64_t to) {
    const Section& section = plan_.sections.data()[0];
    const Tile tile{from, to - from, 0, header_.reduced};
    steps(section.rows, tile);
    auto* const between = reinterpret_cast<int64_t*>(pointers_ + plan_.slots.size());
    for (int32_t s = section.lanes.begin; s < section.lanes.end; ++s) {
      const TileStep& step = plan_.steps.data()[s];
      if (step.kind == StepKind::kFetch || step.kind == StepKind::kBind) {
        const int64_t stride = kept(step.index).strides[0];
        between[step.out] = stride * step.size;
        pointers_[step.out] =
            static_cast<char*>(args_.buffers[step.index]) + from * stride * step.size;
      } else if (step.kind == StepKind::kCompiled) {
        compiled(plan_.compiled.data()[step.index], tile);
      }
    }
  }

  void section(const Section& section, int64_t row, int64_t rows) {
    steps(section.rows, {row, rows, 0, 0});
    for (int32_t k = section.reductions.begin; k < section.reductions.end; ++k) begin(k);
    if (section.lanes.begin < section.lanes.end) {
      for (int64_t r = 0; r < header_.reduced && !interrupted_; r += header_.tile_r) {
        const int64_t left = header_.reduced - r;
        const int64_t n = left < header_.tile_r ? left : header_.tile_r;
        steps(section.lanes, {row, rows, r, n});
      }
    }
    for (int32_t k = section.reductions.begin; k < section.reductions.end; ++k) {
      finish(k, {row, rows, 0, 0});
    }
  }

  const plan::KernelArgs& args_;
  const TileKernel::Code& code_;
  const LoopHeader& header_;
  const TileSchedule& plan_;
  const Layout layout_;
  const int32_t inputs_, buffers_;
  const int64_t *kept_dims_, *reduced_dims_, *operands_, *offsets_;
  int64_t operand_words_, state_bytes_;
  bool streams_ = false, interrupted_ = false;
  int64_t unpolled_ = 0;
  char* scratch_;
  void** pointers_;
};

}  // namespace

plan::KernelStatus run(const plan::KernelArgs& args, int64_t begin, int64_t end) {
  return Runner(args).run(begin, end);
}

}  // namespace mithril::cpu::MITHRIL_ISA
