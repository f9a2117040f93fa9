#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>
#include <vector>

#include "tokenizer/tokenizer_fixture.h"
#include "tokenizer/utf8.h"

namespace kvasir {
namespace {

// The expressions of the models' published tokenizer.json files, one after the other where there are two.
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

struct Published {
  const char* name;
  std::vector<const char*> expressions;
};

const std::vector<Published>& published() {
  static const std::vector<Published> all = {{"gpt-2", {kGpt2}},
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
                                             {"tekken", {kTekken}}};
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
      "\x01"};
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
    const Splitter first(p.expressions.front()), last(p.expressions.back());
    for (int round = 0; round < 4000; ++round) {
      const std::string text = random_text(&rng);
      std::vector<std::string> expected;
      for (const std::string& piece : first.split(text)) {
        if (p.expressions.size() == 1) {
          expected.push_back(piece);
        } else {
          for (std::string& part : last.split(piece)) expected.push_back(std::move(part));
        }
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
