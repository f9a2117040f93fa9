#include "kernels/isa/avx512/linear_float.h"
#include "kernels/isa/avx512/linear_tile.h"
#include "kernels/isa/linear_functions.h"

namespace kvasir::avx512 {
namespace {

// From this many rows on, unpacking to memory and sweeping tiles beats unpacking to registers for every eight
// rows. Never a matter of bits.
template <class F>
constexpr uint32_t kSweepFrom = F::kHasMin ? 48 : 24;
constexpr uint32_t kMostRows = 8;

template <class F>
void few_rows(const LinearArgs& a, uint32_t p, uint32_t row, uint32_t rows) {
  switch (rows) {
    case 1:
      return rows_of_panels<F, 1>(a, p, row);
    case 2:
      return rows_of_panels<F, 2>(a, p, row);
    case 3:
      return rows_of_panels<F, 3>(a, p, row);
    case 4:
      return rows_of_panels<F, 4>(a, p, row);
    case 5:
      return rows_of_panels<F, 5>(a, p, row);
    case 6:
      return rows_of_panels<F, 6>(a, p, row);
    case 7:
      return rows_of_panels<F, 7>(a, p, row);
    default:
      return rows_of_panels<F, 8>(a, p, row);
  }
}

// One row. Formats that are dear to unpack go through two panels at once where a panel is longer than the L1
// cache: there the activations come from L2 again for every panel.
constexpr size_t kLongPanel = 48 << 10;

template <class F>
void one_row(const LinearArgs& a) {
  constexpr bool kDear = F::kTwoLevels || F::kBits == 5;
  uint32_t p = a.panel_begin;
  if (kDear && a.w->panel_bytes >= kLongPanel)
    for (; p + 2 <= a.panel_end; p += 2) rows_of_panels<F, 1, kDear ? 2 : 1>(a, p, 0);
  for (; p < a.panel_end; ++p) rows_of_panels<F, 1>(a, p, 0);
}

// Rows shared out evenly over as few passes as may be; all passes over a panel before the next.
template <class F>
void row_passes(const LinearArgs& a) {
  const uint32_t passes = (a.rows + kMostRows - 1) / kMostRows;
  for (uint32_t p = a.panel_begin; p < a.panel_end; ++p)
    for (uint32_t i = 0; i < passes; ++i)
      few_rows<F>(a, p, a.rows * i / passes, a.rows * (i + 1) / passes - a.rows * i / passes);
}

// Panels in groups of equal size, even so that they pair up.
template <class F>
void sweeps(const LinearArgs& a) {
  const uint32_t panels = a.panel_end - a.panel_begin;
  const uint32_t groups = (panels + kGroupPanels - 1) / kGroupPanels;
  const uint32_t passes = (a.rows + kMaxSweepRows - 1) / kMaxSweepRows;
  for (uint32_t i = 0; i < passes; ++i) {
    const auto row = static_cast<uint32_t>(uint64_t{a.rows} * i / passes);
    const auto end = static_cast<uint32_t>(uint64_t{a.rows} * (i + 1) / passes);
    uint32_t done = 0;
    for (uint32_t g = 1; g <= groups; ++g) {
      const uint32_t to = g == groups ? panels : static_cast<uint32_t>(uint64_t{panels} * g / groups) / 2 * 2;
      sweep<F>(a, a.panel_begin + done, to - done, row, end);
      done = to;
    }
  }
}

}  // namespace

void linear(const LinearArgs& args) {
  if (args.rows == 0) return;
  const bool quantised = with_format(args.w->type, [&]<class F>(F) {
    if (args.rows == 1)
      one_row<F>(args);
    else if (args.rows < kSweepFrom<F>)
      row_passes<F>(args);
    else
      sweeps<F>(args);
  });
  if (quantised) return;
  if (args.w->type == DType::kF32) float_linear<DType::kF32>(args);
  if (args.w->type == DType::kF16) float_linear<DType::kF16>(args);
  if (args.w->type == DType::kBF16) float_linear<DType::kBF16>(args);
}

}  // namespace kvasir::avx512
