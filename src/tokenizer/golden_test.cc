// The tokenizers of the real models against Hugging Face's `tokenizers`: tests/data/tokenizer/*.txt, made by
// tools/make_tokenizer_goldens.py. Needs the model files in models/.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <sstream>

#include "gguf/gguf_file.h"
#include "tokenizer/nfc.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_fixture.h"

namespace kvasir {
namespace {

struct Model {
  const char* name;
  const char* file;
  std::vector<TokenId> end_tokens;
};

void PrintTo(const Model& model, std::ostream* out) {
  *out << model.name;
}

class RealTokenizer : public testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    const std::string path = std::string(KVASIR_SOURCE_DIR) + "/models/" + GetParam().file;
    struct stat status;
    if (stat(path.c_str(), &status) != 0) GTEST_SKIP() << path << " is not there";
    auto file = GgufFile::open(path);
    ASSERT_TRUE(file.ok()) << file.message();
    auto tokenizer = Tokenizer::load(file->metadata());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
    tokenizer_ = std::move(tokenizer).value();
  }

  std::vector<TokenId> encode(std::string_view text, bool control) const {
    return tokenizer_->encode(text, {.add_special = false, .parse_special = control});
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

// FNV-1a over 64-bit words.
class Digest {
 public:
  void add(uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001B3ull; }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xCBF29CE484222325ull;
};

std::string random_string(uint64_t index, const std::vector<std::string>& fragments) {
  TestRng rng(index);
  std::string text;
  for (uint64_t n = 1 + rng.below(24); n > 0; --n) text += fragments[rng.below(fragments.size())];
  return text;
}

TEST_P(RealTokenizer, GivesTheIdsOfHuggingFace) {
  const std::vector<std::string> torture = read_texts("torture.txt");
  const std::vector<std::string> fragments = read_texts("fragments.txt");
  std::ifstream goldens(std::string(KVASIR_SOURCE_DIR) + "/tests/data/tokenizer/" + GetParam().name + ".txt");
  size_t torture_texts = 0, random_strings = 0;
  for (std::string line; std::getline(goldens, line);) {
    std::istringstream in(line);
    std::string what, mode;
    size_t index = 0, count = 0;
    in >> what >> index;
    if (what == "torture") {
      in >> mode;
      std::vector<TokenId> expected;
      for (TokenId id; in >> id;) expected.push_back(id);
      EXPECT_EQ(encode(torture.at(index), mode == "control"), expected) << torture.at(index);
      ++torture_texts;
    } else if (what == "random") {
      uint64_t expected = 0;
      in >> count >> std::hex >> expected;
      Digest digest;
      for (size_t i = index; i < index + count; ++i) {
        const std::string text = random_string(i, fragments);
        const std::vector<TokenId> plain = encode(text, false);
        for (const TokenId id : plain) digest.add(static_cast<uint64_t>(id));
        digest.add(plain.size());
        for (const TokenId id : encode(text, true)) digest.add(static_cast<uint64_t>(id));
      }
      EXPECT_EQ(digest.value(), expected) << "random strings from " << index;
      random_strings += count;
    }
  }
  EXPECT_GT(torture_texts, 100u);
  EXPECT_EQ(random_strings, 10000u);
}

// A text without what the model's own tokenizer cannot keep: bytes that have no token, forms other than NFC,
// U+2581.
std::string keepable(const Tokenizer& tokenizer, std::string text) {
  if (tokenizer.pre_tokenizer() == "qwen2") {
    std::string buffer;
    text = std::string(to_nfc(text, &buffer));
  }
  if (tokenizer.model() == "llama") {
    for (size_t at; (at = text.find("\u2581")) != std::string::npos;) text.replace(at, 3, " ");
    return text;
  }
  std::erase_if(text, [&](char c) { return tokenizer.encode({&c, 1}, {.add_special = false}).empty(); });
  return text;
}

TEST_P(RealTokenizer, BytesRoundTrip) {
  std::vector<std::string> texts = read_texts("torture.txt");
  TestRng rng(12);
  for (int i = 0; i < 500; ++i) {
    texts.emplace_back();
    for (uint64_t n = rng.below(40); n > 0; --n) texts.back() += static_cast<char>(rng.below(256));
  }
  for (const std::string& text : texts) {
    for (const bool control : {false, true}) {
      const std::vector<TokenId> ids = encode(text, control);
      EXPECT_EQ(tokenizer_->decode(ids, true), keepable(*tokenizer_, text));
    }
  }
}

TEST_P(RealTokenizer, UsersNeverWriteControlTokens) {
  for (const std::string& text : read_texts("torture.txt")) {
    for (const TokenId id : encode(text, false)) EXPECT_NE(tokenizer_->kind(id), TokenKind::kControl) << text;
  }
}

TEST_P(RealTokenizer, EndTokensAndBos) {
  EXPECT_EQ(tokenizer_->end_tokens(), GetParam().end_tokens);
  const std::vector<TokenId> ids = tokenizer_->encode("hi", {.add_special = true});
  EXPECT_EQ(ids.front() == tokenizer_->bos(), tokenizer_->add_bos());
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer_->bos()), tokenizer_->add_bos() ? 1 : 0);
}

// 1 MB of the same thing is the worst that merging can meet. Processor time, with room for sanitizers.
TEST_P(RealTokenizer, LongRunsTakeAMoment) {
  for (const std::string_view unit : {"a", "7", " ", "漢", ".", "\n", "="}) {
    std::string text;
    while (text.size() < 1 << 20) text += unit;
    const std::clock_t begin = std::clock();
    EXPECT_FALSE(encode(text, false).empty());
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 4.0) << unit;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, RealTokenizer,
    testing::Values(Model{"smollm2", "smollm2-135m-instruct-q4_1.gguf", {0, 2}},
                    Model{"gemma3", "gemma-3-270m-q4_k_m.gguf", {1, 106}},
                    Model{"qwen2.5-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", {151643, 151645}},
                    Model{"qwen2.5-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", {151643, 151645}}),
    [](const auto& param) {
      std::string name = param.param.name;
      std::replace_if(
          name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      return name;
    });

}  // namespace
}  // namespace kvasir
