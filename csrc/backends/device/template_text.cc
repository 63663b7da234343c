#include "backends/device/template_text.h"

#include <cstdint>

#include <fmt/format.h>

namespace mithril::device {
namespace {

bool is_word(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

void put(std::string& text, std::string_view name, const std::string& value) {
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos;) {
    const size_t end = at + name.size();
    if ((at > 0 && is_word(text[at - 1])) || (end < text.size() && is_word(text[end]))) {
      at = end;
      continue;
    }
    text.replace(at, name.size(), value);
    at += value.size();
  }
}

std::string filled(std::string text, const Names& names) {
  for (const auto& [name, value] : names) put(text, name, value);
  return text;
}

std::string text_of(int64_t number) { return fmt::to_string(number); }

std::string stride_text(int64_t stride, int64_t most) {
  const bool is_small = stride <= INT32_MAX / most && stride >= -(INT32_MAX / most);
  return (is_small ? "" : "(m_i64)") + text_of(stride);
}

}  // namespace mithril::device
