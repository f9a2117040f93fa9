#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tokenizer/tokenizer_fixture.h"
#include "tokenizer/utf8.h"

namespace kvasir {

TokenId TestVocab::add(std::string text, int64_t type, double score) {
  tokens.push_back(std::move(text));
  types.push_back(type);
  scores.push_back(score);
  return static_cast<TokenId>(tokens.size() - 1);
}

TokenId TestVocab::id(std::string_view text) const {
  const auto it = std::find(tokens.begin(), tokens.end(), text);
  return it == tokens.end() ? kNoToken : static_cast<TokenId>(it - tokens.begin());
}

Result<std::unique_ptr<Tokenizer>> TestVocab::load() {
  metadata.insert("tokenizer.ggml.tokens", tokens);
  metadata.insert("tokenizer.ggml.token_type", types);
  if (merges.empty()) {
    metadata.insert("tokenizer.ggml.scores", scores);
  } else {
    metadata.insert("tokenizer.ggml.merges", merges);
  }
  return Tokenizer::load(metadata);
}

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
    char32_t code = byte;
    if (!printable(byte)) {
      code = 256;
      for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
    }
    append_utf8(code, &out);
  }
  return out;
}

TestVocab byte_level_vocab(const std::string& pre) {
  TestVocab v;
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    v.add(spell_bytes({&c, 1}));
  }
  const auto merge = [&](std::string_view left, std::string_view right) {
    v.add(spell_bytes(std::string(left) + std::string(right)));
    v.merges.push_back(spell_bytes(left) + " " + spell_bytes(right));
  };
  merge("a", "a");
  merge("aa", "aa");
  merge("aaaa", "aaaa");
  merge(" ", "a");
  merge("h", "e");
  merge("e", "l");
  merge("l", "l");
  merge("he", "ll");
  merge("hell", "o");
  merge("\xE6", "\xBC");
  v.add("<|endoftext|>", kTestControl);
  v.add("<|im_start|>", kTestControl);
  v.add("<|im_end|>", kTestControl);
  v.add("<tool_call>", kTestUserDefined);
  v.add("[PAD]", kTestUnused);
  v.metadata.insert("tokenizer.ggml.model", std::string("gpt2"));
  v.metadata.insert("tokenizer.ggml.pre", pre);
  return v;
}

TestVocab sentencepiece_vocab() {
  TestVocab v;
  v.add("<unk>", kTestUnknown);
  v.add("<s>", kTestControl);
  v.add("</s>", kTestControl);
  for (int b = 0; b < 256; ++b) {
    constexpr char kHex[] = "0123456789ABCDEF";
    v.add(std::string("<0x") + kHex[b / 16] + kHex[b % 16] + ">", kTestByte);
  }
  double score = 0;
  for (const char* text :
       {"\u2581t", "he", "\u2581the", "ll", "hell", "hello", "\u2581hello", "\u2581\u2581", "o\u2581"})
    v.add(text, kTestNormal, score--);
  for (const char* text : {"\u2581", "t", "h", "e", "l", "o", "x", "é", "漢"})
    v.add(text, kTestNormal, score--);
  v.add("\n\n", kTestUserDefined, -1000);
  v.metadata.insert("tokenizer.ggml.model", std::string("llama"));
  v.metadata.insert("tokenizer.ggml.pre", std::string("default"));
  v.metadata.insert("tokenizer.ggml.bos_token_id", int64_t{1});
  v.metadata.insert("tokenizer.ggml.eos_token_id", int64_t{2});
  v.metadata.insert("tokenizer.ggml.unknown_token_id", int64_t{0});
  return v;
}

uint64_t TestRng::next() {
  state_ += 0x9E3779B97F4A7C15ull;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

namespace {

std::string unescape(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      out += line[i];
      continue;
    }
    switch (line[++i]) {
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'x':
        out += static_cast<char>(std::stoi(std::string(line.substr(i + 1, 2)), nullptr, 16));
        i += 2;
        break;
      default:
        out += line[i];
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> read_texts(const std::string& name) {
  const std::string path = std::string(KVASIR_SOURCE_DIR) + "/tests/data/tokenizer/" + name;
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << path;
  std::vector<std::string> texts;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') texts.push_back(unescape(line));
  }
  return texts;
}

}  // namespace kvasir
