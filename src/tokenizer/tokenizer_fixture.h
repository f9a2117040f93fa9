#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/metadata.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

// GGUF's numbers for tokenizer.ggml.token_type.
enum TestTokenType : int64_t {
  kTestNormal = 1,
  kTestUnknown = 2,
  kTestControl = 3,
  kTestUserDefined = 4,
  kTestUnused = 5,
  kTestByte = 6
};

// A vocabulary being put together, as a GGUF file would hold it.
struct TestVocab {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  std::vector<double> scores;
  std::vector<std::string> merges;
  GgufMetadata metadata;

  TokenId add(std::string text, int64_t type = kTestNormal, double score = 0);
  TokenId id(std::string_view text) const;  // kNoToken when there is none
  // Hands tokens, types and (when there are some) scores and merges over to the metadata and loads it.
  Result<std::unique_ptr<Tokenizer>> load();
};

// The GPT-2 spelling of bytes.
std::string spell_bytes(std::string_view bytes);

// Byte-level BPE: ids 0..255 are the bytes, then come tokens of one to eight a's, " a", "he", "el", "hell",
// "hello", the first two bytes of a CJK character, <|endoftext|>, <|im_start|>, <|im_end|> (control),
// <tool_call> (user-defined) and [PAD] (unused). pre is "gpt-2" unless given.
TestVocab byte_level_vocab(const std::string& pre = "gpt-2");

// SentencePiece: <unk>, <s>, </s>, the 256 bytes, characters, a few words and a user-defined run of newlines.
TestVocab sentencepiece_vocab();

// splitmix64, as tools/make_tokenizer_goldens.py has it.
class TestRng {
 public:
  explicit TestRng(uint64_t seed) : state_(seed) {}
  uint64_t next();
  uint64_t below(uint64_t n) { return next() % n; }

 private:
  uint64_t state_;
};

// The lines of a text file of tests/data/tokenizer that are not comments, with \n \r \t \\ \xNN undone.
std::vector<std::string> read_texts(const std::string& name);

}  // namespace kvasir
