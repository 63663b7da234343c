#include "passes/autodiff.h"

#include "passes/canonicalize.h"
#include "passes/merge_common.h"
#include "passes/remove_dead.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

core::Result<ir::Graph> gradient(const ir::Graph& graph, const DifferentiateOptions& options) {
  MITHRIL_ASSIGN(const ir::Graph full, differentiate(graph, options));
  MITHRIL_ASSIGN(const ir::Graph plain, canonicalize(full));
  MITHRIL_ASSIGN(const ir::Graph merged, merge_common(plain));
  return remove_dead(merged);
}

TEST(Differentiate, AppendsTheGradientProgram) {
  DifferentiateOptions options;
  options.outputs = {"y"};
  options.wrt = {"x"};
  options.keep_outputs = false;
  expect_pass(R"(graph f<f32, i64>(%x: f32[b]) {
  %0 = exp(%x) : f32[b]
  return y=%0
}
)",
              R"(graph f<f32, i64>(%x: f32[b], %cotangent.y: f32[b] cotangent) {
  %0 = exp(%x) : f32[b]
  %1 = multiply(%cotangent.y, %0) : f32[b]
  return grad.x=%1
}
)",
              [&](const ir::Graph& g) { return gradient(g, options); });
}

TEST(Differentiate, SumsBroadcastOperandsBack) {
  DifferentiateOptions options;
  options.outputs = {"y"};
  options.wrt = {"w"};
  options.keep_outputs = false;
  expect_pass(R"(graph f<f32, i64>(%x: f32[b, 3], %w: f32[3]) {
  %0 = add(%x, %w) : f32[b, 3]
  return y=%0
}
)",
              R"(graph f<f32, i64>(%x: f32[b, 3], %w: f32[3], %cotangent.y: f32[b, 3] cotangent) {
  %0 = sum(%cotangent.y, axis=(0,)) : f32[3]
  return grad.w=%0
}
)",
              [&](const ir::Graph& g) { return gradient(g, options); });
}

TEST(Differentiate, GivesZerosWhereNothingDepends) {
  DifferentiateOptions options;
  options.outputs = {"y"};
  options.wrt = {"w"};
  const ir::Graph out =
      std::move(differentiate(parsed(R"(graph f<f32, i64>(%x: f32[3], %w: f32[2]) {
  return y=%x
}
)"),
                              options))
          .or_throw();
  EXPECT_EQ(out.type(out.find_output("grad.w")), out.type(out.find_input("w")));
}

TEST(Differentiate, RefusesIntegersAndUnknownNames) {
  const ir::Graph graph = parsed(R"(graph f<f32, i64>(%x: f32[3], %n: i64[3]) {
  %0 = argmax(%x) : i64[]
  %1 = exp(%x) : f32[3]
  return k=%0, y=%1
}
)");
  const auto message = [&](const DifferentiateOptions& options) {
    const auto out = differentiate(graph, options);
    return out.ok() ? std::string() : out.error().message;
  };
  DifferentiateOptions options;
  options.outputs = {"k"};
  options.wrt = {"x"};
  EXPECT_EQ(message(options), "output 'k' is i64[]: only float tensors take a cotangent");
  options.outputs = {"y"};
  options.wrt = {"n"};
  EXPECT_EQ(message(options),
            "a gradient is asked for 'n', which is i64[3]: only float tensors have one");
  options.wrt = {"z"};
  EXPECT_EQ(message(options), "no input named 'z', did you mean 'x'?");
}

}  // namespace
}  // namespace mithril::passes
