#include "passes/reduce_losses.h"

#include "passes/remove_dead.h"
#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

core::Result<ir::Graph> reduced(const ir::Graph& graph) {
  ir::Target target;
  target.keeps_whole = {"mean", "squared_error"};
  MITHRIL_ASSIGN(const ir::Graph out, reduce_losses(graph, target));
  return remove_dead(out);
}

TEST(ReduceLosses, JoinsAMeanAndASumOfAllSingleValues) {
  expect_pass(R"(graph m<f32, i64>(%x: f32[b, 3], %t: f32[b, 3]) {
  %0 = squared_error(%x, %t, safe_shapes=false, reduction="none") : f32[b, 3]
  %1 = mean(%0) : f32[]
  %2 = squared_error(%t, %x) : f32[b, 3]
  %3 = sum(%2, axis=(0, 1)) : f32[]
  return y=%1, z=%3
}
)",
              R"(graph m<f32, i64>(%x: f32[b, 3], %t: f32[b, 3]) {
  %0 = squared_error(%x, %t, safe_shapes=false, reduction="mean") : f32[]
  %1 = squared_error(%t, %x, reduction="sum") : f32[]
  return y=%0, z=%1
}
)",
              reduced);
}

TEST(ReduceLosses, LeavesWhatOthersReadOrWhatIsNotOneNumber) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[b, 3], %t: f32[b, 3], %i: i64[b], %c: f32[b, 3]) {
  %0 = squared_error(%x, %t) : f32[b, 3]
  %1 = mean(%0) : f32[]
  %2 = squared_error(%t, %x) : f32[b, 3]
  %3 = mean(%2, axis=1) : f32[b]
  %4 = squared_error(%i, %i) : i64[b]
  %5 = sum(%4) : i64[]
  %6 = absolute_error(%x, %t) : f32[b, 3]
  %7 = mean(%6) : f32[]
  %8 = squared_error(%x, %c) : f32[b, 3]
  %9 = max(%8) : f32[]
  return a=%0, b=%1, c=%3, d=%5, e=%7, f=%9
}
)",
                   reduced);
}

TEST(ReduceLosses, LeavesLossesThatTheTargetDoesNotKnow) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[b, 3], %t: f32[b, 3]) {
  %0 = squared_error(%x, %t) : f32[b, 3]
  %1 = mean(%0) : f32[]
  return y=%1
}
)",
                   [](const ir::Graph& g) { return reduce_losses(g, ir::Target{}); });
}

}  // namespace
}  // namespace mithril::passes
