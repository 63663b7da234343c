// Loops. In graphs they are `scan` (ir/scan.h says what its parts are); in models the steps stand
// between marks, which relate what is outside of the loop to what one step sees, and flatten makes
// a scan of all that lies between.
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

// What all marks know: their place among those of one kind, and their loop, which flatten names.
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

}  // namespace

void define_control(OpFamily& ops) {
  define_loop(ops);
  define_entries(ops);
  define_ends(ops);
}

}  // namespace mithril::ops
