#include "kernels/isa/amx/linear_tiles.h"

// Has not run on any processor: everything but HardwareTiles is tested with linear_soft_test.cc in its place.
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

// Tiles 3 Set .. 3 Set + 2 are the product and its operands.
class HardwareTiles {
 public:
  explicit HardwareTiles(uint32_t width) {
    TileConfig config;
    for (int set = 0; set < 2; ++set) {
      config.rows[3 * set] = kTileRows;
      config.row_bytes[3 * set] = kPanelCols * sizeof(int32_t);
      config.rows[3 * set + 1] = kTileRows;
      config.row_bytes[3 * set + 1] = static_cast<uint16_t>(width);
      config.rows[3 * set + 2] = static_cast<uint8_t>(width / 4);
      config.row_bytes[3 * set + 2] = quant::kQuadBytes;
    }
    memory_is_written();
    _tile_loadconfig(&config);
  }
  ~HardwareTiles() { _tile_release(); }
  HardwareTiles(const HardwareTiles&) = delete;
  HardwareTiles& operator=(const HardwareTiles&) = delete;

  template <int Set>
  [[gnu::always_inline]] void multiply(const int8_t* a, size_t stride, const uint8_t* b, int32_t* c) const {
    memory_is_written();
    if constexpr (Set == 0) {
      _tile_zero(0);
      _tile_loadd(1, a, stride);
      _tile_loadd(2, b, 64);
      _tile_dpbsud(0, 1, 2);
      _tile_stored(0, c, 64);
    } else {
      _tile_zero(3);
      _tile_loadd(4, a, stride);
      _tile_loadd(5, b, 64);
      _tile_dpbsud(3, 4, 5);
      _tile_stored(3, c, 64);
    }
  }

 private:
  // GCC 12 does not know that _tile_loadd and _tile_loadconfig read memory.
  [[gnu::always_inline]] static void memory_is_written() { __asm__ volatile("" ::: "memory"); }
};

}  // namespace

void linear(const LinearArgs& args) {
  any_linear<HardwareTiles>(args);
}

}  // namespace kvasir::amx
