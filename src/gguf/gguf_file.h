#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "base/tensor_view.h"
#include "gguf/metadata.h"

namespace kvasir {

// One entry of the tensor directory. `view` points into the mapping and is bounds-checked and aligned for its
// type.
struct TensorInfo {
  std::string name;
  TensorView view;
  uint32_t shard = 0;  // which of the split files holds it
};

// A tensor of whole numbers, such as a draft head's list of tokens. Kept apart from tensors(), all of whose
// types kernels can read.
struct IntegerTensor {
  std::string name;
  std::string_view type;  // "I64" or "I32"
  std::array<uint64_t, 4> shape = {1, 1, 1, 1};
  std::span<const std::byte> bytes;

  std::vector<int64_t> values() const;
};

// A GGUF model (specification: ggml docs/gguf.md, versions 2 and 3), mapped read-only, all shards together.
// Opening reads and checks the directory only: every count, length, offset and product is checked against the
// file before it is used, so a hostile file costs neither memory nor time.
class GgufFile {
 public:
  // Opens a file; for `name-00001-of-00003.gguf` its siblings too. Errors name the key or tensor and the
  // number.
  static Result<GgufFile> open(const std::string& path);

  // The same over bytes in memory (one shard, aligned to 8), which must outlive the result. For tests and the
  // fuzz target.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<IntegerTensor>& integers() const { return integers_; }

  // nullptr when there is no such tensor.
  const TensorInfo* find_tensor(std::string_view name) const;
  const IntegerTensor* find_integers(std::string_view name) const;

  // The file's pages wholly under these bytes of a tensor may be dropped: their values have been copied
  // elsewhere.
  void release(const TensorInfo& tensor, size_t offset, size_t bytes) const;
  void release(const TensorInfo& tensor) const { release(tensor, 0, tensor.view.bytes()); }

 private:
  std::string path_;
  uint32_t version_ = 0;
  uint64_t file_bytes_ = 0;
  std::vector<MappedFile> shards_;
  GgufMetadata metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<IntegerTensor> integers_;
  std::vector<uint32_t> by_name_;  // indices of tensors_, ordered by name
  friend class GgufReader;
};

}  // namespace kvasir
