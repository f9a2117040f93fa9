// Multi-head latent attention of one decoded token at 8,192 positions, one thread, in the shape of
// DeepSeek-V2-Lite (16 heads, latent 512, rotated key 64, heads of 128 + 64 and values of 128): absorbed,
// over cache rows; and, to compare, over a cache of K and V of every head, and with those made anew from the
// cache rows. The KV of several layers, so that it comes from memory. Absorbing the query and the result,
// which the latter two do not need, is timed with the first. Parts of the f32 peak and of the read bandwidth
// measured in the same run.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/aligned_buffer.h"
#include "kernels/table.h"
#include "machine_peak.h"

namespace kvasir {
namespace {

constexpr uint32_t kHeads = 16, kLatent = 512, kRotated = 64, kPlain = 128, kValue = 128;
constexpr uint32_t kContext = 8192, kBlockSize = 32;
constexpr size_t kMemory = size_t{160} << 20;  // several times a last-level cache

// Memory of ordinary halves, +-[0.5, 1); as floats, which int8 scales are, they are between 2^-17 and 1.
AlignedBuffer ordinary(size_t bytes) {
  AlignedBuffer memory(bytes);
  std::mt19937 random(1);
  for (uint16_t& h : memory.as<uint16_t>()) h = static_cast<uint16_t>(0x3800 | (random() & 0x83ff));
  return memory;
}

// The cache of some layers of one sequence, and one token's queries over it.
class Cache {
 public:
  // `latent` 0: K and V of kv_heads heads.
  Cache(uint32_t kv_heads, uint32_t head_dim, uint32_t latent, KvType type)
      : kv_heads_(kv_heads), head_dim_(head_dim), latent_(latent), type_(type) {
    plane_ = kv_element_bytes(type) * kv_heads * head_dim * kBlockSize;
    block_ = (latent == 0 ? 2 : 1) * plane_ + kv_scale_bytes(type) * kv_heads * kBlockSize;
    layers_ = static_cast<uint32_t>(kMemory / layer_bytes());
    memory_ = ordinary(layers_ * layer_bytes());
    values_.assign(size_t{2} * kHeads * head_dim, 0.125f);
    std::vector<uint32_t> ids(kContext / kBlockSize);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(2));
    for (const uint32_t id : ids) table_.push_back(BlockId{id});
  }

  // The last token's attention in the next layer, all heads.
  void decode(const KernelTable& kernels) {
    const uint32_t group = kHeads / kv_heads_;
    for (uint32_t h = 0; h < kv_heads_; ++h) {
      const float* q[kHeads];
      float* out[kHeads];
      int32_t positions[kHeads];
      for (uint32_t g = 0; g < group; ++g) {
        q[g] = values_.data() + size_t{h * group + g} * head_dim_;
        out[g] = values_.data() + size_t{kHeads + h * group + g} * head_dim_;
        positions[g] = kContext - 1;
      }
      const AttentionSequence sequence{table_.data(), group};
      AttentionArgs a;
      a.kv = {.base = memory_.data() + next_ * layer_bytes(),
              .block_stride = block_,
              .block_size = kBlockSize,
              .kv_heads = kv_heads_,
              .head_dim = head_dim_,
              .latent = latent_,
              .type = type_,
              .v_offset = latent_ == 0 ? plane_ : 0,
              .scale_offset = (latent_ == 0 ? 2 : 1) * plane_};
      a.kv_head = h;
      a.sequences = &sequence;
      a.sequence_count = 1;
      a.rows = group;
      a.q = q;
      a.out = out;
      a.positions = positions;
      a.scale = 0.1f;
      a.scratch = scratch_.data();
      kernels.attention(a);
    }
    next_ = (next_ + 1) % layers_;
  }

  size_t layer_bytes() const { return block_ * (kContext / kBlockSize); }
  const std::byte* memory() const { return memory_.data(); }

 private:
  uint32_t kv_heads_, head_dim_, latent_;
  KvType type_;
  size_t plane_ = 0, block_ = 0;
  uint32_t layers_ = 0, next_ = 0;
  AlignedBuffer memory_;
  AlignedBuffer scratch_{kAttnScratchBytes};
  std::vector<float> values_;
  std::vector<BlockId> table_;
};

// `n` outputs of `k` inputs in Q8_0, and as many rows of inputs as are asked for.
class Product {
 public:
  Product(uint32_t n, uint32_t k, uint32_t rows)
      : rows_(rows),
        weights_(ordinary(packed_panel_bytes(DType::kQ8_0, k) * (n / kPanelCols))),
        quantised_(quant_rows_bytes(rows, k)),
        inputs_(size_t{rows} * k, 0.5f),
        outputs_(size_t{rows} * n) {
    w_ = {.type = DType::kQ8_0, .n = n, .k = k, .panel_bytes = packed_panel_bytes(DType::kQ8_0, k)};
    w_.data = weights_.data();
    x_ = carve_quant_rows(quantised_.data(), rows, k);
  }
  void run(const KernelTable& kernels) {
    kernels.quantize_rows(inputs_.data(), w_.k, rows_, w_.k, x_, 0);
    kernels.linear({.w = &w_,
                    .x = &x_,
                    .rows = rows_,
                    .panel_begin = 0,
                    .panel_end = w_.panels(),
                    .out = outputs_.data(),
                    .ldo = w_.n,
                    .scratch = scratch_.data()});
  }

 private:
  uint32_t rows_;
  AlignedBuffer weights_, quantised_;
  AlignedBuffer scratch_{kLinearScratchBytes};
  std::vector<float> inputs_, outputs_;
  PackedMatrix w_;
  QuantRows x_;
};

void report(benchmark::State& state, Isa isa, double best, double macs, double bytes,
            const std::byte* memory) {
  const double peak = bench::f32_peak(isa);
  const double bandwidth = bench::read_bandwidth(isa, memory, kMemory / 2);
  state.counters["ms"] = best * 1e3;
  state.counters["GMAC/s"] = macs / best * 1e-9;
  state.counters["of_peak"] = macs / best / peak;
  state.counters["GB/s"] = bytes / best * 1e-9;
  state.counters["of_bandwidth"] = bytes / best / bandwidth;
}

// The least CPU time of the iterations.
template <class Function>
double time_best(benchmark::State& state, Function&& run) {
  run();
  double best = 1e9;
  for (auto _ : state) {
    const double begin = bench::thread_seconds();
    run();
    best = std::min(best, bench::thread_seconds() - begin);
  }
  return best;
}

void absorbed(benchmark::State& state, Isa isa, KvType type) {
  const KernelTable& kernels = kernel_table(isa);
  Cache cache(1, kLatent + kRotated, kLatent, type);
  std::vector<Product> in, out;
  for (uint32_t h = 0; h < kHeads; ++h) in.emplace_back(kLatent, kPlain, 1);
  for (uint32_t h = 0; h < kHeads; ++h) out.emplace_back(kValue, kLatent, 1);
  const double best = time_best(state, [&] {
    for (Product& p : in) p.run(kernels);
    cache.decode(kernels);
    for (Product& p : out) p.run(kernels);
  });
  const double macs = double{kContext} * kHeads * (2 * kLatent + kRotated);
  report(state, isa, best, macs, static_cast<double>(cache.layer_bytes()), cache.memory());
}

// K of 192 and V of 128 values of each head, as so many bytes and multiply-adds in heads of 160.
void decompressed(benchmark::State& state, Isa isa, KvType type) {
  Cache cache(kHeads, (kPlain + kRotated + kValue) / 2, 0, type);
  const double best = time_best(state, [&] { cache.decode(kernel_table(isa)); });
  const double macs = double{kContext} * kHeads * (kPlain + kRotated + kValue);
  report(state, isa, best, macs, static_cast<double>(cache.layer_bytes()), cache.memory());
}

// A chunk of 256 rows' keys and values at a time.
void materialised(benchmark::State& state, Isa isa, KvType type) {
  constexpr uint32_t kRows = 256;
  const KernelTable& kernels = kernel_table(isa);
  Cache cache(kHeads, (kPlain + kRotated + kValue) / 2, 0, type);
  Product product(kHeads * (kPlain + kValue), kLatent, kRows);
  const double best = time_best(state, [&] {
    for (uint32_t r = 0; r < kContext; r += kRows) product.run(kernels);
    cache.decode(kernels);
  });
  const double macs = double{kContext} * kHeads * (kPlain + kRotated + kValue + kLatent * (kPlain + kValue));
  report(state, isa, best, macs, static_cast<double>(cache.layer_bytes()), cache.memory());
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  using namespace kvasir;
  for (const Isa isa : all_isas()) {
    if (!isa_supported(isa) || isa == Isa::kScalar) continue;
    for (const KvType type : {KvType::kF16, KvType::kInt8}) {
      const std::string suffix = "8192/" + std::string(kv_type_name(type)) + "/" + std::string(isa_name(isa));
      const auto add = [&](const char* name, auto function) {
        benchmark::RegisterBenchmark((name + suffix).c_str(), function, isa, type)
            ->Unit(benchmark::kMillisecond);
      };
      add("absorbed", absorbed);
      add("decompressed", decompressed);
      add("materialised", materialised);
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
