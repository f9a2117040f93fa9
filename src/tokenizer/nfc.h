#pragma once

#include <string>
#include <string_view>

namespace kvasir {

// Unicode normalisation form C (UAX 15) in time O(n log n), whatever the text. Bytes that are not UTF-8 stay
// as they are and separate what is normalised. Returns `text` itself when that is already in the form, else a
// view of *buffer.
std::string_view to_nfc(std::string_view text, std::string* buffer);

}  // namespace kvasir
