#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "kvcache/kv_layout.h"
#include "kvcache/prefix_snapshot.h"

namespace kvasir {

// What the bytes of KV blocks depend on, as named parts: a file whose parts are not all equal to these holds
// nothing for us.
struct KvFileKey {
  std::vector<std::pair<std::string, std::string>> parts;

  std::string text() const;  // a line "name: value" for each
};

// model: what identifies the weights; numerics: the version of the arithmetic. Beside these the layout
// counts.
KvFileKey kv_file_key(const KvLayout& layout, std::string model, uint32_t numerics);

// An open file descriptor, closed on destruction.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Writes a file of blocks under a temporary name (`path` + ".tmp") and gives it its own when it is complete
// and on the disk, so that at every moment `path` is a whole file, the old one or the new. Readable by its
// owner only, for prompts are in it. Errors are kIo (or kResourceExhausted when the disk is full) and name
// the path. What was begun and not finished is removed on destruction.
class KvFileWriter {
 public:
  static Result<KvFileWriter> create(std::string path, const KvLayout& layout, const KvFileKey& key);
  ~KvFileWriter();
  KvFileWriter(KvFileWriter&& other) noexcept;
  KvFileWriter& operator=(KvFileWriter&&) = delete;

  // The next block, layout.block_bytes() long.
  Status append(std::span<const std::byte> block);
  // The snapshot whose blocks were appended, in its order. Returns the bytes of the file.
  Result<uint64_t> finish(const PrefixSnapshot& snapshot);

 private:
  KvFileWriter(std::string path, FileDescriptor file, const KvLayout& layout, std::string key)
      : path_(std::move(path)), file_(std::move(file)), layout_(layout), key_(std::move(key)) {}
  Status write_at(uint64_t offset, std::span<const std::byte> bytes);

  std::string path_;
  FileDescriptor file_;
  const KvLayout& layout_;
  std::string key_;
  std::vector<uint64_t> hashes_;
};

// Reads such a file; trusts no byte of it.
class KvFileReader {
 public:
  // Errors: kNotFound when there is no file; kCorrupt when it is none of ours, cut short, damaged or of an
  // older version; kInvalidArgument when its key is another, with the part that differs and both values.
  static Result<KvFileReader> open(const std::string& path, const KvLayout& layout, const KvFileKey& key,
                                   uint32_t vocab);

  // Its blocks' ids are their numbers in the file.
  const PrefixSnapshot& snapshot() const { return snapshot_; }
  uint64_t file_bytes() const { return file_bytes_; }

  // Block `number` into `out` (block_bytes long). False when it cannot be read or its checksum is wrong.
  bool read_block(uint32_t number, std::span<std::byte> out) const;

 private:
  explicit KvFileReader(FileDescriptor file) : file_(std::move(file)) {}

  FileDescriptor file_;
  PrefixSnapshot snapshot_;
  std::vector<uint64_t> hashes_;
  uint64_t file_bytes_ = 0;
};

}  // namespace kvasir
