// Features of points, distances between them, and small tools of numeric code.
#include "infer/relation.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

// --- pairs of points -----------------------------------------------------------------------

OpDefBuilder& of_two_sets(OpDefBuilder& block) {
  return block.input("left", kNumeric).input("right", kNumeric);
}

Value differences(Value left, Value right) {
  return expand_dims(left, HostValue(1)) - expand_dims(right, HostValue(0));
}

/// |l - r| ^ norm of each coordinate of each pair; coordinates that are equal stand apart, where
/// the slope of the power may be infinite.
struct Powers {
  Value delta, equal, safe;

  Powers(Value left, Value right)
      : delta(differences(left, right)),
        equal(ir::equal(delta, 0.0)),
        safe(where(equal, 1.0, abs(delta))) {}
};

void distance_gradient(GradBuilder& g) {
  const Value norm = g.in("norm");
  const Powers p(g.in("left"), g.in("right"));
  const Value dy = expand_dims(g.dout(), HostValue(2));
  const Value slope = norm * power(p.safe, norm - 1.0) * sign(p.delta);
  const Value d = where(p.equal, 0.0, dy * slope);
  if (g.wants("left")) g.d("left") = sum(d, HostValue(1));
  if (g.wants("right")) g.d("right") = -sum(d, HostValue(0));
  if (!g.wants("norm")) return;
  const Value logarithm = power(p.safe, norm) * log(p.safe);
  g.d("norm") = sum(where(p.equal, 0.0, dy * logarithm), HostValue());
}

void define_distances(OpFamily& ops) {
  of_two_sets(ops.def("cartesian_diff")
                  .python("CartesianDifference")
                  .doc("Difference of each row of left and each row of right.")
                  .formula("y_{ijk} = l_{ik} - r_{jk}"))
      .output("output", computed())
      .promote()
      .rule([](RuleBuilder& r) {
        r.shape(r.in("left"), "n d");
        r.shape(r.in("right"), "m d");
        r.shape(r.out(), "n m d");
      })
      .compose([](Builder& b) { return differences(b.in("left"), b.in("right")); })
      .with(at({{"left", {3, 2}}, {"right", {4, 2}}}))
      .with(at({{"left", {0, 2}}, {"right", {4, 2}}}))
      .with(at({{"left", {3, 0}}, {"right", {1, 0}}}))
      .rejects(at({{"left", {3, 2}}, {"right", {4, 3}}}), "cartesian_diff");

  of_two_sets(ops.def("distance_matrix")
                  .python("DistanceMatrix")
                  .doc("Sum over the coordinates of |left - right| ^ norm, of each row of left and "
                       "each row of right: a distance before its root. Equal coordinates have "
                       "gradient 0.")
                  .formula("y_{ij} = \\sum_k |l_{ik} - r_{jk}|^{norm}"))
      .input("norm", kNumeric)
      .cin({"left", "right"})
      .output("output", computed())
      .promote_float()
      .rule([](RuleBuilder& r) {
        r.shape(r.in("left"), "n d");
        r.shape(r.in("right"), "m d");
        r.shape(r.in("norm"), "");
        r.shape(r.out(), "n m");
      })
      .compose([](Builder& b) {
        const Value delta = differences(b.in("left"), b.in("right"));
        return sum(power(abs(delta), b.in("norm")), HostValue(2));
      })
      .gradient(distance_gradient)
      .sample("norm", 1.0, 3.0)
      .with(at({{"left", {3, 2}}, {"right", {4, 2}}, {"norm", {}}}))
      .with(at({{"left", {0, 2}}, {"right", {4, 2}}, {"norm", {}}}))
      .with(at({{"left", {3, 0}}, {"right", {1, 0}}, {"norm", {}}}))
      .rejects(at({{"left", {3, 2}}, {"right", {4, 3}}, {"norm", {}}}), "distance_matrix")
      .rejects(at({{"left", {3, 2}}, {"right", {4, 2}}, {"norm", {1}}}), "distance_matrix");

  ops.def("norm_modifier")
      .python("NormModifier")
      .doc(
          "Folds any number into the interval from 1 to 5, as a triangle wave of period 8 that is "
          "1 at 1: a norm that may be trained. The gradient at the peaks is 0.")
      .formula("4 (1 - |2 u|) + 1, \\quad u = ((x - 1) \\bmod 8) / 8 - 1 / 2")
      .input("input", kFloating)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "");
        r.shape(r.out(), "");
      })
      .compose([](Builder& b) {
        const Value phase = ir::apply("mod", {b.in("input") - 1.0, 8.0});
        return 5.0 - abs(phase - 4.0);
      })
      .gradient([](GradBuilder& g) {
        const Value phase = ir::apply("mod", {g.in("input") - 1.0, 8.0});
        g.d("input") = -(g.dout() * sign(phase - 4.0));
      })
      .kinks()
      .sample("input", -20.0, 20.0)
      .with(at({{"input", {}}}))
      .rejects(at({{"input", {2}}}), "norm_modifier");
}

// --- polynomials ---------------------------------------------------------------------------

// The columns of x from `first` on.
Value columns_from(Value x, int64_t first) {
  const HostValue rows(core::Slice{});
  const HostValue columns(core::Slice{HostValue(first), HostValue(), HostValue()});
  return ir::apply("index", {x}, {{"index", HostValue::tuple({rows, columns})}});
}

Value column(Value x, int64_t at) {
  const HostValue rows(core::Slice{});
  const HostValue one(core::Slice{HostValue(at), HostValue(at + 1), HostValue()});
  return ir::apply("index", {x}, {{"index", HostValue::tuple({rows, one})}});
}

Value joined(Builder& b, const std::vector<Value>& blocks) {
  std::vector<Operand> operands{HostValue(1)};
  operands.insert(operands.end(), blocks.begin(), blocks.end());
  return b.call("concat", operands);
}

// Each degree is made of the one before: coordinate i times the monomials that have no coordinate
// below i. That is the order of combinations with repetition.
Value polynomial(Builder& b) {
  const Value x = b.in("input");
  const HostValue& degree = b.attr("degree");
  if (!x || !x.shape()[1].known() || !degree.is_int()) {
    unsupported(b,
                "polynomial_features: the degree and the size of axis 1 must be known when the "
                "model is compiled");
    return {};
  }
  const int64_t size = x.shape()[1].value();
  if (size == 0) return x;
  std::vector<Value> all{x};
  std::vector<int64_t> first(static_cast<size_t>(size));  // monomial without coordinates below i
  for (int64_t i = 0; i < size; ++i) first[static_cast<size_t>(i)] = i;
  for (int64_t k = 2; k <= degree.as_int(); ++k) {
    std::vector<Value> blocks;
    int64_t count = 0;
    for (int64_t i = 0; i < size; ++i) {
      const Value rest = columns_from(all.back(), first[static_cast<size_t>(i)]);
      if (!rest) return {};
      first[static_cast<size_t>(i)] = count;
      count += rest.shape()[1].value();
      blocks.push_back(column(x, i) * rest);
    }
    all.push_back(joined(b, blocks));
  }
  return all.size() == 1 ? x : joined(b, all);
}

// How many monomials of 1 to degree d coordinates have; limit + 1 where they are more.
int64_t monomials(int64_t d, int64_t degree, int64_t limit) {
  __extension__ using Wide = __int128;
  Wide count = 1;  // C(d + i, i), which grows with i
  for (int64_t i = 1; i <= degree; ++i) {
    count = count * (d + i) / i;
    if (count > Wide(limit) + 1) return limit + 1;
  }
  return static_cast<int64_t>(count) - 1;
}

// Backward: the coordinates that make a known number of columns. Terms: output, input, degree.
core::Status coordinates(infer::Relation& relation) {
  constexpr int64_t kWidest = int64_t{1} << 40;
  const auto degree = relation.value(2);
  if (!degree || !degree->is_int() || degree->as_int() < 1) return {};
  if (relation.rank(0) != 2 || relation.rank(1) != 2 || relation.size(1, 1)) return {};
  const auto width = relation.size(0, 1);
  if (!width || *width > kWidest) return {};
  int64_t low = 0, high = *width;  // d coordinates have d monomials or more
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (monomials(middle, degree->as_int(), *width) < *width) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (monomials(low, degree->as_int(), *width) == *width) return relation.set_size(1, 1, low);
  return core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                    "no number of coordinates has {} monomials of 1 to {}", *width,
                    degree->as_int());
}

// C(d + degree, degree) - 1 columns.
void polynomial_rule(RuleBuilder& r) {
  r.shape(r.in("input"), "n d");
  r.shape(r.out(), "n p");
  r.kind(r.in("degree"), infer::kScalarInt);
  r.when_known(r.in("degree"), [](RuleBuilder& rule, const HostValue& value) {
    constexpr int64_t kMost = 12;  // 12! x 2^31 columns fit into an int64
    const int64_t degree = value.is_int() ? value.as_int() : 0;
    if (degree < 1 || degree > kMost) {
      rule.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                           "'degree' must be 1 to {}, got {}", kMost, core::to_string(value)));
      return;
    }
    const infer::DimTerm size = rule.dim("d");
    infer::DimTerm product = size + 1;
    int64_t orders = 1;
    for (int64_t i = 2; i <= degree; ++i) {
      product = product * (size + i);
      orders *= i;
    }
    rule.equal(rule.dim("p"), floor_div(product, orders) - 1);
  });
  r.custom({r.out(), r.in("input"), r.in("degree")}, coordinates);
}

void define_polynomials(OpFamily& ops) {
  ops.def("polynomial_features")
      .python("PolynomialFeatures")
      .doc(
          "All products of 1 to degree coordinates of each row, in the order of combinations "
          "with repetition, as scikit-learn's without the bias.")
      .formula("x_{i_1} \\cdots x_{i_k}, \\quad i_1 \\le \\dots \\le i_k, \\quad k \\le degree")
      .input("input", kNumeric)
      .key("degree")
      .output("output", same_as("input"))
      .rule(polynomial_rule)
      .needs_size("input", 1)
      .compose(polynomial)
      .with(at({{"input", {4, 3}}}, {{"degree", 2}}))
      .with(at({{"input", {2, 2}}}, {{"degree", 4}}))
      .with(at({{"input", {2, 3}}}, {{"degree", 1}}))
      .with(at({{"input", {0, 3}}}, {{"degree", 3}}))
      .rejects(at({{"input", {2, 3}}}, {{"degree", 0}}), "degree")
      .rejects(at({{"input", {2, 3, 4}}}, {{"degree", 2}}), "polynomial_features");
}

// --- tools ---------------------------------------------------------------------------------

// Whether row and column of a square matrix are equal.
Value on_diagonal(Builder& b, Value x) {
  const HostValue size = size_value(x.shape()[0]);
  const Value range = b.call("arange", {}, {{"stop", size}});
  return equal(expand_dims(range, HostValue(1)), expand_dims(range, HostValue(0)));
}

Value diagonal(Builder& b) {
  const Value x = b.in("input");
  if (!x) return {};
  const Value chosen = where(on_diagonal(b, x), x, HostValue(0));
  if (x.dtype() == DType::kBool) return reduce("any", chosen, HostValue(1), HostValue(true));
  return cast(sum(chosen, HostValue(1), true), x.dtype());
}

Value trapezoid(Builder& b) {
  const Value y = b.in("y");
  const Value x = b.in("x");
  if (!x || !y) return {};
  const auto part = [&](Value of, HostValue from, HostValue to) {
    HostValue::Tuple index(of.rank(), HostValue(core::Slice{}));
    index.back() = HostValue(core::Slice{std::move(from), std::move(to), HostValue()});
    return ir::apply("index", {of}, {{"index", HostValue::tuple(std::move(index))}});
  };
  const auto later = [&](Value of) { return part(of, HostValue(1), HostValue()); };
  const auto earlier = [&](Value of) { return part(of, HostValue(), HostValue(-1)); };
  const Value width = later(x) - earlier(x);
  return sum(width * (later(y) + earlier(y)) * 0.5, HostValue(-1));
}

void define_tools(OpFamily& ops) {
  ops.def("transposed_diag")
      .python("TransposedDiagonal")
      .doc("The diagonal of a square matrix, as a column.")
      .formula("y_i = x_{ii}")
      .input("input", kTensor)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.shape(r.in("input"), "n n");
        r.shape(r.out(), "n 1");
      })
      .compose(diagonal)
      .gradient([](GradBuilder& g) {
        g.d("input") = where(on_diagonal(g.builder(), g.in("input")), g.dout(), 0.0);
      })
      .with(at({{"input", {4, 4}}}))
      .with(at({{"input", {1, 1}}}))
      .with(at({{"input", {0, 0}}}))
      .rejects(at({{"input", {2, 3}}}), "transposed_diag");

  ops.def("trapezoid")
      .python("Trapezoid")
      .arguments({"x", "y"})
      .doc(
          "Integral of y over x along the last axis, by trapezoids; x has the shape of y, or "
          "its last axis only.")
      .formula("\\sum_i (x_{i+1} - x_i) (y_i + y_{i+1}) / 2")
      .input("y", kTensor)
      .input("x", kTensor)
      .output("output", computed())
      .promote_float()
      .rule([](RuleBuilder& r) {
        r.shape(r.in("y"), "... n");
        r.shape(r.out(), "...");
        r.when_rank_known(r.in("x"), [](RuleBuilder& rule, int rank) {
          rule.shape(rule.in("x"), rank == 1 ? "n" : "... n");
        });
      })
      .compose(trapezoid)
      .with(at({{"y", {5}}, {"x", {5}}}))
      .with(at({{"y", {2, 3, 5}}, {"x", {5}}}))
      .with(at({{"y", {2, 5}}, {"x", {2, 5}}}))
      .with(at({{"y", {2, 1}}, {"x", {1}}}))
      .rejects(at({{"y", {2, 5}}, {"x", {4}}}), "trapezoid");

  ops.def("atleast_1d")
      .python("AtLeast1D")
      .doc("The tensor; a scalar tensor as one of one element.")
      .input("input", kTensor)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.when_rank_known(r.in("input"), [](RuleBuilder& rule, int rank) {
          if (rank == 0) {
            rule.shape(rule.out(), "1");
          } else {
            rule.same_shape(rule.out(), rule.in("input"));
          }
        });
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        if (!x || x.rank() > 0) return x;
        return reshape(x, HostValue::ints({1}));
      })
      .with(at({{"input", {}}}))
      .with(at({{"input", {3}}}))
      .with(at({{"input", {2, 0}}}));
}

}  // namespace

void define_features(OpFamily& ops) {
  define_distances(ops);
  define_polynomials(ops);
  define_tools(ops);
}

}  // namespace mithril::ops
