#include "ops/built.h"

#include <algorithm>

#include "backends/cpu/target.h"
#include "core/tensor_data.h"
#include "passes/pipeline.h"
#include "specialize/on_cpu.h"

namespace mithril::ir::test {

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

namespace {

DType element_type(const InputDef& input, const Sample& sample, DType floats) {
  if (contains(sample.integers, input.name)) return DType::kInt64;
  if (input.kinds.has(infer::ValueKind::kTensorFloat)) return floats;
  return input.kinds.has(infer::ValueKind::kTensorInt) ? DType::kInt64 : DType::kBool;
}

core::TensorData data_of(const Type& type, const Numbers& numbers) {
  core::TensorData out;
  out.dtype = type.dtype;
  out.shape = static_dims(type.shape);
  for (const double number : numbers) core::append_element(out, HostValue(number));
  return out;
}

}  // namespace

Built build(const OpDef& op, const Sample& sample, DType floats) {
  Built out;
  out.graph.name = op.name;
  out.graph.default_float = floats;
  out.graph.default_int = DType::kInt64;
  Builder b(out.graph);
  std::vector<Operand> operands;
  for (const InputDef& input : op.inputs) {
    size_t items = 0;
    for (const auto& [name, dims] : sample.shapes) {
      if (name != input.name) continue;
      Shape shape(dims.begin(), dims.end());
      const Type type = Type::tensor(element_type(input, sample, floats), std::move(shape));
      const std::string key = input.variadic ? name + std::to_string(items) : name;
      operands.emplace_back(b.input(key, type));
      if (core::is_float(type.dtype)) out.float_inputs.push_back(key);
      ++items;
    }
    if (items == 0 && !input.variadic) operands.emplace_back();
  }
  const std::vector<Value> results = b.call_all(op, std::move(operands), sample.attrs);
  out.status = b.take_status();
  if (!out.status.ok()) return out;
  for (size_t i = 0; i < results.size(); ++i) {
    b.output(op.outputs[i].name, results[i]);
    out.results.push_back(results[i].type());
  }
  return out;
}

std::string describe(const OpDef& op, size_t sample) {
  return op.name + ", sample " + std::to_string(sample);
}

core::Result<std::vector<Numbers>> evaluate(const Graph& graph,
                                            const std::vector<Numbers>& inputs) {
  SpecializationOptions options = on_cpu();
  options.passes.verify = true;
  MITHRIL_ASSIGN(Graph optimized, passes::optimize(graph, cpu::target(), options.passes));
  SpecializationCache program(std::move(optimized), options);
  std::vector<std::vector<int64_t>> sizes;
  std::vector<core::TensorData> data;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Type& type = graph.type(graph.inputs[i]);
    sizes.push_back(static_dims(type.shape));
    data.push_back(data_of(type, inputs[i]));
  }
  MITHRIL_ASSIGN(const auto made, program.specialize(sizes));
  std::vector<const void*> in;
  for (const core::TensorData& tensor : data) in.push_back(tensor.bytes.data());
  std::vector<core::TensorData> results;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const Type& type = graph.type(graph.outputs[i].value);
    size_t count = 1;
    for (const int64_t size : made->output_shapes[i]) count *= static_cast<size_t>(size);
    results.push_back(data_of(type, Numbers(count, 0.0)));
  }
  std::vector<void*> out;
  for (core::TensorData& tensor : results) out.push_back(tensor.bytes.data());
  MITHRIL_RETURN_IF_ERROR(made->executable->run(in, out));
  std::vector<Numbers> numbers;
  for (const core::TensorData& tensor : results) {
    Numbers& row = numbers.emplace_back();
    const size_t count = tensor.bytes.size() / core::size_of(tensor.dtype);
    for (size_t k = 0; k < count; ++k) row.push_back(core::element(tensor, k).as_number());
  }
  return numbers;
}

}  // namespace mithril::ir::test
