#pragma once

#include "perf/perf_model.h"

// A model and a machine whose steps can be timed by hand; for tests.
namespace kvasir {

inline constexpr double kMicro = 1e-6;

// One layer of 32 values with one query head per KV head; two matrices of 64 x 32 weights, a head of 160
// x 32.
inline ModelConfig small_config() {
  ModelConfig c;
  c.hidden_dim = 32;
  c.ffn_dim = 64;
  c.layers = 1;
  c.heads = 2;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.rope_dim = 16;
  c.windows = {0};
  return c;
}

inline WeightSizes small_weights() {
  WeightSizes w;
  w.layer_bytes = 8192;
  w.head_bytes = 10'240;
  w.matrices = {{WeightSizes::Phase::kGateUp, DType::kQ8_0, 64, 32, 2, 4096}};
  w.head_type = w.embedding_type = DType::kQ8_0;
  w.head_n = 160;
  w.head_k = 32;
  return w;
}

// Everything comes from cache; a weight value takes 1 ns and as much again per row, a position 1 us and a
// tenth of it per query row, a call 10 us. Row-wise work takes nothing.
inline HardwareProfile small_machine(uint32_t threads = 2) {
  HardwareProfile m;
  m.threads = threads;
  m.clock_hz = 3e9;
  m.int8_macs = {1e11, 1e11 * threads};
  m.f32_macs = {1e10, 1e10 * threads};
  m.reads = {{1 << 20, {1e15, 1e15}}};
  KernelRates r;
  r.linear_rows = {1, 2};
  r.attention_rows = {1, 2};
  r.linear = {{DType::kQ8_0, 0, {2e-9, 3e-9}, {2e-9, 3e-9}}};
  r.attention = {{KvType::kF16,
                  16,
                  {10 * kMicro, 10 * kMicro},
                  {0, 0},
                  {1.1 * kMicro, 1.2 * kMicro},
                  {1.1 * kMicro, 1.2 * kMicro}}};
  m.kernels = r;
  return m;
}

// Eight experts of 64 x 32 in a layer, of which a row uses two.
inline WeightSizes weights_with_experts() {
  WeightSizes w = small_weights();
  w.matrices.push_back({WeightSizes::Phase::kDown, DType::kQ8_0, 64, 32, 1, 2048, 8, 2});
  return w;
}

inline PerfModel small_model(const ModelConfig& config = small_config(), uint32_t threads = 2) {
  return PerfModel(config, small_weights(), small_machine(threads),
                   {.threads = threads, .kv_type = KvType::kF16, .max_rows = 64, .max_logit_rows = 16});
}

}  // namespace kvasir
