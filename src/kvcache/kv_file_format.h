#pragma once

#include <cstddef>
#include <cstdint>

namespace kvasir {

// The file that keeps KV blocks (kv_file.h): this header, the text of the key, zeros up to kKvPayloadOffset,
// the blocks, the directory. Numbers are as the machine keeps them; another byte order shows in byte_order.
// The directory: the counts below, digests of salts (32 bytes each), nodes (u32 parent, u32 salt), tokens
// (i32 [nodes][block size]), entries (u32 node, u32 group), checksums of blocks (u64, XXH3 with the block's
// number as seed).
struct KvFileHeader {
  char magic[8];  // kKvMagic
  uint32_t version;
  uint32_t byte_order;  // kKvByteOrder
  uint64_t file_bytes;
  uint64_t block_bytes;
  uint64_t directory_bytes;  // its offset is file_bytes less this
  uint64_t directory_hash;   // XXH3
  uint32_t key_bytes;
  uint32_t block_size;  // tokens
  uint32_t salts, nodes, entries, blocks;
  uint64_t header_hash;  // XXH3 of everything before it and of the key
};
static_assert(sizeof(KvFileHeader) == 80);

inline constexpr char kKvMagic[8] = {'K', 'V', 'A', 'S', 'I', 'R', 'K', 'V'};
inline constexpr uint32_t kKvFileVersion = 1;
inline constexpr uint32_t kKvByteOrder = 0x01020304;
inline constexpr uint64_t kKvPayloadOffset = 4096;
inline constexpr uint64_t kKvMaxKeyBytes = kKvPayloadOffset - sizeof(KvFileHeader);

constexpr uint64_t directory_bytes(uint64_t salts, uint64_t nodes, uint64_t entries, uint64_t blocks,
                                   uint64_t block_size) {
  return salts * 32 + nodes * (8 + 4 * block_size) + entries * 8 + blocks * 8;
}

}  // namespace kvasir
