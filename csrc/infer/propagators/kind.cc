// Kinds of results from kinds of operands, in both directions by enumeration.
#include "infer/propagators/relations.h"

namespace mithril::infer {
namespace {

constexpr int kArith = 6;  // tensor bool, int, float, scalar bool, int, float
constexpr uint32_t kArithBits = (1u << kArith) - 1;

KindSet element_kind(int level, bool tensor) { return KindSet(1u << (level + (tensor ? 0 : 3))); }

enum class Family { kAdd, kDivide, kFloor, kMatmul, kDominant, kCompare, kBitwise, kShift };

ArithTable make_table(Family family) {
  ArithTable table;
  for (int l = 0; l < kArith; ++l) {
    for (int r = 0; r < kArith; ++r) {
      const bool tensor = l < 3 || r < 3, both_tensors = l < 3 && r < 3;
      const int a = l % 3, b = r % 3, wider = std::max(a, b);
      KindSet& out = table.result[l][r];
      switch (family) {
        case Family::kAdd:  // Python adds bools to ints; tensors stay bool
          out = element_kind(tensor ? wider : std::max(wider, 1), tensor);
          break;
        case Family::kDivide: out = element_kind(2, tensor); break;
        case Family::kFloor: out = element_kind(std::max(wider, 1), tensor); break;
        case Family::kMatmul:
          if (both_tensors && a > 0 && b > 0) out = element_kind(wider, true);
          break;
        case Family::kDominant:
          if (both_tensors) out = element_kind(wider, true);
          break;
        case Family::kCompare: out = element_kind(0, tensor); break;
        case Family::kBitwise:
          if (wider < 2) out = element_kind(wider, tensor);
          break;
        case Family::kShift:
          if (wider < 2) out = element_kind(1, tensor);
          break;
      }
    }
  }
  return table;
}

Outcome run_same_kind(Store& s, const Propagator& p) {
  const uint32_t a = s.arg(p, 0), b = s.arg(p, 1);
  const KindSet both = s.kinds(a) & s.kinds(b);
  if (both.empty()) {
    return s.conflict(core::Code::kDTypeConflict, "kinds must be equal, got {}: {} and {}: {}",
                      s.binding_name(p.rule, a), to_string(s.kinds(a)), s.binding_name(p.rule, b),
                      to_string(s.kinds(b)));
  }
  if (!s.narrow(a, both) || !s.narrow(b, both)) return Outcome::kConflict;
  return both.single() ? Outcome::kDone : Outcome::kWait;
}

Outcome run_same_element_kind(Store& s, const Propagator& p) {
  const uint32_t a = s.arg(p, 0), b = s.arg(p, 1);
  const KindSet both = as_tensor(s.kinds(a)) & as_tensor(s.kinds(b));
  const KindSet allowed = both | as_scalar(both);
  if (!s.narrow(a, allowed) || !s.narrow(b, allowed)) return Outcome::kConflict;
  return both.single() ? Outcome::kDone : Outcome::kWait;
}

Outcome run_arith_kind(Store& s, const Propagator& p) {
  const auto& table = *reinterpret_cast<const ArithTable*>(p.data);
  const uint32_t out = s.arg(p, 0), left = s.arg(p, 1), right = s.arg(p, 2);
  const KindSet o = s.kinds(out), l = s.kinds(left), r = s.kinds(right);
  KindSet new_out, new_left, new_right;
  for (uint32_t i = l.bits() & kArithBits; i != 0; i &= i - 1) {
    for (uint32_t j = r.bits() & kArithBits; j != 0; j &= j - 1) {
      const KindSet result = table.result[std::countr_zero(i)][std::countr_zero(j)] & o;
      if (result.empty()) continue;
      new_out = new_out | result;
      new_left = new_left | KindSet(1u << std::countr_zero(i));
      new_right = new_right | KindSet(1u << std::countr_zero(j));
    }
  }
  if (new_out.empty()) {
    return s.conflict(core::Code::kDTypeOperand,
                      "operands of these kinds cannot be combined, got {}: {} and {}: {}",
                      s.binding_name(p.rule, left), to_string(l), s.binding_name(p.rule, right),
                      to_string(r));
  }
  if (!s.narrow(out, new_out) || !s.narrow(left, new_left) || !s.narrow(right, new_right)) {
    return Outcome::kConflict;
  }
  return new_left.single() && new_right.single() ? Outcome::kDone : Outcome::kWait;
}

struct KindMap {
  KindSet to[kValueKindCount];
};

Outcome run_map_kind(Store& s, const Propagator& p) {
  const auto& map = s.extra<KindMap>(p);
  const uint32_t out = s.arg(p, 0), in = s.arg(p, 1);
  const KindSet o = s.kinds(out), i = s.kinds(in);
  KindSet new_out, new_in;
  for (uint32_t bits = i.bits(); bits != 0; bits &= bits - 1) {
    const KindSet to = map.to[std::countr_zero(bits)] & o;
    if (to.empty()) continue;
    new_out = new_out | to;
    new_in = new_in | KindSet(1u << std::countr_zero(bits));
  }
  if (new_out.empty()) {
    return s.conflict(core::Code::kDTypeOperand, "{} cannot be {} when {} is {}",
                      s.binding_name(p.rule, in), to_string(i), s.binding_name(p.rule, out),
                      to_string(o));
  }
  if (!s.narrow(out, new_out) || !s.narrow(in, new_in)) return Outcome::kConflict;
  return new_in.single() ? Outcome::kDone : Outcome::kWait;
}

Outcome run_sum_kind(Store& s, const Propagator& p) {
  const uint32_t out = s.arg(p, 0), in = s.arg(p, 1);
  const KindSet i = s.kinds(in), o = s.kinds(out);
  KindSet new_out, new_in;
  if (i.meets(kIntegral) && o.meets(kTensorInt)) {
    new_out = kTensorInt;
    new_in = i & kIntegral;
  }
  if (i.meets(kFloating) && o.meets(kFloating)) {
    new_out = new_out | kFloating;
    new_in = new_in | kFloating;
  }
  if (!s.narrow(out, new_out) || !s.narrow(in, new_in)) return Outcome::kConflict;
  return new_out.single() ? Outcome::kDone : Outcome::kWait;
}

/// Relations that read and narrow kinds alone: shapes that become known do not wake them.
void post_kinds(Store& s, RuleId rule, PropagateFn fn, std::initializer_list<Term> terms,
                int64_t data = 0, uint32_t extra = kNone) {
  DimList cells;
  for (const Term& term : terms) cells.push_back(term.cell.index);
  s.post(rule.index, fn, cells, false, data, extra, kKindEvents);
}

}  // namespace

#define MITHRIL_TABLE(name, family)                     \
  const ArithTable& name() {                            \
    static const ArithTable table = make_table(family); \
    return table;                                       \
  }
MITHRIL_TABLE(add_table, Family::kAdd)
MITHRIL_TABLE(divide_table, Family::kDivide)
MITHRIL_TABLE(floor_table, Family::kFloor)
MITHRIL_TABLE(matmul_table, Family::kMatmul)
MITHRIL_TABLE(dominant_table, Family::kDominant)
MITHRIL_TABLE(compare_table, Family::kCompare)
MITHRIL_TABLE(bitwise_table, Family::kBitwise)
MITHRIL_TABLE(shift_table, Family::kShift)
#undef MITHRIL_TABLE

void RuleBuilder::same_kind(Term a, Term b) {
  const KindSet x = store_->kinds(a.cell.index), y = store_->kinds(b.cell.index);
  if (x == y && x.single()) return;
  post_kinds(*store_, rule_, run_same_kind, {a, b});
}

void RuleBuilder::same_element_kind(Term a, Term b) {
  post_kinds(*store_, rule_, run_same_element_kind, {a, b});
}

void RuleBuilder::arith_kind(Term out, Term left, Term right, const ArithTable& table) {
  post_kinds(*store_, rule_, run_arith_kind, {out, left, right}, reinterpret_cast<int64_t>(&table));
}

void RuleBuilder::map_kind(Term out, Term in,
                           std::span<const std::pair<ValueKind, ValueKind>> pairs) {
  auto map = std::make_shared<KindMap>();
  for (const auto& [from, to] : pairs) {
    KindSet& set = map->to[static_cast<int>(from)];
    set = set | KindSet(to);
  }
  const uint32_t extra = store_->add_extra<const KindMap>(std::move(map));
  post_kinds(*store_, rule_, run_map_kind, {out, in}, 0, extra);
}

void RuleBuilder::sum_kind(Term out, Term in) {
  kind(out, kNumeric);
  kind(in, kTensor);
  post_kinds(*store_, rule_, run_sum_kind, {out, in});
}

}  // namespace mithril::infer
