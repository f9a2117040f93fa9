// The kernels beside linear layers and attention, one thread, at the widths of the real models. Rates are of
// the bytes that a kernel reads; of_read is their part of the read bandwidth measured beside it on a buffer
// of the same size, so a kernel near 1 waits for memory and one far from it for arithmetic.
#include <algorithm>
#include <functional>
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

// Three aligned rows of n values around zero, and one of n/2 cosines and n/2 sines of one angle.
class Rows {
 public:
  explicit Rows(uint32_t n) : stride_((n + 1023) / 1024 * 1024), memory_(4 * stride_ * sizeof(float)) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& v : memory_.as<float>()) v = normal(random);
    std::fill_n(row(3), n / 2, 0.6f);
    std::fill_n(row(3) + n / 2, n - n / 2, 0.8f);
  }
  float* row(uint32_t i) const { return memory_.as<float>().data() + i * stride_; }
  double bandwidth(Isa isa) const {
    bench::read_bandwidth(isa, memory_.data(), stride_ * sizeof(float));  // into the cache, if it fits
    return bench::read_bandwidth(isa, memory_.data(), stride_ * sizeof(float));
  }

 private:
  size_t stride_;
  AlignedBuffer memory_;
};

using Kernel = std::function<void(const KernelTable& kernels, const Rows& rows, uint32_t n)>;
struct Case {
  const char* name;
  uint32_t n;
  uint32_t inputs;  // rows of n values read
  Kernel run;
};

const std::vector<Case>& cases() {
  static const Kernel norm = [](const KernelTable& t, const Rows& r, uint32_t n) {
    t.rms_norm(r.row(0), r.row(1), n, 1e-5f, r.row(2));
  };
  static const Kernel argmax = [](const KernelTable& t, const Rows& r, uint32_t n) {
    benchmark::DoNotOptimize(t.argmax(r.row(0), n));
  };
  static const Kernel scan = [](const KernelTable& t, const Rows& r, uint32_t n) {
    benchmark::DoNotOptimize(t.scan_logits(r.row(0), n));
  };
  static const Kernel sum = [](const KernelTable& t, const Rows& r, uint32_t n) {
    benchmark::DoNotOptimize(t.log_sum_exp(r.row(0), n));
  };
  static const auto rope = [](RopeKind kind) {
    return [kind](const KernelTable& t, const Rows& r, uint32_t n) {
      t.rope(kind, r.row(0), n, r.row(3), r.row(3) + n / 2);
    };
  };
  static const auto act = [](Activation kind) {
    return [kind](const KernelTable& t, const Rows& r, uint32_t n) {
      t.gated_act(kind, r.row(0), r.row(1), n, r.row(2));
    };
  };
  static const std::vector<Case> all = {
      {"rms_norm", 576, 2, norm},
      {"rms_norm", 1536, 2, norm},
      {"rope_norm", 64, 2, rope(RopeKind::kNorm)},
      {"rope_neox", 128, 2, rope(RopeKind::kNeox)},
      {"gated_act_silu", 1536, 2, act(Activation::kSilu)},
      {"gated_act_silu", 8960, 2, act(Activation::kSilu)},
      {"gated_act_gelu", 2048, 2, act(Activation::kGeluTanh)},
      {"add", 1536, 2, [](const KernelTable& t, const Rows& r, uint32_t n) { t.add(r.row(0), n, r.row(1)); }},
      {"scale", 640, 1, [](const KernelTable& t, const Rows& r, uint32_t n) { t.scale(1.0f, n, r.row(0)); }},
      {"softcap", 262144, 1,
       [](const KernelTable& t, const Rows& r, uint32_t n) { t.softcap(30.0f, n, r.row(0)); }},
      {"scan_logits", 1024, 1, scan},
      {"argmax", 49152, 1, argmax},
      {"argmax", 151936, 1, argmax},
      {"argmax", 262144, 1, argmax},
      {"log_sum_exp", 49152, 1, sum},
      {"log_sum_exp", 151936, 1, sum},
  };
  return all;
}

void elementwise(benchmark::State& state, Isa isa, const Case& c) {
  const Rows rows(c.n);
  const double bandwidth = rows.bandwidth(isa);
  const KernelTable& kernels = kernel_table(isa);
  const double begin = bench::thread_seconds();
  for (auto _ : state) c.run(kernels, rows, c.n);
  const double seconds = bench::thread_seconds() - begin;
  const double bytes = double{1} * c.n * c.inputs * sizeof(float) * static_cast<double>(state.iterations());
  state.counters["GB/s"] = bytes / seconds * 1e-9;
  state.counters["of_read"] = bytes / seconds / bandwidth;
}

void register_all() {
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAvx2, Isa::kScalar}) {
    if (!isa_supported(isa)) continue;
    for (const Case& c : cases())
      benchmark::RegisterBenchmark(fmt::format("{}/{}/n:{}", c.name, isa_name(isa), c.n).c_str(),
                                   [=, &c](benchmark::State& state) { elementwise(state, isa, c); });
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
