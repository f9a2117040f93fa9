#pragma once

#include <vector>

#include "tokenizer/tokenizer.h"

namespace kvasir {

// Adds the well-known end-of-turn and end-of-text markers that the vocabulary has as control tokens, and
// removes doubles. Files name one eos; chat models end on others too (Qwen2: <|im_end|> and <|endoftext|>).
void add_known_end_tokens(const Tokenizer& tokenizer, std::vector<TokenId>* end_tokens);

}  // namespace kvasir
