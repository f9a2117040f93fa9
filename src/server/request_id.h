#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir {

// 64 bits from the operating system's generator.
uint64_t random_bits();

// `prefix` and 24 random letters and digits: ids of requests, completions and tool calls.
std::string random_id(std::string_view prefix);

// The client's own id when it is 1 to 128 printable ASCII characters, else a fresh one.
std::string request_id_or_fresh(std::string_view from_client);

}  // namespace kvasir
