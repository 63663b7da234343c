// JSON text: a reader that walks and never recurses, and a writer whose output makes good diffs.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace mithril::core {

/// Walks over JSON text (RFC 8259) from front to back. Errors stick: after the first one every
/// call returns an empty result and the loops over keys and items end, so that callers look at
/// `status()` once. Uses memory for the open brackets and for strings with escapes only.
///
///     reader.begin_object();
///     for (std::string_view key; reader.next_key(key);) { … read or skip one value … }
class JsonReader {
 public:
  enum class Type : uint8_t { kNull, kBool, kNumber, kString, kArray, kObject, kNone };
  static constexpr size_t kMaxDepth = 256;

  /// `what` begins error texts ("model file"). `text` must outlive the reader and what it returns.
  JsonReader(std::string_view text, std::string what);

  Type peek();  // of the value that comes next; kNone after an error
  void begin_object();
  void begin_array();
  /// The next key of the innermost object; false at its end, which it consumes.
  bool next_key(std::string_view& key);
  /// Tells whether the innermost array has another item; false at its end, which it consumes.
  bool next_item();

  void read_null();
  bool read_bool();
  bool is_integer();  // the number that comes next has neither fraction nor exponent
  int64_t read_integer();
  int64_t read_integer(int64_t low, int64_t high);
  double read_number();
  /// Valid UTF-8; lives as long as text and reader.
  std::string_view read_string();
  void skip();  // any value
  /// The text of the next value, which is skipped.
  std::string_view read_raw();
  /// Nothing but space may follow.
  void finish();

  bool ok() const { return status_.ok(); }
  /// Fails at the present position, unless it has failed already.
  void fail(std::string_view problem, Code code = Code::kParse, ErrorKind kind = ErrorKind::kParse);
  Status status() { return std::move(status_); }

 private:
  void skip_space();
  bool accept(char mark);
  bool expect(Type type);
  bool literal(std::string_view word);
  bool begin_entry(char close);
  std::string_view number_text();
  std::string_view escaped_string(size_t start);
  void read_escape(std::string& out);
  uint32_t read_hex();
  void open_or_skip();

  std::string_view text_;
  std::string what_;
  size_t at_ = 0;
  std::string open_;           // closing marks of open brackets
  std::vector<bool> started_;  // whether an entry of that bracket was read
  std::deque<std::string> decoded_;
  Status status_;
};

/// Makes JSON text: each key of an object on a line of its own, arrays of scalars on one line.
class JsonWriter {
 public:
  void begin_object();
  void end_object();
  void begin_array(bool one_line = false);
  void end_array();
  void key(std::string_view key);
  void null();
  void boolean(bool value);
  void integer(int64_t value);
  /// Finite, so printed that it reads back as the same double and never as an integer.
  void number(double value);
  void string(std::string_view value);
  std::string take();  // the text, ended by a newline

 private:
  struct Level {
    char close;
    bool one_line, empty;
  };
  void before_value();
  void new_line();
  void end(char close);
  void quoted(std::string_view value);

  std::string out_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

/// Writes the next value of a reader as the writer formats it.
void copy_value(JsonReader& in, JsonWriter& out);

/// The bytes that base64 text (RFC 4648, padded) stands for; kParse.
Result<std::vector<std::byte>> from_base64(std::string_view text);
std::string to_base64(const std::vector<std::byte>& bytes);

}  // namespace mithril::core
