#include "kernels/isa/amx/linear_tiles.h"
#include "kernels/isa/amx/tile_config.h"

namespace kvasir::amx {
namespace {

// Tiles 3 Set .. 3 Set + 2 are the product and its operands.
TileConfig linear_config(uint32_t width) {
  TileConfig config;
  for (int set = 0; set < 2; ++set) {
    config.rows[3 * set] = kTileRows;
    config.row_bytes[3 * set] = kPanelCols * sizeof(int32_t);
    config.rows[3 * set + 1] = kTileRows;
    config.row_bytes[3 * set + 1] = static_cast<uint16_t>(width);
    config.rows[3 * set + 2] = static_cast<uint8_t>(width / 4);
    config.row_bytes[3 * set + 2] = quant::kQuadBytes;
  }
  return config;
}

class HardwareTiles {
 public:
  explicit HardwareTiles(uint32_t width) : scope_(linear_config(width)) {}

  template <int Set>
  [[gnu::always_inline]] void multiply(const int8_t* a, size_t stride, const uint8_t* b, int32_t* c) const {
    memory_is_written();
    if constexpr (Set == 0) {
      _tile_zero(0);
      _tile_loadd(1, a, stride);
      _tile_loadd(2, b, quant::kQuadBytes);
      _tile_dpbssd(0, 1, 2);
      _tile_stored(0, c, 64);
    } else {
      _tile_zero(3);
      _tile_loadd(4, a, stride);
      _tile_loadd(5, b, quant::kQuadBytes);
      _tile_dpbssd(3, 4, 5);
      _tile_stored(3, c, 64);
    }
  }

 private:
  TileScope scope_;
};

}  // namespace

void linear(const LinearArgs& args) {
  any_linear<HardwareTiles>(args);
}

}  // namespace kvasir::amx
