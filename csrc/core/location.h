// Where something was written by the user: file, line, function, and the model path it has.
#pragma once
#include <cstdint>
#include <string>

namespace mithril::core {

/// A place in user code. `line` 0 means unknown. Copied freely; strings are small.
struct Location {
  std::string file;
  int line = 0;
  std::string path;  // dotted model path, e.g. "mlp.linear_1"; empty when not in a model

  bool known() const { return line > 0; }
  bool operator==(const Location&) const = default;
};

/// "train.py:14" (base name of the file), or "" when unknown.
std::string to_string(const Location& location);

}  // namespace mithril::core
