#include "kvcache/kv_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace kvasir {
namespace {

// The process that wrote its number into the lock's file; 0 when it says none.
long owner_of(int lock) {
  char text[24] = {};
  return ::pread(lock, text, sizeof(text) - 1, 0) > 0 ? std::strtol(text, nullptr, 10) : 0;
}

}  // namespace

Result<std::unique_ptr<KvDirectory>> KvDirectory::open(const std::string& path) {
  const auto failed = [&](const char* what, const std::string& name) {
    return invalid_argument(fmt::format("cannot {} '{}': {}", what, name, std::strerror(errno)));
  };
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code ignored;  // what is wrong with the parents, mkdir says
  if (!parent.empty()) std::filesystem::create_directories(parent, ignored);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return failed("make the directory", path);
  const std::string name = path + "/lock";
  FileDescriptor lock(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.get() < 0) return failed("open", name);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return failed("lock", name);
    const long owner = owner_of(lock.get());
    return unavailable(
        fmt::format("another server{} keeps its KV blocks in '{}'; each needs a directory of its own",
                    owner > 0 ? fmt::format(" (process {})", owner) : "", path));
  }
  const std::string number = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), number.data(), number.size(), 0) != static_cast<ssize_t>(number.size()))
    return failed("write", name);
  std::unique_ptr<KvDirectory> directory(new KvDirectory(path, std::move(lock)));
  ::unlink((directory->file() + ".tmp").c_str());  // of a server that was killed while it wrote
  return directory;
}

}  // namespace kvasir
