// Ops on host values: shapes, sizes and dtypes, tuples, slices, and the way to and from tensors.
#include <algorithm>

#include "infer/relation.h"
#include "ops/index_plan.h"
#include "ops/window.h"

namespace mithril::ops {
namespace {

using core::Result;

Result<HostValue> shape_of(const ir::HostCall& call) { return shape_value(call.types[0].shape); }

Result<HostValue> size_of(const ir::HostCall& call) {
  const Shape& shape = call.types[0].shape;
  const HostValue* dim = call.attrs.find("dim");
  const auto of_axis = [&](const HostValue& axis) -> Result<HostValue> {
    const int64_t at = axes_of(axis, shape.size())[0];
    if (at < 0 || at >= static_cast<int64_t>(shape.size())) {
      return core::fail(core::ErrorKind::kValue, core::Code::kValueAxis,
                        "size: axis {} is out of range for rank {}", axis.as_int(), shape.size());
    }
    return size_value(shape[static_cast<size_t>(at)]);
  };
  if (dim == nullptr || dim->is_none()) {
    return size_value(call.dims.product(std::span(shape.data(), shape.size())));
  }
  if (dim->is_int()) return of_axis(*dim);
  HostValue::Tuple sizes;
  for (const HostValue& axis : dim->items()) {
    MITHRIL_ASSIGN(HostValue size, of_axis(axis));
    sizes.push_back(std::move(size));
  }
  return HostValue::tuple(std::move(sizes));
}

void define_sizes(OpFamily& ops) {
  ops.def("shape")
      .python("Shape")
      .doc("The sizes of a tensor as a tuple of ints.")
      .input("input", kTensor)
      .output("output", host_result())
      .rule([](RuleBuilder& r) { r.shape_of(r.out(), r.in("input")); })
      .host(shape_of)
      .not_differentiable()
      .with(at({{"input", {2, 3}}}))
      .with(at({{"input", {}}}));

  ops.def("size")
      .python("Size")
      .doc("The number of elements (dim none), or the size of the axes that dim names.")
      .input("input", kTensor)
      .key("dim", HostValue())
      .output("output", host_result())
      .rule([](RuleBuilder& r) { r.size_of(r.out(), r.in("input"), r.in("dim")); })
      .host(size_of)
      .not_differentiable()
      .with(at({{"input", {2, 3}}}))
      .with(at({{"input", {2, 3}}}, {{"dim", -1}}))
      .with(at({{"input", {2, 3}}}, {{"dim", HostValue::ints({1, 0})}}));

  ops.def("length")
      .python("Length")
      .doc("The size of the first axis.")
      .input("input", kTensor)
      .output("output", host_result())
      .rule([](RuleBuilder& r) {
        r.kind(r.out(), infer::kScalarInt);
        r.equal(r.dim(r.out()), r.dim(r.in("input"), 0));
      })
      .host([](const ir::HostCall& call) -> Result<HostValue> {
        const Shape& shape = call.types[0].shape;
        if (shape.empty()) {
          return core::fail(core::ErrorKind::kShape, core::Code::kShapeRank,
                            "length: a tensor of rank 0 has no length");
        }
        return size_value(shape[0]);
      })
      .not_differentiable()
      .with(at({{"input", {4, 3}}}));

  ops.def("dtype")
      .python("Dtype")
      .doc("The element type of a tensor, as it is chosen when the model is compiled.")
      .input("input", kTensor)
      .output("output", host_result())
      .rule([](RuleBuilder& r) { r.kind(r.out(), infer::kDTypeKind); })
      .host([](const ir::HostCall& call) -> Result<HostValue> {
        if (call.has_dtypes) return HostValue(call.types[0].dtype);
        return core::fail(core::ErrorKind::kDType, core::Code::kShapeUnknown,
                          "dtype: it is not chosen yet");
      })
      .not_differentiable()
      .with(at({{"input", {2, 3}}}));
}

Result<HostValue> tuple_of(const ir::HostCall& call) {
  return HostValue::tuple({call.operands.begin(), call.operands.end()});
}
Result<HostValue> list_of(const ir::HostCall& call) {
  return HostValue::list({call.operands.begin(), call.operands.end()});
}
Result<HostValue> joined_tuple(const ir::HostCall& call) {
  HostValue::Tuple out;
  for (const HostValue& operand : call.operands) {
    if (operand.is_sequence()) {
      out.insert(out.end(), operand.items().begin(), operand.items().end());
    } else {
      out.push_back(operand);
    }
  }
  return HostValue::tuple(std::move(out));
}
Result<HostValue> slice_of(const ir::HostCall& call) {
  return HostValue(core::Slice{call.operands[0], call.operands[1], call.operands[2]});
}

// The items of a variadic input as terms: the rule sees them under the names input1, input2 …
std::vector<Term> numbered(RuleBuilder& r) {
  std::vector<Term> out;
  for (int i = 1; r.has("input" + std::to_string(i)); ++i) {
    out.push_back(r.in("input" + std::to_string(i)));
  }
  return out;
}

void define_containers(OpFamily& ops) {
  ops.def("to_tuple")
      .python("ToTuple")
      .doc("The operands as a tuple; the model's keys are input1, input2 … up to n.")
      .variadic("input", infer::kAny)
      .attr("n", HostValue())
      .output("output", host_result())
      .cin({})
      .rule([](RuleBuilder& r) { r.tuple(r.out(), numbered(r)); })
      .host(tuple_of);

  ops.def("to_list")
      .python("ToList")
      .doc("The operands as a list; the model's keys are input1, input2 … up to n.")
      .variadic("input", infer::kAny)
      .attr("n", HostValue())
      .output("output", host_result())
      .cin({})
      .rule([](RuleBuilder& r) { r.list(r.out(), numbered(r)); })
      .host(list_of);

  ops.def("union")
      .python("PrimitiveUnion")
      .doc(
          "Numbers and tuples of numbers joined to one flat tuple; the model's keys are input1, "
          "input2 … up to n.")
      .variadic("input", infer::kScalarInt | infer::kScalarFloat | infer::kSequence)
      .attr("n", 1)
      .output("output", host_result())
      .cin({"input1"})
      .rule([](RuleBuilder& r) {
        std::vector<Term> terms{r.out()};
        for (const Term item : numbered(r)) terms.push_back(item);
        r.kind(r.out(), infer::kTupleKind);
        r.custom(terms, [](infer::Relation& relation) { return relation.join(); });
      })
      .host(joined_tuple)
      .not_differentiable();

  ops.def("slice")
      .python("Slice")
      .doc("Python's slice object from start, stop and step.")
      .key("start")
      .key("stop")
      .key("step")
      .output("output", host_result())
      .cin({})
      .rule([](RuleBuilder& r) { r.slice(r.out(), r.in("start"), r.in("stop"), r.in("step")); })
      .host(slice_of)
      .not_differentiable()
      .with(at({}, {{"start", 0}, {"stop", 2}, {"step", HostValue()}}));
}

core::Kind kind_in(const HostValue& nested) {
  if (nested.is_bool()) return core::Kind::kBool;
  if (!nested.is_sequence()) {
    const bool is_int = nested.is_int() || nested.is_symbolic();
    return is_int ? core::Kind::kInt : core::Kind::kFloat;
  }
  core::Kind kind = nested.items().empty() ? core::Kind::kFloat : core::Kind::kBool;
  for (const HostValue& item : nested.items()) kind = std::max(kind, kind_in(item));
  return kind;
}

bool has_sizes(const HostValue& nested) {
  if (!nested.is_sequence()) return nested.is_symbolic();
  return std::any_of(nested.items().begin(), nested.items().end(), has_sizes);
}

// Numbers of which some are sizes that are known later: each one stays a constant of its own. The
// rule has seen that they are nested evenly.
Value joined(Builder& b, const HostValue& nested, DType dtype) {
  if (!nested.is_sequence()) {
    return b.call("constant", std::vector<ir::Operand>{},
                  {{"value", nested}, {"dtype", HostValue(dtype)}});
  }
  std::vector<ir::Operand> rows{HostValue(0)};  // the axis
  for (const HostValue& item : nested.items()) {
    const Value row = joined(b, item, dtype);
    HostValue::Tuple shape{HostValue(1)};
    for (const infer::Dim dim : row.shape()) shape.push_back(HostValue(dim.value()));
    rows.emplace_back(reshape(row, HostValue::tuple(std::move(shape))));
  }
  return b.call("concat", std::move(rows));
}

DType type_of(Builder& b, const HostValue& nested) {
  const core::Kind kind = kind_in(nested);
  if (kind == core::Kind::kBool) return DType::kBool;
  return kind == core::Kind::kInt ? b.graph().default_int : b.graph().default_float;
}

void define_host_conversions(OpFamily& ops) {
  ops.def("buffer")
      .python("Buffer")
      .doc("The operand itself.")
      .input("input", infer::kAny)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) { r.identical(r.out(), r.in("input")); })
      .builtin()
      .moves()
      .trait(Trait::kForward)
      .gradient([](GradBuilder& g) { g.d("input") = g.dout(); })
      .with(at({{"input", {2, 3}}}));

  ops.def("item")
      .python("Item")
      .doc("The one element of a tensor as a number.")
      .input("input", kTensor)
      .output("output", host_result())
      .rule([](RuleBuilder& r) {
        using K = infer::ValueKind;
        r.one_element(r.in("input"));
        constexpr std::pair<K, K> kScalars[] = {
            {K::kTensorBool, K::kBool}, {K::kTensorInt, K::kInt}, {K::kTensorFloat, K::kFloat}};
        r.map_kind(r.out(), r.in("input"), kScalars);
      })
      .builtin()
      .not_differentiable()
      .with(at({{"input", {1, 1}}}));

  ops.def("tensor_to_list")
      .python("TensorToList")
      .doc("The elements of a tensor as nested lists.")
      .input("input", kTensor)
      .output("output", host_result())
      .rule([](RuleBuilder& r) { r.tensor_of(r.in("input"), r.out()); })
      .builtin()
      .not_differentiable()
      .with(at({{"input", {2, 3}}}));

  ops.def("to_tensor")
      .python("ToTensor")
      .doc("A tensor from a number or nested lists and tuples of numbers.")
      .input("input", kHost)
      .key("dtype", HostValue())
      .output("output", dtype_attr("dtype", ResultType::kOfValue))
      .rule([](RuleBuilder& r) { r.tensor_of(r.out(), r.in("input")); })
      .compose([](Builder& b) {
        if (!are_known(b, {"input"})) return Value();
        const HostValue& given = b.attr("dtype");
        const DType dtype = given.is_dtype() ? given.as_dtype() : type_of(b, b.attr("input"));
        if (has_sizes(b.attr("input"))) return joined(b, b.attr("input"), dtype);
        auto literal = literal_of(b.attr("input"), dtype);
        if (literal != nullptr) return b.constant(std::move(literal));
        unsupported(b, "to_tensor: the items must be numbers in a regular shape");
        return Value();
      })
      .not_differentiable()
      .with(at({}, {{"input", 2.5}}))
      .with(at({}, {{"input", HostValue::list({1, 2, 3})}}));
}

}  // namespace

void define_host(OpFamily& ops) {
  define_sizes(ops);
  define_containers(ops);
  define_host_conversions(ops);
  define_window_arguments(ops);
}

}  // namespace mithril::ops
