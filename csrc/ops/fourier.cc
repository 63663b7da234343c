// Discrete Fourier transforms. There are no complex element types: a complex tensor is two real
// ones. Two primitives transform a whole axis without a factor, `dft` and, of real tensors, `rdft`;
// everything else is cut, padded, weighted and scaled around them. All of it is linear, so
// gradients need no values.
#include <algorithm>
#include <cmath>

#include "infer/relation.h"
#include "ir/registry.h"
#include "ops/block.h"

namespace mithril::ops {
namespace {

using infer::Dim;

// --- rules -----------------------------------------------------------------------------------

/// Tells how many places the result of a transform has along its (last) axis.
enum class Places : uint8_t { kAll, kHalf, kFromHalf };

bool are_axes(const HostValue& value) {
  if (value.is_int()) return true;
  if (!value.is_sequence() || value.items().empty()) return false;
  return std::all_of(value.items().begin(), value.items().end(),
                     [](const HostValue& item) { return item.is_int(); });
}

// The axis has at least so many places: a transform of nothing is not defined.
void state_least(RuleBuilder& r, Term input, int axis, int64_t least) {
  const Term terms[] = {input};
  r.custom(terms, [axis, least](infer::Relation& relation) -> core::Status {
    const auto size = relation.size(0, axis);
    if (!size) return {};
    relation.finish();
    if (*size >= least) return {};
    return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "axis {} must have at least {} place{}, got {}", axis, least,
                      least == 1 ? "" : "s", *size);
  });
}

// Tensors of as many axes, whichever is known first.
core::Status same_rank(infer::Relation& relation) {
  std::optional<int> rank;
  for (int term = 0; term < relation.count() && !rank; ++term) rank = relation.rank(term);
  if (!rank) return {};
  relation.finish();
  for (int term = 0; term < relation.count(); ++term) {
    MITHRIL_RETURN_IF_ERROR(relation.set_rank(term, *rank));
  }
  return {};
}

infer::DimTerm places_of(RuleBuilder& r, infer::DimTerm size, const HostValue& n, Places places) {
  if (places == Places::kFromHalf) return n.is_int() ? r.dim(n.as_int()) : (size - 1) * 2;
  const infer::DimTerm all = n.is_int() ? r.dim(n.as_int()) : size;
  return places == Places::kHalf ? floor_div(all, 2) + 1 : all;
}

struct Sizes {
  std::vector<Term> inputs, outputs;
  HostValue axes, n;  // an int or a tuple; an int or none
  Places places;
};

void state_sizes(RuleBuilder& r, const Sizes& sizes, int rank) {
  const std::vector<int64_t> axes = axes_of(sizes.axes, static_cast<size_t>(rank));
  const auto is_out = [rank](int64_t axis) { return axis < 0 || axis >= rank; };
  if (std::any_of(axes.begin(), axes.end(), is_out)) return;  // told by `reduce`
  const auto last = static_cast<int>(axes.back());
  const bool takes_all = !sizes.n.is_int();
  std::vector<infer::DimTerm> dims;
  for (int i = 0; i < rank; ++i) {
    const infer::DimTerm size = r.dim(sizes.inputs[0], i);
    dims.push_back(i == last ? places_of(r, size, sizes.n, sizes.places) : size);
  }
  for (const int64_t axis : axes) {
    const bool is_last = axis == last;
    if (is_last && !takes_all) continue;
    const int64_t least = is_last && sizes.places == Places::kFromHalf ? 2 : 1;
    state_least(r, sizes.inputs[0], static_cast<int>(axis), least);
  }
  for (const Term output : sizes.outputs) r.shape(output, std::span<const infer::DimTerm>(dims));
}

/// Inputs of one shape; outputs that differ from it along the last of the axes.
void state_transform(RuleBuilder& r, const Sizes& sizes) {
  for (const Term input : sizes.inputs) r.same_shape(input, sizes.inputs[0]);
  std::vector<Term> ranks = sizes.outputs;
  ranks.push_back(sizes.inputs[0]);
  for (const Term output : sizes.outputs) r.kind(output, kFloating);
  r.custom(ranks, same_rank);
  if (!are_axes(sizes.axes)) return bad_argument(r, "axes must be ints", sizes.axes);
  if (sizes.n.is_int() && sizes.n.as_int() < 1) {
    return bad_argument(r, "n must be an int from 1 on", sizes.n);
  }
  r.reduce(r.fresh(kTensor), sizes.inputs[0], r.constant(sizes.axes), r.constant(false));
  if (sizes.places == Places::kAll && !sizes.n.is_int()) {
    for (const Term output : sizes.outputs) r.same_shape(output, sizes.inputs[0]);
  }
  r.when_rank_known(sizes.inputs[0],
                    [sizes](RuleBuilder& b, int rank) { state_sizes(b, sizes, rank); });
}

HostValue argument(RuleBuilder& r, const char* name) {
  const auto known = r.known(r.attr(name));
  return known ? *known : HostValue();
}

std::vector<Term> complex_input(RuleBuilder& r) {
  std::vector<Term> out{r.in("real")};
  if (r.has("imag")) out.push_back(r.in("imag"));
  return out;
}

std::vector<Term> complex_output(RuleBuilder& r) {
  return {r.out("output_real"), r.out("output_imag")};
}

// --- bodies ----------------------------------------------------------------------------------

/// No `im`: zeros.
struct Complex {
  Value re, im;
};

Complex dft(Complex x, int64_t axis, bool inverse) {
  if (!x.re) return {};
  Builder& b = *x.re.builder;
  const auto results = b.call_all(*ir::Registry::global().find("dft"), {x.re, x.im},
                                  {{"axis", HostValue(axis)}, {"inverse", HostValue(inverse)}});
  if (!b.status().ok()) return {};
  return {results[0], results[1]};
}

Complex complex_operand(Builder& b) {
  const Value re = b.in("real"), im = b.in("imag");
  if (!re) return {};
  const DType dtype = computed_type(re.dtype());
  return {cast(re, dtype), im ? cast(im, dtype) : Value()};
}

// Both parts in the type of the node's operand.
std::vector<Value> complex_results(Complex x, Value like) {
  if (!x.re || !x.im) return std::vector<Value>(2);
  return {cast(x.re, like.dtype()), cast(x.im, like.dtype())};
}

Value zeros_behind(Value x, int64_t axis, Dim count) {
  HostValue::Tuple widths(x.rank(), HostValue::ints({0, 0}));
  widths[static_cast<size_t>(axis)] = HostValue::tuple({HostValue(0), size_value(count)});
  return ir::apply("pad", {x}, {{"pad_width", HostValue::tuple(std::move(widths))}});
}

// The first `size` places of an axis; zeros where it has fewer.
Value resized(Value x, int64_t axis, Dim size) {
  if (!x) return {};
  const Dim has = x.shape()[static_cast<size_t>(axis)];
  if (has == size) return x;
  if (!has.known()) return part(zeros_behind(x, axis, size), axis, Dim(0), size);
  if (has.value() > size.value()) return part(x, axis, Dim(0), size);
  return zeros_behind(x, axis, Dim(size.value() - has.value()));
}

Complex resized(Complex x, int64_t axis, const HostValue& n) {
  if (!x.re || !n.is_int()) return x;
  return {resized(x.re, axis, Dim(n.as_int())), resized(x.im, axis, Dim(n.as_int()))};
}

Dim places_along(Value x, int64_t axis) { return x.shape()[static_cast<size_t>(axis)]; }

// None is NumPy's and PyTorch's word for "backward".
std::string norm_of(const Builder& b) {
  const HostValue& norm = b.attr("norm");
  return norm.is_none() ? "backward" : norm.as_string();
}

// x divided as `norm` says: by n, by its root, or not at all.
Value scaled(Value x, Dim n, const std::string& norm, bool inverse) {
  if (!x || norm == (inverse ? "forward" : "backward")) return x;
  const bool by_root = norm == "ortho";
  if (n.known()) {
    const auto number = static_cast<double>(n.value());
    return x / (by_root ? std::sqrt(number) : number);
  }
  const Value number = size_constant(*x.builder, n, x.dtype());
  return x / (by_root ? sqrt(number) : number);
}

Complex fft(Complex x, int64_t axis, const std::string& norm, bool inverse) {
  if (!x.re) return {};
  const Dim n = places_along(x.re, axis);
  const Complex y = dft(x, axis, inverse);
  return {scaled(y.re, n, norm, inverse), scaled(y.im, n, norm, inverse)};
}

/// Transforms real x: the other half of the places repeats this one, conjugate.
Complex rfft(Value x, int64_t axis, const std::string& norm) {
  if (!x) return {};
  Builder& b = *x.builder;
  const Dim n = places_along(x, axis);
  const auto half =
      b.call_all(*ir::Registry::global().find("rdft"), {x}, {{"axis", HostValue(axis)}});
  if (!b.status().ok()) return {};
  return {scaled(half[0], n, norm, false), scaled(half[1], n, norm, false)};
}

// Whether a place of the first half stands for itself alone: the first one, and of an even number
// of places the last one, too.
Value is_single(Value x, int64_t axis, bool is_even) {
  Builder& b = *x.builder;
  const Dim kept = places_along(x, axis);
  const Value place = range(b, kept);
  Value single = equal(place, 0.0);
  if (is_even) {
    const Dim last = b.graph().dims.sub(kept, Dim(1));
    single = logical_or(single, equal(place, size_constant(b, last)));
  }
  HostValue::Tuple shape(x.rank(), HostValue(1));
  shape[static_cast<size_t>(axis)] = size_value(kept);
  return reshape(single, HostValue::tuple(std::move(shape)));
}

/// The transform back is real where the other half is conjugate: then a place and its twin add
/// up to twice the real part of one. Imaginary parts of single places are not looked at.
Value irfft(Complex x, int64_t axis, const HostValue& n, const std::string& norm) {
  if (!x.re) return {};
  infer::DimTable& dims = x.re.builder->graph().dims;
  const bool is_even = !n.is_int() || n.as_int() % 2 == 0;
  const HostValue kept = n.is_int() ? HostValue(n.as_int() / 2 + 1) : HostValue();
  const Complex half = resized(x, axis, kept);
  if (!half.re) return {};
  const Dim has = places_along(half.re, axis);
  const Dim all = n.is_int() ? Dim(n.as_int()) : dims.mul(dims.sub(has, Dim(1)), Dim(2));
  const Dim missing = dims.sub(all, has);
  const Value single = is_single(half.re, axis, is_even);
  const auto whole = [&](Value y) { return all == has ? y : zeros_behind(y, axis, missing); };
  Complex both{whole(where(single, half.re, 2.0 * half.re)), {}};
  if (half.im) both.im = whole(where(single, 0.0, 2.0 * half.im));
  return scaled(dft(both, axis, true).re, all, norm, true);
}

std::vector<int64_t> axes_of_node(const Builder& b, Value x) {
  return axes_of(b.attr("axes"), x.rank());
}

// --- blocks ----------------------------------------------------------------------------------

constexpr const char* kNormDoc =
    "norm: which way is divided by n, 'backward' (or none) the inverse, 'forward' the other one, "
    "'ortho' "
    "both by the root of n.";

OpDefBuilder& complex_operands(OpDefBuilder& block) {
  return block.input("real", kFloating)
      .optional("imag", kFloating, "use_imag")
      .promote({"real", "imag"});
}

OpDefBuilder& imag_switch(OpDefBuilder& block) { return block.attr("use_imag", true); }

OpDefBuilder& complex_outputs(OpDefBuilder& block) {
  return block.output("output_real", computed()).output("output_imag", computed());
}

OpDefBuilder& with_norm(OpDefBuilder& block) {
  return block.attr("norm", "backward", infer::kStrKind | infer::kNoneKind)
      .choices({"backward", "ortho", "forward"});
}

OpDefBuilder& along_axis(OpDefBuilder& block) {
  return with_norm(block.attr("axis", -1).attr("n", HostValue(), kWidth));
}

OpDefBuilder& along_axes(OpDefBuilder& block) {
  return with_norm(
      block.attr("axes", HostValue::ints({-2, -1}), infer::kSequence | infer::kScalarInt));
}

Shapes parts_of(std::vector<int64_t> shape) { return {{"real", shape}, {"imag", shape}}; }

void define_primitive(OpFamily& ops) {
  complex_outputs(
      ops.def("dft")
          .input("real", kFloating)
          .optional("imag", kFloating)
          .promote({"real", "imag"})
          .doc("The Fourier transform along an axis that has places, without a factor; inverse: "
               "with the other sign of the exponent. Without imag the operand is real.")
          .formula("y_k = \\sum_j x_j e^{\\mp 2 \\pi i j k / n}")
          .attr("axis", -1)
          .attr("inverse", false))
      .rule([](RuleBuilder& r) {
        state_transform(r, {complex_input(r), complex_output(r), argument(r, "axis"), HostValue(),
                            Places::kAll});
      })
      .kernel("dft")
      .gradient([](GradBuilder& g) {
        // The adjoint of a Fourier matrix is the one with the other sign.
        const Complex cotangent{g.dout("output_real"),
                                g.has_dout("output_imag") ? g.dout("output_imag") : Value()};
        const Complex back = dft(cotangent, axis_attr(g.builder(), "axis", g.in("real").rank()),
                                 !g.attr("inverse").as_bool());
        g.d("real") = back.re;
        if (g.has("imag")) g.d("imag") = back.im;
      })
      .with(at(parts_of({2, 6})))
      .with(at({{"real", {7}}}))
      .with(at(parts_of({3, 2, 4}), {{"axis", 0}, {"inverse", true}}))
      .with(at(parts_of({0, 3})))
      .rejects(at(parts_of({2, 0})), "must have at least 1 place")
      .rejects(at(parts_of({2, 3}), {{"axis", 2}}), "axis must be in")
      .rejects(at({{"real", {2, 3}}, {"imag", {2, 4}}}), "dft");
}

// The cotangents of places that are not there are zeros, and x has no imaginary part.
void rdft_gradient(GradBuilder& g) {
  const Value x = g.in("input");
  const int64_t axis = axis_attr(g.builder(), "axis", x.rank());
  const Dim n = places_along(x, axis);
  const auto whole = [&](Value dy) {
    infer::DimTable& dims = g.builder().graph().dims;
    return dy ? zeros_behind(dy, axis, dims.sub(n, places_along(dy, axis))) : dy;
  };
  const Value dim = g.has_dout("output_imag") ? whole(g.dout("output_imag")) : Value();
  g.d("input") = dft({whole(g.dout("output_real")), dim}, axis, true).re;
}

void define_real_primitive(OpFamily& ops) {
  complex_outputs(ops.def("rdft").input("input", kFloating).promote().attr("axis", -1))
      .doc("The first n // 2 + 1 places of dft of a real tensor.")
      .formula("y_k = \\sum_j x_j e^{-2 \\pi i j k / n}")
      .rule([](RuleBuilder& r) {
        state_transform(
            r,
            {{r.in("input")}, complex_output(r), argument(r, "axis"), HostValue(), Places::kHalf});
      })
      .kernel("rdft")
      .gradient(rdft_gradient)
      .with(at({{"input", {2, 6}}}))
      .with(at({{"input", {3, 7, 2}}}, {{"axis", 1}}))
      .with(at({{"input", {53}}}))
      .with(at({{"input", {0, 1}}}))
      .rejects(at({{"input", {2, 0}}}), "must have at least 1 place")
      .rejects(at({{"input", {2, 3}}}, {{"axis", 2}}), "axis must be in");
}

void define_complex(OpFamily& ops, const char* name, const char* python, bool inverse) {
  const std::string what = inverse ? "The inverse" : "The";
  complex_outputs(imag_switch(along_axis(complex_operands(ops.def(name).python(python)))))
      .doc(what +
           " Fourier transform along an axis, of real + i imag (use_imag=False: of real) "
           "and in two real tensors as well. n: the axis is first cut to that size or filled "
           "up with zeros. " +
           kNormDoc)
      .formula(inverse ? "y_j = \\frac{1}{n} \\sum_k x_k e^{2 \\pi i j k / n}"
                       : "y_k = \\sum_j x_j e^{-2 \\pi i j k / n}")
      .rule([](RuleBuilder& r) {
        state_transform(r, {complex_input(r), complex_output(r), argument(r, "axis"),
                            argument(r, "n"), Places::kAll});
      })
      .compose_many([inverse](Builder& b) {
        const Complex x = complex_operand(b);
        if (!x.re) return std::vector<Value>(2);
        const int64_t axis = axis_attr(b, "axis", x.re.rank());
        const Complex y = fft(resized(x, axis, b.attr("n")), axis, norm_of(b), inverse);
        return complex_results(y, b.in("real"));
      })
      .with(at(parts_of({2, 6})))
      .with(at({{"real", {3, 5}}}, {{"axis", 0}, {"norm", "ortho"}, {"use_imag", false}}))
      .with(at({{"real", {3, 5}}}, {{"norm", HostValue()}, {"use_imag", false}}))
      .with(at(parts_of({2, 5, 3}), {{"axis", 1}, {"n", 8}, {"norm", "forward"}}))
      .with(at(parts_of({2, 5}), {{"n", 3}}))
      .with(at(parts_of({1}), {{"axis", 0}}))
      .with(at(parts_of({53})))
      .with(at(parts_of({0, 4}), {{"norm", "ortho"}}))
      .rejects(at(parts_of({2, 3}), {{"axis", 2}}), "axis must be in")
      .rejects(at(parts_of({2, 3}), {{"n", 0}}), "n must be an int from 1 on")
      .rejects(at(parts_of({2, 0})), "must have at least 1 place")
      .rejects(at({{"real", {2, 3}}, {"imag", {2, 4}}}), name);
}

void define_real(OpFamily& ops) {
  complex_outputs(along_axis(ops.def("rfft").python("RFFT").input("input", kFloating).promote()))
      .doc(
          std::string("The first n // 2 + 1 places of the Fourier transform of a real tensor along "
                      "an axis, as real and imaginary part: the others repeat them, conjugate. n: "
                      "the axis is first cut to that size or filled up with zeros. ") +
          kNormDoc)
      .formula("y_k = \\sum_j x_j e^{-2 \\pi i j k / n}")
      .rule([](RuleBuilder& r) {
        state_transform(r, {{r.in("input")},
                            complex_output(r),
                            argument(r, "axis"),
                            argument(r, "n"),
                            Places::kHalf});
      })
      .compose_many([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return std::vector<Value>(2);
        const int64_t axis = axis_attr(b, "axis", x.rank());
        const Complex all = resized({cast(x, computed_type(x.dtype())), {}}, axis, b.attr("n"));
        return complex_results(rfft(all.re, axis, norm_of(b)), x);
      })
      .with(at({{"input", {2, 6}}}))
      .with(at({{"input", {3, 5}}}, {{"axis", 0}, {"norm", "ortho"}}))
      .with(at({{"input", {2, 5, 3}}}, {{"axis", 1}, {"n", 8}, {"norm", "forward"}}))
      .with(at({{"input", {5}}}, {{"n", 3}}))
      .with(at({{"input", {2, 1}}}))
      .rejects(at({{"input", {2, 3}}}, {{"axis", -3}}), "axis must be in")
      .rejects(at({{"input", {2, 3}}}, {{"n", -1}}), "n must be an int from 1 on")
      .rejects(at({{"input", {0}}}), "must have at least 1 place");

  imag_switch(along_axis(complex_operands(ops.def("irfft").python("IRFFT"))))
      .doc(std::string("The real tensor of n places whose Fourier transform begins with real + i "
                       "imag: the inverse of RFFT. n is 2 (m - 1) by default, m the size of the "
                       "axis; what n needs is cut or filled up with zeros. ") +
           kNormDoc)
      .formula("y_j = \\frac{1}{n} \\sum_k x_k e^{2 \\pi i j k / n}, x_{n - k} = \\bar{x}_k")
      .output("output", computed())
      .rule([](RuleBuilder& r) {
        state_transform(r, {complex_input(r),
                            {r.out()},
                            argument(r, "axis"),
                            argument(r, "n"),
                            Places::kFromHalf});
      })
      .compose([](Builder& b) {
        const Complex x = complex_operand(b);
        if (!x.re) return Value();
        const int64_t axis = axis_attr(b, "axis", x.re.rank());
        const Value y = irfft(x, axis, b.attr("n"), norm_of(b));
        return y ? cast(y, b.in("real").dtype()) : y;
      })
      .with(at(parts_of({2, 4})))
      .with(at({{"real", {3, 2}}}, {{"axis", 0}, {"norm", "ortho"}, {"use_imag", false}}))
      .with(at(parts_of({2, 5, 3}), {{"axis", 1}, {"n", 7}, {"norm", "forward"}}))
      .with(at(parts_of({3}), {{"n", 9}}))
      .with(at(parts_of({2, 1}), {{"n", 1}}))
      .rejects(at(parts_of({2, 3}), {{"axis", 2}}), "axis must be in")
      .rejects(at(parts_of({2, 3}), {{"n", 0}}), "n must be an int from 1 on")
      .rejects(at(parts_of({2, 1})), "must have at least 2 places");
}

void define_complex_axes(OpFamily& ops, const char* name, const char* python, bool inverse) {
  complex_outputs(imag_switch(along_axes(complex_operands(ops.def(name).python(python)))))
      .doc(std::string(inverse ? "IFFT" : "FFT") +
           " along several axes, one after the other; the last two if nothing is said.")
      .rule([](RuleBuilder& r) {
        state_transform(r, {complex_input(r), complex_output(r), argument(r, "axes"), HostValue(),
                            Places::kAll});
      })
      .compose_many([inverse](Builder& b) {
        Complex x = complex_operand(b);
        if (!x.re) return std::vector<Value>(2);
        for (const int64_t axis : axes_of_node(b, x.re)) {
          x = fft(x, axis, norm_of(b), inverse);
        }
        return complex_results(x, b.in("real"));
      })
      .with(at(parts_of({2, 3, 4})))
      .with(at({{"real", {4, 3}}}, {{"norm", "ortho"}, {"use_imag", false}}))
      .with(at(parts_of({2, 3, 4}), {{"axes", HostValue::ints({0, 2, 1})}}))
      .rejects(at(parts_of({4})), "axis must be in")
      .rejects(at(parts_of({2, 3}), {{"axes", HostValue::ints({})}}), "axes must be ints")
      .rejects(at(parts_of({0, 3})), "must have at least 1 place");
}

void define_real_axes(OpFamily& ops) {
  complex_outputs(along_axes(ops.def("rfft2").python("RFFT2").input("input", kFloating).promote()))
      .doc(
          "RFFT along the last of several axes, then FFT along the others; the last two if nothing "
          "is said.")
      .rule([](RuleBuilder& r) {
        state_transform(
            r,
            {{r.in("input")}, complex_output(r), argument(r, "axes"), HostValue(), Places::kHalf});
      })
      .compose_many([](Builder& b) {
        const Value x = b.in("input");
        if (!x) return std::vector<Value>(2);
        std::vector<int64_t> axes = axes_of_node(b, x);
        const std::string norm = norm_of(b);
        Complex y = rfft(cast(x, computed_type(x.dtype())), axes.back(), norm);
        axes.pop_back();
        for (const int64_t axis : axes) y = fft(y, axis, norm, false);
        return complex_results(y, x);
      })
      .with(at({{"input", {2, 3, 4}}}))
      .with(at({{"input", {4, 3}}}, {{"norm", "ortho"}}))
      .with(at({{"input", {2, 3, 4}}}, {{"axes", HostValue::ints({2, 0, 1})}}))
      .rejects(at({{"input", {4}}}), "axis must be in")
      .rejects(at({{"input", {3, 0}}}), "must have at least 1 place");

  imag_switch(along_axes(complex_operands(ops.def("irfft2").python("IRFFT2")))
                  .attr("n", HostValue(), kWidth))
      .doc(
          "IFFT along all but the last of several axes, then IRFFT along that one, to n places; "
          "the "
          "last two axes if nothing is said.")
      .output("output", computed())
      .rule([](RuleBuilder& r) {
        state_transform(r, {complex_input(r),
                            {r.out()},
                            argument(r, "axes"),
                            argument(r, "n"),
                            Places::kFromHalf});
      })
      .compose([](Builder& b) {
        Complex x = complex_operand(b);
        if (!x.re) return Value();
        std::vector<int64_t> axes = axes_of_node(b, x.re);
        const std::string norm = norm_of(b);
        const int64_t last = axes.back();
        axes.pop_back();
        for (const int64_t axis : axes) x = fft(x, axis, norm, true);
        const Value y = irfft(x, last, b.attr("n"), norm);
        return y ? cast(y, b.in("real").dtype()) : y;
      })
      .with(at(parts_of({2, 3, 4})))
      .with(at({{"real", {4, 3}}}, {{"norm", "ortho"}, {"n", 5}, {"use_imag", false}}))
      .with(at(parts_of({2, 3, 4}), {{"axes", HostValue::ints({2, 0, 1})}}))
      .rejects(at(parts_of({4})), "axis must be in")
      .rejects(at(parts_of({3, 1})), "must have at least 2 places");
}

// The places of an axis from the middle on come first; back: the middle is rounded down.
Value shifted(Value x, int64_t axis, bool back) {
  if (!x) return {};
  infer::DimTable& dims = x.builder->graph().dims;
  const Dim size = places_along(x, axis);
  const Dim cut = back ? dims.floor_div(size, Dim(2)) : dims.ceil_div(size, Dim(2));
  return x.builder->call("concat",
                         {HostValue(axis), part(x, axis, cut, size), part(x, axis, Dim(0), cut)});
}

void define_shift(OpFamily& ops, const char* name, const char* python, bool back) {
  ops.def(name)
      .python(python)
      .doc(back ? "What FFTShift has done, undone: place 0 comes back from the middle."
                : "Place 0 of the axes (none: all) in the middle, at n // 2, as spectra are drawn.")
      .formula(back ? "y_i = x_{(i + \\lfloor n / 2 \\rfloor) \\bmod n}"
                    : "y_i = x_{(i - \\lfloor n / 2 \\rfloor) \\bmod n}")
      .input("input", kTensor)
      .attr("axes", HostValue(), kWidth | infer::kSequence)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("input"));
        r.reduce(r.fresh(kTensor), r.in("input"), r.attr("axes"), r.constant(false));
      })
      .compose([back](Builder& b) {
        Value y = b.in("input");
        if (!y) return Value();
        for (const int64_t axis : axes_of(b.attr("axes"), y.rank())) y = shifted(y, axis, back);
        return y;
      })
      .with(at({{"input", {5}}}))
      .with(at({{"input", {4, 3}}}))
      .with(at({{"input", {2, 5, 3}}}, {{"axes", HostValue::ints({1, -1})}}))
      .with(at({{"input", {0, 3}}}, {{"axes", 1}}))
      .rejects(at({{"input", {2, 3}}}, {{"axes", 2}}), "axis must be in");
}

}  // namespace

void define_fourier(OpFamily& ops) {
  define_primitive(ops);
  define_real_primitive(ops);
  define_complex(ops, "fft", "FFT", false);
  define_complex(ops, "ifft", "IFFT", true);
  define_real(ops);
  define_complex_axes(ops, "fft2", "FFT2", false);
  define_complex_axes(ops, "ifft2", "IFFT2", true);
  define_real_axes(ops);
  define_shift(ops, "fftshift", "FFTShift", false);
  define_shift(ops, "ifftshift", "IFFTShift", true);
}

}  // namespace mithril::ops
