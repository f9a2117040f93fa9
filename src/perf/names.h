#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

// Letters and digits of a name, letters small: what counts when names are compared.
std::string plain_name(std::string_view name);

// Up to `most` of `names` that are nearest to `wanted`: first those of which one holds the other, in plain
// form, each by edit distance (Levenshtein 1966). None that needs edits for half of its letters.
std::vector<std::string> nearest_names(std::string_view wanted, std::span<const std::string> names,
                                       size_t most = 3);

// "; did you mean A, B or C?", "" for none.
std::string did_you_mean(std::span<const std::string> names);

}  // namespace kvasir
