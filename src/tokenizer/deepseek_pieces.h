#pragma once

#include <cstddef>
#include <string_view>

namespace kvasir {

// The end of the piece that begins at text[pos], where one does; pos < text.size(). The expressions of the
// models' tokenizer.json one after the other, each within the pieces of those before; what none matches is a
// piece as well. Time is linear in a text's pieces together.

// DeepSeek LLM and V2: [\r\n]; \s?[letters with case]+; \s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F
// \u3000-\u3002]+, which cuts words again where letters are not ASCII; \s+$; [\u0800-\u9FA5\uAC00-\uD7FF]+;
// and every \p{N} alone.
size_t deepseek_llm_piece(std::string_view text, size_t pos);

// DeepSeek-V3 and R1: \p{N}{1,3}; [\u3040-\u30FF\u4E00-\u9FA5]+; and
//   [ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
size_t deepseek_v3_piece(std::string_view text, size_t pos);

}  // namespace kvasir
