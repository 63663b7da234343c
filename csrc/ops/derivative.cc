// Derivatives as wires of a model. They are no computation of their own: passes::expand_gradients
// puts the gradient program in their place before anything else looks at the graph.
#include "ops/derivative.h"

#include "ops/block.h"

namespace mithril::ops {

void define_derivative(OpFamily& ops) {
  ops.def("gradient")
      .python("Gradient")
      .doc(
          "The derivative of the sum of the elements of a tensor by another wire of the model, "
          "which it is computed from; zeros where it does not depend on that wire.")
      .formula("\\nabla_{\\mathrm{wrt}} \\sum_i \\mathrm{of}_i")
      .input("of", kFloating)
      .input("wrt", kFloating)
      .output("output", same_as("wrt"))
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("wrt"));
        r.kind(r.out(), kFloating);
      })
      .builtin()
      .gradient([](GradBuilder& g) {
        unsupported(g.builder(), "gradient: is expanded before it is differentiated");
      })
      .with(at({{"of", {2, 3}}, {"wrt", {3}}}))
      .with(at({{"of", {}}, {"wrt", {2, 0}}}));
}

}  // namespace mithril::ops
