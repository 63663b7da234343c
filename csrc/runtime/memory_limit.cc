#include "runtime/memory_limit.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace mithril::runtime {
namespace {

constexpr const char* kRoot = "/sys/fs/cgroup";

std::string contents(const std::string& path) {
  const std::ifstream file(path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

// "/a/b" → root/a/b/name, root/a/name, root/name.
void add_upwards(std::string_view group, const std::string& root, const char* name,
                 std::vector<std::string>& out) {
  while (true) {
    while (!group.empty() && group.back() == '/') group.remove_suffix(1);
    out.push_back(root + std::string(group) + "/" + name);
    if (group.empty()) return;
    group = group.substr(0, std::min(group.rfind('/'), group.size() - 1));
  }
}

int64_t find_limit() {
  int64_t limit = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  if (limit <= 0) limit = INT64_MAX;
  for (const std::string& file : limit_files(contents("/proc/self/cgroup"))) {
    if (const auto found = parse_limit(contents(file))) limit = std::min(limit, *found);
  }
  return limit;
}

}  // namespace

std::optional<int64_t> parse_limit(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = end == text.data() + text.size() || *end == '\n';
  if (error != std::errc() || !is_whole || value <= 0) return std::nullopt;
  return value;
}

std::vector<std::string> limit_files(std::string_view groups) {
  std::vector<std::string> out;
  while (!groups.empty()) {
    const std::string_view line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(line.size() + 1, groups.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view group = line.substr(second + 1);
    if (controllers.empty()) add_upwards(group, kRoot, "memory.max", out);
    if (controllers == "memory") {
      add_upwards(group, std::string(kRoot) + "/memory", "memory.limit_in_bytes", out);
    }
  }
  return out;
}

int64_t memory_limit() {
  static const int64_t limit = find_limit();
  return limit;
}

}  // namespace mithril::runtime
