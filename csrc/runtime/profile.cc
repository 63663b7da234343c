#include "runtime/profile.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/env.h"

namespace mithril::runtime {

Profile* Profile::process() {
  if (!core::env().profile) return nullptr;
  static Profile* const made = new Profile;  // kernels of other threads may outlive main
  return made;
}

Profile::Counter& Profile::counter(const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  auto& counter = counters_[kernel];
  if (!counter) counter = std::make_unique<Counter>();
  return *counter;
}

std::vector<Profile::Row> Profile::rows() const {
  std::vector<Row> out;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [kernel, counter] : counters_) {
      const int64_t count = counter->count.load();
      if (count == 0) continue;
      out.push_back({kernel, count, 1e-9 * static_cast<double>(counter->nanoseconds.load()),
                     counter->bytes.load()});
    }
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return out;
}

std::string print(const std::vector<Profile::Row>& rows) {
  if (rows.empty()) return "";
  constexpr size_t kLongestName = 60;  // a fused loop is named after all its ops
  double total = 0.0;
  for (const Profile::Row& row : rows) total += row.seconds;
  std::string out = fmt::format("{:<{}} {:>9} {:>12} {:>7} {:>12} {:>9}\n", "kernel", kLongestName,
                                "count", "ms", "%", "MB", "GB/s");
  for (const Profile::Row& row : rows) {
    std::string name = row.kernel;
    if (name.size() > kLongestName) name = name.substr(0, kLongestName - 3) + "...";
    const auto bytes = static_cast<double>(row.bytes);
    out += fmt::format("{:<{}} {:>9} {:>12.3f} {:>7.1f} {:>12.3f} {:>9.2f}\n", name, kLongestName,
                       row.count, 1e3 * row.seconds, total > 0 ? 100 * row.seconds / total : 0.0,
                       1e-6 * bytes, row.seconds > 0 ? 1e-9 * bytes / row.seconds : 0.0);
  }
  return out + fmt::format("{:<{}} {:>9} {:>12.3f}\n", "total", kLongestName, "", 1e3 * total);
}

}  // namespace mithril::runtime
