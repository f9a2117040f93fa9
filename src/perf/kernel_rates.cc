#include "perf/kernel_rates.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/table.h"
#include "perf/hardware_profile.h"

namespace kvasir {
namespace {

constexpr uint32_t kLinearRows[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512};
constexpr uint32_t kAttentionRows[] = {1, 2, 3, 4, 6, 7, 8, 12, 16, 24, 48, 96};

AttentionRates derived_attention(const HardwareProfile& m, KvType type, uint32_t head_dim) {
  AttentionRates rates{
      .kv_type = type, .head_dim = head_dim, .call = {}, .begin = {}, .cached = {}, .memory = {}};
  const double bytes = 2.0 * head_dim * static_cast<double>(kv_element_bytes(type)) +
                       static_cast<double>(kv_scale_bytes(type));
  // A thread's share of what all do together.
  const double f32 = m.f32_rate(m.threads) / m.threads * kDerivedAttentionPart;
  const double read = m.reads.back().rate.all_threads / m.threads * kDerivedReadPart;
  for (const uint32_t rows : kAttentionRows) {
    const double compute = 2.0 * head_dim * rows / f32;
    rates.call.push_back(64 * compute);
    rates.begin.push_back(0);
    rates.cached.push_back(compute);
    rates.memory.push_back(std::max(compute, bytes / read));
  }
  return rates;
}

}  // namespace

std::span<const uint32_t> measured_linear_rows() {
  return kLinearRows;
}

std::span<const uint32_t> measured_attention_rows() {
  return kAttentionRows;
}

double interpolate(std::span<const uint32_t> xs, std::span<const double> ys, double x) {
  DCHECK(xs.size() == ys.size() && xs.size() >= 2);
  if (x <= xs.front()) return ys.front();
  size_t next = 1;
  while (next + 1 < xs.size() && xs[next] < x) ++next;
  const double part = (x - xs[next - 1]) / (static_cast<double>(xs[next]) - xs[next - 1]);
  return ys[next - 1] + part * (ys[next] - ys[next - 1]);
}

bool KernelRates::has(DType type) const {
  return std::any_of(linear.begin(), linear.end(), [&](const LinearRates& r) { return r.type == type; });
}

const LinearRates& KernelRates::of(DType type) const {
  CHECK(!linear.empty());
  const LinearRates* dearest = &linear.front();
  for (const LinearRates& r : linear) {
    if (r.type == type) return r;
    if (r.memory.front() > dearest->memory.front()) dearest = &r;
  }
  return *dearest;
}

AttentionRates KernelRates::of(KvType type, uint32_t head_dim) const {
  CHECK(!attention.empty());
  const AttentionRates* best = &attention.front();
  const auto distance = [&](const AttentionRates& r) {
    const double ratio = std::abs(std::log2(static_cast<double>(r.head_dim) / head_dim));
    return ratio + (r.kv_type == type ? 0 : 1000);
  };
  for (const AttentionRates& r : attention) {
    if (distance(r) < distance(*best)) best = &r;
  }
  AttentionRates scaled = *best;
  const double factor = static_cast<double>(head_dim) / best->head_dim;
  for (std::vector<double>* list : {&scaled.call, &scaled.begin, &scaled.cached, &scaled.memory}) {
    for (double& v : *list) v *= factor;
  }
  scaled.head_dim = head_dim;
  return scaled;
}

KernelRates derived_rates(const HardwareProfile& m, std::span<const DType> formats) {
  KernelRates rates;
  rates.linear_rows.assign(std::begin(kLinearRows), std::end(kLinearRows));
  rates.attention_rows.assign(std::begin(kAttentionRows), std::end(kAttentionRows));
  const double macs = m.int8_rate(m.threads) * kDerivedComputePart;
  const double floats = m.f32_rate(m.threads) * kDerivedComputePart;
  const double read = m.reads.back().rate.all_threads * kDerivedReadPart;
  for (const DType type : formats) {
    LinearRates linear{.type = type, .unpack = 0, .cached = {}, .memory = {}};
    constexpr uint32_t kInputs = 1024;
    const double bytes = static_cast<double>(packed_panel_bytes(type, kInputs)) / (kInputs * kPanelCols);
    const bool whole = type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
    linear.unpack = kDerivedUnpackMacs / (macs / m.threads);
    for (const uint32_t rows : kLinearRows) {
      const double compute = whole ? rows / floats : (rows + kDerivedUnpackMacs) / macs;
      linear.cached.push_back(compute);
      linear.memory.push_back(std::max(compute, bytes / read));
    }
    rates.linear.push_back(std::move(linear));
  }
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    for (const uint32_t head_dim : {64u, 128u, 256u})
      rates.attention.push_back(derived_attention(m, type, head_dim));
  }
  const double value = 1 / (m.f32_rate(m.threads) / m.threads * kDerivedRowPart);
  rates.rows = {.norm = value,
                .quantize = value,
                .rope = value,
                .silu = 4 * value,
                .gelu = 4 * value,
                .add = value,
                .store_f16 = value,
                .store_int8 = value,
                .open_f16 = 0,
                .open_int8 = 0,
                .trig = 50 / m.clock_hz,
                .scan = value};
  rates.memory_bytes = m.reads.back().bytes;
  rates.begin_cached = m.barrier_seconds;
  rates.begin_memory = m.barrier_seconds + kDerivedBeginSeconds;
  return rates;
}

}  // namespace kvasir
