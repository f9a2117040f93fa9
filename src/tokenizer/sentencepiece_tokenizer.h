#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/merge_table.h"

namespace kvasir {

// SentencePiece BPE (tokenizer.ggml.model "llama": Llama 2, Gemma) as HF's `tokenizers` runs it: spaces are
// written U+2581, a text starts as its characters, and the pair whose union scores best merges first. A
// character that is no token becomes the tokens of its bytes (<0xE2>), or the unknown token where the
// vocabulary has no byte tokens. Since U+2581 in a text means a space to these vocabularies, it decodes to
// one.
class SentencePieceTokenizer final : public BpeTokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> load(const GgufMetadata& metadata);
  bool strips_leading_space() const override { return space_prefix_; }

 private:
  Status read(const GgufMetadata& metadata);
  Status read_tokens();
  // One way to put a token together from two; lengths in characters.
  struct Split {
    TokenId left, right, merged;
    uint32_t left_length, right_length;
  };
  Status make_merges(const std::vector<double>& scores);
  void append_splits(TokenId id, std::vector<Split>* splits);
  void note_before_space(std::string_view text);
  void encode_text(std::string_view text, BpeScratch* scratch, std::vector<TokenId>* out) const override;
  void append_symbols(std::string_view character, std::vector<TokenId>* symbols) const;

  bool space_prefix_ = false;  // every stretch of text gets a space in front
  TokenId space_ = kNoToken;
  std::array<TokenId, 128> ascii_tokens_{};
  std::array<TokenId, 256> byte_tokens_{};
  bool has_byte_tokens_ = false;
  std::unordered_set<TokenId> before_space_;  // characters that some token has right before a space
  std::unique_ptr<TokenIndex> index_;         // text tokens by their bytes, U+2581 as a space
  std::unique_ptr<MergeTable> merges_;
};

}  // namespace kvasir
