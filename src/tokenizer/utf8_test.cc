#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include "tokenizer/tokenizer_fixture.h"

namespace kvasir {
namespace {

constexpr const char* R = "\xEF\xBF\xBD";

// Right-hand sides are what Python gives for bytes.decode(errors="replace").
TEST(Utf8, ReplacesWhatPythonReplaces) {
  const std::string r = R;
  EXPECT_EQ(to_valid_utf8("plain é 漢 😀"), "plain é 漢 😀");
  EXPECT_EQ(to_valid_utf8("\x80"), r);
  EXPECT_EQ(to_valid_utf8("\xC0\x80"), r + r);
  EXPECT_EQ(to_valid_utf8("\xE6\xAD"), r);
  EXPECT_EQ(to_valid_utf8("\xE6\xAD!"), r + "!");
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\x98"), r);
  EXPECT_EQ(to_valid_utf8("\xF0\x9F"
                          "A"),
            r + "A");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(to_valid_utf8("\xE0\x80\x80"), r + r + r);
  EXPECT_EQ(to_valid_utf8("\xE1\x80\xC3\xA9"), r + "é");
  EXPECT_EQ(to_valid_utf8("\xF5\xFF\xFE"), r + r + r);
}

TEST(Utf8, EveryScalarValueRoundTrips) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(code, &text);
    const Utf8Char c = decode_utf8(text, 0);
    ASSERT_TRUE(c.valid()) << static_cast<uint32_t>(code);
    ASSERT_EQ(static_cast<uint32_t>(c.code), static_cast<uint32_t>(code));
    ASSERT_EQ(c.length, text.size());
    for (size_t n = 1; n < text.size(); ++n)
      ASSERT_EQ(decode_utf8(text.substr(0, n), 0).state, Utf8Char::State::kIncomplete)
          << static_cast<uint32_t>(code);
  }
}

TEST(Utf8, RandomBytesBecomeValidOnce) {
  TestRng rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint64_t n = rng.below(12); n > 0; --n) text += static_cast<char>(0x70 + rng.below(0x90));
    const std::string valid = to_valid_utf8(text);
    for (size_t pos = 0; pos < valid.size();) {
      const Utf8Char c = decode_utf8(valid, pos);
      ASSERT_TRUE(c.valid());
      pos += c.length;
    }
    ASSERT_EQ(to_valid_utf8(valid), valid);
  }
}

}  // namespace
}  // namespace kvasir
