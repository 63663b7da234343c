// Sizes: a known number or a hash-consed expression over symbols. Stands alone: a graph owns a
// DimTable, the solver owns one. Equal normal forms are equal ids.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/status.h"

namespace mithril::infer {

/// A size (>= 0), or the id of an expression in somebody's DimTable. 8 bytes, copied freely.
/// A negative integer is an expression too: only tables make it (DimTable::constant).
class Dim {
 public:
  constexpr Dim() = default;
  constexpr Dim(int64_t size) : rep_(size) {}  // NOLINT: sizes are dims; size must be >= 0
  static constexpr Dim expression(uint32_t id) { return Dim(~static_cast<int64_t>(id), 0); }

  constexpr bool known() const { return rep_ >= 0; }
  constexpr int64_t value() const { return rep_; }                        // if known()
  constexpr uint32_t id() const { return static_cast<uint32_t>(~rep_); }  // if !known()
  constexpr int64_t bits() const { return rep_; }
  constexpr bool operator==(const Dim&) const = default;
  constexpr auto operator<=>(const Dim&) const = default;  // arbitrary but deterministic

 private:
  constexpr Dim(int64_t rep, int) : rep_(rep) {}
  int64_t rep_ = 0;
};

/// a * x + b with x a plain symbol.
struct LinearForm {
  int64_t a = 0;
  Dim x;
  int64_t b = 0;
};

/// Bounds an integer at least and at most; the extremes of int64_t stand for no bound.
struct Bounds {
  int64_t low = INT64_MIN, high = INT64_MAX;
  bool operator==(const Bounds&) const = default;
};

/// Expressions: polynomials with integer coefficients over atoms. An atom is a symbol,
/// floor(e/f), or broadcast(e, f) (the size that NumPy's rule gives two sizes which may be 1).
/// All operations return normal forms, so equality of Dims is equality of normal forms.
/// An expression whose coefficients do not fit 64 bits becomes `overflow()`, which absorbs and
/// evaluates to nothing. Not thread-safe; symbols are unique by name.
class DimTable {
 public:
  DimTable();

  /// The symbol of that name, made at the first call.
  Dim symbol(std::string_view name);
  /// A new symbol without a name; prints as "u<k>" (k counts the unnamed ones).
  Dim fresh();
  /// The symbol of that name if it exists.
  std::optional<Dim> find_symbol(std::string_view name) const;
  /// Gives a name to a fresh symbol. False when the name is taken.
  bool set_name(Dim symbol, std::string_view name);
  Dim constant(int64_t value);
  Dim overflow() const { return overflow_; }

  Dim add(Dim a, Dim b);
  Dim sub(Dim a, Dim b);
  Dim mul(Dim a, Dim b);
  /// floor(a / b); b known and 0 gives overflow() ("no value").
  Dim floor_div(Dim a, Dim b);
  Dim ceil_div(Dim a, Dim b);
  /// The size that a and b broadcast to. Known sizes that clash give overflow().
  Dim broadcast(Dim a, Dim b);
  /// a / b where that is a polynomial with integer coefficients (H*W / W), b being one term;
  /// nullopt otherwise. Takes b != 0 for granted.
  std::optional<Dim> divide_exact(Dim a, Dim b);
  Dim sum(std::span<const Dim> dims);
  Dim product(std::span<const Dim> dims);

  /// Replaces symbols; those not in the map stay.
  Dim substitute(Dim dim, std::span<const std::pair<Dim, Dim>> map);
  /// Replaces every symbol by what the function gives (the symbol itself to keep it).
  Dim substitute(Dim dim, const std::function<Dim(Dim symbol)>& map);

  /// The value, `values(symbol_index)` giving that of each symbol; nullopt on overflow, division
  /// by zero, sizes that do not broadcast, or where a symbol has none.
  std::optional<int64_t> evaluate(
      Dim dim, const std::function<std::optional<int64_t>(uint32_t symbol)>& values) const;
  /// The same with values by symbol index (a negative entry or a missing one is "no value").
  std::optional<int64_t> evaluate(Dim dim, std::span<const int64_t> values) const;

  /// Bounds that follow from those of the symbols (sound, not the tightest where a symbol occurs
  /// several times).
  Bounds bounds(Dim dim, const std::function<Bounds(Dim symbol)>& of_symbol) const;

  /// The integer, also a negative one, when the dim is one.
  std::optional<int64_t> constant_of(Dim dim) const;
  bool is_symbol(Dim dim) const;
  /// Dense index of a symbol, 0 .. symbol_count()-1, in order of creation.
  uint32_t symbol_index(Dim symbol) const;
  Dim symbol_at(uint32_t index) const;
  uint32_t symbol_count() const;
  /// Its name; "u<k>" for an unnamed one.
  std::string name_of(Dim symbol) const;
  bool is_named(Dim symbol) const;
  /// Symbols in an expression (also inside floor and broadcast), ascending by index, no doubles.
  std::vector<Dim> symbols_of(Dim dim) const;
  bool contains(Dim dim, Dim symbol) const;

  std::optional<LinearForm> linear(Dim dim) const;
  /// Solves a·x + b = value for the one symbol of `dim`: nullopt when dim is not of that form;
  /// `exact` false when no integer solves it.
  struct Solution {
    Dim symbol;
    int64_t value = 0;
    bool exact = false;
  };
  std::optional<Solution> solve(Dim dim, int64_t value) const;
  /// A symbol s and expression e with (expr == 0) <=> (s == e), where one exists: s occurs once,
  /// linearly, and its coefficient divides the others. Among those that qualify
  /// an unnamed one, then the newest.
  std::optional<std::pair<Dim, Dim>> isolate(Dim expr);
  /// False when no integers at all make the expression 0 (2*N - 2*M + 1); true otherwise.
  bool is_solvable(Dim expr) const;
  /// floor(e/c) with c known, times a, plus b, and nothing else.
  struct FloorForm {
    int64_t a = 0;
    Dim numerator;
    int64_t divisor = 1;
    int64_t b = 0;
  };
  std::optional<FloorForm> floor_form(Dim dim) const;

  /// "N+1", "2*N", "H*W", "floor(N/2)", "broadcast(a, b)".
  std::string print(Dim dim) const;
  /// Python source over the given names: "(n + 1)//2", broadcast as "max(a, b)"-free call
  /// "broadcast(a, b)".
  std::string print_python(Dim dim, const std::function<std::string(Dim symbol)>& name) const;
  /// Prints with other names for the symbols, else like print.
  std::string print(Dim dim, const std::function<std::string(Dim symbol)>& name) const;
  /// Reads what print writes (also parentheses and spaces); makes symbols that are new.
  core::Result<Dim> parse(std::string_view text);

  /// For undo: everything made after `size()` returned this is dropped.
  struct Size {
    uint32_t expressions = 0, atoms = 0, symbols = 0, unnamed = 0, names = 0;
    uint32_t terms = 0, factors = 0;
    bool operator==(const Size&) const = default;
  };
  Size size() const;
  void truncate(const Size& size);

 private:
  enum class AtomKind : uint8_t { kSymbol, kFloor, kBroadcast, kOverflow };
  struct Atom {
    AtomKind kind;
    uint32_t symbol;  // index of a symbol
    Dim a, b;         // operands of floor and broadcast
    uint32_t self;    // the expression that is this atom alone
  };
  struct Factor {
    uint32_t atom;
    uint32_t power;
    bool operator==(const Factor&) const = default;
    auto operator<=>(const Factor&) const = default;
  };
  struct Term {
    int64_t coefficient;
    uint32_t factors_begin;
    uint32_t factor_count;
  };
  struct Expression {
    uint32_t terms_begin;
    uint32_t term_count;
    uint32_t hash;
  };
  struct Symbol {
    uint32_t atom;
    std::string name;  // empty: unnamed
    uint32_t number;   // of an unnamed one
  };
  /// A polynomial being built: terms over its own factors.
  struct Polynomial {
    std::vector<Term> terms;
    std::vector<Factor> factors;
    bool overflow = false;
  };

  std::span<const Term> terms_of(Dim dim) const;  // of an expression
  std::span<const Factor> factors_of(const Term& term) const {
    return {factors_.data() + term.factors_begin, term.factor_count};
  }
  void append(Polynomial& out, Dim dim, int64_t scale) const;
  void append_product(Polynomial& out, const Term& a, const Term& b) const;
  void normalize(Polynomial& p) const;
  Dim intern(Polynomial& p);
  Dim atom(AtomKind kind, Dim a, Dim b);
  uint32_t new_atom(AtomKind kind, uint32_t symbol, Dim a, Dim b);
  uint32_t new_expression(std::span<const Term> terms, const std::vector<Factor>& factors,
                          uint32_t hash);
  uint32_t find_or_add(const Polynomial& p);
  uint32_t new_symbol(std::string_view name);
  void insert_bucket(uint32_t expression);
  void rehash();
  bool is_atom(Dim dim, AtomKind kind) const;
  const Atom& atom_of(Dim dim) const;
  std::vector<uint32_t> reachable_atoms(Dim dim) const;  // ascending: operands first
  std::string print_terms(Dim dim, bool python, const std::vector<std::string>& names,
                          const std::vector<uint32_t>& atoms) const;
  std::string print_with(Dim dim, bool python, const std::function<std::string(Dim)>& name) const;

  std::vector<Expression> expressions_;
  std::vector<Term> terms_;
  std::vector<Factor> factors_;
  std::vector<Atom> atoms_;
  std::vector<Symbol> symbols_;
  std::vector<uint32_t> named_;     // symbols in order of naming, for truncate
  std::vector<uint32_t> numbered_;  // symbols by the number of unnamed ones
  std::vector<uint32_t> buckets_;   // open addressing over expressions_; UINT32_MAX is empty
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::unordered_map<std::string, uint32_t, NameHash, std::equal_to<>> names_;
  std::unordered_multimap<uint64_t, uint32_t> atom_index_;  // floor and broadcast by operands
  Dim overflow_;
};

}  // namespace mithril::infer
