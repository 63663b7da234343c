// Covers: ir/graph.cc ir/parse.cc ir/print.cc ir/type.cc ir/verify.cc
#include "ir/text.h"

#include <gtest/gtest.h>

namespace mithril::ir {
namespace {

std::string reprinted(std::string_view text) { return print(std::move(parse(text)).or_throw()); }

std::string refusal(std::string_view text) {
  const auto graph = parse(text);
  return graph.ok() ? "accepted" : graph.error().message;
}

TEST(GraphText, PrintsWhatItParses) {
  constexpr const char* kTexts[] = {
      R"(graph mlp(%x: float[b, 4], %w: float[4, 8] param) {
  %0 = matmul(%x, %w) : float[b, 8]  # mlp.linear_1
  %1 = relu(%0) : float[b, 8]  # mlp.relu%201
  return y=%1
}
)",
      R"(graph m<f32, i64>(%x: f32[2*N, N+1], %s: f32[] state) {
  %0 = sum(%x, axis=(0, -1), keepdim=true) : f32[1, 1]
  %1 = constant(value=tensor<f32[2]>(0.1, inf)) : f32[2]
  %2 = reshape(%x, shape=('2*N*N+2*N',)) : f32[2*N*N+2*N]
  state %s <- %s = 0.0
  return "a b"=%0, c=%1, d=%2
}
)",
      R"(graph empty(%"quote\" and \x0a": bool[]) {
  return
}
)"};
  for (const char* text : kTexts) EXPECT_EQ(reprinted(text), text);
}

TEST(GraphText, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(refusal("graph m(%x: f32[2]) {\n  %0 = rely(%x) : f32[2]\n}"),
            "graph text, line 2: no op named 'rely', did you mean 'relu'?");
  EXPECT_EQ(refusal("graph m(%x: f32[2]) {\n  %0 = relu(%y) : f32[2]\n}"),
            "graph text, line 2: no value named '%y'");
  EXPECT_EQ(refusal("graph m(%x: f32[2]) {\n  %0 = relu(%x) : f32[3]\n}"),
            "graph text, line 3: relu infers f32[2], not f32[3]");
  EXPECT_EQ(refusal("graph m(%x: f23[2]) {}"), "graph text, line 1: no dtype named 'f23'");
  EXPECT_EQ(refusal("graph m("), "graph text, line 1: expected '%', got ''");
}

TEST(GraphText, SurvivesEveryTruncationAndByte) {
  const std::string text = R"(graph m<f32, i64>(%x: f32[b, 3]) {
  %0 = index(%x, index=(1:2, [0, 1], ..., none)) : f32[1, 2]
  %1 = constant(value=tensor<i64[2]>(1, -2)) : i64[2]
  return y=%0
}
)";
  for (size_t size = 0; size < text.size(); ++size) (void)refusal(text.substr(0, size));
  for (size_t at = 0; at < text.size(); ++at) {
    for (const char c : {'\0', '(', ')', '"', '%', '\'', '9', '\xff'}) {
      std::string hostile = text;
      hostile[at] = c;
      (void)refusal(hostile);
    }
  }
  EXPECT_NE(refusal("graph m(%x: f32[2]) {\n %0 = relu(%x, axis=" + std::string(100000, '(')),
            "accepted");
}

TEST(GraphText, CommentsKeepOnlyPlainCharacters) {
  EXPECT_EQ(escape_comment("blocks.3.attn_q"), "blocks.3.attn_q");
  EXPECT_EQ(escape_comment("a\n*/ b"), "a%0A%2A%2F%20b");
  EXPECT_LE(escape_comment(std::string(1000, '\n')).size(), 120U);
}

TEST(Parse, RefusesMoreOperandsThanTheOpHas) {
  const auto wrong = parse("graph m<f32, i64>(%x: f32[2]) {\n  %0 = relu(%x, %x) : f32[2]\n}");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("relu takes 1 operands, got 2"), std::string::npos);
}

TEST(Parse, BoundsRanks) {
  const auto graph = [](int rank) {
    std::string shape = "1";
    for (int i = 1; i < rank; ++i) shape += ", 1";
    return "graph m<f32, i64>(%x: f32[" + shape + "]) {\n  return y=%x\n}";
  };
  EXPECT_TRUE(parse(graph(64)).ok());
  const auto wrong = parse(graph(65));
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("more than 64 dimensions"), std::string::npos);
}

TEST(Verify, FindsWhatIsNotDefinedBeforeItsUse) {
  Graph graph = std::move(parse(R"(graph m<f32, i64>(%x: f32[2]) {
  %0 = relu(%x) : f32[2]
  %1 = exp(%0) : f32[2]
  return y=%1
})"))
                    .or_throw();
  EXPECT_TRUE(verify(graph).ok());
  std::swap(graph.nodes[0].operands, graph.nodes[1].operands);
  EXPECT_FALSE(verify(graph).ok());
}

TEST(Verify, FindsATypeThatTheOpDoesNotInfer) {
  Graph graph = std::move(parse(R"(graph m<f32, i64>(%x: f32[2]) {
  %0 = relu(%x) : f32[2]
  return y=%0
})"))
                    .or_throw();
  graph.value(graph.outputs[0].value).type.shape = {Dim(3)};
  const core::Status status = verify(graph);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "relu in graph m: result 0 is f32[3], the op infers f32[2]");
}

TEST(CheckAddresses, LooksAtInputsResultsAndRegions) {
  const auto refused = [](std::string_view text) {
    const core::Status status = check_addresses(std::move(parse(text)).or_throw());
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(refused("graph m<f32, i64>(%x: f32[a, 536870912, 536870912]) {\n  return y=%x\n}"), "");
  EXPECT_EQ(refused("graph m<f32, i64>(%x: f32[1073741824, 1073741824]) {\n  return y=%x\n}"),
            "a value of type f32[1073741824, 1073741824] does not fit an address space");
  EXPECT_EQ(refused(R"(graph m<f32, i64>(%x: f32[1]) {
  %0 = broadcast_to(%x, shape=(0, 4294967302, 4294967302)) : f32[0, 4294967302, 4294967302]
  return y=%0
})"),
            "a value of type f32[0, 4294967302, 4294967302] does not fit an address space");
  EXPECT_EQ(refused(R"(graph m<f32, i64>(%h: f32[1]) {
  %0 = scan(%h, carries=1, length=2) : f32[1] {
    graph step<f32, i64>(%c0: f32[1]) {
      %0 = broadcast_to(%c0, shape=(1073741824, 1073741824)) : f32[1073741824, 1073741824]
      %1 = sum(%0, axis=(0, 1)) : f32[]
      %2 = add(%c0, %1) : f32[1]
      return c0=%2
    }
  }
  return y=%0
})"),
            "a value of type f32[1073741824, 1073741824] does not fit an address space");
}

}  // namespace
}  // namespace mithril::ir
