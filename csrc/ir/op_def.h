// What an op is: one block declares everything, and every other part of the engine reads it here.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/host_value.h"
#include "core/status.h"
#include "infer/kind.h"
#include "infer/rule.h"
#include "ir/graph.h"
#include "tile/builder.h"

namespace mithril::ir {

class Builder;
class GradBuilder;
struct Value;
struct OpDef;

/// Tells how the element types of operands and results follow from the operands' types. Operands
/// that take part in the computation are cast to one *compute type* by assign_dtypes.
struct DTypeRule {
  enum class Compute : uint8_t {
    kKeep,           // operands stay as they are
    kPromote,        // all promoted operands get their common type
    kPromoteFloat,   // as kPromote; bool and integers become the backend's float type
    kPromoteInt,     // as kPromote; bool and integers become the target's default integer (sums)
    kPromoteNumber,  // as kPromote; bool becomes the target's default integer (// ** << >>)
  };
  enum class Result : uint8_t {
    kCompute,  // the compute type
    kWidened,  // the type that kernels compute that in (core::widened)
    kSameAs,   // the type of one operand
    kWideAs,   // the same, but float32 where that is a half
    kBool,
    kDefaultInt,  // indices and sizes
    kDefaultFloat,
    kAttr,     // a dtype attribute; none: `fallback`
    kHost,     // the result is a host value
    kOfValue,  // the type of the host value `value` or `input`: literals have one, numbers
               // the default one of their kind
  };
  Result result = Result::kCompute;
  std::string name;                         // kSameAs, kWideAs: operand; kAttr: attribute
  Result fallback = Result::kDefaultFloat;  // kAttr without a value
};

/// Shorthands for `.output(name, rule)`.
DTypeRule same_as(std::string_view input);
DTypeRule wide_as(std::string_view input);
DTypeRule computed();
DTypeRule computed_wide();
DTypeRule boolean();
DTypeRule default_int();
DTypeRule default_float();
DTypeRule dtype_attr(std::string_view attr, DTypeRule::Result fallback);
DTypeRule host_result();

/// Initial values of a trainable input.
struct Init {
  enum class Kind : uint8_t {
    kNone,  // as kNormal
    kZeros,
    kOnes,
    kNormal,
    kUniformFanIn,
    kXavierUniform,
    kXavierNormal,
    kKaimingUniform,
    kKaimingNormal
  };
  static constexpr std::array<std::string_view, 9> kNames = {
      "none",          "zeros",           "ones",
      "normal",        "uniform_fan_in",  "xavier_uniform",
      "xavier_normal", "kaiming_uniform", "kaiming_normal"};
  Kind kind = Kind::kNone;
  /// kUniformFanIn: U(±1/sqrt(fan_in)), fan_in = product of these dims of `fan_in_of`.
  std::string fan_in_of;  // the input whose shape counts ("" = this one)
  std::vector<int> fan_in_dims;
};

/// Numbers that an argument may be: from `low` to `high`, without `low` where that is open. NaN is
/// in no range.
struct NumberRange {
  double low, high;
  bool is_open = false;

  /// Tells whether a value is in the range; what is no number is none of its business.
  bool admits(const HostValue& value) const;
  std::string to_string() const;
};

struct InputDef {
  std::string name;
  infer::KindSet kinds;
  bool is_key = false;    // `.key`: a host default; attribute when known, operand when wired
  bool variadic = false;  // a list or tuple of operands; the last input
  bool optional = false;  // may be absent
  std::string when;       // optional: the bool attribute that says whether it exists
  bool trainable = false;
  std::optional<HostValue> default_value;
  Init init;
  /// State of a model in train mode: the result that is its next value, and its first value (a
  /// number that fills it, or "key" for random state). In eval mode a parameter without gradient;
  /// an optional one (a random key) does not exist then.
  std::string next;
  HostValue first;
  std::optional<NumberRange> range = {};  // of a number that it is given
  // For the test matrix: element range, and points that are always included.
  double low = -2.0, high = 2.0;
};

struct AttrDef {
  std::string name;
  std::optional<HostValue> default_value;  // none: required
  infer::KindSet kinds = infer::kAny;      // what it may be
  std::vector<std::string> choices;        // of strings; empty: any
  std::optional<NumberRange> range = {};   // of numbers; none: any

  /// Fails, naming the op, on a value that the attribute may not have.
  core::Status check(std::string_view op, const HostValue& value) const;
};

/// Fails, naming the op, on a number outside of the range of an argument.
core::Status check_range(std::string_view op, std::string_view name,
                         const std::optional<NumberRange>& range, const HostValue& value);

struct OutputDef {
  std::string name;
  DTypeRule dtype;
};

/// A case of the test matrix: shapes of tensor inputs and values of keys and attributes.
struct Sample {
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  Attrs attrs;
  std::vector<std::string> integers;  // inputs of any kind that hold integers in this case
};

/// Operands that must be refused: text that the error contains.
struct ErrorSample {
  Sample sample;
  std::string message;
};

enum class BodyKind : uint8_t {
  kNone,       // built into the engine: constant, call, cotangent plumbing
  kCompose,    // a graph of other ops
  kPointwise,  // tile expression, one lane
  kRow,        // tile program with reductions along a row
  kKernel,     // a structured op with a canonical reference
  kHost,       // host values only
};

/// Shows `.host` functions their call: operands and attributes as values, sizes as expressions.
struct HostCall {
  std::span<const HostValue> operands;  // none where absent
  const Attrs& attrs;
  DimTable& dims;
  std::span<const Type> types;  // of the operands (shape of x needs no value of x)
  bool has_dtypes = true;       // false before assign_dtypes: dtypes of tensors are provisional
};

/// Says what mixed precision does with an op: operands of its products may be rounded to a half, or
/// its results need the range and the digits of the wide type, or it follows its operands.
enum class Precision : uint8_t { kFollows, kHalf, kWide };

/// Facts about what an op does, which passes and selection ask for in place of its name.
enum class Trait : uint8_t {
  kLiteral,    // its value is an attribute
  kReduction,  // over the axes of the key `axis`, in any order of the elements; `keepdim` keeps
               // them
  kReshape,    // the elements, in row-major order, in another shape
  kTranspose,  // the axes in another order
  kBroadcast,  // repeated along axes of size 1 and new leading axes
  kForward,    // the first operand itself, once the others are there
};

using ComposeFn = std::function<std::vector<Value>(Builder&)>;
/// Shows a tile body its call: the operands of one lane, attributes, the type of the result.
struct PointwiseCall {
  std::span<const tile::Reg> in;
  const Attrs& attrs;
  DType result;
  tile::Order order = tile::Order::kLanes;  // row bodies: of the node's sums and products
};
using PointwiseFn = std::function<tile::Reg(tile::Builder&, const PointwiseCall&)>;
using GradientFn = std::function<void(GradBuilder&)>;
using HostFn = std::function<core::Result<HostValue>(const HostCall&)>;

struct OpDef {
  OpId id = -1;
  std::string name;                         // "log1p": graphs, backends
  std::string python_name;                  // "Log1p"; "" = no class
  std::vector<std::string> aliases;         // further function names: "reduce_sum"
  std::vector<std::string> python_aliases;  // further class names
  std::string family;                       // file of the block: "activation"
  std::string doc, formula;
  std::vector<InputDef> inputs;
  std::vector<AttrDef> attrs;
  std::vector<OutputDef> outputs;
  std::vector<std::string> key_order;       // of wires; empty: unvalued inputs first
  std::vector<std::string> connect_order;   // default: inputs, outputs
  std::vector<std::string> argument_order;  // leading arguments of the constructor; empty: by rule
  std::vector<std::string> canonical_inputs;
  DTypeRule::Compute compute = DTypeRule::Compute::kKeep;
  std::vector<std::string> promoted;  // which inputs; empty = all tensor inputs
  infer::Rule shape_rule;             // empty: elementwise broadcast of all tensor inputs
  infer::Rule full_rule;              // made by the registry: kinds, then shape_rule
  BodyKind body = BodyKind::kNone;
  std::string kernel;  // kKernel: name in reference/
  ComposeFn compose;
  /// Ops with another body: the nodes that `compose` replaces when the target has no function for
  /// the op; the others run as they are.
  std::function<bool(const Graph&, const Node&)> expands;
  bool expands_first = false;  // these are written out everywhere, before they are differentiated
  PointwiseFn pointwise;
  HostFn host;  // also beside another body: folding of host operands
  GradientFn gradient;
  bool differentiable = true;
  bool has_kinks = false;
  bool checks_sizes = false;  // targets that bind sizes keep it until then
  std::vector<std::pair<std::string, size_t>> awaited;  // inputs and axes: see needs_size
  bool commutative = false;
  bool moves = false;   // results are elements of operands: none is rounded
  uint32_t traits = 0;  // a bit for each Trait
  Precision precision = Precision::kFollows;
  bool random = false;  // never merged, never folded
  /// Says that the first axis of its results has a size that follows from elements, not from sizes.
  bool sized_by_data = false;
  /// The op that computes one of these in the front part of results that are as large as they can
  /// be, and how long that part is: what plans run. Operands and attributes are the same.
  std::string bounded;
  int regions = 0;                               // graphs that each node owns
  std::vector<std::pair<double, double>> kinks;  // unary: (input, gradient there)
  std::vector<double> points;                    // unary samples that are always included
  std::vector<Sample> samples;
  std::vector<ErrorSample> error_samples;

  int input_index(std::string_view name) const;  // -1 if absent
  int output_index(std::string_view name) const;
  bool has_attr(std::string_view name) const;  // attribute or key
  const InputDef* find_input(std::string_view name) const;
  bool is_elementwise() const { return body == BodyKind::kPointwise; }
  bool has(Trait trait) const { return (traits >> static_cast<unsigned>(trait) & 1U) != 0; }
};

/// Fluent declaration; see architecture section 4. Registered by the destructor of the full
/// expression: `ops.def("relu").python("Relu")…;`
class OpDefBuilder {
 public:
  OpDefBuilder(class OpFamily& family, std::string name);
  ~OpDefBuilder();
  OpDefBuilder(const OpDefBuilder&) = delete;
  OpDefBuilder& operator=(const OpDefBuilder&) = delete;

  OpDefBuilder& python(std::string name, std::initializer_list<const char*> aliases = {});
  OpDefBuilder& alias(std::initializer_list<const char*> names);
  OpDefBuilder& doc(std::string text);
  OpDefBuilder& formula(std::string latex);
  OpDefBuilder& input(std::string name, infer::KindSet kinds);
  /// With the value that it has when nothing is given: a weak scalar that takes part in promotion.
  OpDefBuilder& input(std::string name, infer::KindSet kinds, HostValue default_value);
  OpDefBuilder& variadic(std::string name, infer::KindSet kinds);
  OpDefBuilder& optional(std::string name, infer::KindSet kinds);
  /// Exists in a model when the attribute `when` is true ("use_bias").
  OpDefBuilder& optional(std::string name, infer::KindSet kinds, std::string when);
  /// An input with a host default: a key of the model, an attribute where its value is known.
  OpDefBuilder& key(std::string name, HostValue default_value);
  OpDefBuilder& key(std::string name);  // no default: must be given
  /// Takes what the default is: numbers for a float, nothing else for the other kinds, anything for
  /// none; or what is said.
  OpDefBuilder& attr(std::string name, HostValue default_value);
  OpDefBuilder& attr(std::string name, HostValue default_value, infer::KindSet kinds);
  OpDefBuilder& attr(std::string name, infer::KindSet kinds = infer::kAny);
  /// The strings that the last attribute may be.
  OpDefBuilder& choices(std::vector<std::string> strings);
  /// The numbers that a declared attribute or input may be.
  OpDefBuilder& within(std::string_view name, double low, double high);
  OpDefBuilder& at_least(std::string_view name, double low);
  OpDefBuilder& above(std::string_view name, double low);
  OpDefBuilder& output(std::string name, DTypeRule rule);
  OpDefBuilder& trainable(std::string_view input, Init init);
  OpDefBuilder& state(std::string_view input, std::string next, HostValue first);
  OpDefBuilder& keys(std::initializer_list<const char*> order);
  OpDefBuilder& connect(std::initializer_list<const char*> order);
  OpDefBuilder& arguments(std::initializer_list<const char*> order);
  OpDefBuilder& cin(std::initializer_list<const char*> names);
  OpDefBuilder& promote(std::initializer_list<const char*> inputs = {});
  OpDefBuilder& promote_float(std::initializer_list<const char*> inputs = {});
  OpDefBuilder& promote_int(std::initializer_list<const char*> inputs = {});
  OpDefBuilder& promote_number(std::initializer_list<const char*> inputs = {});
  OpDefBuilder& rule(infer::Rule rule);
  OpDefBuilder& compose(std::function<Value(Builder&)> body);
  OpDefBuilder& compose_many(ComposeFn body);
  /// Its rule refuses sizes of a call: no native target replaces it before they are bound.
  OpDefBuilder& checks_sizes();
  /// The body is made of that many parts: a model that has it is compiled when the size is known.
  OpDefBuilder& needs_size(std::string input, size_t axis);
  /// Before another body: only nodes for which `when` is true are composed.
  OpDefBuilder& expand_when(std::function<bool(const Graph&, const Node&)> when);
  /// The same on every target, and before the gradient rule is asked.
  OpDefBuilder& expand_first_when(std::function<bool(const Graph&, const Node&)> when);
  OpDefBuilder& pointwise(std::function<tile::Reg(tile::Builder&, tile::Reg)> body);
  OpDefBuilder& pointwise(std::function<tile::Reg(tile::Builder&, tile::Reg, tile::Reg)> body);
  OpDefBuilder& pointwise(
      std::function<tile::Reg(tile::Builder&, tile::Reg, tile::Reg, tile::Reg)> body);
  OpDefBuilder& pointwise(PointwiseFn body);
  /// A reduction over the axes that the key `axis` names: the body turns a lane into a row value.
  OpDefBuilder& row(PointwiseFn body);
  OpDefBuilder& kernel(std::string name);
  OpDefBuilder& builtin();
  OpDefBuilder& host(HostFn fn);
  OpDefBuilder& gradient(GradientFn fn);
  OpDefBuilder& not_differentiable();
  OpDefBuilder& kinks();  // the function has kinks that its gradient rule knows
  OpDefBuilder& kink(double input, double gradient);
  OpDefBuilder& commutative();
  OpDefBuilder& moves();  // results are elements of the operands, or constants
  OpDefBuilder& trait(Trait trait);
  OpDefBuilder& random();
  OpDefBuilder& sized_by_data();
  OpDefBuilder& bounded(std::string op);         // implies `sized_by_data`
  OpDefBuilder& precision(Precision precision);  // instead of the family's
  /// Each node owns that many graphs; its results are theirs (ir/scan.h), as no rule can say.
  OpDefBuilder& regions(int count);
  OpDefBuilder& sample(std::string_view input, double low, double high);
  OpDefBuilder& points(std::initializer_list<double> values);
  OpDefBuilder& with(Sample sample);
  OpDefBuilder& rejects(Sample sample, std::string message);

 private:
  OpDefBuilder& set_range(std::string_view name, NumberRange range);

  class OpFamily& family_;
  OpDef def_;
  bool states_canonical_inputs_ = false;
};

/// `void define_activation(OpFamily ops)` of each file in ops/ gets one.
class OpFamily {
 public:
  OpFamily(class Registry& registry, std::string name, Precision precision = Precision::kFollows)
      : registry_(registry), name_(std::move(name)), precision_(precision) {}
  OpDefBuilder def(std::string name) { return OpDefBuilder(*this, std::move(name)); }
  class Registry& registry() {
    return registry_;
  }
  const std::string& name() const { return name_; }
  Precision precision() const { return precision_; }

 private:
  class Registry& registry_;
  std::string name_;
  Precision precision_;
};

}  // namespace mithril::ir
