#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "safetensors/safetensors_file.h"

namespace kvasir {

// Writes a safetensors file front to back, so that tensors larger than memory can be written. What stands at
// the path is replaced once everything is there, and left alone if that never comes.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    const SafeType* type = nullptr;
    std::vector<uint64_t> shape;
  };
  // kIo names the path and the system's reason.
  static Result<SafetensorsWriter> create(const std::string& path, const std::vector<Entry>& entries,
                                          const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&&) noexcept = default;

  // The next bytes of the tensors, which follow one another in the order of the entries.
  Status append(std::span<const std::byte> bytes);
  template <class T>
  Status append_values(std::span<const T> values) {
    return append(std::as_bytes(values));
  }
  // All bytes have been given: the file takes its place.
  Status finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  SafetensorsWriter(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  Status failure(const std::string& what) const;
  std::string unfinished() const { return path_ + ".part"; }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  uint64_t expected_ = 0, given_ = 0;
};

}  // namespace kvasir
