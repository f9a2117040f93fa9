#include "kernels/isa/linear_functions.h"
#include "kernels/isa/neon/linear_float.h"
#include "kernels/isa/neon/linear_tile.h"

namespace kvasir::neon {
namespace {

// From three rows on, accumulators of a whole panel beside what unpacking needs no longer fit the registers.
template <class F>
void quant_linear(const LinearArgs& a) {
  for (uint32_t p = a.panel_begin; p < a.panel_end; ++p) {
    switch (a.rows) {
      case 1:
        rows_of_panel<F, 1>(a, p, 0);
        break;
      case 2:
        rows_of_panel<F, 2>(a, p, 0);
        break;
      default:
        for (uint32_t row = 0; row < a.rows; row += kMaxSweepRows)
          sweep<F>(a, p, row, a.rows - row < kMaxSweepRows ? a.rows : row + kMaxSweepRows);
    }
  }
}

}  // namespace

void linear(const LinearArgs& args) {
  if (args.rows == 0) return;
  if (with_format(args.w->type, [&]<class F>(F) { quant_linear<F>(args); })) return;
  if (args.w->type == DType::kF32) float_linear<DType::kF32>(args);
  if (args.w->type == DType::kF16) float_linear<DType::kF16>(args);
  if (args.w->type == DType::kBF16) float_linear<DType::kBF16>(args);
}

}  // namespace kvasir::neon
