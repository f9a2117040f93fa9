#include "tokenizer/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <ctime>

#include "tokenizer/tokenizer_fixture.h"
#include "tokenizer/utf8.h"

namespace kvasir {
namespace {

std::string nfc(std::string_view text) {
  std::string buffer;
  return std::string(to_nfc(text, &buffer));
}

TEST(Nfc, KnownCases) {
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");  // reordered, nothing to compose with
  EXPECT_EQ(nfc("o\u0302\u0323"), "\u1ed9");
  EXPECT_EQ(nfc("\u1100\u1161\u11a8"), "\uac01");
  EXPECT_EQ(nfc("\u212b\u2126"), "\u00c5\u03a9");
  EXPECT_EQ(nfc("\u0301e"), "\u0301e");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");  // excluded from composition
}

TEST(Nfc, LeavesBrokenBytesAlone) {
  EXPECT_EQ(nfc("e\u0301\xE6\xAD"
                "e\u0301\xFF"),
            "\u00e9\xE6\xAD\u00e9\xFF");
}

TEST(Nfc, EqualsTheLibraryOnRandomText) {
  TestRng rng(11);
  const char32_t starts[] = {0x20,   0xC0,   0x300,  0x340,  0x900,  0x1100,
                             0x1E00, 0x2000, 0x3040, 0xAC00, 0xF900, 0x1D100};
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (uint64_t n = 1 + rng.below(12); n > 0; --n)
      append_utf8(starts[rng.below(std::size(starts))] + static_cast<char32_t>(rng.below(0x60)), &text);
    utf8proc_uint8_t* expected = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    ASSERT_NE(expected, nullptr);
    EXPECT_EQ(nfc(text), reinterpret_cast<const char*>(expected));
    std::free(expected);
  }
}

// Reordering marks one exchange at a time would take hours here.
TEST(Nfc, ManyMarksOutOfOrderTakeNoTime) {
  std::string text = "a";
  for (int i = 0; i < 250000; ++i) text += "\u0301";
  for (int i = 0; i < 250000; ++i) text += "\u0323";
  const std::clock_t begin = std::clock();
  EXPECT_EQ(nfc(text).substr(0, 3), "\u1ea1");
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5.0);
}

}  // namespace
}  // namespace kvasir
