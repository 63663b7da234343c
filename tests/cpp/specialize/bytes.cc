#include "specialize/bytes.h"

#include <cstring>
#include <random>

#include "core/tensor_data.h"

namespace mithril::test {

using core::DType;

size_t bytes_of(const ir::Type& type, const std::vector<int64_t>& shape) {
  size_t out = core::size_of(type.dtype);
  for (const int64_t size : shape) out *= static_cast<size_t>(size);
  return out;
}

Bytes random_bytes(const ir::Type& type, const std::vector<int64_t>& shape, unsigned seed) {
  core::TensorData data;
  data.dtype = type.dtype;
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(core::is_float(type.dtype) ? -2.0 : 0.0, 2.0);
  const size_t count = bytes_of(type, shape) / core::size_of(type.dtype);
  for (size_t i = 0; i < count; ++i) {
    const double number = uniform(generator);
    core::append_element(data, core::is_float(type.dtype)
                                   ? core::HostValue(number)
                                   : core::HostValue(static_cast<int64_t>(number)));
  }
  return data.bytes;
}

namespace {

template <class T>
bool is_same(const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return false;
  for (size_t at = 0; at + sizeof(T) <= a.size(); at += sizeof(T)) {
    T x, y;
    std::memcpy(&x, a.data() + at, sizeof(T));
    std::memcpy(&y, b.data() + at, sizeof(T));
    if (std::memcmp(&x, &y, sizeof(T)) != 0 && (x == x || y == y)) return false;
  }
  return true;
}

}  // namespace

bool is_same(DType dtype, const Bytes& a, const Bytes& b) {
  if (dtype == DType::kFloat32) return is_same<float>(a, b);
  return dtype == DType::kFloat64 ? is_same<double>(a, b) : a == b;
}

Sizes sizes_of(const ir::Graph& graph) {
  Sizes out;
  for (const ir::ValueId input : graph.inputs) {
    out.push_back(ir::static_dims(graph.type(input).shape));
  }
  return out;
}

std::vector<Bytes> random_inputs(const ir::Graph& graph, const Sizes& sizes) {
  std::vector<Bytes> out;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    out.push_back(random_bytes(graph.type(graph.inputs[i]), sizes[i], static_cast<unsigned>(i)));
  }
  return out;
}

core::Result<std::vector<Bytes>> run(const ir::Graph& graph, const Specialization& made,
                                     const std::vector<Bytes>& inputs,
                                     const runtime::RunControl& control) {
  std::vector<Bytes> out;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    out.emplace_back(bytes_of(graph.type(graph.outputs[i].value), made.output_shapes[i]));
  }
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Bytes& bytes : inputs) from.push_back(bytes.data());
  for (Bytes& bytes : out) to.push_back(bytes.data());
  MITHRIL_RETURN_IF_ERROR(made.executable->run(from, to, control));
  return out;
}

}  // namespace mithril::test
