// Tensors from nothing but shapes and numbers.
#include "ops/block.h"

namespace mithril::ops {
namespace {

using tile::Reg;

double number_or(const HostValue* value, double otherwise) {
  return value == nullptr || value->is_none() ? otherwise : value->as_number();
}

void define_constant(OpFamily& ops) {
  ops.def("constant")
      .doc("A number, or a tensor literal.")
      .attr("value")
      .attr("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kOfValue))
      .rule([](RuleBuilder& r) {
        const auto value = r.known(r.attr("value"));
        std::vector<infer::DimTerm> dims;
        if (value && value->is_tensor()) {
          for (const int64_t size : value->as_tensor()->shape) dims.push_back(r.dim(size));
        }
        r.shape(r.out(), std::span<const infer::DimTerm>(dims));
      })
      .builtin()
      .trait(Trait::kLiteral)
      .not_differentiable()
      .with(at({}, {{"value", 1.5}}))
      .with(at({}, {{"value", 3}, {"dtype", HostValue(DType::kInt64)}}));
}

void define_filled(OpFamily& ops) {
  ops.def("full")
      .python("Full")
      .doc("A tensor of the shape in which every element is the value.")
      .key("shape")
      .key("value", 0.0)
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .rule([](RuleBuilder& r) { r.shape_from_value(r.out(), r.in("shape")); })
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        if (c.in.size() > 1 && c.in[1].valid()) return t.cast(c.in[1], c.result);
        const HostValue* value = c.attrs.find("value");
        const bool is_given = value != nullptr && !value->is_none();
        return literal(t, c.result, is_given ? *value : HostValue(0.0));
      })
      .moves()
      .not_differentiable()
      .with(at({}, {{"shape", HostValue::ints({2, 3})}, {"value", 1.5}}))
      .with(at({}, {{"shape", HostValue::ints({})}, {"value", 2.0}}))
      .with(at({}, {{"shape", HostValue::ints({0, 2})}}));

  for (const auto& [name, python, value] :
       {std::tuple("zeros", "Zeros", 0.0), std::tuple("ones", "Ones", 1.0)}) {
    ops.def(name)
        .python(python)
        .doc(std::string("A tensor of the shape, filled with ") + (value == 0.0 ? "0." : "1."))
        .key("shape")
        .key("dtype", HostValue())
        .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
        .rule([](RuleBuilder& r) { r.shape_from_value(r.out(), r.in("shape")); })
        .pointwise([value = value](tile::Builder& t, const PointwiseCall& c) {
          return t.constant(c.result, value);
        })
        .not_differentiable()
        .with(at({}, {{"shape", HostValue::ints({2, 3})}}))
        .with(at({}, {{"shape", HostValue::ints({0})}}));
  }

  for (const auto& [name, python, value] :
       {std::tuple("zeros_like", "ZerosLike", 0.0), std::tuple("ones_like", "OnesLike", 1.0)}) {
    unary_cases(ops.def(name)
                    .python(python)
                    .doc(std::string("A tensor of the operand's shape and type, filled with ") +
                         (value == 0.0 ? "0." : "1."))
                    .input("input", kTensor)
                    .output("output", same_as("input"))
                    .rule([](RuleBuilder& r) { r.same_shape(r.out(), r.in("input")); })
                    .compose([value = value](Builder& b) {
                      const Value x = b.in("input");
                      if (!x) return Value();
                      return full(b, shape_value(x.shape()), value, x.dtype());
                    })
                    .not_differentiable());
  }
}

constexpr infer::KindSet kScalarNumber = infer::kScalarInt | infer::kScalarFloat;

void define_ranges(OpFamily& ops) {
  ops.def("arange")
      .python("Arange")
      .doc("Numbers from start, in steps, while below stop; integers when all three are.")
      .input("start", kScalarNumber, HostValue(0))
      .input("stop", kScalarNumber)
      .input("step", kScalarNumber, HostValue(1))
      .key("dtype", HostValue())
      .keys({"stop", "start", "step", "dtype"})
      .cin({"stop"})
      .output("output", dtype_attr("dtype", ResultType::kCompute))
      .promote({"start", "stop", "step"})
      .rule([](RuleBuilder& r) { r.arange(r.out(), r.in("start"), r.in("stop"), r.in("step")); })
      .pointwise([](tile::Builder& t, const PointwiseCall& c) {
        const DType wide = core::is_float(c.result) ? DType::kFloat64 : DType::kInt64;
        const auto number = [&](const char* name, double otherwise) {
          const HostValue* value = c.attrs.find(name);
          if (value != nullptr && value->is_int()) return t.constant_int(wide, value->as_int());
          return t.constant(wide, number_or(value, otherwise));
        };
        const Reg at = t.cast(t.position(), wide);
        return t.cast(number("start", 0.0) + at * number("step", 1.0), c.result);
      })
      .not_differentiable()
      .with(at({}, {{"stop", 5}}))
      .with(at({}, {{"start", 2}, {"stop", 10}, {"step", 3}}))
      .with(at({}, {{"start", 5}, {"stop", 0}, {"step", -2}}))
      .with(at({}, {{"stop", 0}}))
      .rejects(at({}, {{"stop", 3}, {"step", 0}}), "arange");
}

// Where row and column are equal, or where they are not.
void define_identity(OpFamily& ops, const char* name, const char* python, const char* doc,
                     const char* compare) {
  ops.def(name)
      .python(python)
      .doc(doc)
      .key("N")
      .key("M", HostValue())
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kDefaultFloat))
      .rule([](RuleBuilder& r) {
        r.shape(r.out(), "n m");
        r.equal(r.dim("n"), r.dim(r.in("N")));
        r.when_known(r.in("M"), [](RuleBuilder& rule, const HostValue& m) {
          rule.equal(rule.dim("m"), m.is_none() ? rule.dim("n") : rule.dim(rule.in("M")));
        });
      })
      .compose([compare](Builder& b) {
        const HostValue rows = b.attr("N");
        const HostValue columns = b.attr("M").is_none() ? rows : b.attr("M");
        const HostValue& dtype = b.attr("dtype");
        const auto range = [&](const HostValue& stop, int64_t axis) {
          return expand_dims(b.call("arange", {}, {{"stop", stop}}), HostValue(axis));
        };
        const Value chosen = ir::apply(compare, {range(rows, 1), range(columns, 0)});
        return cast(chosen, dtype.is_dtype() ? dtype.as_dtype() : b.graph().default_float);
      })
      .not_differentiable()
      .with(at({}, {{"N", 3}}))
      .with(at({}, {{"N", 2}, {"M", 4}}))
      .with(at({}, {{"N", 0}}));
}

}  // namespace

void define_creation(OpFamily& ops) {
  define_constant(ops);
  define_filled(ops);
  define_ranges(ops);
  define_identity(ops, "eye", "Eye",
                  "Ones on the diagonal of an N by M matrix (M none: N by N), else zeros.",
                  "equal");
  define_identity(ops, "ones_with_zero_diag", "EyeComplement",
                  "Zeros on the diagonal of an N by M matrix (M none: N by N), else ones.",
                  "not_equal");
}

}  // namespace mithril::ops
