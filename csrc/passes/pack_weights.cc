#include "passes/pack_weights.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/registry.h"
#include "passes/dequantize.h"
#include "passes/remove_dead.h"
#include "passes/rewriter.h"

namespace mithril::passes {

using core::HostValue;
using core::PackedMatrix;
using core::TensorData;
using core::WeightFormat;
using ir::kNoValue;
using ir::Node;
using ir::ValueId;

namespace {

using Literal = std::shared_ptr<const TensorData>;

std::string_view name_of(const Node& node) { return ir::Registry::global().get(node.op).name; }

// Whether a node with one tensor operand of rank 2 exchanges its axes.
bool is_transpose(const Node& node) {
  const auto is_wired = [](ValueId id) { return id != kNoValue; };
  if (std::count_if(node.operands.begin(), node.operands.end(), is_wired) != 1) return false;
  if (!ir::Registry::global().get(node.op).has(ir::Trait::kTranspose)) return false;
  const auto axis_of = [&](const char* name) { return node.attrs.find(name)->as_int() & 1; };
  if (node.attrs.find("axis1") != nullptr) return axis_of("axis1") != axis_of("axis2");
  const HostValue* axes = node.attrs.find("axes");
  return axes == nullptr || !axes->is_sequence() || (axes->items()[0].as_int() & 1) != 0;
}

// The operand that a product multiplies by, and whether it does so by its transpose.
struct Right {
  size_t operand;
  bool turned;
};

// Of a product of two values; a square of one stays as it is.
std::optional<Right> right_of(const Node& node) {
  if (node.operands.size() < 2 || node.operands[0] == node.operands[1]) return std::nullopt;
  if (name_of(node) == "matmul") return Right{1, false};
  if (name_of(node) == "linear") return Right{0, true};
  return std::nullopt;
}

// Whether a matrix takes less memory in a format, in either orientation.
bool gains(WeightFormat format, int64_t rows, int64_t columns) {
  const int64_t dense = rows * columns * static_cast<int64_t>(sizeof(float));
  const auto takes_less = [&](std::optional<int64_t> bytes) { return bytes && *bytes < dense; };
  return takes_less(PackedMatrix::bytes(format, rows, columns)) &&
         takes_less(PackedMatrix::bytes(format, columns, rows));
}

// A literal that may be packed, and in which of its orientations a value shows it.
struct Origin {
  Literal literal;
  bool transposed = false;
};

// Who reads a literal.
struct Readers {
  bool products[2] = {false, false};  // as right operand: as it is, and transposed
  bool others = false;
};

class Weights {
 public:
  Weights(const ir::Graph& graph, WeightFormat format)
      : graph_(graph), format_(format), origin_(graph.values.size()) {
    for (const Node& node : graph.nodes) add(node);
    for (const ir::Output& output : graph.outputs) read_otherwise(output.value);
    for (const ir::StateBinding& state : graph.states) read_otherwise(state.output);
  }

  /// Finds the origin of the right operand of a product.
  std::optional<Origin> right(const Node& node) const {
    const auto right = right_of(node);
    if (!right) return std::nullopt;
    Origin origin = origin_[static_cast<size_t>(node.operands[right->operand])];
    origin.transposed = origin.transposed != right->turned;
    return origin.literal == nullptr ? std::nullopt : std::optional(std::move(origin));
  }

  /// The orientation in which products read a literal that nobody else reads.
  std::optional<bool> only_orientation(const Literal& literal) const {
    const auto at = readers_.find(literal.get());
    if (at == readers_.end() || at->second.others) return std::nullopt;
    const auto& products = at->second.products;
    return products[0] != products[1] ? std::optional(products[1]) : std::nullopt;
  }

  /// The matrix that a product multiplies by; each once.
  core::Result<std::shared_ptr<const PackedMatrix>> pack(const Origin& origin) {
    const TensorData& data = *origin.literal;
    if (is_packed(data, origin.transposed)) return data.packed.matrix;
    auto& made = packed_[{&data, origin.transposed}];
    if (made == nullptr) {
      const Literal dense = core::unpacked(origin.literal);
      MITHRIL_ASSIGN(made, PackedMatrix::pack(format_, view(*dense, origin.transposed)));
    }
    return made;
  }

 private:
  static core::MatrixView view(const TensorData& data, bool transposed) {
    const auto* elements = reinterpret_cast<const float*>(data.bytes.data());
    const int64_t rows = data.shape[0], columns = data.shape[1];
    if (transposed) return {elements, columns, rows, 1, columns};
    return {elements, rows, columns, columns, 1};
  }

  bool is_packed(const TensorData& data, bool transposed) const {
    return data.packed.matrix != nullptr && data.packed.transposed == transposed &&
           data.packed.matrix->format() == format_;
  }

  Literal packable(const Node& node) const {
    if (!ir::Registry::global().get(node.op).has(ir::Trait::kLiteral)) return nullptr;
    const HostValue* value = node.attrs.find("value");
    if (value == nullptr || !value->is_tensor()) return nullptr;
    const Literal& literal = value->as_tensor();
    const bool is_matrix = literal->dtype == core::DType::kFloat32 && literal->shape.size() == 2 &&
                           graph_.type(node.results[0]).dtype == core::DType::kFloat32;
    return is_matrix && gains(format_, literal->shape[0], literal->shape[1]) ? literal : nullptr;
  }

  void add(const Node& node) {
    if (Literal literal = packable(node)) {
      origin_[static_cast<size_t>(node.results[0])] = {std::move(literal), false};
      return;
    }
    const auto right = right_of(node);
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const ValueId id = node.operands[i];
      if (id == kNoValue || origin_[static_cast<size_t>(id)].literal == nullptr) continue;
      Origin origin = origin_[static_cast<size_t>(id)];
      if (is_transpose(node)) {
        origin.transposed = !origin.transposed;
        origin_[static_cast<size_t>(node.results[0])] = std::move(origin);
      } else if (right && i == right->operand) {
        const bool turned = origin.transposed != right->turned;
        readers_[origin.literal.get()].products[turned ? 1 : 0] = true;
      } else {
        read_otherwise(id);
      }
    }
  }

  void read_otherwise(ValueId id) {
    if (id == kNoValue) return;
    const Literal& literal = origin_[static_cast<size_t>(id)].literal;
    if (literal != nullptr) readers_[literal.get()].others = true;
  }

  const ir::Graph& graph_;
  const WeightFormat format_;
  std::vector<Origin> origin_;  // by value
  std::map<const TensorData*, Readers> readers_;
  std::map<std::pair<const TensorData*, bool>, std::shared_ptr<const PackedMatrix>> packed_;
};

Literal literal_of(std::shared_ptr<const PackedMatrix> matrix, bool transposed) {
  auto out = std::make_shared<TensorData>();
  out->shape = {matrix->rows(), matrix->columns()};
  if (transposed) std::swap(out->shape[0], out->shape[1]);
  out->packed = {std::move(matrix), transposed};
  return out;
}

// The product with another right operand, which is given as products multiply by it.
void copy_with_right(Rewriter& rewriter, const Node& node, ir::Value by) {
  const Right right = *right_of(node);
  const ValueId old = node.operands[right.operand];
  if (right.turned) {
    const std::vector<ir::Operand> one = {by};
    by = rewriter.builder().call("swapaxes", one,
                                 {{"axis1", HostValue(0)}, {"axis2", HostValue(1)}});
  }
  const ir::Value others = rewriter.mapped(old);
  rewriter.map(old, by);
  rewriter.copy(node);
  rewriter.map(old, others);
}

// How a packed matrix becomes a value of the graph.
using Spelling = ir::Value (*)(ir::Builder&, const std::shared_ptr<const PackedMatrix>&);

core::Result<ir::Graph> with_packed(const ir::Graph& graph, WeightFormat format, Spelling spell) {
  Weights weights(graph, format);
  Rewriter rewriter(graph);
  std::map<const PackedMatrix*, ir::Value> constants;
  for (const Node& node : graph.nodes) {
    const auto origin = weights.right(node);
    if (!origin) {
      rewriter.copy(node);
      continue;
    }
    MITHRIL_ASSIGN(auto matrix, weights.pack(*origin));
    ir::Value& constant = constants[matrix.get()];
    if (!constant) {
      rewriter.builder().set_location(node.location);
      constant = spell(rewriter.builder(), matrix);
    }
    copy_with_right(rewriter, node, constant);
  }
  MITHRIL_ASSIGN(const ir::Graph packed, rewriter.finish());
  return remove_dead(packed);
}

ir::Value as_literal(ir::Builder& builder, const std::shared_ptr<const PackedMatrix>& matrix) {
  return builder.constant(literal_of(matrix, false));
}

}  // namespace

core::Result<ir::Graph> pack_weights(const ir::Graph& graph, WeightFormat format) {
  return with_packed(graph, format, as_literal);
}

core::Result<ir::Graph> dequantize_weights(const ir::Graph& graph, WeightFormat format) {
  return with_packed(graph, format, [](ir::Builder& builder, const auto& matrix) {
    return dequantized(builder, *matrix);
  });
}

core::Result<std::pair<ir::Graph, std::vector<WeightInput>>> separate_weights(
    const ir::Graph& graph) {
  std::vector<std::optional<WeightInput>> origin(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const ir::ValueInfo& input = graph.value(graph.inputs[i]);
    const bool is_matrix =
        input.type.is_tensor && input.type.rank() == 2 && input.type.dtype == core::DType::kFloat32;
    if (!is_matrix || input.role != ir::Role::kParam) continue;
    origin[static_cast<size_t>(graph.inputs[i])] = WeightInput{static_cast<int32_t>(i), false};
  }
  Rewriter rewriter(graph);
  std::vector<WeightInput> found;
  std::map<std::pair<int32_t, bool>, ir::Value> inputs;
  for (const Node& node : graph.nodes) {
    const ValueId first = node.operands.empty() ? kNoValue : node.operands[0];
    if (first != kNoValue && origin[static_cast<size_t>(first)] && is_transpose(node)) {
      WeightInput turned = *origin[static_cast<size_t>(first)];
      turned.transposed = !turned.transposed;
      origin[static_cast<size_t>(node.results[0])] = turned;
    }
    const auto right = right_of(node);
    const ValueId read = right ? node.operands[right->operand] : kNoValue;
    if (read == kNoValue || !origin[static_cast<size_t>(read)]) {
      rewriter.copy(node);
      continue;
    }
    WeightInput weight = *origin[static_cast<size_t>(read)];
    weight.transposed = weight.transposed != right->turned;
    ir::Value& input = inputs[{weight.input, weight.transposed}];
    if (!input) {
      const ir::ValueInfo& from = graph.value(graph.inputs[static_cast<size_t>(weight.input)]);
      ir::Type type = from.type;
      if (weight.transposed) std::swap(type.shape[0], type.shape[1]);
      input = rewriter.builder().input(
          fmt::format("${}{}", from.name, weight.transposed ? ".T" : ""), type, ir::Role::kData);
      found.push_back(weight);
    }
    copy_with_right(rewriter, node, input);
  }
  MITHRIL_ASSIGN(const ir::Graph separated, rewriter.finish());
  MITHRIL_ASSIGN(ir::Graph out, remove_dead(separated));
  return std::pair(std::move(out), std::move(found));
}

core::Result<std::vector<float>> rounded_weights(const core::MatrixView& matrix,
                                                 WeightFormat format) {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(matrix.rows * matrix.columns));
  std::shared_ptr<const PackedMatrix> packed;
  if (gains(format, matrix.rows, matrix.columns)) {
    MITHRIL_ASSIGN(packed, PackedMatrix::pack(format, matrix));
  }
  for (int64_t i = 0; i < matrix.rows; ++i) {
    for (int64_t j = 0; j < matrix.columns; ++j) {
      out.push_back(packed ? packed->at(i, j)
                           : matrix.data[i * matrix.row_step + j * matrix.column_step]);
    }
  }
  return out;
}

core::Result<std::vector<Literal>> pack_literals(const ir::Graph& graph,
                                                 std::span<const Literal> literals,
                                                 WeightFormat format) {
  Weights weights(graph, format);
  std::vector<Literal> out;
  for (const Literal& literal : literals) {
    out.emplace_back();
    const std::optional<bool> transposed = weights.only_orientation(literal);
    if (!transposed) continue;
    MITHRIL_ASSIGN(auto matrix, weights.pack({literal, *transposed}));
    out.back() = literal_of(std::move(matrix), *transposed);
  }
  return out;
}

}  // namespace mithril::passes
