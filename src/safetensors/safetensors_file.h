#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"

namespace kvasir {

// A type of the safetensors format that we read or write: its name there, and the bytes of a value.
struct SafeType {
  std::string_view name;
  uint32_t bytes;
};
// nullptr for one we do not know.
const SafeType* find_safe_type(std::string_view name);

// A tensor of a safetensors file: row-major, the last dimension contiguous. `bytes` points into the file.
struct SafeTensor {
  std::string name;
  const SafeType* type = nullptr;
  std::vector<uint64_t> shape;
  std::span<const std::byte> bytes;

  uint64_t elements() const;
};

// A file in the safetensors format (github.com/huggingface/safetensors, "Format"): a JSON header that says
// where each tensor lies, and the tensors without a gap. Mapped read-only. Every length is checked against
// the file before it is used; kCorrupt names the tensor and the numbers.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  // The same over bytes in memory, which must outlive the result.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const { return path_; }
  const std::vector<SafeTensor>& tensors() const { return tensors_; }  // as they lie in the file
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  const SafeTensor* find(std::string_view name) const;  // nullptr: there is none

 private:
  std::string path_;
  std::vector<MappedFile> mapping_;  // of a file that was opened
  std::vector<SafeTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// The values of a tensor of type F32, F16 or BF16; kUnsupported names another type.
Result<std::vector<float>> float_values(const SafeTensor& tensor);
// Those of one of I64, I32, U8 or BOOL.
Result<std::vector<int64_t>> integer_values(const SafeTensor& tensor);

}  // namespace kvasir
