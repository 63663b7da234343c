// Lines of a C-like language, indented by blocks.
#pragma once
#include <string>
#include <string_view>
#include <utility>

namespace mithril::emit {

/// Collects lines; a printer derives from it.
class IndentedText {
 protected:
  explicit IndentedText(int depth = 0) : depth_(depth) {}

  void line(std::string_view text) {
    out_.append(2 * static_cast<size_t>(depth_), ' ');
    out_.append(text);
    out_.push_back('\n');
  }
  /// Begins a block with a line that ends in a brace.
  void open(std::string_view text) {
    line(text);
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }
  std::string take_text() { return std::move(out_); }

 private:
  std::string out_;
  int depth_;
};

}  // namespace mithril::emit
