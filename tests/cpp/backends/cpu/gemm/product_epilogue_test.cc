#include "backends/cpu/gemm/product_epilogue.h"

#include <gtest/gtest.h>

#include "backends/cpu/run_program.h"
#include "reference/support.h"
#include "tile/builder.h"

namespace mithril::testing_support {
namespace {

using core::DType;
using cpu::GemmConstant;
using cpu::GemmDims;
using cpu::GemmSource;
using cpu::Isa;

template <class T>
constexpr DType kDType = std::is_same_v<T, float> ? DType::kFloat32 : DType::kFloat64;

// tanh(c * one + bias) + residual * row: operands of every kind.
template <class T>
tile::Program layer_after() {
  tile::Builder t;
  const tile::Reg c = t.load(kDType<T>), bias = t.load(kDType<T>), row = t.load_row(kDType<T>),
                  one = t.load_uniform(kDType<T>), residual = t.load(kDType<T>);
  t.store(t.emit(tile::Opcode::kTanh, {c * one + bias}) + residual * row);
  return t.finish();
}

struct ProductSizes {
  int64_t m, n, k;
  bool right_is_transposed = false;
};

template <class T>
class ProductEpilogues : public ::testing::Test {
 protected:
  // Every set, source and packing: the bits of the reference with the interpreter's loop behind it.
  void check(const ProductSizes& s, int threads = 1) {
    const bool is_column = s.n == 1;
    const int64_t b_row = s.right_is_transposed ? 1 : s.n, b_col = s.right_is_transposed ? s.k : 1;
    const GemmDims d{s.m, s.n, s.k, s.k, 1, b_row, b_col, s.n};
    const Guarded<T> a(s.m * s.k), b(s.k * s.n), bias(is_column ? s.m : s.n), row(s.m), one(1),
        residual(s.m * s.n);
    for (const Guarded<T>* one_of : {&a, &b, &bias, &row, &one, &residual}) {
      fill_random(*one_of, random_);
    }
    const std::vector<T> expected = by_parts(d, a, b, bias, row, one, residual);
    const tile::Program program = layer_after<T>();
    const int64_t bias_row = is_column ? 1 : 0, row_step = is_column ? 0 : 1;
    std::vector<select::Operand> operands(6);
    const std::vector<std::vector<int64_t>> strides = {{s.n, 1}, {bias_row, 1}, {row_step, 0},
                                                       {0, 0},   {s.n, 1},      {s.n, 1}};
    for (size_t k = 0; k < operands.size(); ++k) {
      operands[k].dtype = kDType<T>;
      operands[k].strides = strides[k];
    }
    const select::Epilogue epilogue{program, operands, 0};
    for (const Isa isa : supported_isas()) {
      const auto made = cpu::ProductEpilogue::make(epilogue, 0, is_column, 2, isa).or_throw();
      for (const GemmSource source : {GemmSource::kEmitted, GemmSource::kCompiled}) {
        for (const GemmConstant constant :
             {GemmConstant::kNone, GemmConstant::kLeft, GemmConstant::kRight}) {
          const cpu::Gemm<T> gemm(isa, d, {threads, source, constant});
          const Guarded<T> c(s.m * s.n);
          fill_nan(c);
          run(gemm, constant, made,
              {a.data(), b.data(), c.data(), bias.data(), row.data(), one.data(), residual.data(),
               c.data()});
          ASSERT_EQ(first_difference(c.copy(), expected), -1)
              << name(isa) << (gemm.is_emitted() ? " emitted " : " compiled ")
              << (gemm.packed_size() > 0 ? "packed " : "") << s.m << " " << s.n << " " << s.k
              << " threads " << threads;
        }
      }
    }
  }

 private:
  // The last unit first, each with scratch of its own.
  static void run(const cpu::Gemm<T>& gemm, GemmConstant constant,
                  const cpu::ProductEpilogue& epilogue, std::vector<void*> buffers) {
    const auto* left = static_cast<const T*>(buffers[0]);
    const auto* right = static_cast<const T*>(buffers[1]);
    const Guarded<T> packed(static_cast<size_t>(gemm.packed_size()));
    if (gemm.packed_size() > 0) {
      const T*& operand = constant == GemmConstant::kLeft ? left : right;
      gemm.pack_constant(operand, packed.data());
      operand = packed.data();
    }
    const size_t product_bytes = (gemm.scratch_bytes() + 63) / 64 * 64;
    const cpu::FloatEnvironment environment;
    for (int64_t unit = gemm.units() - 1; unit >= 0; --unit) {
      const Guarded<char> scratch(product_bytes + (epilogue.scratch_bytes() + 63) / 64 * 64);
      const cpu::EpiArgs* args =
          epilogue.prepare(buffers.data(), nullptr, scratch.data() + product_bytes);
      gemm.run(unit, left, right, static_cast<T*>(buffers[2]), {cpu::ProductEpilogue::run<T>, args},
               scratch.data());
    }
  }

  std::vector<T> by_parts(const GemmDims& d, const Guarded<T>& a, const Guarded<T>& b,
                          const Guarded<T>& bias, const Guarded<T>& row, const Guarded<T>& one,
                          const Guarded<T>& residual) {
    std::vector<T> product, biases, rows;
    for (int64_t i = 0; i < d.m; ++i) {
      for (int64_t j = 0; j < d.n; ++j) {
        std::vector<std::pair<T, T>> terms;
        for (int64_t p = 0; p < d.k; ++p) {
          terms.emplace_back(a[i * d.a_row + p], b[p * d.b_row + j * d.b_col]);
        }
        product.push_back(canonical_sum(terms));
        biases.push_back(d.n == 1 ? bias[i] : bias[j]);
        rows.push_back(d.n == 1 ? row[0] : row[i]);
      }
    }
    const auto lanes = [](const std::vector<T>& from) { return cpu::testing::bytes_of(from); };
    tile::Builder t;  // the same with every operand side by side
    const tile::Reg c = t.load(kDType<T>), y = t.load(kDType<T>), r = t.load(kDType<T>),
                    u = t.load_uniform(kDType<T>), z = t.load(kDType<T>);
    t.store(t.emit(tile::Opcode::kTanh, {c * u + y}) + z * r);
    const auto out = cpu::testing::run(
        t.finish(), Isa::kGeneric, {{d.m * d.n}, {}},
        {lanes(product), lanes(biases), lanes(rows), lanes(one.copy()), lanes(residual.copy())});
    return cpu::testing::values_of<T>(out[0]);
  }

  std::mt19937_64 random_{21};
};

TYPED_TEST_SUITE(ProductEpilogues, Reals);

TYPED_TEST(ProductEpilogues, TailsEqualSeparateSteps) {
  for (int64_t n = 1; n <= 130 && !this->HasFailure(); n += n < 34 ? 1 : 3) {
    this->check({1 + n % 30, n, 5});
  }
  for (int64_t m = 1; m <= 130 && !this->HasFailure(); m += 3) this->check({m, 19, 9});
}

TYPED_TEST(ProductEpilogues, SingleColumnsAndTransposedOperands) {
  for (const int64_t m : {1, 2, 15, 16, 40, 5000}) this->check({m, 1, 7});
  for (const int64_t m : {1, 8, 9, 31, 50}) this->check({m, 275, 30, true});
}

// Blocks within a unit, several blocks of k, groups of rows, units of several threads.
TYPED_TEST(ProductEpilogues, LargeOnes) {
  for (const int threads : {1, 2, 3}) {
    this->check({150, 300, 520}, threads);
    this->check({300, 70, 40}, threads);
    this->check({45, 300, 600, true}, threads);
    this->check({900, 1, 300}, threads);
    this->check({1, 700, 300}, threads);
  }
  this->check({700, 40, 700});
}

}  // namespace
}  // namespace mithril::testing_support
