// Quantising activations, at the widths of the real models, and packing weights at load, one thread. Rates
// are of the bytes that go in; of_read is their part of the read bandwidth measured beside it on the same
// buffer.
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

// What `bytes` per iteration come to, in the CPU time since `begin`.
void rate(benchmark::State& state, size_t bytes, double bandwidth, double begin) {
  const double seconds = bench::thread_seconds() - begin;
  const double per_second = static_cast<double>(bytes) * static_cast<double>(state.iterations()) / seconds;
  state.counters["GB/s"] = per_second * 1e-9;
  state.counters["of_read"] = per_second / bandwidth;
}

void quantize(benchmark::State& state, Isa isa, uint32_t rows, uint32_t k) {
  AlignedBuffer x(size_t{rows} * k * sizeof(float) / 4096 * 4096 + 4096);
  std::mt19937 random(2);
  std::normal_distribution<float> value;
  for (float& v : x.as<float>()) v = value(random);
  AlignedBuffer memory(quant_rows_bytes(rows, k));
  const QuantRows out = carve_quant_rows(memory.data(), rows, k);
  const double bandwidth = bench::read_bandwidth(isa, x.data(), x.size());
  const KernelTable& kernels = kernel_table(isa);
  const double begin = bench::thread_seconds();
  for (auto _ : state) kernels.quantize_rows(x.as<float>().data(), k, rows, k, out, 0);
  rate(state, size_t{rows} * k * sizeof(float), bandwidth, begin);
}

void pack(benchmark::State& state, DType type) {
  constexpr uint32_t kN = 4864, kK = 1536;
  AlignedBuffer gguf(dtype_bytes(type, size_t{kN} * kK) / 4096 * 4096 + 4096);
  std::mt19937 random(3);
  for (uint32_t& word : gguf.as<uint32_t>()) word = random();
  AlignedBuffer packed(packed_panel_bytes(type, kK) * (kN / kPanelCols));
  const double bandwidth = bench::read_bandwidth(best_isa(), gguf.data(), gguf.size());
  const double begin = bench::thread_seconds();
  for (auto _ : state) pack_panels(type, gguf.data(), kN, kK, 0, kN / kPanelCols, packed.data());
  rate(state, dtype_bytes(type, size_t{kN} * kK), bandwidth, begin);
}

void register_all() {
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAvx2, Isa::kScalar}) {
    if (!isa_supported(isa)) continue;
    for (const uint32_t rows : {1u, 8u, 512u})
      for (const uint32_t k : {576u, 896u, 1536u, 8960u})
        benchmark::RegisterBenchmark(fmt::format("quantize/{}/rows:{}/k:{}", isa_name(isa), rows, k).c_str(),
                                     [=](benchmark::State& state) { quantize(state, isa, rows, k); });
  }
  for (const DTypeInfo& info : dtype_table())
    if (can_pack(info.type, 1536))
      benchmark::RegisterBenchmark(fmt::format("pack/{}", info.name).c_str(),
                                   [=](benchmark::State& state) { pack(state, info.type); });
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
