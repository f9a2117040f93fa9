#include "tokenizer/end_tokens.h"

#include <algorithm>
#include <string_view>

namespace kvasir {
namespace {

constexpr std::string_view kEndMarkers[] = {
    "<|im_end|>",    "<|endoftext|>",   "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
    "<end_of_turn>", "<|end_of_turn|>", "<|end|>",    "<|return|>", "<|eot|>",
    "<|eom|>",       "<EOT>",           "<eos>",      "</s>",       "<｜end▁of▁sentence｜>",
};

TokenId find_control(const Tokenizer& tokenizer, std::string_view text) {
  for (TokenId id = 0; tokenizer.in_vocab(id); ++id) {
    if (tokenizer.kind(id) == TokenKind::kControl && tokenizer.token_text(id) == text) return id;
  }
  return kNoToken;
}

}  // namespace

void add_known_end_tokens(const Tokenizer& tokenizer, std::vector<TokenId>* end_tokens) {
  // Where answers end on <|return|>, <|end|> only ends one of several messages in an answer.
  const bool has_return = find_control(tokenizer, "<|return|>") != kNoToken;
  for (TokenId id = 0; tokenizer.in_vocab(id); ++id) {
    if (tokenizer.kind(id) != TokenKind::kControl) continue;
    const std::string_view text = tokenizer.token_text(id);
    if (has_return && text == "<|end|>") continue;
    if (std::find(std::begin(kEndMarkers), std::end(kEndMarkers), text) != std::end(kEndMarkers))
      end_tokens->push_back(id);
  }
  std::sort(end_tokens->begin(), end_tokens->end());
  end_tokens->erase(std::unique(end_tokens->begin(), end_tokens->end()), end_tokens->end());
}

}  // namespace kvasir
