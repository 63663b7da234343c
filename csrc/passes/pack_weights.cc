#include "passes/pack_weights.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/registry.h"
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
  const auto axis_of = [&](const char* name) { return node.attrs.find(name)->as_int() & 1; };
  if (name_of(node) == "swapaxes") return axis_of("axis1") != axis_of("axis2");
  if (name_of(node) != "transpose") return false;
  const HostValue* axes = node.attrs.find("axes");
  return axes == nullptr || !axes->is_sequence() || (axes->items()[0].as_int() & 1) != 0;
}

// A product of two values; a square of one stays as it is.
bool is_product(const Node& node) {
  return name_of(node) == "matmul" && node.operands[0] != node.operands[1];
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

  /// Of the right operand of a product.
  const Origin* right(const Node& node) const {
    if (!is_product(node)) return nullptr;
    const Origin& origin = origin_[static_cast<size_t>(node.operands[1])];
    return origin.literal == nullptr ? nullptr : &origin;
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
    if (name_of(node) != "constant") return nullptr;
    const HostValue* value = node.attrs.find("value");
    if (value == nullptr || !value->is_tensor()) return nullptr;
    const Literal& literal = value->as_tensor();
    const bool is_matrix = literal->dtype == core::DType::kFloat32 && literal->shape.size() == 2 &&
                           graph_.type(node.results[0]).dtype == core::DType::kFloat32;
    return is_matrix && gains(literal->shape[0], literal->shape[1]) ? literal : nullptr;
  }

  // In either orientation.
  bool gains(int64_t rows, int64_t columns) const {
    const int64_t dense = rows * columns * static_cast<int64_t>(sizeof(float));
    const auto takes_less = [&](std::optional<int64_t> bytes) { return bytes && *bytes < dense; };
    return takes_less(PackedMatrix::bytes(format_, rows, columns)) &&
           takes_less(PackedMatrix::bytes(format_, columns, rows));
  }

  void add(const Node& node) {
    if (Literal literal = packable(node)) {
      origin_[static_cast<size_t>(node.results[0])] = {std::move(literal), false};
      return;
    }
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const ValueId id = node.operands[i];
      if (id == kNoValue || origin_[static_cast<size_t>(id)].literal == nullptr) continue;
      Origin origin = origin_[static_cast<size_t>(id)];
      if (is_transpose(node)) {
        origin.transposed = !origin.transposed;
        origin_[static_cast<size_t>(node.results[0])] = std::move(origin);
      } else if (i == 1 && is_product(node)) {
        readers_[origin.literal.get()].products[origin.transposed ? 1 : 0] = true;
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

}  // namespace

core::Result<ir::Graph> pack_weights(const ir::Graph& graph, WeightFormat format) {
  Weights weights(graph, format);
  Rewriter rewriter(graph);
  std::map<const PackedMatrix*, ir::Value> constants;
  for (const Node& node : graph.nodes) {
    const Origin* origin = weights.right(node);
    if (origin == nullptr) {
      rewriter.copy(node);
      continue;
    }
    MITHRIL_ASSIGN(auto matrix, weights.pack(*origin));
    ir::Value& constant = constants[matrix.get()];
    if (!constant) {
      rewriter.builder().set_location(node.location);
      constant = rewriter.builder().constant(literal_of(matrix, false));
    }
    const ValueId right = node.operands[1];
    const ir::Value others = rewriter.mapped(right);
    rewriter.map(right, constant);
    rewriter.copy(node);
    rewriter.map(right, others);
  }
  MITHRIL_ASSIGN(const ir::Graph packed, rewriter.finish());
  return remove_dead(packed);
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
