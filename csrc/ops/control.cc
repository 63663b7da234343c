// Loops and branches. In graphs they are ops that own graphs (ir/region.h says what the parts are);
// in models their nodes stand between marks, which relate what is outside to what is inside, and
// flatten makes one op of all that lies between.
#include "ops/control.h"

#include "ops/block.h"

namespace mithril::ops {
namespace {

void define_loop(OpFamily& ops) {
  ops.def("scan")
      .doc(
          "A loop over the places of an axis: the body makes of the carries and of one place of "
          "each sequence the next carries, and rows of the results. Constants are the same for "
          "each place. `ml.Scan` makes models of it.")
      .formula("h_{t+1}, y_t = f(h_t, x_t)")
      .variadic("operands", kTensor)
      .attr("carries", 0)
      .attr("xs", 0)
      .attr("reverse", false)
      .attr("length", HostValue(0), infer::kAny)
      .output("results", computed())
      .rule([](RuleBuilder&) {})
      .regions(1)
      .builtin();
}

void define_while(OpFamily& ops) {
  ops.def("while_loop")
      .doc(
          "A loop as long as a condition holds of the carries: the body makes the next ones. "
          "Constants are the same for each step. `ml.While` makes models of it.")
      .formula("h_{t+1} = f(h_t) \\text{ while } c(h_t)")
      .variadic("operands", kTensor)
      .attr("carries", 0)
      .output("results", computed())
      .rule([](RuleBuilder&) {})
      .regions(2)
      .builtin();
}

void define_branches(OpFamily& ops) {
  ops.def("cond")
      .doc(
          "What the first of two graphs makes of the operands where the last operand, a bool, is "
          "true, else what the second one makes. The other graph is not run. `ml.Cond` makes "
          "models of it.")
      .formula("p \\; ? \\; f(x) : g(x)")
      .variadic("operands", kTensor)
      .output("results", computed())
      .rule([](RuleBuilder&) {})
      .regions(2)
      .builtin();
}

void define_after(OpFamily& ops) {
  ops.def("after")
      .doc(
          "The operand itself, not before another value is there. What passes::rematerialize "
          "copies "
          "waits by it.")
      .input("input", kTensor)
      .input("token", kTensor)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) { r.same_shape(r.out(), r.in("input")); })
      .builtin()
      .moves()
      .trait(Trait::kForward)
      .not_differentiable()
      .with(at({{"input", {2, 3}}, {"token", {4}}}));
}

// What all marks know: their place among those of one kind, and the model they are the border of,
// which flatten names.
OpDefBuilder& mark(OpDefBuilder& block) {
  return block.attr("index", 0).attr("loop", -1).output("output", same_as("input")).builtin();
}

// The tensor has an axis in front that the step's does not have: as many places as the loop.
void relate_places(RuleBuilder& r, Term places, Term place) {
  r.shape(places, "n ...");
  r.shape(place, "...");
  r.equal(r.dim("n"), r.dim(r.in("length")));
}

void define_entries(OpFamily& ops) {
  mark(ops.def("scan_enter")
           .doc("What a step of a loop starts from: the value before the loop, then the last one.")
           .input("input", kTensor))
      .rule([](RuleBuilder& r) { r.same_shape(r.out(), r.in("input")); });

  mark(ops.def("scan_slice")
           .doc("The place of a sequence that is a step's.")
           .input("input", kTensor)
           .key("length"))
      .rule([](RuleBuilder& r) { relate_places(r, r.in("input"), r.out()); });
}

void define_ends(OpFamily& ops) {
  mark(ops.def("scan_stack")
           .doc("What the steps of a loop make, in a row.")
           .input("input", kTensor)
           .key("length")
           .variadic("carries", kTensor)
           .attr("reverse", false))
      .rule([](RuleBuilder& r) { relate_places(r, r.out(), r.in("input")); });

  mark(ops.def("scan_exit")
           .doc("What the last step of a loop hands on, or what the loop starts from.")
           .input("input", kTensor)
           .input("start", kTensor)
           .key("length")
           .variadic("carries", kTensor)
           .attr("reverse", false))
      .rule([](RuleBuilder& r) {
        r.same(r.in("input"), r.in("start"));
        r.same_shape(r.out(), r.in("input"));
        r.kind(r.in("length"), infer::kScalarInt);
      });
}

void define_while_exit(OpFamily& ops) {
  mark(ops.def("while_exit")
           .doc("What a loop hands on whose condition does not hold any more.")
           .input("input", kTensor)
           .input("start", kTensor)
           .input("condition", infer::kTensorBool)
           .variadic("carries", kTensor))
      .rule([](RuleBuilder& r) {
        r.same(r.in("input"), r.in("start"));
        r.same_shape(r.out(), r.in("input"));
        r.shape(r.in("condition"), "");
      });
}

void define_join(OpFamily& ops) {
  mark(ops.def("cond_join")
           .doc("The first input where the predicate is true, else the other one.")
           .input("input", kTensor)
           .input("other", kTensor)
           .input("predicate", infer::kTensorBool))
      .rule([](RuleBuilder& r) {
        r.same(r.in("input"), r.in("other"));
        r.same_shape(r.out(), r.in("input"));
        r.shape(r.in("predicate"), "");
      });
}

}  // namespace

void define_control(OpFamily& ops) {
  define_loop(ops);
  define_while(ops);
  define_branches(ops);
  define_entries(ops);
  define_ends(ops);
  define_while_exit(ops);
  define_join(ops);
  define_after(ops);
}

}  // namespace mithril::ops
