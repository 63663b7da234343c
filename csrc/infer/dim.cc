#include "infer/dim.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "core/checked.h"

namespace mithril::infer {
namespace {

constexpr uint32_t kNoId = UINT32_MAX;

uint32_t mix(uint32_t hash, uint64_t value) {
  value = (value ^ hash) * 0x9E3779B97F4A7C15ull;
  return static_cast<uint32_t>(value >> 32) ^ static_cast<uint32_t>(value);
}

uint64_t atom_key(int kind, Dim a, Dim b) {
  return static_cast<uint64_t>(a.bits()) * 0x9E3779B97F4A7C15ull ^ static_cast<uint64_t>(b.bits()) ^
         (static_cast<uint64_t>(kind) << 60);
}

}  // namespace

DimTable::DimTable() {
  buckets_.assign(64, kNoId);
  const uint32_t atom = new_atom(AtomKind::kOverflow, kNoId, Dim(), Dim());
  overflow_ = Dim::expression(atoms_[atom].self);
}

// --- construction ---------------------------------------------------------------------------

std::span<const DimTable::Term> DimTable::terms_of(Dim dim) const {
  const Expression& e = expressions_[dim.id()];
  return {terms_.data() + e.terms_begin, e.term_count};
}

void DimTable::append(Polynomial& out, Dim dim, int64_t scale) const {
  const auto push = [&](int64_t coefficient, std::span<const Factor> factors) {
    int64_t scaled = 0;
    if (__builtin_mul_overflow(coefficient, scale, &scaled)) out.overflow = true;
    out.terms.push_back(
        {scaled, static_cast<uint32_t>(out.factors.size()), static_cast<uint32_t>(factors.size())});
    out.factors.insert(out.factors.end(), factors.begin(), factors.end());
  };
  if (dim.known()) {
    if (dim.value() != 0) push(dim.value(), {});
    return;
  }
  if (dim == overflow_) out.overflow = true;
  for (const Term& term : terms_of(dim)) push(term.coefficient, factors_of(term));
}

void DimTable::append_product(Polynomial& out, const Term& a, const Term& b) const {
  int64_t coefficient = 0;
  if (__builtin_mul_overflow(a.coefficient, b.coefficient, &coefficient)) out.overflow = true;
  const auto fa = factors_of(a), fb = factors_of(b);
  const auto begin = static_cast<uint32_t>(out.factors.size());
  size_t i = 0, j = 0;
  while (i < fa.size() || j < fb.size()) {
    if (j == fb.size() || (i < fa.size() && fa[i].atom < fb[j].atom)) {
      out.factors.push_back(fa[i++]);
    } else if (i == fa.size() || fb[j].atom < fa[i].atom) {
      out.factors.push_back(fb[j++]);
    } else {
      out.factors.push_back({fa[i].atom, fa[i].power + fb[j].power});
      ++i, ++j;
    }
  }
  out.terms.push_back({coefficient, begin, static_cast<uint32_t>(out.factors.size()) - begin});
}

void DimTable::normalize(Polynomial& p) const {
  const auto factors = [&](const Term& t) {
    return std::span<const Factor>(p.factors.data() + t.factors_begin, t.factor_count);
  };
  const auto degree = [&](const Term& t) {
    uint64_t sum = 0;
    for (const Factor& f : factors(t)) sum += f.power;
    return sum;
  };
  // Higher degrees first, then by atoms; the constant comes last.
  const auto before = [&](const Term& a, const Term& b) {
    const uint64_t da = degree(a), db = degree(b);
    if (da != db) return da > db;
    const auto fa = factors(a), fb = factors(b);
    return std::lexicographical_compare(fa.begin(), fa.end(), fb.begin(), fb.end());
  };
  std::sort(p.terms.begin(), p.terms.end(), before);
  size_t out = 0;
  for (size_t i = 0; i < p.terms.size();) {
    Term term = p.terms[i++];
    while (i < p.terms.size() && std::ranges::equal(factors(term), factors(p.terms[i]))) {
      if (__builtin_add_overflow(term.coefficient, p.terms[i].coefficient, &term.coefficient)) {
        p.overflow = true;
      }
      ++i;
    }
    if (term.coefficient != 0) p.terms[out++] = term;
  }
  p.terms.resize(out);
}

Dim DimTable::intern(Polynomial& p) {
  if (p.overflow) return overflow_;
  normalize(p);
  if (p.overflow) return overflow_;
  if (p.terms.empty()) return Dim(0);
  if (p.terms.size() == 1 && p.terms[0].factor_count == 0 && p.terms[0].coefficient >= 0) {
    return Dim(p.terms[0].coefficient);
  }
  return Dim::expression(find_or_add(p));
}

uint32_t DimTable::find_or_add(const Polynomial& p) {
  uint32_t hash = 17;
  for (const Term& term : p.terms) {
    hash = mix(hash, static_cast<uint64_t>(term.coefficient));
    for (uint32_t i = 0; i < term.factor_count; ++i) {
      const Factor& f = p.factors[term.factors_begin + i];
      hash = mix(hash, (static_cast<uint64_t>(f.atom) << 32) | f.power);
    }
  }
  const auto equals = [&](const Expression& e) {
    if (e.hash != hash || e.term_count != p.terms.size()) return false;
    for (uint32_t t = 0; t < e.term_count; ++t) {
      const Term &a = terms_[e.terms_begin + t], &b = p.terms[t];
      if (a.coefficient != b.coefficient || a.factor_count != b.factor_count) return false;
      if (!std::equal(factors_.begin() + a.factors_begin,
                      factors_.begin() + a.factors_begin + a.factor_count,
                      p.factors.begin() + b.factors_begin)) {
        return false;
      }
    }
    return true;
  };
  const size_t mask = buckets_.size() - 1;
  for (size_t slot = hash & mask; buckets_[slot] != kNoId; slot = (slot + 1) & mask) {
    if (equals(expressions_[buckets_[slot]])) return buckets_[slot];
  }
  return new_expression(p.terms, p.factors, hash);
}

uint32_t DimTable::new_expression(std::span<const Term> terms, const std::vector<Factor>& factors,
                                  uint32_t hash) {
  const auto begin = static_cast<uint32_t>(terms_.size());
  for (const Term& term : terms) {
    const auto factors_begin = static_cast<uint32_t>(factors_.size());
    factors_.insert(factors_.end(), factors.begin() + term.factors_begin,
                    factors.begin() + term.factors_begin + term.factor_count);
    terms_.push_back({term.coefficient, factors_begin, term.factor_count});
  }
  expressions_.push_back({begin, static_cast<uint32_t>(terms.size()), hash});
  if (expressions_.size() * 2 > buckets_.size()) {
    rehash();
  } else {
    insert_bucket(static_cast<uint32_t>(expressions_.size() - 1));
  }
  return static_cast<uint32_t>(expressions_.size() - 1);
}

void DimTable::insert_bucket(uint32_t expression) {
  const size_t mask = buckets_.size() - 1;
  size_t slot = expressions_[expression].hash & mask;
  while (buckets_[slot] != kNoId) slot = (slot + 1) & mask;
  buckets_[slot] = expression;
}

void DimTable::rehash() {
  buckets_.assign(buckets_.size() * 2, kNoId);
  for (uint32_t i = 0; i < expressions_.size(); ++i) insert_bucket(i);
}

uint32_t DimTable::new_atom(AtomKind kind, uint32_t symbol, Dim a, Dim b) {
  const auto id = static_cast<uint32_t>(atoms_.size());
  uint32_t hash = mix(17, 1);
  hash = mix(hash, (static_cast<uint64_t>(id) << 32) | 1);
  const Term term{1, 0, 1};
  const uint32_t self = new_expression({&term, 1}, {{id, 1}}, hash);
  atoms_.push_back({kind, symbol, a, b, self});
  return id;
}

Dim DimTable::atom(AtomKind kind, Dim a, Dim b) {
  const uint64_t key = atom_key(static_cast<int>(kind), a, b);
  const auto [begin, end] = atom_index_.equal_range(key);
  for (auto it = begin; it != end; ++it) {
    const Atom& found = atoms_[it->second];
    if (found.kind == kind && found.a == a && found.b == b) return Dim::expression(found.self);
  }
  const uint32_t id = new_atom(kind, kNoId, a, b);
  atom_index_.emplace(key, id);
  return Dim::expression(atoms_[id].self);
}

// --- symbols --------------------------------------------------------------------------------

uint32_t DimTable::new_symbol(std::string_view name) {
  const auto index = static_cast<uint32_t>(symbols_.size());
  const uint32_t id = new_atom(AtomKind::kSymbol, index, Dim(), Dim());
  symbols_.push_back({id, std::string(name), static_cast<uint32_t>(numbered_.size())});
  return index;
}

Dim DimTable::symbol(std::string_view name) {
  if (const auto found = find_symbol(name)) return *found;
  const uint32_t index = new_symbol(name);
  names_.emplace(std::string(name), index);
  named_.push_back(index);
  return symbol_at(index);
}

Dim DimTable::fresh() {
  const uint32_t index = new_symbol({});
  numbered_.push_back(index);
  return symbol_at(index);
}

std::optional<Dim> DimTable::find_symbol(std::string_view name) const {
  if (const auto it = names_.find(name); it != names_.end()) return symbol_at(it->second);
  if (name.size() < 2 || name.size() > 9 || name[0] != 'u' || name[1] == '0') return std::nullopt;
  uint32_t number = 0;
  for (const char c : name.substr(1)) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + static_cast<uint32_t>(c - '0');
  }
  if (number > numbered_.size()) return std::nullopt;
  const uint32_t index = numbered_[number - 1];
  return symbols_[index].name.empty() ? std::optional(symbol_at(index)) : std::nullopt;
}

bool DimTable::set_name(Dim symbol, std::string_view name) {
  const uint32_t index = symbol_index(symbol);
  if (name.empty() || !symbols_[index].name.empty() || names_.contains(name)) return false;
  symbols_[index].name = name;
  names_.emplace(std::string(name), index);
  named_.push_back(index);
  return true;
}

bool DimTable::is_atom(Dim dim, AtomKind kind) const {
  if (dim.known()) return false;
  const Expression& e = expressions_[dim.id()];
  if (e.term_count != 1) return false;
  const Term& term = terms_[e.terms_begin];
  if (term.coefficient != 1 || term.factor_count != 1) return false;
  const Factor& factor = factors_[term.factors_begin];
  return factor.power == 1 && atoms_[factor.atom].kind == kind;
}

const DimTable::Atom& DimTable::atom_of(Dim dim) const {
  return atoms_[factors_[terms_[expressions_[dim.id()].terms_begin].factors_begin].atom];
}

bool DimTable::is_symbol(Dim dim) const { return is_atom(dim, AtomKind::kSymbol); }
uint32_t DimTable::symbol_index(Dim symbol) const { return atom_of(symbol).symbol; }
Dim DimTable::symbol_at(uint32_t index) const {
  return Dim::expression(atoms_[symbols_[index].atom].self);
}
uint32_t DimTable::symbol_count() const { return static_cast<uint32_t>(symbols_.size()); }
bool DimTable::is_named(Dim symbol) const { return !symbols_[symbol_index(symbol)].name.empty(); }

std::string DimTable::name_of(Dim symbol) const {
  const Symbol& s = symbols_[symbol_index(symbol)];
  return s.name.empty() ? "u" + std::to_string(s.number + 1) : s.name;
}

// --- arithmetic -----------------------------------------------------------------------------

Dim DimTable::constant(int64_t value) {
  if (value >= 0) return Dim(value);
  Polynomial p;
  p.terms.push_back({value, 0, 0});
  return intern(p);
}

std::optional<int64_t> DimTable::constant_of(Dim dim) const {
  if (dim.known()) return dim.value();
  const auto terms = terms_of(dim);
  if (terms.size() == 1 && terms[0].factor_count == 0) return terms[0].coefficient;
  return std::nullopt;
}

Dim DimTable::add(Dim a, Dim b) {
  if (a.known() && b.known()) {
    const auto sum = core::checked_add(a.value(), b.value());
    return sum ? Dim(*sum) : overflow_;
  }
  if (a == Dim(0)) return b;
  if (b == Dim(0)) return a;
  Polynomial p;
  append(p, a, 1);
  append(p, b, 1);
  return intern(p);
}

Dim DimTable::sub(Dim a, Dim b) {
  if (b == Dim(0)) return a;
  if (a.known() && b.known()) return constant(a.value() - b.value());
  if (a == overflow_ || b == overflow_) return overflow_;
  if (a == b) return Dim(0);
  Polynomial p;
  append(p, a, 1);
  append(p, b, -1);
  return intern(p);
}

Dim DimTable::mul(Dim a, Dim b) {
  if (a.known() && b.known()) {
    const auto product = core::checked_mul(a.value(), b.value());
    return product ? Dim(*product) : overflow_;
  }
  if (a == overflow_ || b == overflow_) return overflow_;
  if (a.known()) std::swap(a, b);
  if (b == Dim(1)) return a;
  if (b == Dim(0)) return b;
  Polynomial p;
  if (b.known()) {
    append(p, a, b.value());
    return intern(p);
  }
  // Squaring long sums is a way to fill memory; such sizes have no use.
  if (terms_of(a).size() * terms_of(b).size() > 4096) return overflow_;
  for (const Term& x : terms_of(a)) {
    for (const Term& y : terms_of(b)) append_product(p, x, y);
  }
  return intern(p);
}

Dim DimTable::sum(std::span<const Dim> dims) {
  Polynomial p;
  for (const Dim dim : dims) append(p, dim, 1);
  return intern(p);
}

Dim DimTable::product(std::span<const Dim> dims) {
  Dim out(1);
  for (const Dim dim : dims) out = mul(out, dim);
  return out;
}

Dim DimTable::floor_div(Dim a, Dim b) {
  if (a == overflow_ || b == overflow_ || b == Dim(0)) return overflow_;
  if (b == Dim(1)) return a;
  const auto divisor = constant_of(b);
  if (const auto number = constant_of(a); number && divisor) {
    return constant(core::floor_quotient(*number, *divisor));
  }
  if (a == Dim(0)) return a;
  if (!divisor) return atom(AtomKind::kFloor, a, b);
  if (*divisor < 0) return floor_div(sub(Dim(0), a), sub(Dim(0), b));
  int64_t c = *divisor;
  // Whole multiples of c come out of each term; the remainders lie in 0 .. c-1, and the offset
  // with what they share with c is reduced.
  Polynomial whole, rest;
  int64_t common = c, offset = 0;
  const auto push = [](Polynomial& into, int64_t coefficient, std::span<const Factor> factors) {
    if (coefficient == 0) return;
    into.terms.push_back({coefficient, static_cast<uint32_t>(into.factors.size()),
                          static_cast<uint32_t>(factors.size())});
    into.factors.insert(into.factors.end(), factors.begin(), factors.end());
  };
  for (const Term& term : terms_of(a)) {
    const int64_t quotient = core::floor_quotient(term.coefficient, c);
    const int64_t remainder = term.coefficient - quotient * c;
    push(whole, quotient, factors_of(term));
    if (term.factor_count == 0) {
      offset = remainder;
    } else if (remainder != 0) {
      push(rest, remainder, factors_of(term));
      common = std::gcd(common, remainder);
    }
  }
  const Dim outside = intern(whole);
  if (rest.terms.empty()) return outside;  // 0 <= offset < c
  offset /= common;
  c /= common;
  for (Term& term : rest.terms) term.coefficient /= common;
  const Dim numerator_without_offset = intern(rest);
  if (is_atom(numerator_without_offset, AtomKind::kFloor) &&
      atom_of(numerator_without_offset).b.known()) {
    // floor((floor(x/d) + k)/c) = floor((x + k*d)/(c*d))
    const Atom nested = atom_of(numerator_without_offset);
    const Dim shifted = add(nested.a, mul(nested.b, Dim(offset)));
    return add(outside, floor_div(shifted, mul(nested.b, Dim(c))));
  }
  return add(outside, atom(AtomKind::kFloor, add(numerator_without_offset, Dim(offset)), Dim(c)));
}

Dim DimTable::ceil_div(Dim a, Dim b) {
  if (b.known() && b.value() > 0) return floor_div(add(a, Dim(b.value() - 1)), b);
  return sub(Dim(0), floor_div(sub(Dim(0), a), b));
}

Dim DimTable::broadcast(Dim a, Dim b) {
  if (a == b || b == Dim(1)) return a;
  if (a == Dim(1)) return b;
  if (a == overflow_ || b == overflow_ || (a.known() && b.known())) return overflow_;
  if (a.known()) return a;
  if (b.known()) return b;
  // A sorted chain without doubles: broadcast is associative, commutative and idempotent.
  std::vector<Dim> operands;
  for (Dim side : {a, b}) {
    while (is_atom(side, AtomKind::kBroadcast)) {
      operands.push_back(atom_of(side).a);
      side = atom_of(side).b;
    }
    operands.push_back(side);
  }
  std::sort(operands.begin(), operands.end(), std::greater<>());  // older ones first
  operands.erase(std::unique(operands.begin(), operands.end()), operands.end());
  Dim out = operands.back();
  for (size_t i = operands.size() - 1; i-- > 0;) {
    out = atom(AtomKind::kBroadcast, operands[i], out);
  }
  return out;
}

std::optional<Dim> DimTable::divide_exact(Dim a, Dim b) {
  if (b == Dim(0) || a == overflow_ || b == overflow_) return std::nullopt;
  if (a == b) return Dim(1);
  if (a == Dim(0)) return a;
  Term divisor{b.known() ? b.value() : 0, 0, 0};
  if (!b.known()) {
    if (terms_of(b).size() != 1) return std::nullopt;
    divisor = terms_of(b)[0];
  }
  if (a.known()) {
    if (divisor.factor_count > 0 || a.value() % divisor.coefficient != 0) return std::nullopt;
    return constant(a.value() / divisor.coefficient);
  }
  Polynomial p;
  for (const Term& term : terms_of(a)) {
    if (term.coefficient % divisor.coefficient != 0) return std::nullopt;
    const auto begin = static_cast<uint32_t>(p.factors.size());
    const auto over = factors_of(divisor);
    size_t used = 0;
    for (const Factor& f : factors_of(term)) {
      if (used < over.size() && over[used].atom == f.atom) {
        if (over[used].power > f.power) return std::nullopt;
        if (f.power > over[used].power) p.factors.push_back({f.atom, f.power - over[used].power});
        ++used;
      } else {
        p.factors.push_back(f);
      }
    }
    if (used != over.size()) return std::nullopt;
    p.terms.push_back({term.coefficient / divisor.coefficient, begin,
                       static_cast<uint32_t>(p.factors.size()) - begin});
  }
  return intern(p);
}

// --- undo -----------------------------------------------------------------------------------

DimTable::Size DimTable::size() const {
  const auto n = [](const auto& v) { return static_cast<uint32_t>(v.size()); };
  return {n(expressions_), n(atoms_), n(symbols_), n(numbered_), n(named_), n(terms_), n(factors_)};
}

void DimTable::truncate(const Size& to) {
  // Names first: a name may have been given to a symbol that stays.
  while (named_.size() > to.names) {
    Symbol& symbol = symbols_[named_.back()];
    names_.erase(symbol.name);
    symbol.name.clear();
    named_.pop_back();
  }
  for (uint32_t id = to.atoms; id < atoms_.size(); ++id) {
    const Atom& a = atoms_[id];
    if (a.kind != AtomKind::kFloor && a.kind != AtomKind::kBroadcast) continue;
    auto [it, end] = atom_index_.equal_range(atom_key(static_cast<int>(a.kind), a.a, a.b));
    while (it->second != id) ++it;
    atom_index_.erase(it);
  }
  // Last in, first out, so clearing a slot of a linear probe breaks no chain.
  const size_t mask = buckets_.size() - 1;
  while (expressions_.size() > to.expressions) {
    const auto id = static_cast<uint32_t>(expressions_.size() - 1);
    size_t slot = expressions_.back().hash & mask;
    while (buckets_[slot] != id) slot = (slot + 1) & mask;
    buckets_[slot] = kNoId;
    expressions_.pop_back();
  }
  atoms_.resize(to.atoms);
  symbols_.resize(to.symbols);
  numbered_.resize(to.unnamed);
  terms_.resize(to.terms);
  factors_.resize(to.factors);
}

}  // namespace mithril::infer
