// Ops that move or repeat elements and compute nothing: views, joins, paddings.
#include "infer/relation.h"
#include "ops/block.h"
#include "ops/broadcast.h"
#include "ops/resample.h"
#include "ops/window.h"

namespace mithril::ops {
namespace {

// The cotangent has the elements of the result: give them the input's shape back.
void reshape_back(GradBuilder& g) { g.d("input") = reshape_like(g.dout(), g.in("input")); }

OpDefBuilder& view(OpDefBuilder& block) {
  return block.output("output", same_as("input")).builtin().moves();
}

void define_axes(OpFamily& ops) {
  view(ops.def("transpose")
           .python("Transpose")
           .alias({"permute"})
           .doc("Axes in another order; none reverses them.")
           .input("input", kTensor)
           .key("axes", HostValue()))
      .trait(Trait::kTranspose)
      .rule([](RuleBuilder& r) { r.permute(r.out(), r.in("input"), r.in("axes")); })
      .gradient([](GradBuilder& g) {
        if (g.has("axes")) {
          return unsupported(g.builder(), "transpose: the gradient needs known axes");
        }
        const HostValue& axes = g.attr("axes");
        if (axes.is_none()) {
          g.d("input") = transpose(g.dout());
          return;
        }
        const std::vector<int64_t> order = axes_of(axes, g.in("input").rank());
        std::vector<int64_t> inverse(order.size());
        for (size_t i = 0; i < order.size(); ++i) {
          inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
        }
        g.d("input") = transpose(g.dout(), HostValue::ints(inverse));
      })
      .with(at({{"input", {2, 3}}}))
      .with(at({{"input", {2, 3, 4}}}, {{"axes", HostValue::ints({1, 2, 0})}}))
      .with(at({{"input", {2, 0, 4}}}, {{"axes", HostValue::ints({-1, 0, 1})}}))
      .with(at({{"input", {}}}))
      .rejects(at({{"input", {2, 3}}}, {{"axes", HostValue::ints({0, 0})}}), "transpose");

  view(ops.def("swapaxes")
           .python("SwapAxes")
           .doc("Two axes exchanged.")
           .input("input", kTensor)
           .key("axis1")
           .key("axis2"))
      .trait(Trait::kTranspose)
      .rule(
          [](RuleBuilder& r) { r.swap_axes(r.out(), r.in("input"), r.in("axis1"), r.in("axis2")); })
      .gradient([](GradBuilder& g) {
        const Operand axis1 = given(g.builder(), "axis1");
        const Operand axis2 = given(g.builder(), "axis2");
        g.d("input") = g.builder().call("swapaxes", {g.dout(), axis1, axis2});
      })
      .with(at({{"input", {2, 3}}}, {{"axis1", 0}, {"axis2", 1}}))
      .with(at({{"input", {2, 3, 4}}}, {{"axis1", 0}, {"axis2", -1}}))
      .rejects(at({{"input", {2, 3}}}, {{"axis1", 0}, {"axis2", 2}}), "swapaxes");
}

void define_shapes(OpFamily& ops) {
  view(ops.def("reshape")
           .python("Reshape")
           .doc("The elements, in row-major order, in another shape; one size may be -1.")
           .input("input", kTensor)
           .key("shape"))
      .trait(Trait::kReshape)
      .rule([](RuleBuilder& r) { r.reshape(r.out(), r.in("input"), r.in("shape")); })
      .gradient(reshape_back)
      .with(at({{"input", {2, 6}}}, {{"shape", HostValue::ints({3, 4})}}))
      .with(at({{"input", {2, 6}}}, {{"shape", HostValue::ints({-1, 3})}}))
      .with(at({{"input", {1}}}, {{"shape", HostValue::ints({})}}))
      .with(at({{"input", {0, 3}}}, {{"shape", HostValue::ints({3, 0})}}))
      .rejects(at({{"input", {2, 6}}}, {{"shape", HostValue::ints({5, 2})}}), "reshape");

  view(ops.def("flatten")
           .python("Flatten")
           .doc("Axes start_dim to end_dim merged into one; by default all but the first.")
           .input("input", kTensor)
           .key("start_dim", 1)
           .key("end_dim", -1))
      .trait(Trait::kReshape)
      .rule([](RuleBuilder& r) {
        r.flatten(r.out(), r.in("input"), r.in("start_dim"), r.in("end_dim"));
      })
      .gradient(reshape_back)
      .with(at({{"input", {2, 3, 4}}}))
      .with(at({{"input", {2, 3, 4}}}, {{"start_dim", 0}}))
      .with(at({{"input", {2, 3, 4}}}, {{"start_dim", 0}, {"end_dim", 1}}))
      .with(at({{"input", {0, 3, 4}}}));

  view(ops.def("squeeze")
           .python("Squeeze")
           .arguments({"input"})
           .doc("Axes of size 1 dropped: all of them, or those that axis names.")
           .input("input", kTensor)
           .attr("axis", HostValue(), kWidth | infer::kSequence))
      .trait(Trait::kReshape)
      .rule([](RuleBuilder& r) { r.squeeze(r.out(), r.in("input"), r.attr("axis")); })
      .gradient(reshape_back)
      .with(at({{"input", {2, 1, 3, 1}}}))
      .with(at({{"input", {2, 1, 3, 1}}}, {{"axis", 1}}))
      .rejects(at({{"input", {2, 3}}}, {{"axis", 1}}), "squeeze");

  view(ops.def("expand_dims")
           .python("ExpandDims")
           .alias({"unsqueeze"})
           .doc("Axes of size 1 put in at the positions that axis names in the result.")
           .input("input", kTensor)
           .key("axis"))
      .trait(Trait::kReshape)
      .rule([](RuleBuilder& r) { r.expand_dims(r.out(), r.in("input"), r.in("axis")); })
      .gradient(reshape_back)
      .with(at({{"input", {2, 3}}}, {{"axis", 0}}))
      .with(at({{"input", {2, 3}}}, {{"axis", -1}}))
      .with(at({{"input", {2, 3}}}, {{"axis", HostValue::ints({0, 2})}}));
}

// Terms: output, input, sizes, wire.
core::Status relate_known_sizes(infer::Relation& relation) {
  const auto sizes = relation.value(2), wire = relation.value(3);
  if (!sizes || !sizes->is_sequence() || !relation.rank(1)) return {};
  const auto rank = static_cast<int>(sizes->items().size());
  MITHRIL_RETURN_IF_ERROR(relation.set_rank(1, rank));
  MITHRIL_RETURN_IF_ERROR(relation.set_rank(0, rank));
  for (int axis = 0; axis < rank; ++axis) {
    const HostValue& size = sizes->items()[static_cast<size_t>(axis)];
    if (!size.is_int()) {
      MITHRIL_RETURN_IF_ERROR(relation.tie(0, axis, 1, axis));
      continue;
    }
    const auto found = relation.size(1, axis);
    if (found && *found != size.as_int()) {
      core::Error error = core::fail(core::ErrorKind::kShape, core::Code::kShapeData,
                                     "'{}' must have size {} in axis {}, got {}",
                                     wire && wire->is_string() ? wire->as_string() : "input",
                                     size.as_int(), axis, *found);
      error.hint =
          "the rest of the model fixes that size: give data that make it, or change what "
          "reads the wire";
      return error;
    }
    MITHRIL_RETURN_IF_ERROR(relation.set_size(0, axis, size.as_int()));
  }
  return {};
}

void define_known_sizes(OpFamily& ops) {
  ops.def("known_sizes")
      .doc(
          "The operand, whose sizes are known from the rest of the model: numbers and sizes of "
          "other tensors in sizes, none where the operand itself tells. wire is its name in "
          "errors.")
      .input("input", kTensor)
      .attr("sizes")
      .attr("wire", "")
      .output("output", same_as("input"))
      .rule([](RuleBuilder& r) {
        r.same_kind(r.out(), r.in("input"));
        const bool is_open = !r.known(r.attr("sizes"));
        if (is_open) return r.shape_from_value(r.out(), r.attr("sizes"));
        r.custom({r.out(), r.in("input"), r.attr("sizes"), r.attr("wire")}, relate_known_sizes);
      })
      .compose([](Builder& b) {
        const Value x = b.in("input");
        HostValue::Tuple sizes = b.attr("sizes").items();
        for (size_t i = 0; i < sizes.size(); ++i) {
          const infer::Dim dim = x.shape()[i];
          if (sizes[i].is_none()) sizes[i] = HostValue(core::SymbolicInt{dim.id()});
          if (dim.known()) sizes[i] = HostValue(dim.value());
        }
        return reshape(x, HostValue::tuple(std::move(sizes)));
      })
      .checks_sizes()
      .gradient(reshape_back)
      .with(at({{"input", {2, 3}}}, {{"sizes", HostValue::tuple({HostValue(), HostValue(3)})}}))
      .rejects(at({{"input", {2, 3}}}, {{"sizes", HostValue::tuple({HostValue(), HostValue(4)})}}),
               "known_sizes");
}

void define_broadcasts(OpFamily& ops) {
  view(ops.def("broadcast_to")
           .python("BroadcastTo")
           .doc("The operand repeated along axes of size 1 and new leading axes.")
           .input("input", kTensor)
           .key("shape"))
      .trait(Trait::kBroadcast)
      .rule([](RuleBuilder& r) {
        r.kind(r.in("input"), kTensor);
        r.shape_from_value(r.out(), r.in("shape"));
        state_broadcasts_to(r, r.in("input"), r.out());
      })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout(); })
      .with(at({{"input", {3}}}, {{"shape", HostValue::ints({2, 3})}}))
      .with(at({{"input", {2, 1}}}, {{"shape", HostValue::ints({4, 2, 3})}}))
      .with(at({{"input", {}}}, {{"shape", HostValue::ints({0, 2})}}))
      .rejects(at({{"input", {3}}}, {{"shape", HostValue::ints({2, 4})}}), "broadcast_to");

  view(ops.def("broadcast_like")
           .doc("The operand repeated to the shape of another one.")
           .input("input", kTensor)
           .input("like", kTensor))
      .trait(Trait::kBroadcast)
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("like"));
        state_broadcasts_to(r, r.in("input"), r.in("like"));
      })
      .gradient([](GradBuilder& g) { g.d("input") = g.dout(); })
      .with(at({{"input", {3}}, {"like", {2, 3}}}))
      .with(at({{"input", {2, 1}}, {"like", {2, 3}}}));

  ops.def("sum_to")
      .doc(
          "Undoes broadcasting: the sum over the axes along which another operand of that shape "
          "would be repeated.")
      .input("input", kNumeric)
      .input("like", kTensor)
      .output("output", same_as("input"))
      .builtin()
      .rule([](RuleBuilder& r) {
        r.same_shape(r.out(), r.in("like"));
        state_broadcasts_to(r, r.in("like"), r.in("input"));
      })
      .gradient([](GradBuilder& g) { g.d("input") = broadcast_like(g.dout(), g.in("input")); })
      .with(at({{"input", {2, 3}}, {"like", {3}}}))
      .with(at({{"input", {4, 2, 3}}, {"like", {2, 1}}}))
      .with(at({{"input", {2, 3}}, {"like", {2, 3}}}));
}

void concat_gradient(GradBuilder& g) {
  if (needs_known_axis(g.builder())) return;
  const HostValue& key = g.attr("axis");
  infer::DimTable& dims = g.builder().graph().dims;
  const bool flat = key.is_none();
  const int64_t axis = flat ? 0 : axes_of(key, g.out().rank())[0];
  infer::Dim start = 0;
  for (size_t i = 0; i < g.count("input"); ++i) {
    const Value x = g.in("input", i);
    const infer::Dim size = flat ? element_count(x) : x.shape()[static_cast<size_t>(axis)];
    const infer::Dim stop = dims.add(start, size);
    const Value piece = part(g.dout(), axis, start, stop);
    g.d("input", i) = flat ? reshape_like(piece, x) : piece;
    start = stop;
  }
}

// Equal pieces along an axis, one result each.
std::vector<Value> pieces(Builder& b) {
  const Value x = b.in("input");
  if (!x || !are_known(b, {"split_size", "axis"})) return {};
  const int64_t number = b.integer_attr("split_size");
  const int64_t axis = axes_of(b.attr("axis"), x.rank())[0];
  infer::DimTable& dims = b.graph().dims;
  const infer::Dim size = dims.floor_div(x.shape()[static_cast<size_t>(axis)], number);
  std::vector<Value> out;
  for (int64_t i = 0; i < number; ++i) {
    out.push_back(part(x, axis, dims.mul(size, i), dims.mul(size, i + 1)));
  }
  return out;
}

void define_joins(OpFamily& ops) {
  ops.def("concat")
      .python("Concat")
      .arguments({"input", "axis"})
      .alias({"concatenate"})
      .doc("Operands one after the other along the axis; none joins them flattened.")
      .key("axis", 0)
      .variadic("input", kTensor)
      .output("output", computed())
      .promote()
      .keys({"input", "axis"})
      .connect({"input", "axis", "output"})
      .rule([](RuleBuilder& r) { r.concat(r.out(), r.in("input"), r.in("axis")); })
      .kernel("concat")
      .moves()
      .gradient(concat_gradient)
      .with(at({{"input", {2, 3}}, {"input", {4, 3}}}))
      .with(at({{"input", {2, 3}}, {"input", {2, 1}}, {"input", {2, 0}}}, {{"axis", -1}}))
      .with(at({{"input", {2, 3}}, {"input", {4}}}, {{"axis", HostValue()}}))
      .rejects(at({{"input", {2, 3}}, {"input", {4, 5}}}), "concat");

  ops.def("split")
      .python("Split")
      .doc("A list of split_size equal pieces along the axis.")
      .input("input", kTensor)
      .key("split_size")
      .key("axis", 0)
      .connect({"input", "output", "split_size", "axis"})
      .output("output", host_result())
      .rule([](RuleBuilder& r) {
        for (const char* name : {"split_size", "axis"}) r.kind(r.in(name), infer::kScalarInt);
        r.split(r.out(), r.in("input"), r.in("split_size"), r.in("axis"));
      })
      .compose_many(pieces)
      .with(at({{"input", {4, 3}}}, {{"split_size", 2}}))
      .with(at({{"input", {2, 6}}}, {{"split_size", 3}, {"axis", -1}}));

  view(
      ops.def("pad")
          .python("Pad")
          .arguments({"pad_width", "input", "mode", "value"})
          .doc(
              "A number (value) around the operand: pad_width has (low, high) for each axis. mode: "
              "'reflect' mirrors at the borders, which stay single, 'edge' (or 'replicate') "
              "repeats them, 'wrap' (or 'circular') goes on from the other end.")
          .input("input", kTensor)
          .key("pad_width")
          .attr("mode", "constant")
          .choices({"constant", "reflect", "edge", "replicate", "wrap", "circular"})
          .attr("value", 0.0))
      .expand_first_when(
          [](const ir::Graph&, const ir::Node& node) { return !pads_zeros(node.attrs); })
      .compose(padded_otherwise)
      .kernel("pad")
      .rule([](RuleBuilder& r) {
        r.pad(r.out(), r.in("input"), r.in("pad_width"));
        state_padding_mode(r);
      })
      .gradient([](GradBuilder& g) {
        const HostValue& widths = g.attr("pad_width");
        if (!widths.is_sequence()) {
          return unsupported(g.builder(), "pad: the gradient needs known widths");
        }
        infer::DimTable& dims = g.builder().graph().dims;
        const Shape shape = g.in("input").shape();
        const bool pairs = widths.items().empty() || widths.items()[0].is_sequence();
        Value inside = g.dout();
        for (size_t i = 0; i < shape.size(); ++i) {
          const HostValue::Tuple& pair = pairs ? widths.items()[i].items() : widths.items();
          const infer::Dim low = pair[0].is_int()
                                     ? infer::Dim(pair[0].as_int())
                                     : infer::Dim::expression(pair[0].as_symbolic().expr);
          if (pair[0] == HostValue(0) && pair[1] == HostValue(0)) continue;
          inside = part(inside, static_cast<int64_t>(i), low, dims.add(shape[i], low));
        }
        g.d("input") = inside;
      })
      .with(
          at({{"input", {2, 3}}},
             {{"pad_width", HostValue::tuple({HostValue::ints({1, 0}), HostValue::ints({0, 2})})}}))
      .with(at({{"input", {2, 3}}}, {{"pad_width", HostValue::ints({1, 0})}, {"value", 1.5}}))
      .with(at({{"input", {4, 3}}}, {{"pad_width", HostValue::ints({1, 2})}, {"mode", "reflect"}}))
      .with(at({{"input", {4, 3}}}, {{"pad_width", HostValue::ints({5, 2})}, {"mode", "edge"}}))
      .with(at({{"input", {4, 3}}}, {{"pad_width", HostValue::ints({3, 1})}, {"mode", "circular"}}))
      .rejects(
          at({{"input", {4, 3}}}, {{"pad_width", HostValue::ints({3, 0})}, {"mode", "reflect"}}),
          "must add at most 2 elements")
      .rejects(at({{"input", {4}}},
                  {{"pad_width", HostValue::ints({1, 0})}, {"mode", "edge"}, {"value", 1.0}}),
               "'value' must be 0")
      .with(at(
          {{"input", {0, 2}}},
          {{"pad_width", HostValue::tuple({HostValue::ints({1, 1}), HostValue::ints({0, 0})})}}));
}

}  // namespace

void define_movement(OpFamily& ops) {
  define_axes(ops);
  define_shapes(ops);
  define_known_sizes(ops);
  define_broadcasts(ops);
  define_joins(ops);
}

}  // namespace mithril::ops
