// Leaves out of what printed C stands on (c_like_text.h) what nothing uses.
#pragma once
#include <string>
#include <string_view>

namespace mithril::emit {

/// The items of `prelude` that `users` name, and those that these name, in order: functions marked
/// M_FN, tables, types, macros, and uses of macros at the start of a line, which define the names
/// that end like their first argument: M_INTEGER(u8, …) defines m_add_u8. Directives other than
/// #define stay.
std::string prune_c(std::string_view prelude, std::string_view users);

/// Tells whether `text` has `name` as a word.
bool has_word(std::string_view text, std::string_view name);

}  // namespace mithril::emit
