#include "backends/cpu/structured/openblas.h"

#include <filesystem>

#include "reference/support.h"

namespace mithril::testing_support {
namespace {

// The library that the build vendors, or the one of the Python package it comes from.
std::string find_library() {
  const std::filesystem::path root =
      std::filesystem::path(MITHRIL_TEST_DATA).parent_path().parent_path();
  std::vector<std::filesystem::path> folders = {root / "python/mithril/_openblas"};
  std::error_code none;
  for (const auto& python : std::filesystem::directory_iterator(root / ".venv/lib", none)) {
    folders.push_back(python.path() / "site-packages/scipy_openblas32/lib");
  }
  for (const auto& folder : folders) {
    for (const auto& file : std::filesystem::directory_iterator(folder, none)) {
      if (file.path().filename().string().starts_with("libscipy_openblas")) return file.path();
    }
  }
  return "";
}

// Runs first: the first library that opens stays.
TEST(OpenBlas, MissingLibraryIsATypedError) {
  for (const char* path : {"/nowhere/libscipy_openblas.so", "/dev/null", "libm.so.6"}) {
    auto result = cpu::open_openblas(path);
    ASSERT_FALSE(result.ok()) << path;
    EXPECT_EQ(result.error().kind, core::ErrorKind::kDevice);
    EXPECT_NE(result.error().message.find(path), std::string::npos);
  }
}

TEST(OpenBlas, AgreesWithTheReferenceWithinABound) {
  const std::string path = find_library();
  if (path.empty()) GTEST_SKIP() << "no OpenBLAS in this tree";
  const cpu::OpenBlas* blas = cpu::open_openblas(path).or_throw();
  EXPECT_EQ(cpu::open_openblas("/nowhere").or_throw(), blas);
  std::mt19937_64 random(10);
  for (const auto& [m, n, k] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                                {3, 5, 7},
                                {1, 40, 30},
                                {40, 1, 30},
                                {33, 65, 129},
                                {4, 4, 0}}) {
    for (int layout = 0; layout < 4; ++layout) {
      cpu::GemmDims d{m, n, k, k, 1, n, 1, n};
      if ((layout & 1) != 0) d.a_row = 1, d.a_col = m;
      if ((layout & 2) != 0) d.b_row = 1, d.b_col = k;
      ASSERT_TRUE(cpu::fits_openblas(d));
      const Guarded<double> a(m * k), b(k * n), c(m * n);
      fill_random(a, random);
      fill_random(b, random);
      fill_nan(c);
      for (const int64_t row : {int64_t{0}, m / 2}) {  // two ranges, as two threads would
        const cpu::GemmRange range{row, row == 0 ? (m < 2 ? m : m / 2) : m, 0, n};
        cpu::openblas_gemm(*blas, d, a.data(), b.data(), c.data(), range, {});
      }
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double exact = 0;
          for (int64_t p = 0; p < k; ++p) {
            exact += a[i * d.a_row + p * d.a_col] * b[p * d.b_row + j * d.b_col];
          }
          ASSERT_NEAR(c[i * n + j], exact, 1e-12 * (static_cast<double>(k) + 1));
        }
      }
    }
  }
}

TEST(OpenBlas, RunsTheEpilogueOnItsRange) {
  const std::string path = find_library();
  if (path.empty()) GTEST_SKIP() << "no OpenBLAS in this tree";
  const cpu::OpenBlas* blas = cpu::open_openblas(path).or_throw();
  const float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
  float c[4] = {};
  cpu::Epilogue<float> epilogue;
  epilogue.run = [](const cpu::EpiArgs*, float* tile, int64_t ldt, int64_t rows, int64_t cols,
                    int64_t row0, int64_t col0) {
    EXPECT_EQ(ldt, 2);
    EXPECT_EQ(row0, 1);
    EXPECT_EQ(col0, 0);
    for (int64_t i = 0; i < rows * cols; ++i) tile[i] = -tile[i];
  };
  cpu::openblas_gemm(*blas, {2, 2, 2, 2, 1, 2, 1, 2}, a, b, c, {1, 2, 0, 2}, epilogue);
  EXPECT_EQ(std::vector<float>(c, c + 4), (std::vector<float>{0, 0, -43, -50}));
}

TEST(OpenBlas, StridesThatItCannotTakeAreRefused) {
  const cpu::GemmDims dense{4, 5, 6, 6, 1, 5, 1, 5};
  EXPECT_TRUE(cpu::fits_openblas(dense));
  for (const auto& [row, col] : {std::pair<int64_t, int64_t>{12, 2}, {-6, 1}, {0, 1}, {3, 1}}) {
    cpu::GemmDims d = dense;
    d.a_row = row, d.a_col = col;
    EXPECT_FALSE(cpu::fits_openblas(d)) << row << " " << col;
  }
  cpu::GemmDims huge = dense;
  huge.k = int64_t{1} << 31;
  EXPECT_FALSE(cpu::fits_openblas(huge));
  huge = dense;
  huge.c_row = 4;
  EXPECT_FALSE(cpu::fits_openblas(huge));
}

}  // namespace
}  // namespace mithril::testing_support
