// What is asked of a size expression: its symbols, its value, its bounds, its solutions.
#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/checked.h"
#include "infer/dim.h"

namespace mithril::infer {

// --- walks ----------------------------------------------------------------------------------

std::vector<uint32_t> DimTable::reachable_atoms(Dim dim) const {
  std::vector<uint32_t> found, stack;
  const auto visit = [&](Dim d) {
    if (d.known()) return;
    for (const Term& term : terms_of(d)) {
      for (const Factor& f : factors_of(term)) stack.push_back(f.atom);
    }
  };
  std::vector<bool> seen;
  visit(dim);
  while (!stack.empty()) {
    const uint32_t id = stack.back();
    stack.pop_back();
    if (id >= seen.size()) seen.resize(id + 1);
    if (seen[id]) continue;
    seen[id] = true;
    found.push_back(id);
    visit(atoms_[id].a);
    visit(atoms_[id].b);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<Dim> DimTable::symbols_of(Dim dim) const {
  std::vector<Dim> out;
  for (const uint32_t id : reachable_atoms(dim)) {
    if (atoms_[id].kind == AtomKind::kSymbol) out.push_back(Dim::expression(atoms_[id].self));
  }
  return out;
}

bool DimTable::contains(Dim dim, Dim symbol) const {
  if (dim.known()) return false;
  if (dim == symbol) return true;
  const auto atoms = reachable_atoms(dim);
  const uint32_t wanted = symbols_[symbol_index(symbol)].atom;
  return std::binary_search(atoms.begin(), atoms.end(), wanted);
}

Dim DimTable::substitute(Dim dim, std::span<const std::pair<Dim, Dim>> map) {
  return substitute(dim, [map](Dim symbol) {
    for (const auto& [from, to] : map) {
      if (from == symbol) return to;
    }
    return symbol;
  });
}

Dim DimTable::substitute(Dim dim, const std::function<Dim(Dim)>& map) {
  if (dim.known() || dim == overflow_) return dim;
  if (is_symbol(dim)) return map(dim);
  const std::vector<uint32_t> atoms = reachable_atoms(dim);
  std::vector<Dim> replaced(atoms.size());
  const auto of_atom = [&](uint32_t id) {
    return replaced[static_cast<size_t>(std::lower_bound(atoms.begin(), atoms.end(), id) -
                                        atoms.begin())];
  };
  const auto of_expression = [&](Dim d) {
    if (d.known()) return d;
    bool same = true;
    for (const Term& term : terms_of(d)) {
      for (const Factor& f : factors_of(term)) {
        same = same && of_atom(f.atom) == Dim::expression(atoms_[f.atom].self);
      }
    }
    if (same) return d;
    std::vector<Dim> products;
    for (size_t t = 0; t < terms_of(d).size(); ++t) {
      const Term term = terms_of(d)[t];
      Dim product = constant(term.coefficient);
      for (uint32_t i = 0; i < term.factor_count; ++i) {
        const Factor f = factors_[term.factors_begin + i];
        for (uint32_t power = 0; power < f.power; ++power) product = mul(product, of_atom(f.atom));
      }
      products.push_back(product);
    }
    return sum(products);
  };
  for (size_t i = 0; i < atoms.size(); ++i) {
    const Atom a = atoms_[atoms[i]];
    switch (a.kind) {
      case AtomKind::kSymbol: replaced[i] = map(Dim::expression(a.self)); break;
      case AtomKind::kOverflow: replaced[i] = overflow_; break;
      case AtomKind::kFloor: replaced[i] = floor_div(of_expression(a.a), of_expression(a.b)); break;
      case AtomKind::kBroadcast:
        replaced[i] = broadcast(of_expression(a.a), of_expression(a.b));
        break;
    }
  }
  return of_expression(dim);
}

namespace {

bool multiply_power(int64_t& product, int64_t base, uint32_t power) {
  for (; power > 0; --power) {
    if (__builtin_mul_overflow(product, base, &product)) return false;
  }
  return true;
}

}  // namespace

std::optional<int64_t> DimTable::evaluate(
    Dim dim, const std::function<std::optional<int64_t>(uint32_t)>& values) const {
  if (dim.known()) return dim.value();
  const std::vector<uint32_t> atoms = reachable_atoms(dim);
  std::vector<int64_t> known(atoms.size());
  const auto of_expression = [&](Dim d) -> std::optional<int64_t> {
    if (d.known()) return d.value();
    int64_t sum = 0;
    for (const Term& term : terms_of(d)) {
      int64_t product = term.coefficient;
      for (const Factor& f : factors_of(term)) {
        const auto at = std::lower_bound(atoms.begin(), atoms.end(), f.atom) - atoms.begin();
        if (!multiply_power(product, known[static_cast<size_t>(at)], f.power)) return std::nullopt;
      }
      if (__builtin_add_overflow(sum, product, &sum)) return std::nullopt;
    }
    return sum;
  };
  for (size_t i = 0; i < atoms.size(); ++i) {
    const Atom& a = atoms_[atoms[i]];
    if (a.kind == AtomKind::kOverflow) return std::nullopt;
    if (a.kind == AtomKind::kSymbol) {
      const auto value = values(a.symbol);
      if (!value) return std::nullopt;
      known[i] = *value;
      continue;
    }
    const auto x = of_expression(a.a), y = of_expression(a.b);
    if (!x || !y) return std::nullopt;
    if (a.kind == AtomKind::kFloor) {
      if (*y == 0 || (*y == -1 && *x == INT64_MIN)) return std::nullopt;
      known[i] = core::floor_quotient(*x, *y);
    } else {
      if (*x != *y && *x != 1 && *y != 1) return std::nullopt;
      known[i] = *x == 1 ? *y : *x;
    }
  }
  return of_expression(dim);
}

std::optional<int64_t> DimTable::evaluate(Dim dim, std::span<const int64_t> values) const {
  if (dim.known()) return dim.value();
  return evaluate(dim, [values](uint32_t symbol) -> std::optional<int64_t> {
    if (symbol >= values.size() || values[symbol] < 0) return std::nullopt;
    return values[symbol];
  });
}

// --- bounds ---------------------------------------------------------------------------------

namespace {

__extension__ typedef __int128 Wide;                      // products of two bounds fit
constexpr int64_t kLeast = INT64_MIN, kMost = INT64_MAX;  // no bound

int64_t bounded(Wide value) {
  return value <= -kMost ? kLeast : value >= kMost ? kMost : static_cast<int64_t>(value);
}

Bounds sum_of(Bounds a, Bounds b) {
  const bool below = a.low == kLeast || b.low == kLeast, above = a.high == kMost || b.high == kMost;
  return {below ? kLeast : bounded(static_cast<Wide>(a.low) + b.low),
          above ? kMost : bounded(static_cast<Wide>(a.high) + b.high)};
}

Bounds product_of(Bounds a, Bounds b) {
  const Wide corners[] = {static_cast<Wide>(a.low) * b.low, static_cast<Wide>(a.low) * b.high,
                          static_cast<Wide>(a.high) * b.low, static_cast<Wide>(a.high) * b.high};
  const auto [least, most] = std::minmax_element(std::begin(corners), std::end(corners));
  return {bounded(*least), bounded(*most)};
}

Bounds quotient_of(Bounds a, Bounds b) {
  if (b.low < 1) return {};
  const auto over = [](int64_t x, int64_t by) {
    return by == kMost ? (x < 0 ? -1 : 0) : core::floor_quotient(x, by);
  };
  return {a.low == kLeast ? kLeast : over(a.low, a.low < 0 ? b.low : b.high),
          a.high == kMost ? kMost : over(a.high, a.high < 0 ? b.high : b.low)};
}

}  // namespace

Bounds DimTable::bounds(Dim dim, const std::function<Bounds(Dim symbol)>& of_symbol) const {
  if (dim.known()) return {dim.value(), dim.value()};
  const std::vector<uint32_t> atoms = reachable_atoms(dim);
  std::vector<Bounds> found(atoms.size());
  const auto of_expression = [&](Dim d) {
    if (d.known()) return Bounds{d.value(), d.value()};
    Bounds sum{0, 0};
    for (const Term& term : terms_of(d)) {
      Bounds product{term.coefficient, term.coefficient};
      for (const Factor& f : factors_of(term)) {
        const auto at = std::lower_bound(atoms.begin(), atoms.end(), f.atom) - atoms.begin();
        for (uint32_t power = 0; power < f.power; ++power) {
          product = product_of(product, found[static_cast<size_t>(at)]);
        }
      }
      sum = sum_of(sum, product);
    }
    return sum;
  };
  for (size_t i = 0; i < atoms.size(); ++i) {
    const Atom& a = atoms_[atoms[i]];
    if (a.kind == AtomKind::kSymbol) found[i] = of_symbol(Dim::expression(a.self));
    if (a.kind == AtomKind::kFloor) found[i] = quotient_of(of_expression(a.a), of_expression(a.b));
    if (a.kind != AtomKind::kBroadcast) continue;
    const Bounds x = of_expression(a.a), y = of_expression(a.b);
    found[i] = {std::min(x.low, y.low), std::max(x.high, y.high)};
  }
  return of_expression(dim);
}

// --- solving --------------------------------------------------------------------------------

std::optional<LinearForm> DimTable::linear(Dim dim) const {
  if (dim.known()) return std::nullopt;
  const auto terms = terms_of(dim);
  if (terms.size() > 2) return std::nullopt;
  const auto factors = factors_of(terms[0]);
  if (factors.size() != 1 || factors[0].power != 1) return std::nullopt;
  const Atom& a = atoms_[factors[0].atom];
  if (a.kind != AtomKind::kSymbol) return std::nullopt;
  LinearForm out{terms[0].coefficient, Dim::expression(a.self), 0};
  if (terms.size() == 2) {
    if (terms[1].factor_count != 0) return std::nullopt;
    out.b = terms[1].coefficient;
  }
  return out;
}

std::optional<DimTable::Solution> DimTable::solve(Dim dim, int64_t value) const {
  const auto form = linear(dim);
  int64_t difference = 0;
  if (!form || __builtin_sub_overflow(value, form->b, &difference)) return std::nullopt;
  if (form->a == -1 && difference == INT64_MIN) return std::nullopt;
  return Solution{form->x, difference / form->a, difference % form->a == 0};
}

std::optional<std::pair<Dim, Dim>> DimTable::isolate(Dim expr) {
  if (expr.known() || expr == overflow_) return std::nullopt;
  std::optional<std::pair<Dim, Dim>> best;
  const auto count = terms_of(expr).size();
  for (size_t t = 0; t < count; ++t) {
    const Term term = terms_of(expr)[t];
    if (term.factor_count != 1 || term.coefficient == INT64_MIN) continue;
    const Factor factor = factors_of(term)[0];
    const Atom a = atoms_[factor.atom];
    if (factor.power != 1 || a.kind != AtomKind::kSymbol) continue;
    const Dim symbol = Dim::expression(a.self);
    if (best) {
      const bool named = is_named(symbol), best_named = is_named(best->first);
      if (named != best_named ? named : symbol_index(best->first) > a.symbol) continue;
    }
    Polynomial rest;
    bool divides = true;
    for (size_t other = 0; other < count && divides; ++other) {
      if (other == t) continue;
      const Term& o = terms_of(expr)[other];
      divides = o.coefficient % term.coefficient == 0 && o.coefficient != INT64_MIN;
      if (!divides) break;
      const auto factors = factors_of(o);
      rest.terms.push_back({-(o.coefficient / term.coefficient),
                            static_cast<uint32_t>(rest.factors.size()),
                            static_cast<uint32_t>(factors.size())});
      rest.factors.insert(rest.factors.end(), factors.begin(), factors.end());
    }
    if (!divides) continue;
    const Dim value = intern(rest);
    if (contains(value, symbol)) continue;
    best = {symbol, value};
  }
  return best;
}

bool DimTable::is_solvable(Dim expr) const {
  if (expr.known()) return expr.value() == 0;
  int64_t common = 0, constant = 0;
  for (const Term& term : terms_of(expr)) {
    if (term.factor_count == 0) {
      constant = term.coefficient;
    } else if (term.coefficient != INT64_MIN) {
      common = std::gcd(common, term.coefficient);
    }
  }
  return common == 0 ? constant == 0 : constant % common == 0;
}

std::optional<DimTable::FloorForm> DimTable::floor_form(Dim dim) const {
  if (dim.known()) return std::nullopt;
  const auto terms = terms_of(dim);
  if (terms.size() > 2 || (terms.size() == 2 && terms[1].factor_count != 0)) return std::nullopt;
  const auto factors = factors_of(terms[0]);
  if (factors.size() != 1 || factors[0].power != 1) return std::nullopt;
  const Atom& a = atoms_[factors[0].atom];
  if (a.kind != AtomKind::kFloor || !a.b.known()) return std::nullopt;
  return FloorForm{terms[0].coefficient, a.a, a.b.value(),
                   terms.size() == 2 ? terms[1].coefficient : 0};
}

}  // namespace mithril::infer
