#include "perf/kernel_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace kvasir {
namespace {

constexpr uint64_t kLeast = uint64_t{16} << 20;  // holds every kernel's operands
// Several times any last cache: of more memory nothing else could be said.
constexpr uint64_t kMost = uint64_t{512} << 20;
constexpr uint64_t kPage = 4096;

}  // namespace

KernelCalibration::KernelCalibration(ThreadPool& pool, const WeightSizes& weights, const Options& options,
                                     uint64_t bytes)
    : memory_(bytes), formats_(weights.formats()) {
  pool.run([&](Worker& worker) {
    const auto [begin, end] = worker.share(bytes, kPage);
    if (begin < end) std::memset(memory_.data() + begin, kOrdinaryByte, end - begin);
  });
  sampler_ = std::make_unique<KernelSampler>(pool, kernel_table(options.isa), memory_.as<const std::byte>(),
                                             KernelBenchOptions{.formats = formats_,
                                                                .kv_types = {&options.kv_type, 1},
                                                                .head_dims = {&options.head_dim, 1},
                                                                .progress = {}});
}

Result<KernelCalibration> KernelCalibration::make(ThreadPool& pool, const WeightSizes& weights,
                                                  const Options& options) {
  const uint64_t model = weights.working_set();
  const uint64_t bytes = std::min(std::clamp(model, kLeast, kMost), options.memory_limit) / kPage * kPage;
  try {
    if (bytes >= kLeast) return KernelCalibration(pool, weights, options, bytes);
  } catch (const std::bad_alloc&) {
  }
  return resource_exhausted(
      fmt::format("measuring kernels needs {} MiB of memory, {} MiB at least, and they are not free",
                  std::clamp(model, kLeast, kMost) >> 20, kLeast >> 20));
}

void KernelCalibration::pass() {
  sampler_->pass();
  ++passes_;
}

HardwareProfile KernelCalibration::applied_to(HardwareProfile machine, PassRange passes) const {
  machine.kernels = sampler_->rates(passes);
  return machine;
}

}  // namespace kvasir
