// Long chains: every stage takes time linear in the model and none of them recurses over it, so all
// runs on a thread whose stack has 256 KiB.
#include <cmath>
#include <functional>
#include <memory>
#include <pthread.h>
#include <time.h>
#include <vector>

#include <gtest/gtest.h>

#include "backends/cpu/target.h"
#include "compile.h"
#include "model/build.h"
#include "specialize/on_cpu.h"

namespace mithril {
namespace {

using model::Chain;
using model::Model;
using model::test::leaf;
using model::test::linear;

#ifdef NDEBUG
constexpr int kLength = 100'000;
#else
constexpr int kLength = 10'000;
#endif

void on_a_small_stack(std::function<void()> body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  const auto start = [](void* function) -> void* {
    (*static_cast<std::function<void()>*>(function))();
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, start, &body), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

// Of this thread's processor time: other processes do not count.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds(const std::function<void()>& body) {
  const double start = thread_seconds();
  body();
  return thread_seconds() - start;
}

Model chain(int length, const std::function<Model(int)>& make) {
  Model out;
  for (int i = 0; i < length; ++i) out.extend(make(i), {}, Chain::kCanonical);
  return out;
}

// Ten times the length in at most thirty times the time, where it would be a hundred times; the
// second is for what a short chain is too short to measure.
void expect_linear(const char* what, const std::function<Model(int)>& make) {
  double small = 0, large = 0;
  on_a_small_stack([&] {
    small = seconds([&] { chain(kLength / 10, make); });
    large = seconds([&] { chain(kLength, make); });
  });
  std::printf("%s: %d in %.3f s, %d in %.3f s\n", what, kLength / 10, small, kLength, large);
  EXPECT_LT(large, 30 * small + 1.0) << what;
}

TEST(Chain, ComposesInLinearTime) {
  expect_linear("relu", [](int) { return leaf("relu"); });
  expect_linear("linear, relu", [](int i) { return i % 2 == 0 ? linear(4) : leaf("relu"); });
}

TEST(Chain, KindAndShapeReachTheEndsOfALongChain) {
  on_a_small_stack([] {
    Model m = chain(kLength, [](int) { return leaf("relu"); });
    m.set_shapes({{m.cin(), model::test::sizes({2, 3})}});
    EXPECT_EQ(model::test::shape(m, m.cout()), "[2, 3]");
  });
}

TEST(Chain, CompilesDifferentiatesAndRuns) {
  on_a_small_stack([] {
    double at = 0;
    const auto stage = [&at](const char* what, const std::function<void()>& body) {
      at = seconds(body);
      std::printf("  %-13s %.3f s\n", what, at);
    };
    Model m;
    stage("compose", [&] {
      static const char* const kOps[] = {"sin", "relu", "tanh"};
      m = chain(kLength, [](int i) { return leaf(kOps[i % 3]); });
    });
    CompileOptions options;
    options.target = cpu::target();
    options.flatten.shapes = {{m.cin(), model::test::sizes({3})}};
    options.flatten.trainable_keys = {m.cin()};
    options.flatten.safe_names = false;
    std::shared_ptr<const Compiled> compiled;
    stage("compile", [&] { compiled = compile(m, options).or_throw(); });
    passes::DifferentiateOptions request;
    request.wrt = {compiled->interface.keys.at(0).name};
    request.unit = {compiled->interface.outputs.at(0)};
    ir::Graph graph;
    stage("differentiate", [&] { graph = compiled->gradient(request).or_throw(); });
    SpecializationCache program(std::move(graph), on_cpu());
    const std::vector<int64_t> sizes[] = {{3}};
    std::shared_ptr<const Specialization> made;
    stage("specialize", [&] { made = program.specialize(sizes).or_throw(); });
    const float x[] = {0.5F, 0.1F, 0.9F};
    float y[3] = {-1, -1, -1}, g[3] = {-1, -1, -1};
    const void* in[] = {x};
    void* out[] = {y, g};
    stage("run", [&] { made->executable->run(in, out).or_throw(); });
    float want = 0.5F;
    for (int i = 0; i < kLength; ++i) {
      want = i % 3 == 0 ? std::sin(want) : i % 3 == 1 ? std::max(want, 0.0F) : std::tanh(want);
    }
    EXPECT_NEAR(y[0], want, 1e-3F * want);
    EXPECT_GE(g[0], 0.0F);
    EXPECT_LT(g[0], 1.0F);
  });
}

// Gradients for as many parameters as the chain is long.
TEST(Chain, FindsAndDifferentiatesManyParameters) {
  on_a_small_stack([] {
    const int length = kLength / 5;
    const Model m = chain(length, [](int i) { return i % 2 == 0 ? linear(2) : leaf("relu"); });
    CompileOptions options;
    options.target = cpu::target();
    options.flatten.shapes = {{m.cin(), model::test::sizes({1, 2})}};
    options.flatten.safe_names = false;
    const auto compiled = compile(m, options).or_throw();
    passes::DifferentiateOptions request;
    for (const auto& key : compiled->interface.keys) {
      if (key.trainable) request.wrt.push_back(key.name);
    }
    EXPECT_EQ(request.wrt.size(), static_cast<size_t>(length));  // weight and bias of every other
    request.unit = {compiled->interface.outputs.at(0)};
    const ir::Graph graph = compiled->gradient(request).or_throw();
    EXPECT_EQ(graph.outputs.size(), static_cast<size_t>(length) + 1);
  });
}

TEST(Chain, ANestOfTenThousandComposesCompilesAndDies) {
  on_a_small_stack([] {
    Model m = leaf("relu");
    for (int i = 0; i < 10'000; ++i) {
      Model outer;
      outer.extend(m, {}, Chain::kCanonical);
      m = outer;
    }
    CompileOptions options;
    options.target = cpu::target();
    options.flatten.shapes = {{m.cin(), model::test::sizes({2})}};
    options.flatten.safe_names = false;
    const auto compiled = compile(m, options).or_throw();
    SpecializationCache program(compiled->forward, on_cpu());
    const std::vector<int64_t> sizes[] = {{2}};
    const auto made = program.specialize(sizes).or_throw();
    const float x[] = {-1.0F, 2.0F};
    float y[] = {-1.0F, -1.0F};
    const void* in[] = {x};
    void* out[] = {y};
    made->executable->run(in, out).or_throw();
    EXPECT_EQ(y[0], 0.0F);
    EXPECT_EQ(y[1], 2.0F);
  });
}

}  // namespace
}  // namespace mithril
