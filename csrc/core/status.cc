#include "core/status.h"

namespace mithril::core {

void internal_error(const char* file, int line, const std::string& message) {
  std::string_view name = file;
  const size_t root = name.rfind("csrc/");
  if (root != std::string_view::npos) name.remove_prefix(root + 5);
  throw ErrorException(fail(ErrorKind::kInternal, Code::kInternal,
                            "{} ({}:{}); this is a bug in mithril", message, name, line));
}

}  // namespace mithril::core
