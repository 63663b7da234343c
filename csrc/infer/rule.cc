// Terms, templates and dims of rules, and the relations that are stated by unification alone.
#include "infer/rule.h"

#include <charconv>

#include "infer/propagators/relations.h"
#include "infer/store.h"

namespace mithril::infer {

using core::HostValue;

// --- terms ------------------------------------------------------------------------------------

Term RuleBuilder::term(std::string_view name) {
  const uint32_t bound = store_->find_binding(rule_.index, name);
  if (bound != kNone) return Term{CellId{bound}};
  return Term{CellId{store_->scope_cell(store_->rule(rule_.index).scope, name)}};
}

bool RuleBuilder::has(std::string_view name) const {
  return store_->find_binding(rule_.index, name) != kNone;
}

Term RuleBuilder::constant(const HostValue& value) {
  const uint32_t cell = store_->new_cell(kAny);
  store_->set_value(cell, value);
  return Term{CellId{cell}};
}

Term RuleBuilder::fresh(KindSet kinds) { return Term{CellId{store_->new_cell(kinds)}}; }

std::optional<HostValue> RuleBuilder::known(Term term) const {
  return store_->known_value(term.cell.index);
}

void RuleBuilder::fail(core::Error error) {
  store_->conflict(std::move(error));
  if (store_->error_at_rule_ == kNone) store_->error_at_rule_ = rule_.index;
}

// --- templates --------------------------------------------------------------------------------

void RuleBuilder::shape(Term term, std::string_view text) {
  Store& s = *store_;
  if (s.failed()) return;
  const uint32_t cell = term.cell.index;
  if (!s.narrow(cell, kTensor)) return;
  const uint32_t scope = s.rule(rule_.index).scope;
  Dims dims;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ' ') {
      ++at;
      continue;
    }
    size_t end = text.find(' ', at);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view item = text.substr(at, end - at);
    at = end;
    if (item.starts_with("...") || item == "_...") {
      MITHRIL_CHECK(dims.fixed(), "rule template '{}' has two variadics", text);
      dims.seq = item == "_..." ? s.new_seq() : s.scope_seq(scope, item);
      continue;
    }
    DimList& part = dims.fixed() ? dims.prefix : dims.suffix;
    if (item == "_") {
      part.push_back(s.new_dim());
    } else if (item[0] >= '0' && item[0] <= '9') {
      int64_t size = 0;
      std::from_chars(item.data(), item.data() + item.size(), size);
      part.push_back(s.new_dim(size));
    } else {
      part.push_back(s.scope_dim(scope, item));
    }
  }
  const bool ok = s.constrain(s.shape(cell), dims);
  if (ok && !s.failed()) return;
  std::string wanted = "[";
  for (const char c : text) wanted += c == ' ' ? std::string(", ") : std::string(1, c);
  s.conflict(core::Code::kShapeRank, "{} must have shape {}], got {}",
             s.binding_name(rule_.index, cell), wanted, s.print_shape(cell));
  s.blame({cell});
}

void RuleBuilder::shape_or_number(Term term, std::string_view text) {
  Store& s = *store_;
  if (s.failed()) return;
  const uint32_t cell = term.cell.index;
  if (s.forward()) {
    const uint32_t known = s.shape_if_any(cell);
    if (known != kNone && s.rank(known) == 0) return;
  } else {
    s.let_number_spread(cell);
  }
  shape(term, text);
}

void RuleBuilder::shape(Term term, std::initializer_list<DimTerm> dims) {
  shape(term, std::span<const DimTerm>(dims.begin(), dims.size()));
}

void RuleBuilder::shape(Term term, std::span<const DimTerm> items) {
  Store& s = *store_;
  const uint32_t cell = term.cell.index;
  if (s.failed() || !s.narrow(cell, kTensor)) return;
  Dims dims;
  for (const DimTerm& item : items) dims.prefix.push_back(item.id.index);
  if (s.constrain(s.shape(cell), dims) && !s.failed()) return;
  s.conflict(core::Code::kShapeRank, "{} must have {} dimensions that agree, got {}",
             s.binding_name(rule_.index, cell), items.size(), s.print_shape(cell));
  s.blame({cell});
}

// --- dims -------------------------------------------------------------------------------------

DimTerm RuleBuilder::dim(std::string_view name) {
  const uint32_t dim = store_->scope_dim(store_->rule(rule_.index).scope, name);
  store_->must_be_size(dim);
  return {this, DimId{dim}};
}

DimTerm RuleBuilder::dim(int64_t size) { return {this, DimId{store_->new_dim(size)}}; }

DimTerm RuleBuilder::dim(Term integer) {
  Store& s = *store_;
  const uint32_t dim =
      s.narrow(integer.cell.index, kScalarInt) ? s.int_dim(integer.cell.index) : s.new_dim();
  return {this, DimId{dim}};
}

DimTerm RuleBuilder::dim(Term tensor, int axis) {
  Store& s = *store_;
  kind(tensor, kTensor);
  const uint32_t shape = s.shape(tensor.cell.index);
  const size_t least = axis >= 0 ? static_cast<size_t>(axis) + 1 : static_cast<size_t>(-axis);
  if (!s.failed() && s.narrow_ranks(shape, ranks_from(least))) {
    const uint32_t dim = axis >= 0 ? s.dim_from_left(shape, least - 1, true)
                                   : s.dim_from_right(shape, least - 1, true);
    if (dim != kNone) return {this, DimId{dim}};
  }
  s.conflict(core::Code::kShapeRank, "{} must have at least {} dimensions, got {}",
             s.binding_name(rule_.index, tensor.cell.index), least,
             s.print_shape(tensor.cell.index));
  return {this, DimId{s.new_dim()}};
}

void RuleBuilder::equal(DimTerm a, DimTerm b) {
  Store& s = *store_;
  if (s.failed()) return;
  if (s.unify_dims(a.id.index, b.id.index) && !s.failed()) return;
  s.conflict(core::Code::kShapeConflict, "sizes must be equal, got {} and {}",
             s.print_dim(a.id.index), s.print_dim(b.id.index));
}

namespace {

DimTerm arithmetic(DimTerm a, DimTerm b, IntOp op) {
  Store& s = a.builder->store();
  const uint32_t out = s.new_dim();
  post_arithmetic(s, a.builder->rule().index, out, a.id.index, b.id.index, op);
  return {a.builder, DimId{out}};
}

}  // namespace

DimTerm operator+(DimTerm a, DimTerm b) { return arithmetic(a, b, IntOp::kAdd); }
DimTerm operator-(DimTerm a, DimTerm b) { return arithmetic(a, b, IntOp::kSub); }
DimTerm operator*(DimTerm a, DimTerm b) { return arithmetic(a, b, IntOp::kMul); }
DimTerm operator+(DimTerm a, int64_t b) { return a + a.builder->dim(b); }
DimTerm operator-(DimTerm a, int64_t b) { return a - a.builder->dim(b); }
DimTerm operator*(DimTerm a, int64_t b) { return a * a.builder->dim(b); }
DimTerm floor_div(DimTerm a, DimTerm b) { return arithmetic(a, b, IntOp::kFloorDiv); }
DimTerm floor_div(DimTerm a, int64_t b) { return floor_div(a, a.builder->dim(b)); }
DimTerm ceil_div(DimTerm a, int64_t b) { return floor_div(a + (b - 1), b); }

DimTerm RuleBuilder::divide(DimTerm a, DimTerm b) {
  // quotient * b == a
  const uint32_t quotient = store_->new_dim();
  post_arithmetic(*store_, rule_.index, a.id.index, quotient, b.id.index, IntOp::kMul);
  return {this, DimId{quotient}};
}

// --- unification ------------------------------------------------------------------------------

void RuleBuilder::kind(Term term, KindSet kinds) {
  Store& s = *store_;
  if (s.failed()) return;
  const KindSet before = s.kinds(term.cell.index);
  if (s.narrow(term.cell.index, kinds)) return;
  s.error_.reset();
  s.conflict(core::Code::kDTypeOperand, "{} must be {}, got {}",
             s.binding_name(rule_.index, term.cell.index), to_string(kinds), to_string(before));
}

void RuleBuilder::same_shape(Term a, Term b) {
  Store& s = *store_;
  if (s.failed()) return;
  const uint32_t x = a.cell.index, y = b.cell.index;
  if (!s.narrow(x, kTensor) || !s.narrow(y, kTensor)) return;
  const std::string left = s.shape_if_any(x) == kNone ? "" : s.describe(rule_.index, x);
  const std::string right = s.shape_if_any(y) == kNone ? "" : s.describe(rule_.index, y);
  if (s.unify_shapes(s.shape(x), s.shape(y)) && !s.failed()) return;
  s.conflict(core::Code::kShapeConflict, "shapes must be equal, got {} and {}", left, right);
  s.blame({x, y});
}

void RuleBuilder::identical(Term a, Term b) {
  if (!store_->failed()) store_->unify_cells(a.cell.index, b.cell.index);
}

void RuleBuilder::same(Term a, Term b) {
  same_kind(a, b);
  same_shape(a, b);
}

void RuleBuilder::tuple(Term out, Terms items) {
  DimList cells;
  for (const Term& item : items) cells.push_back(item.cell.index);
  if (!store_->failed()) store_->set_items(out.cell.index, cells, false);
}

void RuleBuilder::list(Term out, Terms items) {
  DimList cells;
  for (const Term& item : items) cells.push_back(item.cell.index);
  if (!store_->failed()) store_->set_items(out.cell.index, cells, true);
}

}  // namespace mithril::infer
