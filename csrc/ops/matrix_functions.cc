// Functions of matrices, the last two axes: traces, powers, exponentials, least squares, the
// logarithms of determinants.
#include <cmath>

#include "ir/region.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

using ir::Graph;

/// The rule of an op that makes a square matrix of one.
void keep_square(RuleBuilder& r) {
  r.shape(r.in("input"), "... n n");
  r.shape(r.out(), "... n n");
}

// --- traces -------------------------------------------------------------------------------------

void define_trace(OpFamily& ops) {
  ops.def("trace")
      .python("Trace")
      .doc(
          "The sum of the diagonal of matrices: [..., n, k] -> [...]; 0 without elements. As "
          "`Sum`, "
          "it sums integers in the default integer.")
      .formula("y = \\sum_i x_{ii}")
      .input("input", kNumeric)
      .output("output", computed())
      .promote_int()
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n k");
        r.shape(r.out(), "...");
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const auto [row, column] = rows_and_columns(x);
        return sum(where(equal(row, column), x, 0.0), HostValue::ints({-2, -1}));
      })
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 3, 4}}}))
      .with(at({{"input", {4, 2}}}))
      .with(at({{"input", {0, 3}}}))
      .rejects(at({{"input", {3}}}), "trace");
}

// --- powers -------------------------------------------------------------------------------------

/// By squaring: about 2 log2(exponent) products.
Value positive_power(Value x, int64_t exponent) {
  Value out;
  for (Value square = x; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) out = out ? matmul(out, square) : square;
    if (exponent > 1) square = matmul(square, square);
  }
  return out;
}

void define_matrix_power(OpFamily& ops) {
  ops.def("matrix_power")
      .python("MatrixPower")
      .doc(
          "The product of as many copies of a square matrix as n says, by repeated squaring; of "
          "its inverse where n is negative, the identity for n = 0: [..., n, n]. A singular matrix "
          "to a negative power is an error (on JAX: inf or NaN).")
      .formula("y = x^n")
      .input("input", kFloating)
      .attr("n", infer::kScalarInt)
      .output("output", same_as("input"))
      .rule(keep_square)
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        const int64_t n = b.integer_attr("n");
        if (n == 0) return broadcast_like(eye_like(b, x), x);
        if (n > 0) return positive_power(x, n);
        if (n == INT64_MIN) {
          unsupported(b, "matrix_power: n must be above -2**63");
          return Value();
        }
        return positive_power(ir::apply("inverse", {x}), -n);
      })
      .with(at({{"input", {3, 3}}}, {{"n", 3}}))
      .with(at({{"input", {2, 3, 3}}}, {{"n", -2}}))
      .with(at({{"input", {3, 3}}}, {{"n", 0}}))
      .with(at({{"input", {3, 3}}}, {{"n", 1}}))
      .with(at({{"input", {2, 2}}}, {{"n", 6}}))
      .with(at({{"input", {0, 0}}}, {{"n", 2}}))
      .rejects(at({{"input", {2, 3}}}, {{"n", 2}}), "matrix_power");
}

// --- exponentials -------------------------------------------------------------------------------

/// The diagonal Padé approximation of exp of one type, and up to which 1-norm it is as exact as the
/// type. Higham, "The scaling and squaring method for the matrix exponential revisited" (2005).
struct Pade {
  double norm;
  std::vector<double> coefficients;  // of x^0, x^1, …
};

const Pade& pade_of(DType dtype) {
  static const Pade single{3.925724783138660,
                           {17297280., 8648640., 1995840., 277200., 25200., 1512., 56., 1.}};
  static const Pade twice{5.371920351148152,
                          {64764752532480000., 32382376266240000., 7771770303897600.,
                           1187353796428800., 129060195264000., 10559470521600., 670442572800.,
                           33522128640., 1323241920., 40840800., 960960., 16380., 182., 1.}};
  return dtype == DType::kFloat64 ? twice : single;
}

/// exp(x) of matrices whose 1-norm is small enough: q(x)^{-1} p(x), p(x) = even + odd part and
/// q(x) = even - odd part.
Value small_exponential(Builder& b, Value x) {
  const Pade& pade = pade_of(x.dtype());
  const double scale = 1 / pade.coefficients[0];
  const Value square = matmul(x, x);
  Value power = broadcast_like(eye_like(b, x), x);
  Value even, odd;
  for (size_t i = 0; i + 1 < pade.coefficients.size(); i += 2) {
    const Value even_term = power * (pade.coefficients[i] * scale);
    const Value odd_term = power * (pade.coefficients[i + 1] * scale);
    even = even ? even + even_term : even_term;
    odd = odd ? odd + odd_term : odd_term;
    if (i + 3 < pade.coefficients.size()) power = i == 0 ? square : matmul(power, square);
  }
  odd = matmul(x, odd);
  return ir::apply("solve", {even - odd, even + odd});
}

/// A graph with those inputs, and the outputs that `body` makes of them.
template <class Body>
std::shared_ptr<const Graph> region(Builder& outer, const char* name, std::span<const Value> inputs,
                                    const Body& body) {
  auto out = std::make_shared<Graph>(outer.graph().frame());
  out->name = name;
  Builder b(*out);
  std::vector<Value> inner;
  for (const Value input : inputs) {
    inner.push_back(b.input(fmt::format("i{}", inner.size()), input.type()));
  }
  body(b, inner);
  if (!b.status().ok()) outer.fail(b.take_status());
  return out;
}

/// Squares each matrix of x as often as `times` says, [..., 1, 1], at most `most` times, [].
Value squared(Builder& b, Value x, Value times, Value most) {
  const std::vector<Value> operands = {x, b.scalar(0, x.dtype()), times, most};
  ir::Regions regions = {
      region(b, "condition", operands,
             [](Builder& r, const std::vector<Value>& in) { r.output("go", less(in[1], in[3])); }),
      region(b, "body", operands, [](Builder& r, const std::vector<Value>& in) {
        r.output("c0", where(less(in[1], in[2]), matmul(in[0], in[0]), in[0]));
        r.output("c1", in[1] + 1.0);
      })};
  const std::vector<Value> results = ir::call_while(b, 2, operands, std::move(regions));
  return results.empty() ? Value() : results[0];
}

/// The logarithms to base 2 of the 1-norms of matrices, [..., 1, 1]; the norms may be beyond the
/// largest number.
Value norm_exponent(Value x) {
  const Value n = count(x, HostValue(-2));
  const Value mean = max(sum(abs(x) / n, HostValue(-2), true), HostValue(-1), true);
  return ir::apply("log2", {mean}) + ir::apply("log2", {n});
}

/// The least whole numbers from exponents on; 0 for those of zeros and of what is not finite.
Value rounded_up(Value exponent) {
  const Value is_finite = equal(exponent - exponent, 0.0);
  return cast(ir::apply("ceil", {where(is_finite, exponent, 0.0)}), exponent.dtype());
}

/// x 2^power, for whole powers, by two factors: the number 2^power may be beyond the others.
Value times_power_of_two(Value x, Value power) {
  const Value half = cast(ir::apply("floor", {power * 0.5}), x.dtype());
  return x * ir::apply("exp2", {half}) * ir::apply("exp2", {power - half});
}

Value matrix_exponential(Builder& b) {
  const Value x = b.in("input");
  if (!x) return Value();
  if (x.shape().back() == infer::Dim(0)) return x;
  // A power of two that makes the norm small; of what is not finite all of it is NaN.
  const Value exponent = norm_exponent(x) - std::log2(pade_of(x.dtype()).norm);
  const Value is_finite = less(exponent, b.scalar(kInfinity, x.dtype()));
  const Value times = maximum(rounded_up(exponent), 0.0);
  const Value small = where(is_finite, times_power_of_two(x, -times), std::nan(""));
  return squared(b, small_exponential(b, small), times, max(times, HostValue()));
}

/// Makes the gradient of exp(x) by its cotangent dy: it is the right upper quarter of
/// exp [xᵀ, dy; 0, xᵀ].
Value exponential_gradient(Builder& b, Value x, Value dy) {
  const Value xt = transposed(x);
  const Value upper = b.call("concat", {HostValue(-1), xt, dy});
  const Value lower = b.call("concat", {HostValue(-1), zeros_like(xt), xt});
  const Value both = ir::apply("matrix_exp", {b.call("concat", {HostValue(-2), upper, lower})});
  const auto last = static_cast<int64_t>(x.rank()) - 1;
  const infer::Dim n = x.shape().back(), twice = b.graph().dims.add(n, n);
  return part(part(both, last - 1, infer::Dim(0), n), last, n, twice);
}

void define_matrix_exp(OpFamily& ops) {
  ops.def("matrix_exp")
      .python("MatrixExp")
      .doc(
          "The exponential of square matrices, [..., n, n], by scaling and squaring (Higham 2005). "
          "Its gradient is exact: the exponential of a matrix of twice the size (Van Loan 1978).")
      .formula("y = \\sum_k x^k / k!")
      .input("input", kFloating)
      .output("output", same_as("input"))
      .rule(keep_square)
      .compose(matrix_exponential)
      .gradient([](GradBuilder& g) {
        // It is linear in dy, which therefore may have a norm of about 1: a large one would cost
        // squarings, and x its digits.
        const Value dy = g.dout(), power = rounded_up(norm_exponent(dy));
        g.d("input") = times_power_of_two(
            exponential_gradient(g.builder(), g.in("input"), times_power_of_two(dy, -power)),
            power);
      })
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 4, 4}}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 0}}}))
      .rejects(at({{"input", {2, 3}}}), "matrix_exp");
}

// --- least squares ------------------------------------------------------------------------------

/// The factors of x = u diag(s) vt, and 1 / s; 0 instead where s is at most `rtol` times the
/// largest.
struct Factors {
  Factors(Builder& b, Value x, const HostValue& rtol) {
    const std::vector<Value> parts = b.call_all(*ir::Registry::global().find("svd"), {x}, {});
    if (parts.empty()) return;
    u = parts[0], vt = parts[2];
    const Value s = parts[1];
    const Shape shape = x.shape();
    const Value rows = size_constant(b, shape[shape.size() - 2]);
    const Value larger = cast(maximum(rows, size_constant(b, shape.back())), x.dtype());
    const double epsilon = x.dtype() == DType::kFloat64 ? 0x1p-52 : 0x1p-23;
    const Value part_of_largest =
        rtol.is_none() ? larger * epsilon : b.scalar(rtol.as_number(), x.dtype());
    // The first of them, if there is one.
    const Value is_first = equal(range(b, s.shape().back()), 0.0);
    const Value largest = sum(where(is_first, s, 0.0), HostValue(-1), true);
    const Value bound = part_of_largest * largest;
    const Value is_large = greater(s, bound);
    inverted = where(is_large, 1.0 / where(is_large, s, 1.0), 0.0);
  }
  Value u, vt, inverted;
};

/// Part of a rule: the key `rtol` is none or a finite number from 0 on.
void state_rtol(RuleBuilder& r) {
  const auto rtol = r.known(r.attr("rtol"));
  if (!rtol || rtol->is_none()) return;
  const double number = rtol->as_number();
  if (number >= 0 && number < kInfinity) return;
  ops::bad_argument(r, "rtol must be a finite number from 0 on", *rtol);
}

bool is_empty(Value x) {
  const Shape shape = x.shape();
  return shape.back() == infer::Dim(0) || shape[shape.size() - 2] == infer::Dim(0);
}

Value pseudo_inverse(Builder& b, Value x, const HostValue& rtol) {
  if (is_empty(x)) return transposed(x);
  const Factors f(b, x, rtol);
  if (!f.u) return {};
  return matmul(transposed(f.vt) * expand_dims(f.inverted, HostValue(-2)), transposed(f.u));
}

void define_pinv(OpFamily& ops) {
  ops.def("pinv")
      .python("Pinv")
      .doc(
          "The Moore-Penrose pseudo-inverse of matrices, [..., n, k] -> [..., k, n]. Singular "
          "values up to rtol times the largest count as 0; None: the larger of n and k times the "
          "distance from 1 to the next number, of float32 where elements have 16 bits. The "
          "gradient is that of matrices of the same rank (Golub and Pereyra 1973).")
      .formula("x^{+} = V \\, diag(1/s) \\, U^T")
      .input("input", kFloating)
      .attr("rtol", HostValue(), infer::kScalarFloat | infer::kNoneKind)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n k");
        r.shape(r.out(), "... k n");
        state_rtol(r);
      })
      .compose([](Builder& b) {
        return b.in("input") ? pseudo_inverse(b, b.in("input"), b.attr("rtol")) : Value();
      })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input"), p = g.out(), dy = g.dout();
        const Value pt = transposed(p), dyt = transposed(dy);
        const Value inside = matmul(matmul(pt, dy), pt);
        const Value left = matmul(matmul(dyt, p), pt), right = matmul(matmul(pt, p), dyt);
        g.d("input") =
            left - matmul(x, matmul(p, left)) + right - matmul(matmul(right, p), x) - inside;
      })
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 4, 3}}}))
      .with(at({{"input", {2, 4}}}, {{"rtol", 1e-3}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 3}}}))
      .rejects(at({{"input", {3}}}), "pinv");
}

void define_lstsq(OpFamily& ops) {
  ops.def("lstsq")
      .python("Lstsq")
      .doc(
          "The least y with the least |matrix y - right|, column by column; matrix [..., n, k], "
          "right [..., n, m], y [..., k, m]. Singular values up to rtol times the largest count as "
          "0; None: the larger of n and k times the distance from 1 to the next number, of float32 "
          "where elements have 16 bits. The gradient is that of matrices of the same rank.")
      .formula("y = A^{+} b")
      .input("matrix", kFloating)
      .input("right", kFloating)
      .attr("rtol", HostValue(), infer::kScalarFloat | infer::kNoneKind)
      .output("output", computed())
      .promote()
      .rule([](RuleBuilder& r) {
        r.shape(r.in("matrix"), "... n k");
        r.shape(r.in("right"), "... n m");
        r.shape(r.out(), "... k m");
        state_rtol(r);
      })
      .compose([](Builder& b) {
        const Value x = b.in("matrix"), right = b.in("right");
        if (!x || !right) return Value();
        if (is_empty(x)) return matmul(transposed(x), right);
        const Factors f(b, x, b.attr("rtol"));
        if (!f.u) return Value();
        const Value inner = expand_dims(f.inverted, HostValue(-1)) * matmul(transposed(f.u), right);
        return matmul(transposed(f.vt), inner);
      })
      .gradient([](GradBuilder& g) {
        const Value x = g.in("matrix"), y = g.out(), dy = g.dout();
        const Value p = pseudo_inverse(g.builder(), x, g.attr("rtol")), pt = transposed(p);
        const Value dright = matmul(pt, dy);
        g.d("right") = dright;
        if (!g.wants("matrix")) return;
        const Value residual = g.in("right") - matmul(x, y);
        const Value outside = dy - matmul(p, matmul(x, dy));  // of the rows of x
        g.d("matrix") = matmul(residual, transposed(matmul(p, dright))) +
                        matmul(matmul(pt, y), transposed(outside)) - matmul(dright, transposed(y));
      })
      .with(at({{"matrix", {3, 3}}, {"right", {3, 2}}}))
      .with(at({{"matrix", {2, 4, 3}}, {"right", {2, 4, 1}}}))
      .with(at({{"matrix", {2, 4}}, {"right", {2, 3}}}, {{"rtol", 1e-4}}))
      .with(at({{"matrix", {0, 3}}, {"right", {0, 2}}}))
      .with(at({{"matrix", {3, 2}}, {"right", {3, 0}}}))
      .rejects(at({{"matrix", {3, 3}}, {"right", {2, 2}}}), "lstsq");
}

// --- determinants -------------------------------------------------------------------------------

void define_scaled_det(OpFamily& ops) {
  ops.def("scaled_det")
      .doc(
          "The determinant of square matrices, [..., n, n] -> [...], as fraction 2^exponent with "
          "0.5 <= |fraction| < 1, so that it neither overflows nor vanishes; both 0 where it is 0.")
      .formula("\\det x = f \\, 2^e")
      .input("input", kFloating)
      .output("fraction", same_as("input"))
      .output("exponent", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n n");
        r.shape(r.out("fraction"), "...");
        r.shape(r.out("exponent"), "...");
      })
      .kernel("scaled_det")
      .gradient([](GradBuilder& g) {
        if (!g.has_dout("fraction")) return;
        const Value dx = transposed(ir::apply("inverse", {g.in("input")}));
        const Value along = g.dout("fraction") * g.out("fraction");
        g.d("input") = expand_dims(along, HostValue::ints({-1, -2})) * dx;
      })
      .kinks()
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 2, 2}}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 0}}}))
      .rejects(at({{"input", {2, 3}}}), "scaled_det");
}

void define_slogdet(OpFamily& ops) {
  ops.def("slogdet")
      .python("SlogDet")
      .doc(
          "The sign of the determinant of square matrices and the logarithm of its absolute value, "
          "[..., n, n] -> [...] and [...], of determinants that no number holds, too; of singular "
          "matrices 0 and -inf. The gradient of the logarithm is the inverse's transpose: a "
          "singular matrix is an error (on PyTorch and JAX: inf or NaN).")
      .formula("\\det x = sign \\cdot e^{logabsdet}")
      .input("input", kFloating)
      .output("sign", same_as("input"))
      .output("logabsdet", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n n");
        r.shape(r.out("sign"), "...");
        r.shape(r.out("logabsdet"), "...");
      })
      .compose_many([](Builder& b) -> std::vector<Value> {
        const Value x = b.in("input");
        if (!x) return {Value(), Value()};
        const auto parts = b.call_all(*ir::Registry::global().find("scaled_det"), {x}, {});
        if (parts.empty()) return {Value(), Value()};
        constexpr double kLog2 = 0.693147180559945309417;
        return {sign(parts[0]), log(abs(parts[0])) + parts[1] * kLog2};
      })
      .gradient([](GradBuilder& g) {
        if (!g.has_dout("logabsdet")) return;
        const Value dx = transposed(ir::apply("inverse", {g.in("input")}));
        g.d("input") = expand_dims(g.dout("logabsdet"), HostValue::ints({-1, -2})) * dx;
      })
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 4, 4}}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 0}}}))
      .rejects(at({{"input", {2, 3}}}), "slogdet");
}

}  // namespace

void define_matrix_functions(OpFamily& ops) {
  define_trace(ops);
  define_matrix_power(ops);
  define_matrix_exp(ops);
  define_pinv(ops);
  define_lstsq(ops);
  define_scaled_det(ops);
  define_slogdet(ops);
}

}  // namespace mithril::ops
