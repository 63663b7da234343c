#include "ir/op_def.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/registry.h"

namespace mithril::ir {

DTypeRule same_as(std::string_view input) {
  return {DTypeRule::Result::kSameAs, std::string(input), DTypeRule::Result::kDefaultFloat};
}
DTypeRule wide_as(std::string_view input) {
  return {DTypeRule::Result::kWideAs, std::string(input), DTypeRule::Result::kDefaultFloat};
}
DTypeRule computed() { return {}; }
DTypeRule computed_wide() {
  return {DTypeRule::Result::kWidened, "", DTypeRule::Result::kDefaultFloat};
}
DTypeRule boolean() { return {DTypeRule::Result::kBool, "", DTypeRule::Result::kDefaultFloat}; }
DTypeRule default_int() {
  return {DTypeRule::Result::kDefaultInt, "", DTypeRule::Result::kDefaultFloat};
}
DTypeRule default_float() {
  return {DTypeRule::Result::kDefaultFloat, "", DTypeRule::Result::kDefaultFloat};
}
DTypeRule dtype_attr(std::string_view attr, DTypeRule::Result fallback) {
  return {DTypeRule::Result::kAttr, std::string(attr), fallback};
}
DTypeRule host_result() { return {DTypeRule::Result::kHost, "", DTypeRule::Result::kHost}; }

int OpDef::input_index(std::string_view input) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].name == input) return static_cast<int>(i);
  }
  return -1;
}

int OpDef::output_index(std::string_view output) const {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].name == output) return static_cast<int>(i);
  }
  return -1;
}

const InputDef* OpDef::find_input(std::string_view input) const {
  const int index = input_index(input);
  return index < 0 ? nullptr : &inputs[static_cast<size_t>(index)];
}

bool OpDef::has_attr(std::string_view attr) const {
  const bool declared =
      std::any_of(attrs.begin(), attrs.end(), [&](const AttrDef& a) { return a.name == attr; });
  const InputDef* input = find_input(attr);
  return declared || (input != nullptr && input->is_key);
}

OpDefBuilder::OpDefBuilder(OpFamily& family, std::string name) : family_(family) {
  def_.name = std::move(name);
  def_.family = family.name();
  def_.precision = family.precision();
}

OpDefBuilder::~OpDefBuilder() {
  if (def_.connect_order.empty()) {
    for (const InputDef& input : def_.inputs) def_.connect_order.push_back(input.name);
    for (const OutputDef& output : def_.outputs) def_.connect_order.push_back(output.name);
  }
  if (!states_canonical_inputs_ && !def_.inputs.empty()) {
    const bool named_input = def_.input_index("input") >= 0;
    def_.canonical_inputs.push_back(named_input ? "input" : def_.inputs.front().name);
  }
  // A block that clashes with another is a bug of ours: the registry tests would not start.
  std::move(family_.registry().add(std::move(def_))).or_throw();
}

OpDefBuilder& OpDefBuilder::python(std::string name, std::initializer_list<const char*> aliases) {
  def_.python_name = std::move(name);
  def_.python_aliases.assign(aliases.begin(), aliases.end());
  return *this;
}

OpDefBuilder& OpDefBuilder::alias(std::initializer_list<const char*> names) {
  def_.aliases.insert(def_.aliases.end(), names.begin(), names.end());
  return *this;
}

OpDefBuilder& OpDefBuilder::doc(std::string text) {
  def_.doc = std::move(text);
  return *this;
}

OpDefBuilder& OpDefBuilder::formula(std::string latex) {
  def_.formula = std::move(latex);
  return *this;
}

OpDefBuilder& OpDefBuilder::input(std::string name, infer::KindSet kinds) {
  InputDef input;
  input.name = std::move(name);
  input.kinds = kinds;
  def_.inputs.push_back(std::move(input));
  return *this;
}

OpDefBuilder& OpDefBuilder::input(std::string name, infer::KindSet kinds, HostValue default_value) {
  input(std::move(name), kinds);
  def_.inputs.back().default_value = std::move(default_value);
  return *this;
}

OpDefBuilder& OpDefBuilder::variadic(std::string name, infer::KindSet kinds) {
  input(std::move(name), kinds);
  def_.inputs.back().variadic = true;
  return *this;
}

OpDefBuilder& OpDefBuilder::optional(std::string name, infer::KindSet kinds) {
  input(std::move(name), kinds);
  def_.inputs.back().optional = true;
  return *this;
}

OpDefBuilder& OpDefBuilder::optional(std::string name, infer::KindSet kinds, std::string when) {
  optional(std::move(name), kinds);
  def_.inputs.back().when = std::move(when);
  return *this;
}

OpDefBuilder& OpDefBuilder::key(std::string name, HostValue default_value) {
  key(std::move(name));
  def_.inputs.back().default_value = std::move(default_value);
  return *this;
}

OpDefBuilder& OpDefBuilder::key(std::string name) {
  input(std::move(name), infer::kHost);
  def_.inputs.back().is_key = true;
  return *this;
}

bool NumberRange::admits(const HostValue& value) const {
  if (!value.is_int() && !value.is_double()) return true;
  const double number = value.as_number();
  return (is_open ? number > low : number >= low) && number <= high;
}

std::string NumberRange::to_string() const {
  if (std::isfinite(high)) return fmt::format("from {} to {}", low, high);
  return fmt::format("{} {}", is_open ? "above" : "at least", low);
}

core::Status check_range(std::string_view op, std::string_view name,
                         const std::optional<NumberRange>& range, const HostValue& value) {
  if (!range || range->admits(value)) return {};
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "{}: '{}' must be {}, got {}", op, name, range->to_string(),
                    core::to_string(value));
}

core::Status AttrDef::check(std::string_view op, const HostValue& value) const {
  const bool chosen = choices.empty() || !value.is_string() ||
                      std::find(choices.begin(), choices.end(), value.as_string()) != choices.end();
  if (chosen && infer::kind_of(value).meets(kinds)) return check_range(op, name, range, value);
  std::string wanted = choices.empty() ? infer::to_string(kinds) : "";
  for (const std::string& choice : choices) {
    wanted += fmt::format("{}\"{}\"", wanted.empty() ? "" : " or ", choice);
  }
  if (!choices.empty() && kinds.meets(infer::kNoneKind)) wanted += " or none";
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "{}: '{}' must be {}, got {}", op, name, wanted, core::to_string(value));
}

OpDefBuilder& OpDefBuilder::attr(std::string name, HostValue default_value) {
  infer::KindSet kinds = infer::kind_of(default_value);
  if (kinds == infer::kScalarFloat) kinds = kinds | infer::kScalarInt;
  if (kinds.meets(infer::kSequence | infer::kNoneKind)) kinds = infer::kAny;
  return attr(std::move(name), std::move(default_value), kinds);
}

OpDefBuilder& OpDefBuilder::attr(std::string name, HostValue default_value, infer::KindSet kinds) {
  def_.attrs.push_back({std::move(name), std::move(default_value), kinds, {}, {}});
  return *this;
}

OpDefBuilder& OpDefBuilder::attr(std::string name, infer::KindSet kinds) {
  def_.attrs.push_back({std::move(name), std::nullopt, kinds, {}, {}});
  return *this;
}

OpDefBuilder& OpDefBuilder::choices(std::vector<std::string> strings) {
  def_.attrs.back().choices = std::move(strings);
  return *this;
}

OpDefBuilder& OpDefBuilder::set_range(std::string_view name, NumberRange range) {
  for (AttrDef& attr : def_.attrs) {
    if (attr.name == name) attr.range = range;
  }
  for (InputDef& input : def_.inputs) {
    if (input.name == name) input.range = range;
  }
  return *this;
}

OpDefBuilder& OpDefBuilder::within(std::string_view name, double low, double high) {
  return set_range(name, {low, high});
}

OpDefBuilder& OpDefBuilder::at_least(std::string_view name, double low) {
  return set_range(name, {low, std::numeric_limits<double>::infinity()});
}

OpDefBuilder& OpDefBuilder::above(std::string_view name, double low) {
  return set_range(name, {low, std::numeric_limits<double>::infinity(), true});
}

OpDefBuilder& OpDefBuilder::output(std::string name, DTypeRule rule) {
  def_.outputs.push_back({std::move(name), std::move(rule)});
  return *this;
}

OpDefBuilder& OpDefBuilder::trainable(std::string_view input, Init init) {
  InputDef& def = def_.inputs[static_cast<size_t>(def_.input_index(input))];
  def.trainable = true;
  def.init = std::move(init);
  return *this;
}

OpDefBuilder& OpDefBuilder::state(std::string_view input, std::string next, HostValue first) {
  InputDef& def = def_.inputs[static_cast<size_t>(def_.input_index(input))];
  def.next = std::move(next);
  def.first = std::move(first);
  return *this;
}

OpDefBuilder& OpDefBuilder::keys(std::initializer_list<const char*> order) {
  def_.key_order.assign(order.begin(), order.end());
  return *this;
}

OpDefBuilder& OpDefBuilder::connect(std::initializer_list<const char*> order) {
  def_.connect_order.assign(order.begin(), order.end());
  return *this;
}

OpDefBuilder& OpDefBuilder::arguments(std::initializer_list<const char*> order) {
  def_.argument_order.assign(order.begin(), order.end());
  return *this;
}

OpDefBuilder& OpDefBuilder::cin(std::initializer_list<const char*> names) {
  def_.canonical_inputs.assign(names.begin(), names.end());
  states_canonical_inputs_ = true;
  return *this;
}

OpDefBuilder& OpDefBuilder::promote(std::initializer_list<const char*> inputs) {
  def_.compute = DTypeRule::Compute::kPromote;
  def_.promoted.assign(inputs.begin(), inputs.end());
  return *this;
}

OpDefBuilder& OpDefBuilder::promote_float(std::initializer_list<const char*> inputs) {
  promote(inputs);
  def_.compute = DTypeRule::Compute::kPromoteFloat;
  return *this;
}

OpDefBuilder& OpDefBuilder::promote_int(std::initializer_list<const char*> inputs) {
  promote(inputs);
  def_.compute = DTypeRule::Compute::kPromoteInt;
  return *this;
}

OpDefBuilder& OpDefBuilder::promote_number(std::initializer_list<const char*> inputs) {
  promote(inputs);
  def_.compute = DTypeRule::Compute::kPromoteNumber;
  return *this;
}

OpDefBuilder& OpDefBuilder::rule(infer::Rule rule) {
  def_.shape_rule = std::move(rule);
  return *this;
}

OpDefBuilder& OpDefBuilder::compose(std::function<Value(Builder&)> body) {
  return compose_many([body = std::move(body)](Builder& b) { return std::vector<Value>{body(b)}; });
}

OpDefBuilder& OpDefBuilder::compose_many(ComposeFn body) {
  def_.body = BodyKind::kCompose;
  def_.compose = std::move(body);
  return *this;
}

OpDefBuilder& OpDefBuilder::needs_size(std::string input, size_t axis) {
  def_.awaited.emplace_back(std::move(input), axis);
  return *this;
}

OpDefBuilder& OpDefBuilder::checks_sizes() {
  def_.checks_sizes = true;
  return *this;
}

OpDefBuilder& OpDefBuilder::expand_when(std::function<bool(const Graph&, const Node&)> when) {
  def_.expands = std::move(when);
  return *this;
}

OpDefBuilder& OpDefBuilder::expand_first_when(std::function<bool(const Graph&, const Node&)> when) {
  def_.expands_first = true;
  return expand_when(std::move(when));
}

OpDefBuilder& OpDefBuilder::pointwise(PointwiseFn body) {
  def_.body = BodyKind::kPointwise;
  def_.pointwise = std::move(body);
  return *this;
}

OpDefBuilder& OpDefBuilder::row(PointwiseFn body) {
  def_.body = BodyKind::kRow;
  def_.pointwise = std::move(body);
  return *this;
}

OpDefBuilder& OpDefBuilder::pointwise(std::function<tile::Reg(tile::Builder&, tile::Reg)> body) {
  return pointwise(PointwiseFn([body = std::move(body)](tile::Builder& t, const PointwiseCall& c) {
    return body(t, c.in[0]);
  }));
}

OpDefBuilder& OpDefBuilder::pointwise(
    std::function<tile::Reg(tile::Builder&, tile::Reg, tile::Reg)> body) {
  return pointwise(PointwiseFn([body = std::move(body)](tile::Builder& t, const PointwiseCall& c) {
    return body(t, c.in[0], c.in[1]);
  }));
}

OpDefBuilder& OpDefBuilder::pointwise(
    std::function<tile::Reg(tile::Builder&, tile::Reg, tile::Reg, tile::Reg)> body) {
  return pointwise(PointwiseFn([body = std::move(body)](tile::Builder& t, const PointwiseCall& c) {
    return body(t, c.in[0], c.in[1], c.in[2]);
  }));
}

OpDefBuilder& OpDefBuilder::kernel(std::string name) {
  def_.body = BodyKind::kKernel;
  def_.kernel = std::move(name);
  return *this;
}

OpDefBuilder& OpDefBuilder::builtin() {
  def_.body = BodyKind::kNone;
  return *this;
}

OpDefBuilder& OpDefBuilder::host(HostFn fn) {
  if (def_.body == BodyKind::kNone) def_.body = BodyKind::kHost;
  def_.host = std::move(fn);
  return *this;
}

OpDefBuilder& OpDefBuilder::gradient(GradientFn fn) {
  def_.gradient = std::move(fn);
  return *this;
}

OpDefBuilder& OpDefBuilder::not_differentiable() {
  def_.differentiable = false;
  return *this;
}

OpDefBuilder& OpDefBuilder::kinks() {
  def_.has_kinks = true;
  return *this;
}

OpDefBuilder& OpDefBuilder::kink(double input, double gradient) {
  def_.has_kinks = true;
  def_.kinks.emplace_back(input, gradient);
  return *this;
}

OpDefBuilder& OpDefBuilder::commutative() {
  def_.commutative = true;
  return *this;
}

OpDefBuilder& OpDefBuilder::trait(Trait trait) {
  def_.traits |= 1U << static_cast<unsigned>(trait);
  return *this;
}

OpDefBuilder& OpDefBuilder::moves() {
  def_.moves = true;
  return *this;
}

OpDefBuilder& OpDefBuilder::precision(Precision precision) {
  def_.precision = precision;
  return *this;
}

OpDefBuilder& OpDefBuilder::regions(int count) {
  def_.regions = count;
  return *this;
}

OpDefBuilder& OpDefBuilder::random() {
  def_.random = true;
  return *this;
}

OpDefBuilder& OpDefBuilder::sized_by_data() {
  def_.sized_by_data = true;
  return *this;
}

OpDefBuilder& OpDefBuilder::bounded(std::string op) {
  def_.bounded = std::move(op);
  return sized_by_data();
}

OpDefBuilder& OpDefBuilder::sample(std::string_view input, double low, double high) {
  InputDef& def = def_.inputs[static_cast<size_t>(def_.input_index(input))];
  def.low = low;
  def.high = high;
  return *this;
}

OpDefBuilder& OpDefBuilder::points(std::initializer_list<double> values) {
  def_.points.assign(values.begin(), values.end());
  return *this;
}

OpDefBuilder& OpDefBuilder::with(Sample sample) {
  def_.samples.push_back(std::move(sample));
  return *this;
}

OpDefBuilder& OpDefBuilder::rejects(Sample sample, std::string message) {
  def_.error_samples.push_back({std::move(sample), std::move(message)});
  return *this;
}

}  // namespace mithril::ir
