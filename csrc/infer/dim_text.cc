// Printing and parsing of size expressions.
#include <algorithm>
#include <charconv>

#include "infer/dim.h"

namespace mithril::infer {
namespace {

// Shared sub-expressions can make text grow without bound; nobody reads past this.
constexpr size_t kLongest = 4000;

bool is_word(char c) {
  return !(c == ' ' || c == '+' || c == '-' || c == '*' || c == '/' || c == '(' || c == ')' ||
           c == ',' || c == '[' || c == ']' || c == '\0');
}

}  // namespace

std::string DimTable::print_terms(Dim dim, bool python, const std::vector<std::string>& names,
                                  const std::vector<uint32_t>& atoms) const {
  if (dim.known()) return std::to_string(dim.value());
  std::string out;
  const std::string_view times = "*";
  for (const Term& term : terms_of(dim)) {
    const bool negative = term.coefficient < 0;
    if (negative) {
      out += python && !out.empty() ? " - " : "-";
    } else if (!out.empty()) {
      out += python ? " + " : "+";
    }
    const uint64_t magnitude = negative ? 0 - static_cast<uint64_t>(term.coefficient)
                                        : static_cast<uint64_t>(term.coefficient);
    bool first = true;
    if (magnitude != 1 || term.factor_count == 0) {
      out += std::to_string(magnitude);
      first = false;
    }
    for (const Factor& f : factors_of(term)) {
      const auto at = std::lower_bound(atoms.begin(), atoms.end(), f.atom) - atoms.begin();
      for (uint32_t power = 0; power < f.power; ++power) {
        if (!first) out += times;
        out += names[static_cast<size_t>(at)];
        first = false;
      }
    }
  }
  return out;
}

std::string DimTable::print_with(Dim dim, bool python,
                                 const std::function<std::string(Dim)>& name) const {
  if (dim.known()) return std::to_string(dim.value());
  const std::vector<uint32_t> atoms = reachable_atoms(dim);
  std::vector<std::string> names(atoms.size());
  const auto grouped = [&](Dim d) {
    const std::string text = print_terms(d, python, names, atoms);
    return !d.known() && terms_of(d).size() > 1 ? "(" + text + ")" : text;
  };
  for (size_t i = 0; i < atoms.size(); ++i) {
    const Atom& a = atoms_[atoms[i]];
    switch (a.kind) {
      case AtomKind::kSymbol: names[i] = name(Dim::expression(a.self)); break;
      case AtomKind::kOverflow: names[i] = "overflow"; break;
      case AtomKind::kFloor: {
        const bool plain = a.b.known() || is_symbol(a.b);
        const std::string divisor = plain ? print_terms(a.b, python, names, atoms)
                                          : "(" + print_terms(a.b, python, names, atoms) + ")";
        if (python) {
          const bool simple = is_symbol(a.a);
          const std::string numerator = print_terms(a.a, python, names, atoms);
          names[i] = "(" + (simple ? numerator : "(" + numerator + ")") + "//" + divisor + ")";
        } else {
          names[i] = "floor(" + grouped(a.a) + "/" + divisor + ")";
        }
        break;
      }
      case AtomKind::kBroadcast:
        names[i] = "broadcast(" + print_terms(a.a, python, names, atoms) + ", " +
                   print_terms(a.b, python, names, atoms) + ")";
        break;
    }
    if (names[i].size() > kLongest) names[i] = "...";
  }
  return print_terms(dim, python, names, atoms);
}

std::string DimTable::print(Dim dim) const {
  return print_with(dim, false, [this](Dim symbol) { return name_of(symbol); });
}
std::string DimTable::print(Dim dim, const std::function<std::string(Dim)>& name) const {
  return print_with(dim, false, name);
}
std::string DimTable::print_python(Dim dim, const std::function<std::string(Dim)>& name) const {
  return print_with(dim, true, name);
}

namespace {

/// Recursive descent with a depth limit: user text decides the nesting.
class DimParser {
 public:
  DimParser(DimTable& table, std::string_view text) : table_(table), text_(text) {}

  core::Result<Dim> parse() {
    const Dim dim = sum(0);
    skip();
    if (failed_ || at_ != text_.size()) {
      return core::fail(core::ErrorKind::kParse, core::Code::kParse,
                        "size expression: unexpected text at column {} of '{}'", at_ + 1,
                        text_.substr(0, 80));
    }
    return dim;
  }

 private:
  static constexpr int kDeepest = 200;

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Dim fail() {
    failed_ = true;
    return Dim(0);
  }
  Dim sum(int depth) {
    std::vector<Dim> terms = {product(depth)};
    while (!failed_) {
      if (take('+')) {
        terms.push_back(product(depth));
      } else if (take('-')) {
        terms.push_back(table_.sub(Dim(0), product(depth)));
      } else {
        break;
      }
    }
    return terms.size() == 1 ? terms[0] : table_.sum(terms);
  }
  Dim product(int depth) {
    Dim total = factor(depth);
    while (!failed_ && take('*')) total = table_.mul(total, factor(depth));
    return total;
  }
  Dim call(int depth, char separator) {
    const Dim a = separator == '/' ? product(depth) : sum(depth);
    if (failed_ || !take(separator)) return fail();
    const Dim b = separator == '/' ? product(depth) : sum(depth);
    if (failed_ || !take(')')) return fail();
    return separator == '/' ? table_.floor_div(a, b) : table_.broadcast(a, b);
  }
  Dim factor(int depth) {
    if (depth > kDeepest) return fail();
    if (take('-')) return table_.sub(Dim(0), factor(depth + 1));
    if (take('(')) {
      const Dim inner = sum(depth + 1);
      return take(')') ? inner : fail();
    }
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) return fail();
    if (word[0] >= '0' && word[0] <= '9') {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      return error == std::errc() && end == word.data() + word.size() ? Dim(value) : fail();
    }
    if (word == "floor" && take('(')) return call(depth + 1, '/');
    if (word == "broadcast" && take('(')) return call(depth + 1, ',');
    return word == "overflow" ? table_.overflow() : table_.symbol(word);
  }

  DimTable& table_;
  std::string_view text_;
  size_t at_ = 0;
  bool failed_ = false;
};

}  // namespace

core::Result<Dim> DimTable::parse(std::string_view text) { return DimParser(*this, text).parse(); }

}  // namespace mithril::infer
