#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "server/json_input.h"
#include "server/json_writer.h"

namespace kvasir {
namespace {

using namespace std::string_view_literals;

std::string error_of(std::string_view text) {
  const auto parsed = parse_json(text);
  return parsed.ok() ? "" : parsed.message();
}

TEST(ParseJson, ReadsWhatIsStrictJson) {
  for (const char* text : {"{}", " [1, 2.5e3, -0, true, null, \"x\"] \n", "\"\\ud83d\\ude00\"", "3"}) {
    EXPECT_EQ(error_of(text), "") << text;
  }
}

TEST(ParseJson, RefusesEverythingElse) {
  for (const char* text : {"",         "  ",           "{",
                           "[1,]",     "{\"a\":1,}",   "nul",
                           "NaN",      "Infinity",     "-",
                           "01",       "'a'",          "{a:1}",
                           "[1] [2]",  "\"\\ud800\"",  "\"\\udc00x\"",
                           "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
                           "// c\n1",  "\"a\nb\""}) {
    EXPECT_NE(error_of(text), "") << text;
  }
}

TEST(ParseJson, NamesTheByte) {
  EXPECT_NE(error_of("{\"a\": 1, \"b\": }").find("byte 14"), std::string::npos)
      << error_of("{\"a\": 1, \"b\": }");
  EXPECT_NE(error_of("{\"a\": \"\xff\"}").find("byte 7"), std::string::npos);
}

TEST(ParseJson, LimitsDepth) {
  EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_NE(error_of(std::string(65, '[') + std::string(65, ']')).find("64"), std::string::npos);
  EXPECT_NE(error_of(std::string(100000, '[')).find("64"), std::string::npos);
  EXPECT_EQ(error_of("\"" + std::string(1000, '[') + "\""), "");
  EXPECT_EQ(error_of("\"\\\"" + std::string(1000, '[') + "\""), "");
}

TEST(ParseJson, LimitsTheNumberOfValues) {
  std::string text = "[0";
  for (int i = 0; i < 1'000'000; ++i) text += ",0";
  EXPECT_NE(error_of(text + "]").find("values"), std::string::npos);
}

TEST(JsonWriter, PutsCommasAndColons) {
  JsonWriter json;
  json.begin_object().field("a", 1).key("b").begin_array().value("x").null().value(true).end_array();
  json.key("c").begin_object().end_object().field("d", -2.5).end_object();
  EXPECT_EQ(json.text(), R"({"a":1,"b":["x",null,true],"c":{},"d":-2.5})");
}

TEST(JsonWriter, EscapesWhatJsonAndScriptsCannotHold) {
  JsonWriter json;
  json.value("\"\\\n\r\t\x01\x7f\0 \xE2\x80\xA8\xE2\x80\xA9 caf\xC3\xA9 \xF0\x9F\x98\x80"sv);
  EXPECT_EQ(json.text(),
            "\"\\\"\\\\\\n\\r\\t\\u0001\\u007f\\u0000 \\u2028\\u2029 caf\xC3\xA9 \xF0\x9F\x98\x80\"");
  EXPECT_TRUE(parse_json(json.text()).ok());
}

TEST(JsonWriter, NeverWritesBrokenUtf8) {
  JsonWriter json;
  json.value("a\xff\xe6\xad");
  EXPECT_EQ(json.text(), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(JsonWriter, NumbersAreShortestAndFinite) {
  JsonWriter json;
  json.begin_array()
      .value(0.1)
      .value(0.1f)
      .value(std::nan(""))
      .value(std::numeric_limits<double>::infinity());
  json.value(std::numeric_limits<int64_t>::min())
      .value(std::numeric_limits<uint64_t>::max())
      .value(1e21)
      .end_array();
  EXPECT_EQ(json.text(), "[0.1,0.1,null,null,-9223372036854775808,18446744073709551615,1e+21]");
}

}  // namespace
}  // namespace kvasir
