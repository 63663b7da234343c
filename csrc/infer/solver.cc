// The public face of the store: assertions are logged, queries are translated.
#include "infer/solver.h"

#include <algorithm>

#include "infer/rule.h"
#include "infer/store.h"

namespace mithril::infer {

using core::HostValue;
using core::Status;

std::string ShapeNames::dim(const DimTable& table, Dim dim) {
  if (dim.known()) return std::to_string(dim.value());
  return table.print(dim, [&](Dim symbol) {
    if (table.is_named(symbol)) return table.name_of(symbol);
    const uint32_t index = table.symbol_index(symbol);
    auto it = std::find(dims_.begin(), dims_.end(), index);
    if (it == dims_.end()) it = dims_.insert(dims_.end(), index);
    return "u" + std::to_string(it - dims_.begin() + 1);
  });
}

std::string ShapeNames::variadic(uint32_t id) {
  auto it = std::find(variadics_.begin(), variadics_.end(), id);
  if (it == variadics_.end()) it = variadics_.insert(variadics_.end(), id);
  return "V" + std::to_string(it - variadics_.begin() + 1);
}

Solver::Solver() : store_(std::make_unique<Store>()) {}
Solver::Solver(std::unique_ptr<Store> store) : store_(std::move(store)) {}
Solver::~Solver() = default;
Solver::Solver(Solver&&) noexcept = default;
Solver& Solver::operator=(Solver&&) noexcept = default;
Solver Solver::clone() const { return Solver(store_->clone()); }

// --- facts ----------------------------------------------------------------------------------

uint32_t Store::new_fact(core::Location location, std::string text) {
  facts_.push_back({std::move(location), std::move(text)});
  log({.type = Assertion::kFact, .a = static_cast<uint32_t>(facts_.size() - 1)});
  return static_cast<uint32_t>(facts_.size() - 1);
}

CellId Solver::new_cell(KindSet kinds, std::string_view name) {
  const uint32_t cell = store_->new_cell(kinds);
  store_->log({.type = Assertion::kCell, .a = cell, .payload = kinds.bits()});
  if (!name.empty()) set_name(CellId{cell}, name);
  return CellId{cell};
}

void Solver::set_name(CellId cell, std::string_view name) {
  Store& s = *store_;
  s.names_.emplace_back(name);
  const auto id = static_cast<uint32_t>(s.names_.size() - 1);
  s.edit_cell(s.cell_root(cell.index)).name = id;
  s.log({.type = Assertion::kName, .a = cell.index, .payload = id});
}

const std::string& Solver::name(CellId cell) const {
  static const std::string empty;
  const uint32_t name = store_->cells_[store_->cell_root(cell.index)].name;
  return name == kNone ? empty : store_->names_[name];
}

FactId Solver::new_fact(core::Location location, std::string text) {
  return FactId{store_->new_fact(std::move(location), std::move(text))};
}

ScopeId Solver::new_scope() {
  const uint32_t scope = store_->new_scope();
  store_->log({.type = Assertion::kScope, .a = scope});
  return ScopeId{scope};
}

Status Solver::finish(bool ok, uint32_t cell, std::string_view what) {
  Store& s = *store_;
  if (ok && !s.failed_ && s.settle_shapes()) {
    s.asserting_ = kNone;
    return {};
  }
  if (!s.error_) {
    s.conflict(core::Code::kShapeConflict, "{}", what);
  }
  s.blame({cell});
  s.conflict_.about = CellId{cell};
  Status status = s.take_error();
  s.asserting_ = kNone;
  return status;
}

Status Solver::said(Status status, const std::function<std::string()>& text) {
  if (!status.ok()) store_->conflict_.said = text();
  return status;
}

Status Solver::assert_kind(CellId cell, KindSet kinds, FactId fact) {
  Store& s = *store_;
  s.asserting_ = fact.index;
  s.log({.type = Assertion::kKind, .a = cell.index, .fact = fact.index, .payload = kinds.bits()});
  return said(finish(s.narrow(cell.index, kinds), cell.index, "kinds are in conflict"),
              [&] { return to_string(kinds); });
}

Status Solver::assert_type(CellId cell, const Type& type, FactId fact) {
  if (type.is_plain()) return assert_kind(cell, type.kinds, fact);
  Store& s = *store_;
  s.asserting_ = fact.index;
  s.types_.push_back(std::make_shared<const Type>(type));
  s.log({.type = Assertion::kType,
         .a = cell.index,
         .fact = fact.index,
         .payload = static_cast<uint32_t>(s.types_.size() - 1)});
  return finish(s.narrow_type(cell.index, type), cell.index, "types are in conflict");
}

Status Solver::assert_interval(CellId cell, const Interval& interval, FactId fact) {
  Store& s = *store_;
  s.asserting_ = fact.index;
  const uint32_t logged = s.add_extra<const Interval>(std::make_shared<const Interval>(interval));
  s.log({.type = Assertion::kInterval, .a = cell.index, .fact = fact.index, .payload = logged});
  return finish(s.narrow_interval(cell.index, interval), cell.index, "intervals are in conflict");
}

namespace {

// Literals are known by their shape.
std::string short_text(const HostValue& value) {
  if (!value.is_tensor()) return core::to_string(value);
  std::string out;
  for (const int64_t size : value.as_tensor()->shape) {
    out += (out.empty() ? "" : ", ") + std::to_string(size);
  }
  return "[" + out + "]";
}

// Names of a layer's own templates start with `$`: they hold within the call, and no size gets
// them.
bool is_own_name(std::string_view name) { return !name.empty() && name.front() == '$'; }

std::string print_name(const std::string& name) {
  return is_own_name(name) ? name.substr(1) : name;
}

std::string print_template(const ShapeTemplate& shape,
                           const std::function<bool(size_t item)>& is_other = {}) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    const TemplateItem& item = shape[i];
    if (out.size() > 1) out += ", ";
    switch (item.type) {
      case TemplateItem::Type::kSize: out += std::to_string(item.size); break;
      case TemplateItem::Type::kSymbol:
        out += print_name(item.name) + (is_other && is_other(i) ? "'" : "");
        break;
      case TemplateItem::Type::kUnknown: out += "none"; break;
      case TemplateItem::Type::kVariadic:
        out += "(" + (item.name.empty() ? "" : print_name(item.name) + ", ") + "...)";
        break;
    }
  }
  return out + "]";
}

}  // namespace

Status Solver::assert_shape(CellId cell, const ShapeTemplate& shape, ScopeId scope, FactId fact,
                            bool named) {
  Store& s = *store_;
  s.asserting_ = fact.index;
  s.conflict_ = {};  // of what follows, if anything
  int variadics = 0;
  for (const TemplateItem& item : shape) {
    variadics += item.type == TemplateItem::Type::kVariadic;
    if (item.type == TemplateItem::Type::kSize && item.size < 0) {
      return core::fail(core::ErrorKind::kShape, core::Code::kShapeTemplate,
                        "shape: sizes must not be negative, got {}", print_template(shape));
    }
  }
  if (variadics > 1) {
    return core::fail(core::ErrorKind::kShape, core::Code::kShapeTemplate,
                      "shape: at most one item may stand for any number of dimensions, got {}",
                      print_template(shape));
  }
  s.templates_.push_back(shape);
  s.log({.type = Assertion::kShape,
         .a = cell.index,
         .b = scope.index,
         .fact = fact.index,
         .payload = static_cast<uint32_t>(s.templates_.size() - 1),
         .flag = named});
  // A name that another size has got, and not the one that stands there: they differ in one text.
  const auto is_other = [&](size_t i) {
    const auto first = s.table().find_symbol(shape[i].name);
    if (!first) return false;
    const uint32_t owner = s.symbol_dim(*first);
    const uint32_t known = s.shape_if_any(cell.index);
    const Dims dims = known == kNone ? Dims{} : s.view(known);
    if (i < dims.prefix.size() && s.same_class(dims.prefix[i], owner)) return false;
    return !s.same_class(owner, user_symbol(scope.index, shape[i].name, false));
  };
  const auto text = [&] { return print_template(shape, is_other); };
  if (!s.narrow(cell.index, kTensor)) return said(finish(false, cell.index, ""), text);
  s.error_names_.clear();
  const std::string before = s.shape_if_any(cell.index) == kNone ? "" : s.print_shape(cell.index);
  Dims dims;
  for (const TemplateItem& item : shape) {
    DimList& part = dims.fixed() ? dims.prefix : dims.suffix;
    switch (item.type) {
      case TemplateItem::Type::kSize: part.push_back(s.new_dim(item.size)); break;
      case TemplateItem::Type::kUnknown: part.push_back(s.new_dim()); break;
      case TemplateItem::Type::kSymbol:
        part.push_back(user_symbol(scope.index, item.name, named));
        break;
      case TemplateItem::Type::kVariadic:
        dims.seq = item.name.empty() ? s.new_seq() : user_sequence(scope.index, item.name, named);
        break;
    }
  }
  // A named variadic that is bound already is written out by the meeting of representations.
  const bool ok = s.constrain(s.shape(cell.index), dims);
  if (ok && !s.failed_) return said(finish(true, cell.index, ""), text);
  s.shown_before_ = {{cell.index, {}, before, {}}};
  return said(finish(false, cell.index,
                     "shapes are in conflict, got " + print_template(shape) + " and " + before),
              text);
}

uint32_t Solver::own_name(const std::string& name) {
  auto& owned = store_->owned_names_;
  const auto found = std::find_if(owned.begin(), owned.end(),
                                  [&name](const auto& other) { return *other == name; });
  const auto index = static_cast<uint32_t>(found - owned.begin());
  if (found == owned.end()) owned.push_back(std::make_shared<const std::string>(name));
  return index;
}

uint32_t Solver::user_sequence(uint32_t scope, const std::string& name, bool named) {
  Store& s = *store_;
  const size_t before = s.scope_entries_.size();
  const uint32_t own = own_name(name);
  const uint32_t seq = s.scope_seq(scope, *s.owned_names_[own]);
  const bool is_new = s.scope_entries_.size() != before;
  if (named && is_new && !is_own_name(name)) s.name_seq(seq, own);
  return seq;
}

uint32_t Solver::user_symbol(uint32_t scope, const std::string& name, bool named) {
  Store& s = *store_;
  const size_t before = s.scope_entries_.size();
  const uint32_t dim = s.scope_dim(scope, *s.owned_names_[own_name(name)]);
  const bool is_new = s.scope_entries_.size() != before;
  if (named && is_new && !is_own_name(name)) s.name_dim(dim, name);
  return dim;
}

Status Solver::assert_value(CellId cell, const HostValue& value, FactId fact) {
  Store& s = *store_;
  s.asserting_ = fact.index;
  s.hosts_.push_back(value);
  s.log({.type = Assertion::kValue,
         .a = cell.index,
         .fact = fact.index,
         .payload = static_cast<uint32_t>(s.hosts_.size() - 1)});
  return said(finish(s.set_value(cell.index, value), cell.index, "values are in conflict"),
              [&] { return short_text(value); });
}

Status Solver::assert_items(CellId cell, std::span<const CellId> items, bool is_list, FactId fact) {
  Store& s = *store_;
  s.asserting_ = fact.index;
  DimList ids;
  for (const CellId item : items) ids.push_back(item.index);
  const auto begin = static_cast<uint32_t>(s.lists_.size());
  s.lists_.insert(s.lists_.end(), ids.begin(), ids.end());
  s.log({.type = Assertion::kItems,
         .a = cell.index,
         .fact = fact.index,
         .payload = begin,
         .count = static_cast<uint32_t>(ids.size()),
         .flag = is_list});
  return finish(s.set_items(cell.index, ids, is_list), cell.index, "values are in conflict");
}

Status Solver::unify(CellId a, CellId b, FactId fact) {
  Store& s = *store_;
  s.asserting_ = fact.index;
  s.log({.type = Assertion::kUnify, .a = a.index, .b = b.index, .fact = fact.index});
  s.error_names_.clear();
  const Store::Ends ends = s.ends(a.index, b.index);
  const bool ok = s.unify_cells(a.index, b.index) && !s.failed_;
  if (ok) return finish(true, a.index, "");
  if (!s.error_) {
    s.conflict(core::Code::kShapeConflict, "cannot connect, got {} and {}", ends.texts[0],
               ends.texts[1]);
  }
  s.describe_ends(ends);
  return finish(false, a.index, "");
}

Status Solver::add_rule(std::string_view op, const Rule& rule, std::span<const Binding> bindings,
                        FactId fact) {
  Store& s = *store_;
  s.asserting_ = fact.index;
  std::vector<Binding> cells(bindings.begin(), bindings.end());
  for (Binding& binding : cells) {
    if (binding.value == nullptr) continue;
    const HostValue value = *binding.value;
    binding.cell = CellId{s.new_cell(kAny)};
    if (!s.set_value(binding.cell.index, value)) return finish(false, binding.cell.index, "");
  }
  const uint32_t id = s.new_rule(op, cells, fact.index);
  s.logged_rules_.push_back({&rule, op, {bindings.begin(), bindings.end()}, {}});
  auto& logged = s.logged_rules_.back();
  for (Binding& binding : logged.given) {
    if (binding.value == nullptr) continue;
    logged.values.push_back(std::make_shared<const HostValue>(*binding.value));
    binding.value = logged.values.back().get();
  }
  s.log({.type = Assertion::kRule,
         .fact = fact.index,
         .payload = static_cast<uint32_t>(s.logged_rules_.size() - 1)});
  RuleBuilder builder(s, RuleId{id});
  rule(builder);
  if (s.failed_ || !s.settle_shapes()) {
    if (!s.error_) s.conflict(core::Code::kShapeConflict, "shapes are in conflict");
    if (s.error_at_rule_ == kNone) s.error_at_rule_ = id;
    Status status = s.take_error();
    s.asserting_ = kNone;
    return status;
  }
  s.asserting_ = kNone;
  return {};
}

Status Solver::assume(Dim symbol, int64_t size) {
  Store& s = *store_;
  const bool ok = s.assign(s.symbol_dim(symbol), size) && !s.failed_ && s.settle_shapes();
  return ok ? Status() : s.take_error();
}

Status Solver::propagate(uint64_t max_steps) {
  store_->log({.type = Assertion::kPropagate});
  return store_->propagate(max_steps);
}
Status Solver::check_fixed_point() { return store_->check_fixed_point(); }
Mark Solver::mark() { return store_->mark(); }
void Solver::undo(Mark mark) { store_->undo(mark); }
void Solver::release(Mark mark) { store_->release(mark); }

core::Result<Solver> Solver::rebuild() const {
  Solver out;
  const Store& from = *store_;
  for (const LogEntry& e : from.log_) {
    Status status;
    switch (e.type) {
      case Assertion::kCell: out.new_cell(KindSet(e.payload)); break;
      case Assertion::kName: out.set_name(CellId{e.a}, from.names_[e.payload]); break;
      case Assertion::kFact: out.new_fact(from.facts_[e.a].location, from.facts_[e.a].text); break;
      case Assertion::kScope: out.new_scope(); break;
      case Assertion::kKind:
        status = out.assert_kind(CellId{e.a}, KindSet(e.payload), FactId{e.fact});
        break;
      case Assertion::kType:
        status = out.assert_type(CellId{e.a}, *from.types_[e.payload], FactId{e.fact});
        break;
      case Assertion::kInterval:
        status = out.assert_interval(CellId{e.a},
                                     *static_cast<const Interval*>(from.extras_[e.payload].get()),
                                     FactId{e.fact});
        break;
      case Assertion::kShape:
        status = out.assert_shape(CellId{e.a}, from.templates_[e.payload], ScopeId{e.b},
                                  FactId{e.fact}, e.flag);
        break;
      case Assertion::kValue:
        status = out.assert_value(CellId{e.a}, from.hosts_[e.payload], FactId{e.fact});
        break;
      case Assertion::kItems: {
        std::vector<CellId> items;
        for (uint32_t i = 0; i < e.count; ++i) items.push_back(CellId{from.lists_[e.payload + i]});
        status = out.assert_items(CellId{e.a}, items, e.flag, FactId{e.fact});
        break;
      }
      case Assertion::kUnify: status = out.unify(CellId{e.a}, CellId{e.b}, FactId{e.fact}); break;
      case Assertion::kRule: {
        const auto& rule = from.logged_rules_[e.payload];
        status = out.add_rule(rule.op, *rule.rule, rule.given, FactId{e.fact});
        break;
      }
      case Assertion::kPropagate: status = out.propagate(); break;
    }
    if (!status.ok()) return status;
  }
  return out;
}

// --- queries ----------------------------------------------------------------------------------

KindSet Solver::kinds(CellId cell) const { return store_->kinds(cell.index); }
Type Solver::type(CellId cell) const {
  const Type* stated = store_->type(cell.index);
  return stated == nullptr ? Type(kinds(cell)) : intersect(*stated, kinds(cell));
}
bool Solver::same_cell(CellId a, CellId b) const {
  return store_->cell_root(a.index) == store_->cell_root(b.index);
}
std::optional<int> Solver::rank(CellId cell) const {
  const uint32_t shape = store_->shape_if_any(cell.index);
  return shape == kNone ? std::nullopt : store_->rank(shape);
}

std::optional<std::vector<Dim>> Solver::shape(CellId cell) const {
  const uint32_t shape = store_->shape_if_any(cell.index);
  if (shape == kNone || !store_->rank(shape)) return std::nullopt;
  std::vector<Dim> out;
  for (const uint32_t d : store_->fixed_dims(shape)) out.push_back(*store_->expression(d));
  return out;
}

std::optional<std::vector<int64_t>> Solver::sizes(CellId cell) const {
  const uint32_t shape = store_->shape_if_any(cell.index);
  if (shape == kNone || !store_->rank(shape)) return std::nullopt;
  std::vector<int64_t> out;
  for (const uint32_t d : store_->fixed_dims(shape)) {
    const auto size = store_->size(d);
    if (!size) return std::nullopt;
    out.push_back(*size);
  }
  return out;
}

ShapeView Store::shape_view(const Dims& dims) {
  ShapeView out;
  out.variadic = !dims.fixed();
  out.variadic_id = dims.seq;
  if (out.variadic) out.variadic_name = seq_name(dims.seq);
  for (const uint32_t d : dims.prefix) out.prefix.push_back(*expression(d));
  for (const uint32_t d : dims.suffix) out.suffix.push_back(*expression(d));
  return out;
}

std::vector<ShapeView> Solver::representations(CellId cell) const {
  std::vector<ShapeView> out;
  const uint32_t shape = store_->shape_if_any(cell.index);
  const int count = shape == kNone ? 0 : store_->view_count(shape);
  for (int i = 0; i < count; ++i) out.push_back(store_->shape_view(store_->view(shape, i)));
  if (out.empty()) {
    ShapeView unknown;
    unknown.variadic = true;
    unknown.variadic_id = (1u << 31) | (shape == kNone ? cell.index : shape);
    out.push_back(unknown);
  }
  return out;
}

ShapeView Solver::shape_view(CellId cell) const {
  std::vector<ShapeView> all = representations(cell);
  return *std::max_element(all.begin(), all.end(), [](const ShapeView& a, const ShapeView& b) {
    return a.variadic != b.variadic ? a.variadic : a.min_rank() < b.min_rank();
  });
}

bool Solver::has_shape(CellId cell) const {
  const uint32_t shape = store_->shape_if_any(cell.index);
  return shape != kNone && (store_->view_count(shape) > 0 || store_->ranks(shape) != kAllRanks);
}

uint16_t Solver::possible_ranks(CellId cell) const {
  const uint32_t shape = store_->shape_if_any(cell.index);
  return shape == kNone ? kAllRanks : store_->ranks(shape);
}

std::optional<HostValue> Solver::value(CellId cell) const { return store_->value(cell.index); }
bool Solver::is_value_known(CellId cell) const {
  return store_->known_value(cell.index).has_value();
}

std::string Solver::limits(CellId cell) const {
  const Store& s = *store_;
  const CellRecord& record = s.cells_[s.cell_root(cell.index)];
  return record.tag == CellRecord::Tag::kInt ? s.limits(record.value) : "";
}

std::optional<std::vector<CellId>> Solver::items(CellId cell) {
  const auto items = store_->items(cell.index);
  if (!items) return std::nullopt;
  std::vector<CellId> out;
  for (const uint32_t item : *items) out.push_back(CellId{item});
  return out;
}

std::optional<Dim> Solver::int_value(CellId cell) const {
  const auto value = store_->value(cell.index);
  if (!value) return std::nullopt;
  if (value->is_int()) return store_->table().constant(value->as_int());
  if (value->is_symbolic()) return Dim::expression(value->as_symbolic().expr);
  return std::nullopt;
}

std::vector<int64_t> Solver::possible_values(Dim dim) const {
  const Dim now = store_->normal_form(dim);
  if (now.known() || !store_->table().is_symbol(now)) return {};
  const Possible* possible = store_->possible(store_->symbol_dim(now));
  if (possible == nullptr) return {};
  return {possible->values, possible->values + possible->count};
}

Dim Solver::resolve(Dim dim) const { return store_->normal_form(dim); }
DimTable& Solver::dims() { return store_->table(); }
const DimTable& Solver::dims() const { return store_->table(); }
std::string Solver::print_shape(CellId cell, ShapeNames& names) const {
  return store_->print_shape(cell.index, names);
}
std::string Solver::print_shape(CellId cell) const {
  ShapeNames names;
  return store_->print_shape(cell.index, names);
}
std::string Solver::print_value(CellId cell) const {
  ShapeNames names;
  return store_->print_value_at(cell.index, 0, names);
}

const Conflict& Solver::conflict() const { return store_->conflict_; }

Reason Solver::fact(FactId fact) const {
  const FactRecord& record = store_->facts_[fact.index];
  return {record.text, record.location, {}, 0};
}

std::vector<FactId> Solver::facts_behind(CellId cell) const {
  std::vector<FactId> out;
  for (const uint32_t fact : store_->facts_behind_cell(cell.index)) out.push_back(FactId{fact});
  return out;
}

std::vector<Reason> Solver::why(CellId cell) const { return store_->why_cell(cell.index); }
std::vector<Reason> Solver::why_dim(CellId cell, int axis) const {
  const uint32_t shape = store_->shape_if_any(cell.index);
  if (shape == kNone || !store_->rank(shape)) return {};
  const DimList dims = store_->fixed_dims(shape);
  const int rank = static_cast<int>(dims.size());
  if (axis < -rank || axis >= rank) return {};
  return store_->why_dim(dims[static_cast<size_t>(axis < 0 ? axis + rank : axis)]);
}

std::string Solver::dump() const { return store_->dump(); }

std::string Solver::facts() const {
  ShapeNames names;
  std::string out;
  for (uint32_t cell = 0; cell < store_->cells_.size(); ++cell) {
    const uint32_t name = store_->cells_[cell].name;
    if (name == kNone || store_->names_[name].empty()) continue;
    out += store_->names_[name] + ": " + to_string(store_->kinds(cell));
    if (store_->is_tensor(cell)) out += " " + store_->print_shape(cell, names);
    if (store_->has_value(cell)) out += " = " + store_->print_value_at(cell, 0, names);
    out += "\n";
  }
  return out;
}

uint64_t Solver::steps() const { return store_->steps_; }
size_t Solver::cell_count() const { return store_->cells_.size(); }

// --- dump -------------------------------------------------------------------------------------

namespace {

/// The words of a line each, with a blank behind.
class DumpLines {
 public:
  template <class... Parts>
  void operator()(const Parts&... parts) {
    ((text_ += fmt::format("{} ", parts)), ...);
    text_ += '\n';
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string Store::dump() const { return dump_records() + dump_pools(); }

std::string Store::dump_records() const {
  DumpLines line;
  for (const CellRecord& r : cells_) {
    line("cell", r.parent, r.size, r.kinds.bits(), r.type, r.shape, static_cast<int>(r.tag),
         r.is_list, r.spreads, r.value, r.length, r.watch, r.watch_end, r.event, r.name, r.stamp);
  }
  for (const ShapeRecord& r : shapes_) {
    line("shape", r.parent, r.size, r.reprs[0], r.reprs[1], r.reprs[2], r.reprs[3], int{r.count},
         r.ranks, r.watch, r.watch_end, r.event, r.stamp);
  }
  for (const SeqRecord& r : seqs_) {
    line("seq", r.bound, r.name, r.size, r.ranks, r.watch, r.watch_end, r.event, r.stamp);
  }
  for (const DimRecord& r : dims_) {
    line("dim", r.parent, r.size, r.value, r.known, r.is_size, r.has_definition,
         r.definition.bits(), r.possible, r.bounds, r.origin, r.edge_a, r.edge_b, r.edge_event,
         r.watch, r.watch_end, r.event, r.stamp);
  }
  for (const Propagator& p : propagators_) {
    line("relation", p.args, p.count, p.dims, p.done, p.rule, p.extra, p.data, p.stamp);
  }
  for (const RuleRecord& r : rules_) {
    line("rule", r.op, r.fact, r.bindings, r.binding_count, r.scope);
  }
  for (const FactRecord& f : facts_) line("fact", core::to_string(f.location), f.text);
  for (const uint32_t scope : scopes_) line("scope", scope);
  for (const LogEntry& e : log_) {
    line("log", static_cast<int>(e.type), e.a, e.b, e.fact, e.payload, e.count, e.flag);
  }
  return std::move(line).text();
}

std::string Store::dump_pools() const {
  DumpLines line;
  for (const Repr& r : reprs_) line("repr", r.begin, r.prefix, r.suffix, r.seq, r.previous);
  for (const uint32_t d : repr_dims_) line("repr_dim", d);
  for (const Watch& w : watches_) line("watch", w.target, int{w.type}, w.next);
  for (const uint32_t a : args_) line("arg", a);
  for (const HostValue& v : hosts_) line("host", core::to_string(v));
  for (const uint32_t c : lists_) line("item", c);
  for (const Possible& p : possible_) {
    for (int i = 0; i < p.count; ++i) line("possible", int{p.count}, p.values[i]);
  }
  for (const Bounds& b : bounds_) line("bounds", b.low, b.high);
  for (const auto& type : types_) line("type", to_string(*type));
  for (const Event& e : events_) {
    line("event", static_cast<int>(e.entity), e.by_fact, e.id, e.reason, e.previous, e.other);
  }
  line("extras", extras_.size(), "rules", logged_rules_.size());
  for (const Binding& b : bindings_) line("binding", b.name, b.cell.index);
  for (const ScopeEntry& e : scope_entries_)
    line("entry", e.name, static_cast<int>(e.entity), e.id, e.next);
  for (const std::string& n : names_) line("name", n);
  for (const auto& n : owned_names_) line("owned", *n);
  for (const uint32_t n : seq_names_) line("seq_name", n);
  for (const uint32_t d : symbol_dims_) line("symbol", d);
  for (const uint32_t d : owners_) line("owner", d);
  for (size_t i = queue_at_; i < queue_.size(); ++i) line("queue", queue_[i]);
  for (const uint32_t s : shape_queue_) line("shape_queue", s);
  line("steps", steps_, "templates", templates_.size());
  const DimTable::Size t = own_table_.size();
  line("table", t.expressions, t.atoms, t.symbols, t.unnamed, t.names, t.terms, t.factors);
  for (uint32_t i = 0; i < t.symbols; ++i) line(own_table_.name_of(own_table_.symbol_at(i)));
  return std::move(line).text();
}

}  // namespace mithril::infer
