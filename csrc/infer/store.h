// The derived store behind Solver and Forward: index arrays of cells, shapes, sequences and
// dimensions, a trail of overwritten records, events that say why, and the worklist. Internal:
// only infer/ includes it.
#pragma once
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "infer/ids.h"
#include "infer/kind.h"
#include "infer/rule.h"
#include "infer/small_vector.h"
#include "infer/solver.h"
#include "infer/type.h"

namespace mithril::infer {

inline constexpr uint32_t kNone = UINT32_MAX;

/// Ranks as bits 0 … 12; bit 13 stands for all larger ones.
using RankMask = uint16_t;
inline constexpr int kManyRanks = 13;
inline constexpr size_t kMostDims = 64;  // of a tensor, as NumPy has it
inline constexpr RankMask kAllRanks = (1u << 14) - 1;
constexpr RankMask rank_bit(size_t rank) {
  return static_cast<RankMask>(1u << (rank > kManyRanks ? kManyRanks : rank));
}
constexpr RankMask ranks_from(size_t least) {
  return static_cast<RankMask>(kAllRanks & ~(rank_bit(least) - 1u));
}
constexpr RankMask ranks_to(size_t most) {
  return most >= kManyRanks ? kAllRanks : static_cast<RankMask>((2u << most) - 1u);
}
/// Ranks after adding / removing n dims.
RankMask raise(RankMask mask, size_t n);
RankMask lower(RankMask mask, size_t n);
inline int least_rank(RankMask mask) { return std::countr_zero(mask); }
inline int most_rank(RankMask mask) { return 31 - std::countl_zero(static_cast<uint32_t>(mask)); }
/// Exactly one rank, and it is not "many".
inline bool is_one_rank(RankMask mask) {
  return std::has_single_bit(mask) && mask != rank_bit(kManyRanks);
}

struct CellRecord {
  enum class Tag : uint8_t { kUnknown, kHostValue, kInt, kItems };
  uint32_t parent = kNone;
  uint32_t size = 1;
  KindSet kinds = kAny;
  uint32_t type = kNone;  // types_ index
  uint32_t shape = kNone;
  Tag tag = Tag::kUnknown;
  bool is_list = false;
  bool spreads = false;    // a number in its place is a tensor of any shape
  uint32_t value = kNone;  // hosts_ index | dim id | lists_ index
  uint32_t length = 0;     // of items
  uint32_t watch = kNone, watch_end = kNone;
  uint32_t event = kNone;
  uint32_t name = kNone;
  uint32_t stamp = 0;
};

/// prefix dims, then any number (seq), then suffix dims; immutable once in the pool.
struct Repr {
  uint32_t begin = 0;
  uint16_t prefix = 0, suffix = 0;
  uint32_t seq = kNone;       // kNone: the rank is prefix (suffix is 0)
  uint32_t previous = kNone;  // what it was written from, for explanations
  bool fixed() const { return seq == kNone; }
  uint32_t count() const { return static_cast<uint32_t>(prefix) + suffix; }
};

struct ShapeRecord {
  static constexpr int kMost = 4;
  uint32_t parent = kNone;
  uint32_t size = 1;
  uint32_t reprs[kMost] = {kNone, kNone, kNone, kNone};
  uint8_t count = 0;
  RankMask ranks = kAllRanks;
  uint32_t watch = kNone, watch_end = kNone;
  uint32_t event = kNone;
  uint32_t stamp = 0;
};

struct SeqRecord {
  uint32_t bound = kNone;  // Repr
  uint32_t name = kNone;   // what the user calls it: index of owned_names_
  uint32_t size = 1;
  RankMask ranks = kAllRanks;
  uint32_t watch = kNone, watch_end = kNone;
  uint32_t event = kNone;
  uint32_t stamp = 0;
};

struct DimRecord {
  uint32_t parent = kNone;
  uint32_t size = 1;
  int64_t value = 0;
  bool known = false;
  bool is_size = false;  // must not be negative
  bool has_definition = false;
  Dim definition;             // of a class: its own symbol, or an expression
  uint32_t possible = kNone;  // possible_ index
  uint32_t bounds = kNone;    // bounds_ index
  uint32_t origin = kNone;    // the dim that was given the value
  // Proof forest: this root joined its parent because edge_a (here) equals edge_b (there).
  uint32_t edge_a = kNone, edge_b = kNone, edge_event = kNone;
  uint32_t watch = kNone, watch_end = kNone;
  uint32_t event = kNone;
  uint32_t stamp = 0;
};

enum class Outcome : uint8_t { kWait, kDone, kConflict };
struct Propagator;
using PropagateFn = Outcome (*)(Store&, const Propagator&);

struct Propagator {
  PropagateFn fn = nullptr;
  uint32_t args = 0;
  uint16_t count = 0;
  bool dims = false;  // args are dims, not cells
  bool done = false;
  uint32_t rule = kNone;
  uint32_t extra = kNone;  // closure, table …
  int64_t data = 0;
  uint32_t stamp = 0;
};

/// Says what changed of a cell, for those who wait for it.
using EventMask = uint8_t;
inline constexpr EventMask kKindEvents = 1, kFactEvents = 2;  // facts: shapes and values
inline constexpr EventMask kAllEvents = kKindEvents | kFactEvents;

enum class Entity : uint8_t { kCell, kShape, kSeq, kDim };

/// Something changed, and why. `other` is a merged entity of the same type.
struct Event {
  Entity entity;
  bool by_fact;
  uint32_t id;
  uint32_t reason;  // fact or propagator
  uint32_t previous;
  uint32_t other;
};

struct RuleRecord {
  std::string_view op;
  uint32_t fact = kNone;
  uint32_t bindings = 0, binding_count = 0;
  uint32_t scope = kNone;
};

struct FactRecord {
  core::Location location;
  std::string text;
};

enum class Assertion : uint8_t {
  kCell,
  kName,
  kFact,
  kScope,
  kKind,
  kType,
  kInterval,
  kShape,
  kValue,
  kItems,
  kUnify,
  kRule,
  kPropagate,
};
/// One entry of the log, the truth that the store is derived from.
struct LogEntry {
  Assertion type;
  uint32_t a = kNone, b = kNone, fact = kNone;
  uint32_t payload = kNone;
  uint32_t count = 0;
  bool flag = false;
};

struct Possible {
  uint8_t count = 0;
  int64_t values[8] = {};
  bool operator==(const Possible&) const = default;
};

/// A list of dims with its sequence, on the way to becoming a Repr.
struct Dims {
  DimList prefix;
  uint32_t seq = kNone;
  DimList suffix;
  bool fixed() const { return seq == kNone; }
  size_t count() const { return prefix.size() + suffix.size(); }
};

class Store {
 public:
  Store();
  /// A scratch for one rule at a time over dims of `table`: no trail, no events, no watches.
  void start_forward(DimTable& table);
  bool forward() const { return forward_; }
  DimTable& table() { return *table_; }
  std::unique_ptr<Store> clone() const;

  // --- entities (store.cc) ------------------------------------------------------------------
  uint32_t new_cell(KindSet kinds);
  uint32_t new_dim();
  uint32_t new_dim(int64_t value);
  uint32_t new_dim_of(Dim expression);
  uint32_t new_seq();
  uint32_t new_shape();
  uint32_t cell_root(uint32_t cell) const;
  uint32_t shape_root(uint32_t shape) const;
  uint32_t dim_root(uint32_t dim) const;

  // --- kinds (cells.cc) -----------------------------------------------------------------------
  KindSet kinds(uint32_t cell) const { return cells_[cell_root(cell)].kinds; }
  bool narrow(uint32_t cell, KindSet kinds);
  bool is_tensor(uint32_t cell) const { return kinds(cell).is_tensor(); }
  bool unify_cells(uint32_t a, uint32_t b);
  /// Gives what is stated of a cell beyond its kinds; null where nothing is.
  const Type* type(uint32_t cell) const;
  bool narrow_type(uint32_t cell, const Type& type);
  bool narrow_interval(uint32_t cell, const Interval& interval);

  // --- dims (dims.cc) -------------------------------------------------------------------------
  std::optional<int64_t> size(uint32_t dim) const;
  bool is_known(uint32_t dim) const { return dims_[dim_root(dim)].known; }
  bool assign(uint32_t dim, int64_t value);
  bool unify_dims(uint32_t a, uint32_t b);
  bool must_be_size(uint32_t dim);
  /// "in [1, 8]", "10 or 11": what an open size may be, where that says anything; or "".
  std::string limits(uint32_t dim) const;
  bool same_dim(uint32_t a, uint32_t b) const;  // for sure equal
  bool same_class(uint32_t a, uint32_t b) const { return dim_root(a) == dim_root(b); }
  bool narrow_values(uint32_t dim, Possible values);
  const Possible* possible(uint32_t dim) const;
  bool narrow_bounds(uint32_t dim, Bounds bounds);
  Bounds bounds(uint32_t dim) const;
  /// Bounds an expression by what is known of its symbols.
  Bounds bounds_of(Dim expression) const;
  bool may_be(uint32_t dim, int64_t value) const;
  /// The dim as an expression; the solver makes a symbol for an unknown one, forward has none.
  std::optional<Dim> expression(uint32_t dim);
  /// The same without making symbols.
  std::optional<Dim> expression_if_any(uint32_t dim) const;
  /// dim == expression, now and for ever: `false` on conflict, otherwise solves what it can.
  bool define(uint32_t dim, Dim expression);
  /// difference == 0: solves what it can; false on conflict.
  bool solve_zero(Dim difference);
  bool is_size(uint32_t dim) const {
    const DimRecord& r = dims_[dim_root(dim)];
    return r.is_size || (forward_ && r.has_definition);
  }
  Dim normal_form(Dim expression);
  /// The unknown that a symbol of the solver's own table stands for.
  uint32_t symbol_dim(Dim symbol);
  /// The error text's name for it.
  std::string print_dim(uint32_t dim);

  // --- shapes (shapes.cc) ---------------------------------------------------------------------
  /// The shape of a tensor cell, made when it has none.
  uint32_t shape(uint32_t cell);
  uint32_t shape_if_any(uint32_t cell) const;
  bool unify_shapes(uint32_t a, uint32_t b);
  bool constrain(uint32_t shape, const Dims& dims);
  bool narrow_ranks(uint32_t shape, RankMask mask);
  /// Exactly that rank: its dims exist afterwards, whether or not a mask can tell it.
  bool set_rank(uint32_t shape, size_t rank);
  RankMask ranks(uint32_t shape) const { return shapes_[shape_root(shape)].ranks; }
  std::optional<int> rank(uint32_t shape) const;
  /// All dims; the rank must be known.
  DimList fixed_dims(uint32_t shape) const;
  /// The i-th dim from the right / left; kNone if nothing shows it. With `make`, a dim that must
  /// exist (least rank) is made.
  uint32_t dim_from_right(uint32_t shape, size_t i, bool make) {
    return dim_from(End::kRight, shape, i, make);
  }
  uint32_t dim_from_left(uint32_t shape, size_t i, bool make) {
    return dim_from(End::kLeft, shape, i, make);
  }
  /// A representation with that many dims at each end at least, where the rank is open and has room
  /// for both; nullopt where none can be shown.
  std::optional<Dims> both_ends(uint32_t shape, size_t left, size_t right);
  /// One representation: dims from the left, a sequence, dims from the right.
  Dims view(uint32_t shape, int which = 0) const;
  int view_count(uint32_t shape) const;
  bool normalize_shape(uint32_t shape);
  std::string print_shape(uint32_t cell);
  std::string print_shape(uint32_t cell, ShapeNames& names);
  ShapeView shape_view(const Dims& dims);
  /// "lead" of ("lead", ...), or "".
  std::string_view seq_name(uint32_t seq) const;
  /// First come, first served.
  void name_seq(uint32_t seq, uint32_t owned_name);

  // --- values (cells.cc) ---------------------------------------------------------------------
  bool set_value(uint32_t cell, const core::HostValue& value);
  bool set_items(uint32_t cell, std::span<const uint32_t> items, bool is_list);
  /// From now on a number that is the value of the tensor leaves its shape open.
  void let_number_spread(uint32_t cell);
  bool set_int(uint32_t cell, uint32_t dim);
  /// Complete value; integers that are expressions as SymbolicInt.
  std::optional<core::HostValue> value(uint32_t cell);
  /// Complete and free of symbols.
  std::optional<core::HostValue> known_value(uint32_t cell);
  bool has_value(uint32_t cell) const { return cells_[cell_root(cell)].tag != kUnknownTag; }
  /// A dim of that size: of an int, known or in symbols.
  uint32_t dim_of_int(const core::HostValue& value);
  /// The dim of an integer cell; kNone if it is no integer for sure.
  uint32_t int_dim(uint32_t cell);
  /// Items of a tuple or list cell (copied), empty optional if not known to have a length.
  std::optional<DimList> items(uint32_t cell);
  std::string print_value(uint32_t cell);

  // --- rules and relations (store.cc) ---------------------------------------------------------
  uint32_t new_rule(std::string_view op, std::span<const Binding> bindings, uint32_t fact);
  uint32_t find_binding(uint32_t rule, std::string_view name) const;
  std::string_view binding_name(uint32_t rule, uint32_t cell) const;
  uint32_t scope_dim(uint32_t scope, std::string_view name);
  uint32_t scope_seq(uint32_t scope, std::string_view name);
  uint32_t scope_cell(uint32_t scope, std::string_view name);
  uint32_t new_scope();
  /// `events`: what may let it make progress. One that reads kinds alone says so, and sleeps while
  /// shapes and values become known.
  void post(uint32_t rule, PropagateFn fn, std::span<const uint32_t> args, bool dims = false,
            int64_t data = 0, uint32_t extra = kNone, EventMask events = kAllEvents);
  void post(uint32_t rule, PropagateFn fn, std::initializer_list<uint32_t> args, bool dims = false,
            int64_t data = 0, uint32_t extra = kNone, EventMask events = kAllEvents) {
    post(rule, fn, std::span<const uint32_t>(args.begin(), args.size()), dims, data, extra, events);
  }
  void watch_dim(uint32_t dim, uint32_t propagator);
  uint32_t arg(const Propagator& p, uint32_t i) const { return args_[p.args + i]; }
  uint32_t running() const { return running_; }
  uint32_t rule_of(uint32_t propagator) const { return propagators_[propagator].rule; }
  uint32_t propagator_id(const Propagator& p) const {
    return static_cast<uint32_t>(&p - propagators_.data());
  }
  RuleRecord& rule(uint32_t id) { return rules_[id]; }
  std::string_view op(const Propagator& p) const {
    return p.rule == kNone ? std::string_view() : rules_[p.rule].op;
  }
  /// "left: [2, 3]" with the rule's name of the cell.
  std::string describe(uint32_t rule, uint32_t cell);
  template <class T>
  uint32_t add_extra(std::shared_ptr<T> value) {
    extras_.push_back(std::move(value));
    return static_cast<uint32_t>(extras_.size() - 1);
  }
  template <class T>
  const T& extra(const Propagator& p) const {
    return *static_cast<const T*>(extras_[p.extra].get());
  }

  // --- failing --------------------------------------------------------------------------------
  bool failed() const { return failed_; }
  /// Records the error unless there is one; always gives kConflict.
  Outcome conflict(core::Error error);
  template <class... Args>
  Outcome conflict(core::Code code, fmt::format_string<Args...> format, Args&&... args) {
    failed_ = true;
    if (error_) return Outcome::kConflict;
    const auto number = static_cast<int>(code);
    const auto kind = number < 200   ? core::ErrorKind::kShape
                      : number < 300 ? core::ErrorKind::kDType
                                     : core::ErrorKind::kValue;
    return conflict(core::fail(kind, code, format, std::forward<Args>(args)...));
  }
  /// In place of a less telling error that was met on the way.
  void replace_error(core::Error error) {
    if (error_ && error_->code == core::Code::kOverflow) return;
    error_.reset();
    conflict(std::move(error));
  }
  /// Tells which cells an error is about: their facts are listed. Called after conflict().
  void blame(std::initializer_list<uint32_t> cells);
  /// Two known sizes that would be one; the first clash of a failure counts.
  void clash(uint32_t dim, uint32_t other, int64_t value, int64_t other_value);
  /// A number that the dim may not be; the first of a failure counts.
  void refuse(uint32_t dim, std::string got);
  void refuse(Conflict::Refused refused);
  core::Status take_error();

  // --- running (store.cc) -----------------------------------------------------------------------
  core::Status propagate(uint64_t max_steps);
  core::Status check_fixed_point();
  bool run_forward();

  // --- trail (trail.cc) -------------------------------------------------------------------------
  Mark mark();
  void undo(Mark mark);
  void release(Mark mark);
  std::string dump() const;

  // --- explanations (explain.cc) -----------------------------------------------------------------
  std::vector<Reason> why_cell(uint32_t cell) const;
  std::vector<Reason> why_dim(uint32_t dim) const;
  std::vector<Reason> reasons(const std::vector<uint32_t>& facts) const;
  std::vector<uint32_t> facts_behind_cell(uint32_t cell) const;
  std::vector<uint32_t> facts_behind_dim(uint32_t dim) const;

  // --- log (solver.cc)
  // ------------------------------------------------------------------------------
  uint32_t new_fact(core::Location location, std::string text);
  void log(LogEntry entry) { log_.push_back(entry); }

  static constexpr auto kUnknownTag = CellRecord::Tag::kUnknown;

 private:
  friend class Solver;
  friend class Forward;
  friend class Explainer;
  friend class RuleBuilder;

  enum : uint8_t { kWatchPropagator, kWatchCell, kWatchShape, kWatchStructure };
  /// Names who is told of a change: a propagator; the watchers of a cell or of a shape; a shape
  /// whose representations have to be written anew, and its watchers.
  struct Watch {
    uint32_t target;
    uint8_t type;
    EventMask events;
    uint32_t next;
  };
  struct ScopeEntry {
    std::string_view name;
    Entity entity;
    uint32_t id;
    uint32_t next;
  };
  struct LoggedRule {
    const Rule* rule;
    std::string_view op;
    std::vector<Binding> given;
    std::vector<std::shared_ptr<const core::HostValue>> values;  // what `given` points to
  };
  struct Frame {
    uint32_t stamp;
    size_t cells, shapes, seqs, dims, propagators, rules, facts, scopes, log;
    size_t reprs, repr_dims, watches, args, hosts, lists, possible, bounds, types, events, extras,
        bindings, scope_entries, names, templates, owned_names, seq_names, symbols, owners,
        logged_rules;
    size_t cell_trail, shape_trail, seq_trail, dim_trail, propagator_trail, watch_trail,
        scope_trail, owner_trail, symbol_trail;
    DimTable::Size table;
    std::vector<uint32_t> queue, shape_queue;
    uint64_t steps;
  };

  CellRecord& edit_cell(uint32_t i);
  ShapeRecord& edit_shape(uint32_t i);
  SeqRecord& edit_seq(uint32_t i);
  DimRecord& edit_dim(uint32_t i);
  Propagator& edit_propagator(uint32_t i);
  void record_event(Entity entity, uint32_t id, uint32_t& event, uint32_t other = kNone);
  void append_watch(uint32_t& head, uint32_t& end, uint32_t target, uint8_t type,
                    EventMask events = kAllEvents);
  void link_watch(uint32_t node, uint32_t next);
  void join_watches(uint32_t& head, uint32_t& end, uint32_t other, uint32_t other_end);
  /// Wakes what a list from `watch` to `end` reaches.
  void wake(uint32_t watch, uint32_t end, EventMask events);
  uint32_t scope_entry(uint32_t scope, std::string_view name, Entity entity);
  void fail_by(const Propagator& p);
  void explain_error(core::Error& error);
  void describe_conflict();
  /// Two cells as they are before they become one, and how far the events had come.
  struct Ends {
    uint32_t roots[2], shapes[2];
    CellRecord cells[2];
    ShapeRecord shape_records[2];
    std::string texts[2];
    uint32_t events;
  };
  Ends ends(uint32_t a, uint32_t b);
  void describe_ends(const Ends& ends);
  std::string fact_text(uint32_t cell);
  Conflict::Side side(uint32_t cell, const std::vector<uint32_t>& facts);
  uint32_t cell_with(uint32_t dim) const;
  std::string_view size_name(uint32_t rule, uint32_t dim) const;
  void wake_cell(uint32_t cell);
  void wake_shape(uint32_t shape);
  void enqueue(uint32_t propagator);
  void enqueue_shape(uint32_t shape);
  bool run(uint32_t propagator);
  bool settle_shapes();

  enum class End : uint8_t { kLeft, kRight };
  uint32_t dim_from(End end, uint32_t shape, size_t i, bool make);
  uint32_t resolve_seq(uint32_t seq) const;
  uint32_t store_repr(const Dims& dims);
  Dims expand(const Repr& repr) const;
  bool unify_reprs(Dims a, Dims b);
  bool bind_seq(uint32_t seq, const Dims& dims);
  bool narrow_seq(uint32_t seq, RankMask mask);
  bool meet_reprs(uint32_t shape, const Dims* added);
  void set_reprs(uint32_t shape, std::span<const Dims> reprs);
  bool merge_value(uint32_t cell, const CellRecord& from,
                   std::vector<std::pair<uint32_t, uint32_t>>& pairs);
  std::optional<core::HostValue> value_at(uint32_t cell, int depth, bool symbols);
  /// The value with what is known of its symbols by now; nullopt: one is left and none may be.
  std::optional<core::HostValue> known_parts(const core::HostValue& value, bool symbols);
  /// Tells whether two values are equal, or may be: sizes in them are equal from now on.
  bool unify_values(const core::HostValue& a, const core::HostValue& b);
  std::string print_value_at(uint32_t cell, int depth, ShapeNames& names);
  void give_shape(uint32_t cell, uint32_t shape);
  void set_owner(Dim expression, uint32_t dim);
  uint32_t owner_of(Dim expression) const;
  bool is_own_symbol(uint32_t root) const;
  bool set_definition(uint32_t root, Dim expression);
  bool solve_floor(Dim difference);
  bool preferred(Dim a, Dim b) const;
  bool must_be_size_like(uint32_t a, uint32_t b);
  std::string dump_records() const;
  std::string dump_pools() const;
  bool refused_value(uint32_t known, uint32_t open);
  /// The two members are what was united; `definition` is that of both, where they differ.
  bool join_classes(uint32_t root, uint32_t lost_root, uint32_t member, uint32_t lost_member,
                    std::optional<Dim> definition);
  bool settle_domain(uint32_t dim);
  bool narrow_by(uint32_t dim, const DimRecord& other);
  bool name_dim(uint32_t dim, std::string_view name);

  bool forward_ = false;
  DimTable own_table_;
  DimTable* table_ = nullptr;

  std::vector<CellRecord> cells_;
  std::vector<ShapeRecord> shapes_;
  std::vector<SeqRecord> seqs_;
  std::vector<DimRecord> dims_;
  std::vector<Propagator> propagators_;
  std::vector<RuleRecord> rules_;
  std::vector<FactRecord> facts_;
  std::vector<uint32_t> scopes_;  // head of each scope's entries
  std::vector<LogEntry> log_;

  std::vector<Repr> reprs_;
  std::vector<uint32_t> repr_dims_;
  std::vector<Watch> watches_;
  std::vector<uint32_t> args_;
  std::vector<core::HostValue> hosts_;
  std::vector<uint32_t> lists_;
  std::vector<Possible> possible_;
  std::vector<Bounds> bounds_;
  std::vector<std::shared_ptr<const Type>> types_;
  std::vector<Event> events_;
  std::vector<std::shared_ptr<const void>> extras_;
  std::vector<Binding> bindings_;
  std::vector<ScopeEntry> scope_entries_;
  std::vector<std::string> names_;
  std::vector<ShapeTemplate> templates_;
  std::vector<LoggedRule> logged_rules_;
  std::vector<std::shared_ptr<const std::string>> owned_names_;  // names of user scopes
  std::vector<uint32_t> seq_names_;                              // those that a sequence has
  std::vector<uint32_t> symbol_dims_;  // dim of each symbol of the solver's own table
  std::vector<uint32_t> owners_;       // dim that is this expression, by expression id

  std::vector<std::pair<uint32_t, CellRecord>> cell_trail_;
  std::vector<std::pair<uint32_t, ShapeRecord>> shape_trail_;
  std::vector<std::pair<uint32_t, SeqRecord>> seq_trail_;
  std::vector<std::pair<uint32_t, DimRecord>> dim_trail_;
  std::vector<std::pair<uint32_t, Propagator>> propagator_trail_;
  std::vector<std::pair<uint32_t, uint32_t>> watch_trail_;  // next pointers
  std::vector<std::pair<uint32_t, uint32_t>> scope_trail_;
  std::vector<std::pair<uint32_t, uint32_t>> owner_trail_, symbol_trail_;
  std::vector<Frame> frames_;
  uint32_t stamp_ = 0, last_stamp_ = 0;

  std::vector<uint32_t> queue_;  // propagators, in order of waking
  std::vector<uint32_t> shape_queue_;
  size_t queue_at_ = 0;
  std::vector<uint8_t> queued_;        // by propagator
  std::vector<uint8_t> shape_queued_;  // by shape
  std::vector<uint32_t> pending_;      // forward: propagators that wait
  bool changed_ = false;
  uint64_t steps_ = 0;

  uint32_t bindings_made_ = 0;        // seqs bound so far: tells whether a unification did anything
  std::vector<uint32_t> wake_marks_;  // by cell: round of the last wake
  std::vector<uint32_t> shape_wake_marks_;  // by shape
  uint32_t wake_round_ = 0;
  ShapeNames error_names_;
  uint32_t running_ = kNone;    // propagator at work
  uint32_t asserting_ = kNone;  // fact being asserted
  bool failed_ = false;
  std::unique_ptr<core::Error> error_;
  std::vector<uint32_t> blamed_;
  struct Clash {
    uint32_t dims[2] = {kNone, kNone};  // the second may be a bare number
    int64_t values[2] = {0, 0};
    bool met = false;
  };
  Clash clash_;
  Conflict::Refused refused_;
  Conflict conflict_;
  struct Shown {
    uint32_t cell;
    std::string name, text;
    std::vector<uint32_t> facts;
  };
  std::vector<Shown> shown_before_;  // cells as they were before what failed; two: to be united
  uint32_t error_at_rule_ = kNone;
};

}  // namespace mithril::infer
