#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "gguf/metadata.h"
#include "tokenizer/token_index.h"

namespace kvasir {

enum class TokenKind : uint8_t { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Text to token ids and back, from a GGUF's own vocabulary. Immutable and thread-safe after load; time is
// linear in the text, whatever the text is. Ids equal those of HF's `tokenizers`. Text is bytes: any byte
// string encodes, and decodes back to itself but for what the model's own tokenizer cannot keep: forms other
// than NFC where it normalises (Qwen2), U+2581 in SentencePiece (a space), bytes that have no token (SmolLM2:
// six control characters and bytes that text hardly or never has).
class Tokenizer {
 public:
  // Reads `tokenizer.ggml.*`. Refuses unknown tokenizer models and pre-tokenisers by name, and vocabularies
  // that contradict themselves.
  static Result<std::unique_ptr<Tokenizer>> load(const GgufMetadata& metadata);
  virtual ~Tokenizer() = default;

  struct EncodeOptions {
    bool add_special = true;  // BOS/EOS as the file asks for
    // Control tokens written out in the text become their ids: for template text only. User-defined tokens
    // (`<tool_call>`) are found in every text, as HF finds added tokens that are not special.
    bool parse_special = false;
  };
  virtual std::vector<TokenId> encode(std::string_view text, EncodeOptions options) const = 0;

  // Text in parts, of which only some may contain control tokens: what a chat template wrote and what users
  // wrote. Equals HF's encoding of the concatenation, except that users' words never become control tokens.
  struct Part {
    std::string_view text;
    bool parse_special = false;
  };
  virtual std::vector<TokenId> encode_parts(std::span<const Part> parts, bool add_special) const = 0;

  // The bytes a token stands for in running text; empty for control tokens unless `special`. Ids out of range
  // or unused give "". May be part of a UTF-8 character.
  virtual std::string_view token_bytes(TokenId id, bool special) const = 0;
  // The bytes of a whole sequence: concatenated token bytes, less the space that SentencePiece puts in front.
  std::string decode(std::span<const TokenId> ids, bool special) const;

  // True when a leading space of the very first text token is an artefact to drop (SentencePiece
  // add_space_prefix).
  virtual bool strips_leading_space() const = 0;

  uint32_t vocab_size() const { return static_cast<uint32_t>(kinds_.size()); }
  TokenKind kind(TokenId id) const { return kinds_[static_cast<size_t>(id)]; }
  bool in_vocab(TokenId id) const { return id >= 0 && static_cast<uint32_t>(id) < vocab_size(); }
  // The token exactly as the vocabulary spells it ("<|im_end|>", "Ġthe").
  std::string_view token_text(TokenId id) const { return texts_[id]; }

  TokenId bos() const { return bos_; }  // kNoToken when the file has none
  TokenId eos() const { return eos_; }
  TokenId unk() const { return unk_; }
  TokenId pad() const { return pad_; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  // Every token that ends a generation: eos, eot, eom and the well-known end-of-turn markers of the
  // vocabulary.
  const std::vector<TokenId>& end_tokens() const { return end_tokens_; }
  const std::string& chat_template() const { return chat_template_; }  // "" when the file has none
  const std::string& model() const { return model_; }                  // "gpt2", "llama"
  const std::string& pre_tokenizer() const { return pre_; }

 protected:
  TokenBytes texts_;  // as the vocabulary spells them
  std::vector<TokenKind> kinds_;
  TokenId bos_ = kNoToken, eos_ = kNoToken, unk_ = kNoToken, pad_ = kNoToken;
  bool add_bos_ = false, add_eos_ = false;
  std::vector<TokenId> end_tokens_;
  std::string chat_template_, model_, pre_;
};

}  // namespace kvasir
