// Rules run forward over a scratch store: what ir::infer_types calls for each node.
#include "infer/rule.h"
#include "infer/store.h"

namespace mithril::infer {

using core::HostValue;

Forward::Forward() : store_(std::make_unique<Store>()) {}
Forward::~Forward() = default;
Forward::Forward(Forward&&) noexcept = default;
Forward& Forward::operator=(Forward&&) noexcept = default;

namespace {

/// A port's cell; lists of ports become items. Lists nest one level: operands are flat.
uint32_t bind(Store& s, const Port& port) {
  const uint32_t cell = s.new_cell(port.kinds);
  if (port.value != nullptr) s.set_value(cell, *port.value);
  if (port.is_tensor) {
    Dims dims;
    for (const Dim dim : port.shape) dims.prefix.push_back(s.new_dim_of(dim));
    s.narrow(cell, kTensor);
    s.constrain(s.shape(cell), dims);
  }
  if (port.is_list) {
    DimList items;
    for (const Port& item : port.items) {
      const uint32_t id = s.new_cell(item.kinds);
      if (item.value != nullptr) s.set_value(id, *item.value);
      if (item.is_tensor) {
        Dims dims;
        for (const Dim dim : item.shape) dims.prefix.push_back(s.new_dim_of(dim));
        s.narrow(id, kTensor);
        s.constrain(s.shape(id), dims);
      }
      items.push_back(id);
    }
    s.set_items(cell, items, true);
  }
  return cell;
}

core::Status read(Store& s, uint32_t cell, std::string_view name, int depth, Inferred& out) {
  out.kinds = s.kinds(cell);
  out.is_tensor = out.kinds.is_tensor();
  out.shape.clear();
  out.value.reset();
  if (out.is_tensor) {
    out.items.clear();
    const uint32_t shape = s.shape(cell);
    if (!s.rank(shape)) {
      return core::fail(core::ErrorKind::kShape, core::Code::kShapeUnknown,
                        "the number of dimensions of '{}' is not known", name);
    }
    for (const uint32_t d : s.fixed_dims(shape)) {
      auto e = s.expression(d);
      if (!e) {
        e = s.table().fresh();
        s.define(d, *e);
      }
      out.shape.push_back(*e);
    }
    return {};
  }
  out.value = s.value(cell);
  const auto items = out.value || depth > HostValue::kMaxDepth ? std::nullopt : s.items(cell);
  out.items.resize(items ? items->size() : 0);
  for (size_t i = 0; items && i < items->size(); ++i) {
    MITHRIL_RETURN_IF_ERROR(read(s, (*items)[i], name, depth + 1, out.items[i]));
  }
  return {};
}

}  // namespace

core::Status Forward::run(std::string_view op, const Rule& rule, std::span<const Port> inputs,
                          std::span<const std::string_view> outputs, DimTable& table,
                          std::vector<Inferred>& results) {
  Store& s = *store_;
  s.start_forward(table);
  SmallVector<uint32_t, 8> cells;
  const auto count = inputs.size() + outputs.size();
  s.rules_.push_back({op, kNone, 0, static_cast<uint32_t>(count), s.new_scope()});
  for (const Port& port : inputs) {
    const uint32_t cell = bind(s, port);
    s.bindings_.push_back({port.name, CellId{cell}, nullptr});
  }
  for (const std::string_view name : outputs) {
    cells.push_back(s.new_cell(kAny));
    s.bindings_.push_back({name, CellId{cells.back()}, nullptr});
  }
  s.error_at_rule_ = 0;
  if (s.failed_) return s.take_error();
  RuleBuilder builder(s, RuleId{0});
  rule(builder);
  if (s.failed_ || !s.settle_shapes() || !s.run_forward()) {
    s.failed_ = true;
    s.error_at_rule_ = 0;
    return s.take_error();
  }
  results.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    core::Status status = read(s, cells[i], outputs[i], 0, results[i]);
    if (!status.ok()) {
      status.error().message = std::string(op) + ": " + status.error().message;
      return status;
    }
  }
  return {};
}

core::Status infer_forward(std::string_view op, const Rule& rule, std::span<const Port> inputs,
                           std::span<const std::string_view> outputs, DimTable& table,
                           std::vector<Inferred>& results) {
  thread_local Forward scratch;
  return scratch.run(op, rule, inputs, outputs, table, results);
}

}  // namespace mithril::infer
