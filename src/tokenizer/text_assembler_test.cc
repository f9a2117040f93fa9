#include "tokenizer/text_assembler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tokenizer/tokenizer_fixture.h"
#include "tokenizer/utf8.h"

namespace kvasir {
namespace {

// Token i stands for pieces[i], whatever that is.
class PieceTokenizer final : public Tokenizer {
 public:
  explicit PieceTokenizer(const std::vector<std::string>& pieces) {
    for (const std::string& piece : pieces) texts_.append(piece);
  }
  std::vector<TokenId> encode(std::string_view, EncodeOptions) const override { return {}; }
  std::vector<TokenId> encode_parts(std::span<const Part>, bool) const override { return {}; }
  std::string_view token_bytes(TokenId id, bool) const override { return token_text(id); }
  bool strips_leading_space() const override { return true; }
};

struct Outcome {
  std::vector<std::string> chunks;
  int stop = -1;
  std::string text() const {
    std::string all;
    for (const std::string& chunk : chunks) all += chunk;
    return all;
  }
};

Outcome assemble(const std::vector<std::string>& pieces, TextAssembler::Options options) {
  const PieceTokenizer tokenizer(pieces);
  TextAssembler assembler(tokenizer, std::move(options));
  Outcome outcome;
  for (size_t i = 0; i < pieces.size() && outcome.stop < 0; ++i) {
    outcome.chunks.emplace_back();
    outcome.stop = assembler.push(static_cast<TokenId>(i), &outcome.chunks.back());
  }
  outcome.chunks.emplace_back();
  if (outcome.stop < 0) assembler.finish(&outcome.chunks.back());
  return outcome;
}

using Strings = std::vector<std::string>;

TEST(TextAssembler, CharactersSplitOverTokensComeOutWhole) {
  EXPECT_EQ(assemble({"\xF0\x9F", "\x98", "\x80!"}, {}).chunks, (Strings{"", "", "😀!", ""}));
  EXPECT_EQ(assemble({"a\xE6", "\xBC\xA2", "b"}, {}).chunks, (Strings{"a", "漢", "b", ""}));
}

TEST(TextAssembler, WhatCannotBecomeTextIsReplacedOnce) {
  EXPECT_EQ(assemble({"a\xE6\xBC"}, {}).chunks, (Strings{"a", "\uFFFD"}));
  EXPECT_EQ(assemble({"\xE6", "x"}, {}).chunks, (Strings{"", "\uFFFDx", ""}));
  EXPECT_EQ(assemble({"\x80\xFF", "y"}, {}).chunks, (Strings{"\uFFFD\uFFFD", "y", ""}));
}

TEST(TextAssembler, APossibleStopIsHeldBack) {
  const Outcome o = assemble({" AB", "C D", "E", "FGH", "IJ"}, {.stop = {"DEFGHIJ"}});
  EXPECT_EQ(o.chunks, (Strings{" AB", "C ", "", "", "", ""}));
  EXPECT_EQ(o.stop, 0);
}

TEST(TextAssembler, ARefutedStopIsReleased) {
  EXPECT_EQ(assemble({"AB", "C", "x"}, {.stop = {"ABCD"}}).chunks, (Strings{"", "", "ABCx", ""}));
  EXPECT_EQ(assemble({"AB", "A", "BA", "C"}, {.stop = {"ABAC"}}).text(), "AB");
  EXPECT_EQ(assemble({"\n", "\n", "漢"}, {.stop = {"\n\n\n"}}).chunks, (Strings{"", "", "\n\n漢", ""}));
}

TEST(TextAssembler, AStopInsideATokenCutsTheToken) {
  EXPECT_EQ(assemble({"The capital is ", "Paris"}, {.stop = {"Pari"}}).text(), "The capital is ");
  EXPECT_EQ(assemble({"Why", "?\nBecause"}, {.stop = {"\n"}}).text(), "Why?");
  EXPECT_EQ(assemble({"Why", "?\nBecause"}, {.stop = {"\n"}, .include_stop = true}).text(), "Why?\n");
}

TEST(TextAssembler, UnfinishedStopIsTextInTheEnd) {
  EXPECT_EQ(assemble({"one EN"}, {.stop = {"END"}}).chunks, (Strings{"one ", "EN"}));
  EXPECT_EQ(assemble({"EN\xE6"}, {.stop = {"END"}}).text(), "EN\uFFFD");
}

TEST(TextAssembler, StopsOfSeveralBytesPerCharacter) {
  const Outcome o = assemble({"x\xE6", "\xBC", "\xA2\xE5", "\xAD\x97y"}, {.stop = {"漢字"}});
  EXPECT_EQ(o.text(), "x");
  EXPECT_EQ(o.stop, 0);
  EXPECT_EQ(assemble({"x漢", "z"}, {.stop = {"漢字"}}).text(), "x漢z");
}

TEST(TextAssembler, TheStopThatEndsFirstCountsThenTheLongest) {
  EXPECT_EQ(assemble({"abcd"}, {.stop = {"bcd", "c"}}).text(), "ab");
  const Outcome o = assemble({"abc"}, {.stop = {"c", "abc"}});
  EXPECT_EQ(o.text(), "");
  EXPECT_EQ(o.stop, 1);
}

TEST(TextAssembler, TheSpaceInFrontIsDroppedOnlyFromATextOfItsOwn) {
  EXPECT_EQ(assemble({"", " a", " b"}, {.starts_text = true}).text(), "a b");
  EXPECT_EQ(assemble({"", " a", " b"}, {}).text(), " a b");
}

TEST(TextAssembler, ControlTokensAreInvisibleUnlessAskedFor) {
  const auto tokenizer = byte_level_vocab().load();
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const TokenId end = byte_level_vocab().id("<|im_end|>");
  std::string plain, special;
  TextAssembler(**tokenizer, {}).push(end, &plain);
  TextAssembler(**tokenizer, {.special = true}).push(end, &special);
  EXPECT_EQ(plain, "");
  EXPECT_EQ(special, "<|im_end|>");
}

// What the text must be, worked out from all bytes at once.
std::pair<std::string, int> expected(const std::string& bytes, const Strings& stops, bool include) {
  const std::string text = to_valid_utf8(bytes);
  size_t best_end = std::string::npos, best_size = 0;
  int stop = -1;
  for (size_t i = 0; i < stops.size(); ++i) {
    const size_t at = text.find(stops[i]);
    if (at == std::string::npos) continue;
    const size_t end = at + stops[i].size();
    if (end < best_end || (end == best_end && stops[i].size() > best_size)) {
      best_end = end;
      best_size = stops[i].size();
      stop = static_cast<int>(i);
    }
  }
  if (stop < 0) return {text, -1};
  return {text.substr(0, include ? best_end : best_end - best_size), stop};
}

TEST(TextAssembler, HoweverTheBytesAreCutTheTextIsTheSame) {
  constexpr const char* kParts[] = {"a", "b", "ab", "\n", "é", "漢", "😀", "\xE6", "\x98", "\xF0\x9F", "c"};
  TestRng rng(5);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (uint64_t n = rng.below(12); n > 0; --n) bytes += kParts[rng.below(std::size(kParts))];
    Strings stops;
    for (uint64_t n = rng.below(4); n > 0; --n) {
      std::string stop;
      for (uint64_t m = 1 + rng.below(3); m > 0; --m) stop += kParts[rng.below(7)];
      if (std::find(stops.begin(), stops.end(), stop) == stops.end()) stops.push_back(stop);
    }
    Strings pieces;
    for (size_t pos = 0; pos < bytes.size();) {
      const size_t n = rng.below(5);
      pieces.push_back(bytes.substr(pos, n));
      pos += n;
    }
    const bool include = rng.below(2) == 0;
    const Outcome outcome = assemble(pieces, {.stop = stops, .include_stop = include});
    const auto [text, stop] = expected(bytes, stops, include);
    ASSERT_EQ(outcome.text(), text) << "round " << round;
    ASSERT_EQ(outcome.stop, stop);
    for (const std::string& chunk : outcome.chunks) ASSERT_EQ(to_valid_utf8(chunk), chunk);
  }
}

}  // namespace
}  // namespace kvasir
