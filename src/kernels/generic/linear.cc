#include <cmath>
#include <cstring>

#include "kernels/isa/linear_functions.h"
#include "kernels/quant/packed_block.h"

// The reference that defines the bits of every linear layer (docs/numerics.md, rule 1).
namespace kvasir::scalar {
namespace {

using namespace quant;

// Rows whose accumulators fit the caller's scratch.
constexpr uint32_t kMaxRows = kLinearScratchBytes / (kPanelCols * sizeof(float));

// One block of a panel, decoded: codes by input then output, scales by group then output.
template <class F>
struct DecodedBlock {
  int16_t codes[kGroup][kPanelCols];
  ScaleMin scales[F::kGroups][kPanelCols];
};

template <class F>
void decode_block(const Chunk<F>& chunk, uint32_t b, DecodedBlock<F>& out) {
  const uint8_t* packed = chunk.codes(b);
  for (uint32_t i = 0; i < kQuads; ++i)
    for (uint32_t byte = 0; byte < kQuadBytes; ++byte)
      out.codes[4 * i + byte % 4][byte / 4] = code_value<F>(code_at<F>(packed, i, byte));
  for (uint32_t g = 0; g < F::kGroups; ++g)
    for (uint32_t c = 0; c < kPanelCols; ++c) out.scales[g][c] = scale_at<F>(chunk, b, g, c);
}

// start + sum of code * q over `width` inputs, for every output.
void integer_dots(const int16_t (*codes)[kPanelCols], const int8_t* q, uint32_t width, int32_t start,
                  int32_t* dots) {
  for (uint32_t c = 0; c < kPanelCols; ++c) dots[c] = start;
  for (uint32_t i = 0; i < width; ++i)
    for (uint32_t c = 0; c < kPanelCols; ++c) dots[c] += codes[i][c] * q[i];
}

// Formats with one scale per 32 inputs: s = wd * ad; acc = fma(dot, s, acc); then acc = fma(min, ds, acc).
template <class F>
requires(F::kGroups == 1) void accumulate(const DecodedBlock<F>& block, const QuantRows& x, size_t group,
                                          float* acc) {
  int32_t dots[kPanelCols];
  integer_dots(block.codes, x.q + group * kGroup, kGroup, x.nsum[group] * F::kZero, dots);
  for (uint32_t c = 0; c < kPanelCols; ++c) {
    const ScaleMin& w = block.scales[0][c];
    const float s = w.scale * x.d[group];
    acc[c] = std::fma(static_cast<float>(dots[c]), s, acc[c]);
    if constexpr (F::kHasMin) acc[c] = std::fma(w.min, x.ds[group], acc[c]);
  }
}

// Formats with a scale per 16 inputs: the two halves share the activation's scale, so they are joined first:
// t = dot0 * wd0; t = fma(dot1, wd1, t); with minimums t = fma(-min0, -sum0, t), t = fma(-min1, -sum1, t);
// acc = fma(t, ad, acc).
template <class F>
requires(F::kGroups == 2) void accumulate(const DecodedBlock<F>& block, const QuantRows& x, size_t group,
                                          float* acc) {
  int32_t dots[2][kPanelCols];
  const int32_t* nsum = x.nsum16 + 2 * group;
  for (uint32_t g = 0; g < 2; ++g)
    integer_dots(block.codes + 16 * g, x.q + group * kGroup + 16 * g, 16, nsum[g] * F::kZero, dots[g]);
  for (uint32_t c = 0; c < kPanelCols; ++c) {
    const ScaleMin w[2] = {block.scales[0][c], block.scales[1][c]};
    float t = static_cast<float>(dots[0][c]) * w[0].scale;
    t = std::fma(static_cast<float>(dots[1][c]), w[1].scale, t);
    if constexpr (F::kHasMin)
      for (uint32_t g = 0; g < 2; ++g) t = std::fma(-w[g].min, static_cast<float>(nsum[g]), t);
    acc[c] = std::fma(t, x.d[group], acc[c]);
  }
}

// Bias, then the residual, into the columns of panel `p` that exist.
void finish(const LinearArgs& a, uint32_t p, uint32_t row, const float* acc) {
  const uint32_t first = p * kPanelCols;
  const uint32_t columns = a.w->n - first < kPanelCols ? a.w->n - first : kPanelCols;
  float* out = a.out + row * a.ldo + first;
  for (uint32_t c = 0; c < columns; ++c) {
    const float y = a.bias != nullptr ? acc[c] + a.bias[first + c] : acc[c];
    out[c] = a.mode == LinearOutput::kAdd ? out[c] + y : y;
  }
}

template <class F>
void quant_panel(const LinearArgs& a, uint32_t p, uint32_t row_begin, uint32_t row_end) {
  const uint32_t k_blocks = a.w->k / kGroup;
  const auto* panel = reinterpret_cast<const uint8_t*>(a.w->panel(p));
  auto* acc = reinterpret_cast<float(*)[kPanelCols]>(a.scratch);
  std::memset(acc, 0, (row_end - row_begin) * sizeof *acc);
  for (uint32_t first = 0; first < k_blocks; first += kBlocksPerChunk) {
    const Chunk<F> chunk = chunk_at<F>(panel, k_blocks, first);
    for (uint32_t b = 0; b < chunk.blocks; ++b) {
      DecodedBlock<F> block;
      decode_block<F>(chunk, b, block);
      for (uint32_t r = row_begin; r < row_end; ++r)
        accumulate<F>(block, *a.x, size_t{r} * k_blocks + first + b, acc[r - row_begin]);
    }
  }
  for (uint32_t r = row_begin; r < row_end; ++r) finish(a, p, r, acc[r - row_begin]);
}

float weight_value(DType type, const std::byte* p) {
  float f = 0;
  dequantize(type, p, 1, &f);
  return f;
}

// Float weights: four partial sums over the inputs k mod 4, joined as (s0 + s1) + (s2 + s3).
void float_panel(const LinearArgs& a, uint32_t p) {
  const size_t width = dtype_info(a.w->type).block_bytes;
  for (uint32_t r = 0; r < a.rows; ++r) {
    const float* x = a.xf + size_t{r} * a.w->k;
    float sums[4][kPanelCols] = {};
    const std::byte* value = a.w->panel(p);
    for (uint32_t i = 0; i < a.w->k; ++i)
      for (uint32_t c = 0; c < kPanelCols; ++c, value += width)
        sums[i % 4][c] = std::fma(x[i], weight_value(a.w->type, value), sums[i % 4][c]);
    float acc[kPanelCols];
    for (uint32_t c = 0; c < kPanelCols; ++c) acc[c] = (sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]);
    finish(a, p, r, acc);
  }
}

}  // namespace

void linear(const LinearArgs& args) {
  for (uint32_t p = args.panel_begin; p < args.panel_end; ++p) {
    const bool quantised = with_format(args.w->type, [&]<class F>(F) {
      for (uint32_t r = 0; r < args.rows; r += kMaxRows)
        quant_panel<F>(args, p, r, args.rows - r < kMaxRows ? args.rows : r + kMaxRows);
    });
    if (!quantised) float_panel(args, p);
  }
}

}  // namespace kvasir::scalar
