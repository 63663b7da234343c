// Host ops that bring arguments of windows to canonical form.
#include "ops/window.h"

namespace mithril::ops {
namespace {

using core::Result;

bool is_same(const HostValue& padding) {
  return padding.is_string() && (padding.as_string() == "same" || padding.as_string() == "SAME");
}

core::Error refuse_padding(const HostValue& padding) {
  return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                    "padding must be an int, a pair, pairs, 'same' or 'valid', got {}",
                    core::to_string(padding));
}

HostValue both_sides(HostValue amount) { return HostValue::tuple({amount, amount}); }

Result<HostValue> half_windows(const HostValue& kernel, size_t axes) {
  HostValue::Tuple out;
  const HostValue sizes = each_axis(kernel, axes);
  for (const HostValue& size : sizes.items()) {
    if (!size.is_int()) return refuse_padding(HostValue("same"));
    out.push_back(same_padding(size.as_int(), 1));
  }
  return HostValue::tuple(std::move(out));
}

// (low, high) for each axis.
Result<HostValue> pairs(const HostValue& padding, const HostValue& kernel, size_t axes) {
  if (is_same(padding)) return half_windows(kernel, axes);
  if (padding.is_string()) return pairs(HostValue(0), kernel, axes);
  if (axes == 1 && padding.is_sequence()) return HostValue::tuple({padding});
  const HostValue sides = each_axis(padding, axes);
  if (sides.items().size() != axes) return refuse_padding(padding);
  HostValue::Tuple out;
  for (const HostValue& side : sides.items()) out.push_back(each_axis(side, 2));
  return HostValue::tuple(std::move(out));
}

void define_padding(OpFamily& ops, const char* name, const char* python, size_t axes) {
  const std::string forms[] = {"an int, (low, high)", "an int, a pair, a pair of pairs"};
  OpDefBuilder block = ops.def(name);
  block.python(python)
      .arguments({"kernel_size", "input"})
      .doc("A padding (" + forms[axes - 1] + ", 'same' or 'valid') as (low, high)" +
           (axes == 1 ? std::string(".") : std::string(" for each axis.")))
      .key("input")
      .key("kernel_size")
      .output("output", host_result())
      .rule([axes](RuleBuilder& r) {
        r.resolve_padding(r.out(), r.in("input"), r.in("kernel_size"), static_cast<int>(axes));
      })
      .host([axes](const ir::HostCall& call) -> Result<HostValue> {
        MITHRIL_ASSIGN(HostValue out, pairs(call.operands[0], call.operands[1], axes));
        return axes == 1 ? out.items()[0] : out;
      })
      .not_differentiable()
      .with(at({}, {{"input", 1}, {"kernel_size", 3}}))
      .with(at({}, {{"input", "same"}, {"kernel_size", 5}}))
      .with(at({}, {{"input", "same"}, {"kernel_size", 4}}))
      .with(at({}, {{"input", "valid"}, {"kernel_size", 4}}))
      .with(at({}, {{"input", HostValue::ints({1, 2})}, {"kernel_size", 3}}));
  if (axes == 1) return;
  const HostValue asymmetric = HostValue::tuple({HostValue::ints({1, 2}), HostValue::ints({0, 3})});
  block.with(at({}, {{"input", asymmetric}, {"kernel_size", HostValue::ints({3, 2})}}));
}

}  // namespace

void define_window_arguments(OpFamily& ops) {
  define_padding(ops, "padding_converter_1d", "PaddingConverter1D", 1);
  define_padding(ops, "padding_converter_2d", "PaddingConverter2D", 2);

  ops.def("stride_converter")
      .python("StrideConverter")
      .arguments({"kernel_size", "input"})
      .doc("A stride, or the size of the window where it is none.")
      .key("input")
      .key("kernel_size")
      .output("output", host_result())
      .rule([](RuleBuilder& r) {
        r.when_known(r.in("input"), [](RuleBuilder& rule, const HostValue& stride) {
          rule.identical(rule.out(), rule.in(stride.is_none() ? "kernel_size" : "input"));
        });
      })
      .host([](const ir::HostCall& call) -> Result<HostValue> {
        return call.operands[call.operands[0].is_none() ? 1 : 0];
      })
      .not_differentiable()
      .with(at({}, {{"input", HostValue()}, {"kernel_size", 3}}))
      .with(at({}, {{"input", HostValue::ints({1, 2})}, {"kernel_size", 3}}));

  ops.def("tuple_converter")
      .python("TupleConverter")
      .doc("An int as a pair of it; anything else as it is.")
      .key("input")
      .output("output", host_result())
      .rule([](RuleBuilder& r) {
        r.when_known(r.in("input"), [](RuleBuilder& rule, const HostValue& value) {
          const Term item = rule.in("input");
          if (!value.is_int()) return rule.identical(rule.out(), item);
          const Term both[] = {item, item};
          rule.tuple(rule.out(), both);
        });
      })
      .host([](const ir::HostCall& call) -> Result<HostValue> {
        const HostValue& value = call.operands[0];
        return value.is_int() || value.is_symbolic() ? both_sides(value) : value;
      })
      .not_differentiable()
      .with(at({}, {{"input", 3}}))
      .with(at({}, {{"input", HostValue::ints({1, 2})}}));
}

}  // namespace mithril::ops
