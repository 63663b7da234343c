// Windows that slide over axes: convolution, pooling, padding.
#include "core/checked.h"
#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

using core::HostValue;

/// Kernels add and multiply places of windows with strides of tensors: below this nothing wraps.
constexpr int64_t kMostOfWindow = int64_t{1} << 40;

Outcome too_large(Store& s, std::string_view name, int64_t got) {
  return s.conflict(core::Code::kValueArgument, "{} must be at most 2^40, got {}", name, got);
}

Outcome run_window(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0), in = s.arg(p, 1);
  const auto kernel = s.expression(s.arg(p, 2));
  const auto stride = s.size(s.arg(p, 3));
  const auto low = s.expression(s.arg(p, 4)), high = s.expression(s.arg(p, 5));
  const auto dilation = s.size(s.arg(p, 6));
  if (stride && *stride <= 0) {
    return s.conflict(core::Code::kValueArgument, "stride must be positive, got {}", *stride);
  }
  if (dilation && *dilation <= 0) {
    return s.conflict(core::Code::kValueArgument, "dilation must be positive, got {}", *dilation);
  }
  DimTable& t = s.table();
  for (const auto& [name, number] :
       {std::pair("stride", stride), std::pair("dilation", dilation)}) {
    if (number && *number > kMostOfWindow) return too_large(s, name, *number);
  }
  for (const auto& [name, size] :
       {std::pair("a window", kernel), std::pair("padding", low), std::pair("padding", high)}) {
    const auto number = size ? t.constant_of(*size) : std::nullopt;
    if (number && *number > kMostOfWindow) return too_large(s, name, *number);
  }
  const auto least = [&](const std::optional<Dim>& size, int64_t bound) {
    const auto number = size ? t.constant_of(*size) : std::nullopt;
    return !number || *number >= bound;
  };
  if (!least(kernel, 1)) {
    return s.conflict(core::Code::kValueArgument, "a window must be larger than 0, got {}",
                      t.print(*kernel));
  }
  if (!least(low, 0) || !least(high, 0)) {
    return s.conflict(core::Code::kValueArgument, "padding must not be negative, got {}",
                      t.print(least(low, 0) ? *high : *low));
  }
  if (!kernel || !stride || !low || !high || !dilation) return Outcome::kWait;
  if (const auto taps = t.constant_of(*kernel)) {
    const auto reach = core::checked_mul(*taps - 1, *dilation);
    if (!reach || *reach > kMostOfWindow) {
      return too_large(s, "the reach of a window", reach.value_or(INT64_MAX));
    }
  }
  const Dim reach = t.mul(t.sub(*kernel, Dim(1)), Dim(*dilation));
  const Dim padding = t.sub(t.add(*low, *high), t.add(reach, Dim(1)));  // in + padding = last start
  const auto e = s.expression(in);
  if (!e) {  // forward never needs the inverse but where it is unique
    const auto o = s.expression(out);
    if (!o || *stride != 1) return Outcome::kWait;
    return s.define(in, t.sub(t.sub(*o, Dim(1)), padding)) ? Outcome::kDone : Outcome::kConflict;
  }
  const Dim last = t.add(*e, padding);
  if (const auto known = t.constant_of(last); known && *known < 0) {
    return s.conflict(
        core::Code::kShapeConflict, "a window of {} does not fit, got size {} and padding {}, {}",
        t.print(t.add(reach, Dim(1))), s.print_dim(in), t.print(*low), t.print(*high));
  }
  const Dim size = t.add(t.floor_div(last, Dim(*stride)), Dim(1));
  if (!s.define(out, size) || s.failed()) {
    s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                               "a window of {} with stride {} over size {} does not give size {}",
                               t.print(*kernel), *stride, s.print_dim(in), s.print_dim(out)));
    return Outcome::kConflict;
  }
  if (s.forward()) return Outcome::kDone;
  const bool all = s.is_known(out) && s.is_known(in) && kernel->known();
  return all ? Outcome::kDone : Outcome::kWait;
}

/// each = value for every axis: value is an int, or a tuple with one int an axis.
Outcome run_spread(Store& s, const Propagator& p) {
  const uint32_t value = s.arg(p, 0);
  const uint32_t axes = p.count - 1u;
  if (s.kinds(value) == kNoneKind && p.data != 0) return Outcome::kDone;
  if (s.kinds(value) == kScalarInt) {
    for (uint32_t i = 0; i < axes; ++i) {
      if (!s.set_int(s.arg(p, i + 1), s.int_dim(value))) return Outcome::kConflict;
    }
    return Outcome::kDone;
  }
  const auto fail = [&] {
    return s.conflict(core::Code::kValueArgument, "expected an int or {} ints, got {}", axes,
                      s.describe(p.rule, value));
  };
  if (!s.kinds(value).meets(kScalarInt | kSequence | (p.data != 0 ? kNoneKind : kScalarInt))) {
    return fail();
  }
  const auto items = s.items(value);
  if (!items) return Outcome::kWait;
  if (items->size() != axes) return fail();
  for (uint32_t i = 0; i < axes; ++i) {
    if (!s.unify_cells(s.arg(p, i + 1), (*items)[i])) return Outcome::kConflict;
  }
  return Outcome::kDone;
}

/// stride none: each = kernel.
Outcome run_default_stride(Store& s, const Propagator& p) {
  const uint32_t stride = s.arg(p, 0);
  if (!s.kinds(stride).meets(kNoneKind)) return Outcome::kDone;
  if (s.kinds(stride) != kNoneKind) return Outcome::kWait;
  const uint32_t axes = (p.count - 1u) / 2;
  for (uint32_t i = 0; i < axes; ++i) {
    if (!s.unify_cells(s.arg(p, 1 + i), s.arg(p, 1 + axes + i))) return Outcome::kConflict;
  }
  return Outcome::kDone;
}

/// args: padding, then per axis low, high, kernel, dilation.
Outcome run_padding(Store& s, const Propagator& p) {
  const uint32_t padding = s.arg(p, 0);
  const uint32_t axes = (p.count - 1u) / 4;
  const auto low = [&](uint32_t i) { return s.arg(p, 1 + 4 * i); };
  const auto high = [&](uint32_t i) { return s.arg(p, 2 + 4 * i); };
  const auto fail = [&] {
    return s.conflict(core::Code::kValueArgument,
                      "padding must be an int, a pair, pairs, 'same' or 'valid', got {}",
                      s.describe(p.rule, padding));
  };
  if (s.kinds(padding) == kScalarInt) {
    for (uint32_t i = 0; i < axes; ++i) {
      if (!s.set_int(low(i), s.int_dim(padding)) || !s.set_int(high(i), s.int_dim(padding))) {
        return fail();
      }
    }
    return Outcome::kDone;
  }
  const auto value = s.known_value(padding);
  if (value && value->is_string()) {
    std::string text = value->as_string();
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (text != "same" && text != "valid") return fail();
    for (uint32_t i = 0; i < axes; ++i) {
      int64_t total = 0;
      if (text == "same") {
        const auto kernel = s.known_value(s.arg(p, 3 + 4 * i));
        const auto dilation = s.known_value(s.arg(p, 4 + 4 * i));
        if (!kernel || !dilation || !kernel->is_int() || !dilation->is_int()) return Outcome::kWait;
        const auto reach = core::checked_mul(kernel->as_int() - 1, dilation->as_int());
        if (!reach || *reach < 0) return fail();
        total = *reach;
      }
      if (!s.set_value(low(i), HostValue(total / 2)) ||
          !s.set_value(high(i), HostValue(total - total / 2))) {
        return fail();
      }
    }
    return Outcome::kDone;
  }
  const auto items = s.items(padding);
  if (!items) return Outcome::kWait;
  // One axis: (low, high). Two: (a, b), the same on both sides of each; or ((l, h), (l, h)).
  if (items->size() == 2 && axes == 1) {
    const bool ok = s.unify_cells(low(0), (*items)[0]) && s.unify_cells(high(0), (*items)[1]);
    return ok ? Outcome::kDone : fail();
  }
  if (items->size() != axes) return fail();
  bool waits = false;
  for (uint32_t i = 0; i < axes; ++i) {
    const uint32_t item = (*items)[i];
    if (s.kinds(item) == kScalarInt) {
      if (!s.unify_cells(low(i), item) || !s.unify_cells(high(i), item)) return fail();
    } else if (const auto pair = s.items(item)) {
      if (pair->size() != 2 || !s.unify_cells(low(i), (*pair)[0]) ||
          !s.unify_cells(high(i), (*pair)[1])) {
        return fail();
      }
    } else {
      waits = true;
    }
  }
  return waits ? Outcome::kWait : Outcome::kDone;
}

Outcome run_pad(Store& s, const Propagator& p) {
  const uint32_t out_cell = s.arg(p, 0), in_cell = s.arg(p, 1), width = s.arg(p, 2);
  const auto fail = [&] {
    s.replace_error(core::fail(core::ErrorKind::kShape, core::Code::kShapeConflict,
                               "output must be the input with pad_width added, got {}, {} and {}",
                               s.describe(p.rule, in_cell), s.describe(p.rule, width),
                               s.describe(p.rule, out_cell)));
    return Outcome::kConflict;
  };
  const uint32_t in = s.shape(in_cell), out = s.shape(out_cell);
  if (!s.narrow_ranks(in, s.ranks(out)) || !s.narrow_ranks(out, s.ranks(in))) return fail();
  const auto items = s.items(width);
  if (!items) return Outcome::kWait;
  const bool one_pair = items->size() == 2 && s.kinds((*items)[0]).is_scalar();
  if (!one_pair && (!s.set_rank(in, items->size()) || !s.set_rank(out, items->size()))) {
    return fail();
  }
  const bool pair_is_last = one_pair && p.data != 0;
  if (pair_is_last && !s.narrow_ranks(in, ranks_from(1))) return fail();
  if (!s.rank(in) || !s.rank(out)) return Outcome::kWait;
  const DimList from = s.fixed_dims(in), to = s.fixed_dims(out);
  bool settled = true;
  for (size_t i = 0; i < from.size(); ++i) {
    if (pair_is_last && i + 1 < from.size()) {
      if (!s.unify_dims(from[i], to[i])) return fail();
      continue;
    }
    const auto pair = one_pair ? items : s.items((*items)[i]);
    if (!pair) {
      settled = false;
      continue;
    }
    if (pair->size() != 2) return fail();
    Dim total;
    bool known = true;
    const auto e = s.expression(from[i]);
    if (e) total = *e;
    Dim added(0);
    for (const uint32_t side : *pair) {
      if (!s.narrow(side, kScalarInt)) return fail();
      const auto amount = s.expression(s.int_dim(side));
      if (!amount) {
        known = false;
        break;
      }
      if (const auto n = s.table().constant_of(*amount); n && *n < 0) {
        return s.conflict(core::Code::kValueArgument, "pad_width must not be negative, got {}",
                          s.describe(p.rule, width));
      }
      added = s.table().add(added, *amount);
    }
    if (!known) return Outcome::kWait;
    if (e) {
      if (!s.define(to[i], s.table().add(total, added)) || s.failed()) return fail();
    } else {
      const auto o = s.expression(to[i]);
      if (!o) return Outcome::kWait;
      if (!s.define(from[i], s.table().sub(*o, added))) return fail();
    }
    settled = settled && s.is_known(from[i]) && s.is_known(to[i]) && added.known();
  }
  return settled || s.forward() ? Outcome::kDone : Outcome::kWait;
}

}  // namespace

void RuleBuilder::conv_dim(DimTerm out, DimTerm in, const Window& w) {
  store_->post(rule_.index, run_window,
               {out.id.index, in.id.index, w.kernel.id.index, w.stride.id.index,
                w.padding_low.id.index, w.padding_high.id.index, w.dilation.id.index},
               true);
}

DimTerm RuleBuilder::window(DimTerm in, const Window& w) {
  const DimTerm out{this, DimId{store_->new_dim()}};
  conv_dim(out, in, w);
  return out;
}

void RuleBuilder::windows(std::span<const DimTerm> out, std::span<const DimTerm> in,
                          std::span<const DimTerm> kernel, Term stride, Term padding,
                          Term dilation) {
  const size_t axes = out.size();
  DimList strides = {stride.cell.index}, dilations = {dilation.cell.index},
          paddings = {padding.cell.index}, defaults = {stride.cell.index};
  std::vector<Window> windows;
  for (size_t i = 0; i < axes; ++i) {
    const Term k = fresh(kScalarInt), st = fresh(kScalarInt), d = fresh(kScalarInt);
    const Term low = fresh(kScalarInt), high = fresh(kScalarInt);
    store_->set_int(k.cell.index, kernel[i].id.index);
    strides.push_back(st.cell.index);
    dilations.push_back(d.cell.index);
    for (const Term& t : {low, high, k, d}) paddings.push_back(t.cell.index);
    windows.push_back({kernel[i], dim(st), dim(low), dim(high), dim(d)});
  }
  for (size_t i = 0; i < axes; ++i) defaults.push_back(strides[i + 1]);
  for (size_t i = 0; i < axes; ++i) defaults.push_back(paddings[3 + 4 * i]);
  store_->post(rule_.index, run_spread, strides, false, 1);
  store_->post(rule_.index, run_default_stride, defaults);
  store_->post(rule_.index, run_spread, dilations);
  store_->post(rule_.index, run_padding, paddings);
  for (size_t i = 0; i < axes; ++i) conv_dim(out[i], in[i], windows[i]);
}

void RuleBuilder::pool(Term out, Term in, int rank, Term kernel, Term stride, Term padding,
                       Term dilation) {
  // "... h w": what is in front of the pooled axes is kept.
  constexpr std::string_view kIn[] = {"pool_in_0", "pool_in_1", "pool_in_2"};
  constexpr std::string_view kOut[] = {"pool_out_0", "pool_out_1", "pool_out_2"};
  constexpr std::string_view kTemplates[2][3] = {
      {"...pool pool_in_0", "...pool pool_in_0 pool_in_1", "...pool pool_in_0 pool_in_1 pool_in_2"},
      {"...pool pool_out_0", "...pool pool_out_0 pool_out_1",
       "...pool pool_out_0 pool_out_1 pool_out_2"}};
  MITHRIL_CHECK(rank >= 1 && rank <= 3, "pool: rank {}", rank);
  shape(in, kTemplates[0][rank - 1]);
  shape(out, kTemplates[1][rank - 1]);
  std::vector<DimTerm> from, to, kernels;
  DimList kernel_cells = {kernel.cell.index};
  for (int i = 0; i < rank; ++i) {
    from.push_back(dim(kIn[i]));
    to.push_back(dim(kOut[i]));
    const Term k = fresh(kScalarInt);
    kernel_cells.push_back(k.cell.index);
    kernels.push_back(dim(k));
  }
  store_->post(rule_.index, run_spread, kernel_cells);
  windows(to, from, kernels, stride, padding, dilation);
}

void RuleBuilder::conv(Term out, Term in, Term weight, int rank, Term stride, Term padding,
                       Term dilation, Term groups) {
  constexpr std::string_view kIn[] = {"conv_in_0", "conv_in_1", "conv_in_2"};
  constexpr std::string_view kKernel[] = {"conv_k_0", "conv_k_1", "conv_k_2"};
  constexpr std::string_view kOut[] = {"conv_out_0", "conv_out_1", "conv_out_2"};
  MITHRIL_CHECK(rank >= 1 && rank <= 3, "conv: rank {}", rank);
  std::vector<DimTerm> from, to, kernels;
  std::vector<DimTerm> in_dims = {dim("conv_n"), dim("conv_ci")};
  std::vector<DimTerm> out_dims = {dim("conv_n"), dim("conv_co")};
  std::vector<DimTerm> weight_dims = {dim("conv_co"), dim("conv_cg")};
  for (int i = 0; i < rank; ++i) {
    from.push_back(dim(kIn[i]));
    to.push_back(dim(kOut[i]));
    kernels.push_back(dim(kKernel[i]));
    in_dims.push_back(from.back());
    out_dims.push_back(to.back());
    weight_dims.push_back(kernels.back());
  }
  shape(in, in_dims);
  shape(weight, weight_dims);
  shape(out, out_dims);
  if (store_->failed()) return;
  when_known(groups, [](RuleBuilder& b, const HostValue& count) {
    if (!count.is_int() || count.as_int() > 0) return;
    b.fail(core::fail(core::ErrorKind::kValue, core::Code::kValueArgument,
                      "groups must be at least 1, got {}", count.as_int()));
  });
  if (store_->failed()) return;
  const DimTerm group_count = dim(groups), channels = dim("conv_ci"), each = dim("conv_cg");
  const DimTerm group_out = {this, DimId{store_->new_dim()}};
  post_arithmetic(*store_, rule_.index, channels.id.index, group_count.id.index, each.id.index,
                  IntOp::kMul);
  post_arithmetic(*store_, rule_.index, dim("conv_co").id.index, group_count.id.index,
                  group_out.id.index, IntOp::kMul);
  windows(to, from, kernels, stride, padding, dilation);
}

void RuleBuilder::resolve_padding(Term out, Term padding, Term kernel, int rank,
                                  std::optional<Term> dilation) {
  std::vector<Term> pairs;
  const Term gap = dilation ? *dilation : constant(core::HostValue(1));
  DimList paddings = {padding.cell.index}, kernels = {kernel.cell.index},
          dilations = {gap.cell.index};
  for (int i = 0; i < rank; ++i) {
    const Term low = fresh(kScalarInt), high = fresh(kScalarInt), k = fresh(kScalarInt),
               d = fresh(kScalarInt);
    kernels.push_back(k.cell.index);
    dilations.push_back(d.cell.index);
    for (const Term& t : {low, high, k, d}) {
      paddings.push_back(t.cell.index);
    }
    pairs.push_back(fresh(kTupleKind));
    const Term parts[] = {low, high};
    if (rank == 1) {
      tuple(out, parts);
    } else {
      tuple(pairs.back(), parts);
    }
  }
  if (rank > 1) tuple(out, pairs);
  store_->post(rule_.index, run_spread, kernels);
  store_->post(rule_.index, run_spread, dilations);
  store_->post(rule_.index, run_padding, paddings);
}

void RuleBuilder::pad(Term out, Term in, Term pad_width, bool pair_is_last) {
  kind(in, kTensor);
  kind(out, kTensor);
  kind(pad_width, kSequence);
  store_->post(rule_.index, run_pad, {out.cell.index, in.cell.index, pad_width.cell.index}, false,
               pair_is_last ? 1 : 0);
}

}  // namespace mithril::infer
