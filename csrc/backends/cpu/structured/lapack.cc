#include "backends/cpu/structured/lapack.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mithril::cpu {
namespace {

// Of CBLAS.
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;
constexpr int kUpper = 121, kLower = 122, kAnyDiagonal = 131, kLeft = 141;

constexpr int64_t kTile = 16;  // of matrices that are read along rows and written along columns

/// Writes the transpose of `rows` rows of `cols` elements.
template <class T>
void transpose(int64_t rows, int64_t cols, const T* from, T* to) {
  for (int64_t i0 = 0; i0 < rows; i0 += kTile) {
    for (int64_t j0 = 0; j0 < cols; j0 += kTile) {
      for (int64_t i = i0; i < std::min(i0 + kTile, rows); ++i) {
        for (int64_t j = j0; j < std::min(j0 + kTile, cols); ++j) {
          to[j * rows + i] = from[i * cols + j];
        }
      }
    }
  }
}

/// Writes the lower triangle of (from + from^T) / 2, and zeros above it.
template <class T>
void write_symmetric_half(int64_t n, const T* from, T* to) {
  for (int64_t i0 = 0; i0 < n; i0 += kTile) {
    for (int64_t j0 = 0; j0 < n; j0 += kTile) {
      for (int64_t i = i0; i < std::min(i0 + kTile, n); ++i) {
        for (int64_t j = j0; j < std::min(j0 + kTile, n); ++j) {
          to[i * n + j] = j > i ? T{0} : (from[i * n + j] + from[j * n + i]) * T{0.5};
        }
      }
    }
  }
}

template <class T>
bool is_finite(int64_t count, const T* x) {
  T sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i] * 0;
  return sum == 0;
}

template <class T>
void fill_nan(int64_t count, T* to) {
  std::fill_n(to, count, std::numeric_limits<T>::quiet_NaN());
}

/// The place of whole numbers among elements: behind `elements` of them.
template <class T>
int* integers_at(T* work, int64_t elements) {
  return reinterpret_cast<int*>(work + elements);
}

/// Reads the size that a routine asks for: of float, rounded up.
template <class T>
int64_t size_from(T told) {
  return static_cast<int64_t>(static_cast<double>(told) * (1 + 0x1p-22)) + 1;
}

/// Counts the elements of the scratch memory from `place` on.
template <class T>
int rest_of(const LapackCall<T>& call, const T* place) {
  return static_cast<int>(call.work_size - (place - call.work));
}

/// Factors the matrix in `a` by rows with the largest pivots. Returns the sign of the exchanges; 0
/// where a column has no pivot.
template <class T>
int factor(const OpenBlas& blas, int n, T* a, int* pivots) {
  int info = 0, sign = 1;
  blas.of<T>().getrf(&n, &n, a, &n, pivots, &info);
  if (info != 0) return 0;
  for (int i = 0; i < n; ++i) sign = pivots[i] == i + 1 ? sign : -sign;
  return sign;
}

/// Tells whether the component of the largest magnitude, the first of equals, is negative.
template <class T>
bool points_down(int64_t n, const T* x) {
  int64_t largest = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (std::abs(x[i]) > std::abs(x[largest])) largest = i;
  }
  return x[largest] < 0;
}

}  // namespace

template <class T>
LapackResult Lapack<T>::cholesky(const OpenBlas& blas, const LapackCall<T>& call) {
  const int n = call.n;
  T* to = call.out[0];
  write_symmetric_half(n, call.in[0], to);
  int info = 0;
  blas.of<T>().potrf("U", &n, to, &n, &info, 1);  // rows are its columns
  bool is_good = info == 0;
  for (int64_t i = 0; i < n; ++i) is_good = is_good && to[i * n + i] > 0;  // NaN is not
  return is_good ? LapackResult::kOk : LapackResult::kBadMatrix;
}

template <class T>
LapackResult Lapack<T>::solve_triangular(const OpenBlas& blas, const LapackCall<T>& call) {
  for (int64_t row = 0; row < call.n; ++row) {
    std::copy_n(call.in[1] + row * call.stride, call.k, call.out[0] + row * call.stride);
  }
  blas.of<T>().trsm(kRowMajor, kLeft, call.lower ? kLower : kUpper,
                    call.transposed ? kTranspose : kNoTranspose, kAnyDiagonal, call.n, call.k, T{1},
                    call.in[0], call.n, call.out[0], call.stride);
  return LapackResult::kOk;
}

template <class T>
int64_t Lapack<T>::solve_work(const OpenBlas&, int64_t n, int64_t k) {
  return n * n + n * k + n;
}

template <class T>
LapackResult Lapack<T>::solve(const OpenBlas& blas, const LapackCall<T>& call) {
  const int n = call.n, k = call.k;
  T *a = call.work, *b = a + int64_t{n} * n;
  int* pivots = integers_at(b, int64_t{n} * k);
  transpose(n, n, call.in[0], a);
  transpose(n, k, call.in[1], b);
  if (factor(blas, n, a, pivots) == 0) return LapackResult::kBadMatrix;
  int info = 0;
  blas.of<T>().getrs("N", &n, &k, a, &n, pivots, b, &n, &info, 1);
  transpose(k, n, b, call.out[0]);
  return LapackResult::kOk;
}

template <class T>
int64_t Lapack<T>::det_work(const OpenBlas&, int64_t n, int64_t) {
  return n * n + n;
}

template <class T>
LapackResult Lapack<T>::det(const OpenBlas& blas, const LapackCall<T>& call) {
  const int64_t n = call.n;
  std::copy_n(call.in[0], n * n, call.work);
  T product = static_cast<T>(factor(blas, call.n, call.work, integers_at(call.work, n * n)));
  for (int64_t i = 0; product != 0 && i < n; ++i) product *= call.work[i * n + i];
  call.out[0][0] = product;
  return LapackResult::kOk;
}

template <class T>
LapackResult Lapack<T>::scaled_det(const OpenBlas& blas, const LapackCall<T>& call) {
  const int64_t n = call.n;
  std::copy_n(call.in[0], n * n, call.work);
  double part = factor(blas, call.n, call.work, integers_at(call.work, n * n)), shift = 0;
  for (int64_t i = -1; part != 0 && i < n; ++i) {
    int by = 0;
    part = std::frexp(i < 0 ? part : part * static_cast<double>(call.work[i * n + i]), &by);
    shift += by;
  }
  call.out[0][0] = static_cast<T>(part);
  call.out[1][0] = static_cast<T>(shift);
  return LapackResult::kOk;
}

template <class T>
int64_t Lapack<T>::eigh_work(const OpenBlas&, int64_t n, int64_t) {
  return n * n + (1 + 6 * n + 2 * n * n) + (3 + 5 * n);
}

template <class T>
LapackResult Lapack<T>::eigh(const OpenBlas& blas, const LapackCall<T>& call) {
  const int n = call.n;
  const int64_t size = int64_t{n} * n;
  const int work_size = 1 + 6 * n + 2 * n * n, integer_size = 3 + 5 * n;
  T *a = call.work, *values = call.out[0], *vectors = call.out[1];
  write_symmetric_half(n, call.in[0], a);
  if (!is_finite(size, a)) {
    fill_nan(n, values);
    fill_nan(size, vectors);
    return LapackResult::kOk;
  }
  int info = 0;
  blas.of<T>().syevd("V", "U", &n, a, &n, values, a + size, &work_size,
                     integers_at(a, size + work_size), &integer_size, &info, 1, 1);
  if (info != 0) return LapackResult::kNotConverged;
  for (int64_t j = 0; j < n; ++j) {
    T* vector = a + j * n;
    if (!points_down(n, vector)) continue;
    for (int64_t i = 0; i < n; ++i) vector[i] = -vector[i];
  }
  transpose(n, n, a, vectors);
  return LapackResult::kOk;
}

template <class T>
int64_t Lapack<T>::qr_work(const OpenBlas& blas, int64_t n, int64_t k) {
  const int rows = static_cast<int>(n), cols = static_cast<int>(k), p = std::min(rows, cols);
  const int ask = -1;
  int info = 0;
  T first = 0, second = 0, none = 0;
  blas.of<T>().geqrf(&rows, &cols, &none, &rows, &none, &first, &ask, &info);
  blas.of<T>().orgqr(&rows, &p, &p, &none, &rows, &none, &second, &ask, &info);
  return n * k + 2 * p + size_from(std::max(first, second));
}

template <class T>
LapackResult Lapack<T>::qr(const OpenBlas& blas, const LapackCall<T>& call) {
  const int n = call.n, k = call.k, p = std::min(n, k);
  T *a = call.work, *tau = a + int64_t{n} * k, *signs = tau + p, *work = signs + p;
  const int work_size = rest_of(call, work);
  transpose(n, k, call.in[0], a);
  int info = 0;
  blas.of<T>().geqrf(&n, &k, a, &n, tau, work, &work_size, &info);
  for (int64_t i = 0; i < p; ++i) signs[i] = a[i * n + i] < 0 ? T{-1} : T{1};
  T* r = call.out[1];
  for (int64_t c0 = 0; c0 < k; c0 += kTile) {
    for (int64_t i = 0; i < p; ++i) {
      for (int64_t c = c0; c < std::min<int64_t>(c0 + kTile, k); ++c) {
        r[i * k + c] = c < i ? T{0} : signs[i] * a[c * n + i];
      }
    }
  }
  blas.of<T>().orgqr(&n, &p, &p, a, &n, tau, work, &work_size, &info);
  for (int64_t i = 0; i < p; ++i) {
    if (signs[i] > 0) continue;
    for (int64_t j = 0; j < n; ++j) a[i * n + j] = -a[i * n + j];
  }
  transpose(p, n, a, call.out[0]);
  return LapackResult::kOk;
}

template <class T>
int64_t Lapack<T>::svd_work(const OpenBlas& blas, int64_t n, int64_t k) {
  const int rows = static_cast<int>(k), cols = static_cast<int>(n), p = std::min(rows, cols);
  const int ask = -1;
  int info = 0, integers = 0;
  T told = 0, none = 0;
  blas.of<T>().gesdd("S", &rows, &cols, &none, &rows, &none, &none, &rows, &none, &p, &told, &ask,
                     &integers, &info, 1);
  return n * k + 8 * int64_t{p} + size_from(told);
}

/// Takes the factors of x^T = V S U^T, which LAPACK sees: its left vectors are the rows of V^T.
template <class T>
LapackResult Lapack<T>::svd(const OpenBlas& blas, const LapackCall<T>& call) {
  const int n = call.n, k = call.k, p = std::min(n, k);
  const int64_t size = int64_t{n} * k;
  T *u = call.out[0], *values = call.out[1], *vt = call.out[2];
  if (!is_finite(size, call.in[0])) {
    fill_nan(int64_t{n} * p, u);
    fill_nan(p, values);
    fill_nan(int64_t{p} * k, vt);
    return LapackResult::kOk;
  }
  std::copy_n(call.in[0], size, call.work);
  T* work = call.work + size + 8 * int64_t{p};
  const int work_size = rest_of(call, work);
  int info = 0;
  blas.of<T>().gesdd("S", &k, &n, call.work, &k, values, vt, &k, u, &p, work, &work_size,
                     integers_at(call.work, size), &info, 1);
  if (info != 0) return LapackResult::kNotConverged;
  // The largest component of each left vector becomes positive; u's columns lie across rows.
  T* largest = call.work;
  std::fill_n(largest, p, T{0});
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < p; ++j) {
      if (std::abs(u[i * p + j]) > std::abs(largest[j])) largest[j] = u[i * p + j];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < p; ++j) u[i * p + j] = largest[j] < 0 ? -u[i * p + j] : u[i * p + j];
  }
  for (int64_t j = 0; j < p; ++j) {
    for (int64_t c = 0; largest[j] < 0 && c < k; ++c) vt[j * k + c] = -vt[j * k + c];
  }
  return LapackResult::kOk;
}

template struct Lapack<float>;
template struct Lapack<double>;

}  // namespace mithril::cpu
