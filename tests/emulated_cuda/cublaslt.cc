// A stand-in for libcublasLt: products of matrices by loops on the host, when the emulated stream
// comes to them. A test double, no part of mithril. Sums are made from their ends, so that they are
// not those of mithril's kernels; what the real library refuses, or reads wrongly, is refused.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "library.h"

namespace {

enum Status { kSuccess = 0, kInvalidValue = 7, kNotSupported = 15 };
enum {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBfloat16 = 14,
  kCompute32 = 68,
  kCompute64 = 70,
  kComputeTf32 = 77
};
constexpr unsigned kAddsBias = 4;
constexpr size_t kWorkspace = 512;  // of sums that are made in parts
constexpr uint64_t kLong = 64;      // places of such a sum

struct Operation {
  int compute = 0, scale = 0;
  int32_t turns_a = 0, turns_b = 0;
  uint32_t epilogue = 1;
  uint64_t bias = 0;
};
struct Layout {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t between = 0;
  int32_t batches = 1;
  int64_t stride = 0;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignment[4] = {256, 256, 256, 256};
};
struct Algorithm {  // what is noted in the algorithm that is given out
  uint64_t is_ours, alignment[4], bias_alignment, workspace, unused;
};
constexpr uint64_t kIsOurs = 0x6d697468;
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
template <class T>
int set(T& to, const void* from, size_t size) {
  if (from == nullptr || size != sizeof to) return kInvalidValue;
  std::memcpy(&to, from, size);
  return kSuccess;
}

size_t size_of(int type) {
  switch (type) {
    case kFloat32: return 4;
    case kFloat64: return 8;
    case kFloat16:
    case kBfloat16: return 2;
    default: return 0;
  }
}

bool is_half(int type) { return type == kFloat16 || type == kBfloat16; }

// Whether there is a product of factors of one type with a result of another.
bool gives(int factor, int result) {
  return size_of(factor) > 0 && (result == factor || (is_half(factor) && result == kFloat32));
}

// Whether the operands fit each other.
bool fits(const Operation& o, const Layout& a, const Layout& b, const Layout& c) {
  const uint64_t m = o.turns_a ? a.columns : a.rows, k = o.turns_a ? a.rows : a.columns;
  const uint64_t k_b = o.turns_b ? b.columns : b.rows, n = o.turns_b ? b.rows : b.columns;
  const bool is_double = o.compute == kCompute64;
  if (is_double != (c.type == kFloat64) || a.type != b.type || !gives(a.type, c.type)) return false;
  for (const Layout* layout : {&a, &b, &c}) {
    const bool is_matrix = layout->rows > 0 && layout->columns > 0 &&
                           layout->between >= static_cast<int64_t>(layout->rows);
    if (!is_matrix || layout->batches != c.batches) return false;
    if (layout->batches < 1) return false;
  }
  const bool is_known =
      o.compute == kCompute32 || o.compute == kComputeTf32 || o.compute == kCompute64;
  return is_known && o.scale == (is_double ? kFloat64 : kFloat32) && k == k_b && m == c.rows &&
         n == c.columns && (o.epilogue == 1 || o.epilogue == kAddsBias);
}

// Bytes from the first element of a matrix to behind its last one, of all batches.
size_t extent(const Layout& l) {
  const auto last = static_cast<uint64_t>((l.batches - 1) * l.stride) +
                    (l.columns - 1) * static_cast<uint64_t>(l.between) + l.rows;
  return last * size_of(l.type);
}

// Names the memory of a product's operands and its result, and says whether C is added.
struct Places {
  uint64_t a, b, c, d;
  bool adds_c;
};

// Factors of type T, sums of type Sum, C and results of type R.
template <class T, class R, class Sum>
void multiply(const Operation& o, const Layout& la, const Layout& lb, const Layout& lc,
              const Places& places) {
  const auto [a, b, c, d, adds_c] = places;
  const bool rounds = o.compute == kComputeTf32 && la.type == kFloat32;
  const auto at = [&](const Layout& l, uint64_t base, int32_t batch, uint64_t row, uint64_t column,
                      bool turns) {
    const uint64_t i = turns ? column : row, j = turns ? row : column;
    auto value = static_cast<Sum>(reinterpret_cast<const T*>(
        base)[batch * l.stride + static_cast<int64_t>(i) + static_cast<int64_t>(j) * l.between]);
    if constexpr (sizeof(Sum) == 4) {
      if (rounds) value = as_tf32(value);
    }
    return value;
  };
  const uint64_t k = o.turns_a ? la.rows : la.columns;
  for (int32_t batch = 0; batch < lc.batches; ++batch) {
    for (uint64_t j = 0; j < lc.columns; ++j) {
      for (uint64_t i = 0; i < lc.rows; ++i) {
        Sum sum = 0;
        for (uint64_t p = k; p-- > 0;) {
          sum = std::fma(at(la, a, batch, i, p, o.turns_a), at(lb, b, batch, p, j, o.turns_b), sum);
        }
        const int64_t at =
            batch * lc.stride + static_cast<int64_t>(i) + static_cast<int64_t>(j) * lc.between;
        if (adds_c) sum += static_cast<Sum>(reinterpret_cast<const R*>(c)[at]);
        if (o.epilogue == kAddsBias) {
          sum += static_cast<Sum>(reinterpret_cast<const R*>(o.bias)[i]);
        }
        reinterpret_cast<R*>(d)[at] = static_cast<R>(sum);
      }
    }
  }
}

template <class Half>
void multiply_halves(const Operation& o, const Layout& la, const Layout& lb, const Layout& lc,
                     const Places& places) {
  if (lc.type == kFloat32) return multiply<Half, float, float>(o, la, lb, lc, places);
  multiply<Half, Half, float>(o, la, lb, lc, places);
}

void multiply_any(const Operation& o, const Layout& la, const Layout& lb, const Layout& lc,
                  const Places& places) {
  switch (la.type) {
    case kFloat64: return multiply<double, double, double>(o, la, lb, lc, places);
    case kFloat16: return multiply_halves<_Float16>(o, la, lb, lc, places);
    case kBfloat16: return multiply_halves<Bfloat16>(o, la, lb, lc, places);
    default: return multiply<float, float, float>(o, la, lb, lc, places);
  }
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return 120803; }
int cublasLtCreate(void** handle) {
  if (!has_context()) return 1;
  static int one = 0;
  *handle = &one;
  return kSuccess;
}
int cublasLtMatmulDescCreate(Operation** out, int compute, int scale) {
  *out = new Operation{compute, scale};
  return kSuccess;
}
int cublasLtMatmulDescDestroy(Operation* operation) {
  delete operation;
  return kSuccess;
}
int cublasLtMatmulDescSetAttribute(Operation* o, int which, const void* from, size_t size) {
  switch (which) {
    case 3: return set(o->turns_a, from, size);
    case 4: return set(o->turns_b, from, size);
    case 7: return set(o->epilogue, from, size);
    case 8: return set(o->bias, from, size);
    default: return kInvalidValue;
  }
}
int cublasLtMatrixLayoutCreate(Layout** out, int type, uint64_t rows, uint64_t columns,
                               int64_t between) {
  *out = new Layout{type, rows, columns, between};
  return kSuccess;
}
int cublasLtMatrixLayoutDestroy(Layout* layout) {
  delete layout;
  return kSuccess;
}
int cublasLtMatrixLayoutSetAttribute(Layout* layout, int which, const void* from, size_t size) {
  switch (which) {
    case 5: return set(layout->batches, from, size);
    case 6: return set(layout->stride, from, size);
    default: return kInvalidValue;
  }
}
int cublasLtMatmulPreferenceCreate(Preference** out) {
  *out = new Preference();
  return kSuccess;
}
int cublasLtMatmulPreferenceDestroy(Preference* preference) {
  delete preference;
  return kSuccess;
}
int cublasLtMatmulPreferenceSetAttribute(Preference* p, int which, const void* from, size_t size) {
  switch (which) {
    case 1: return set(p->workspace, from, size);
    case 3: return set(p->reductions, from, size);
    case 5:
    case 6:
    case 7:
    case 8: return set(p->alignment[which - 5], from, size);
    default: return kInvalidValue;
  }
}
int cublasLtMatmulAlgoGetHeuristic(void* handle, const Operation* o, const Layout* a,
                                   const Layout* b, const Layout* c, const Layout* d,
                                   const Preference* preference, int wanted, Heuristic* out,
                                   int* count) {
  *count = 0;
  if (handle == nullptr || c != d || wanted < 1) return kInvalidValue;
  if (!fits(*o, *a, *b, *c)) return kNotSupported;
  const uint64_t places = o->turns_a ? a->rows : a->columns;
  uint64_t workspace = places >= kLong ? kWorkspace : 0;
  if (workspace > preference->workspace || (preference->reductions & 2) == 0) workspace = 0;
  const uint64_t of_bias = o->bias == 0 ? 256 : o->bias & (~o->bias + 1);
  const size_t sizes[] = {size_of(a->type), size_of(b->type), size_of(c->type), size_of(d->type)};
  *out = {};
  out->algorithm = {kIsOurs, {}, of_bias, workspace, 0};
  for (size_t i = 0; i < std::size(sizes); ++i) {
    out->algorithm.alignment[i] = preference->alignment[i];
    if (preference->alignment[i] < sizes[i]) return kInvalidValue;
  }
  if (o->epilogue == kAddsBias && of_bias < size_of(d->type)) return kInvalidValue;
  out->workspace = workspace;
  *count = 1;
  return kSuccess;
}
int cublasLtMatmul(void* handle, const Operation* o, const void* alpha, uint64_t a,
                   const Layout* la, uint64_t b, const Layout* lb, const void* beta, uint64_t c,
                   const Layout* lc, uint64_t d, const Layout* ld, const Algorithm* algorithm,
                   uint64_t workspace, size_t workspace_size, Stream* stream) {
  if (!has_context() || handle == nullptr || stream == nullptr) return kInvalidValue;
  if (!fits(*o, *la, *lb, *lc) || lc != ld) return kInvalidValue;
  if (algorithm->is_ours != kIsOurs || workspace_size < algorithm->workspace) return kInvalidValue;
  if (algorithm->workspace > 0 && !is_ours(workspace, workspace_size)) return kInvalidValue;
  const uint64_t places[] = {a, b, c, d};
  for (size_t i = 0; i < std::size(places); ++i) {
    if (places[i] % algorithm->alignment[i] != 0) return kInvalidValue;
  }
  const bool is_double = o->compute == kCompute64;
  const bool adds_c = is_number(beta, is_double, 1);
  if (!is_number(alpha, is_double, 1) || (!adds_c && !is_number(beta, is_double, 0))) {
    return kInvalidValue;
  }
  if (!is_ours(a, extent(*la)) || !is_ours(b, extent(*lb)) || !is_ours(d, extent(*ld)) ||
      (adds_c && !is_ours(c, extent(*lc)))) {
    return kInvalidValue;
  }
  // C may be D; where the two overlap otherwise, the real library reads what it has written.
  const bool is_apart = c == d || c + extent(*lc) <= d || d + extent(*ld) <= c;
  if (adds_c && !is_apart) return kInvalidValue;
  if (o->epilogue == kAddsBias) {
    const size_t size = lc->rows * size_of(lc->type);
    if (o->bias % algorithm->bias_alignment != 0 || !is_ours(o->bias, size)) return kInvalidValue;
  }
  // The descriptions may be gone, or others, when the stream comes to it.
  give(stream, [=, o = *o, la = *la, lb = *lb, lc = *lc] {
    multiply_any(o, la, lb, lc, {a, b, c, d, adds_c});
  });
  return kSuccess;
}
}
