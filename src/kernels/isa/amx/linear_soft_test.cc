#include "kernels/isa/amx/linear_tiles.h"
#include "kernels/isa/test_variants.h"

namespace kvasir::amx {
namespace {

// Tile products one multiplication at a time (Intel SDM vol. 2B, TDPBSSD).
class SoftTiles {
 public:
  explicit SoftTiles(uint32_t width) : width_(width) {}

  template <int Set>
  void multiply(const int8_t* a, size_t stride, const uint8_t* b, int32_t* c) const {
    for (uint32_t m = 0; m < kTileRows; ++m)
      for (uint32_t n = 0; n < kPanelCols; ++n) {
        int32_t sum = 0;
        for (uint32_t k = 0; k < width_; ++k)
          sum += a[m * stride + k] * static_cast<int8_t>(b[k / 4 * quant::kQuadBytes + 4 * n + k % 4]);
        c[m * kPanelCols + n] = sum;
      }
  }

 private:
  uint32_t width_;
};

}  // namespace

void linear_soft_tiles(const LinearArgs& args) {
  any_linear<SoftTiles>(args);
}

}  // namespace kvasir::amx
