// The reader against the grammar of RFC 8259, and both against each other.
#include "core/json.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace mithril::core {
namespace {

std::string error_of(std::string_view text) {
  JsonReader in(text, "file");
  in.skip();
  in.finish();
  Status status = in.status();
  return status.ok() ? "" : status.error().message;
}

TEST(JsonReader, WalksOverObjectsAndArrays) {
  JsonReader in(R"( {"a": [1, -2, 3.5], "b": {"c": null, "d": true}, "e": "x"} )", "file");
  std::string seen;
  in.begin_object();
  for (std::string_view key; in.next_key(key);) {
    seen += key;
    if (key != "a") {
      in.skip();
      continue;
    }
    in.begin_array();
    ASSERT_TRUE(in.next_item());
    EXPECT_EQ(in.read_integer(), 1);
    ASSERT_TRUE(in.next_item());
    EXPECT_TRUE(in.is_integer());
    EXPECT_EQ(in.read_integer(-5, 5), -2);
    ASSERT_TRUE(in.next_item());
    EXPECT_FALSE(in.is_integer());
    EXPECT_EQ(in.read_number(), 3.5);
    EXPECT_FALSE(in.next_item());
  }
  in.finish();
  EXPECT_TRUE(in.status().ok());
  EXPECT_EQ(seen, "abe");
}

TEST(JsonReader, DecodesEscapes) {
  JsonReader in(R"("a\"\\\/\b\f\n\r\t\u00e9\u20ac\ud83d\ude00b")", "file");
  EXPECT_EQ(in.read_string(), "a\"\\/\b\f\n\r\té€😀b");
  JsonReader zero(R"("a\u0000b")", "file");
  EXPECT_EQ(zero.read_string(), std::string_view("a\0b", 3));
}

TEST(JsonReader, TakesWhatTheGrammarAllows) {
  for (const char* text :
       {"0", "-0", "1.5e+10", "1E-3", "[]", "{}", " [ ] ", "[[],[]]", "\"\"", "true", "false",
        "null", "{\"\":0}", "[1,\n2]", "\"\xF4\x8F\xBF\xBF\""}) {
    EXPECT_EQ(error_of(text), "") << text;
  }
}

TEST(JsonReader, RefusesWhatTheGrammarDoesNotAllow) {
  for (const char* text : {"",
                           " ",
                           "01",
                           "1.",
                           ".5",
                           "-",
                           "+1",
                           "1e",
                           "1e+",
                           "nul",
                           "True",
                           "NaN",
                           "Infinity",
                           "[1,]",
                           "[,1]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{a:1}",
                           "{\"a\":1,}",
                           "[1 2]",
                           "\"\n\"",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\\u12\"",
                           "\"\\ud800\"",
                           "\"\\ud800\\u0041\"",
                           "\"\\udc00\"",
                           "\"abc",
                           "\"\\",
                           "[1",
                           "{\"a\":1",
                           "1 2",
                           "]",
                           "}",
                           "'a'",
                           "\"\xC0\x80\"",
                           "\"\xED\xA0\x80\"",
                           "\"\xF4\x90\x80\x80\"",
                           "\"\xFF\"",
                           "\"\xE2\x82\"",
                           "// 1",
                           "[1}"}) {
    EXPECT_NE(error_of(text), "") << text;
  }
}

TEST(JsonReader, SaysWhere) {
  EXPECT_EQ(error_of("{\n  \"a\": tru\n}"), "file, line 2, column 8: requires a value");
  JsonReader in("[\n\"a\"]", "file");
  in.begin_array();
  EXPECT_TRUE(in.next_item());
  EXPECT_EQ(in.read_integer(), 0);
  EXPECT_FALSE(in.next_item());
  EXPECT_EQ(in.status().error().message, "file, line 2, column 1: requires a number, got a string");
}

TEST(JsonReader, BoundsNestingAndNumbers) {
  const std::string at_most(JsonReader::kMaxDepth, '['), most(JsonReader::kMaxDepth, ']');
  EXPECT_EQ(error_of(at_most + most), "");
  JsonReader in("[" + at_most, "file");
  const std::string deep(1'000'000, '[');
  JsonReader deeper(deep, "file");
  deeper.skip();
  EXPECT_EQ(deeper.status().error().code, Code::kFileLimit);
  EXPECT_NE(error_of(std::string(2000, '1')), "");
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "1.5", "1e3"}) {
    JsonReader number(text, "file");
    EXPECT_EQ(number.read_integer(), 0) << text;
    EXPECT_FALSE(number.status().ok()) << text;
  }
  for (const char* text : {"1e400", "-1e999999999", "1e-400"}) {
    JsonReader number(text, "file");
    number.read_number();
    EXPECT_FALSE(number.status().ok()) << text;
  }
}

TEST(JsonWriter, PutsOneKeyOnALine) {
  JsonWriter out;
  out.begin_object();
  out.key("a");
  out.begin_array(true);
  out.integer(1);
  out.number(2);
  out.end_array();
  out.key("b");
  out.begin_object();
  out.end_object();
  out.key("c");
  out.begin_array();
  out.string("x");
  out.null();
  out.end_array();
  out.end_object();
  EXPECT_EQ(out.take(),
            "{\n  \"a\": [1, 2.0],\n  \"b\": {},\n  \"c\": [\n    \"x\",\n    null\n  ]\n}\n");
}

TEST(JsonWriter, WritesWhatReadsBack) {
  constexpr char raw[] = "quote\" slash\\ \b\n\t\x01 \x7F é 😀 \0end";
  const std::string text(raw, sizeof(raw) - 1);
  for (const double value :
       {0.0, -0.0, 1.0, 1e300, 5e-324, 0.1, -1.0 / 3, std::numeric_limits<double>::max()}) {
    JsonWriter out;
    out.begin_array();
    out.number(value);
    out.string(text);
    out.integer(std::numeric_limits<int64_t>::min());
    out.end_array();
    const std::string written = out.take();
    JsonReader in(written, "file");
    in.begin_array();
    EXPECT_TRUE(in.next_item());
    EXPECT_FALSE(in.is_integer());
    const double read = in.read_number();
    EXPECT_EQ(read, value);
    EXPECT_EQ(std::signbit(read), std::signbit(value));
    EXPECT_TRUE(in.next_item());
    EXPECT_EQ(in.read_string(), text);
    EXPECT_TRUE(in.next_item());
    EXPECT_EQ(in.read_integer(), std::numeric_limits<int64_t>::min());
    EXPECT_FALSE(in.next_item());
    EXPECT_TRUE(in.status().ok());
  }
}

// RFC 4648, section 10.
TEST(Base64, KnowsTheVectorsOfItsStandard) {
  const std::pair<const char*, const char*> rows[] = {{"", ""},
                                                      {"f", "Zg=="},
                                                      {"fo", "Zm8="},
                                                      {"foo", "Zm9v"},
                                                      {"foob", "Zm9vYg=="},
                                                      {"fooba", "Zm9vYmE="},
                                                      {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, coded] : rows) {
    std::vector<std::byte> bytes;
    for (const char* c = plain; *c != '\0'; ++c) bytes.push_back(static_cast<std::byte>(*c));
    EXPECT_EQ(to_base64(bytes), coded);
    EXPECT_EQ(*from_base64(coded), bytes);
  }
}

TEST(Base64, RefusesOtherText) {
  for (const char* text : {"Z", "Zg", "Zg=", "Z===", "Zh==", "Zg==Zg==", "Zm9*", "=Zg=", "Zm 9"}) {
    EXPECT_FALSE(from_base64(text).ok()) << text;
  }
}

}  // namespace
}  // namespace mithril::core
