#include "perf/step_cost.h"

#include <algorithm>

#include "kvcache/kv_layout.h"
#include "perf/parameter_formulas.h"

namespace kvasir {
namespace {

// The sum of 1 .. n.
uint64_t triangle(uint64_t n) {
  return n * (n + 1) / 2;
}

// Bytes of the experts that rows are expected to choose.
uint64_t chosen_bytes(const WeightSizes& weights, uint64_t rows) {
  double bytes = 0;
  for (const WeightSizes::Matrices& m : weights.matrices)
    bytes += static_cast<double>(m.count * m.bytes) *
             expected_experts(m.experts, m.used, static_cast<double>(rows));
  return static_cast<uint64_t>(bytes + 0.5);
}

}  // namespace

uint64_t seen_positions(const StepRows& s, uint32_t window) {
  return uint64_t{s.context} + s.rows - first_visible(window, s.context);
}

uint64_t visible_pairs(const StepRows& s, uint32_t window) {
  const uint64_t end = uint64_t{s.context} + s.rows;
  if (window == 0) return triangle(end) - triangle(s.context);
  const uint64_t growing_end = std::clamp<uint64_t>(window, s.context, end);
  return triangle(growing_end) - triangle(s.context) + (end - growing_end) * window;
}

StepCost& StepCost::operator+=(const StepCost& other) {
  weight_bytes += other.weight_bytes;
  kv_read_bytes += other.kv_read_bytes;
  kv_write_bytes += other.kv_write_bytes;
  linear_macs += other.linear_macs;
  attention_macs += other.attention_macs;
  return *this;
}

StepCost step_cost(const ModelConfig& config, const WeightSizes& weights, std::span<const StepRows> sequences,
                   uint32_t logit_rows, KvType kv_type) {
  const uint64_t planes = config.mla ? 1 : 2;
  const uint64_t token_bytes = uint64_t{config.kv_dim()} * planes * kv_element_bytes(kv_type) +
                               config.kv_heads * kv_scale_bytes(kv_type);  // of one layer
  const uint64_t pair_macs = uint64_t{config.heads} * (config.head_dim + config.value_dim());
  StepCost cost;
  uint64_t rows = 0, last_attention = 0;
  for (const StepRows& s : sequences) {
    if (s.rows == 0) continue;
    rows += s.rows;
    for (size_t l = 0; l < config.windows.size(); ++l) {
      const uint32_t window = config.windows[l];
      const uint32_t shared = first_visible(window, s.context) == 0 ? s.shared : 0;
      cost.kv_read_bytes += (seen_positions(s, window) - shared) * token_bytes;
      const uint64_t macs = visible_pairs(s, window) * pair_macs;
      (l + 1 < config.windows.size() ? cost.attention_macs : last_attention) += macs;
    }
  }
  cost.kv_write_bytes = rows * config.windows.size() * token_bytes;
  if (rows > 0)
    cost.weight_bytes =
        weights.layer_bytes + chosen_bytes(weights, rows) + rows * weights.embedding_row_bytes;
  if (logit_rows > 0) cost.weight_bytes += weights.head_bytes;
  const uint64_t read = std::min<uint64_t>(rows, logit_rows);
  if (rows > 0) cost.attention_macs += last_attention * read / rows;
  cost.linear_macs =
      rows * weights.layer_macs - (rows - read) * weights.last_macs + logit_rows * weights.head_macs;
  return cost;
}

StepFloor step_floor(const StepCost& cost, const HardwareProfile& machine, uint32_t threads, uint64_t steps) {
  const auto bytes = static_cast<double>(cost.read_bytes());
  StepFloor floor;
  floor.read_seconds = bytes / machine.read_rate(cost.read_bytes() / std::max<uint64_t>(1, steps), threads);
  floor.compute_seconds = static_cast<double>(cost.linear_macs) / machine.int8_rate(threads) +
                          static_cast<double>(cost.attention_macs) / machine.f32_rate(threads);
  return floor;
}

}  // namespace kvasir
