// Entities, watches, the worklist, posting and running relations.
#include "infer/store.h"

#include <algorithm>

#include "core/interrupt.h"

namespace mithril::infer {

constexpr int64_t kStepsBetweenPolls = 1000;  // some hundred nanoseconds each

RankMask raise(RankMask mask, size_t n) {
  if (n > kManyRanks) n = kManyRanks;
  const uint32_t wide = static_cast<uint32_t>(mask) << n;
  const bool many = (wide >> kManyRanks) != 0;
  return static_cast<RankMask>((wide & (rank_bit(kManyRanks) - 1u)) |
                               (many ? rank_bit(kManyRanks) : 0u));
}

RankMask lower(RankMask mask, size_t n) {
  if (n == 0) return mask;
  const bool many = (mask & rank_bit(kManyRanks)) != 0;
  const uint32_t rest = n > kManyRanks ? 0u : static_cast<uint32_t>(mask) >> n;
  return static_cast<RankMask>(rest |
                               (many ? ranks_from(n >= kManyRanks ? 0 : kManyRanks - n) : 0u));
}

Store::Store() : table_(&own_table_) {}

void Store::start_forward(DimTable& table) {
  forward_ = true;
  table_ = &table;
  cells_.clear();
  shapes_.clear();
  seqs_.clear();
  dims_.clear();
  propagators_.clear();
  rules_.clear();
  scopes_.clear();
  reprs_.clear();
  repr_dims_.clear();
  watches_.clear();
  args_.clear();
  hosts_.clear();
  lists_.clear();
  possible_.clear();
  bounds_.clear();
  types_.clear();
  extras_.clear();
  bindings_.clear();
  scope_entries_.clear();
  queue_.clear();
  queue_at_ = 0;
  shape_queue_.clear();
  shape_queued_.clear();
  pending_.clear();
  failed_ = false;
  error_.reset();
  blamed_.clear();
  clash_ = {};
  running_ = kNone;
}

std::unique_ptr<Store> Store::clone() const {
  auto copy = std::make_unique<Store>();
  copy->own_table_ = own_table_;
  copy->cells_ = cells_;
  copy->shapes_ = shapes_;
  copy->seqs_ = seqs_;
  copy->dims_ = dims_;
  copy->propagators_ = propagators_;
  copy->rules_ = rules_;
  copy->facts_ = facts_;
  copy->scopes_ = scopes_;
  copy->log_ = log_;
  copy->reprs_ = reprs_;
  copy->repr_dims_ = repr_dims_;
  copy->watches_ = watches_;
  copy->args_ = args_;
  copy->hosts_ = hosts_;
  copy->lists_ = lists_;
  copy->possible_ = possible_;
  copy->bounds_ = bounds_;
  copy->types_ = types_;
  copy->events_ = events_;
  copy->extras_ = extras_;
  copy->bindings_ = bindings_;
  copy->scope_entries_ = scope_entries_;
  copy->names_ = names_;
  copy->templates_ = templates_;
  copy->logged_rules_ = logged_rules_;
  copy->owned_names_ = owned_names_;
  copy->seq_names_ = seq_names_;
  copy->symbol_dims_ = symbol_dims_;
  copy->owners_ = owners_;
  copy->queue_ = queue_;
  copy->queue_at_ = queue_at_;
  copy->queued_ = queued_;
  copy->shape_queue_ = shape_queue_;
  copy->shape_queued_ = shape_queued_;
  copy->steps_ = steps_;
  // Records keep their stamps: no mark stands in the copy, and later ones get new stamps.
  copy->stamp_ = 0;
  copy->last_stamp_ = last_stamp_;
  return copy;
}

// --- entities -------------------------------------------------------------------------------

uint32_t Store::new_cell(KindSet kinds) {
  CellRecord& record = cells_.emplace_back();
  record.kinds = kinds;
  record.stamp = stamp_;
  return static_cast<uint32_t>(cells_.size() - 1);
}

uint32_t Store::new_dim() {
  dims_.emplace_back().stamp = stamp_;
  return static_cast<uint32_t>(dims_.size() - 1);
}

uint32_t Store::new_dim(int64_t value) {
  const uint32_t dim = new_dim();
  DimRecord& record = dims_[dim];
  record.known = true;
  record.value = value;
  record.origin = dim;
  record_event(Entity::kDim, dim, record.event);
  return dim;
}

uint32_t Store::new_seq() {
  seqs_.emplace_back().stamp = stamp_;
  return static_cast<uint32_t>(seqs_.size() - 1);
}

uint32_t Store::new_shape() {
  shapes_.emplace_back().stamp = stamp_;
  shape_queued_.push_back(0);
  return static_cast<uint32_t>(shapes_.size() - 1);
}

uint32_t Store::cell_root(uint32_t cell) const {
  while (cells_[cell].parent != kNone) cell = cells_[cell].parent;
  return cell;
}
uint32_t Store::shape_root(uint32_t shape) const {
  while (shapes_[shape].parent != kNone) shape = shapes_[shape].parent;
  return shape;
}
uint32_t Store::dim_root(uint32_t dim) const {
  while (dims_[dim].parent != kNone) dim = dims_[dim].parent;
  return dim;
}

// --- events and watches -----------------------------------------------------------------------

void Store::record_event(Entity entity, uint32_t id, uint32_t& event, uint32_t other) {
  changed_ = true;
  if (forward_) return;
  const bool by_fact = running_ == kNone;
  events_.push_back({entity, by_fact, id, by_fact ? asserting_ : running_, event, other});
  event = static_cast<uint32_t>(events_.size() - 1);
}

void Store::append_watch(uint32_t& head, uint32_t& end, uint32_t target, uint8_t type,
                         EventMask events) {
  const auto node = static_cast<uint32_t>(watches_.size());
  watches_.push_back({target, type, events, kNone});
  if (head == kNone) {
    head = node;
  } else {
    link_watch(end, node);
  }
  end = node;
}

void Store::link_watch(uint32_t node, uint32_t next) {
  if (!frames_.empty() && node < frames_.back().watches) {
    watch_trail_.emplace_back(node, watches_[node].next);
  }
  watches_[node].next = next;
}

void Store::join_watches(uint32_t& head, uint32_t& end, uint32_t other, uint32_t other_end) {
  if (other == kNone) return;
  if (head == kNone) {
    head = other;
  } else {
    link_watch(end, other);
  }
  end = other_end;
}

void Store::wake(uint32_t watch, uint32_t end, EventMask events) {
  changed_ = true;
  if (watch == kNone) return;
  // Dims wake shapes, shapes wake cells, items wake their tuples: a walk with its own stack, each
  // cell and shape once (a tuple may contain itself, and the dims of a united shape name it often).
  SmallVector<uint64_t, 16> stack;
  const auto push = [&stack](uint32_t head, uint32_t tail) {
    if (head != kNone) stack.push_back((static_cast<uint64_t>(tail) << 32) | head);
  };
  ++wake_round_;
  if (wake_marks_.size() < cells_.size()) wake_marks_.resize(cells_.size(), 0);
  if (shape_wake_marks_.size() < shapes_.size()) shape_wake_marks_.resize(shapes_.size(), 0);
  const auto push_shape = [&](uint32_t shape) {
    if (shape_wake_marks_[shape] == wake_round_) return;
    shape_wake_marks_[shape] = wake_round_;
    push(shapes_[shape].watch, shapes_[shape].watch_end);
  };
  push(watch, end);
  while (!stack.empty()) {
    const uint64_t top = stack.back();
    stack.erase(stack.size() - 1);
    const auto last = static_cast<uint32_t>(top >> 32);
    for (auto node = static_cast<uint32_t>(top); node != kNone; node = watches_[node].next) {
      const Watch& w = watches_[node];
      switch (w.type) {
        case kWatchPropagator:
          if ((w.events & events) != 0) enqueue(w.target);
          break;
        case kWatchCell: {
          const uint32_t cell = cell_root(w.target);
          if (wake_marks_[cell] == wake_round_) break;
          wake_marks_[cell] = wake_round_;
          push(cells_[cell].watch, cells_[cell].watch_end);
          break;
        }
        case kWatchShape: push_shape(shape_root(w.target)); break;
        case kWatchStructure: {
          const uint32_t shape = shape_root(w.target);
          enqueue_shape(shape);
          push_shape(shape);
          break;
        }
        default: break;
      }
      if (node == last) break;
    }
  }
}

void Store::wake_cell(uint32_t cell) {
  const uint32_t root = cell_root(cell);
  wake(cells_[root].watch, cells_[root].watch_end, kFactEvents);
}
void Store::wake_shape(uint32_t shape) {
  const uint32_t root = shape_root(shape);
  wake(shapes_[root].watch, shapes_[root].watch_end, kFactEvents);
}

void Store::enqueue(uint32_t propagator) {
  if (queued_[propagator] || propagators_[propagator].done) return;
  queued_[propagator] = 1;
  queue_.push_back(propagator);
}

void Store::enqueue_shape(uint32_t shape) {
  if (shape_queued_[shape]) return;
  shape_queued_[shape] = 1;
  shape_queue_.push_back(shape);
}

void Store::watch_dim(uint32_t dim, uint32_t propagator) {
  if (forward_) return;
  DimRecord& record = edit_dim(dim_root(dim));
  append_watch(record.watch, record.watch_end, propagator, kWatchPropagator);
}

// --- rules ----------------------------------------------------------------------------------

uint32_t Store::new_rule(std::string_view op, std::span<const Binding> bindings, uint32_t fact) {
  RuleRecord record{op, fact, static_cast<uint32_t>(bindings_.size()),
                    static_cast<uint32_t>(bindings.size()), new_scope()};
  for (const Binding& binding : bindings)
    bindings_.push_back({binding.name, binding.cell, nullptr});
  rules_.push_back(record);
  return static_cast<uint32_t>(rules_.size() - 1);
}

uint32_t Store::find_binding(uint32_t rule, std::string_view name) const {
  const RuleRecord& record = rules_[rule];
  for (uint32_t i = 0; i < record.binding_count; ++i) {
    const Binding& binding = bindings_[record.bindings + i];
    if (binding.name == name) return binding.cell.index;
  }
  return kNone;
}

std::string_view Store::binding_name(uint32_t rule, uint32_t cell) const {
  if (rule == kNone) return {};
  const RuleRecord& record = rules_[rule];
  for (uint32_t i = 0; i < record.binding_count; ++i) {
    const Binding& binding = bindings_[record.bindings + i];
    if (binding.cell.index == cell) return binding.name;
  }
  return {};
}

uint32_t Store::new_scope() {
  scopes_.push_back(kNone);
  return static_cast<uint32_t>(scopes_.size() - 1);
}

uint32_t Store::scope_entry(uint32_t scope, std::string_view name, Entity entity) {
  for (uint32_t at = scopes_[scope]; at != kNone; at = scope_entries_[at].next) {
    if (scope_entries_[at].entity == entity && scope_entries_[at].name == name) {
      return scope_entries_[at].id;
    }
  }
  const uint32_t id = entity == Entity::kSeq   ? new_seq()
                      : entity == Entity::kDim ? new_dim()
                                               : new_cell(kAny);
  scope_entries_.push_back({name, entity, id, scopes_[scope]});
  if (!frames_.empty() && scope < frames_.back().scopes) {
    scope_trail_.emplace_back(scope, scopes_[scope]);
  }
  scopes_[scope] = static_cast<uint32_t>(scope_entries_.size() - 1);
  return id;
}
uint32_t Store::scope_dim(uint32_t scope, std::string_view name) {
  return scope_entry(scope, name, Entity::kDim);
}
uint32_t Store::scope_seq(uint32_t scope, std::string_view name) {
  return scope_entry(scope, name, Entity::kSeq);
}
uint32_t Store::scope_cell(uint32_t scope, std::string_view name) {
  return scope_entry(scope, name, Entity::kCell);
}

void Store::post(uint32_t rule, PropagateFn fn, std::span<const uint32_t> args, bool dims,
                 int64_t data, uint32_t extra, EventMask events) {
  if (failed_) return;
  Propagator p;
  p.fn = fn;
  p.args = static_cast<uint32_t>(args_.size());
  p.count = static_cast<uint16_t>(args.size());
  p.dims = dims;
  p.rule = rule;
  p.extra = extra;
  p.data = data;
  p.stamp = stamp_;
  const DimList kept(args);  // args may point into args_
  args_.insert(args_.end(), kept.begin(), kept.end());
  const auto id = static_cast<uint32_t>(propagators_.size());
  propagators_.push_back(p);
  if (forward_) {
    if (!run(id)) return;
    if (!propagators_[id].done) pending_.push_back(id);
    return;
  }
  queued_.push_back(0);
  for (const uint32_t target : kept) {
    if (dims) {
      DimRecord& record = edit_dim(dim_root(target));
      append_watch(record.watch, record.watch_end, id, kWatchPropagator);
    } else {
      CellRecord& record = edit_cell(cell_root(target));
      append_watch(record.watch, record.watch_end, id, kWatchPropagator, events);
    }
  }
  enqueue(id);
}

// --- running --------------------------------------------------------------------------------

bool Store::run(uint32_t id) {
  ++steps_;
  const uint32_t before = running_;
  running_ = id;
  const Propagator p = propagators_[id];  // posting moves the array
  const Outcome outcome = p.fn(*this, p);
  const bool ok = outcome != Outcome::kConflict && !failed_ && settle_shapes();
  if (!ok) {
    fail_by(p);
  } else if (outcome == Outcome::kDone) {
    edit_propagator(id).done = true;
  }
  running_ = before;
  return ok;
}

bool Store::settle_shapes() {
  for (size_t at = 0; at < shape_queue_.size(); ++at) {
    const uint32_t shape = shape_queue_[at];
    shape_queued_[shape] = 0;
    if (!normalize_shape(shape)) return false;
  }
  shape_queue_.clear();
  return true;
}

core::Status Store::propagate(uint64_t max_steps) {
  const uint64_t first = steps_;
  if (failed_) return take_error();
  if (!settle_shapes()) {
    failed_ = true;
    return take_error();
  }
  core::InterruptCounter interrupts(kStepsBetweenPolls);
  while (queue_at_ < queue_.size()) {
    if (interrupts.is_interrupted(1)) {
      conflict_ = {};
      return core::fail(core::ErrorKind::kInterrupted, core::Code::kInterrupted, "interrupted");
    }
    if (max_steps != 0 && steps_ - first >= max_steps) {
      conflict_ = {};
      return core::fail(core::ErrorKind::kUnsupported, core::Code::kUnsupported,
                        "inference: more than {} steps", max_steps);
    }
    const uint32_t next = queue_[queue_at_++];
    queued_[next] = 0;
    if (propagators_[next].done) continue;
    if (!run(next)) return take_error();
  }
  queue_.clear();
  queue_at_ = 0;
  return {};
}

core::Status Store::check_fixed_point() {
  MITHRIL_RETURN_IF_ERROR(propagate(0));
  const auto count = static_cast<uint32_t>(propagators_.size());
  for (uint32_t id = 0; id < count; ++id) {
    if (propagators_[id].done) continue;
    const size_t events = events_.size(), posted = propagators_.size();
    if (!run(id)) return take_error();
    if (events_.size() != events || propagators_.size() != posted) {
      return core::fail(core::ErrorKind::kInternal, core::Code::kInternal,
                        "inference: relation {} of '{}' still made progress at the fixed point", id,
                        op(propagators_[id]));
    }
  }
  return propagate(0);
}

bool Store::run_forward() {
  while (!pending_.empty() && !failed_) {
    changed_ = false;
    std::vector<uint32_t> again;
    again.swap(pending_);
    for (const uint32_t id : again) {
      if (!run(id)) return false;
      if (!propagators_[id].done) pending_.push_back(id);
    }
    if (!changed_) break;
  }
  return !failed_;
}

// --- failing --------------------------------------------------------------------------------

Outcome Store::conflict(core::Error error) {
  failed_ = true;
  if (!error_) error_ = std::make_unique<core::Error>(std::move(error));
  return Outcome::kConflict;
}

void Store::blame(std::initializer_list<uint32_t> cells) {
  if (blamed_.empty()) blamed_.assign(cells.begin(), cells.end());
}

void Store::clash(uint32_t dim, uint32_t other, int64_t value, int64_t other_value) {
  if (!clash_.met) clash_ = {{dim, other}, {value, other_value}, true};
}

void Store::refuse(uint32_t dim, std::string got) {
  failed_ = true;
  std::string allowed = forward_ ? "" : limits(dim);
  if (!allowed.empty()) refuse({print_dim(dim), std::move(allowed), std::move(got)});
}

void Store::refuse(Conflict::Refused refused) {
  if (refused_.allowed.empty()) refused_ = std::move(refused);
}

void Store::fail_by(const Propagator& p) {
  failed_ = true;
  if (!error_) {
    std::string got;
    if (!p.dims) {
      for (uint32_t i = 0; i < p.count; ++i) {
        got += (got.empty() ? "" : ", ") + describe(p.rule, arg(p, i));
      }
    }
    conflict(core::Code::kShapeConflict, "shapes are in conflict, got {}", got);
  }
  if (blamed_.empty() && !p.dims) {
    for (uint32_t i = 0; i < p.count; ++i) blamed_.push_back(arg(p, i));
  }
  if (error_at_rule_ == kNone) error_at_rule_ = p.rule;
}

std::string Store::describe(uint32_t rule, uint32_t cell) {
  std::string name(binding_name(rule, cell));
  const CellRecord& record = cells_[cell_root(cell)];
  if (name.empty() && record.name != kNone) name = names_[record.name];
  if (name.empty()) name = "a value";
  if (record.tag != kUnknownTag && !record.kinds.may_be_tensor()) {
    return name + ": " + print_value(cell);
  }
  if (!record.kinds.is_tensor()) return name + ": " + to_string(record.kinds);
  return name + ": " + print_shape(cell, error_names_);
}

core::Status Store::take_error() {
  if (!error_) {
    conflict(core::Code::kShapeConflict, "facts are in conflict");
  }
  core::Error error = std::move(*error_);
  error_.reset();
  if (error_at_rule_ != kNone && !rules_[error_at_rule_].op.empty()) {
    error.message = std::string(rules_[error_at_rule_].op) + ": " + error.message;
    const uint32_t fact = rules_[error_at_rule_].fact;
    if (fact != kNone) error.location = facts_[fact].location;
  } else if (asserting_ != kNone) {
    error.location = facts_[asserting_].location;
  }
  explain_error(error);
  failed_ = false;
  error_at_rule_ = kNone;
  blamed_.clear();
  clash_ = {};
  refused_ = {};
  shown_before_.clear();
  error_names_ = {};
  return error;
}

}  // namespace mithril::infer
