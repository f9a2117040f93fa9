#pragma once

#include <string>

#include "gguf/gguf_file.h"

namespace kvasir {

// What identifies a model: 32 hexadecimal digits (XXH3, 128 bits) of all metadata, of every tensor's name,
// type and shape, and of all of its bytes. Reads the whole file, as fast as memory or disk gives it; a file
// that was split gives the same as the whole one, except for the keys that say so.
std::string model_fingerprint(const GgufFile& file);

}  // namespace kvasir
