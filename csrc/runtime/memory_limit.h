// How much memory this process may have.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mithril::runtime {

/// The machine's memory, or what the control groups of the process allow where that is less. Read
/// once.
int64_t memory_limit();

/// The number in a control group's file; nullopt for "max" and for what is no number.
std::optional<int64_t> parse_limit(std::string_view text);
/// The files that may hold a limit for a process whose /proc/self/cgroup has this text: of its
/// group and of those around it, in either version of control groups.
std::vector<std::string> limit_files(std::string_view groups);

}  // namespace mithril::runtime
