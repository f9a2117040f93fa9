#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "gguf/byte_cursor.h"
#include "gguf/gguf_file.h"

namespace kvasir {

struct TensorDirectory {
  std::vector<TensorInfo> tensors;
  std::vector<IntegerTensor> integers;
};

// Reads `count` tensor entries at the cursor, which must stand behind the metadata of `file`, and finds the
// values of each in `file`. Refuses unknown types, dimensions of zero or more than four of them, rows that
// are no whole number of storage blocks, products that overflow, values that are misaligned, outside the
// file, or shared by two tensors, and duplicate names. Errors name the tensor and the number.
Result<TensorDirectory> read_tensors(ByteCursor& in, uint64_t count, uint64_t alignment,
                                     std::span<const std::byte> file, uint32_t shard);

// Indices of `tensors` ordered by name, or the error that names a tensor which is there twice.
Result<std::vector<uint32_t>> index_by_name(const std::vector<TensorInfo>& tensors,
                                            const std::vector<IntegerTensor>& integers);

}  // namespace kvasir
