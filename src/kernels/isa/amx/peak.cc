#include "kernels/isa/amx/tile_config.h"
#include "kernels/isa/peak_functions.h"

namespace kvasir::amx {

void int8_rounds(uint64_t rounds) {
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) {
    config.rows[tile] = 16;
    config.row_bytes[tile] = 64;
  }
  const TileScope scope(config);
  _tile_zero(4);
  _tile_zero(5);
  for (uint64_t round = 0; round < rounds; ++round) {  // one in 16 cycles with a latency of 52
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  }
}

}  // namespace kvasir::amx
