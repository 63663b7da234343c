// Reading and adding at positions: NumPy indexing, rows by index.
#include "core/slice.h"
#include "ops/index_plan.h"

namespace mithril::ops {
namespace {

// The index of a node: its value where known, and the operands of the variadic input.
std::vector<Operand> with_index(GradBuilder& g, std::vector<Operand> operands, Attrs& attrs) {
  if (!g.attr("index").is_none() || g.count("index") == 0) attrs.set("index", g.attr("index"));
  for (size_t i = 0; i < g.count("index"); ++i) operands.emplace_back(g.in("index", i));
  return operands;
}

Value call_with_index(GradBuilder& g, std::string_view op, std::vector<Operand> operands) {
  Attrs attrs;
  std::vector<Operand> all = with_index(g, std::move(operands), attrs);
  return g.builder().call(op, std::move(all), std::move(attrs));
}

int64_t from_end(int64_t at, size_t size) { return at < 0 ? at + static_cast<int64_t>(size) : at; }

// Python's slice of a sequence.
core::Result<HostValue> slice_of(const HostValue& sequence, const core::Slice& slice) {
  const HostValue::Tuple& items = sequence.items();
  if (slice.step == HostValue(0)) {
    return core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "a slice step must not be 0");
  }
  const auto taken = core::slice_indices(slice, static_cast<int64_t>(items.size()));
  HostValue::Tuple out;
  for (int64_t i = 0; i < taken.length; ++i) {
    out.push_back(items[static_cast<size_t>(taken.start + i * taken.step)]);
  }
  return sequence.is_list() ? HostValue::list(std::move(out)) : HostValue::tuple(std::move(out));
}

core::Result<HostValue> index_sequence(const ir::HostCall& call) {
  const HostValue& sequence = call.operands[0];
  HostValue index;
  if (const HostValue* known = call.attrs.find("index")) index = *known;
  if (index.is_none() && call.operands.size() > 1) index = call.operands[1];
  if (!sequence.is_sequence()) {
    return core::fail(core::ErrorKind::kDType, core::Code::kDTypeOperand,
                      "index: expected a tensor, tuple or list, got {}", core::to_string(sequence));
  }
  if (index.is_sequence() && index.items().size() == 1) index = HostValue(index.items()[0]);
  if (index.is_slice()) return slice_of(sequence, index.as_slice());
  if (!index.is_int()) {
    return core::fail(core::ErrorKind::kDType, core::Code::kDTypeOperand,
                      "index: a tuple or list takes an int or a slice, got {}",
                      core::to_string(index));
  }
  const auto size = static_cast<int64_t>(sequence.items().size());
  const int64_t at = from_end(index.as_int(), sequence.items().size());
  if (at < 0 || at >= size) {
    return core::fail(core::ErrorKind::kIndex, core::Code::kIndexBounds,
                      "index {} is out of bounds for {} items", index.as_int(), size);
  }
  return sequence.items()[static_cast<size_t>(at)];
}

HostValue slice(HostValue start, HostValue stop, HostValue step = HostValue()) {
  return HostValue(core::Slice{std::move(start), std::move(stop), std::move(step)});
}

bool is_zeros(const Value& x) {
  const ir::Graph& graph = x.builder->graph();
  const auto is_reshape = [](const ir::Node* node) {
    return node != nullptr && ir::Registry::global().get(node->op).name == "reshape";
  };
  const ir::Node* node = graph.producer(x.id);
  while (is_reshape(node)) node = graph.producer(node->operands[0]);
  if (node == nullptr || ir::Registry::global().get(node->op).name != "full") return false;
  const HostValue* value = node->attrs.find("value");
  return value != nullptr && (value->is_int() || value->is_double()) && value->as_number() == 0.0;
}

void define_indexing(OpFamily& ops) {
  const HostValue none;
  const HostValue all = slice(none, none);
  ops.def("index")
      .python("Indexer")
      .arguments({"index", "input"})
      .alias({"indexer"})
      .doc(
          "NumPy indexing by ints, slices, none, ellipsis, lists and integer tensors; tuples and "
          "lists by ints and slices.")
      .input("input", kTensor | infer::kSequence)
      .variadic("index", infer::kAny)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) { r.index(r.out(), r.in("input"), r.in("index")); })
      .expand_when(
          [](const ir::Graph& graph, const ir::Node& node) { return has_arrays(graph, node, 1); })
      .compose_many([](Builder& b) {
        const auto plan = plan_index(b, b.in("input"), 1);
        return std::vector<Value>{plan ? select(b.in("input"), *plan) : Value()};
      })
      .kernel("index")
      .moves()
      .host(index_sequence)
      .gradient([](GradBuilder& g) {
        const Value x = g.in("input");
        const Value zeros = full(g.builder(), shape_value(x.shape()), 0.0, x.dtype());
        g.d("input") = call_with_index(g, "index_add", {zeros, g.dout()});
      })
      .with(at({{"input", {4, 3}}}, {{"index", 1}}))
      .with(at({{"input", {4, 3}}}, {{"index", HostValue::tuple({slice(1, 3), HostValue(-1)})}}))
      .with(at({{"input", {5, 4}}}, {{"index", HostValue::tuple({all, slice(none, none, -2)})}}))
      .with(at({{"input", {4, 3}}},
               {{"index", HostValue::tuple({HostValue(core::EllipsisValue{}), none})}}))
      .with(at({{"input", {4, 3}}}, {{"index", HostValue::list({0, 2, 2})}}))
      .with(
          at({{"input", {4, 3, 2}}}, {{"index", HostValue::tuple({all, HostValue::list({2, 0})})}}))
      .with(at({{"input", {0, 3}}}, {{"index", all}}))
      .with(at({{"input", {5, 7}}},
               {{"index", HostValue::tuple({slice(1, none, 2), slice(6, 0, -3)})}}))
      .with(at({{"input", {3, 4, 2}}},
               {{"index", HostValue::tuple({HostValue(1), HostValue::list({0, 3, -1}), none})}}))
      .with(at({{"input", {3, 4, 2}}},
               {{"index", HostValue::tuple(
                              {HostValue::list({0, 2}), slice(1, 3), HostValue::list({1, 0})})}}))
      .with(at({{"input", {4, 3}}, {"index", {2, 5}}}, {}, {"index"}))
      .sample("index", 0.0, 3.0)
      .rejects(at({{"input", {4, 3}}}, {{"index", 4}}), "index")
      .rejects(at({{"input", {4, 3}}}, {{"index", HostValue::list({0, -5})}}), "index");

  ops.def("index_add")
      .doc(
          "A copy of the operand with values added at the places that the index selects; "
          "repeated places add up.")
      .input("input", kNumeric)
      .input("value", kNumeric)
      .variadic("index", infer::kAny)
      .output("output", same_as("input"))
      .promote({"input", "value"})
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("input"));
        const Term selected = r.fresh(kTensor);
        r.index(selected, r.in("input"), r.in("index"));
        r.broadcast(selected, {selected, r.in("value")});
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        const auto plan = x ? plan_index(b, x, 2) : std::nullopt;
        if (!plan) return Value();
        const Value added = spread(b.in("value"), x, *plan);
        return is_zeros(x) ? added : x + added;
      })
      .checks_sizes()  // a part of open size, such as x[n:], is no expression
      .gradient([](GradBuilder& g) {
        g.d("input") = g.dout();
        if (g.wants("value")) g.d("value") = call_with_index(g, "index", {g.dout()});
      })
      .with(at({{"input", {4, 3}}, {"value", {3}}}, {{"index", 1}}))
      .with(at({{"input", {4, 3}}, {"value", {2, 3}}}, {{"index", slice(1, 3)}}))
      .with(at({{"input", {4, 3}}, {"value", {3, 3}}}, {{"index", HostValue::list({0, 2, 2})}}))
      .with(at({{"input", {4, 3}}, {"value", {5, 3}}, {"index", {5}}}, {}, {"index"}))
      .sample("index", 0.0, 3.0);
}

void define_rows(OpFamily& ops) {
  ops.def("gather")
      .alias({"take"})
      .doc("Rows of the operand (places along its first axis) in the order of the indices.")
      .input("input", kTensor)
      .input("indices", kTensorInt)
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) { r.gather(r.out(), r.in("input"), r.in("indices")); })
      .kernel("gather")
      .moves()
      .gradient([](GradBuilder& g) {
        g.d("input") = ir::apply("embedding_grad", {g.dout(), g.in("indices")},
                                 {{"shape", shape_value(g.in("input").shape())}});
      })
      .with(at({{"input", {5, 3}}, {"indices", {4}}}))
      .with(at({{"input", {5, 3}}, {"indices", {2, 3}}}))
      .with(at({{"input", {5}}, {"indices", {}}}))
      .with(at({{"input", {5, 3}}, {"indices", {0}}}))
      .sample("indices", 0.0, 4.0);

  ops.def("embedding_grad")
      .doc(
          "Zeros of the shape, to whose rows the values are added in the order of the indices; "
          "repeated rows add up.")
      .input("value", kNumeric)
      .input("indices", kTensorInt)
      .key("shape")
      .output("output", same_as("value"))
      .rule([](RuleBuilder& r) {
        r.shape_from_value(r.out(), r.in("shape"));
        r.gather(r.in("value"), r.out(), r.in("indices"));
      })
      .kernel("scatter_add")
      .gradient([](GradBuilder& g) {
        g.d("value") = ir::apply("gather", {g.dout(), g.in("indices")});
      })
      .with(at({{"value", {4, 3}}, {"indices", {4}}}, {{"shape", HostValue::ints({5, 3})}}))
      .sample("indices", 0.0, 4.0);

  ops.def("embedding")
      .python("Embedding")
      .alias({"primitive_embedding"})
      .doc(
          "Rows of the weight by integer: weight is [num_embeddings, dim], the result has the "
          "shape of the input and dim.")
      .input("input", kTensorInt)
      .input("weight", kFloating)
      .attr("num_embeddings", HostValue(), kWidth)
      .attr("dim", HostValue(), kWidth)
      .output("output", same_as("weight"))
      .trainable("weight", {Init::Kind::kNormal, "", {}})
      .rule([](RuleBuilder& r) {
        r.shape(r.in("weight"), "n d");
        r.gather(r.out(), r.in("weight"), r.in("input"));
        for (const auto& [attr, dim] : {std::pair("num_embeddings", "n"), std::pair("dim", "d")}) {
          const auto size = r.known(r.attr(attr));
          if (size && size->is_int()) r.equal(r.dim(dim), size->as_int());
        }
      })
      .compose([](Builder& b) {
        return ir::apply("gather", {b.in("weight"), b.in("input")});
      })
      .gradient([](GradBuilder& g) {
        g.d("weight") = ir::apply("embedding_grad", {g.dout(), g.in("input")},
                                  {{"shape", shape_value(g.in("weight").shape())}});
      })
      .with(at({{"input", {4}}, {"weight", {5, 3}}}))
      .with(at({{"input", {2, 3}}, {"weight", {5, 3}}}))
      .with(at({{"input", {2, 0}}, {"weight", {5, 3}}}))
      .sample("input", 0.0, 4.0);
}

}  // namespace

void define_index(OpFamily& ops) {
  define_indexing(ops);
  define_rows(ops);
}

}  // namespace mithril::ops
