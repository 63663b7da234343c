// Covers: infer/dim_text.cc infer/dim_walk.cc
#include "infer/dim.h"

#include <random>

#include <gtest/gtest.h>

namespace mithril::infer {
namespace {

struct DimTest : testing::Test {
  Dim parse(std::string_view text) { return std::move(t.parse(text)).or_throw(); }
  std::string round(std::string_view text) { return t.print(parse(text)); }
  DimTable t;
};

TEST_F(DimTest, PrintsNormalForms) {
  EXPECT_EQ(round("N+1"), "N+1");
  EXPECT_EQ(round("1 + N"), "N+1");
  EXPECT_EQ(round("N+N"), "2*N");
  EXPECT_EQ(round("W*H"), "W*H") << "in order of first appearance";
  EXPECT_EQ(round("floor(N/2)"), "floor(N/2)");
  EXPECT_EQ(round("N-1"), "N-1");
  EXPECT_EQ(round("3-N"), "-N+3");
  EXPECT_EQ(round("N-N"), "0");
  EXPECT_EQ(round("A+B-A+2-M+3*M-2"), "B+2*M");
  EXPECT_EQ(round("0-4"), "-4");
  EXPECT_EQ(round("(N+1)*(N-1)"), "N*N-1");
  EXPECT_EQ(round("broadcast(N, M)"), "broadcast(N, M)");
  EXPECT_EQ(round("floor((2*N+1)/2)"), "N");
  EXPECT_EQ(round("floor((2*N+5)/4)"), "floor(N/2)+1");
  EXPECT_EQ(round("floor((floor((N+1)/2)+1)/2)"), "floor((N+3)/4)");
  EXPECT_EQ(round("floor(N/M)"), "floor(N/M)");
  EXPECT_EQ(round("broadcast(M, broadcast(N, M))"), "broadcast(N, M)");
}

TEST_F(DimTest, EqualNormalFormsAreEqualIds) {
  EXPECT_EQ(parse("2*(N+1)-2"), parse("N*2"));
  EXPECT_EQ(parse("floor(3*N/2)"), parse("N+floor(N/2)"));
  EXPECT_EQ(parse("broadcast(N, 3)"), Dim(3));
  EXPECT_EQ(parse("broadcast(N, 1)"), parse("N"));
  EXPECT_EQ(t.ceil_div(parse("N"), 2), parse("floor((N+1)/2)"));
  const Dim unnamed = t.fresh();
  EXPECT_EQ(t.symbol("u1"), unnamed) << "printed names of fresh symbols read back";
}

TEST_F(DimTest, SumsOfCoefficientsDoNotWrap) {
  const Dim large = t.mul(parse("N"), Dim(int64_t{1} << 62));
  EXPECT_NE(large, t.overflow());
  EXPECT_EQ(t.add(large, large), t.overflow());
  EXPECT_EQ(t.add(parse("N*M"), t.sub(large, large)), parse("N*M"));
}

TEST_F(DimTest, NamesBelongToOneSymbol) {
  const Dim named = t.symbol("N"), other = t.fresh();
  EXPECT_FALSE(t.set_name(other, "N"));
  EXPECT_EQ(t.symbol("N"), named);
  EXPECT_TRUE(t.set_name(other, "M"));
  EXPECT_FALSE(t.set_name(other, "K")) << "it has a name";
  EXPECT_EQ(t.symbol("M"), other);
}

TEST_F(DimTest, DividesAndSolves) {
  EXPECT_EQ(t.divide_exact(parse("H*W*3"), parse("W")), parse("3*H"));
  EXPECT_EQ(t.divide_exact(parse("H*W+H"), parse("H")), parse("W+1"));
  EXPECT_FALSE(t.divide_exact(parse("H*W+1"), parse("H")));
  EXPECT_FALSE(t.divide_exact(Dim(7), Dim(2)));
  const auto solution = t.solve(parse("2*N+1"), 7);
  ASSERT_TRUE(solution && solution->exact);
  EXPECT_EQ(solution->value, 3);
  EXPECT_FALSE(t.solve(parse("2*N"), 7)->exact);
  EXPECT_FALSE(t.solve(parse("N*M"), 7));
  const auto isolated = t.isolate(parse("6*q-12*a"));
  ASSERT_TRUE(isolated);
  EXPECT_EQ(t.print(isolated->first), "q");
  EXPECT_EQ(t.print(isolated->second), "2*a");
  EXPECT_FALSE(t.isolate(parse("2*q-floor(q/3)")));
}

TEST_F(DimTest, EvaluatesChecked) {
  const Dim n = t.symbol("N");
  const auto with = [&](std::string_view text, int64_t value) {
    std::vector<int64_t> values(t.symbol_count(), -1);
    values[t.symbol_index(n)] = value;
    return t.evaluate(parse(text), values);
  };
  EXPECT_EQ(with("floor((N+1)/2)*3", 4), 6);
  EXPECT_EQ(with("N*N", int64_t{1} << 40), std::nullopt);
  EXPECT_EQ(with("M", 4), std::nullopt);
  EXPECT_EQ(with("floor(3/(N-4))", 4), std::nullopt);
  EXPECT_EQ(with("broadcast(N, 2*N)", 1), 2);
  EXPECT_EQ(with("broadcast(N, 2*N)", 2), std::nullopt);
  EXPECT_EQ(t.mul(Dim(int64_t{1} << 62), Dim(4)), t.overflow());
  EXPECT_EQ(t.add(t.overflow(), n), t.overflow());
}

TEST_F(DimTest, Substitutes) {
  const Dim n = t.symbol("N"), m = t.symbol("M");
  const std::pair<Dim, Dim> map[] = {{n, parse("2*M")}};
  EXPECT_EQ(t.substitute(parse("floor((N+1)/2)+N"), map), parse("3*M"));
  const std::pair<Dim, Dim> sizes[] = {{n, 4}, {m, 1}};
  EXPECT_EQ(t.substitute(parse("broadcast(N, M)*N"), sizes), Dim(16));
}

TEST_F(DimTest, BoundsFollowFromThoseOfTheSymbols) {
  const Dim n = t.symbol("N"), m = t.symbol("M");
  const auto bounds = [&](Dim e) {
    return t.bounds(e, [&](Dim symbol) {
      return symbol == n ? Bounds{2, 5} : Bounds{0};  // M has no upper end
    });
  };
  constexpr int64_t kOpen = INT64_MAX;
  EXPECT_EQ(bounds(Dim(7)), (Bounds{7, 7}));
  EXPECT_EQ(bounds(t.add(n, Dim(3))), (Bounds{5, 8}));
  EXPECT_EQ(bounds(t.sub(Dim(1), n)), (Bounds{-4, -1}));
  EXPECT_EQ(bounds(t.mul(n, n)), (Bounds{4, 25}));
  EXPECT_EQ(bounds(t.mul(n, m)), (Bounds{0, kOpen}));
  EXPECT_EQ(bounds(t.sub(n, m)), (Bounds{INT64_MIN, 5}));
  EXPECT_EQ(bounds(t.floor_div(t.add(n, Dim(1)), Dim(2))), (Bounds{1, 3}));
  // Sound, not tight: its normal form is floor(N/2) - N, in [1, 2] - [2, 5].
  EXPECT_EQ(bounds(t.floor_div(t.sub(Dim(0), n), Dim(2))), (Bounds{-4, 0}));
  EXPECT_EQ(bounds(t.floor_div(n, m)), Bounds());  // M may be 0
  EXPECT_EQ(bounds(t.broadcast(n, m)), (Bounds{0, kOpen}));
  EXPECT_EQ(bounds(t.mul(t.mul(n, Dim(INT64_MAX / 2)), n)), (Bounds{kOpen, kOpen}));
}

TEST_F(DimTest, RefusesMalformedText) {
  for (const char* text : {"", "N+", "(N", "floor(N)", "1x", "N N", "*", "99999999999999999999"}) {
    EXPECT_FALSE(t.parse(text).ok()) << text;
  }
  EXPECT_FALSE(t.parse(std::string(100000, '(')).ok());
}

TEST_F(DimTest, TruncatesExactly) {
  parse("floor((N+3)/4)*M");
  const auto before = t.size();
  const DimTable copy = t;
  parse("floor((K+3)/7)*N+M*M*5");
  t.set_name(t.fresh(), "batch");
  for (int i = 0; i < 200; ++i) t.mul(parse("N+K"), Dim(i + 2));
  t.truncate(before);
  EXPECT_EQ(t.size(), before);
  EXPECT_FALSE(t.find_symbol("batch"));
  DimTable again = copy;
  EXPECT_EQ(again.parse("floor((N+3)/4)+K").or_throw(), parse("floor((N+3)/4)+K"));
}

// Whatever the normal form does, it must mean the same: compare with direct evaluation.
TEST_F(DimTest, NormalFormsKeepTheMeaning) {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int64_t values[3] = {5, 8, 3};
  for (int round_number = 0; round_number < 300; ++round_number) {
    std::vector<std::pair<Dim, int64_t>> pool = {
        {t.symbol("a"), values[0]}, {t.symbol("b"), values[1]}, {t.symbol("c"), values[2]}, {2, 2}};
    for (int step = 0; step < 8; ++step) {
      const auto [x, vx] = pool[static_cast<size_t>(pick(static_cast<int>(pool.size())))];
      const auto [y, vy] = pool[static_cast<size_t>(pick(static_cast<int>(pool.size())))];
      const int64_t k = 1 + pick(6);
      switch (pick(5)) {
        case 0: pool.emplace_back(t.add(x, y), vx + vy); break;
        case 1: pool.emplace_back(t.sub(x, y), vx - vy); break;
        case 2:
          if (std::abs(vx) < 1000 && std::abs(vy) < 1000) pool.emplace_back(t.mul(x, y), vx * vy);
          break;
        case 3: {
          const int64_t q = vx >= 0 ? vx / k : -((-vx + k - 1) / k);
          pool.emplace_back(t.floor_div(x, Dim(k)), q);
          break;
        }
        case 4: {
          const int64_t q = vx > 0 ? (vx + k - 1) / k : -((-vx) / k);
          pool.emplace_back(t.ceil_div(x, Dim(k)), q);
          break;
        }
      }
      const std::vector<int64_t> by_index(values, values + 3);
      ASSERT_EQ(t.evaluate(pool.back().first, by_index), pool.back().second)
          << t.print(pool.back().first);
      ASSERT_EQ(t.parse(t.print(pool.back().first)).or_throw(), pool.back().first)
          << t.print(pool.back().first);
    }
  }
}

}  // namespace
}  // namespace mithril::infer
