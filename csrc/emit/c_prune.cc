#include "emit/c_prune.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <vector>

namespace mithril::emit {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > at) out.push_back(text.substr(at, end - at));
    at = std::max(end, at + 1);
  }
  return out;
}

/// One definition with the comment before it.
struct Item {
  std::string text;
  std::vector<std::string> names;  // that it defines
  std::string use;                 // of a macro, at the start of a line
  bool stays = false;
};

// Lines of one item end with a backslash, or within braces or a comment.
class Splitter {
 public:
  explicit Splitter(std::string_view text) : rest_(text) {}

  std::vector<Item> run() {
    while (!rest_.empty()) {
      const size_t end = rest_.find('\n');
      add(rest_.substr(0, end));
      rest_ = end == std::string_view::npos ? "" : rest_.substr(end + 1);
    }
    return std::move(items_);
  }

 private:
  void add(std::string_view line) {
    const bool is_comment = in_comment_ || line.starts_with("//") || line.starts_with("/*");
    if (line.starts_with("/*")) in_comment_ = true;
    if (is_comment) {
      if (line.find("*/") != std::string_view::npos) in_comment_ = false;
      comment_ += std::string(line) + "\n";
      return;
    }
    if (line.empty() && item_.empty()) {
      comment_.clear();  // of a whole section
      return;
    }
    item_ += std::string(line) + "\n";
    depth_ += std::count(line.begin(), line.end(), '{') - std::count(line.begin(), line.end(), '}');
    if (depth_ > 0 || line.ends_with('\\') || !ends_statement(line)) return;
    finish();
  }

  static bool ends_statement(std::string_view line) {
    return line.starts_with('#') || line.ends_with(';') || line.ends_with('}') ||
           line.ends_with(')') || line.ends_with('"') || !line.ends_with(',');
  }

  void finish() {
    Item item;
    name(item, item_);
    item.text = comment_ + item_;
    comment_.clear();
    item_.clear();
    items_.push_back(std::move(item));
  }

  static void name(Item& item, std::string_view text) {
    const std::vector<std::string_view> words = words_of(text);
    if (text.starts_with("#define")) {
      item.names.emplace_back(words[1]);
    } else if (text.starts_with('#')) {
      item.stays = true;
    } else if (text.starts_with("typedef struct")) {
      item.names.emplace_back(words.back());
    } else if (text.starts_with("typedef")) {
      item.names.assign(words.begin() + 2, words.end());
    } else if (text.starts_with("M_FN") || text.starts_with("M_TABLE")) {
      item.names.emplace_back(words[2]);
    } else {
      item.use = text;
    }
  }

  std::string_view rest_;
  std::vector<Item> items_;
  std::string comment_, item_;
  std::ptrdiff_t depth_ = 0;
  bool in_comment_ = false;
};

std::vector<std::string> split_arguments(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const size_t end = list.find(',');
    std::string_view one = list.substr(0, end);
    while (one.starts_with(' ')) one.remove_prefix(1);
    out.emplace_back(one);
    list = end == std::string_view::npos ? "" : list.substr(end + 1);
  }
  return out;
}

// "a, b" of NAME(a, b) …
std::string_view arguments_of(std::string_view text) {
  const size_t begin = text.find('(') + 1;
  return text.substr(begin, text.find(')', begin) - begin);
}

class Pruner {
 public:
  Pruner(std::string_view prelude, std::string_view users) : items_(Splitter(prelude).run()) {
    for (Item& item : items_) {
      for (const std::string& name : item.names) definitions_[name] = &item.text;
      if (item.use.empty()) continue;
      item.use = expanded(item.use);
      item.names = defined(item.use);
    }
    use(users);
  }

  std::string run() {
    std::vector<bool> kept(items_.size());
    for (size_t at = items_.size(); at-- > 0;) {
      const Item& item = items_[at];
      kept[at] = item.stays || std::any_of(item.names.begin(), item.names.end(),
                                           [&](const auto& n) { return used_.contains(n); });
      if (!kept[at]) continue;
      use(item.text);
      use(item.use);
    }
    std::string out;
    for (size_t at = 0; at < items_.size(); ++at) {
      if (kept[at]) out += items_[at].text;
    }
    return out;
  }

 private:
  void use(std::string_view text) {
    for (const std::string_view word : words_of(text)) used_.emplace(word);
  }

  // The text of a macro for the arguments of one use, with that of macros in it behind it.
  std::string expanded(std::string_view use) const {
    const auto at = definitions_.find(std::string(words_of(use)[0]));
    if (at == definitions_.end()) return std::string(use);
    const size_t define = at->second->find("#define");
    const std::string_view macro = std::string_view(*at->second).substr(define);
    const auto parameters = split_arguments(arguments_of(macro));
    const auto arguments = split_arguments(arguments_of(use));
    std::string out;
    const std::string_view body = macro.substr(macro.find(')') + 1);
    for (size_t i = 0; i < body.size();) {
      size_t end = i;
      while (end < body.size() && is_word(body[end])) ++end;
      const std::string_view word = body.substr(i, end - i);
      const auto parameter = std::find(parameters.begin(), parameters.end(), word);
      const auto place = static_cast<size_t>(parameter - parameters.begin());
      if (end == i) {
        out += body[i] == '#' ? "" : std::string(1, body[i]);  // pastes what is beside it
      } else {
        out += place < arguments.size() ? arguments[place] : std::string(word);
      }
      i = std::max(end, i + 1);
    }
    std::string inner;
    for (const std::string_view word : words_of(out)) {
      const auto end = static_cast<size_t>(word.data() - out.data()) + word.size();
      const bool is_use = definitions_.contains(std::string(word)) && word.starts_with("M_");
      if (is_use && end < out.size() && out[end] == '(') {
        inner += expanded(std::string_view(out).substr(end - word.size()));
      }
    }
    return out + inner;
  }

  // The functions in a text.
  static std::vector<std::string> defined(std::string_view text) {
    std::vector<std::string> out;
    const auto words = words_of(text);
    for (size_t i = 0; i + 2 < words.size(); ++i) {
      if (words[i] == "M_FN") out.emplace_back(words[i + 2]);
    }
    return out;
  }

  std::vector<Item> items_;
  std::map<std::string, const std::string*> definitions_;
  std::set<std::string> used_;
};

}  // namespace

std::string prune_c(std::string_view prelude, std::string_view users) {
  return Pruner(prelude, users).run();
}

bool has_word(std::string_view text, std::string_view name) {
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    const bool begins = at == 0 || !is_word(text[at - 1]);
    if (begins && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

}  // namespace mithril::emit
