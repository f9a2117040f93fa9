#include "kernels/isa/avx512/linear_float.h"
#include "kernels/isa/avx512/linear_tile.h"
#include "kernels/isa/linear_functions.h"

namespace kvasir::avx512 {
namespace {

// From this many rows on, unpacking to memory and sweeping tiles beats unpacking to registers. Never a matter
// of bits.
constexpr uint32_t kSweepFrom = 9;

template <class F>
void few_rows(const LinearArgs& a) {
  for (uint32_t p = a.panel_begin; p < a.panel_end; ++p) {
    switch (a.rows) {
      case 1:
        rows_of_panel<F, 1>(a, p, 0);
        break;
      case 2:
        rows_of_panel<F, 2>(a, p, 0);
        break;
      case 3:
        rows_of_panel<F, 3>(a, p, 0);
        break;
      case 4:
        rows_of_panel<F, 4>(a, p, 0);
        break;
      case 5:
        rows_of_panel<F, 5>(a, p, 0);
        break;
      case 6:
        rows_of_panel<F, 6>(a, p, 0);
        break;
      case 7:
        rows_of_panel<F, 7>(a, p, 0);
        break;
      default:
        rows_of_panel<F, 8>(a, p, 0);
        break;
    }
  }
}

template <class F>
void many_rows(const LinearArgs& a) {
  for (uint32_t row = 0; row < a.rows; row += kMaxSweepRows) {
    const uint32_t end = a.rows - row < kMaxSweepRows ? a.rows : row + kMaxSweepRows;
    uint32_t p = a.panel_begin;
    for (; p + 2 <= a.panel_end; p += 2) sweep<F, 2>(a, p, row, end);
    if (p < a.panel_end) sweep<F, 1>(a, p, row, end);
  }
}

}  // namespace

void linear(const LinearArgs& args) {
  if (args.rows == 0) return;
  const bool quantised = with_format(args.w->type, [&]<class F>(F) {
    if (args.rows < kSweepFrom)
      few_rows<F>(args);
    else
      many_rows<F>(args);
  });
  if (quantised) return;
  if (args.w->type == DType::kF32) float_linear<DType::kF32>(args);
  if (args.w->type == DType::kF16) float_linear<DType::kF16>(args);
  if (args.w->type == DType::kBF16) float_linear<DType::kBF16>(args);
}

}  // namespace kvasir::avx512
