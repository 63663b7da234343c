#include "select/attention_sizes.h"

#include <cmath>
#include <utility>

#include "select/views.h"

namespace mithril::select {

using core::DType;

namespace {

const core::HostValue* find_attr(const KernelRequest& request, std::string_view name) {
  const core::HostValue* value = request.node.attrs.find(name);
  return value == nullptr || value->is_none() ? nullptr : value;
}

bool is_set(const KernelRequest& request, std::string_view name) {
  const core::HostValue* value = find_attr(request, name);
  return value != nullptr && value->is_bool() && value->as_bool();
}

int64_t shared_heads(const KernelRequest& request) {
  const auto &query = request.inputs[kQuery].shape, &key = request.inputs[kKey].shape;
  if (!is_set(request, "enable_gqa") || query.size() < 3) return 1;
  return query[query.size() - 3] / key[key.size() - 3];
}

// `of_queries`: the last axis of the batch is that of the query heads.
AttentionSteps steps_of(const Operand& operand, const std::vector<int64_t>& domain, bool of_queries,
                        int64_t heads) {
  std::vector<int64_t> all = broadcast_strides(operand.shape, operand.strides, domain);
  AttentionSteps out;
  out.col = all.back();
  all.pop_back();
  out.row = all.back();
  all.pop_back();
  if (of_queries && !all.empty()) {
    out.head = all.back();
    all.back() *= heads;
  }
  out.batch = std::move(all);
  return out;
}

bool is_present(const KernelRequest& request, AttentionInput input) {
  return request.inputs.size() > input && request.inputs[input].present();
}

// A number of each query as a row of one.
Operand with_column(Operand operand) {
  operand.shape.push_back(1);
  operand.strides.push_back(1);
  return operand;
}

}  // namespace

AttentionSizes attention_sizes(const KernelRequest& request) {
  AttentionSizes out;
  const Operand &query = request.inputs[kQuery], &key = request.inputs[kKey];
  const Operand& value = request.inputs[kValue];
  const size_t rank = query.shape.size();
  out.heads = shared_heads(request);
  out.queries = query.shape[rank - 2];
  out.depth = query.shape[rank - 1];
  out.keys = key.shape[key.shape.size() - 2];
  out.width = value.shape.back();
  out.batch.assign(query.shape.begin(), query.shape.end() - 2);
  const auto domain = [&](int64_t rows, int64_t cols) {
    std::vector<int64_t> sizes = out.batch;
    sizes.insert(sizes.end(), {rows, cols});
    return sizes;
  };
  const std::vector<int64_t> of_scores = domain(out.queries, out.keys);
  out.steps[kQuery] = steps_of(query, query.shape, true, out.heads);
  if (!out.batch.empty()) out.batch.back() /= out.heads;
  out.steps[kKey] = steps_of(key, domain(out.keys, out.depth), false, out.heads);
  out.steps[kValue] = steps_of(value, domain(out.keys, out.width), false, out.heads);
  for (const AttentionInput input : {kMask, kBias}) {
    if (!is_present(request, input)) continue;
    out.steps[input] = steps_of(request.inputs[input], of_scores, true, out.heads);
  }
  for (const AttentionInput input : {kOutput, kLogsumexp, kOutputGradient}) {
    if (!is_present(request, input)) continue;
    const Operand& given = request.inputs[input];
    const Operand rows = input == kLogsumexp ? with_column(given) : given;
    out.steps[input] = steps_of(rows, rows.shape, true, out.heads);
  }
  for (size_t i = 0, next = 0; i < request.inputs.size(); ++i) {
    if (request.inputs[i].present()) out.buffer[i] = static_cast<int>(next++);
  }
  out.is_causal = is_set(request, "is_causal");
  out.mask_is_bool = out.has(kMask) && request.inputs[kMask].dtype == DType::kBool;
  out.offset_is_wide = out.has(kOffset) && request.inputs[kOffset].dtype == DType::kInt64;
  const core::HostValue* offset = find_attr(request, "offset");
  out.offset = offset == nullptr ? 0 : offset->as_int();
  const core::HostValue* scale = find_attr(request, "scale");
  out.scale =
      scale == nullptr ? 1.0 / std::sqrt(static_cast<double>(out.depth)) : scale->as_number();
  return out;
}

}  // namespace mithril::select
