#include "core/error.h"

#include <algorithm>

namespace mithril::core {

namespace {

std::string short_place(const Location& location) {
  if (location.path.empty() && !location.known()) return "";
  const std::string place = to_string(location);
  if (location.path.empty()) return "\n  at " + place;
  return "\n  in model " + location.path + (place.empty() ? "" : " (" + place + ")");
}

// "  train.py:31   model |= ...", and the model where that says more than the line.
std::string long_place(const Error& error) {
  std::string out;
  if (error.location.known()) {
    out = "\n  " + to_string(error.location);
    if (!error.source.empty()) out += "   " + error.source;
  }
  const bool nested = error.location.path.find('.') != std::string::npos;
  if (nested) out += "\n  in model " + error.location.path;
  return out;
}

// "features : [N, 512]" -> the length of the name.
size_t name_length(const std::string& fact) {
  const size_t at = fact.find(" : ");
  return at == std::string::npos ? 0 : at;
}

std::string indented(const Error::Fact& fact) {
  return std::string(static_cast<size_t>(fact.depth) * 2, ' ') + fact.text;
}

std::string origin(const Error::Fact& fact, const Location& here) {
  std::string out = fact.by;
  if (!fact.location.path.empty()) out += (out.empty() ? "'" : " of '") + fact.location.path + "'";
  const bool same =
      fact.location.known() && fact.location.file == here.file && fact.location.line == here.line;
  const std::string place = same ? "given here" : to_string(fact.location);
  if (!place.empty()) out += (out.empty() ? "" : ", ") + place;
  return out;
}

std::string fact_lines(const Error& error) {
  constexpr size_t kWidest = 40;  // long names and shapes are not worth an aligned column
  size_t names = 0, texts = 0;
  std::vector<std::string> lines;
  for (const Error::Fact& fact : error.facts) {
    lines.push_back(indented(fact));
    names = std::max(names, name_length(lines.back()));
  }
  for (std::string& line : lines) {
    const size_t length = name_length(line);
    if (length > 0 && names <= kWidest) line.insert(length, names - length, ' ');
    if (line.size() <= kWidest) texts = std::max(texts, line.size());
  }
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string from = origin(error.facts[i], error.location);
    out += "\n    " + lines[i];
    if (from.empty()) continue;
    out +=
        std::string(texts > lines[i].size() ? texts - lines[i].size() : 0, ' ') + "    <- " + from;
  }
  return out;
}

}  // namespace

std::string Error::text() const {
  std::string out = message;
  out += facts.empty() ? short_place(location) : long_place(*this) + fact_lines(*this);
  for (const std::string& reason : reasons) out += "\n    " + reason;
  if (!hint.empty()) out += "\n  help: " + hint;
  return out;
}

ErrorException::ErrorException(Error error) : error_(std::move(error)), text_(error_.text()) {}

namespace {

// Damerau-Levenshtein (optimal string alignment), cut off above 2.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::string suggestion(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 64;  // hostile names are not worth the quadratic work
  if (name.empty() || name.size() > kLongest) return "";
  const std::string* best = nullptr;
  size_t best_distance = std::min<size_t>(2, (name.size() + 1) / 2) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongest || candidate == name) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : ", did you mean '" + *best + "'?";
}

std::string suggestion_or_keys(std::string_view name, const std::vector<std::string>& keys) {
  constexpr size_t kMost = 12;
  if (std::string near = suggestion(name, keys); !near.empty()) return near;
  std::string out;
  size_t listed = 0;
  for (const std::string& key : keys) {
    if (key.empty() || key[0] == '$') continue;  // a generated name
    if (listed++ == kMost) return out + ", …";
    out += (out.empty() ? "; its keys are '" : ", '") + key + "'";
  }
  return out;
}

}  // namespace mithril::core
