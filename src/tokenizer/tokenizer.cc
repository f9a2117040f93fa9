#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include "tokenizer/byte_level_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace kvasir {

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(const std::string model, metadata.require_string("tokenizer.ggml.model"));
  if (model == "gpt2") return ByteLevelTokenizer::load(metadata);
  if (model == "llama") return SentencePieceTokenizer::load(metadata);
  return unsupported(fmt::format("tokenizer.ggml.model is '{}', which is not known (known: gpt2, llama)",
                                 model.substr(0, 80)));
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool special) const {
  std::string text;
  bool at_start = strips_leading_space();
  for (const TokenId id : ids) {
    std::string_view bytes = token_bytes(id, special);
    if (at_start && !bytes.empty()) {
      at_start = false;
      if (bytes.front() == ' ') bytes.remove_prefix(1);
    }
    text += bytes;
  }
  return text;
}

}  // namespace kvasir
