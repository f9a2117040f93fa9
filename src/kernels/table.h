#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/kv_type.h"
#include "base/result.h"
#include "kernels/matrix.h"

namespace kvasir {

// Instruction sets, worst first. Each is a complete KernelTable whose results equal the scalar one's to the
// bit.
enum class Isa : uint8_t { kScalar, kNeonDotprod, kAvx2, kAvxVnni, kAvx512Vnni, kAmxInt8 };

std::span<const Isa> all_isas();               // those of other processor families too
std::string_view isa_name(Isa isa);            // "scalar", "neon-dotprod", "avx2", ...
std::string isa_names();                       // all of them, separated by commas
Result<Isa> parse_isa(std::string_view name);  // error lists the names
bool isa_supported(Isa isa);                   // by this processor and operating system
Isa best_isa();                                // the last of all_isas() that is supported

// What the linear kernel does with its results.
enum class LinearOutput : uint8_t {
  kStore,  // out[m][n] = x . w[n]
  kAdd,    // out[m][n] += x . w[n]   (residual; one float addition after the whole reduction)
};

// One weight product: out[m][n] (+)= dot(x[m], w[n]) (+ bias[n]) for m < rows and every n of panels [begin,
// end). Quantised formats read `x`; F32, F16 and BF16 weights read `xf`. The caller fills both where it
// cannot know.
struct LinearArgs {
  const PackedMatrix* w = nullptr;
  const QuantRows* x = nullptr;
  const float* xf = nullptr;  // [rows][k]
  uint32_t rows = 0;
  uint32_t panel_begin = 0, panel_end = 0;
  float* out = nullptr;  // [rows][ldo]; columns panel_begin*16 .. min(panel_end*16, n)
  size_t ldo = 0;
  const float* bias = nullptr;  // [n] or null; added once after the reduction
  LinearOutput mode = LinearOutput::kStore;
  std::byte* scratch = nullptr;  // per thread, kLinearScratchBytes, 64-byte aligned
};
inline constexpr size_t kLinearScratchBytes = size_t{1} << 20;

// Geometry of one layer's KV in the pool, in bytes. For a token slot t of block b and KV head h:
//   K[b][h][t/16][dim][t%16]  (tiles of 16 tokens, transposed: scores need no horizontal sum)
//   V[b][h][t][dim]
//   int8 only, f32: K's scales [b][h][t], right after them V's [b][h][t]
// Latent rows (multi-head latent attention, arXiv 2405.04434) have one KV head and one plane:
//   row[b][t][dim]  the latent, then the rotated key: as K all of it, as V the latent alone
//   int8 only, f32: the latents' scales [b][t], right after them the rotated keys' [b][t]
struct KvPlanes {
  std::byte* base = nullptr;  // of this layer in block 0
  size_t block_stride = 0;    // from a block to the next, for this layer
  uint32_t block_size = 0;    // tokens per block, a multiple of 16
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;  // of K, and of V unless rows are latent
  uint32_t latent = 0;    // values of a latent; 0: K and V planes
  KvType type = KvType::kF16;
  size_t v_offset = 0;      // from a layer's K plane to its V plane
  size_t scale_offset = 0;  // from a layer's K plane to its scales, multiples of 64

  uint32_t value_dim() const { return latent != 0 ? latent : head_dim; }
};

// Attention of some query rows under one KV head over their whole visible context. Rows are (token, query
// head of the group) pairs of one or more sequences, those of a sequence side by side. Online softmax over
// chunks of kAttnChunk positions counted from 0, partial results of each kAttnSplit positions merged in
// ascending order (docs/numerics.md, rule 4). Visible to position p: max(0, p - window + 1) .. p (window 0:
// everything).
inline constexpr uint32_t kAttnChunk = 64;
inline constexpr uint32_t kAttnSplit = 1024;
inline constexpr uint32_t kAttnMaxRows = 96;
inline constexpr uint32_t kAttnMaxHeadDim = 256;  // head_dim: any multiple of 16 up to it
// Of latent rows: a call takes rows by sixteens, each sequence's rounded up; latent and rotated key are
// multiples of 16 up to these.
inline constexpr uint32_t kLatentLanes = 16;
inline constexpr uint32_t kLatentMaxRows = 128;
inline constexpr uint32_t kMaxLatent = 512;
inline constexpr uint32_t kMaxRotatedKey = 128;

// A sequence of a call: its next `rows` rows. Position p lives in blocks[p / block_size * block_stride].
struct AttentionSequence {
  const BlockId* blocks = nullptr;
  uint32_t rows = 0;
};

struct AttentionArgs {
  KvPlanes kv;
  uint32_t kv_head = 0;
  const AttentionSequence* sequences = nullptr;
  uint32_t sequence_count = 0;
  uint32_t block_stride = 1;
  // Positions below it lie in the same blocks for every sequence and every row sees all of them: they are
  // read once for all rows. A multiple of kAttnChunk.
  uint32_t shared = 0;
  uint32_t rows = 0;                   // of all sequences, <= kAttnMaxRows (kLatentMaxRows)
  const float* const* q = nullptr;     // [rows] -> head_dim floats, after RoPE
  float* const* out = nullptr;         // [rows] -> value_dim floats
  const int32_t* positions = nullptr;  // [rows], not descending within a sequence
  uint32_t window = 0;
  float scale = 1.0f;    // applied to q before the product
  float softcap = 0.0f;  // 0: none; else s = cap * tanh(s / cap)
  // [rows] or null: one more score of each row, which no position has and whose V is zero. It joins as a
  // partial result of its own behind all others; calls for partial results leave it to merge_attention. Null
  // where rows are latent.
  const float* sinks = nullptr;
  // A call for some splits only: partials[r] takes row r's partial result of split split_begin, the results
  // of later splits follow it; nothing is written for a split that the row does not see, and `out` is not
  // used. merge_attention makes the result from them.
  float* const* partials = nullptr;  // [rows] -> [split_end - split_begin][attention_partial_floats()]
  uint32_t split_begin = 0;
  uint32_t split_end = UINT32_MAX;
  std::byte* scratch = nullptr;  // per thread, kAttnScratchBytes, 64-byte aligned
};
inline constexpr size_t kAttnScratchBytes = size_t{1} << 20;

// A partial result: the largest score, the sum of exp(score - largest), and from kAttnPartialHead on V
// weighted by those, value_dim floats.
inline constexpr uint32_t kAttnPartialHead = 16;
constexpr uint32_t attention_partial_floats(uint32_t value_dim) {
  return kAttnPartialHead + value_dim;
}

struct LogitScan {
  float largest;
  bool unsound;
};

enum class Activation : uint8_t {
  kSilu,
  kGeluTanh,
  kRelu,
  kClampedSwiglu,  // gpt-oss: act(min(g, 7)) * (clamp(u, -7, 7) + 1), where act(x) = x * sigmoid(1.702 x)
};
enum class RopeKind : uint8_t {
  kNorm,  // rotates pairs (2i, 2i+1)
  kNeox,  // rotates pairs (i, i + n_rot/2)
};

// All arithmetic of the engine, for one instruction set. Every function is thread-safe and allocates nothing;
// shapes are in the comments; buffers are 64-byte aligned unless said otherwise.
struct KernelTable {
  Isa isa;

  // x[rows][ldx], k values each (a multiple of 32) -> the first k columns of rows first_row.. of out, whose
  // own width out.k may be larger: callers quantise a range of columns by advancing the pointers of out.
  void (*quantize_rows)(const float* x, size_t ldx, uint32_t rows, uint32_t k, const QuantRows& out,
                        uint32_t first_row);
  void (*linear)(const LinearArgs& args);

  // y[i] = x[i] / sqrt(mean(x^2) + eps) * w[i]; the sum of squares in sixteen strided partial sums and one
  // fixed tree. y may be x.
  void (*rms_norm)(const float* x, const float* w, uint32_t n, float eps, float* y);
  // y[i] = (x[i] - mean) / sqrt(variance + eps) * w[i] + b[i], where the variance is the mean of (x[i] -
  // mean)^2; both sums in sixteen strided partial sums and one fixed tree. b may be null, y may be x.
  void (*layer_norm)(const float* x, const float* w, const float* b, uint32_t n, float eps, float* y);

  // y[i] = act(gate[i]) * up[i], or what the activation says
  void (*gated_act)(Activation act, const float* gate, const float* up, uint32_t n, float* y);

  // Rotates the first n_rot of a head's values in place; cos and sin hold n_rot/2 factors.
  void (*rope)(RopeKind kind, float* head, uint32_t n_rot, const float* cos, const float* sin);

  // y[i] += x[i];  y[i] *= s
  void (*add)(const float* x, uint32_t n, float* y);
  void (*scale)(float s, uint32_t n, float* y);

  // Writes one token's K and V of one KV head (head_dim floats each) into its slot. f16: rounded. int8: d =
  // max|x| / 127 and round_to_even(x * (1 / d)); where d is zero or subnormal d and all values are 0; where a
  // value is infinite or NaN d is NaN and all values are 0. A latent row is k, latent and rotated key, each
  // with a scale of its own; v is not read.
  void (*store_kv)(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
                   const float* v);
  void (*attention)(const AttentionArgs& args);
  // The result of one row from its `count` >= 1 neighbouring partial results, merged in ascending order, and
  // its sink (-infinity: none): the bits that one call for all splits gives.
  void (*merge_attention)(const float* partials, uint32_t count, uint32_t value_dim, float sink, float* out);

  // Whether any of n logits is NaN or +infinity, and the largest that is not NaN (-infinity if there is
  // none).
  LogitScan (*scan_logits)(const float* x, uint32_t n);
  // Over one row of n logits: the largest value's index (ties to the lowest; NaN never wins); and
  // log(sum(exp(x - max))) + max in a fixed order.
  uint32_t (*argmax)(const float* x, uint32_t n);
  float (*log_sum_exp)(const float* x, uint32_t n);

  // y[i] = cap * tanh(y[i] / cap)
  void (*softcap)(float cap, uint32_t n, float* y);
};

// The table of an instruction set. kScalar defines the bits. An unsupported set is a program fault: ask
// isa_supported first.
const KernelTable& kernel_table(Isa isa);

// Which kernel a format's linear layers use under an ISA, for `kvasir inspect`.
std::string_view linear_kernel_name(Isa isa, DType type);

// --- packing (kernels/pack.cc) ---

// Whether linear() can run this format with K inputs (quantised formats need K to be a multiple of their
// block).
bool can_pack(DType type, uint32_t k);
size_t packed_panel_bytes(DType type, uint32_t k);
// Packs panels [begin, end) of a GGUF matrix {k, n} into dst (panel `begin` at dst + begin * panel_bytes).
void pack_panels(DType type, const std::byte* src, uint32_t n, uint32_t k, uint32_t begin, uint32_t end,
                 std::byte* dst);
// Column `n` of a packed matrix as k floats: the exact GGUF values. For embedding look-ups in a tied output
// head.
void unpack_column(const PackedMatrix& m, uint32_t column, float* dst);

}  // namespace kvasir
