#pragma once

#include "kernels/isa/avx2/linear_float.h"
#include "kernels/isa/avx2/linear_tile.h"

// A whole linear layer, for every set `Dots` of 256-bit instructions for integer dots.
namespace kvasir::avx2 {
namespace {

template <class Dots, class F>
void quant_linear(const LinearArgs& a) {
  for (uint32_t p = a.panel_begin; p < a.panel_end; ++p) {
    switch (a.rows) {
      case 1:
        rows_of_panel<Dots, F, 1>(a, p, 0);
        break;
      case 2:
        rows_of_panel<Dots, F, 2>(a, p, 0);
        break;
      case 3:
        rows_of_panel<Dots, F, 3>(a, p, 0);
        break;
      case 4:
        rows_of_panel<Dots, F, 4>(a, p, 0);
        break;
      default:
        for (uint32_t row = 0; row < a.rows; row += kMaxSweepRows)
          sweep<Dots, F>(a, p, row, a.rows - row < kMaxSweepRows ? a.rows : row + kMaxSweepRows);
    }
  }
}

template <class Dots>
void any_linear(const LinearArgs& args) {
  if (args.rows == 0) return;
  if (with_format(args.w->type, [&]<class F>(F) { quant_linear<Dots, F>(args); })) return;
  if (args.w->type == DType::kF32) float_linear<DType::kF32>(args);
  if (args.w->type == DType::kF16) float_linear<DType::kF16>(args);
  if (args.w->type == DType::kBF16) float_linear<DType::kBF16>(args);
}

}  // namespace
}  // namespace kvasir::avx2
