#include "perf/performance_formulas.h"

#include <fmt/format.h>

#include <cmath>

#include "perf/kv_formulas.h"
#include "perf/parameter_formulas.h"
#include "perf/work_formulas.h"

namespace kvasir {
namespace {

const WeightFormat* format_of(const PerformanceOptions& options) {
  return options.weights ? &*options.weights : nullptr;
}

}  // namespace

Result<PerformanceStats> compute_transformer_performance_stats(const ModelShape& shape,
                                                               const PerformanceOptions& options) {
  if (options.batch == 0) return invalid_argument("the batch is 0: at least one sequence must decode");
  if (options.sequence == 0) return invalid_argument("the sequence length is 0: it must be 1 or more");
  if (!(options.bandwidth > 0) || !std::isfinite(options.bandwidth))
    return invalid_argument(
        fmt::format("the bandwidth is {} bytes/s: it must be positive", options.bandwidth));
  const auto batch = static_cast<double>(options.batch);
  PerformanceStats stats;
  stats.parameters = count_parameters(shape).matrices();
  stats.parameter_bytes = parameter_bytes(shape, format_of(options));
  stats.kv_bytes_per_token = kv_bytes_per_token(shape, options.kv);
  stats.kv_bytes_per_sequence = kv_bytes_per_sequence(shape, options.kv, options.sequence);
  stats.memory_bytes = batch * stats.kv_bytes_per_sequence + stats.parameter_bytes;
  stats.read_bytes =
      batch * stats.kv_bytes_per_sequence + step_weight_bytes(shape, format_of(options), batch);
  stats.latency_seconds = stats.read_bytes / options.bandwidth;
  stats.throughput = batch / stats.latency_seconds;
  return stats;
}

uint64_t largest_batch(double memory_bytes, double parameter_bytes, double kv_bytes_per_sequence) {
  if (!(memory_bytes > parameter_bytes) || !(kv_bytes_per_sequence > 0)) return 0;
  return static_cast<uint64_t>((memory_bytes - parameter_bytes) / kv_bytes_per_sequence);
}

uint64_t longest_sequence(const ModelShape& shape, const KvFormat& kv, double memory_bytes,
                          double parameter_bytes, uint64_t batch, uint64_t most) {
  const double room = (memory_bytes - parameter_bytes) / static_cast<double>(batch);
  uint64_t fits = 0, above = most + 1;  // kv_bytes_per_sequence never falls
  while (above - fits > 1) {
    const uint64_t middle = fits + (above - fits) / 2;
    (kv_bytes_per_sequence(shape, kv, middle) <= room ? fits : above) = middle;
  }
  return fits;
}

double critical_batch(const ModelShape& shape, const MachineSpec& machine, double weight_bits,
                      uint32_t compute_bits) {
  const double dense = ridge_point(machine, compute_bits) * weight_bits / 16;
  return shape.moe ? dense * shape.moe->experts / shape.moe->experts_used : dense;
}

std::optional<double> compute_bound_batch(const ModelShape& shape, const MachineSpec& machine,
                                          const PerformanceOptions& options) {
  const double compute = decode_flops(shape, options.sequence) / (2 * machine.macs(options.compute_bits));
  const double kv = kv_bytes_per_sequence(shape, options.kv, options.sequence) / machine.bandwidth;
  if (compute <= kv) return std::nullopt;
  return parameter_bytes(shape, format_of(options)) / machine.bandwidth / (compute - kv);
}

double decode_flops(const ModelShape& shape, uint64_t sequence) {
  const StepShape token{
      .sequences = 1, .rows = 1, .context = sequence > 0 ? sequence - 1 : 0, .logit_rows = 1};
  return total_work(step_work(shape, token, {})).flops;
}

}  // namespace kvasir
