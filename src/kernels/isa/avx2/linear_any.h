#pragma once

#include "kernels/isa/avx2/linear_float.h"
#include "kernels/isa/avx2/linear_tile.h"

// A whole linear layer, for every set `Dots` of 256-bit instructions for integer dots.
namespace kvasir::avx2 {
namespace {

// From this many rows on, unpacking to memory and sweeping tiles beats unpacking to registers for every few
// rows. Never a matter of bits.
template <class F>
constexpr uint32_t kSweepFrom = F::kBits == 8                     ? 48
                                : F::kBits == 4 && !F::kTwoLevels ? 24
                                                                  : 12;
inline constexpr uint32_t kMostRows = 6;

template <class Dots, class F>
void few_rows(const LinearArgs& a, uint32_t p, uint32_t row, uint32_t rows) {
  switch (rows) {
    case 1:
      return rows_of_panel<Dots, F, 1>(a, p, row);
    case 2:
      return rows_of_panel<Dots, F, 2>(a, p, row);
    case 3:
      return rows_of_panel<Dots, F, 3>(a, p, row);
    case 4:
      return rows_of_panel<Dots, F, 4>(a, p, row);
    case 5:
      return rows_of_panel<Dots, F, 5>(a, p, row);
    default:
      return rows_of_panel<Dots, F, 6>(a, p, row);
  }
}

// Few rows are shared out evenly over as few passes as may be; all passes over a panel before the next.
template <class Dots, class F>
void quant_linear(const LinearArgs& a) {
  for (uint32_t p = a.panel_begin; p < a.panel_end; ++p) {
    if (a.rows < kSweepFrom<F>) {
      const uint32_t passes = (a.rows + kMostRows - 1) / kMostRows;
      for (uint32_t i = 0; i < passes; ++i)
        few_rows<Dots, F>(a, p, a.rows * i / passes, a.rows * (i + 1) / passes - a.rows * i / passes);
    } else {
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
