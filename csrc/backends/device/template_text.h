// Texts of kernels with names in capitals, and what these stand for.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mithril::device {

/// Replaces a name, where it stands as a whole word.
void put(std::string& text, std::string_view name, const std::string& value);

using Names = std::vector<std::pair<std::string_view, std::string>>;
/// A text with all of these replaced, one after the other.
std::string filled(std::string text, const Names& names);

std::string text_of(int64_t number);
/// A stride as a text that multiplies ints of at most `most`: of 64 bits where products need them.
std::string stride_text(int64_t stride, int64_t most);

}  // namespace mithril::device
