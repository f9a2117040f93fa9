#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tokenizer/jinja_text.h"

namespace kvasir::jinja {

// Python's str on UTF-8: positions are counted in characters, ill-formed bytes count as characters of their
// own. The classes are those of str.isspace() and friends.

size_t count_chars(std::string_view text);
// Byte offset of character `index`, or the size when there are fewer.
size_t byte_offset(std::string_view text, size_t index);

bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_alnum(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_printable(char32_t c);

// Byte offset of the first character that is not white space, and the end of the last.
size_t skip_space(std::string_view text, size_t pos = 0);
size_t rstrip_end(std::string_view text);

// Simple case mappings, and the sharp s, which becomes two letters. Marks are kept.
Text to_upper(const Text& text);
Text to_lower(const Text& text);
Text swap_case(const Text& text);
Text capitalize(const Text& text);    // first letter upper, the rest lower
Text title_words(const Text& text);   // str.title(): every run of letters is a word
Text title_filter(const Text& text);  // Jinja's `title`: words part at spaces, hyphens and opening brackets

}  // namespace kvasir::jinja
