#include "perf/bench_operands.h"

#include <algorithm>
#include <chrono>

namespace kvasir {

double bench_seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(ThreadPool& pool, const std::function<void(Worker&)>& fn) {
  double elapsed = 0;
  pool.run([&](Worker& worker) {
    worker.barrier();
    const double begin = worker.index() == 0 ? bench_seconds_now() : 0;
    fn(worker);
    worker.barrier();
    if (worker.index() == 0) elapsed = bench_seconds_now() - begin;
  });
  return elapsed;
}

double Samples::value(PassRange passes) const {
  const size_t end = std::min<size_t>(passes.end, values.size());
  if (passes.begin >= end) return 0;
  std::vector<double> sorted(values.begin() + passes.begin, values.begin() + static_cast<ptrdiff_t>(end));
  const auto at = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), at, sorted.end());
  return *at;
}

std::vector<double> medians(const std::vector<Samples>& list, PassRange passes) {
  std::vector<double> out;
  for (const Samples& samples : list) out.push_back(samples.value(passes));
  return out;
}

std::vector<double> curve(const std::vector<Samples>& list, PassRange passes) {
  struct Pool {
    double sum;
    size_t count;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Pool> pools;
  for (const Samples& samples : list) {
    pools.push_back({samples.value(passes), 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean() > pools.back().mean()) {
      const Pool last = pools.back();
      pools.pop_back();
      pools.back().sum += last.sum;
      pools.back().count += last.count;
    }
  }
  std::vector<double> out;
  for (const Pool& pool : pools) out.insert(out.end(), pool.count, pool.mean());
  return out;
}

BenchOperands::BenchOperands(uint32_t threads, uint32_t rows)
    : scratch_(threads * kScratch),
      floats_(size_t{rows} * kBenchInputs * sizeof(float)),
      out_(size_t{rows} * kBenchOutputs * sizeof(float)),
      quantised_(quant_rows_bytes(rows, kBenchInputs)),
      x(carve_quant_rows(quantised_.data(), rows, kBenchInputs)) {
  uint32_t state = 1;
  for (float& v : floats_.as<float>()) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
}

}  // namespace kvasir
