#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace kvasir {

// A file mapped read-only. Move-only; unmapped on destruction.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

  // Tells the kernel that the pages of this part (of bytes()) are not needed any more; they are read again if
  // touched.
  void release(std::span<const std::byte> part) const;

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kvasir
