#include "core/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace mithril::core {

// --- reading ------------------------------------------------------------------------------------

namespace {

constexpr size_t kLongestNumber = 1000;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view name(JsonReader::Type type) {
  using Type = JsonReader::Type;
  switch (type) {
    case Type::kNull: return "null";
    case Type::kBool: return "a bool";
    case Type::kNumber: return "a number";
    case Type::kString: return "a string";
    case Type::kArray: return "an array";
    case Type::kObject: return "an object";
    case Type::kNone: return "nothing";
  }
  return "nothing";
}

/// Bytes of the UTF-8 sequence at the front; 0 when it is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto follows = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xC2 && byte(0) <= 0xDF) return follows(1) ? 2 : 0;
  if ((byte(0) & 0xF0) == 0xE0 && follows(1) && follows(2)) {
    const bool is_overlong = byte(0) == 0xE0 && byte(1) < 0xA0;
    const bool is_surrogate = byte(0) == 0xED && byte(1) >= 0xA0;
    return is_overlong || is_surrogate ? 0 : 3;
  }
  if (byte(0) >= 0xF0 && byte(0) <= 0xF4 && follows(1) && follows(2) && follows(3)) {
    const bool is_overlong = byte(0) == 0xF0 && byte(1) < 0x90;
    const bool is_too_large = byte(0) == 0xF4 && byte(1) >= 0x90;
    return is_overlong || is_too_large ? 0 : 4;
  }
  return 0;
}

void append_utf8(std::string& out, uint32_t point) {
  const auto byte = [&](uint32_t bits) { out += static_cast<char>(bits); };
  const auto tail = [&](int shift) { byte(0x80 | ((point >> shift) & 0x3F)); };
  if (point < 0x80) return byte(point);
  if (point < 0x800) {
    byte(0xC0 | (point >> 6));
  } else if (point < 0x10000) {
    byte(0xE0 | (point >> 12));
    tail(6);
  } else {
    byte(0xF0 | (point >> 18));
    tail(12);
    tail(6);
  }
  tail(0);
}

}  // namespace

JsonReader::JsonReader(std::string_view text, std::string what)
    : text_(text), what_(std::move(what)) {}

void JsonReader::fail(std::string_view problem, Code code, ErrorKind kind) {
  if (!ok()) return;
  const std::string_view read = text_.substr(0, at_);
  const auto line = 1 + std::count(read.begin(), read.end(), '\n');
  const size_t start = read.rfind('\n');
  const size_t column = 1 + at_ - (start == std::string_view::npos ? 0 : start + 1);
  status_ = core::fail(kind, code, "{}, line {}, column {}: {}", what_, line, column, problem);
}

void JsonReader::skip_space() {
  while (at_ < text_.size() && is_space(text_[at_])) ++at_;
}

bool JsonReader::accept(char mark) {
  skip_space();
  if (at_ >= text_.size() || text_[at_] != mark) return false;
  ++at_;
  return true;
}

JsonReader::Type JsonReader::peek() {
  if (!ok()) return Type::kNone;
  skip_space();
  if (at_ >= text_.size()) {
    fail("the text ends too early");
    return Type::kNone;
  }
  const char c = text_[at_];
  if (c == '{') return Type::kObject;
  if (c == '[') return Type::kArray;
  if (c == '"') return Type::kString;
  if (c == 't' || c == 'f') return Type::kBool;
  if (text_.substr(at_, 4) == "null") return Type::kNull;
  if (c == '-' || is_digit(c)) return Type::kNumber;
  fail("requires a value");
  return Type::kNone;
}

bool JsonReader::expect(Type type) {
  const Type found = peek();
  if (!ok()) return false;
  if (found == type) return true;
  fail(fmt::format("requires {}, got {}", name(type), name(found)));
  return false;
}

void JsonReader::begin_object() {
  if (!expect(Type::kObject)) return;
  if (open_.size() == kMaxDepth) return fail("nested too deep", Code::kFileLimit);
  ++at_;
  open_ += '}';
  started_.push_back(false);
}

void JsonReader::begin_array() {
  if (!expect(Type::kArray)) return;
  if (open_.size() == kMaxDepth) return fail("nested too deep", Code::kFileLimit);
  ++at_;
  open_ += ']';
  started_.push_back(false);
}

// To the next entry of the innermost bracket; false at its end.
bool JsonReader::begin_entry(char close) {
  if (!ok()) return false;
  MITHRIL_CHECK(!open_.empty() && open_.back() == close, "no such bracket is open");
  if (accept(close)) {
    open_.pop_back();
    started_.pop_back();
    return false;
  }
  if (started_.back() && !accept(',')) {
    fail(fmt::format("requires ',' or '{}'", close));
    return false;
  }
  started_.back() = true;
  return true;
}

bool JsonReader::next_key(std::string_view& key) {
  if (!begin_entry('}')) return false;
  key = read_string();
  if (ok() && !accept(':')) fail("requires ':'");
  return ok();
}

bool JsonReader::next_item() { return begin_entry(']'); }

bool JsonReader::literal(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

void JsonReader::read_null() {
  if (expect(Type::kNull) && !literal("null")) fail("requires a value");
}

bool JsonReader::read_bool() {
  if (!expect(Type::kBool)) return false;
  if (literal("true")) return true;
  if (!literal("false")) fail("requires a value");
  return false;
}

// The number at the present position, by the grammar of JSON; "" after an error.
std::string_view JsonReader::number_text() {
  if (!expect(Type::kNumber)) return {};
  const size_t start = at_;
  const auto digits = [&] {
    const size_t first = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ - first;
  };
  const auto is_next = [&](char c) { return at_ < text_.size() && text_[at_] == c; };
  if (is_next('-')) ++at_;
  const bool has_leading_zero = is_next('0');
  size_t count = digits();
  bool good = count == 1 || (count > 0 && !has_leading_zero);
  if (is_next('.')) {
    ++at_;
    good = digits() > 0 && good;
  }
  if (is_next('e') || is_next('E')) {
    ++at_;
    if (is_next('+') || is_next('-')) ++at_;
    good = digits() > 0 && good;
  }
  if (!good) fail("malformed number");
  if (at_ - start > kLongestNumber) fail("a number of too many digits", Code::kFileLimit);
  return ok() ? text_.substr(start, at_ - start) : std::string_view();
}

bool JsonReader::is_integer() {
  if (peek() != Type::kNumber) return false;
  size_t at = at_ + (text_[at_] == '-' ? 1 : 0);
  while (at < text_.size() && is_digit(text_[at])) ++at;
  return at == text_.size() || (text_[at] != '.' && text_[at] != 'e' && text_[at] != 'E');
}

int64_t JsonReader::read_integer() {
  const std::string_view digits = number_text();
  int64_t out = 0;
  if (!ok()) return out;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (error == std::errc() && end == digits.data() + digits.size()) return out;
  fail(error == std::errc::result_out_of_range ? "requires an integer of 64 bits, got a larger one"
                                               : "requires an integer");
  return 0;
}

int64_t JsonReader::read_integer(int64_t low, int64_t high) {
  const int64_t out = read_integer();
  if (!ok() || (out >= low && out <= high)) return out;
  fail(fmt::format("requires an integer from {} to {}, got {}", low, high, out));
  return 0;
}

double JsonReader::read_number() {
  const std::string_view digits = number_text();
  double out = 0;
  if (!ok()) return out;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  // Too small a number is out of range as well as too large a one: both are not what was meant.
  if (result.ec == std::errc()) return out;
  fail("requires a number that 64 bits hold");
  return 0;
}

std::string_view JsonReader::read_string() {
  if (!expect(Type::kString)) return {};
  const size_t start = ++at_;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '"') return text_.substr(start, at_++ - start);
    if (c == '\\') return escaped_string(start);
    if (static_cast<unsigned char>(c) < 0x20) break;
    const size_t length = utf8_length(text_.substr(at_, 4));
    if (length == 0) break;
    at_ += length;
  }
  fail(at_ >= text_.size() ? "the text ends too early" : "a string with a malformed character");
  return {};
}

std::string_view JsonReader::escaped_string(size_t start) {
  std::string out(text_.substr(start, at_ - start));
  while (ok() && at_ < text_.size() && text_[at_] != '"') {
    if (text_[at_] == '\\') {
      ++at_;
      read_escape(out);
      continue;
    }
    const size_t length = utf8_length(text_.substr(at_, 4));
    if (length == 0 || static_cast<unsigned char>(text_[at_]) < 0x20) {
      fail("a string with a malformed character");
    }
    out += text_.substr(at_, length);
    at_ += length;
  }
  if (at_ >= text_.size()) fail("the text ends too early");
  if (!ok()) return {};
  ++at_;
  return decoded_.emplace_back(std::move(out));
}

uint32_t JsonReader::read_hex() {
  uint32_t out = 0;
  const std::string_view digits = text_.substr(at_, 4);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out, 16);
  if (digits.size() < 4 || error != std::errc() || end != digits.data() + 4) {
    fail("malformed escape");
  }
  at_ = std::min(at_ + 4, text_.size());
  return out;
}

void JsonReader::read_escape(std::string& out) {
  static constexpr std::string_view kMarks = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
  const char mark = at_ < text_.size() ? text_[at_] : '\0';
  const size_t found = kMarks.find(mark);
  if (mark != '\0' && found != std::string_view::npos) {
    ++at_;
    out += kMeant[found];
    return;
  }
  if (mark != 'u') return fail("malformed escape");
  ++at_;
  uint32_t point = read_hex();
  const bool is_pair = point >= 0xD800 && point < 0xDC00;
  if (is_pair && literal("\\u")) {
    const uint32_t low = read_hex();
    if (low < 0xDC00 || low > 0xDFFF) return fail("a surrogate without its other half");
    point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
  } else if (point >= 0xD800 && point <= 0xDFFF) {
    return fail("a surrogate without its other half");
  }
  append_utf8(out, point);
}

void JsonReader::open_or_skip() {
  switch (peek()) {
    case Type::kNull: return read_null();
    case Type::kBool: read_bool(); return;
    case Type::kNumber: number_text(); return;
    case Type::kString: read_string(); return;
    case Type::kArray: return begin_array();
    case Type::kObject: return begin_object();
    case Type::kNone: return;
  }
}

void JsonReader::skip() {
  const size_t base = open_.size();
  const size_t decoded = decoded_.size();
  open_or_skip();
  std::string_view key;
  while (ok() && open_.size() > base) {
    if (open_.back() == '}' ? next_key(key) : next_item()) open_or_skip();
    decoded_.resize(decoded);
  }
}

std::string_view JsonReader::read_raw() {
  peek();
  const size_t start = at_;
  skip();
  return ok() ? text_.substr(start, at_ - start) : std::string_view();
}

void JsonReader::finish() {
  skip_space();
  if (ok() && at_ < text_.size()) fail("text after the end");
}

// --- writing ------------------------------------------------------------------------------------

void JsonWriter::new_line() {
  out_ += '\n';
  out_.append(2 * levels_.size(), ' ');
}

void JsonWriter::before_value() {
  if (after_key_ || levels_.empty()) {
    after_key_ = false;
    return;
  }
  Level& level = levels_.back();
  if (!level.empty) out_ += level.one_line ? ", " : ",";
  level.empty = false;
  if (!level.one_line) new_line();
}

void JsonWriter::begin_object() {
  before_value();
  out_ += '{';
  levels_.push_back({'}', false, true});
}

void JsonWriter::begin_array(bool one_line) {
  before_value();
  out_ += '[';
  levels_.push_back({']', one_line, true});
}

void JsonWriter::end(char close) {
  MITHRIL_CHECK(!levels_.empty() && levels_.back().close == close, "no such bracket is open");
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty && !level.one_line) new_line();
  out_ += close;
}

void JsonWriter::end_object() { end('}'); }
void JsonWriter::end_array() { end(']'); }

void JsonWriter::key(std::string_view key) {
  before_value();
  quoted(key);
  out_ += ": ";
  after_key_ = true;
}

void JsonWriter::null() {
  before_value();
  out_ += "null";
}

void JsonWriter::boolean(bool value) {
  before_value();
  out_ += value ? "true" : "false";
}

void JsonWriter::integer(int64_t value) {
  before_value();
  out_ += fmt::format("{}", value);
}

void JsonWriter::number(double value) {
  MITHRIL_CHECK(std::isfinite(value), "JSON has finite numbers only");
  before_value();
  std::array<char, 64> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const std::string_view text(digits.data(), static_cast<size_t>(end - digits.data()));
  out_ += text;
  if (text.find_first_of(".e") == std::string_view::npos) out_ += ".0";
}

void JsonWriter::string(std::string_view value) {
  before_value();
  quoted(value);
}

void JsonWriter::quoted(std::string_view value) {
  out_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (c == '\n') {
      out_ += "\\n";
    } else if (c == '\t') {
      out_ += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out_ += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out_ += c;
    }
  }
  out_ += '"';
}

std::string JsonWriter::take() {
  out_ += '\n';
  return std::move(out_);
}

namespace {
// A scalar, or the opening of a bracket; says whether that was an object or an array.
JsonReader::Type copy_one(JsonReader& in, JsonWriter& out) {
  using Type = JsonReader::Type;
  const Type type = in.peek();
  switch (type) {
    case Type::kNull:
      in.read_null();
      out.null();
      break;
    case Type::kBool: out.boolean(in.read_bool()); break;
    case Type::kNumber:
      in.is_integer() ? out.integer(in.read_integer()) : out.number(in.read_number());
      break;
    case Type::kString: out.string(in.read_string()); break;
    case Type::kArray:
      in.begin_array();
      out.begin_array();
      break;
    case Type::kObject:
      in.begin_object();
      out.begin_object();
      break;
    case Type::kNone: break;
  }
  return type;
}
}  // namespace

void copy_value(JsonReader& in, JsonWriter& out) {
  using Type = JsonReader::Type;
  std::vector<Type> open;
  const auto copy_next = [&] {
    const Type type = copy_one(in, out);
    if (type == Type::kArray || type == Type::kObject) open.push_back(type);
  };
  copy_next();
  while (!open.empty() && in.ok()) {
    std::string_view key;
    if (open.back() == Type::kObject ? in.next_key(key) : in.next_item()) {
      if (open.back() == Type::kObject) out.key(key);
      copy_next();
    } else if (in.ok()) {
      open.back() == Type::kObject ? out.end_object() : out.end_array();
      open.pop_back();
    }
  }
}

// --- base64 -------------------------------------------------------------------------------------

namespace {
constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> digit_values() {
  std::array<int8_t, 256> out{};
  out.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    out[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  }
  return out;
}
constexpr std::array<int8_t, 256> kValues = digit_values();
}  // namespace

std::string to_base64(const std::vector<std::byte>& bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<uint32_t>(bytes[i + j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += i + j <= bytes.size() ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

Result<std::vector<std::byte>> from_base64(std::string_view text) {
  const auto malformed = [] {
    return fail(ErrorKind::kParse, Code::kParse, "malformed base64 text");
  };
  if (text.size() % 4 != 0) return malformed();
  size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::vector<std::byte> out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int8_t value = kValues[static_cast<unsigned char>(text[i])];
    if (value < 0) return malformed();
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (i % 4 == 1) out.push_back(static_cast<std::byte>(bits >> 4));
    if (i % 4 == 2) out.push_back(static_cast<std::byte>(bits >> 2));
    if (i % 4 == 3) out.push_back(static_cast<std::byte>(bits));
  }
  if (padding != 0 && (bits & ((1u << (2 * padding)) - 1)) != 0) return malformed();
  return out;
}

}  // namespace mithril::core
