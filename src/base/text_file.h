#pragma once

#include <string>

#include "base/result.h"

namespace kvasir {

// All of a file or pipe that a person wrote, at most 16 MiB. kIo names the path and what is wrong with it (a
// directory, nothing there, too long).
Result<std::string> read_text_file(const std::string& path);

}  // namespace kvasir
