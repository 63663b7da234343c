// Covers: ir/builder.cc ir/full_rule.cc ir/infer_types.cc ir/op_def.cc ir/registry.cc
// Every block of ops/: it is complete, its samples infer, its body and its gradient rules build
// and have the right types. Values are checked by the op matrix.
#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/infer_types.h"
#include "ir/registry.h"
#include "ir/text.h"
#include "ops/built.h"
#include "passes/autodiff.h"
#include "passes/decompose.h"
#include "tile/builder.h"

namespace mithril::ir {
namespace {

using test::build;
using test::Built;
using test::contains;
using test::describe;

// Without those that other tests define (passes/own_ops_test.cc).
std::vector<const OpDef*> blocks() {
  std::vector<const OpDef*> out = Registry::global().all();
  std::erase_if(out, [](const OpDef* op) { return op->family == "own"; });
  return out;
}

std::string text(const core::Status& status) { return status.ok() ? "" : status.error().text(); }

bool is_expandable(const OpDef& op) {
  // A list of results has no node: flatten calls the body (split).
  return op.body == BodyKind::kCompose && op.outputs[0].dtype.result != DTypeRule::Result::kHost;
}

// A loop has the samples and the gradients of its body; its marks are gone before anything runs.
bool is_of_loops(const OpDef& op) { return op.family == "control"; }

// Stands for an op whose size follows from data, which has the samples, where programs are cut.
bool is_bounded_form(const OpDef& op) {
  const std::vector<const OpDef*> all = blocks();
  return std::any_of(all.begin(), all.end(),
                     [&](const OpDef* other) { return other->bounded == op.name; });
}

// Stands for a product behind casts, where a pass makes it (passes/multiply_halves_test.cc).
bool is_of_halves(const OpDef& op) {
  return op.name == "widening_matmul" || op.name == "biased_matmul";
}

TEST(Blocks, AreRegistered) { EXPECT_GT(blocks().size(), 90u); }

TEST(Blocks, AreDocumented) {
  for (const OpDef* op : blocks()) {
    EXPECT_GT(op->doc.size(), 10u) << op->name;
    EXPECT_TRUE(op->doc.back() == '.') << op->name << ": " << op->doc;
    const bool joins_wires = op->body == BodyKind::kHost && op->inputs.back().variadic;
    EXPECT_TRUE(joins_wires || is_of_loops(*op) || is_bounded_form(*op) || is_of_halves(*op) ||
                !op->samples.empty())
        << op->name;
  }
}

TEST(Blocks, NameTheirKeys) {
  std::set<std::string> classes;
  for (const OpDef* op : blocks()) {
    std::vector<std::string> known;
    for (const InputDef& input : op->inputs) known.push_back(input.name);
    const std::vector<std::string> order = op->key_order.empty() ? known : op->key_order;
    EXPECT_THAT(order, testing::UnorderedElementsAreArray(known)) << op->name;
    for (const OutputDef& output : op->outputs) known.push_back(output.name);
    for (const std::string& name : op->connect_order) {
      EXPECT_TRUE(contains(known, name)) << op->name << " connects unknown '" << name << "'";
    }
    for (const std::string& name : op->canonical_inputs) {
      const InputDef& last = op->inputs.back();  // of a variadic input: the first wire
      EXPECT_TRUE(op->input_index(name) >= 0 || (last.variadic && name == last.name + "1"))
          << op->name << " has no '" << name << "'";
    }
    for (const InputDef& input : op->inputs) {
      EXPECT_TRUE(input.when.empty() || op->has_attr(input.when)) << op->name;
      EXPECT_TRUE(input.next.empty() || op->output_index(input.next) >= 0) << op->name;
    }
    std::vector<std::string> names = op->python_aliases;
    if (!op->python_name.empty()) names.push_back(op->python_name);
    for (const std::string& name : names) {
      EXPECT_TRUE(classes.insert(name).second) << name << " is two classes";
    }
  }
}

TEST(Blocks, SayWhetherTheyDifferentiate) {
  for (const OpDef* op : blocks()) {
    const bool can = op->gradient || op->body == BodyKind::kCompose || op->body == BodyKind::kHost;
    EXPECT_TRUE(!op->differentiable || can || is_of_loops(*op)) << op->name;
    EXPECT_FALSE(!op->differentiable && op->gradient) << op->name;
  }
}

TEST(Blocks, InferTheirSamples) {
  for (const OpDef* op : blocks()) {
    for (size_t i = 0; i < op->samples.size(); ++i) {
      const Built built = build(*op, op->samples[i]);
      EXPECT_TRUE(built.status.ok()) << describe(*op, i) << ": " << text(built.status);
      if (!built.status.ok()) continue;
      EXPECT_EQ(built.results.size(), op->outputs.size()) << describe(*op, i);
      for (const Type& type : built.results) {
        EXPECT_TRUE(!type.is_tensor || op->sized_by_data || is_static(type.shape))
            << describe(*op, i) << ": " << to_string(type, built.graph.dims);
      }
    }
  }
}

TEST(Blocks, RefuseTheirErrorSamples) {
  for (const OpDef* op : blocks()) {
    for (const ErrorSample& sample : op->error_samples) {
      const Built built = build(*op, sample.sample);
      ASSERT_FALSE(built.status.ok()) << op->name;
      EXPECT_THAT(text(built.status), testing::HasSubstr(sample.message)) << op->name;
      EXPECT_THAT(text(built.status), testing::Not(testing::HasSubstr("bug"))) << op->name;
    }
  }
}

TEST(Blocks, ComposeWhatTheirRulesSay) {
  for (const OpDef* op : blocks()) {
    if (!is_expandable(*op)) continue;
    for (size_t i = 0; i < op->samples.size(); ++i) {
      for (const DType floats : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
        const Built built = build(*op, op->samples[i], floats);
        if (!built.status.ok()) continue;
        auto expanded = passes::decompose_if(built.graph, [](const OpDef&) { return true; });
        EXPECT_TRUE(expanded.ok()) << describe(*op, i) << ": " << expanded.error().text();
        if (!expanded.ok()) continue;
        for (size_t k = 0; k < built.results.size(); ++k) {
          const Type& type = expanded->type(expanded->outputs[k].value);
          EXPECT_EQ(to_string(type, expanded->dims), to_string(built.results[k], built.graph.dims))
              << describe(*op, i) << ", " << op->outputs[k].name;
        }
        const core::Status status = verify(*expanded);
        EXPECT_TRUE(status.ok()) << describe(*op, i) << ": " << text(status);
      }
    }
  }
}

// Whether a node of a body has a kink in what depends on the op's float inputs. A choice has one
// where its condition depends on them.
bool has_kink(const Node& node, const std::set<ValueId>& depends) {
  static const std::set<std::string> kKinked = {"maximum", "minimum", "abs", "sign", "where",
                                                "clamp",   "max",     "min", "relu", "leaky_relu"};
  const std::string& name = Registry::global().get(node.op).name;
  if (!kKinked.contains(name)) return false;
  if (name == "where") return depends.contains(node.operands[0]);
  return std::any_of(node.operands.begin(), node.operands.end(),
                     [&](ValueId id) { return depends.contains(id); });
}

std::set<ValueId> float_inputs_of(const Graph& graph, const Built& built) {
  std::set<ValueId> out;
  for (const std::string& name : built.float_inputs) out.insert(graph.find_input(name));
  return out;
}

// A body with a kink says what the gradient there is.
TEST(Blocks, KnowTheirKinks) {
  for (const OpDef* op : blocks()) {
    if (!is_expandable(*op) || !op->differentiable) continue;
    for (const Sample& sample : op->samples) {
      Built built = build(*op, sample);
      if (!built.status.ok()) continue;
      const OpDef* self = op;
      auto expanded =
          passes::decompose_if(built.graph, [self](const OpDef& other) { return &other == self; });
      ASSERT_TRUE(expanded.ok()) << op->name;
      std::set<ValueId> depends = float_inputs_of(*expanded, built);
      for (const Node& node : expanded->nodes) {
        const bool reads = std::any_of(node.operands.begin(), node.operands.end(),
                                       [&](ValueId id) { return depends.contains(id); });
        if (reads) depends.insert(node.results.begin(), node.results.end());
        EXPECT_TRUE(op->gradient || op->has_kinks || !has_kink(node, depends))
            << op->name << " uses " << Registry::global().get(node.op).name;
      }
    }
  }
}

// Tile bodies give the type that the rule says, in every type that the op takes.
TEST(Blocks, WriteTileCodeOfTheRightType) {
  for (const OpDef* op : blocks()) {
    if (op->body != BodyKind::kPointwise && op->body != BodyKind::kRow) continue;
    for (const DType floats :
         {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      for (size_t i = 0; i < op->samples.size(); ++i) {
        const Built built = build(*op, op->samples[i], floats);
        if (!built.status.ok()) continue;
        const Node& node = built.graph.nodes.back();
        if (!built.graph.type(node.results[0]).is_tensor) continue;
        tile::Builder t;
        std::vector<tile::Reg> operands;
        for (const ValueId id : node.operands) {
          if (id == kNoValue || !built.graph.type(id).is_tensor) continue;
          operands.push_back(t.load(built.graph.type(id).dtype));
        }
        const DType result = built.graph.type(node.results[0]).dtype;
        const tile::Reg value = op->pointwise(t, {operands, node.attrs, result});
        EXPECT_EQ(value.dtype(), result) << describe(*op, i);
      }
    }
  }
}

// Integers and bools where the kinds allow them.
TEST(Blocks, WriteTileCodeForIntegersAndBools) {
  for (const OpDef* op : blocks()) {
    if (op->body != BodyKind::kPointwise && op->body != BodyKind::kRow) continue;
    for (const DType dtype : {DType::kBool, DType::kInt32, DType::kUInt8}) {
      const infer::KindSet kind = infer::tensor_of(core::kind(dtype));
      const bool fits = !op->inputs.empty() &&
                        std::all_of(op->inputs.begin(), op->inputs.end(), [&](const InputDef& in) {
                          return in.is_key || kind.subset_of(in.kinds);
                        });
      if (!fits || op->random) continue;
      Graph graph;
      graph.default_float = DType::kFloat32;
      graph.default_int = DType::kInt64;
      Builder b(graph);
      std::vector<Operand> operands;
      for (const InputDef& input : op->inputs) {
        if (input.is_key) break;
        operands.emplace_back(b.input(input.name, Type::tensor(dtype, {2, 3})));
      }
      const auto results = b.call_all(*op, operands, op->samples[0].attrs);
      ASSERT_TRUE(b.status().ok()) << op->name << ": " << text(b.status());
      const Node& node = graph.nodes.back();
      tile::Builder t;
      std::vector<tile::Reg> registers;
      for (const ValueId id : node.operands) {
        if (id != kNoValue) registers.push_back(t.load(graph.type(id).dtype));
      }
      const tile::Reg value = op->pointwise(t, {registers, node.attrs, results[0].dtype()});
      EXPECT_EQ(value.dtype(), results[0].dtype()) << op->name << " of " << core::name(dtype);
    }
  }
}

// Gradients have the types of the inputs, and differentiate again.
TEST(Blocks, DifferentiateTwice) {
  for (const OpDef* op : blocks()) {
    if (!op->differentiable || op->body == BodyKind::kHost) continue;
    if (op->outputs[0].dtype.result == DTypeRule::Result::kHost) continue;
    for (size_t i = 0; i < op->samples.size(); ++i) {
      const Built built = build(*op, op->samples[i]);
      if (!built.status.ok()) continue;
      const bool smooth = built.results[0].is_tensor && core::is_float(built.results[0].dtype);
      if (!smooth || built.float_inputs.empty()) continue;
      passes::DifferentiateOptions first;
      first.outputs = {op->outputs[0].name};
      first.wrt = built.float_inputs;
      auto once = passes::differentiate(built.graph, first);
      EXPECT_TRUE(once.ok()) << describe(*op, i) << ": " << once.error().text();
      if (!once.ok()) continue;
      EXPECT_TRUE(verify(*once).ok()) << describe(*op, i) << ": " << text(verify(*once));
      passes::DifferentiateOptions second;
      for (const std::string& name : built.float_inputs) {
        const Type& input = once->type(once->find_input(name));
        const ValueId gradient = once->find_output("grad." + name);
        ASSERT_NE(gradient, kNoValue) << describe(*op, i);
        EXPECT_EQ(to_string(once->type(gradient), once->dims), to_string(input, once->dims))
            << describe(*op, i) << ", " << name;
        second.outputs.push_back("grad." + name);
      }
      second.wrt = built.float_inputs;
      second.wrt.push_back("cotangent." + op->outputs[0].name);
      second.keep_outputs = false;
      auto twice = passes::differentiate(*once, second);
      EXPECT_TRUE(twice.ok()) << describe(*op, i) << ", second: " << twice.error().text();
      if (!twice.ok()) continue;
      EXPECT_TRUE(verify(*twice).ok()) << describe(*op, i) << ": " << text(verify(*twice));
    }
  }
}

}  // namespace
}  // namespace mithril::ir
