#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <deque>
#include <string>
#include <vector>

#include "tokenizer/tokenizer_fixture.h"
#include "tokenizer/utf8.h"

namespace kvasir {
namespace {

// The expressions of the models' published tokenizer.json files, one after the other where there are several.
constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// DeepSeek LLM's and V2's second expression: letters with case of some scripts.
constexpr const char* kCasedLetters =
    R"(\s?[)"
    R"(\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF})"
    R"(\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386})"
    R"(\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F})"
    R"(\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})"
    R"(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15})"
    R"(\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})"
    R"(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})"
    R"(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102})"
    R"(\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"
    R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})"
    R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"
    R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF})"
    R"(\x{1E900}-\x{1E943})"
    R"(]+)";
constexpr const char* kDeepSeekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Published {
  const char* name;
  std::vector<const char*> expressions;
};

const std::vector<Published>& published() {
  static const std::vector<Published> all = {
      {"gpt-2", {kGpt2}},
      {"phi-2", {kGpt2}},
      {"olmo", {kGpt2}},
      {"smollm", {R"(\p{N})", kGpt2}},
      {"starcoder", {R"(\p{N})", kGpt2}},
      {"refact", {R"(\p{N})", kGpt2}},
      {"command-r", {R"(\p{N})", kGpt2}},
      {"qwen2", {kQwen2}},
      {"deepseek-r1-qwen", {kQwen2}},
      {"stablelm2", {kQwen2}},
      {"qwen35", {kQwen35}},
      {"llama3", {kLlama3}},
      {"llama-v3", {kLlama3}},
      {"llama-bpe", {kLlama3}},
      {"dbrx", {kLlama3}},
      {"smaug-bpe", {kLlama3}},
      {"gpt-4o", {kO200k}},
      {"tekken", {kTekken}},
      {"deepseek-llm",
       {R"([\r\n])", kCasedLetters, R"(\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+)", R"(\s+$)",
        R"([一-龥\x{800}-一가-\x{D7FF}]+)", R"(\p{N})"}},
      {"deepseek-v3", {R"(\p{N}{1,3})", R"([一-龥\x{3040}-ゟ゠-ヿ]+)", kDeepSeekV3}}};
  return all;
}

// Cuts texts at the matches of an expression, by PCRE2.
class Splitter {
 public:
  explicit Splitter(const char* expression) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
    EXPECT_NE(code_, nullptr) << expression << " at " << offset;
    data_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  ~Splitter() {
    pcre2_match_data_free(data_);
    pcre2_code_free(code_);
  }
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;

  std::vector<std::string> split(const std::string& text) const {
    std::vector<std::string> pieces;
    size_t pos = 0;
    while (pos < text.size()) {
      const int rc =
          pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), pos, 0, data_, nullptr);
      EXPECT_TRUE(rc > 0 || rc == PCRE2_ERROR_NOMATCH) << rc;
      if (rc <= 0) break;
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_);
      if (range[0] > pos) pieces.push_back(text.substr(pos, range[0] - pos));
      pieces.push_back(text.substr(range[0], range[1] - range[0]));
      pos = range[1];
    }
    if (pos < text.size()) pieces.push_back(text.substr(pos));
    return pieces;
  }

 private:
  pcre2_code* code_;
  pcre2_match_data* data_;
};

std::vector<std::string> scan(const PreTokenizer& rules, std::string_view text) {
  std::vector<std::string> pieces;
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = rules.next(text, pos);
    EXPECT_GT(end, pos);
    if (end <= pos) break;
    pieces.emplace_back(text.substr(pos, end - pos));
    pos = end;
  }
  return pieces;
}

std::string random_text(TestRng* rng) {
  constexpr const char* kPieces[] = {
      "'s",           "'S",   "'\u017f", "'ll",    "'Re",    "'",      "a",          "Ab",
      "HTTP",         "x",    "ß",       "ǅ",      "ʰ",      "漢",     "字",         "\u0301",
      "\u0915\u093f", "1",    "23",      "٣",      "Ⅷ",      "½",      " ",          "  ",
      "\n",           "\r\n", "\t",      "\u00a0", "\u3000", "\u0085", "\u2028",     ".",
      "--",           "/",    "_",       "😀",      "\u200d", "\u20ac", "\U0001d400", "\x1c",
      "\x01",         "ñ",    "Ω",       "ἀ",      "“",      "。",     "！",         "Ａ",
      "한",           "か",   "א",       "ไ",      "ա"};
  std::string text;
  for (uint64_t n = 1 + rng->below(14); n > 0; --n) text += kPieces[rng->below(std::size(kPieces))];
  return text;
}

TEST(PreTokenizer, ScansAsThePublishedExpressionsMatch) {
  for (const Published& p : published()) {
    SCOPED_TRACE(p.name);
    const auto rules = find_pre_tokenizer(p.name);
    ASSERT_TRUE(rules.ok());
    TestRng rng(7);
    std::deque<Splitter> splitters;
    for (const char* expression : p.expressions) splitters.emplace_back(expression);
    for (int round = 0; round < 4000; ++round) {
      const std::string text = random_text(&rng);
      std::vector<std::string> expected = {text};
      for (const Splitter& splitter : splitters) {
        std::vector<std::string> parts;
        for (const std::string& piece : expected)
          for (std::string& part : splitter.split(piece)) parts.push_back(std::move(part));
        expected = std::move(parts);
      }
      ASSERT_EQ(scan(**rules, text), expected) << text;
    }
  }
}

TEST(PreTokenizer, BytesThatAreNoTextArePiecesToo) {
  TestRng rng(8);
  for (const Published& p : published()) {
    const PreTokenizer& rules = **find_pre_tokenizer(p.name);
    for (int round = 0; round < 500; ++round) {
      std::string text, joined;
      for (uint64_t n = 1 + rng.below(30); n > 0; --n) text += static_cast<char>(rng.below(256));
      for (const std::string& piece : scan(rules, text)) joined += piece;
      ASSERT_EQ(joined, text) << p.name;
    }
  }
}

TEST(PreTokenizer, UnknownNamesAreRefusedByName) {
  for (const char* name : {"default", "", "no-such-thing"}) {
    const auto rules = find_pre_tokenizer(name);
    ASSERT_FALSE(rules.ok());
    EXPECT_EQ(rules.status().code(), ErrorCode::kUnsupported);
    EXPECT_NE(rules.message().find(std::string("'") + name + "'"), std::string::npos) << rules.message();
  }
}

}  // namespace
}  // namespace kvasir
