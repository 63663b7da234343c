// Linear algebra on the last two axes; axes before them are a batch. Gradients: Giles, "Collected
// matrix derivative results for forward and reverse mode algorithmic differentiation" (2008), and
// for Cholesky Murray, "Differentiation of the Cholesky decomposition" (2016).
#include "ops/block.h"

namespace mithril::ops {
namespace {

Value transposed(Value x) { return swap_axes(x, -1, -2); }
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

Value eye_like(Builder& b, Value x) {
  return b.call("eye", {}, {{"N", size_value(x.shape().back())}, {"dtype", HostValue(x.dtype())}});
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
          "symmetric, the symmetric part); [..., n, n]. Its gradient is symmetric.")
      .formula("x = L L^T")
      .input("input", kFloating)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "... n n");
        r.shape(r.out(), "... n n");
      })
      .kernel("cholesky")
      .gradient([](GradBuilder& g) {
        // S = L⁻ᵀ Φ(Lᵀ dL) L⁻¹, Φ the lower half with half of the diagonal.
        Builder& b = g.builder();
        const Value l = g.out();
        const Value product = matmul(transposed(l), half(b, g.dout(), true));
        const Value phi = half(b, product, true) - 0.5 * product * eye_like(b, l);
        const Value left = solve_triangular(l, phi, true, true);
        g.d("input") = symmetric(solve_triangular(l, transposed(left), true, true));
      })
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 4, 4}}}))
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

void define_determinant(OpFamily& ops) {
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
        const Value x = g.in("input");
        const Value factor = expand_dims(g.dout() * g.out(), HostValue::ints({-1, -2}));
        const Value inverse = ir::apply("inverse", {transposed(x)});
        g.d("input") = factor * inverse;
      })
      .with(at({{"input", {3, 3}}}))
      .with(at({{"input", {2, 2, 2}}}))
      .with(at({{"input", {1, 1}}}))
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
  define_gaussian_processes(ops);
}

}  // namespace mithril::ops
