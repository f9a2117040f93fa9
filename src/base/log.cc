#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace kvasir {

void init_logging(spdlog::level::level_enum level) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const char* plain = std::getenv("NO_COLOR");
  const bool colour = terminal && (plain == nullptr || *plain == '\0');
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(colour ? spdlog::color_mode::automatic
                                                                           : spdlog::color_mode::never);
  auto logger = std::make_shared<spdlog::logger>("kvasir", std::move(sink));
  // A terminal's line is cleared from the cursor on: there may be one about work in progress.
  logger->set_pattern(std::string(terminal ? "\x1b[K" : "") + "%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  logger->set_level(level);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace kvasir
