#pragma once

#include <cstdint>

#include "base/result.h"
#include "gguf/byte_cursor.h"
#include "gguf/metadata.h"

namespace kvasir {

inline constexpr std::string_view kAlignmentKey = "general.alignment";

// Reads `pairs` key-value pairs at the cursor. Refuses duplicate and empty keys, unknown value types, arrays
// of arrays, booleans other than 0 and 1, u64 values above the maximum of int64, and counts and lengths that
// the bytes left cannot hold. Errors name the key and the number.
Result<GgufMetadata> read_metadata(ByteCursor& in, uint64_t pairs);

// general.alignment, or 32 where the file says nothing; a power of two.
Result<uint64_t> read_alignment(const GgufMetadata& metadata);

}  // namespace kvasir
