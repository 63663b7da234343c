// Linear algebra on the last two axes; axes before them are a batch. Gradients: Giles, "Collected
// matrix derivative results for forward and reverse mode algorithmic differentiation" (2008), and
// for Cholesky Murray, "Differentiation of the Cholesky decomposition" (2016).
#include <algorithm>

#include "core/tensor_data.h"
#include "infer/relation.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

Value symmetric(Value x) { return 0.5 * (x + transposed(x)); }

/// Places of a square matrix like x, [n, 1] and [1, n].
std::pair<Value, Value> places(Builder& b, Value x) {
  const Value range = b.call("arange", {}, {{"stop", size_value(x.shape().back())}});
  return {expand_dims(range, HostValue(1)), expand_dims(range, HostValue(0))};
}

/// x with zeros on the other side of the diagonal.
Value half(Builder& b, Value x, bool lower) {
  const auto [row, column] = places(b, x);
  return where(lower ? greater_equal(row, column) : less_equal(row, column), x, 0.0);
}

Value solve_triangular(Value matrix, Value right, bool lower, bool transposed) {
  return ir::apply("solve_triangular", {matrix, right},
                   {{"lower", lower}, {"transposed", transposed}});
}

Value solve(Value matrix, Value right) { return ir::apply("solve", {matrix, right}); }

void define_cholesky(OpFamily& ops) {
  ops.def("cholesky")
      .python("Cholesky")
      .doc(
          "The lower triangular L with L Lᵀ = x, for symmetric positive definite x (of what is not "
          "symmetric, the symmetric part); upper: the transpose of it; [..., n, n]. Its gradient "
          "is "
          "symmetric.")
      .formula("x = L L^T")
      .input("input", kFloating)
      .attr("upper", false)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n n");
        r.shape(r.out(), "... n n");
      })
      .expand_when([](const ir::Graph&, const ir::Node& node) {
        return node.attrs.find("upper")->as_bool();
      })
      .compose([](Builder& b) {
        const Value lower = ir::apply("cholesky", {b.in("input")});
        return lower ? transposed(lower) : lower;
      })
      .kernel("cholesky")
      .gradient([](GradBuilder& g) {
        // S = L⁻ᵀ Φ(Lᵀ dL) L⁻¹, Φ the lower half with half of the diagonal.
        Builder& b = g.builder();
        const bool upper = g.attr("upper").as_bool();
        const Value l = upper ? transposed(g.out()) : g.out();
        const Value dl = upper ? transposed(g.dout()) : g.dout();
        const Value product = matmul(transposed(l), half(b, dl, true));
        const Value phi = half(b, product, true) - 0.5 * product * eye_like(b, l);
        const Value left = solve_triangular(l, phi, true, true);
        g.d("input") = symmetric(solve_triangular(l, transposed(left), true, true));
      })
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 4, 4}}}))
      .with(at({{"input", {2, 4, 4}}}, {{"upper", true}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 0}}}))
      .rejects(at({{"input", {2, 3}}}), "cholesky")
      .rejects(at({{"input", {3}}}), "cholesky");
}

void define_solutions(OpFamily& ops) {
  const auto sizes = [](RuleBuilder& r) {
    r.shape(r.in("matrix"), "... n n");
    r.shape(r.in("right"), "... n k");
    r.shape(r.out(), "... n k");
  };
  ops.def("solve_triangular")
      .python("SolveTriangular")
      .doc(
          "The y with T y = right, where T is the lower (or upper) half of matrix, or its "
          "transpose; matrix [..., n, n], right and y [..., n, k]. A zero on the diagonal gives "
          "inf or NaN.")
      .formula("y = T^{-1} b")
      .input("matrix", kFloating)
      .input("right", kFloating)
      .attr("lower", true)
      .attr("transposed", false)
      .output("output", computed())
      .promote()
      .rule(sizes)
      .kernel("solve_triangular")
      .gradient([](GradBuilder& g) {
        const bool lower = g.attr("lower").as_bool(),
                   is_transposed = g.attr("transposed").as_bool();
        const Value dright = solve_triangular(g.in("matrix"), g.dout(), lower, !is_transposed);
        g.d("right") = dright;
        if (!g.wants("matrix")) return;
        const Value dmatrix = is_transposed ? matmul(g.out(), transposed(dright))
                                            : matmul(dright, transposed(g.out()));
        g.d("matrix") = half(g.builder(), -dmatrix, lower);
      })
      .with(at({{"matrix", {3, 3}}, {"right", {3, 2}}}))
      .with(at({{"matrix", {2, 3, 3}}, {"right", {2, 3, 1}}}, {{"lower", false}}))
      .with(at({{"matrix", {3, 3}}, {"right", {3, 2}}}, {{"transposed", true}}))
      .with(at({{"matrix", {3, 3}}, {"right", {3, 2}}}, {{"lower", false}, {"transposed", true}}))
      .with(at({{"matrix", {2, 2}}, {"right", {2, 0}}}))
      .with(at({{"matrix", {0, 0}}, {"right", {0, 2}}}))
      .rejects(at({{"matrix", {3, 3}}, {"right", {2, 2}}}), "solve_triangular")
      .rejects(at({{"matrix", {3, 2}}, {"right", {3, 2}}}), "solve_triangular");

  ops.def("solve")
      .python("Solve")
      .doc(
          "The y with matrix y = right; matrix [..., n, n], right and y [..., n, k]. A singular "
          "matrix is an error (on JAX: inf or NaN).")
      .formula("y = A^{-1} b")
      .input("matrix", kFloating)
      .input("right", kFloating)
      .output("output", computed())
      .promote()
      .rule(sizes)
      .kernel("solve")
      .gradient([](GradBuilder& g) {
        const Value dright = solve(transposed(g.in("matrix")), g.dout());
        g.d("right") = dright;
        if (g.wants("matrix")) g.d("matrix") = -matmul(dright, transposed(g.out()));
      })
      .with(at({{"matrix", {3, 3}}, {"right", {3, 2}}}))
      .with(at({{"matrix", {2, 4, 4}}, {"right", {2, 4, 1}}}))
      .with(at({{"matrix", {2, 2}}, {"right", {2, 0}}}))
      .with(at({{"matrix", {0, 0}}, {"right", {0, 2}}}))
      .rejects(at({{"matrix", {3, 3}}, {"right", {2, 2}}}), "solve")
      .rejects(at({{"matrix", {3, 2}}, {"right", {3, 2}}}), "solve");

  ops.def("inverse")
      .python("Inverse")
      .alias({"inv"})
      .doc("The inverse of square matrices, [..., n, n]. A singular matrix is an error.")
      .formula("x^{-1}")
      .input("input", kFloating)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n n");
        r.shape(r.out(), "... n n");
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return Value();
        return solve(x, broadcast_like(eye_like(b, x), x));
      })
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 2, 2}}}))
      .with(at({{"input", {0, 0}}}))
      .rejects(at({{"input", {2, 3}}}), "inverse");
}

/// Holds the factors of x = u diag(s) vt, and det(u) det(vt), which is 1 or -1.
struct Diagonal {
  explicit Diagonal(Builder& b, Value x) {
    const std::vector<Value> parts = b.call_all(*ir::Registry::global().find("svd"), {x}, {});
    u = parts[0], s = parts[1], vt = parts[2];
    const Value both = ir::apply("det", {u}) * ir::apply("det", {vt});
    sign = expand_dims(ir::apply("round", {both}), HostValue::ints({-1, -2}));
    eye = eye_like(b, u);
  }
  Value u, s, vt, sign, eye;
};

Value product(Value x) { return reduce("prod", x, HostValue(-1), HostValue(false)); }

/// The cofactor (i, i) of diag(s) changes with the element (j, j) as the product p of all s but
/// s_i and s_j, and the cofactor (i, j) with the element (j, i) as -p.
void cofactor_gradient(GradBuilder& g) {
  Builder& b = g.builder();
  const Diagonal d(b, g.in("input"));
  const Value row = expand_dims(d.eye, HostValue(0)), column = expand_dims(d.eye, HostValue(1));
  const Value either = maximum(row, column);
  const Value s = expand_dims(d.s, HostValue::ints({-3, -2}));
  const Value p = (1.0 - d.eye) * product(either + (1.0 - either) * s);
  const Value turned = matmul(matmul(transposed(d.u), g.dout()), transposed(d.vt));
  const Value traces =
      sum(p * expand_dims(sum(turned * d.eye, HostValue(-1)), HostValue(-2)), HostValue(-1));
  const Value inner = expand_dims(traces, HostValue(-1)) * d.eye - p * transposed(turned);
  g.d("input") = d.sign * matmul(matmul(d.u, inner), d.vt);
}

void define_determinant(OpFamily& ops) {
  ops.def("cofactor")
      .doc(
          "The cofactors of square matrices, [..., n, n]: what the determinant changes by with "
          "each "
          "element, of singular matrices too.")
      .formula("\\det(x) \\, x^{-T}")
      .input("input", kFloating)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n n");
        r.shape(r.out(), "... n n");
      })
      .kernel("cofactor")
      .gradient(cofactor_gradient)
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 2, 2}}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 0}}}))
      .rejects(at({{"input", {2, 3}}}), "cofactor");

  ops.def("det")
      .python("Determinant")
      .doc("The determinant of square matrices, [..., n, n] -> [...]; 1 for n = 0.")
      .formula("\\det x")
      .input("input", kFloating)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n n");
        r.shape(r.out(), "...");
      })
      .kernel("det")
      .gradient([](GradBuilder& g) {
        const Value cofactors = ir::apply("cofactor", {g.in("input")});
        g.d("input") = expand_dims(g.dout(), HostValue::ints({-1, -2})) * cofactors;
      })
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 2, 2}}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 0}}}))
      .rejects(at({{"input", {2, 3}}}), "det");
}

void define_eigenvalues(OpFamily& ops) {
  ops.def("eigh")
      .python("Eigh")
      .doc(
          "Eigenvalues, rising, and eigenvectors (as columns, the largest component of each "
          "positive) of symmetric matrices, of what is not symmetric those of the symmetric part: "
          "[..., n, n] -> [..., n] and [..., n, n]. Gradients of the vectors need distinct values.")
      .formula("x = V \\, diag(w) \\, V^T")
      .input("input", kFloating)
      .output("values", same_as("input"))
      .output("vectors", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n n");
        r.shape(r.out("values"), "... n");
        r.shape(r.out("vectors"), "... n n");
      })
      .kernel("eigh")
      .gradient([](GradBuilder& g) {
        Builder& b = g.builder();
        const Value w = g.out("values"), v = g.out("vectors");
        const Value eye = eye_like(b, v);
        Value inner = expand_dims(g.dout("values"), HostValue(-2)) * eye;
        if (g.has_dout("vectors")) {
          const Value gap = expand_dims(w, HostValue(-2)) - expand_dims(w, HostValue(-1));
          const Value product = matmul(transposed(v), g.dout("vectors"));
          inner = inner + (1.0 - eye) * product / (gap + eye);
        }
        g.d("input") = symmetric(matmul(matmul(v, inner), transposed(v)));
      })
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 4, 4}}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 0}}}))
      .rejects(at({{"input", {2, 3}}}), "eigh");
}

// Terms: input [..., n, k], then a result whose axis from the end is min(n, k); data: which one.
core::Status relate_smaller_side(infer::Relation& relation) {
  const auto rank = relation.rank(0), to = relation.rank(1);
  if (!rank || !to || *rank < 2) return {};
  const auto n = relation.size(0, *rank - 2), k = relation.size(0, *rank - 1);
  if (!n || !k) return {};
  relation.finish();
  return relation.set_size(1, *to - static_cast<int>(relation.data()), std::min(*n, *k));
}

bool has_known_matrices(Builder& b, Value x) {
  if (!x) return false;
  const Shape shape = x.shape();
  if (shape.back().known() && shape[shape.size() - 2].known()) return true;
  unsupported(b, b.op().name + ": the gradient needs known sizes of the matrices");
  return false;
}

Value diagonal_only(Builder& b, Value vector) {
  return expand_dims(vector, HostValue(-2)) * eye_like(b, vector);
}

// Of q r = a with as many rows as columns or more: (dq + q c) r⁻ᵀ, c the lower half of
// r drᵀ - dqᵀ q and its mirror image.
Value tall_qr_cotangent(Builder& b, Value q, Value r, Value dq, Value dr) {
  const Value m = matmul(r, transposed(half(b, dr, false))) - matmul(transposed(dq), q);
  const Value lower = half(b, m, true);
  const Value mirrored = lower + transposed(lower) - lower * eye_like(b, lower);
  return transposed(solve_triangular(r, transposed(dq + matmul(q, mirrored)), false, false));
}

void qr_gradient(GradBuilder& g) {
  Builder& b = g.builder();
  const Value x = g.in("input"), q = g.out("q"), r = g.out("r");
  if (!has_known_matrices(b, x)) return;
  const infer::Dim n = x.shape()[x.rank() - 2], k = x.shape().back();
  const Value dq = g.dout("q"), dr = g.dout("r");
  if (k.value() <= n.value()) {
    g.d("input") = tall_qr_cotangent(b, q, r, dq, dr);
    return;
  }
  // a = [a1 a2], q [r1 r2]: q comes from a1 alone, and r2 = qᵀ a2.
  const auto last = static_cast<int64_t>(x.rank()) - 1;
  const Value rest = part(x, last, n, k), drest = part(dr, last, n, k);
  const Value whole_dq = dq + matmul(rest, transposed(drest));
  const Value first = tall_qr_cotangent(b, q, part(r, last, infer::Dim(0), n), whole_dq,
                                        part(dr, last, infer::Dim(0), n));
  g.d("input") = b.call("concat", {HostValue(-1), first, matmul(q, drest)});
}

// x - xᵀ over s_j² - s_i², off the diagonal.
Value over_gaps(Builder& b, Value x, Value s) {
  const Value squares = s * s, eye = eye_like(b, s);
  const Value gaps = expand_dims(squares, HostValue(-2)) - expand_dims(squares, HostValue(-1));
  return (x - transposed(x)) / (gaps + eye);
}

void svd_gradient(GradBuilder& g) {
  Builder& b = g.builder();
  const Value x = g.in("input");
  if (!has_known_matrices(b, x)) return;
  const int64_t n = x.shape()[x.rank() - 2].value(), k = x.shape().back().value();
  const Value u = g.out("u"), s = g.out("values"), vt = g.out("vt");
  const Value row = expand_dims(s, HostValue(-2)), column = expand_dims(s, HostValue(-1));
  Value inner = diagonal_only(b, g.dout("values"));
  Value outside;
  if (g.has_dout("u")) {
    const Value du = g.dout("u"), product = matmul(transposed(u), du);
    inner = inner + over_gaps(b, product, s) * row;
    if (n > k) outside = matmul((du - matmul(u, product)) / row, vt);
  }
  if (g.has_dout("vt")) {
    const Value dvt = g.dout("vt"), product = matmul(vt, transposed(dvt));
    inner = inner + column * over_gaps(b, product, s);
    if (k > n) {
      const Value left = matmul(u, (dvt - matmul(transposed(product), vt)) / column);
      outside = outside ? outside + left : left;
    }
  }
  const Value inside = matmul(matmul(u, inner), vt);
  g.d("input") = outside ? inside + outside : inside;
}

void define_factors(OpFamily& ops) {
  ops.def("qr")
      .python("QR")
      .doc(
          "q r = x, q with orthonormal columns, r upper triangular without negative numbers on its "
          "diagonal: [..., n, k] -> [..., n, p] and [..., p, k], p the smaller of n and k. "
          "Gradients need the first p columns of x to be independent.")
      .formula("x = Q R")
      .input("input", kFloating)
      .output("q", same_as("input"))
      .output("r", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n k");
        r.shape(r.out("q"), "... n p");
        r.shape(r.out("r"), "... p k");
        r.custom({r.in("input"), r.out("q")}, relate_smaller_side, 1);
      })
      .kernel("qr")
      .gradient(qr_gradient)
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 4, 3}}}))
      .with(at({{"input", {2, 4}}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 3}}}))
      .rejects(at({{"input", {3}}}), "qr");

  ops.def("svd")
      .python("SVD")
      .doc(
          "u diag(values) vt = x, u and the transpose of vt with orthonormal columns, values "
          "falling, the largest component of each column of u positive: [..., n, k] -> [..., n, "
          "p], [..., p], [..., p, k], p the smaller of n and k. Gradients need distinct values "
          "that are not 0.")
      .formula("x = U \\, diag(s) \\, V^T")
      .input("input", kFloating)
      .output("u", same_as("input"))
      .output("values", same_as("input"))
      .output("vt", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n k");
        r.shape(r.out("u"), "... n p");
        r.shape(r.out("values"), "... p");
        r.shape(r.out("vt"), "... p k");
        r.custom({r.in("input"), r.out("values")}, relate_smaller_side, 1);
      })
      .kernel("svd")
      .gradient(svd_gradient)
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 4, 3}}}))
      .with(at({{"input", {2, 4}}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 3}}}))
      .rejects(at({{"input", {3}}}), "svd");

  ops.def("eigvalsh")
      .python("Eigvalsh")
      .arguments({"K_term", "L", "threshold"})
      .doc(
          "The spectrum of a covariance as a column: the diagonal of L where it is given, else the "
          "eigenvalues of K_term, rising, none below threshold; K_term and L [n, n].")
      .input("K_term", kFloating)
      .optional("L", kFloating)
      .key("threshold", "EPSILON")
      .output("output", computed())
      .promote({"K_term", "L"})
      .connect({"K_term", "L", "threshold", "output"})
      .rule([](RuleBuilder& r) {
        r.shape(r.in("K_term"), "n n");
        if (r.has("L")) r.shape(r.in("L"), "n n");
        r.shape(r.out(), "n 1");
      })
      .compose([](Builder& b) {
        if (b.has("L")) return ir::apply("transposed_diag", {b.in("L")});
        const Value k = b.in("K_term");
        if (!k) return Value();
        const Value values = ir::apply("eigh", {k});
        const HostValue& given_bound = b.attr("threshold");
        const Value bound =
            b.has("threshold")
                ? cast(b.in("threshold"), k.dtype())
                : b.scalar(given_bound.is_string()
                               ? *core::constant_value(given_bound.as_string(), k.dtype())
                               : given_bound.as_number(),
                           k.dtype());
        return expand_dims(maximum(values, bound), HostValue(1));
      })
      .kinks()
      .with(at({{"K_term", {3, 3}}, {"L", {3, 3}}}))
      .with(at({{"K_term", {3, 3}}}, {{"threshold", 1e-3}}))
      .rejects(at({{"K_term", {2, 3}}}), "eigvalsh");
}

void define_gaussian_processes(OpFamily& ops) {
  ops.def("gpr_alpha")
      .python("GPRAlpha")
      .doc(
          "The weights alpha of a Gaussian process with K alpha = label - mu, from the lower "
          "Cholesky factor L of K; label_mu_diff and alpha [n, 1], L and K_term [n, n].")
      .formula("L^{-T} L^{-1} (y - \\mu)")
      .input("label_mu_diff", kFloating)
      .input("L", kFloating)
      .input("K_term", kFloating)
      .output("output", computed())
      .promote()
      .rule([](RuleBuilder& r) {
        r.shape(r.in("label_mu_diff"), "n 1");
        r.shape(r.in("L"), "n n");
        r.shape(r.in("K_term"), "n n");
        r.shape(r.out(), "n 1");
      })
      .compose([](Builder& b) {
        const Value l = b.in("L");
        const Value half_way = solve_triangular(l, b.in("label_mu_diff"), true, false);
        return solve_triangular(l, half_way, true, true);
      })
      .with(at({{"label_mu_diff", {3, 1}}, {"L", {3, 3}}, {"K_term", {3, 3}}}))
      .rejects(at({{"label_mu_diff", {3, 1}}, {"L", {2, 2}}, {"K_term", {3, 3}}}), "gpr_alpha");

  ops.def("gpr_v_outer")
      .python("GPRVOuter")
      .doc(
          "vᵀ v with L v = K, for the lower Cholesky factor L of a covariance: what a Gaussian "
          "process knows already; all [n, n].")
      .formula("K^T L^{-T} L^{-1} K")
      .input("K", kFloating)
      .input("K_term", kFloating)
      .input("L", kFloating)
      .output("output", computed())
      .promote()
      .rule([](RuleBuilder& r) {
        for (const char* name : {"K", "K_term", "L"}) r.shape(r.in(name), "n n");
        r.shape(r.out(), "n n");
      })
      .compose([](Builder& b) {
        const Value v = solve_triangular(b.in("L"), b.in("K"), true, false);
        return v ? matmul(transposed(v), v) : Value();
      })
      .with(at({{"K", {3, 3}}, {"K_term", {3, 3}}, {"L", {3, 3}}}))
      .rejects(at({{"K", {3, 3}}, {"K_term", {3, 3}}, {"L", {2, 2}}}), "gpr_v_outer");
}

}  // namespace

void define_linalg(OpFamily& ops) {
  define_cholesky(ops);
  define_solutions(ops);
  define_determinant(ops);
  define_eigenvalues(ops);
  define_factors(ops);
  define_gaussian_processes(ops);
}

}  // namespace mithril::ops
