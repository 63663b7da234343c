// Convolution and pooling of images with channels last, for backends that are fastest so: the pass
// `layout` puts them in the place of conv2d and the pools. Elsewhere they are the plain op between
// two transpositions.
#include "ops/window.h"

namespace mithril::ops {
namespace {

HostValue to_last() { return HostValue::ints({0, 2, 3, 1}); }
HostValue to_first() { return HostValue::ints({0, 3, 1, 2}); }

// A term that is the named one with channels at their usual place.
Term usual(RuleBuilder& r, Term term) {
  const Term out = r.fresh(kTensor);
  r.permute(out, term, r.constant(to_first()));
  return out;
}

// The op without the ending, on images with channels at their usual place.
Value in_usual_layout(Builder& b, std::string_view op, std::initializer_list<Operand> others = {}) {
  const Value x = b.in("input");
  if (!x) return {};
  std::vector<Operand> operands{transpose(x, to_first())};
  operands.insert(operands.end(), others);
  return transpose(b.call(op, std::move(operands), b.node().attrs), to_last());
}

HostValue padding(int64_t top, int64_t bottom, int64_t left, int64_t right) {
  return HostValue::tuple({HostValue::ints({top, bottom}), HostValue::ints({left, right})});
}

const Attrs& uneven() {
  static const Attrs kAttrs = {{"stride", HostValue::ints({2, 1})},
                               {"padding", padding(1, 0, 1, 1)},
                               {"dilation", HostValue::ints({1, 2})}};
  return kAttrs;
}

Attrs with(Attrs attrs, const char* name, HostValue value) {
  attrs.set(name, std::move(value));
  return attrs;
}

void define_convolution(OpFamily& ops) {
  ops.def("conv2d_channels_last")
      .doc(
          "conv2d of images [n, h, w, c], with filters [o, c / groups, kh, kw] and the result "
          "[n, h, w, o].")
      .input("input", kFloating)
      .input("weight", kFloating)
      .attr("stride", HostValue::ints({1, 1}))
      .attr("padding", padding(0, 0, 0, 0))
      .attr("dilation", HostValue::ints({1, 1}))
      .attr("groups", 1)
      .output("output", computed())
      .promote()
      .rule([](RuleBuilder& r) {
        r.conv(usual(r, r.out()), usual(r, r.in("input")), r.in("weight"), 2, r.attr("stride"),
               r.attr("padding"), r.attr("dilation"), r.attr("groups"));
      })
      .compose([](Builder& b) { return in_usual_layout(b, "conv2d", {b.in("weight")}); })
      .with(at({{"input", {2, 5, 6, 3}}, {"weight", {4, 3, 3, 2}}}))
      .with(at({{"input", {2, 7, 6, 4}}, {"weight", {6, 2, 3, 2}}}, with(uneven(), "groups", 2)))
      .with(at({{"input", {0, 5, 5, 3}}, {"weight", {2, 3, 3, 3}}}));
}

void define_window(OpFamily& ops, const char* name, const char* plain, const char* doc,
                   bool kinks) {
  OpDefBuilder block = ops.def(name);
  block.doc(doc)
      .input("input", kFloating)
      .attr("kernel_size")
      .attr("stride")
      .attr("padding", padding(0, 0, 0, 0))
      .attr("dilation", HostValue::ints({1, 1}))
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.pool(usual(r, r.out()), usual(r, r.in("input")), 2, r.attr("kernel_size"),
               r.attr("stride"), r.attr("padding"), r.attr("dilation"));
      })
      .compose([plain](Builder& b) { return in_usual_layout(b, plain); })
      .with(at({{"input", {2, 4, 6, 3}}},
               {{"kernel_size", HostValue::ints({2, 2})}, {"stride", HostValue::ints({2, 2})}}))
      .with(at({{"input", {2, 5, 6, 2}}}, with(uneven(), "kernel_size", HostValue::ints({3, 2}))));
  if (kinks) block.kinks();
}

}  // namespace

void define_channels_last(OpFamily& ops) {
  define_convolution(ops);
  define_window(ops, "max_pool2d_channels_last", "max_pool2d", "max_pool2d of images [n, h, w, c].",
                true);
  define_window(ops, "avg_pool2d_channels_last", "avg_pool2d", "avg_pool2d of images [n, h, w, c].",
                false);
}

}  // namespace mithril::ops
