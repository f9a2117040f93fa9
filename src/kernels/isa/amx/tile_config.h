#pragma once

#include <immintrin.h>

#include <cstdint>

namespace kvasir::amx {
namespace {

// The operand of LDTILECFG (Intel SDM vol. 1, 18.3).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// GCC 12 does not know that _tile_loadd and _tile_loadconfig read memory.
[[gnu::always_inline]] inline void memory_is_written() {
  __asm__ volatile("" ::: "memory");
}

// Tiles as configured, for the time of a scope: a thread that holds tiles is dearer to switch from.
class TileScope {
 public:
  explicit TileScope(const TileConfig& config) {
    memory_is_written();
    _tile_loadconfig(&config);
  }
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

}  // namespace
}  // namespace kvasir::amx
