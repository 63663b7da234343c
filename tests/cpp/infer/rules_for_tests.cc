#include "infer/rules_for_tests.h"

#include <sstream>
#include <stdexcept>

#include "infer/relation.h"

namespace mithril::infer {
namespace {

using core::HostValue;

std::optional<HostValue> add_values(std::span<const HostValue> v) {
  if (v[0].is_int() && v[1].is_int()) return HostValue(v[0].as_int() + v[1].as_int());
  return HostValue(v[0].as_number() + v[1].as_number());
}

void add(RuleBuilder& r) {
  r.elementwise(r.out(), r.in("left"), r.in("right"), add_table(), add_values, IntOp::kAdd);
}
void multiply(RuleBuilder& r) {
  r.elementwise(r.out(), r.in("left"), r.in("right"), add_table(), nullptr, IntOp::kMul);
}
void floor_divide(RuleBuilder& r) {
  r.elementwise(r.out(), r.in("left"), r.in("right"), floor_table(), nullptr, IntOp::kFloorDiv);
}
void relu(RuleBuilder& r) {
  r.kind(r.in("input"), kNumeric);
  r.same(r.out(), r.in("input"));
}
void linear(RuleBuilder& r) {
  r.kind(r.in("input"), kNumeric);
  r.shape(r.in("input"), "... k");
  r.shape(r.in("weight"), "n k");
  r.shape(r.in("bias"), "n");
  r.shape(r.out(), "... n");
  if (r.has("dimension")) r.equal(r.dim("n"), r.dim(r.attr("dimension")));
}
/// The same as a body: transpose, product, sum.
void linear_body(RuleBuilder& r) {
  const Term transposed = r.fresh(kTensor), product = r.fresh(kTensor);
  r.shape(r.in("weight"), "n k");
  r.shape(r.in("bias"), "n");
  r.kind(r.in("bias"), kTensor);
  r.permute(transposed, r.in("weight"), r.constant(HostValue()));
  r.matmul(product, r.in("input"), transposed);
  r.kind(r.out(), kTensor);
  r.broadcast(r.out(), {product, r.in("bias")});
  if (r.has("dimension")) r.equal(r.dim("n"), r.dim(r.attr("dimension")));
}
void matmul(RuleBuilder& r) {
  r.matmul(r.out(), r.in("a"), r.in("b"));
  r.arith_kind(r.out(), r.in("a"), r.in("b"), matmul_table());
}
void sum(RuleBuilder& r) {
  r.sum_kind(r.out(), r.in("input"));
  r.reduce(r.out(), r.in("input"), r.attr("axis"), r.attr("keepdim"));
}
void reshape(RuleBuilder& r) {
  r.same_kind(r.out(), r.in("input"));
  r.reshape(r.out(), r.in("input"), r.in("shape"));
}
void transpose(RuleBuilder& r) {
  r.same_kind(r.out(), r.in("input"));
  r.permute(r.out(), r.in("input"), r.attr("axes"));
}
void swap_axes(RuleBuilder& r) {
  r.swap_axes(r.out(), r.in("input"), r.attr("axis1"), r.attr("axis2"));
}
void flatten(RuleBuilder& r) {
  r.flatten(r.out(), r.in("input"), r.attr("start_dim"), r.attr("end_dim"));
}
void squeeze(RuleBuilder& r) {
  if (r.has("axis")) {
    r.squeeze(r.out(), r.in("input"), r.attr("axis"));
  } else {
    r.squeeze(r.out(), r.in("input"));
  }
}
void expand_dims(RuleBuilder& r) { r.expand_dims(r.out(), r.in("input"), r.attr("axis")); }
void where(RuleBuilder& r) {
  r.kind(r.in("cond"), kTensorBool);
  r.kind(r.in("input1"), kTensor);
  r.kind(r.in("input2"), kTensor);
  r.kind(r.out(), kTensor);
  r.broadcast(r.out(), {r.in("cond"), r.in("input1"), r.in("input2")});
}
void squared_error(RuleBuilder& r) {
  r.kind(r.in("input"), kTensor);
  r.kind(r.in("target"), kTensor);
  r.kind(r.out(), kNumeric);
  r.broadcast(r.out(), {r.in("input"), r.in("target")});
}
void cross_entropy(RuleBuilder& r) {
  r.shape(r.in("input"), "n c ...");
  r.shape(r.in("target"), "n ...");
  r.shape(r.out(), "n ...");
}
void shape_op(RuleBuilder& r) { r.shape_of(r.out(), r.in("input")); }
void size_op(RuleBuilder& r) { r.size_of(r.out(), r.in("input"), r.attr("dim")); }
void broadcast_to(RuleBuilder& r) { r.broadcast_to(r.out(), r.in("input"), r.in("shape")); }
void item(RuleBuilder& r) { r.item(r.out(), r.in("input"), r.in("index")); }
void buffer(RuleBuilder& r) { r.identical(r.out(), r.in("input")); }
void concat(RuleBuilder& r) {
  r.list(r.in("input"), std::array{r.in("input1"), r.in("input2")});
  r.concat(r.out(), r.in("input"), r.attr("axis"));
}
void stack(RuleBuilder& r) {
  r.list(r.in("input"), std::array{r.in("input1"), r.in("input2")});
  r.stack(r.out(), r.in("input"), r.attr("axis"));
}
void split(RuleBuilder& r) {
  const Term parts = r.fresh();
  r.split(parts, r.in("input"), r.attr("count"), r.attr("axis"));
  r.item(r.out("first"), parts, r.constant(HostValue(0)));
  r.item(r.out("second"), parts, r.constant(HostValue(1)));
}
void index(RuleBuilder& r) { r.index(r.out(), r.in("input"), r.in("index")); }
void embedding(RuleBuilder& r) { r.gather(r.out(), r.in("weight"), r.in("input")); }
void pad(RuleBuilder& r) { r.pad(r.out(), r.in("input"), r.in("pad_width")); }
void conv2d(RuleBuilder& r) {
  r.conv(r.out(), r.in("input"), r.in("weight"), 2, r.attr("stride"), r.attr("padding"),
         r.attr("dilation"), r.attr("groups"));
  r.shape(r.in("weight"), "co _ _ _");
  r.shape(r.in("bias"), "1 co 1 1");
  r.equal(r.dim("co"), r.dim(r.attr("out_channels")));
  r.when_known(r.attr("kernel_size"), [](RuleBuilder& b, const HostValue& k) {
    b.shape(b.in("weight"), {b.dim("co"), b.dim("cg"), b.dim(k.as_int()), b.dim(k.as_int())});
  });
}
void max_pool2d(RuleBuilder& r) {
  r.pool(r.out(), r.in("input"), 2, r.attr("kernel_size"), r.attr("stride"), r.attr("padding"),
         r.attr("dilation"));
}
void arange(RuleBuilder& r) { r.arange(r.out(), r.attr("start"), r.attr("stop"), r.attr("step")); }
void diff(RuleBuilder& r) {
  r.shape(r.in("input"), "n");
  r.shape(r.out(), {r.dim("n") - 1});
}
void to_tensor(RuleBuilder& r) { r.tensor_of(r.out(), r.in("input")); }

int64_t combinations_minus_one(int64_t d, int64_t degree) {
  int64_t out = 1;
  for (int64_t i = 1; i <= degree; ++i) out = out * (d + i) / i;
  return out - 1;
}

core::Status polynomial(Relation& r) {
  const auto degree = r.value(2);
  if (!degree || r.rank(1) != 2 || r.rank(0) != 2) return {};
  const auto in = r.size(1, 1), out = r.size(0, 1);
  if (in) return r.set_size(0, 1, combinations_minus_one(*in, degree->as_int()));
  if (!out) return {};
  for (int64_t d = 1; d <= *out; ++d) {
    if (combinations_minus_one(d, degree->as_int()) == *out) return r.set_size(1, 1, d);
  }
  return core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                    "no input has these features");
}
void polynomial_features(RuleBuilder& r) {
  r.shape(r.in("input"), "n d");
  r.shape(r.out(), "n f");
  r.custom({r.out(), r.in("input"), r.attr("degree")}, polynomial);
}

const std::map<std::string, Rule, std::less<>>& all() {
  static const std::map<std::string, Rule, std::less<>> rules = {
      {"add", add},
      {"multiply", multiply},
      {"floor_divide", floor_divide},
      {"relu", relu},
      {"linear", linear},
      {"linear_body", linear_body},
      {"matmul", matmul},
      {"sum", sum},
      {"reshape", reshape},
      {"transpose", transpose},
      {"swap_axes", swap_axes},
      {"flatten", flatten},
      {"squeeze", squeeze},
      {"expand_dims", expand_dims},
      {"where", where},
      {"squared_error", squared_error},
      {"cross_entropy", cross_entropy},
      {"shape", shape_op},
      {"size", size_op},
      {"broadcast_to", broadcast_to},
      {"item", item},
      {"buffer", buffer},
      {"concat", concat},
      {"stack", stack},
      {"split", split},
      {"index", index},
      {"embedding", embedding},
      {"pad", pad},
      {"conv2d", conv2d},
      {"max_pool2d", max_pool2d},
      {"arange", arange},
      {"diff", diff},
      {"to_tensor", to_tensor},
      {"polynomial_features", polynomial_features},
  };
  return rules;
}

}  // namespace

const Rule& test_rule(const std::string& op) { return all().at(op); }
std::string_view test_op_name(const std::string& op) { return all().find(op)->first; }

core::Status World::shape(const std::string& name, const std::string& text) {
  ShapeTemplate shape;
  std::stringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');) {
    item.erase(0, item.find_first_not_of(' '));
    if (item.starts_with("...")) {
      shape.push_back(TemplateItem::variadic(item.substr(3)));
    } else if (item == "_") {
      shape.push_back(TemplateItem::unknown());
    } else if (item[0] == '-' || (item[0] >= '0' && item[0] <= '9')) {
      shape.push_back(TemplateItem::of(std::stoll(item)));
    } else {
      shape.push_back(TemplateItem::symbol(item));
    }
  }
  return solver.assert_shape(cell(name), shape, scope_, fact(name));
}

core::Status World::use(const std::string& op, const Use& use) {
  // Names of keys must live on: those of the test's op blocks are literals, here they are kept.
  static std::map<std::string, std::string> names;
  std::vector<Binding> bindings;
  for (const auto& [key, cell_name] : use.keys) {
    bindings.push_back({names.emplace(key, key).first->second, cell(cell_name), nullptr});
  }
  for (const auto& [key, value] : use.attributes) {
    bindings.push_back({names.emplace(key, key).first->second, {}, &value});
  }
  return solver.add_rule(test_op_name(op), test_rule(op), bindings, fact(op));
}

}  // namespace mithril::infer
