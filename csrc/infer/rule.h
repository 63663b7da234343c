// What op blocks use to state shapes, kinds and values: one function, run both ways. The solver
// runs it as relations, ir::infer_types runs the same function forward (Forward below).
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/host_value.h"
#include "core/status.h"
#include "infer/dim.h"
#include "infer/ids.h"
#include "infer/kind.h"

namespace mithril::infer {

class RuleBuilder;
class Store;

/// An op's rule. Called once per use; only states relations, keeps no state of its own.
class Rule {
 public:
  using Function = std::function<void(RuleBuilder&)>;
  Rule() = default;
  template <class F>
  requires std::is_invocable_v<F, RuleBuilder&> Rule(F f) : function_(std::move(f)) {}  // NOLINT
  explicit operator bool() const { return static_cast<bool>(function_); }
  void operator()(RuleBuilder& builder) const { function_(builder); }

 private:
  Function function_;
};

/// An input, output or attribute of the op in a rule.
struct Term {
  CellId cell;
};
using Terms = std::span<const Term>;

/// An unknown integer in a rule: a dimension, or the value of an integer term. Operators state
/// new unknowns related to the old ones in both directions. Sizes only, no negative results
/// unless used as values.
struct DimTerm {
  RuleBuilder* builder = nullptr;
  DimId id;
};
DimTerm operator+(DimTerm a, DimTerm b);
DimTerm operator-(DimTerm a, DimTerm b);
DimTerm operator*(DimTerm a, DimTerm b);
DimTerm operator+(DimTerm a, int64_t b);
DimTerm operator-(DimTerm a, int64_t b);
DimTerm operator*(DimTerm a, int64_t b);
DimTerm floor_div(DimTerm a, DimTerm b);
DimTerm floor_div(DimTerm a, int64_t b);
DimTerm ceil_div(DimTerm a, int64_t b);

/// Kinds of a two-operand result: `result[l][r]` for l, r in (tensor bool, int, float, scalar
/// bool, int, float); the empty set forbids the combination.
struct ArithTable {
  KindSet result[6][6];
};
/// The tables of reference 3.2.
const ArithTable& add_table();       // + − ×: bool⊕bool tensor → bool, scalars as Python
const ArithTable& divide_table();    // /: float
const ArithTable& floor_table();     // // and **: Python-like, bool⊕bool → int
const ArithTable& matmul_table();    // tensors of numbers, bool refused
const ArithTable& dominant_table();  // maximum, minimum: bool < int < float, tensors only
const ArithTable& compare_table();   // bool
const ArithTable& bitwise_table();   // & | ^
const ArithTable& shift_table();     // << >>

/// Computes the value of `out` from known host values (ints, floats, bools, none, tuples …);
/// nullopt: no value (stays unknown). Never sees tensors.
using FoldFn = std::optional<core::HostValue> (*)(std::span<const core::HostValue> inputs);

/// Integer arithmetic that also works on sizes that are only known as expressions.
enum class IntOp : uint8_t { kAdd, kSub, kMul, kFloorDiv };

/// A window along one axis: convolution or pooling.
struct Window {
  DimTerm kernel, stride, padding_low, padding_high, dilation;
};

/// Shows a custom relation what it may see (infer/relation.h): kinds, sizes and values as known
/// now. It may only narrow, must be idempotent, and must not keep state.
class Relation;
using RelationFn = core::Status (*)(Relation&);
using RelationFunction = std::function<core::Status(Relation&)>;

/// States the relations of one use of an op. Relations hold in every direction that their
/// comments name; nothing is ever decided because something is unknown.
class RuleBuilder {
 public:
  RuleBuilder(Store& store, RuleId rule) : store_(&store), rule_(rule) {}

  // --- terms ------------------------------------------------------------------------------
  /// The bound cell of that name; in(), out() and attr() differ for the reader only. An unbound
  /// name is a fresh unknown cell (and has() is false).
  Term in(std::string_view name) { return term(name); }
  Term out(std::string_view name = "output") { return term(name); }
  Term attr(std::string_view name) { return term(name); }
  bool has(std::string_view name) const;
  /// A cell with a known value, for relations that take terms.
  Term constant(const core::HostValue& value);
  /// A new cell of this rule (an intermediate result of a composite's shape rule).
  Term fresh(KindSet kinds = kAny);
  /// The host value of a term if it is known *when the rule is stated* (constructor arguments).
  /// Use when_known for keys that may become known later.
  std::optional<core::HostValue> known(Term term) const;

  // --- kinds ------------------------------------------------------------------------------
  void kind(Term term, KindSet kinds);
  /// Equal kind sets; also ties tensor-or-scalar.
  void same_kind(Term a, Term b);
  /// Equal element kinds of tensors or scalars, whichever each is (Where branches).
  void same_element_kind(Term a, Term b);
  void arith_kind(Term out, Term left, Term right, const ArithTable& table);
  /// kinds(out) = union of to[k] for k in kinds(in), and back; index = ValueKind; for tables like
  /// "bool, int → int; float → float" (sum). Entries for kinds not listed are empty.
  void map_kind(Term out, Term in, std::span<const std::pair<ValueKind, ValueKind>> pairs);
  /// bool, int → int; float → float, tensors.
  void sum_kind(Term out, Term in);

  // --- shapes -----------------------------------------------------------------------------
  /// Same kind and same shape.
  void same(Term a, Term b);
  /// Both are tensors of equal shapes.
  void same_shape(Term a, Term b);
  /// Everything equal, value too (buffer).
  void identical(Term a, Term b);
  /// Items apart by spaces: `n` a dimension of this rule, `3` a size, `_` an unknown, `...` the
  /// rule's variadic (at most one in a template, the same in all templates of the rule), `...v`
  /// a named one, `_...` a fresh one. "" is a scalar tensor. Makes the term a tensor.
  void shape(Term term, std::string_view shape_template);
  /// The list form, of full rank.
  void shape(Term term, std::initializer_list<DimTerm> dims);
  void shape(Term term, std::span<const DimTerm> dims);
  /// As `shape`; where a number is given for the tensor, it stands for one of that shape, and the
  /// op finds an operand of rank 0.
  void shape_or_number(Term term, std::string_view shape_template);
  /// The dimension that templates of this rule call `name`.
  DimTerm dim(std::string_view name);
  DimTerm dim(int64_t size);
  /// An integer term as an unknown (its value may be negative).
  DimTerm dim(Term integer);
  /// Axis of a tensor, negative from the end; the tensor must have it.
  DimTerm dim(Term tensor, int axis);
  void equal(DimTerm a, DimTerm b);
  void equal(DimTerm a, int64_t b) { equal(a, dim(b)); }
  /// b divides a for sure: returns a / b.
  DimTerm divide(DimTerm a, DimTerm b);

  /// NumPy's rule over all operands. Operands that turn out scalars are left out, an output that
  /// is a scalar ends it; undecided operands make it wait.
  void broadcast(Term out, std::initializer_list<Term> operands) {
    broadcast(out, Terms(operands.begin(), operands.size()));
  }
  void broadcast(Term out, Terms operands);
  /// Elementwise with two operands: arith_kind, broadcast and (fold or int_op), as + − × do.
  void elementwise(Term out, Term left, Term right, const ArithTable& table, FoldFn fold,
                   std::optional<IntOp> op = std::nullopt);
  /// Batch dims broadcast, inner dims equal, 1-D operands as NumPy; scalars are refused.
  void matmul(Term out, Term a, Term b);
  /// axis: none, an int, or ints; keepdim: a bool. Both may become known later.
  void reduce(Term out, Term in, Term axis, Term keepdim);
  /// shape: ints and at most one -1 (or none) in a tuple or list, known or partly known.
  void reshape(Term out, Term in, Term shape);
  /// axes: none reverses; ints (possibly negative) permute.
  void permute(Term out, Term in, Term axes);
  void swap_axes(Term out, Term in, Term axis1, Term axis2);
  void flatten(Term out, Term in, Term start_dim, Term end_dim);
  /// Drops axes of size 1: all (axis none), or the given ones.
  void squeeze(Term out, Term in, Term axis);
  void squeeze(Term out, Term in);
  /// Inserts axes of size 1 at the positions (in the result) that `axis` gives.
  void expand_dims(Term out, Term in, Term axis);
  /// `list` is a tuple or list of tensors; axis an int, or none: flattened ones in a row.
  void concat(Term out, Term list, Term axis);
  /// The same over operands.
  void concat(Term out, Terms operands, Term axis);
  /// A new axis over tensors of equal shapes.
  void stack(Term out, Term list, Term axis);
  /// out: a list of `count` tensors, equal pieces of `in` along axis.
  void split(Term out, Term in, Term count, Term axis);
  /// NumPy indexing: ints, slices, none, ellipsis, integer or bool lists, tensors, tuples.
  void index(Term out, Term in, Term index);
  /// out[i..., :] = table[indices[i...], :] along `axis` 0.
  void gather(Term out, Term table, Term indices);
  void broadcast_to(Term out, Term in, Term shape);
  /// pad_width: ((low, high), …) per axis, or one pair for every axis or the last one.
  void pad(Term out, Term in, Term pad_width, bool pair_is_last = false);
  /// The size of a window's output: floor((in + p − dil·(k−1) − 1) / s) + 1, in both directions
  /// where the inverse is unique (possible sets where it is not).
  DimTerm window(DimTerm in, const Window& window);
  void conv_dim(DimTerm out, DimTerm in, const Window& window);
  /// conv_dim for several axes; stride (none: the kernel), padding (int, pairs, "same", "valid")
  /// and dilation are ints or one for each axis.
  void windows(std::span<const DimTerm> out, std::span<const DimTerm> in,
               std::span<const DimTerm> kernel, Term stride, Term padding, Term dilation);
  /// `rank` trailing axes (1 to 3) pooled; the others equal. The arguments are ints or tuples.
  void pool(Term out, Term in, int rank, Term kernel, Term stride, Term padding, Term dilation);
  /// input [n, ci, spatial…], weight [co, ci/groups, k…], output [n, co, …], `rank` 1 to 3. The
  /// dims are known to the rule as conv_n, conv_ci, conv_co, conv_cg, conv_k_0 ….
  void conv(Term out, Term in, Term weight, int rank, Term stride, Term padding, Term dilation,
            Term groups);
  /// out: int or tuple pairs from ints, pairs, "same"/"valid" (reference: PaddingConverter).
  void resolve_padding(Term out, Term padding, Term kernel, int rank,
                       std::optional<Term> dilation = std::nullopt);

  // --- values -----------------------------------------------------------------------------
  /// out: the tuple of in's dims, unknown ones included; a known tuple sets dims.
  void shape_of(Term out, Term in);
  /// Number of elements (axis none), or the size of axes.
  void size_of(Term out, Term in, Term axis);
  /// The tensor's shape is the value of `shape` (a tuple or list of ints, or one int).
  void shape_from_value(Term tensor, Term shape);
  void arange(Term out, Term start, Term stop, Term step);
  /// out = (items…) and back.
  void tuple(Term out, Terms items);
  void list(Term out, Terms items);
  /// out = sequence[index], index known.
  void item(Term out, Term sequence, Term index);
  /// out = slice(start, stop, step) and back.
  void slice(Term out, Term start, Term stop, Term step);
  /// A host value from host values, forward; all inputs must be known.
  void fold(Term out, std::initializer_list<Term> inputs, FoldFn fn) {
    fold(out, Terms(inputs.begin(), inputs.size()), fn);
  }
  void fold(Term out, Terms inputs, FoldFn fn);
  /// Integers, possibly sizes that are unknown: solved in both directions. Waits until all three
  /// are integers.
  void int_op(Term out, Term left, Term right, IntOp op);
  /// Shape and kind of a tensor made from nested sequences.
  void tensor_of(Term out, Term nested);
  /// Every size of the tensor is 1.
  void one_element(Term tensor);

  // --- the rest ---------------------------------------------------------------------------
  /// Runs `then` as soon as the term's host value is complete (at once if it is already). More
  /// relations may be stated in it. The function must be pure.
  using Then = std::function<void(RuleBuilder&, const core::HostValue&)>;
  void when_known(Term term, Then then);
  void when_known(std::initializer_list<Term> terms,
                  std::function<void(RuleBuilder&, std::span<const core::HostValue>)> then);
  /// Runs `then` as soon as the rank of a tensor is known.
  void when_rank_known(Term term, std::function<void(RuleBuilder&, int rank)> then);
  /// Any other relation over terms; runs when one of them changes.
  void custom(std::initializer_list<Term> terms, RelationFn fn, int64_t data = 0);
  void custom(Terms terms, RelationFunction fn, int64_t data = 0);
  /// A conflict of the rule's own: the use of the op fails with this error (its message gets the
  /// op's name in front).
  void fail(core::Error error);

  Store& store() { return *store_; }
  RuleId rule() const { return rule_; }

 private:
  Term term(std::string_view name);
  Store* store_;
  RuleId rule_;
};

/// Holds what is known of one operand or attribute of a graph node.
struct Port {
  std::string_view name;
  KindSet kinds = kAny;
  bool is_tensor = false;
  std::span<const Dim> shape;              // when is_tensor; dims of the caller's table
  const core::HostValue* value = nullptr;  // known host value; SymbolicInt = its table's ids
  std::span<const Port> items;             // operands that the op takes as one list
  bool is_list = false;
};

/// Holds what a rule gives for one result.
struct Inferred {
  KindSet kinds = kAny;
  bool is_tensor = false;
  std::vector<Dim> shape;                // when is_tensor
  std::optional<core::HostValue> value;  // known host value; SymbolicInt where it depends on dims
  std::vector<Inferred> items;           // tuple or list results (split)
};

/// Runs rules forward, one node at a time, over a scratch that is reused: no trail, no proof.
/// Not thread-safe. Dims that a rule leaves open become fresh symbols of `table`; a rank left
/// open is an error.
class Forward {
 public:
  Forward();
  ~Forward();
  Forward(Forward&&) noexcept;
  Forward& operator=(Forward&&) noexcept;
  /// `results` has one entry per name in `outputs`; its vectors are reused.
  core::Status run(std::string_view op, const Rule& rule, std::span<const Port> inputs,
                   std::span<const std::string_view> outputs, DimTable& table,
                   std::vector<Inferred>& results);

 private:
  std::unique_ptr<Store> store_;
};

/// Forward with a scratch of this thread.
core::Status infer_forward(std::string_view op, const Rule& rule, std::span<const Port> inputs,
                           std::span<const std::string_view> outputs, DimTable& table,
                           std::vector<Inferred>& results);

}  // namespace mithril::infer
