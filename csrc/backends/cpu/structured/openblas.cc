#include "backends/cpu/structured/openblas.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <dlfcn.h>
#include <filesystem>
#include <mutex>
#include <type_traits>

namespace mithril::cpu {

namespace {

constexpr int kRowMajor = 101;
constexpr int kNoTranspose = 111;
constexpr int kTranspose = 112;

core::Error unavailable(const std::string& path, std::string_view why) {
  return core::fail(core::ErrorKind::kDevice, core::Code::kDevice,
                    "openblas: a usable library is required, got '{}': {}", path, why);
}

template <class Fn>
Fn find(void* library, const std::string& name) {
  void* symbol = dlsym(library, ("scipy_" + name).c_str());
  if (symbol == nullptr) symbol = dlsym(library, name.c_str());
  return reinterpret_cast<Fn>(symbol);
}

/// Finds the functions whose names have this letter for the type; false if one is missing.
template <class T>
bool find_all(void* library, char letter, OpenBlasRoutines<T>& to) {
  bool all = true;
  const auto get = [&](auto& routine, std::string before, const char* after) {
    routine = find<std::remove_reference_t<decltype(routine)>>(library, before + letter + after);
    all = all && routine != nullptr;
  };
  get(to.gemm, "cblas_", "gemm");
  get(to.trsm, "cblas_", "trsm");
  get(to.potrf, "", "potrf_");
  get(to.getrf, "", "getrf_");
  get(to.getrs, "", "getrs_");
  get(to.geqrf, "", "geqrf_");
  get(to.orgqr, "", "orgqr_");
  get(to.syevd, "", "syevd_");
  get(to.gesdd, "", "gesdd_");
  return all;
}

core::Result<OpenBlas> load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return unavailable(path, why == nullptr ? "it cannot be opened" : why);
  }
  OpenBlas blas{};
  const auto set_threads = find<void (*)(int)>(library, "openblas_set_num_threads");
  if (!find_all(library, 's', blas.f32) || !find_all(library, 'd', blas.f64) ||
      set_threads == nullptr) {
    dlclose(library);
    return unavailable(path, "it lacks the functions of OpenBLAS with 32-bit sizes");
  }
  set_threads(1);
  return blas;
}

// How one operand is handed over: its transpose flag and leading dimension.
struct Operand {
  int transpose;
  int leading;
};

bool has_unit_stride(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  const auto dense = [](int64_t count, int64_t inner, int64_t stride) {
    return count <= 1 || (stride >= std::max<int64_t>(inner, 1) && stride <= INT_MAX);
  };
  if ((col == 1 || cols <= 1) && dense(rows, cols, row)) return true;
  return (row == 1 || rows <= 1) && dense(cols, rows, col);
}

Operand operand(int64_t rows, int64_t cols, int64_t row, int64_t col) {
  const bool by_rows = (col == 1 || cols <= 1) && (rows <= 1 || row >= cols);
  const int64_t inner = std::max<int64_t>(by_rows ? cols : rows, 1);
  const int64_t stride = by_rows ? (rows <= 1 ? inner : row) : (cols <= 1 ? inner : col);
  return {by_rows ? kNoTranspose : kTranspose, static_cast<int>(std::max(stride, inner))};
}

template <class T, class Gemm>
void multiply(Gemm gemm, const GemmDims& dims, const T* a, const T* b, T* c, const GemmRange& range,
              const Epilogue<T>& epilogue) {
  const int64_t rows = range.row_end - range.row_begin, cols = range.col_end - range.col_begin;
  if (rows <= 0 || cols <= 0) return;
  T* out = c + range.row_begin * dims.c_row + range.col_begin;
  if (dims.k == 0) {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(out + i * dims.c_row, cols, T{0});
  } else {
    const Operand left = operand(dims.m, dims.k, dims.a_row, dims.a_col);
    const Operand right = operand(dims.k, dims.n, dims.b_row, dims.b_col);
    const int64_t c_row = std::max(dims.c_row, dims.n);  // of a single row it may be anything
    gemm(kRowMajor, left.transpose, right.transpose, static_cast<int>(rows), static_cast<int>(cols),
         static_cast<int>(dims.k), T{1}, a + range.row_begin * dims.a_row, left.leading,
         b + range.col_begin * dims.b_col, right.leading, T{0}, out, static_cast<int>(c_row));
  }
  if (epilogue.run == nullptr) return;
  epilogue.run(epilogue.args, out, dims.c_row, rows, cols, range.row_begin, range.col_begin);
}

std::atomic<const OpenBlas*> opened{nullptr};

/// The library in the folder `_openblas` beside the one that this code lies in; "" if none is.
std::string vendored_path() {
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&vendored_openblas), &here) == 0) return "";
  const auto folder = std::filesystem::path(here.dli_fname).parent_path() / "_openblas";
  std::error_code none;
  for (const auto& file : std::filesystem::directory_iterator(folder, none)) {
    if (file.path().filename().string().starts_with("libscipy_openblas")) return file.path();
  }
  return "";
}

}  // namespace

core::Result<const OpenBlas*> open_openblas(const std::string& path) {
  static std::mutex mutex;
  if (const OpenBlas* found = opened.load(std::memory_order_acquire)) return found;
  const std::lock_guard lock(mutex);
  if (const OpenBlas* found = opened.load(std::memory_order_acquire)) return found;
  MITHRIL_ASSIGN(const OpenBlas blas, load(path));
  opened.store(new OpenBlas(blas), std::memory_order_release);
  return opened.load(std::memory_order_acquire);
}

const OpenBlas* vendored_openblas() {
  if (const OpenBlas* found = opened.load(std::memory_order_acquire)) return found;
  static const bool is_there = open_openblas(vendored_path()).ok();
  return is_there ? opened.load(std::memory_order_acquire) : nullptr;
}

bool fits_openblas(const GemmDims& d) {
  if (std::max({d.m, d.n, d.k}) > INT_MAX) return false;
  if (d.m > 1 && (d.c_row < d.n || d.c_row > INT_MAX)) return false;
  return d.k == 0 || (has_unit_stride(d.m, d.k, d.a_row, d.a_col) &&
                      has_unit_stride(d.k, d.n, d.b_row, d.b_col));
}

void openblas_gemm(const OpenBlas& blas, const GemmDims& dims, const float* a, const float* b,
                   float* c, const GemmRange& range, const Epilogue<float>& epilogue) {
  multiply(blas.f32.gemm, dims, a, b, c, range, epilogue);
}

void openblas_gemm(const OpenBlas& blas, const GemmDims& dims, const double* a, const double* b,
                   double* c, const GemmRange& range, const Epilogue<double>& epilogue) {
  multiply(blas.f64.gemm, dims, a, b, c, range, epilogue);
}

}  // namespace mithril::cpu
