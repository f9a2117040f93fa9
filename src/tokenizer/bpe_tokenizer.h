#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_merger.h"
#include "tokenizer/token_index.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

// What byte-level and SentencePiece-style BPE share: the vocabulary, the added tokens that cut the text
// first, BOS and EOS, and the bytes of each token.
//
// User-defined tokens (`<tool_call>`, Gemma's runs of newlines) are found in every text, as HF's `tokenizers`
// finds added tokens that are not special. Control and unknown tokens are found only where parse_special
// allows it. BOS is put in front unless the text begins with BOS already; EOS likewise at the end: never two.
class BpeTokenizer : public Tokenizer {
 public:
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const final;
  std::vector<TokenId> encode_parts(std::span<const Part> parts, bool add_special) const final;
  std::string_view token_bytes(TokenId id, bool special) const final;

 protected:
  struct Defaults {
    bool add_bos = false;
  };
  // Reads the keys that both kinds have into the members of Tokenizer.
  Status read_vocabulary(const GgufMetadata& metadata, Defaults defaults);

  // Appends the tokens of a stretch of text without added tokens.
  virtual void encode_text(std::string_view text, BpeScratch* scratch, std::vector<TokenId>* out) const = 0;

  // A token that merging may yield: everything but control, unknown, unused and byte tokens.
  bool is_text(TokenId id) const {
    return kind(id) == TokenKind::kNormal || kind(id) == TokenKind::kUserDefined;
  }

  TokenBytes bytes_;  // of every token, set by the derived class
  AddedTokens added_tokens_;

 private:
  Status read_kinds(const GgufMetadata& metadata);
  Status read_special_ids(const GgufMetadata& metadata);
  std::vector<TokenId> encode_regions(std::string_view text,
                                      std::span<const AddedTokens::Region> control_regions,
                                      bool add_special) const;
};

}  // namespace kvasir
