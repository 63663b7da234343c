#include "core/error.h"

#include <algorithm>

namespace mithril::core {

std::string Error::text() const {
  std::string out = message;
  if (!location.path.empty() || location.known()) {
    out += location.path.empty() ? "\n  at " : "\n  in model " + location.path;
    const std::string place = to_string(location);
    if (!place.empty()) out += location.path.empty() ? place : " (" + place + ")";
  }
  for (const Fact& fact : facts) {
    out += "\n    " + fact.text;
    const std::string place = to_string(fact.location);
    if (!fact.location.path.empty()) out += "    <- '" + fact.location.path + "'";
    if (!place.empty()) out += (fact.location.path.empty() ? "    <- " : ", ") + place;
  }
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

}  // namespace mithril::core
