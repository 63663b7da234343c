#include "passes/layout.h"

#include "passes/text_pass.h"

namespace mithril::passes {
namespace {

ir::Target channels_last() {
  ir::Target target;
  target.keeps_whole = {"conv2d_channels_last", "max_pool2d_channels_last"};
  return target;
}

// Each text begins with a convolution, whose result is %0 before and %1 after.
std::string with_convolution(std::string_view inputs, bool is_after, std::string_view rest) {
  constexpr std::string_view kWindow = "padding=((1, 1), (1, 1))";
  std::string out =
      fmt::format("graph m<f32, i64>(%x: f32[n, 3, 8, 8], %w: f32[4, 3, 3, 3]{}) {{\n", inputs);
  if (is_after) {
    out += "  %0 = transpose(%x, axes=(0, 2, 3, 1)) : f32[n, 8, 8, 3]\n";
    out += fmt::format("  %1 = conv2d_channels_last(%0, %w, {}) : f32[n, 8, 8, 4]\n", kWindow);
  } else {
    out += fmt::format("  %0 = conv2d(%x, %w, {}) : f32[n, 4, 8, 8]\n", kWindow);
  }
  return out + std::string(rest) + "}\n";
}

void expect_layout(std::string_view inputs, std::string_view before, std::string_view after) {
  expect_pass(with_convolution(inputs, false, before), with_convolution(inputs, true, after),
              [](const ir::Graph& g) { return layout(g, channels_last()); });
}

TEST(Layout, TransposesBackAtTheEnd) {
  expect_layout("", R"(  %1 = relu(%0) : f32[n, 4, 8, 8]
  %2 = max_pool2d(%1, kernel_size=(2, 2), stride=(2, 2)) : f32[n, 4, 4, 4]
  return y=%2
)",
                R"(  %2 = relu(%1) : f32[n, 8, 8, 4]
  %3 = max_pool2d_channels_last(%2, kernel_size=(2, 2), stride=(2, 2)) : f32[n, 4, 4, 4]
  %4 = transpose(%3, axes=(0, 3, 1, 2)) : f32[n, 4, 4, 4]
  return y=%4
)");
}

TEST(Layout, PassesStatisticsOfChannels) {
  expect_layout(", %s: f32[1, 4, 1, 1]",
                R"(  %1 = mean(%0, axis=(0, 2, 3), keepdim=true) : f32[1, 4, 1, 1]
  %2 = subtract(%0, %1) : f32[n, 4, 8, 8]
  %3 = multiply(%2, %s) : f32[n, 4, 8, 8]
  %4 = mean(%3, axis=(-2, -1)) : f32[n, 4]
  return y=%4
)",
                R"(  %2 = mean(%1, axis=(0, 1, 2), keepdim=true) : f32[1, 1, 1, 4]
  %3 = subtract(%1, %2) : f32[n, 8, 8, 4]
  %4 = reshape(%s, shape=(1, 1, 1, 4)) : f32[1, 1, 1, 4]
  %5 = multiply(%3, %4) : f32[n, 8, 8, 4]
  %6 = mean(%5, axis=(1, 2)) : f32[n, 4]
  return y=%6
)");
}

TEST(Layout, TransposesWhereTheOrderOfAxesShows) {
  expect_layout("", R"(  %1 = sum(%0, axis=3) : f32[n, 4, 8]
  return y=%1
)",
                R"(  %2 = transpose(%1, axes=(0, 3, 1, 2)) : f32[n, 4, 8, 8]
  %3 = sum(%2, axis=3) : f32[n, 4, 8]
  return y=%3
)");
}

TEST(Layout, MovesPadsAndJoins) {
  expect_layout(", %z: f32[n, 4, 10, 8]",
                R"(  %1 = pad(%0, pad_width=((0, 0), (0, 0), (1, 1), (0, 0))) : f32[n, 4, 10, 8]
  %2 = concat(_, %1, %z, axis=-3) : f32[n, 8, 10, 8]
  return y=%2
)",
                R"(  %2 = pad(%1, pad_width=((0, 0), (1, 1), (0, 0), (0, 0))) : f32[n, 10, 8, 4]
  %3 = transpose(%z, axes=(0, 2, 3, 1)) : f32[n, 10, 8, 4]
  %4 = concat(_, %2, %3, axis=3) : f32[n, 10, 8, 8]
  %5 = transpose(%4, axes=(0, 3, 1, 2)) : f32[n, 8, 10, 8]
  return y=%5
)");
}

TEST(Layout, FollowsMostOfTheOperands) {
  expect_layout(", %c: bool[n, 4, 8, 8], %z: f32[n, 4, 8, 8]",
                R"(  %1 = where(%c, %0, %z) : f32[n, 4, 8, 8]
  return y=%1
)",
                R"(  %2 = transpose(%1, axes=(0, 3, 1, 2)) : f32[n, 4, 8, 8]
  %3 = where(%c, %2, %z) : f32[n, 4, 8, 8]
  return y=%3
)");
}

TEST(Layout, MovesAMaskOfPlacesOnce) {
  expect_layout(", %m: f32[8, 8]",
                R"(  %1 = multiply(%0, %m) : f32[n, 4, 8, 8]
  %2 = multiply(%1, %m) : f32[n, 4, 8, 8]
  return y=%2
)",
                R"(  %2 = reshape(%m, shape=(1, 1, 8, 8)) : f32[1, 1, 8, 8]
  %3 = reshape(%2, shape=(1, 8, 8, 1)) : f32[1, 8, 8, 1]
  %4 = multiply(%1, %3) : f32[n, 8, 8, 4]
  %5 = multiply(%4, %3) : f32[n, 8, 8, 4]
  %6 = transpose(%5, axes=(0, 3, 1, 2)) : f32[n, 4, 8, 8]
  return y=%6
)");
}

TEST(Layout, LeavesPoolsThatNoConvolutionPrecedes) {
  expect_unchanged(R"(graph m<f32, i64>(%x: f32[n, 3, 8, 8]) {
  %0 = max_pool2d(%x, kernel_size=(2, 2), stride=(2, 2)) : f32[n, 3, 4, 4]
  %1 = relu(%0) : f32[n, 3, 4, 4]
  return y=%1
}
)",
                   [](const ir::Graph& g) { return layout(g, channels_last()); });
}

}  // namespace
}  // namespace mithril::passes
