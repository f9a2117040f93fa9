#pragma once

#include <cstdint>
#include <optional>

#include "perf/machine_spec.h"
#include "perf/model_shape.h"

namespace kvasir {

// What performance depends on beside the shape.
struct PerformanceOptions {
  uint64_t batch = 1;                        // [B] sequences that decode together
  uint64_t sequence = 1024;                  // [S] positions that each keeps
  std::optional<WeightFormat> weights = {};  // absent: as the shape's source stores them
  KvFormat kv = {};
  double bandwidth = 0;        // [W] bytes per second, > 0
  uint32_t compute_bits = 16;  // of the numbers that the machine multiplies: 8 for int8 kernels
};

// Decoding at the limit of memory bandwidth: each step reads the weights and every sequence's KV cache once
// and makes one token per sequence. Book, "Inference", "theoretical estimates for LLM latency and
// throughput".
struct PerformanceStats {
  uint64_t parameters = 0;     // matrices of the shape (plain_parameters() of a dense one)
  double parameter_bytes = 0;  // [P] all weights
  double kv_bytes_per_token = 0;
  double kv_bytes_per_sequence = 0;  // [C]
  double memory_bytes = 0;           // B C + P
  double read_bytes = 0;             // of a step: B C + step_weight_bytes() (P of a dense model)
  double latency_seconds = 0;  // read_bytes / W: a step, which is also the time between a sequence's tokens
  double throughput = 0;       // B / latency: tokens per second
};
// kInvalidArgument, naming the number: batch or sequence 0, bandwidth not positive.
Result<PerformanceStats> compute_transformer_performance_stats(const ModelShape& shape,
                                                               const PerformanceOptions& options);

// The largest B with B C + P <= memory: floor((memory - P) / C); 0 when the weights do not fit.
uint64_t largest_batch(double memory_bytes, double parameter_bytes, double kv_bytes_per_sequence);
// The longest S that `batch` sequences may have in memory, 0 when not even one position; at most `most`.
uint64_t longest_sequence(const ModelShape& shape, const KvFormat& kv, double memory_bytes,
                          double parameter_bytes, uint64_t batch, uint64_t most);

// The batch at which the matrices of a decode step take as long to compute as to read, KV left out:
// peak FLOP/s / bandwidth * bits / 16: 2 FLOPs per weight and row against bits / 8 bytes per weight. Book,
// "Inference": B_crit = ridge * (bytes per weight) / 2. Of a mixture E / A times that.
double critical_batch(const ModelShape& shape, const MachineSpec& machine, double weight_bits,
                      uint32_t compute_bits);

// The same with the KV cache, which grows with the batch as the computing does: the B of
// B f / peak = (P + B C) / bandwidth, f the FLOPs of one sequence's token (matrices and attention at S):
// P / bandwidth / (f / peak - C / bandwidth). Nothing when reading the KV cache alone takes longer than
// computing: then no batch does. For dense models.
std::optional<double> compute_bound_batch(const ModelShape& shape, const MachineSpec& machine,
                                          const PerformanceOptions& options);

// f above: FLOPs of one more token of one sequence of S positions (its own included), matrices, output head
// and attention together. 2 (P - V D) + 4 N H (sum over layers of visible positions) for a dense model with
// untied embeddings, whose embedding is looked up rather than multiplied.
double decode_flops(const ModelShape& shape, uint64_t sequence);

}  // namespace kvasir
