#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "kvcache/kv_file.h"

namespace kvasir {

// A directory that one process keeps its KV blocks in, made if need be (for its owner only) and held by a
// lock for the life of this object.
class KvDirectory {
 public:
  // kUnavailable when another process has it, with that one's number where it is known; kInvalidArgument when
  // it cannot be made or written.
  static Result<std::unique_ptr<KvDirectory>> open(const std::string& path);

  std::string file() const { return path_ + "/prefixes.kv"; }
  const std::string& path() const { return path_; }

 private:
  KvDirectory(std::string path, FileDescriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  FileDescriptor lock_;
};

}  // namespace kvasir
