#include "passes/liveness.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

using Steps = std::vector<int32_t>;
using Bytes = std::vector<int64_t>;
using Flops = std::vector<double>;

Execution measured(std::string_view text) { return std::move(liveness(parsed(text))).or_throw(); }

TEST(Liveness, CountsWhatIsThereAtEachStepAndOutputsAllTheTime) {
  const Execution found = measured(R"(graph m<f32, i64>(%x: f32[10]) {
  %0 = exp(%x) : f32[10]
  %1 = sin(%0) : f32[10]
  %2 = add(%1, %0) : f32[10]
  %3 = cos(%2) : f32[10]
  return y=%3
}
)");
  EXPECT_EQ(found.step_of, (Steps{0, 1, 2, 3}));
  EXPECT_EQ(found.live, (Bytes{40, 80, 120, 40}));
  EXPECT_EQ(found.bytes, 160);
}

TEST(Liveness, ViewsKeepWhatTheyShow) {
  const Execution found = measured(R"(graph m<f32, i64>(%x: f32[2, 5], %w: f32[2, 3]) {
  %0 = exp(%x) : f32[2, 5]
  %1 = transpose(%0, axes=(1, 0)) : f32[5, 2]
  %2 = sin(%w) : f32[2, 3]
  %3 = matmul(%1, %2) : f32[5, 3]
  return y=%3
}
)");
  EXPECT_EQ(found.step_of, (Steps{0, -1, 1, 2}));
  EXPECT_EQ(found.live, (Bytes{40, 64, 64}));
  EXPECT_EQ(found.flops[0], 10);
  EXPECT_EQ(found.flops[3], 60);  // 2 * 5 * 2 * 3
}

TEST(Liveness, WaitingTakesNoMemory) {
  const Execution found = measured(R"(graph m<f32, i64>(%x: f32[10]) {
  %0 = exp(%x) : f32[10]
  %1 = after(%x, %0) : f32[10]
  %2 = sin(%1) : f32[10]
  %3 = add(%0, %2) : f32[10]
  return y=%3
}
)");
  EXPECT_EQ(found.step_of, (Steps{0, -1, 1, 2}));
  EXPECT_EQ(found.live, (Bytes{40, 80, 80}));
}

}  // namespace
}  // namespace mithril::passes
