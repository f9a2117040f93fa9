#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir {

// "512M", "1.5G", "12MiB", "800 KB", "1048576": letters count in powers of 1024. Errors name the text.
Result<uint64_t> parse_size(std::string_view text);

// "98.4 MiB"
std::string size_text(uint64_t bytes);

// "134.5 M": powers of 1000, for parameters.
std::string count_text(uint64_t count);

}  // namespace kvasir
