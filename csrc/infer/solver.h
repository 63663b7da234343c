// The solver: cells with kinds, shapes and values; facts asserted about them; relations between
// them run to a fixed point. Transactional, monotone, explainable, incremental (architecture 5).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/host_value.h"
#include "core/location.h"
#include "core/status.h"
#include "infer/dim.h"
#include "infer/ids.h"
#include "infer/kind.h"
#include "infer/type.h"

namespace mithril::infer {

class Rule;
class Store;

/// One place of a shape template.
struct TemplateItem {
  enum class Type : uint8_t { kSize, kSymbol, kUnknown, kVariadic };
  Type type = Type::kUnknown;
  int64_t size = 0;  // kSize
  std::string name;  // kSymbol, kVariadic; an unnamed variadic is a fresh one

  static TemplateItem of(int64_t size) { return {Type::kSize, size, {}}; }
  static TemplateItem symbol(std::string name) { return {Type::kSymbol, 0, std::move(name)}; }
  static TemplateItem unknown() { return {}; }
  static TemplateItem variadic(std::string name = "") {
    return {Type::kVariadic, 0, std::move(name)};
  }
  bool operator==(const TemplateItem&) const = default;
};
/// Represents what users write in set_shapes, IOKey(shape=…), Tensor types: at most one variadic.
using ShapeTemplate = std::vector<TemplateItem>;

/// Shows what is known of a shape: prefix · (any number of dims) · suffix.
struct ShapeView {
  std::vector<Dim> prefix;  // all dims when !variadic
  bool variadic = false;
  uint32_t variadic_id = 0;   // equal ids = the same unknown sequence
  std::string variadic_name;  // what the user calls it, or ""
  std::vector<Dim> suffix;

  size_t min_rank() const { return prefix.size() + suffix.size(); }
};

/// A name of an op's rule and the cell that stands for it.
struct Binding {
  std::string_view name;  // must outlive the solver: names of op blocks do
  CellId cell;
  const core::HostValue* value = nullptr;  // instead of a cell: an attribute, copied
};

/// A fact with where it came from, as `why` and errors list it.
using Reason = core::Error::Fact;

/// Names for unnamed dims (u1, u2 …) and variadics (V1, V2 …), by first appearance; use one
/// object for everything that is shown together.
class ShapeNames {
 public:
  std::string dim(const DimTable& table, Dim dim);
  std::string variadic(uint32_t id);
  void clear() {
    dims_.clear();
    variadics_.clear();
  }

 private:
  std::vector<uint32_t> dims_, variadics_;
};

/// Records what clashed, by ids: the model layer says it with the user's names and places.
struct Conflict {
  struct Side {
    CellId cell;
    std::string name;           // of the wire, or the op's name for it
    std::string text;           // its shape, else its kind, as it stood
    std::vector<FactId> facts;  // what that rests on, nearest first
  };
  FactId rule;      // of the op that met the clash; invalid when an assertion met it
  FactId asserted;  // what was being said; invalid when relations met the clash later
  CellId about;     // of an assertion
  std::string said;
  bool united = false;  // two wires were to be one: the sides
  std::vector<Side> sides;
  std::string size_name;       // the op's name of the size that clashes, or ""
  std::vector<int64_t> sizes;  // its two values
  struct Refused {
    std::string size;     // as the texts call it: "u1"
    std::string allowed;  // "in [1, 8]", "10 or 11"; "" if nothing was refused
    std::string got;
  };
  Refused refused;   // a number that is none of those that the size may be
  ShapeNames names;  // of the open sizes in the texts of the sides
};

/// Tells how far to go back; only the latest mark that still stands may be undone or released.
struct Mark {
  uint32_t depth = 0;
};

/// One per outermost model. Not thread-safe. Assertions and rules return a failed Status on a
/// conflict that they meet at once; the rest is found by propagate(). After any failure the store
/// is in between: call undo() with a mark made before.
class Solver {
 public:
  Solver();
  ~Solver();
  Solver(Solver&&) noexcept;
  Solver& operator=(Solver&&) noexcept;
  /// A copy without marks: what compile(shapes=…) works on.
  Solver clone() const;
  /// A solver made by replaying the log of facts (equal facts, other internal ids possible).
  core::Result<Solver> rebuild() const;

  // --- cells and facts --------------------------------------------------------------------
  /// `name` is what errors call it ("features"); it may be changed later.
  CellId new_cell(KindSet kinds = kAny, std::string_view name = {});
  void set_name(CellId cell, std::string_view name);
  const std::string& name(CellId cell) const;
  /// Something the user said. `text` says what, e.g. "Linear 'linear_1'" or "set_shapes".
  FactId new_fact(core::Location location, std::string text = {});
  /// A namespace for symbols of shape templates.
  ScopeId new_scope();

  core::Status assert_kind(CellId cell, KindSet kinds, FactId fact);
  core::Status assert_type(CellId cell, const Type& type, FactId fact);
  core::Status assert_interval(CellId cell, const Interval& interval, FactId fact);
  /// Makes the cell a tensor. Symbols are looked up in `scope`; with `named` they also become
  /// the names that shapes print with (first come, first served).
  core::Status assert_shape(CellId cell, const ShapeTemplate& shape, ScopeId scope, FactId fact,
                            bool named = true);
  /// A value. SymbolicInt in it means an expression of dims(). A tuple with unknown items is
  /// given by assert_items.
  core::Status assert_value(CellId cell, const core::HostValue& value, FactId fact);
  /// The cell is a tuple (or list) of these cells.
  core::Status assert_items(CellId cell, std::span<const CellId> items, bool is_list, FactId fact);
  /// Two cells are one wire from now on.
  core::Status unify(CellId a, CellId b, FactId fact);
  /// Uses an op's rule on cells. `op` begins error texts ("matmul: …"). `rule` and `op` must
  /// outlive the solver. Names of the rule without a binding are unknown to has().
  core::Status add_rule(std::string_view op, const Rule& rule, std::span<const Binding> bindings,
                        FactId fact);

  /// For a search: an open symbol of dims() gets a size. To be undone; it is no fact.
  core::Status assume(Dim symbol, int64_t size);

  /// Runs relations until nothing changes. `max_steps` 0: no limit; else fails with kUnsupported
  /// when exceeded (tests, model.solve).
  core::Status propagate(uint64_t max_steps = 0);
  /// Runs every relation once more and fails (kInternal) if one makes progress: the debug check.
  core::Status check_fixed_point();

  // --- transactions -----------------------------------------------------------------------
  Mark mark();
  /// Puts the store back exactly as it was at the mark; the mark is used up.
  void undo(Mark mark);
  /// Keeps what happened since the mark; the mark is used up.
  void release(Mark mark);

  // --- queries ----------------------------------------------------------------------------
  KindSet kinds(CellId cell) const;
  /// Kinds, and what was stated of the content of containers.
  Type type(CellId cell) const;
  bool same_cell(CellId a, CellId b) const;
  /// Number of dimensions when known.
  std::optional<int> rank(CellId cell) const;
  /// All dims when the rank is known. Dims refer to dims().
  std::optional<std::vector<Dim>> shape(CellId cell) const;
  /// The sizes when all are known.
  std::optional<std::vector<int64_t>> sizes(CellId cell) const;
  /// The most informative representation; one with an anonymous variadic when nothing is known.
  ShapeView shape_view(CellId cell) const;
  /// All representations (1 … 4).
  std::vector<ShapeView> representations(CellId cell) const;
  /// "in [1, 8]", "10 or 11": what is known of an integer that is open; or "".
  std::string limits(CellId cell) const;
  /// Tells whether anything is known of a shape (a template, a rank, equality with another's).
  bool has_shape(CellId cell) const;
  /// Possible ranks as bits 0 … 12, bit 13 = more.
  uint16_t possible_ranks(CellId cell) const;
  /// The value when complete; integers that are dim expressions come as SymbolicInt.
  std::optional<core::HostValue> value(CellId cell) const;
  /// True when value() is complete and holds no SymbolicInt.
  bool is_value_known(CellId cell) const;
  /// Cells of a tuple or list whose length is known; empty optional otherwise.
  std::optional<std::vector<CellId>> items(CellId cell);
  /// An integer cell as a dim: known, or an expression.
  std::optional<Dim> int_value(CellId cell) const;
  /// Possible values of an unknown dim when they are few (2 … 8); else empty.
  std::vector<int64_t> possible_values(Dim dim) const;
  /// Puts in what is known meanwhile about the symbols of a dim of dims().
  Dim resolve(Dim dim) const;
  DimTable& dims();
  const DimTable& dims() const;

  /// "[2, N, u1, (V1, ...), 3]"; "[...]" style names from `names`.
  std::string print_shape(CellId cell, ShapeNames& names) const;
  std::string print_shape(CellId cell) const;
  /// "none", "3", "(u1, 3)" — unknown parts print as "?".
  std::string print_value(CellId cell) const;

  // --- explanations -----------------------------------------------------------------------
  /// Gives the conflict of the last failed status; until the next one or an undo.
  const Conflict& conflict() const;
  /// Gives what new_fact was given.
  Reason fact(FactId fact) const;
  std::vector<FactId> facts_behind(CellId cell) const;
  /// The facts that what is known of a cell rests on, nearest first.
  std::vector<Reason> why(CellId cell) const;
  /// The facts that a dimension (an axis of a cell of known rank) rests on.
  std::vector<Reason> why_dim(CellId cell, int axis) const;

  /// Every fact and every array, for tests: equal text = bit-identical store.
  std::string dump() const;
  /// Facts only, without ids or order: kinds, shapes, values of all cells that have names.
  std::string facts() const;
  uint64_t steps() const;  // propagator runs so far
  size_t cell_count() const;

  Store& store() { return *store_; }

 private:
  explicit Solver(std::unique_ptr<Store> store);
  core::Status finish(bool ok, uint32_t cell, std::string_view what);
  core::Status said(core::Status status, const std::function<std::string()>& text);
  uint32_t own_name(const std::string& name);
  uint32_t user_sequence(uint32_t scope, const std::string& name, bool named);
  uint32_t user_symbol(uint32_t scope, const std::string& name, bool named);
  std::unique_ptr<Store> store_;
};

}  // namespace mithril::infer
