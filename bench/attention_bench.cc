// Attention over paged KV, one thread, for the head shapes of the models we fetch and groups of eight: decode
// (one token at a context length; the KV of many layers, so that it comes from memory), prefill (512 tokens
// from position 0) and sixteen sequences that decode on one prefix of 2,048 tokens, with a call for all
// (cascade) and with a call for each (apart).
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/aligned_buffer.h"
#include "kernels/table.h"

namespace kvasir {
namespace {

struct Shape {
  const char* model;
  uint32_t heads, kv_heads, head_dim;
  KvType type = KvType::kF16;

  size_t token_bytes() const {  // of one layer
    return kv_heads * (2 * kv_element_bytes(type) * head_dim + kv_scale_bytes(type));
  }
};
constexpr Shape kShapes[] = {{"smollm2-135m", 9, 3, 64},
                             {"qwen2.5-0.5b", 14, 2, 64},
                             {"qwen2.5-1.5b", 12, 2, 128},
                             {"gemma-3-270m", 4, 1, 256},
                             {"group-of-8", 16, 2, 64}};
constexpr uint32_t kBlockSize = 32;

// Filled KV of `layers` layers of one sequence, blocks in random order, and queries for `tokens` tokens.
class Layers {
 public:
  Layers(const Shape& shape, uint32_t context, uint32_t tokens, uint32_t layers)
      : shape_(shape),
        plane_(kv_element_bytes(shape.type) * shape.kv_heads * kBlockSize * shape.head_dim),
        blocks_((context + kBlockSize - 1) / kBlockSize),
        memory_(layers * blocks_ * kBlockSize * shape.token_bytes()),
        scratch_(kAttnScratchBytes),
        q_(size_t{tokens} * shape.heads * shape.head_dim),
        out_(q_.size()) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& v : q_) v = normal(random);
    std::vector<uint32_t> ids(blocks_);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), random);
    for (const uint32_t id : ids) table_.push_back(BlockId{id});
    // Halves of +-[0.5, 1): ordinary numbers at a fraction of the cost of storing normal ones. As floats,
    // which int8 scales are, they are between 2^-17 and 1.
    for (uint16_t& h : memory_.as<uint16_t>()) h = static_cast<uint16_t>(0x3800 | (random() & 0x83ff));
  }

  // Tokens [first, first + tokens) in one layer: every KV head, as many rows per call as allowed.
  void run(const KernelTable& kernels, uint32_t layer, uint32_t first, uint32_t tokens) {
    const uint32_t group = shape_.heads / shape_.kv_heads;
    const uint32_t per_call = std::max(1u, kAttnMaxRows / group);
    for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
      for (uint32_t t = 0; t < tokens; t += per_call)
        call(kernels, layer, h, first, t, std::min(per_call, tokens - t));
    }
  }

  // The last token of `count` sequences whose blocks are all the same, so that it stands for any sequences
  // that share all but little: in as many calls as rows allow, or one each.
  void run_family(const KernelTable& kernels, uint32_t layer, uint32_t context, uint32_t count,
                  bool cascade) {
    const uint32_t group = shape_.heads / shape_.kv_heads;
    const uint32_t per_call = cascade ? std::min(count, kAttnMaxRows / group) : 1;
    for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
      for (uint32_t s = 0; s < count; s += per_call)
        family_call(kernels, layer, h, context - 1, s, std::min(per_call, count - s));
    }
  }

  size_t layer_bytes() const { return blocks_ * kBlockSize * shape_.token_bytes(); }

 private:
  // Rows of a call; token t's query and result are number `token` + t.
  struct Rows {
    const float* q[kAttnMaxRows];
    float* out[kAttnMaxRows];
    int32_t positions[kAttnMaxRows];
    uint32_t count = 0;
  };
  void add_token(Rows& rows, uint32_t token, uint32_t kv_head, uint32_t position) {
    const uint32_t group = shape_.heads / shape_.kv_heads;
    for (uint32_t g = 0; g < group; ++g, ++rows.count) {
      const size_t at = (size_t{token} * shape_.heads + kv_head * group + g) * shape_.head_dim;
      rows.q[rows.count] = q_.data() + at;
      rows.out[rows.count] = out_.data() + at;
      rows.positions[rows.count] = static_cast<int32_t>(position);
    }
  }
  AttentionArgs arguments(const Rows& rows, uint32_t layer, uint32_t kv_head) {
    AttentionArgs a;
    a.kv = {.base = memory_.data() + layer * layer_bytes(),
            .block_stride = kBlockSize * shape_.token_bytes(),
            .block_size = kBlockSize,
            .kv_heads = shape_.kv_heads,
            .head_dim = shape_.head_dim,
            .type = shape_.type,
            .v_offset = plane_,
            .scale_offset = 2 * plane_};
    a.kv_head = kv_head;
    a.rows = rows.count;
    a.q = rows.q;
    a.out = rows.out;
    a.positions = rows.positions;
    a.scale = 0.1f;
    a.scratch = scratch_.data();
    return a;
  }
  void call(const KernelTable& kernels, uint32_t layer, uint32_t kv_head, uint32_t first, uint32_t token,
            uint32_t tokens) {
    Rows rows;
    for (uint32_t t = token; t < token + tokens; ++t) add_token(rows, t, kv_head, first + t);
    AttentionArgs a = arguments(rows, layer, kv_head);
    const AttentionSequence sequence = {table_.data(), a.rows};
    a.sequences = &sequence;
    a.sequence_count = 1;
    kernels.attention(a);
  }
  void family_call(const KernelTable& kernels, uint32_t layer, uint32_t kv_head, uint32_t position,
                   uint32_t first, uint32_t count) {
    Rows rows;
    AttentionSequence sequences[kAttnMaxRows];
    for (uint32_t s = 0; s < count; ++s) {
      sequences[s] = {table_.data(), shape_.heads / shape_.kv_heads};
      add_token(rows, first + s, kv_head, position);
    }
    AttentionArgs a = arguments(rows, layer, kv_head);
    a.sequences = sequences;
    a.sequence_count = count;
    a.shared = count > 1 ? position / kAttnChunk * kAttnChunk : 0;
    kernels.attention(a);
  }

  Shape shape_;
  size_t plane_;
  size_t blocks_;
  AlignedBuffer memory_;
  AlignedBuffer scratch_;
  std::vector<float> q_;
  std::vector<float> out_;
  std::vector<BlockId> table_;
};

void report(benchmark::State& state, double flops, double bytes) {
  const auto runs = static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(flops * runs * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GB/s"] = benchmark::Counter(bytes * runs * 1e-9, benchmark::Counter::kIsRate);
}

void decode(benchmark::State& state, const Shape& shape, Isa isa, uint32_t context) {
  constexpr size_t kMemory = size_t{96} << 20;  // several times a last-level cache
  const size_t layer = context * shape.token_bytes();
  const auto layers = static_cast<uint32_t>(kMemory / layer);
  Layers kv(shape, context, 1, layers);
  uint32_t next = 0;
  for (auto _ : state) {
    kv.run(kernel_table(isa), next, context - 1, 1);
    next = (next + 1) % layers;
  }
  report(state, 4.0 * context * shape.heads * shape.head_dim, static_cast<double>(layer));
}

void family(benchmark::State& state, const Shape& shape, Isa isa, bool cascade) {
  constexpr uint32_t kSequences = 16;
  constexpr uint32_t kContext = 2048 + 16;
  constexpr size_t kMemory = size_t{96} << 20;
  const size_t layer = kContext * shape.token_bytes();
  const auto layers = static_cast<uint32_t>(kMemory / layer);
  Layers kv(shape, kContext, kSequences, layers);
  uint32_t next = 0;
  for (auto _ : state) {
    kv.run_family(kernel_table(isa), next, kContext, kSequences, cascade);
    next = (next + 1) % layers;
  }
  report(state, 4.0 * kSequences * kContext * shape.heads * shape.head_dim, static_cast<double>(layer));
}

void prefill(benchmark::State& state, const Shape& shape, Isa isa, uint32_t tokens) {
  Layers kv(shape, tokens, tokens, 1);
  for (auto _ : state) kv.run(kernel_table(isa), 0, 0, tokens);
  const double pairs = 0.5 * tokens * (tokens + 1);
  report(state, 4.0 * pairs * shape.heads * shape.head_dim, static_cast<double>(kv.layer_bytes()));
}

void add_all(const Shape& shape, Isa isa) {
  const std::string suffix = "/" + std::string(shape.model) + "/" + std::string(kv_type_name(shape.type)) +
                             "/" + std::string(isa_name(isa));
  const auto add = [&](const std::string& name, auto function, auto argument) {
    benchmark::RegisterBenchmark((name + suffix).c_str(), function, shape, isa, argument)
        ->Unit(benchmark::kMicrosecond);
  };
  for (const uint32_t context : {512u, 4096u}) add("decode" + std::to_string(context), decode, context);
  add("cascade2048x16", family, true);
  add("apart2048x16", family, false);
  add("prefill512", prefill, 512u);
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  using namespace kvasir;
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAvx2, Isa::kScalar}) {
    if (!isa_supported(isa)) continue;
    for (Shape shape : kShapes) {
      for (const KvType type : {KvType::kF16, KvType::kInt8}) {
        shape.type = type;
        add_all(shape, isa);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
