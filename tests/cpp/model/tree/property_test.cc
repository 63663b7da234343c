// Covers: model/tree/tree.cc model/tree/journal.cc model/tree/dump.cc model/tree/facts.cc
// Laws on random compositions: a failed call changes nothing, and facts do not depend on the order
// of calls.
#include <algorithm>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "model/build.h"

namespace mithril::model {
namespace {

using test::leaf;
using test::linear;

constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "f", "g"};

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }
  bool chance(size_t percent) { return below(100) < percent; }
  std::string name() { return kNames[below(std::size(kNames))]; }
  int64_t size() { return static_cast<int64_t>(1 + below(3)); }

  ShapeTemplate shape() {
    ShapeTemplate out;
    bool variadic = false;
    for (size_t rank = below(4); rank > 0; --rank) {
      const size_t kind = below(5);
      if (kind == 0 && !variadic) {
        out.push_back(infer::TemplateItem::variadic(name()));
        variadic = true;
      } else if (kind < 3) {
        out.push_back(infer::TemplateItem::of(size()));
      } else {
        out.push_back(infer::TemplateItem::symbol(name()));
      }
    }
    return out;
  }
  template <class Items>
  void shuffle(Items& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::mt19937 engine_;
};

Model random_leaf(Random& random) {
  static constexpr const char* kOps[] = {"relu", "add",   "multiply",  "matmul", "sum",
                                         "mean", "equal", "transpose", "buffer", "shape"};
  if (random.chance(30)) return linear(random.size());
  return leaf(kOps[random.below(std::size(kOps))]);
}

Argument random_argument(Random& random, const Model& model) {
  switch (random.below(8)) {
    case 0: return Argument::omitted();
    case 1: return Argument::of(HostValue(2.5));
    case 2: {
      KeySpec spec;
      if (random.chance(50)) spec.name = random.name();
      if (random.chance(50)) spec.shape = random.shape();
      if (random.chance(20)) spec.differentiable = random.chance(50);
      return Argument::of(Connection::key(std::move(spec)));
    }
    case 3: {
      const auto keys = model.all_keys();
      if (keys.empty()) return Argument::omitted();
      return Argument::of(model.connection(keys[random.below(keys.size())]));
    }
    case 4: {
      const auto found = model.find_connection(random.name());
      const Argument left = found ? Argument::of(*found) : Argument::of(test::key(random.name()));
      return Argument::of(Model::call(test::op("add"), {left, Argument::of(HostValue(1))}));
    }
    default: return Argument::named(random.name());
  }
}

Connections random_connections(Random& random, const Model& model, const Model& child) {
  Connections out;
  for (const std::string& key : child.external_keys()) {
    if (random.chance(70)) out.emplace_back(key, random_argument(random, model));
  }
  return out;
}

Model random_child(Random& random, int depth) {
  if (depth == 0 || random.chance(70)) return random_leaf(random);
  Model model;
  for (size_t i = random.below(4); i > 0; --i) {
    const Model child = random_child(random, depth - 1);
    try {
      model.extend(child, random_connections(random, model, child));
    } catch (const core::ErrorException&) {
    }
  }
  return model;
}

void random_setter(Random& random, Model& model) {
  const auto keys = model.all_keys();
  const std::string key = keys.empty() ? "a" : keys[random.below(keys.size())];
  switch (random.below(8)) {
    case 0: model.set_shapes({{key, random.shape()}, {random.name(), random.shape()}}); return;
    case 1: model.set_types({{key, infer::kFloating}}); return;
    case 2: model.set_values({{key, HostValue(random.size())}}); return;
    case 3: model.set_differentiability({{key, random.chance(50)}}); return;
    case 4: model.expose_keys({key}, {{random.name(), KeyRef(random.name())}}); return;
    case 5: model.merge_connections({key, random.name()}, random.chance(50) ? "m" : ""); return;
    case 6: model.set_cout({key}); return;
    default: model.rename_key(key, random.name()); return;
  }
}

TEST(ModelProperty, FailedCallsChangeNothing) {
  int failed = 0, succeeded = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    Random random(seed);
    Model model;
    for (int step = 0; step < 12; ++step) {
      const Model child = random_child(random, random.chance(3) ? 4 : 2);
      const bool extends = random.chance(75);
      const Connections connections =
          extends ? random_connections(random, model, child) : Connections{};
      const std::string before = model.dump(), child_before = child.dump();
      try {
        if (extends) {
          const Chain chain = random.chance(30) ? Chain::kCanonical : Chain::kPlain;
          model.extend(child, connections, chain);
        } else {
          random_setter(random, model);
        }
        ++succeeded;
      } catch (const core::ErrorException& error) {
        ++failed;
        ASSERT_NE(error.error().kind, core::ErrorKind::kInternal) << error.what();
        ASSERT_EQ(model.dump(), before) << "seed " << seed << " step " << step;
        ASSERT_EQ(child.dump(), child_before) << "seed " << seed << " step " << step;
        for (const auto& [key, argument] : connections) {
          ASSERT_TRUE(argument.kind != Argument::Kind::kWire || !argument.wire.attached() ||
                      argument.wire.model()->outermost() == model);
        }
      }
    }
  }
  EXPECT_GT(failed, 1000);
  EXPECT_GT(succeeded, 1000);
}

/// What is known of all keys, by name.
std::string facts(const Model& model) {
  infer::ShapeNames names;
  auto keys = model.all_keys();
  std::sort(keys.begin(), keys.end());
  std::string out;
  for (const std::string& key : keys) {
    if (key[0] == '$') continue;
    out += key + ": " + infer::to_string(model.kinds(key)) + " " + model.print_shape(key, names) +
           " " + model.print_value(key) + "\n";
  }
  return out;
}

using Call = std::function<void(Model&)>;

// Extends whose wires all have names, in any order, and shapes of inputs after them.
std::vector<Call> random_calls(Random& random) {
  static constexpr const char* kWires[] = {"w0", "w1", "w2", "w3", "w4", "w5"};
  static constexpr const char* kOps[] = {"relu", "add", "multiply", "linear", "matmul"};
  std::vector<Call> out;
  for (size_t i = 1; i < std::size(kWires); ++i) {
    const std::string op = kOps[random.below(std::size(kOps))];
    const std::string left = kWires[random.below(i)], right = kWires[random.below(i)];
    const std::string output = kWires[i];
    const int64_t size = random.size();
    out.push_back([=](Model& model) {
      const Model child = op == "linear" ? linear(size) : leaf(op);
      Connections connections = test::at({{"output", output}});
      const auto order = child.connect_order();
      connections.emplace_back(order[0], Argument::named(left));
      if (op != "relu" && op != "linear")
        connections.emplace_back(order[1], Argument::named(right));
      model.extend(child, connections);
    });
  }
  return out;
}

TEST(ModelProperty, FactsDoNotDependOnTheOrder) {
  int compared = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    Random random(seed);
    std::vector<Call> calls = random_calls(random);
    const Config<ShapeTemplate> shapes = {{"w0", random.shape()}, {"w5", random.shape()}};
    std::vector<std::string> results;
    for (int order = 0; order < 4; ++order) {
      Model model;
      try {
        for (const Call& call : calls) call(model);
        model.set_shapes(shapes);
        results.push_back(facts(model));
      } catch (const core::ErrorException&) {
      }
      random.shuffle(calls);
    }
    for (size_t i = 1; i < results.size(); ++i) {
      ASSERT_EQ(results[i], results[0]) << "seed " << seed;
      ++compared;
    }
  }
  EXPECT_GT(compared, 300);
}

}  // namespace
}  // namespace mithril::model
