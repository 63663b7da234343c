#include "ops/index_plan.h"

#include <algorithm>
#include <numeric>

#include "core/slice.h"
#include "core/tensor_data.h"

namespace mithril::ops {

using infer::Dim;

namespace {

// --- reading an index ----------------------------------------------------------------------

/// One item of an index: a host value, or a tensor.
struct Item {
  HostValue host;
  Value tensor;
  bool is_new = false;  // an array that indexes an axis of size 1 of its own

  bool is_array() const { return static_cast<bool>(tensor) || host.is_sequence(); }
};

const HostValue& first_number(const HostValue& nested) {
  const HostValue* at = &nested;
  while (at->is_sequence() && !at->items().empty()) at = &at->items()[0];
  return *at;
}

bool is_mask(const HostValue& item) { return first_number(item).is_bool(); }

bool is_known(const ir::Graph& graph, ir::ValueId id) {
  const ir::ValueInfo& info = graph.value(id);
  return info.type.is_tensor ? core::is_integer(info.type.dtype) : info.host.has_value();
}

// An index that is a known value: a tuple has an item each, everything else is one.
HostValue::Tuple items_of(const HostValue& index) {
  if (index.is_sequence() && !index.is_list()) return index.items();
  return {index};
}

std::vector<Item> read_items(Builder& b, size_t first_operand) {
  std::vector<Item> out;
  if (b.node().attrs.find("index") != nullptr) {
    for (const HostValue& item : items_of(b.attr("index"))) out.push_back({item, {}});
    return out;
  }
  const std::vector<ir::ValueId> operands = b.node().operands;
  for (size_t i = first_operand; i < operands.size(); ++i) {
    const ir::ValueInfo& info = b.graph().value(operands[i]);
    if (info.type.is_tensor) {
      out.push_back({HostValue(), b.value(operands[i])});
    } else {
      out.push_back({info.host.value_or(HostValue()), {}});
    }
  }
  return out;
}

HostValue whole_axis() { return HostValue(core::Slice{}); }

// One item for each axis: behind the ellipsis and behind the last item are whole axes. The ellipsis
// stays, for it stands between arrays even where it is no axis.
std::vector<Item> for_each_axis(std::vector<Item> items, size_t rank) {
  size_t used = 0;
  bool open = true;
  for (const Item& item : items) {
    if (item.host.is_ellipsis()) {
      open = false;
    } else if (item.tensor || !item.host.is_none()) {
      used += item.is_new ? 0 : 1;
    }
  }
  if (open) items.push_back({HostValue(core::EllipsisValue{}), {}});
  std::vector<Item> out;
  for (const Item& item : items) {
    out.push_back(item);
    if (!item.host.is_ellipsis()) continue;
    for (size_t i = used; i < rank; ++i) out.push_back({whole_axis(), {}});
  }
  return out;
}

// The places where a mask is true: a list for each axis.
class TruePlaces {
 public:
  explicit TruePlaces(const HostValue& mask) { visit(mask); }
  const std::vector<HostValue::Tuple>& axes() const { return axes_; }

 private:
  // Depth is at most HostValue::kMaxDepth.
  void visit(const HostValue& mask) {
    if (!mask.is_sequence()) {
      if (!mask.is_bool() || !mask.as_bool()) return;
      for (size_t i = 0; i < at_.size(); ++i) axes_[i].emplace_back(at_[i]);
      return;
    }
    axes_.resize(std::max(axes_.size(), at_.size() + 1));
    for (size_t i = 0; i < mask.items().size(); ++i) {
      at_.push_back(static_cast<int64_t>(i));
      visit(mask.items()[i]);
      at_.pop_back();
    }
  }

  std::vector<int64_t> at_;
  std::vector<HostValue::Tuple> axes_;
};

// Masks as lists of the places where they are true. A bool is a mask of a new axis.
std::vector<Item> without_masks(const std::vector<Item>& items) {
  std::vector<Item> out;
  for (const Item& item : items) {
    if (item.tensor || !is_mask(item.host)) {
      out.push_back(item);
    } else if (!item.host.is_sequence()) {
      HostValue::Tuple places;
      if (item.host.as_bool()) places.emplace_back(0);
      out.push_back({HostValue::list(std::move(places)), {}, true});
    } else {
      const TruePlaces places(item.host);
      for (const HostValue::Tuple& axis : places.axes()) out.push_back({HostValue::list(axis), {}});
    }
  }
  return out;
}

Value as_array(Builder& b, const Item& item) {
  if (item.tensor) return cast(item.tensor, DType::kInt64);
  return b.constant(literal_of(item.host, DType::kInt64));
}

// --- several arrays as one -----------------------------------------------------------------

// Row-major place in the axes that the arrays index; beyond the last one where an array is out of
// bounds, so that reading it is an error.
// `sizes` is a copy: the types of a graph move while it grows.
Value row_index(Builder& b, const std::vector<Value>& arrays, Shape sizes) {
  if (arrays.size() == 1) return arrays[0];
  Value place, good;
  Dim product = 1;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Value size = size_constant(b, sizes[i]);
    const Value at = where(less(arrays[i], 0.0), arrays[i] + size, arrays[i]);
    const Value inside = logical_and(greater_equal(at, 0.0), less(at, size));
    good = good ? logical_and(good, inside) : inside;
    place = place ? place * size + at : at;
    product = b.graph().dims.mul(product, sizes[i]);
  }
  return where(good, place, size_constant(b, product));
}

/// Axes in another order, and how to get back.
struct Order {
  std::vector<int64_t> axes;

  Order inverse() const {
    Order out{std::vector<int64_t>(axes.size())};
    for (size_t i = 0; i < axes.size(); ++i) {
      out.axes[static_cast<size_t>(axes[i])] = static_cast<int64_t>(i);
    }
    return out;
  }
  Value apply(Value x) const {
    if (!x || std::is_sorted(axes.begin(), axes.end())) return x;
    return transpose(x, HostValue::ints(axes));
  }
};

// The indexed axes first.
Order indexed_first(const IndexPlan& plan, size_t rank) {
  Order out;
  for (const size_t axis : plan.axes) out.axes.push_back(static_cast<int64_t>(axis));
  for (size_t i = 0; i < rank; ++i) {
    const bool indexed = std::find(plan.axes.begin(), plan.axes.end(), i) != plan.axes.end();
    if (!indexed) out.axes.push_back(static_cast<int64_t>(i));
  }
  return out;
}

// From [array dims, other axes] to the order of the result.
Order into_place(size_t array_rank, size_t place, size_t rank) {
  Order out;
  const auto add = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) out.axes.push_back(static_cast<int64_t>(i));
  };
  add(array_rank, array_rank + place);
  add(0, array_rank);
  add(array_rank + place, rank);
  return out;
}

Value basic_part(Value x, const IndexPlan& plan) {
  return ir::apply("index", {x}, {{"index", HostValue::tuple(plan.basic)}});
}

Shape joined(Builder& b, const Shape& shape, size_t front) {
  Shape out{b.graph().dims.product(std::span(shape.data(), front))};
  out.insert(out.end(), shape.begin() + static_cast<ptrdiff_t>(front), shape.end());
  return out;
}

// --- the way back of views -----------------------------------------------------------------

bool is_whole(const core::Slice& s) {
  const auto is = [](const HostValue& v, int64_t n) { return v.is_none() || v == HostValue(n); };
  return is(s.start, 0) && s.stop.is_none() && is(s.step, 1);
}

Value on_axis(Value x, size_t axis, core::Slice slice) {
  HostValue::Tuple index(x.rank(), whole_axis());
  index[axis] = HostValue(std::move(slice));
  return ir::apply("index", {x}, {{"index", HostValue::tuple(std::move(index))}});
}

Value padded(Value x, HostValue::Tuple widths) {
  return ir::apply("pad", {x}, {{"pad_width", HostValue::tuple(std::move(widths))}});
}

// `step - 1` zeros behind each place of an axis.
Value stretched(Value x, size_t axis, int64_t step) {
  if (!x) return {};
  Shape shape = x.shape();
  HostValue::Tuple widths(x.rank() + 1, HostValue::ints({0, 0}));
  widths[axis + 1] = HostValue::ints({0, step - 1});
  const Value apart =
      padded(expand_dims(x, HostValue(static_cast<int64_t>(axis) + 1)), std::move(widths));
  shape[axis] = x.builder->graph().dims.mul(shape[axis], step);
  return reshape(apart, shape_value(shape));
}

HostValue pair(HostValue low, HostValue high) {
  return HostValue::tuple({std::move(low), std::move(high)});
}

// Puts v, the places that a slice takes of an axis of `size`, in their order without gaps; gives
// the zeros before and behind.
HostValue undo_slice(Value& v, size_t axis, core::SliceIndices range, int64_t size) {
  if (range.length == 0) return HostValue::ints({0, size});
  if (range.length == 1) range.step = 1;
  if (range.step < 0) {
    v = on_axis(v, axis, {HostValue(), HostValue(), HostValue(-1)});
    range.start += (range.length - 1) * range.step;
    range.step = -range.step;
  }
  int64_t length = range.length;
  if (range.step > 1) {
    v = stretched(v, axis, range.step);
    length *= range.step;
    if (length > size - range.start) {
      length = size - range.start;
      v = on_axis(v, axis, {HostValue(0), HostValue(length), HostValue()});
    }
  }
  return HostValue::ints({range.start, size - range.start - length});
}

// Axes of x as v has them: an axis that an int took has size 1, new axes are gone.
Value with_axes_of_input(Value v, const HostValue::Tuple& basic) {
  Shape shape;
  size_t axis = 0;
  for (const HostValue& item : basic) {
    if (item.is_int()) {
      shape.emplace_back(1);
    } else if (item.is_none()) {
      ++axis;
    } else {
      shape.push_back(v.shape()[axis++]);
    }
  }
  return shape == v.shape() ? v : reshape(v, shape_value(shape));
}

Value undo_basic(Value v, const Value& x, const HostValue::Tuple& basic) {
  if (!v) return {};
  infer::DimTable& dims = x.builder->graph().dims;
  v = with_axes_of_input(v, basic);
  HostValue::Tuple widths;
  bool any = false;
  for (const HostValue& item : basic) {
    if (item.is_none()) continue;
    const size_t axis = widths.size();
    const Dim size = x.shape()[axis];
    if (item.is_slice() && is_whole(item.as_slice())) {
      widths.push_back(HostValue::ints({0, 0}));
      continue;
    }
    any = true;
    if (item.is_int()) {
      const int64_t at = item.as_int();
      const Dim low = at < 0 ? dims.sub(size, Dim(-at)) : Dim(at);
      const Dim high = dims.sub(dims.sub(size, low), 1);
      widths.push_back(pair(size_value(low), size_value(high)));
    } else if (size.known()) {
      const auto taken = core::slice_indices(item.as_slice(), size.value());
      widths.push_back(undo_slice(v, axis, taken, size.value()));
    } else {
      unsupported(*x.builder, "index: the gradient of a slice needs a known size");
      return {};
    }
  }
  return any ? padded(v, std::move(widths)) : v;
}

}  // namespace

bool has_arrays(const ir::Graph& graph, const ir::Node& node, size_t first_operand) {
  if (const HostValue* index = node.attrs.find("index")) {
    const HostValue::Tuple items = items_of(*index);
    return std::any_of(items.begin(), items.end(),
                       [](const HostValue& i) { return i.is_sequence() || i.is_bool(); });
  }
  return node.operands.size() > first_operand &&
         std::all_of(node.operands.begin() + static_cast<ptrdiff_t>(first_operand),
                     node.operands.end(), [&](ir::ValueId id) { return is_known(graph, id); });
}

std::optional<IndexPlan> plan_index(Builder& b, const Value& x, size_t first_operand) {
  const std::vector<Item> items =
      for_each_axis(without_masks(read_items(b, first_operand)), x.rank());
  const bool arrays =
      std::any_of(items.begin(), items.end(), [](const Item& i) { return i.is_array(); });
  IndexPlan out;
  bool apart = false;
  bool behind = false;  // something stands behind the first array already
  size_t axis = 0;
  for (const Item& item : items) {
    const bool advanced = item.is_array() || (arrays && item.host.is_int());
    if (!advanced) {
      behind = !out.arrays.empty();
      if (item.host.is_ellipsis()) continue;
      out.basic.push_back(item.host);
      if (!item.host.is_int()) ++axis;
      continue;
    }
    if (out.arrays.empty()) out.place = axis;
    apart = apart || behind;
    out.arrays.push_back(as_array(b, item));
    out.axes.push_back(axis++);
    out.basic.push_back(item.is_new ? HostValue() : whole_axis());
  }
  if (apart) out.place = 0;
  if (!b.status().ok()) return std::nullopt;
  return out;
}

Value select(Value x, const IndexPlan& plan) {
  Value y = basic_part(x, plan);
  if (!y || plan.arrays.empty()) return y;
  Builder& b = *y.builder;
  y = indexed_first(plan, y.rank()).apply(y);
  const Value at = row_index(b, plan.arrays, y.shape());
  if (plan.arrays.size() > 1) y = reshape(y, shape_value(joined(b, y.shape(), plan.arrays.size())));
  const Value rows = ir::apply("gather", {y, at});
  if (!rows) return {};
  return into_place(at.rank(), plan.place, rows.rank()).apply(rows);
}

Value spread(Value v, Value x, const IndexPlan& plan) {
  const Value y = basic_part(x, plan);  // for its shape: nothing reads it
  if (!y || !v) return {};
  Builder& b = *y.builder;
  if (plan.arrays.empty()) return undo_basic(broadcast_like(v, y), x, plan.basic);
  const Order first = indexed_first(plan, y.rank());
  Shape front_first;
  for (const int64_t axis : first.axes) front_first.push_back(y.shape()[static_cast<size_t>(axis)]);
  const Value at = row_index(b, plan.arrays, front_first);
  if (!at) return {};
  const Shape table = joined(b, front_first, plan.arrays.size());
  Shape rows = at.shape();
  rows.insert(rows.end(), table.begin() + 1, table.end());
  const Order order = into_place(at.rank(), plan.place, rows.size());
  Shape selected;
  for (const int64_t axis : order.axes) selected.push_back(rows[static_cast<size_t>(axis)]);
  if (v.shape() != selected) {
    v = ir::apply("broadcast_to", {v}, {{"shape", shape_value(selected)}});
  }
  const Value sums =
      ir::apply("embedding_grad", {order.inverse().apply(v), at}, {{"shape", shape_value(table)}});
  if (!sums) return {};
  const Value back = sums.shape() == front_first ? sums : reshape(sums, shape_value(front_first));
  return undo_basic(first.inverse().apply(back), x, plan.basic);
}

namespace {

// Depth is at most HostValue::kMaxDepth.
bool append(core::TensorData& data, const HostValue& nested, size_t depth) {
  if (!nested.is_sequence()) {
    const bool number = nested.is_bool() || nested.is_int() || nested.is_double();
    if (!number || depth != data.shape.size()) return false;
    core::append_element(data, nested);
    return true;
  }
  const auto size = static_cast<int64_t>(nested.items().size());
  if (depth >= data.shape.size() || data.shape[depth] != size) return false;
  return std::all_of(nested.items().begin(), nested.items().end(),
                     [&](const HostValue& item) { return append(data, item, depth + 1); });
}

}  // namespace

std::shared_ptr<const core::TensorData> literal_of(const HostValue& nested, DType dtype) {
  core::TensorData data;
  data.dtype = dtype;
  for (const HostValue* at = &nested; at->is_sequence(); at = &at->items()[0]) {
    data.shape.push_back(static_cast<int64_t>(at->items().size()));
    if (at->items().empty()) break;
  }
  if (!append(data, nested, 0)) return nullptr;
  return std::make_shared<const core::TensorData>(std::move(data));
}

}  // namespace mithril::ops
