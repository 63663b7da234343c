// Covers: infer/rule.cc infer/propagators/arithmetic.cc infer/propagators/window.cc
// Rules run forward over sizes of a graph's table, and what both directions cost.
#include <chrono>
#include <cstdio>

#include <gtest/gtest.h>

#include "infer/rules_for_tests.h"

namespace mithril::infer {
namespace {

using core::HostValue;

struct ForwardTest : testing::Test {
  std::vector<Dim> dims(std::initializer_list<const char*> items) {
    std::vector<Dim> out;
    for (const char* item : items) out.push_back(table.parse(item).or_throw());
    return out;
  }
  static Port tensor(std::string_view name, const std::vector<Dim>& shape,
                     KindSet kinds = kFloating) {
    Port port;
    port.name = name;
    port.kinds = kinds;
    port.is_tensor = true;
    port.shape = shape;
    return port;
  }
  static Port host(std::string_view name, const HostValue& value) {
    Port port;
    port.name = name;
    port.value = &value;
    return port;
  }
  std::string infer(const std::string& op, std::vector<Port> inputs,
                    std::string_view result = "output") {
    const std::string_view names[] = {result};
    std::vector<Inferred> results;
    const core::Status status = forward.run(op, test_rule(op), inputs, names, table, results);
    if (!status.ok()) return status.error().text();
    if (!results[0].is_tensor) {
      return results[0].value ? core::to_string(*results[0].value,
                                                [this](core::SymbolicInt s) {
                                                  return table.print(Dim::expression(s.expr));
                                                })
                              : to_string(results[0].kinds);
    }
    std::string out = "[";
    for (const Dim dim : results[0].shape) out += (out.size() > 1 ? ", " : "") + table.print(dim);
    return out + "]";
  }
  DimTable table;
  Forward forward;
};

TEST_F(ForwardTest, ShapesFromShapes) {
  const auto x = dims({"N", "3", "H", "W"}), w = dims({"8", "3"}), b = dims({"8"});
  const auto rows = dims({"N", "3"});
  EXPECT_EQ(infer("relu", {tensor("input", x)}), "[N, 3, H, W]");
  EXPECT_EQ(infer("linear", {tensor("input", rows), tensor("weight", w), tensor("bias", b)}),
            "[N, 8]");
  EXPECT_EQ(infer("linear_body", {tensor("input", rows), tensor("weight", w), tensor("bias", b)}),
            "[N, 8]");
  const HostValue start(1), end(-1);
  EXPECT_EQ(infer("flatten", {tensor("input", x), host("start_dim", start), host("end_dim", end)}),
            "[N, 3*H*W]");
  const auto m = dims({"M", "1"});
  EXPECT_EQ(infer("squared_error", {tensor("input", rows), tensor("target", m)}),
            "[broadcast(N, M), 3]");
  const HostValue axis(-1), keep(true);
  EXPECT_EQ(infer("sum", {tensor("input", x), host("axis", axis), host("keepdim", keep)}),
            "[N, 3, H, 1]");
  EXPECT_EQ(infer("shape", {tensor("input", x)}), "(N, 3, H, W)");
  const HostValue shape = HostValue::tuple({HostValue(-1), HostValue(6)});
  EXPECT_EQ(infer("reshape", {tensor("input", rows), host("shape", shape)}), "[floor(N/2), 6]");
}

TEST_F(ForwardTest, Windows) {
  const auto x = dims({"N", "3", "H", "32"}), w = dims({"8", "3", "3", "3"}),
             b = dims({"1", "8", "1", "1"});
  const HostValue stride(2), padding(1), dilation(1), groups(1), out(8), kernel(3);
  EXPECT_EQ(infer("conv2d",
                  {tensor("input", x), tensor("weight", w), tensor("bias", b),
                   host("stride", stride), host("padding", padding), host("dilation", dilation),
                   host("groups", groups), host("out_channels", out), host("kernel_size", kernel)}),
            "[N, 8, floor((H+1)/2), 16]");
}

TEST_F(ForwardTest, InputsFollowWhereOneAloneGivesTheOutput) {
  const auto y = dims({"N", "3", "H", "30"}), row = dims({"N"});
  const HostValue kernel(3), one(1), none(0);
  EXPECT_EQ(infer("max_pool2d",
                  {tensor("output", y), host("kernel_size", kernel), host("stride", one),
                   host("padding", none), host("dilation", one)},
                  "input"),
            "[N, 3, H+2, 32]");
  EXPECT_EQ(infer("diff", {tensor("output", row)}, "input"), "[N+1]");
}

TEST_F(ForwardTest, ErrorsAreTold) {
  const auto a = dims({"2", "3"}), b = dims({"4", "5"}), n = dims({"N", "M"});
  EXPECT_EQ(infer("matmul", {tensor("a", a), tensor("b", b)}),
            "matmul: inner dimensions must be equal, got a: [2, 3] and b: [4, 5]");
  EXPECT_EQ(infer("matmul", {tensor("a", n), tensor("b", n)}),
            "matmul: inner dimensions must be equal, got a: [N, M] and b: [N, M]");
  EXPECT_EQ(infer("relu", {tensor("input", a)}), "[2, 3]") << "the scratch is clean again";
}

// Prints what it measured; asserts nothing about speed (style.md 2.5).
TEST_F(ForwardTest, PrintsItsCost) {
  const auto x = dims({"N", "256"}), w = dims({"256", "256"}), b = dims({"256"});
  const Port inputs[] = {tensor("input", x), tensor("weight", w), tensor("bias", b)};
  const Port pair[] = {tensor("input", x), tensor("target", b)};
  const std::string_view names[] = {"output"};
  std::vector<Inferred> results;
  const auto time = [&](const char* op, std::span<const Port> ports) {
    const Rule& rule = test_rule(op);
    const auto begin = std::chrono::steady_clock::now();
    constexpr int kRuns = 20000;
    for (int i = 0; i < kRuns; ++i) {
      ASSERT_TRUE(forward.run(op, rule, ports, names, table, results).ok());
    }
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    std::printf("forward %-14s %.2f us a node\n", op, spent.count() / kRuns);
  };
  time("linear", inputs);
  time("squared_error", pair);
  time("relu", std::span(inputs, 1));
}

TEST(SolverCost, PrintsTheCostOfComposing200Layers) {
  for (const bool known_first : {true, false}) {
    World w;
    const HostValue dimension(64);
    std::vector<CellId> cells;
    for (int i = 0; i < 1001; ++i) cells.push_back(w.solver.new_cell());
    const FactId fact = w.solver.new_fact({"train.py", 1, ""});
    const auto begin = std::chrono::steady_clock::now();
    size_t next = 1;
    CellId x = cells[0];
    const auto set_input = [&] {
      return w.solver.assert_shape(cells[0], {TemplateItem::symbol("N"), TemplateItem::of(64)},
                                   w.solver.new_scope(), fact);
    };
    if (known_first) {
      ASSERT_TRUE(set_input().ok());
    }
    for (int layer = 0; layer < 200; ++layer) {
      const CellId y = cells[next++], weight = cells[next++], bias = cells[next++],
                   z = cells[next++];
      const Binding linear[] = {{"input", x},
                                {"weight", weight},
                                {"bias", bias},
                                {"output", y},
                                {"dimension", {}, &dimension}};
      Mark mark = w.solver.mark();
      ASSERT_TRUE(w.solver.add_rule("linear", test_rule("linear"), linear, fact).ok());
      ASSERT_TRUE(w.solver.propagate().ok());
      w.solver.release(mark);
      mark = w.solver.mark();
      const Binding relu[] = {{"input", y}, {"output", z}};
      ASSERT_TRUE(w.solver.add_rule("relu", test_rule("relu"), relu, fact).ok());
      ASSERT_TRUE(w.solver.propagate().ok());
      w.solver.release(mark);
      x = z;
    }
    if (!known_first) {
      ASSERT_TRUE(set_input().ok());
    }
    ASSERT_TRUE(w.solver.propagate().ok());
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - begin;
    std::printf("200 x (linear, relu), input %s: %.2f ms, %llu steps\n",
                known_first ? "first" : "last", spent.count(),
                static_cast<unsigned long long>(w.solver.steps()));
    EXPECT_EQ(w.solver.print_shape(x), "[N, 64]");
  }
}

}  // namespace
}  // namespace mithril::infer
