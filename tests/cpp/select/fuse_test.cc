#include "select/fuse.h"

#include <fmt/format.h>

#include "ir/registry.h"
#include "passes/text_pass.h"

namespace mithril::select {
namespace {

// "max+subtract+exp+sum+divide [2, 8]/1 | transpose": loops with domain and reduced axes.
std::string groups(std::string_view text, bool enabled = true,
                   size_t most_operands = kAnyOperands) {
  const ir::Graph graph = passes::parsed(text);
  std::string out;
  for (const Group& group : fuse(graph, enabled, most_operands).groups) {
    if (!out.empty()) out += " | ";
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      out += (i == 0 ? "" : "+") + ir::Registry::global().get(graph.node(group.nodes[i]).op).name;
    }
    if (!group.is_loop) continue;
    out += " [";
    for (size_t i = 0; i < group.shape.size(); ++i) {
      out += (i == 0 ? "" : ", ") + std::to_string(group.shape[i]);
    }
    out += "]";
    for (const int64_t axis : group.reduced) out += "/" + std::to_string(axis);
  }
  return out;
}

constexpr const char* kSoftmax = R"(graph m<f32, i64>(%x: f32[2, 8]) {
  %0 = max(%x, axis=(1,), keepdim=true) : f32[2, 1]
  %1 = subtract(%x, %0) : f32[2, 8]
  %2 = exp(%1) : f32[2, 8]
  %3 = sum(%2, axis=(1,), keepdim=true) : f32[2, 1]
  %4 = divide(%2, %3) : f32[2, 8]
  return y=%4
}
)";

TEST(Fuse, MakesSoftmaxOneLoop) {
  EXPECT_EQ(groups(kSoftmax), "max+subtract+exp+sum+divide [2, 8]/1");
}

TEST(Fuse, CanBeSwitchedOff) {
  EXPECT_EQ(groups(kSoftmax, false),
            "max [2, 8]/1 | subtract [2, 8] | exp [2, 8] | sum [2, 8]/1 | divide [2, 8]");
}

constexpr const char* kSum = R"(graph m<f32, i64>(%a: f32[8], %b: f32[8], %c: f32[8], %d: f32[8]) {
  %0 = constant(value=2, dtype=f32) : f32[]
  %1 = add(%a, %b) : f32[8]
  %2 = multiply(%1, %0) : f32[8]
  %3 = add(%2, %c) : f32[8]
  %4 = add(%3, %d) : f32[8]
  return y=%4
}
)";

// Operands are what a loop reads and what it writes; a number is part of the program.
TEST(Fuse, LimitsTheOperandsOfALoop) {
  EXPECT_EQ(groups(kSum, true, 5), "constant | add+multiply+add+add [8]");
  EXPECT_EQ(groups(kSum, true, 4), "constant | add+multiply+add [8] | add [8]");
  EXPECT_EQ(groups(kSum, true, 3), "constant | add+multiply [8] | add [8] | add [8]");
}

// What a later loop would take in is counted, too, and results that others read.
TEST(Fuse, LimitsTheOperandsOfALoopThatOthersMoveTo) {
  constexpr const char* kPair =
      R"(graph m<f32, i64>(%a: f32[8], %b: f32[8], %c: f32[8], %d: f32[8]) {
  %0 = add(%a, %b) : f32[8]
  %1 = add(%c, %d) : f32[8]
  %2 = add(%0, %1) : f32[8]
  return y=%2, z=%0
}
)";
  EXPECT_EQ(groups(kPair), "add+add+add [8]");
  EXPECT_EQ(groups(kPair, true, 6), "add+add+add [8]");
  EXPECT_EQ(groups(kPair, true, 5), "add [8] | add+add [8]");
  const ir::Graph graph = passes::parsed(kPair);
  const Fusion fusion = fuse(graph, true, 5);
  const std::vector<Boundary> found = boundaries(graph, fusion, 1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].blocker, FusionBlocker::kManyOperands);
}

// A mean: the constant is defined between the sum and its reader.
TEST(Fuse, ConstantsDoNotKeepLoopsApart) {
  EXPECT_EQ(groups(R"(graph m<f32, i64>(%x: f32[2, 8]) {
  %0 = sum(%x, axis=(1,), keepdim=true) : f32[2, 1]
  %1 = constant(value=8, dtype=f32) : f32[]
  %2 = divide(%0, %1) : f32[2, 1]
  %3 = subtract(%x, %2) : f32[2, 8]
  return y=%3
}
)"),
            "constant | sum+divide+subtract [2, 8]/1");
}

TEST(Fuse, DoesNotMoveALoopBehindWhatItNeeds) {
  // tanh needs the product, which needs exp: tanh cannot join exp's loop.
  EXPECT_EQ(groups(R"(graph m<f32, i64>(%x: f32[4, 4]) {
  %0 = exp(%x) : f32[4, 4]
  %1 = matmul(%0, %x) : f32[4, 4]
  %2 = add(%0, %1) : f32[4, 4]
  %3 = tanh(%0) : f32[4, 4]
  return y=%2, z=%3
}
)"),
            "exp+tanh [4, 4] | matmul | add [4, 4]");
}

// A step of an optimizer: every operand begins with a loop of its own.
TEST(Fuse, MovesLoopsToTheOneThatReadsThem) {
  EXPECT_EQ(groups(R"(graph m<f32, i64>(%m: f32[4], %v: f32[4], %g: f32[4]) {
  %0 = exp(%m) : f32[4]
  %1 = tanh(%g) : f32[4]
  %2 = add(%0, %1) : f32[4]
  %3 = square(%g) : f32[4]
  %4 = negate(%v) : f32[4]
  %5 = add(%4, %3) : f32[4]
  %6 = divide(%2, %5) : f32[4]
  return p=%6, m=%2, v=%5
}
)"),
            "exp+tanh+add+square+negate+add+divide [4]");
  EXPECT_EQ(groups(R"(graph m<f32, i64>(%x: f32[2, 8], %y: f32[2, 8]) {
  %0 = exp(%x) : f32[2, 8]
  %1 = max(%y, axis=(1,), keepdim=true) : f32[2, 1]
  %2 = subtract(%y, %1) : f32[2, 8]
  %3 = multiply(%0, %2) : f32[2, 8]
  return y=%3
}
)"),
            "exp+max+subtract+multiply [2, 8]/1");
}

// The product reads what exp makes; what tanh makes is read by nothing before the last loop.
TEST(Fuse, MovesNoLoopBehindItsReaders) {
  EXPECT_EQ(groups(R"(graph m<f32, i64>(%x: f32[4, 4], %y: f32[4, 4]) {
  %0 = exp(%x) : f32[4, 4]
  %1 = tanh(%y) : f32[4, 4]
  %2 = matmul(%0, %x) : f32[4, 4]
  %3 = add(%2, %0) : f32[4, 4]
  %4 = add(%3, %1) : f32[4, 4]
  return y=%4
}
)"),
            "exp [4, 4] | matmul | tanh+add+add [4, 4]");
}

// Where the reduced axis has one place, row values look like the domain: they stay apart.
TEST(Fuse, MovesNothingIntoRowsThatAreWhole) {
  EXPECT_EQ(groups(R"(graph m<f32, i64>(%x: f32[4, 1], %y: f32[4, 1]) {
  %0 = exp(%x) : f32[4, 1]
  %1 = max(%y, axis=(1,), keepdim=true) : f32[4, 1]
  %2 = multiply(%1, %0) : f32[4, 1]
  return y=%2
}
)"),
            "exp [4, 1] | max+multiply [4, 1]/1");
}

// Places are counted along the rows; a sum of columns goes through them in another order.
TEST(Fuse, SumsNoColumnsOfWhatIsCounted) {
  const auto sums = [](const char* axis, const char* shape) {
    return groups(fmt::format(R"(graph m<f32, i64>(%k: i32[], %l: i32[]) {{
  %0 = threefry_uniform(%k, %l, shape=(4, 3), dtype=f32) : f32[4, 3]
  %1 = sum(%0, axis=({},)) : f32[{}]
  return y=%1
}}
)",
                              axis, shape));
  };
  EXPECT_EQ(sums("1", "4"), "threefry_uniform+sum [4, 3]/1");
  EXPECT_EQ(sums("0", "3"), "threefry_uniform [4, 3] | sum [4, 3]/0");
}

TEST(Fuse, KeepsOtherDomainsApart) {
  EXPECT_EQ(groups(R"(graph m<f32, i64>(%x: f32[4], %y: f32[3, 4]) {
  %0 = exp(%x) : f32[4]
  %1 = add(%0, %y) : f32[3, 4]
  %2 = sum(%1, axis=(0,)) : f32[4]
  %3 = sum(%1, axis=(1,)) : f32[3]
  return a=%2, b=%3
}
)"),
            "exp [4] | add+sum [3, 4]/0 | sum [3, 4]/1");
}

// A long row is read by one thread only: what follows its sum runs as a loop of its own.
TEST(Fuse, DoesNotReadALongRowTwice) {
  EXPECT_EQ(groups(R"(graph m<f32, i64>(%x: f32[1000000]) {
  %0 = sum(%x, keepdim=true) : f32[1]
  %1 = divide(%x, %0) : f32[1000000]
  return y=%1
}
)"),
            "sum [1000000]/0 | divide [1000000]");
}

TEST(Fuse, RowValuesStayRows) {
  EXPECT_EQ(groups(R"(graph m<f32, i64>(%x: f32[2, 8], %g: f32[2, 1]) {
  %0 = sum(%x, axis=(1,), keepdim=true) : f32[2, 1]
  %1 = multiply(%0, %g) : f32[2, 1]
  return y=%1
}
)"),
            "sum+multiply [2, 8]/1");
}

}  // namespace
}  // namespace mithril::select
