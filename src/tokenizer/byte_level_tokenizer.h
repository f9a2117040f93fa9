#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/pre_tokenizer.h"

namespace kvasir {

// Byte-level BPE (GPT-2, Radford et al. 2019; tokenizer.ggml.model "gpt2"): text is cut by the pre-tokeniser,
// every piece starts as its bytes, and merges join them. A byte that the vocabulary lacks is left out, as
// HF's `tokenizers` does (SmolLM2 has no token for six control characters and for some bytes that UTF-8 never
// or hardly uses). Where the model's own tokenizer normalises to NFC (Qwen2), what decodes is the NFC of the
// text.
class ByteLevelTokenizer final : public BpeTokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> load(const GgufMetadata& metadata);
  bool strips_leading_space() const override { return false; }

 private:
  Status read(const GgufMetadata& metadata);
  void read_tokens();
  Status read_merges(const GgufMetadata& metadata);
  void encode_text(std::string_view text, BpeScratch* scratch, std::vector<TokenId>* out) const override;

  const PreTokenizer* rules_ = nullptr;
  std::array<TokenId, 256> byte_tokens_{};
  std::unique_ptr<TokenIndex> index_;  // text tokens by their bytes
  std::unique_ptr<MergeTable> merges_;
};

}  // namespace kvasir
