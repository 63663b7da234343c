#include "backends/device/injection.h"

#include <atomic>
#include <map>
#include <mutex>

namespace mithril::device {
namespace {

struct Injection {
  int64_t nth;
  int status;
  bool lasts;
};
std::mutex injection_mutex;
std::map<std::string, Injection> injections;
std::map<std::string, int64_t> failures;
std::atomic<bool> injects{false};
std::atomic<int64_t> objects{0};

}  // namespace

void inject_failure(const std::string& symbol, int64_t nth, int status, bool lasts) {
  const std::lock_guard lock(injection_mutex);
  if (status == 0) {
    injections.erase(symbol);
  } else {
    injections[symbol] = {nth, status, lasts};
  }
  injects = !injections.empty();
}

int injected(const char* symbol) {
  if (!injects.load(std::memory_order_relaxed)) return 0;
  const std::lock_guard lock(injection_mutex);
  const auto at = injections.find(symbol);
  if (at == injections.end()) return 0;
  const auto [nth, status, lasts] = at->second;
  --at->second.nth;
  if (lasts ? nth > 1 : nth != 1) return 0;
  ++failures[symbol];
  if (!lasts) injections.erase(at);
  injects = !injections.empty();
  return status;
}

int64_t injected_failures(const std::string& symbol) {
  const std::lock_guard lock(injection_mutex);
  const auto at = failures.find(symbol);
  return at == failures.end() ? 0 : at->second;
}

int64_t live_objects() { return objects.load(); }
void count_object(int64_t change) { objects += change; }

}  // namespace mithril::device
