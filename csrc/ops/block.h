// What every file of blocks uses: the names of the block language and shorthands for its formulas.
#pragma once
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "infer/kind.h"
#include "infer/rule.h"
#include "ir/builder.h"
#include "ir/op_def.h"
#include "ops/families.h"

namespace mithril::ops {

using core::DType;
using core::HostValue;
using infer::IntOp;
using infer::kFloating;
using infer::kHost;
using infer::kIntegral;
using infer::kIntegralNum;
using infer::kNum;
using infer::kNumeric;
using infer::kTensor;
using infer::kTensorBool;
using infer::kTensorInt;
/// An attribute that gives a size, or none: it follows from the wires.
inline constexpr infer::KindSet kWidth = infer::kScalarInt | infer::kNoneKind;
using infer::RuleBuilder;
using infer::Term;
using ir::Attrs;
using ir::axes_of;
using ir::boolean;
using ir::Builder;
using ir::computed;
using ir::computed_wide;
using ir::default_float;
using ir::default_int;
using ir::dtype_attr;
using ir::DTypeRule;
using ir::GradBuilder;
using ir::host_result;
using ir::Init;
using ir::OpDefBuilder;
using ir::Operand;
using ir::OpFamily;
using ir::PointwiseCall;
using ir::Precision;
using ir::same_as;
using ir::Sample;
using ir::Shape;
using ir::shape_value;
using ir::size_value;
using ir::Trait;
using ir::Value;
using ir::wide_as;
using ResultType = DTypeRule::Result;

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;
/// A case of the test matrix.
inline Sample at(Shapes shapes, Attrs attrs = {}, std::vector<std::string> integers = {}) {
  return {std::move(shapes), std::move(attrs), std::move(integers)};
}

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The shapes that every one-operand elementwise op is tested on.
OpDefBuilder& unary_cases(OpDefBuilder& block, const Attrs& attrs = {});
/// An op of one operand whose result is a float, with the cases of `unary_cases`.
OpDefBuilder& floating(OpDefBuilder& block);
/// The same of numbers, not of bools.
OpDefBuilder& activation(OpDefBuilder& block);
/// The same for two operands: equal, broadcast both ways, rank 0, no elements; and a clash.
OpDefBuilder& binary_cases(OpDefBuilder& block, const std::string& left, const std::string& right);

/// y with the sign of x; of a zero that zero.
tile::Reg odd(tile::Reg x, tile::Reg y);

/// A number in a type, exact where the type holds it; integers saturate.
tile::Reg literal(tile::Builder& t, DType dtype, const HostValue& number);

/// An input of a body as a call takes it: the wire where there is one, else the known value.
Operand given(const Builder& b, std::string_view name);
/// The type in which sums over elements of a type are made: 16-bit floats compute in float32.
DType computed_type(DType dtype);
/// Tells whether an attribute that may be absent is True.
bool flag(const Builder& b, std::string_view name);
/// Tells how many elements x has.
infer::Dim element_count(Value x);
/// `op` over the axes of x, which may be wired.
Value reduce(std::string_view op, Value x, Operand axis, Operand keepdim);
/// x with the shape of `like`, repeated along axes of size 1.
Value broadcast_like(Value x, Value like);
/// x with two axes exchanged.
Value swap_axes(Value x, int64_t axis1, int64_t axis2);
/// Matrices, which are the last two axes of x, transposed.
Value transposed(Value x);
/// The identity for the columns of matrices x, in the type of x.
Value eye_like(Builder& b, Value x);
/// Numbers of the rows of matrices x as a column, and of the columns as a row.
std::pair<Value, Value> rows_and_columns(Value x);
/// x with axes of size 1 put in at `axis` (positions in the result).
Value expand_dims(Value x, HostValue axis);
/// x from place `start` up to `stop` along one axis.
Value part(Value x, int64_t axis, infer::Dim start, infer::Dim stop);
/// x with the order of one axis turned around.
Value reversed(Value x, int64_t axis);
/// The ints from 0 up to `size` in a type.
Value range(Builder& b, infer::Dim size, DType dtype = DType::kInt64);
/// `size` as a tensor of rank 0.
Value size_constant(Builder& b, infer::Dim size, DType dtype = DType::kInt64);
/// Tells how many elements x has along `axis`, as a tensor of rank 0 in the type of x.
Value count(Value x, const HostValue& axis);
/// A tensor of that shape, filled.
Value full(Builder& b, HostValue shape, double value, DType dtype);

/// In the gradient of a reduction: `reduced` (shaped like the result) with the reduced axes put
/// back as 1, so that it broadcasts against the input.
Value with_reduced_axes(GradBuilder& g, Value reduced);

/// An axis of the node, counted from the front.
int64_t axis_attr(const Builder& b, std::string_view name, size_t rank);
/// Tells whether the axis is wired: the body has failed then, because it needs its value.
bool needs_known_axis(Builder& b);

/// The rule of ops along one axis: the result has the shape of the input, which has the axis.
void along_axis(RuleBuilder& r);
/// Part of a rule: the key `dtype` is none or a float type.
void state_float(RuleBuilder& r);
/// Fails a rule with a typed error that quotes the value.
void bad_argument(RuleBuilder& r, const std::string& message, const HostValue& got);
/// Fails a body with a typed error.
void unsupported(Builder& b, const std::string& message);

}  // namespace mithril::ops
