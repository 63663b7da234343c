#include "emit/c_plan_text.h"

#include <fmt/format.h>

#include "core/status.h"

namespace mithril::emit {

const char* const kThreads = R"text(#ifdef _OPENMP
#include <omp.h>
#define M_PARALLEL _Pragma("omp parallel for schedule(static) num_threads(M_THREADS)")
#define M_THREAD omp_get_thread_num()
#else
#define M_PARALLEL
#define M_THREAD 0
#endif
)text";

const char* const kPlanHead = R"text(M_FN int m_stops(const m_context* context) {
  return context && context->stops && context->stops(context->stops_data);
}
M_FN int m_bad(m_context* context, int step, int what, m_i64 position, m_i64 value, m_i64 bound) {
  if (context) {
    context->step = step;
    context->what = what;
    context->position = position;
    context->value = value;
    context->bound = bound;
  }
  return 1;
}

/* Reductions that take `n` elements which lie side by side; see M_REDUCTION. */
#define M_TAKE_ALL(NAME, T, COMBINE) \
  M_FN void NAME##_take_all(NAME##_state* s, const T* x, int n, int width, m_i64 block) { \
    T lane[16]; \
    int i = 0, l; \
    while (i < n) { \
      if (width != 16 || s->taken % 16 != 0 || n - i < 16) { \
        NAME##_take(s, x[i++], width, block); \
        continue; \
      } \
      if (s->taken == 0) { \
        for (l = 0; l < 16; ++l) lane[l] = x[i + l]; \
        s->taken = 16; \
        i += 16; \
      } else { \
        for (l = 0; l < 16; ++l) lane[l] = s->lane[l]; \
      } \
      for (; n - i >= 16 && s->taken < block; i += 16) { \
        for (l = 0; l < 16; ++l) lane[l] = COMBINE(lane[l], x[i + l]); \
        s->taken += 16; \
      } \
      for (l = 0; l < 16; ++l) s->lane[l] = lane[l]; \
      if (s->taken == block) NAME##_fold(s, width); \
    } \
  }
/* Reductions of rows that threads share; see M_REDUCTION, whose order this is. Thread `l` of 16 adds
   up its lane of a block; the first thread folds the lanes of block number `block`, and joins
   finished blocks: as many wait in `sums`, with what rounding took in `rests`, as their number has
   bits that are set. */
#define M_SHARED_LANES(NAME, T, COMBINE, KEEPS) \
  M_FN void NAME##_lane(M_LOCAL T* lanes, M_LOCAL const T* x, int n, int l, int is_first) { \
    T lane; \
    int i; \
    if (l >= n) return; \
    lane = x[l]; \
    if (!is_first) lane = COMBINE(lanes[l], lane); \
    for (i = l + 16; i < n; i += 16) lane = COMBINE(lane, x[i]); \
    lanes[l] = lane; \
  } \
  M_FN int NAME##_waiting(m_i64 blocks) { \
    int out = 0; \
    for (; blocks != 0; blocks &= blocks - 1) ++out; \
    return out; \
  } \
  M_FN void NAME##_join(M_LOCAL T* sums, M_LOCAL T* rests, int at) { \
    T a = sums[at], b = sums[at + 1], whole = COMBINE(a, b), taken; \
    if (KEEPS) { \
      taken = whole - a; \
      rests[at] = (rests[at] + rests[at + 1]) + ((a - (whole - taken)) + (b - taken)); \
    } \
    sums[at] = whole; \
  } \
  M_FN void NAME##_fold(M_LOCAL T* lanes, int filled, M_LOCAL T* sums, M_LOCAL T* rests, m_i64 block) { \
    int top = NAME##_waiting(block), step, l; \
    for (step = 8; step > 0; step /= 2) \
      for (l = 0; l < step && l + step < filled; ++l) \
        lanes[l] = COMBINE(lanes[l], lanes[l + step]); \
    sums[top] = lanes[0]; \
    rests[top] = 0; \
    for (; (block & 1) != 0; block >>= 1) NAME##_join(sums, rests, --top); \
  } \
  M_FN T NAME##_end(M_LOCAL T* sums, M_LOCAL T* rests, m_i64 blocks) { \
    int top = NAME##_waiting(blocks) - 1; \
    while (top > 0) NAME##_join(sums, rests, --top); \
    return KEEPS && rests[0] != 0 && rests[0] == rests[0] ? sums[0] + rests[0] : sums[0]; \
  }
#define M_TAKE_PLACES(NAME, T) \
  M_FN void NAME##_take_all(NAME##_state* s, const T* x, int n) { \
    int i; \
    for (i = 0; i < n; ++i) NAME##_take(s, x[i]); \
  }

/* Reductions of up to 64 columns at a time, row after row, in blocks of 64 rows. */
#define M_TAKE_ROWS(NAME, T, COMBINE, KEEPS) \
  typedef struct { T sum[64], stack[40][64], rest[40][64]; m_i64 taken, blocks; int top; } NAME##_rows; \
  M_FN void NAME##_begin_rows(NAME##_rows* s) { \
    int j; \
    s->taken = 0; \
    s->blocks = 0; \
    s->top = 0; \
    for (j = 0; j < 64; ++j) s->sum[j] = 0; /* else gcc warns at -O3, without cause */ \
  } \
  M_FN void NAME##_join_rows(NAME##_rows* s, T* sum, T* rest, int n) { \
    int j; \
    --s->top; \
    for (j = 0; j < n; ++j) { \
      T a = s->stack[s->top][j], b = sum[j], whole = COMBINE(a, b), taken; \
      if (KEEPS) { \
        taken = whole - a; \
        rest[j] = (s->rest[s->top][j] + rest[j]) + ((a - (whole - taken)) + (b - taken)); \
      } \
      sum[j] = whole; \
    } \
  } \
  M_FN void NAME##_fold_rows(NAME##_rows* s, int n) { \
    T rest[64]; \
    m_i64 b; \
    int j; \
    for (j = 0; j < 64; ++j) rest[j] = 0; \
    for (b = s->blocks; (b & 1) != 0; b >>= 1) NAME##_join_rows(s, s->sum, rest, n); \
    for (j = 0; j < n; ++j) s->stack[s->top][j] = s->sum[j]; \
    for (j = 0; j < n; ++j) s->rest[s->top][j] = rest[j]; \
    ++s->top; \
    ++s->blocks; \
    s->taken = 0; \
  } \
  M_FN void NAME##_take_row(NAME##_rows* s, const T* x, int n) { \
    int j; \
    if (s->taken == 0) { \
      for (j = 0; j < n; ++j) s->sum[j] = x[j]; \
    } else { \
      for (j = 0; j < n; ++j) s->sum[j] = COMBINE(s->sum[j], x[j]); \
    } \
    if (++s->taken == 64) NAME##_fold_rows(s, n); \
  } \
  M_FN void NAME##_end_rows(NAME##_rows* s, T* out, int n, T identity) { \
    T rest[64]; \
    int j; \
    if (s->taken > 0) NAME##_fold_rows(s, n); \
    if (s->top == 0) { \
      for (j = 0; j < n; ++j) out[j] = identity; \
      return; \
    } \
    --s->top; \
    for (j = 0; j < n; ++j) out[j] = s->stack[s->top][j]; \
    for (j = 0; j < n; ++j) rest[j] = s->rest[s->top][j]; \
    while (s->top > 0) NAME##_join_rows(s, out, rest, n); \
    for (j = 0; KEEPS && j < n; ++j) { \
      out[j] = rest[j] != 0 && rest[j] == rest[j] ? out[j] + rest[j] : out[j]; \
    } \
  }
#define M_TAKE_ROW_PLACES(NAME, T) \
  typedef struct { NAME##_state column[64]; } NAME##_rows; \
  M_FN void NAME##_begin_rows(NAME##_rows* s) { \
    int j; \
    for (j = 0; j < 64; ++j) NAME##_begin(&s->column[j]); \
  } \
  M_FN void NAME##_take_row(NAME##_rows* s, const T* x, int n) { \
    int j; \
    for (j = 0; j < n; ++j) NAME##_take(&s->column[j], x[j]); \
  } \
  M_FN void NAME##_end_rows(NAME##_rows* s, m_i64* out, int n) { \
    int j; \
    for (j = 0; j < n; ++j) out[j] = s->column[j].at; \
  }
)text";

namespace {

struct Element {
  std::string_view suffix, type, fma;
};
constexpr Element kElements[] = {{"f32", "float", "fmaf"},
                                 {"f64", "double", "fma"},
                                 {"u32", "uint32_t", ""},
                                 {"u64", "uint64_t", ""}};

void drop_between(std::string& text, std::string_view begin, std::string_view end) {
  const size_t from = text.find(begin);
  if (from == std::string::npos) return;
  const size_t to = text.find(end, from);
  text.erase(from, to + end.size() - from);
}

// Without what a file needs to be compiled on its own.
std::string bare(std::string_view file) {
  std::string text(kernel_file(file));
  MITHRIL_CHECK(!text.empty(), "no text of a kernel {}", file);
  while (text.find("#include") != std::string::npos) drop_between(text, "#include", "\n");
  drop_between(text, "#ifndef REAL\n", "#endif\n");
  return text;
}

}  // namespace

std::string kernel_text(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return bare(name);
  for (const Element& element : kElements) {
    if (element.suffix != name.substr(dot + 1)) continue;
    return fmt::format(
        "#define REAL {}\n#define FMA {}\n#define NAMED(name) name##_{}\n{}"
        "#undef REAL\n#undef FMA\n#undef NAMED\n",
        element.type, element.fma, element.suffix, bare(name.substr(0, dot)));
  }
  MITHRIL_CHECK(false, "no elements of kernel text {}", name);
}

}  // namespace mithril::emit
