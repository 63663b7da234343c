// Integer unknowns: union-find without path compression, values, possible values, and
// definitions (normal forms) that are solved for as far as linear equations go.
#include <algorithm>
#include <numeric>

#include "infer/propagators/relations.h"
#include "infer/store.h"

namespace mithril::infer {

std::optional<int64_t> Store::size(uint32_t dim) const {
  const DimRecord& record = dims_[dim_root(dim)];
  return record.known ? std::optional(record.value) : std::nullopt;
}

bool Store::same_dim(uint32_t a, uint32_t b) const {
  const uint32_t ra = dim_root(a), rb = dim_root(b);
  if (ra == rb) return true;
  const DimRecord &x = dims_[ra], &y = dims_[rb];
  if (x.known || y.known) return x.known && y.known && x.value == y.value;
  return x.has_definition && y.has_definition && x.definition == y.definition;
}

const Possible* Store::possible(uint32_t dim) const {
  const DimRecord& record = dims_[dim_root(dim)];
  return record.known || record.possible == kNone ? nullptr : &possible_[record.possible];
}

Bounds Store::bounds(uint32_t dim) const {
  const DimRecord& record = dims_[dim_root(dim)];
  if (record.known) return {record.value, record.value};
  if (forward_ && record.has_definition) return bounds_of(record.definition);
  Bounds out = record.bounds == kNone ? Bounds{} : bounds_[record.bounds];
  if (record.is_size) out.low = std::max<int64_t>(out.low, 0);
  if (record.possible == kNone) return out;
  const Possible& p = possible_[record.possible];  // ascending
  return {std::max(out.low, p.values[0]), std::min(out.high, p.values[p.count - 1])};
}

Bounds Store::bounds_of(Dim expression) const {
  return table_->bounds(expression, [this](Dim symbol) {
    if (forward_) return Bounds{0};  // a graph's symbols are sizes
    const uint32_t index = table_->symbol_index(symbol);
    const bool known = index < symbol_dims_.size() && symbol_dims_[index] != kNone;
    return known ? bounds(symbol_dims_[index]) : Bounds{};
  });
}

namespace {
// "9, 10 or 11"
std::string join_values(const Possible& values) {
  std::string out;
  for (int i = 0; i < values.count; ++i) {
    out += (i == 0 ? "" : i + 1 == values.count ? " or " : ", ") + std::to_string(values.values[i]);
  }
  return out;
}
}  // namespace

std::string Store::limits(uint32_t dim) const {
  const DimRecord& record = dims_[dim_root(dim)];
  if (record.known) return "";
  const Bounds b = bounds(dim);
  constexpr int kFew = 3;  // are listed
  const bool is_range =
      record.possible == kNone || (possible_[record.possible].count > kFew &&
                                   possible_[record.possible].count == b.high - b.low + 1);
  if (!is_range) return join_values(possible_[record.possible]);
  const bool has_low = b.low != INT64_MIN && (b.low > 0 || !record.is_size);
  const bool has_high = b.high != INT64_MAX;
  if (has_high && b.low != INT64_MIN) return fmt::format("in [{}, {}]", b.low, b.high);
  if (has_high) return fmt::format("at most {}", b.high);
  return has_low ? fmt::format("at least {}", b.low) : "";
}

bool Store::may_be(uint32_t dim, int64_t value) const {
  const DimRecord& record = dims_[dim_root(dim)];
  if (record.known) return record.value == value;
  if (record.is_size && value < 0) return false;
  if (record.bounds != kNone) {
    const Bounds& b = bounds_[record.bounds];
    if (value < b.low || value > b.high) return false;
  }
  if (record.possible == kNone) return true;
  const Possible& p = possible_[record.possible];
  return std::find(p.values, p.values + p.count, value) != p.values + p.count;
}

// --- symbols and definitions ------------------------------------------------------------------

uint32_t Store::symbol_dim(Dim symbol) {
  const uint32_t index = table_->symbol_index(symbol);
  while (symbol_dims_.size() <= index) symbol_dims_.push_back(kNone);
  if (symbol_dims_[index] == kNone) {
    if (!frames_.empty()) symbol_trail_.emplace_back(index, kNone);
    const uint32_t dim = new_dim();
    dims_[dim].definition = symbol;
    dims_[dim].has_definition = true;
    symbol_dims_[index] = dim;
  }
  return symbol_dims_[index];
}

bool Store::is_own_symbol(uint32_t root) const {
  const DimRecord& record = dims_[root];
  if (forward_ || !record.has_definition || !table_->is_symbol(record.definition)) return false;
  const uint32_t index = table_->symbol_index(record.definition);
  return index < symbol_dims_.size() && symbol_dims_[index] != kNone &&
         dim_root(symbol_dims_[index]) == root;
}

std::optional<Dim> Store::expression_if_any(uint32_t dim) const {
  const DimRecord& record = dims_[dim_root(dim)];
  if (record.known && record.value >= 0) return Dim(record.value);
  if (record.known) return std::nullopt;  // negative: needs the table
  return record.has_definition ? std::optional(record.definition) : std::nullopt;
}

std::optional<Dim> Store::expression(uint32_t dim) {
  const uint32_t root = dim_root(dim);
  if (dims_[root].known) return table_->constant(dims_[root].value);
  if (dims_[root].has_definition) return normal_form(dims_[root].definition);
  if (forward_) return std::nullopt;
  const Dim symbol = table_->fresh();
  const uint32_t index = table_->symbol_index(symbol);
  while (symbol_dims_.size() <= index) symbol_dims_.push_back(kNone);
  if (!frames_.empty()) symbol_trail_.emplace_back(index, kNone);
  symbol_dims_[index] = root;
  DimRecord& record = edit_dim(root);
  record.definition = symbol;
  record.has_definition = true;
  return symbol;
}

Dim Store::normal_form(Dim dim) {
  if (forward_) return dim;
  while (!dim.known()) {
    const Dim next = table_->substitute(dim, [this](Dim symbol) {
      const uint32_t root = dim_root(symbol_dim(symbol));
      const DimRecord& record = dims_[root];
      if (record.known) return table_->constant(record.value);
      return record.has_definition ? record.definition : symbol;
    });
    if (next == dim) break;
    dim = next;
  }
  return dim;
}

uint32_t Store::owner_of(Dim expression) const {
  return expression.id() < owners_.size() ? owners_[expression.id()] : kNone;
}

void Store::set_owner(Dim expression, uint32_t dim) {
  const uint32_t id = expression.id();
  while (owners_.size() <= id) owners_.push_back(kNone);
  if (!frames_.empty()) owner_trail_.emplace_back(id, owners_[id]);
  owners_[id] = dim;
}

uint32_t Store::new_dim_of(Dim expression) {
  if (const auto value = table_->constant_of(expression)) return new_dim(*value);
  if (!forward_ && table_->is_symbol(expression)) return symbol_dim(expression);
  const uint32_t dim = new_dim();
  if (forward_) {
    dims_[dim].definition = expression;
    dims_[dim].has_definition = true;
    return dim;
  }
  post_definition(*this, dim, expression);
  return dim;
}

bool Store::name_dim(uint32_t dim, std::string_view name) {
  const auto expr = expression(dim);
  return expr && !expr->known() && table_->is_symbol(*expr) && table_->set_name(*expr, name);
}

// --- narrowing --------------------------------------------------------------------------------

bool Store::must_be_size(uint32_t dim) {
  const uint32_t root = dim_root(dim);
  const DimRecord& record = dims_[root];
  if (record.is_size) return true;
  if (record.known && record.value < 0) {
    conflict(core::Code::kShapeConflict, "a size must not be negative, got {}", record.value);
    return false;
  }
  DimRecord& size = edit_dim(root);
  size.is_size = true;
  if (size.watch != kNone) wake(size.watch, size.watch_end, kFactEvents);
  return settle_domain(root);
}

bool Store::assign(uint32_t dim, int64_t value) {
  const uint32_t root = dim_root(dim);
  if (dims_[root].known) {
    if (dims_[root].value == value) return true;
    clash(dim, kNone, dims_[root].value, value);
    failed_ = true;
    return false;
  }
  if (value < 0 && dims_[root].is_size) {
    conflict(core::Code::kShapeConflict, "a size must not be negative, got {}", value);
    return false;
  }
  // A graph's symbol stands for any size: nothing may be decided about it.
  if (!may_be(root, value) || (forward_ && dims_[root].has_definition)) {
    refuse(dim, std::to_string(value));
    return false;
  }
  const bool solve = dims_[root].has_definition && !is_own_symbol(root);
  DimRecord& record = edit_dim(root);
  record.known = true;
  record.value = value;
  record.origin = dim;
  record_event(Entity::kDim, dim, record.event);
  wake(record.watch, record.watch_end, kFactEvents);
  if (!solve) return true;
  const Dim definition = normal_form(dims_[root].definition);
  return solve_zero(table_->sub(definition, table_->constant(value)));
}

bool Store::narrow_values(uint32_t dim, Possible values) {
  const uint32_t root = dim_root(dim);
  std::sort(values.values, values.values + values.count);
  Possible kept;
  for (int i = 0; i < values.count; ++i) {
    if (i > 0 && values.values[i] == values.values[i - 1]) continue;
    if (may_be(root, values.values[i])) kept.values[kept.count++] = values.values[i];
  }
  if (kept.count == 0) {
    refuse(dim, join_values(values));
    return false;
  }
  if (dims_[root].known) return true;
  if (kept.count == 1) return assign(dim, kept.values[0]);
  if (const Possible* old = possible(root); old != nullptr && *old == kept) return true;
  if (forward_) return true;
  possible_.push_back(kept);
  DimRecord& record = edit_dim(root);
  record.possible = static_cast<uint32_t>(possible_.size() - 1);
  record_event(Entity::kDim, dim, record.event);
  wake(record.watch, record.watch_end, kFactEvents);
  return true;
}

bool Store::narrow_bounds(uint32_t dim, Bounds given) {
  const uint32_t root = dim_root(dim);
  const Bounds now = bounds(root);
  const Bounds both{std::max(now.low, given.low), std::min(now.high, given.high)};
  if (both.low > both.high) {
    refuse(dim, fmt::format("[{}, {}]", given.low, given.high));
    return false;
  }
  // The symbols of a graph are free: nothing is decided about them.
  if (both == now || forward_) return true;
  bounds_.push_back(both);
  DimRecord& record = edit_dim(root);
  record.bounds = static_cast<uint32_t>(bounds_.size() - 1);
  record_event(Entity::kDim, dim, record.event);
  wake(record.watch, record.watch_end, kFactEvents);
  return settle_domain(dim);
}

/// Joins what bounds, possible values and being a size say: few values are listed, one is it.
bool Store::settle_domain(uint32_t dim) {
  const uint32_t root = dim_root(dim);
  const DimRecord& record = dims_[root];
  if (record.known || (record.bounds == kNone && record.possible == kNone)) return true;
  if (record.possible != kNone) return narrow_values(dim, Possible(possible_[record.possible]));
  const Bounds now = bounds(root);
  constexpr int64_t kMostValues = 8;
  if (now.low == INT64_MIN || now.high == INT64_MAX) return true;  // open
  if (now.low < now.high - (kMostValues - 1)) return true;
  Possible values;
  for (int64_t v = now.low; v <= now.high; ++v) values.values[values.count++] = v;
  return narrow_values(dim, values);
}

/// Takes over the possible values and bounds of a dim that has become equal.
bool Store::narrow_by(uint32_t dim, const DimRecord& other) {
  const uint32_t possible = other.possible, limits = other.bounds;
  if (possible != kNone && !narrow_values(dim, Possible(possible_[possible]))) return false;
  return limits == kNone || narrow_bounds(dim, Bounds(bounds_[limits]));
}

/// Tells which of two equal definitions a class shows: an expression over a symbol, a named symbol
/// over an unnamed one, then the older one.
bool Store::preferred(Dim a, Dim b) const {
  const bool symbol_a = table_->is_symbol(a), symbol_b = table_->is_symbol(b);
  if (symbol_a != symbol_b) return symbol_b;
  if (!symbol_a) return true;
  const bool named_a = table_->is_named(a), named_b = table_->is_named(b);
  if (named_a != named_b) return named_a;
  return table_->symbol_index(a) <= table_->symbol_index(b);
}

// --- equality ---------------------------------------------------------------------------------

bool Store::unify_dims(uint32_t a, uint32_t b) {
  uint32_t ra = dim_root(a), rb = dim_root(b);
  if (ra == rb) return true;
  if (dims_[ra].known && dims_[rb].known) {
    if (dims_[ra].value != dims_[rb].value) {
      clash(a, b, dims_[ra].value, dims_[rb].value);
      failed_ = true;
      return false;
    }
    return must_be_size_like(ra, rb);
  }
  if (refused_value(ra, rb) || refused_value(rb, ra)) return false;
  // A class takes one definition; two of them are an equation, as is x = f(x).
  const bool expr_a = dims_[ra].has_definition && !is_own_symbol(ra);
  const bool expr_b = dims_[rb].has_definition && !is_own_symbol(rb);
  std::optional<Dim> da, db, equation;
  if (forward_) {
    if (dims_[ra].has_definition && dims_[rb].has_definition &&
        dims_[ra].definition != dims_[rb].definition) {
      failed_ = true;
      return false;
    }
    if ((dims_[ra].known && dims_[rb].has_definition) ||
        (dims_[rb].known && dims_[ra].has_definition)) {
      failed_ = true;
      return false;
    }
  } else if (dims_[ra].has_definition && dims_[rb].has_definition && !dims_[ra].known &&
             !dims_[rb].known) {
    da = normal_form(dims_[ra].definition);
    db = normal_form(dims_[rb].definition);
    if (*da != *db && (expr_a || expr_b)) equation = table_->sub(*da, *db);
    const bool circular = (!expr_a && expr_b && table_->contains(*db, *da)) ||
                          (!expr_b && expr_a && table_->contains(*da, *db));
    if (circular && equation) {
      post_equal(*this, a, b);
      return solve_zero(*equation);
    }
    // What the user named stays free: solve for what nobody named, then there is nothing left.
    if (equation && expr_a != expr_b) {
      const Dim own = expr_a ? *db : *da;
      const auto isolated = table_->isolate(*equation);
      if (isolated && isolated->first != own) {
        return solve_zero(*equation) && unify_dims(a, b);
      }
    }
  }
  // Larger classes stay; the older one when they are equal, so that runs are alike.
  if (dims_[rb].size > dims_[ra].size || (dims_[rb].size == dims_[ra].size && rb < ra)) {
    std::swap(ra, rb);
    std::swap(a, b);
    std::swap(da, db);
  }
  std::optional<Dim> definition;
  if (da) definition = preferred(*da, *db) ? *da : *db;
  if (!join_classes(ra, rb, a, b, definition)) return false;
  if (equation) return solve_zero(*equation);
  if (dims_[ra].known && (expr_a || expr_b)) {
    const Dim form = normal_form(dims_[ra].definition);
    return solve_zero(table_->sub(form, table_->constant(dims_[ra].value)));
  }
  return true;
}

bool Store::refused_value(uint32_t known, uint32_t open) {
  const bool refused = dims_[known].known && dims_[known].value >= 0 && !dims_[open].known &&
                       !may_be(open, dims_[known].value);
  if (refused) refuse(open, std::to_string(dims_[known].value));
  return refused;
}

bool Store::join_classes(uint32_t root, uint32_t lost_root, uint32_t member, uint32_t lost_member,
                         std::optional<Dim> definition) {
  DimRecord& lost = edit_dim(lost_root);
  DimRecord& kept = edit_dim(root);
  const DimRecord before = kept;
  lost.parent = root;
  lost.edge_a = lost_member;
  lost.edge_b = member;
  kept.size += lost.size;
  kept.is_size = kept.is_size || lost.is_size;
  if (lost.known) {
    kept.known = true;
    kept.value = lost.value;
    kept.origin = lost.origin;
  }
  if (definition) {
    kept.definition = *definition;
  } else if (lost.has_definition && !kept.has_definition) {
    kept.definition = lost.definition;
    kept.has_definition = true;
  }
  const DimRecord other = lost;
  record_event(Entity::kDim, root, kept.event, lost_root);
  lost.edge_event = kept.event;
  const bool gained =
      kept.known != before.known || kept.is_size != before.is_size ||
      (kept.has_definition && (!before.has_definition || kept.definition != before.definition));
  wake(lost.watch, lost.watch_end, kFactEvents);
  if (gained) wake(before.watch, before.watch_end, kFactEvents);
  join_watches(kept.watch, kept.watch_end, lost.watch, lost.watch_end);
  const bool kept_known = dims_[root].known;
  if (kept_known && dims_[root].value < 0 && dims_[root].is_size) {
    conflict(core::Code::kShapeConflict, "a size must not be negative, got {}", dims_[root].value);
    return false;
  }
  return narrow_by(root, other) && (!kept_known || narrow_by(root, before)) && settle_domain(root);
}

bool Store::must_be_size_like(uint32_t a, uint32_t b) {
  if (dims_[a].is_size) return must_be_size(b);
  return !dims_[b].is_size || must_be_size(a);
}

bool Store::set_definition(uint32_t root, Dim expression) {
  DimRecord& record = edit_dim(root);
  record.definition = expression;
  record.has_definition = true;
  record_event(Entity::kDim, root, record.event);
  wake(record.watch, record.watch_end, kFactEvents);
  if (forward_) return true;
  const uint32_t owner = owner_of(expression);
  set_owner(expression, root);
  if (owner == kNone || dim_root(owner) == root) return true;
  const DimRecord& other = dims_[dim_root(owner)];
  const bool current =
      !other.known && other.has_definition && normal_form(other.definition) == expression;
  return !current || unify_dims(owner, root);
}

bool Store::define(uint32_t dim, Dim expression) {
  if (expression == table_->overflow()) {
    conflict(core::Code::kOverflow, "a size does not fit 64 bits");
    return false;
  }
  const Dim e = normal_form(expression);
  if (const auto value = table_->constant_of(e)) return assign(dim, *value);
  const uint32_t root = dim_root(dim);
  if (forward_) {
    if (dims_[root].known || (dims_[root].has_definition && dims_[root].definition != e)) {
      failed_ = true;
      return false;
    }
    return dims_[root].has_definition || set_definition(root, e);
  }
  if (table_->is_symbol(e)) return unify_dims(dim, symbol_dim(e));
  // An unknown that is this very expression: uniting says more than an equation would.
  const uint32_t owner = owner_of(e);
  if (owner != kNone && dim_root(owner) != root) {
    const DimRecord& other = dims_[dim_root(owner)];
    if (!other.known && other.has_definition && normal_form(other.definition) == e) {
      return unify_dims(dim, owner);
    }
  }
  if (dims_[root].known) {
    return solve_zero(table_->sub(e, table_->constant(dims_[root].value)));
  }
  if (!dims_[root].has_definition) return set_definition(root, e);
  const Dim old = normal_form(dims_[root].definition);
  if (old == e) return old == dims_[root].definition || set_definition(root, e);
  if (is_own_symbol(root) && !table_->contains(e, old)) {
    // What the user named stays free; what nobody named is expressed by it.
    const auto isolated = table_->isolate(table_->sub(old, e));
    if (!isolated || isolated->first == old) return set_definition(root, e);
  }
  return solve_zero(table_->sub(old, e));
}

bool Store::solve_zero(Dim difference) {
  difference = normal_form(difference);
  if (const auto constant = table_->constant_of(difference)) {
    if (*constant != 0) failed_ = true;
    return *constant == 0;
  }
  if (forward_) return true;  // symbols of a graph are free: checked when they get values
  if (const auto form = table_->linear(difference)) {
    const auto solution = table_->solve(difference, 0);
    if (solution && !solution->exact) failed_ = true;
    if (solution) return solution->exact && assign(symbol_dim(form->x), solution->value);
  }
  if (const auto isolated = table_->isolate(difference)) {
    const uint32_t dim = symbol_dim(isolated->first);
    if (table_->is_symbol(isolated->second)) return unify_dims(dim, symbol_dim(isolated->second));
    if (const auto value = table_->constant_of(isolated->second)) return assign(dim, *value);
    post_definition(*this, dim, isolated->second);
    return !failed_;
  }
  if (!table_->is_solvable(difference)) {
    failed_ = true;
    return false;
  }
  return solve_floor(difference);
}

bool Store::solve_floor(Dim difference) {
  // a*floor(n/c) + b = 0 with n = p*x + q: x lies in a known, often short, range.
  const auto form = table_->floor_form(difference);
  if (!form) return true;
  if (form->b % form->a != 0) {
    failed_ = true;
    return false;
  }
  const auto inner = table_->linear(form->numerator);
  if (!inner || inner->a <= 0) return true;
  constexpr int64_t kSensible = int64_t{1} << 40;  // beyond, the products below could wrap
  const int64_t quotient = -(form->b / form->a);
  if (std::abs(quotient) > kSensible / form->divisor || form->divisor > kSensible ||
      std::abs(inner->b) > kSensible) {
    return true;
  }
  const int64_t low = quotient * form->divisor - inner->b;
  const int64_t high = low + form->divisor - 1;
  const int64_t a = inner->a;
  const int64_t first = low >= 0 ? (low + a - 1) / a : -(-low / a);
  const int64_t last = high >= 0 ? high / a : -((-high + a - 1) / a);
  if (first > last) {
    failed_ = true;
    return false;
  }
  if (last - first >= 8) return true;
  Possible values;
  for (int64_t v = first; v <= last; ++v) values.values[values.count++] = v;
  return narrow_values(symbol_dim(inner->x), values);
}

std::string Store::print_dim(uint32_t dim) {
  const DimRecord& record = dims_[dim_root(dim)];
  if (record.known) return std::to_string(record.value);
  const auto e = expression(dim);
  return e ? error_names_.dim(*table_, *e) : "?";
}

}  // namespace mithril::infer
