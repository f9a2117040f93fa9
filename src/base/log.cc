#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <cstdlib>

namespace kvasir {

void init_logging(spdlog::level::level_enum level) {
  const bool colour = isatty(STDERR_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(colour ? spdlog::color_mode::automatic
                                                                           : spdlog::color_mode::never);
  auto logger = std::make_shared<spdlog::logger>("kvasir", std::move(sink));
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  logger->set_level(level);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace kvasir
