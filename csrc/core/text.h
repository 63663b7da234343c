// Helpers for text.
#pragma once
#include <string>

namespace mithril::core {

/// ASCII letters in lower case; other bytes stay.
std::string lower_case(std::string text);

}  // namespace mithril::core
