#include "apps/kvasir/machine_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace kvasir {

namespace fs = std::filesystem;

std::string default_machine_path() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/kvasir/machine.json";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') return std::string(home) + "/.cache/kvasir/machine.json";
  return "";
}

Status save_machine(const HardwareProfile& machine, const std::string& path) {
  const auto failed = [&](const std::string& why) {
    return io_error(fmt::format("{}: cannot be written: {}", path, why));
  };
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) return failed(error.message());
  const std::string draft = fmt::format("{}.{}", path, getpid());
  std::ofstream out(draft, std::ios::binary);
  out << machine.to_json();
  out.close();
  if (out) fs::rename(draft, path, error);
  if (out && !error) return {};
  const std::string why = error ? error.message() : "the folder is full or not writable";
  fs::remove(draft, error);
  return failed(why);
}

}  // namespace kvasir
