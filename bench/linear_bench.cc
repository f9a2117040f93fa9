// Linear layers of the real models, one thread: every shape with 1 to 512 rows, in multiply-adds per second
// and bytes of packed weights per second, and as parts of the int8 peak and of the read bandwidth measured
// beside them on the same buffer. The parts compare best with best; the rates are Google Benchmark's means.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/aligned_buffer.h"
#include "kernels/table.h"
#include "machine_peak.h"

namespace kvasir {
namespace {

struct Shape {
  const char* layer;
  DType type;
  uint32_t n, k;
};
constexpr Shape kShapes[] = {
    {"smollm2-135m/q", DType::kQ4_1, 576, 576},        {"smollm2-135m/up", DType::kQ4_1, 1536, 576},
    {"smollm2-135m/down", DType::kQ4_1, 576, 1536},    {"smollm2-135m/head", DType::kQ8_0, 49152, 576},
    {"qwen2.5-0.5b/up", DType::kQ5_0, 4864, 896},      {"qwen2.5-0.5b/down", DType::kQ6_K, 896, 4864},
    {"qwen2.5-0.5b/head", DType::kQ8_0, 151936, 896},  {"qwen2.5-1.5b/q", DType::kQ4_K, 1536, 1536},
    {"qwen2.5-1.5b/up", DType::kQ4_K, 8960, 1536},     {"qwen2.5-1.5b/down", DType::kQ6_K, 1536, 8960},
    {"qwen2.5-1.5b/head", DType::kQ6_K, 151936, 1536}, {"gemma-3-270m/head", DType::kQ8_0, 262144, 640}};
constexpr uint32_t kRows[] = {1, 2, 4, 8, 16, 64, 512};

// Enough copies of a small layer that a pass over all of them is a pass over a model: they come from memory.
constexpr size_t kModelBytes = size_t{128} << 20;

struct Layers {
  explicit Layers(const Shape& s)
      : panels((s.n + kPanelCols - 1) / kPanelCols),
        panel_bytes(packed_panel_bytes(s.type, s.k)),
        copies(std::max<size_t>(1, kModelBytes / (panels * panel_bytes))),
        memory(copies * panels * panel_bytes) {
    std::mt19937 rng(1);
    for (uint32_t& word : memory.as<uint32_t>())
      word = (rng() & 0x0FFF0FFF) | 0x10001000;  // any bytes are weights
  }
  PackedMatrix matrix(const Shape& s, size_t copy) const {
    return {s.type, s.n, s.k, panel_bytes, memory.data() + copy * panels * panel_bytes};
  }
  uint32_t panels;
  size_t panel_bytes;
  size_t copies;
  AlignedBuffer memory;
};

struct Rows {
  Rows(const Shape& s, uint32_t rows, const KernelTable& kernels)
      : x(size_t{rows} * s.k),
        memory(quant_rows_bytes(rows, s.k)),
        q(carve_quant_rows(memory.data(), rows, s.k)) {
    std::mt19937 rng(2);
    std::normal_distribution<float> value;
    for (float& v : x) v = value(rng);
    kernels.quantize_rows(x.data(), s.k, rows, s.k, q, 0);
  }
  std::vector<float> x;
  AlignedBuffer memory;
  QuantRows q;
};

void linear(benchmark::State& state, Isa isa, const Shape& shape, uint32_t rows) {
  const KernelTable& kernels = kernel_table(isa);
  const Layers layers(shape);
  const Rows x(shape, rows, kernels);
  AlignedBuffer out(size_t{rows} * shape.n * sizeof(float));
  AlignedBuffer scratch(kLinearScratchBytes);
  const size_t readable = layers.memory.size() / 4096 * 4096;
  double peak = bench::int8_peak(isa);
  double bandwidth = bench::read_bandwidth(isa, layers.memory.data(), readable);
  double best = 1e30;
  size_t copy = 0;
  for (auto _ : state) {
    const PackedMatrix w = layers.matrix(shape, copy);
    const double begin = bench::thread_seconds();
    kernels.linear({.w = &w,
                    .x = &x.q,
                    .xf = x.x.data(),
                    .rows = rows,
                    .panel_begin = 0,
                    .panel_end = layers.panels,
                    .out = out.as<float>().data(),
                    .ldo = shape.n,
                    .scratch = scratch.data()});
    best = std::min(best, bench::thread_seconds() - begin);
    copy = (copy + 1) % layers.copies;
  }
  const double macs = double{1} * rows * shape.n * shape.k;
  const double bytes = static_cast<double>(layers.panels * layers.panel_bytes);
  using benchmark::Counter;
  state.counters["GMAC/s"] = Counter(macs * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = Counter(bytes * 1e-9, Counter::kIsIterationInvariantRate);
  peak = std::max(peak, bench::int8_peak(isa));
  bandwidth = std::max(bandwidth, bench::read_bandwidth(isa, layers.memory.data(), readable));
  state.counters["of_peak"] = macs / best / peak;
  state.counters["of_read"] = bytes / best / bandwidth;
  state.counters["peak_GMAC/s"] = peak * 1e-9;
  state.counters["read_GB/s"] = bandwidth * 1e-9;
}

void register_all() {
  for (Isa isa : all_isas()) {
    if (isa == Isa::kScalar || !isa_supported(isa)) continue;
    for (const Shape& s : kShapes)
      for (uint32_t rows : kRows) {
        if (double{1} * rows * s.n * s.k > 1e10) continue;  // heads see few rows
        const std::string name = fmt::format("linear/{}/{}/{}/{}x{}/rows:{}", isa_name(isa), s.layer,
                                             dtype_info(s.type).name, s.n, s.k, rows);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { linear(state, isa, s, rows); });
      }
  }
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  kvasir::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
