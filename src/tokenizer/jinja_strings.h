#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "tokenizer/jinja_value.h"

namespace kvasir::jinja {

// Python's string operations on marked text. Each charges the budget for what it reads and makes, and
// searching takes time linear in the text, whatever the needle.

// Byte offset of the first `needle` at or after `from`, or npos.
size_t find_bytes(std::string_view text, std::string_view needle, size_t from, Budget& budget);
// Byte offset of the last `needle`, or npos.
size_t rfind_bytes(std::string_view text, std::string_view needle, Budget& budget);
size_t count_occurrences(std::string_view text, std::string_view needle, Budget& budget);

enum class Side : uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };
// Without the characters of `set` (null: white space) at the ends.
Text strip(const Text& text, const Text* set, Side sides, Budget& budget);

// At most `count` replacements from the left; all when negative. An empty `from` stands between all
// characters.
Text replace(const Text& text, const Text& from, const Text& to, int64_t count, Budget& budget);

// str.split and str.rsplit: `separator` null means runs of white space. At most `limit` cuts; any number when
// negative.
std::vector<Value> split(const Text& text, const Text* separator, int64_t limit, Budget& budget);
std::vector<Value> rsplit(const Text& text, const Text* separator, int64_t limit, Budget& budget);
std::vector<Value> split_lines(const Text& text, bool keep_ends, Budget& budget);

// `text` `count` times; throws when that is absurd.
Text repeat(const Text& text, int64_t count, Budget& budget);

Text join(const std::vector<Value>& items, const Text& separator, Budget& budget);

// Filled up with `fill` to `width` characters; what does not divide goes as str.center does it.
enum class Align : uint8_t { kLeft, kRight, kCenter };
Text pad(const Text& text, int64_t width, Align align, std::string_view fill, Budget& budget);

}  // namespace kvasir::jinja
