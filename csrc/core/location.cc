#include "core/location.h"

namespace mithril::core {

std::string to_string(const Location& location) {
  if (!location.known()) return "";
  const size_t slash = location.file.find_last_of("/\\");
  const std::string base =
      slash == std::string::npos ? location.file : location.file.substr(slash + 1);
  return base + ":" + std::to_string(location.line);
}

}  // namespace mithril::core
