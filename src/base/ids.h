#pragma once

#include <cstdint>
#include <limits>

namespace kvasir {

// Index into the vocabulary. A plain integer because it indexes logits rows, GGUF arrays and JSON alike.
using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

// A KV block of the pool; index into the KvStore.
enum class BlockId : uint32_t {};
inline constexpr BlockId kNoBlock = BlockId{std::numeric_limits<uint32_t>::max()};
constexpr uint32_t index_of(BlockId id) {
  return static_cast<uint32_t>(id);
}

// One running generation; unique for the life of the engine.
enum class SeqId : uint64_t {};

// One request as submitted (it may have several choices, each a sequence); unique for the life of the engine.
enum class RequestId : uint64_t {};

}  // namespace kvasir
