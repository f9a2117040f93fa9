#pragma once

#include <spdlog/spdlog.h>

namespace kvasir {

// Where log lines go and from which level on. Lines go to stderr; colours only when it is a terminal and
// NO_COLOR is unset. Prompts and completions are never logged.
void init_logging(spdlog::level::level_enum level);

}  // namespace kvasir
