#include "perf/machine_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/matrix.h"
#include "kernels/peak.h"
#include "perf/kernel_bench.h"
#include "perf/machine_info.h"

namespace kvasir {
namespace {

constexpr uint64_t kKiB = 1024, kMiB = kKiB * 1024;
// From the first-level cache to several times the largest last-level cache.
constexpr uint64_t kSizes[] = {32 * kKiB, 256 * kKiB, kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB, 1536 * kMiB};
constexpr uint64_t kQuickSizes[] = {kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB};
constexpr uint64_t kBriefSizes[] = {kMiB, 16 * kMiB, 128 * kMiB};
// Rounds that take about a millisecond at the rates of one core: long against a look at the clock, short
// against the time slices that others get.
constexpr uint64_t kPeakRounds = 200'000;
constexpr uint64_t kClockRounds = 50'000;
constexpr uint64_t kReadBytes = 64 * kMiB;
constexpr uint64_t kLeastForKernels = 16 * kMiB;  // less memory holds no kernel's operands

// How long to try for a best: at least so often, and as much longer as the time allows.
struct Patience {
  uint32_t repetitions;  // even: both ways of reading get the same share
  double seconds;
  double warm_up_seconds = 0;
  double memory_seconds = 0;  // for getting the memory to read
};
constexpr Patience kFull{8, 0.25, 1.0, 5.0};
constexpr Patience kQuick{4, 0.05, 0.2, 1.0};
constexpr Patience kBrief{2, 0.01, 0.05, 0.3};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What one thread is to do in one repetition; returns how much it did.
using Work = std::function<double(uint32_t thread, uint32_t threads, uint32_t repetition)>;

struct alignas(64) Lap {
  double begin = 0, end = 0, done = 0;
};

// Work per second of one repetition, from the start of the first thread to the end of the last.
double rate_once(ThreadPool& pool, const Work& work, uint32_t repetition, std::vector<Lap>& laps) {
  const auto threads = static_cast<uint32_t>(laps.size());
  pool.run([&](Worker& worker) {
    worker.barrier();
    if (worker.index() >= threads) return;
    Lap& lap = laps[worker.index()];
    lap.begin = seconds_now();
    lap.done = work(worker.index(), threads, repetition);
    lap.end = seconds_now();
  });
  double begin = laps[0].begin, end = laps[0].end, done = 0;
  for (const Lap& lap : laps) {
    begin = std::min(begin, lap.begin);
    end = std::max(end, lap.end);
    done += lap.done;
  }
  return done / std::max(end - begin, 1e-9);
}

// The best rate of the pool's first `threads` threads.
double best_rate(ThreadPool& pool, uint32_t threads, const Patience& patience, const Work& work) {
  std::vector<Lap> laps(threads);
  const double until = seconds_now() + patience.seconds;
  double best = 0;
  for (uint32_t i = 0; i < patience.repetitions || seconds_now() < until; ++i)
    best = std::max(best, rate_once(pool, work, i, laps));
  return best;
}

HardwareProfile::Rate rates(ThreadPool& pool, const Patience& patience, const Work& work) {
  HardwareProfile::Rate rate;
  rate.one_thread = best_rate(pool, 1, patience, work);
  rate.all_threads = pool.size() == 1 ? rate.one_thread : best_rate(pool, pool.size(), patience, work);
  return rate;
}

Work int8_work(const PeakTable& peaks) {
  return [&peaks](uint32_t, uint32_t, uint32_t) {
    peaks.int8_rounds(kPeakRounds);
    return static_cast<double>(kPeakRounds * peaks.int8_macs_per_round);
  };
}

Work f32_work(const PeakTable& peaks) {
  return [&peaks](uint32_t, uint32_t, uint32_t) {
    peaks.f32_rounds(kPeakRounds);
    return static_cast<double>(kPeakRounds * peaks.f32_macs_per_round);
  };
}

// Reads the first `bytes` of the memory, each thread its own part, small ones again and again. One run
// forwards and several side by side take turns: which of them is faster depends on the prefetchers.
Work read_work(const PeakTable& peaks, const std::byte* memory, uint64_t bytes) {
  return [=, &peaks](uint32_t thread, uint32_t threads, uint32_t repetition) {
    const uint64_t part = std::max<uint64_t>(bytes / threads / kReadGrain * kReadGrain, kReadGrain);
    const uint64_t offset = std::min(thread * part, bytes - part);
    const uint64_t passes = std::max<uint64_t>(1, kReadBytes / bytes);
    for (uint64_t pass = 0; pass < passes; ++pass)
      peaks.read(memory + offset, part, repetition % 2 == 0 ? 1 : kReadStreams);
    return static_cast<double>(passes * part);
  };
}

double clock_of(ThreadPool& pool, const Patience& patience) {
  return best_rate(pool, 1, patience, [](uint32_t, uint32_t, uint32_t) {
    dependent_adds(kClockRounds);
    return static_cast<double>(kClockRounds * kAddsPerRound);
  });
}

double barrier_seconds(ThreadPool& pool, const Patience& patience) {
  const auto time_of = [&](uint32_t barriers) {
    double elapsed = 0;
    pool.run([&](Worker& worker) {
      worker.barrier();
      const double begin = seconds_now();
      for (uint32_t i = 0; i < barriers; ++i) worker.barrier();
      if (worker.index() == 0) elapsed = seconds_now() - begin;
    });
    return elapsed / barriers;
  };
  constexpr uint32_t kBarriers = 100;  // some tries fit between the time slices of others
  const double until = seconds_now() + patience.seconds;
  double best = time_of(kBarriers);
  while (seconds_now() < until) best = std::min(best, time_of(kBarriers));
  return best;
}

// Memory that is really there, for pages never written are all one page of zeros: as much of `bytes` as
// `seconds` suffice to write, at least a slice. Some virtual machines get their pages slowly (1.5 GiB in 20 s
// was seen).
Result<MachineProber::Memory> written_memory(ThreadPool& pool, uint64_t bytes, double seconds) {
  constexpr uint64_t kSlice = 16 * kMiB;
  const double until = seconds_now() + seconds;
  MachineProber::Memory memory;
  try {
    memory.buffer = AlignedBuffer(bytes);
  } catch (const std::bad_alloc&) {
    return resource_exhausted(fmt::format("cannot allocate {} bytes to read from", bytes));
  }
  while (memory.written < bytes && (memory.written == 0 || seconds_now() < until)) {
    const uint64_t slice = std::min(kSlice, bytes - memory.written);
    pool.run([&](Worker& worker) {
      const auto [begin, end] = worker.share(slice, kReadGrain);
      if (begin < end) std::memset(memory.buffer.data() + memory.written + begin, kOrdinaryByte, end - begin);
    });
    memory.written += slice;
  }
  return memory;
}

// The sizes to read that memory has room for; one that it has not is cut to what there is.
std::vector<uint64_t> sizes_within(uint64_t limit, const MachineBenchOptions& options) {
  std::vector<uint64_t> sizes;
  for (const uint64_t size : options.brief   ? std::span<const uint64_t>(kBriefSizes)
                             : options.quick ? std::span<const uint64_t>(kQuickSizes)
                                             : std::span<const uint64_t>(kSizes)) {
    if (size <= limit) {
      sizes.push_back(size);
      continue;
    }
    const uint64_t cut = std::max(limit / kMiB * kMiB, kSizes[0]);
    if (sizes.empty() || cut > sizes.back()) sizes.push_back(cut);
    break;
  }
  return sizes;
}

constexpr uint32_t kUsualHeads[] = {64, 128, 256};
constexpr KvType kAllKvTypes[] = {KvType::kF16, KvType::kInt8};

KernelRates kernel_rates(ThreadPool& pool, const MachineBenchOptions& options,
                         const MachineProber::Memory& memory) {
  std::vector<DType> formats = options.formats;
  if (formats.empty()) {
    for (const DTypeInfo& info : dtype_table()) formats.push_back(info.type);
  }
  KernelBenchOptions bench{.formats = formats,
                           .kv_types = options.kv_types,
                           .head_dims = options.head_dims,
                           .passes = options.quick || options.brief ? 3u : 5u,
                           .progress = options.progress};
  if (options.kv_types.empty()) bench.kv_types = kAllKvTypes;
  if (options.head_dims.empty()) bench.head_dims = kUsualHeads;
  const uint64_t bytes = std::min(memory.written, std::max(options.working_set, kLeastForKernels));
  return measure_kernel_rates(pool, kernel_table(options.isa), {memory.buffer.data(), bytes}, bench);
}

std::string size_name(uint64_t bytes) {
  return bytes >= kMiB ? fmt::format("{} MiB", bytes / kMiB) : fmt::format("{} KiB", bytes / kKiB);
}

}  // namespace

void raise_reads(HardwareProfile& machine) {
  constexpr uint32_t kInputs = 1024;
  double best = INFINITY;  // seconds per byte of the fastest kernel
  for (const LinearRates& r : machine.kernels->linear) {
    const double value_bytes =
        static_cast<double>(packed_panel_bytes(r.type, kInputs)) / (kInputs * kPanelCols);
    best = std::min(best, r.memory.front() / value_bytes);
  }
  const double cached = 1 / machine.read_rate(HardwareProfile::kCachedBytes, machine.threads);
  const double plain = 1 / machine.read_rate(machine.kernels->memory_bytes, machine.threads);
  if (!(best < plain)) return;
  for (HardwareProfile::ReadRate& read : machine.reads) {
    double& rate = read.rate.all_threads;
    if (best <= cached)
      rate = std::max(rate, 1 / best);
    else if (1 / rate > cached)
      rate = 1 / (cached + (1 / rate - cached) / (plain - cached) * (best - cached));
  }
}

Result<HardwareProfile> measure_machine(ThreadPool& pool, const MachineBenchOptions& options) {
  const auto say = [&](const std::string& what) {
    if (options.progress) options.progress(what);
  };
  const PeakTable& peaks = peak_table(options.isa);
  const Patience& patience = options.brief ? kBrief : options.quick ? kQuick : kFull;
  const CpuTimes before = read_cpu_times();
  HardwareProfile p;
  p.cpu = cpu_name();
  p.isa = options.isa;
  p.measured_at = utc_now();
  p.threads = pool.size();
  p.cores = count_cores(allowed_cpus());
  say("warming up");
  best_rate(pool, pool.size(), {.repetitions = 1, .seconds = patience.warm_up_seconds}, int8_work(peaks));
  say("clock");
  p.clock_hz = clock_of(pool, patience);
  say(fmt::format("int8 ({})", peaks.int8_name));
  p.int8_macs = rates(pool, patience, int8_work(peaks));
  say(fmt::format("f32 ({})", peaks.f32_name));
  p.f32_macs = rates(pool, patience, f32_work(peaks));
  say("barrier");
  p.barrier_seconds = barrier_seconds(pool, patience);
  say("preparing memory");
  const uint64_t largest = sizes_within(options.memory_limit, options).back();
  KVASIR_ASSIGN_OR_RETURN(const MachineProber::Memory memory,
                          written_memory(pool, largest, patience.memory_seconds));
  for (const uint64_t bytes : sizes_within(memory.written, options)) {
    say("reading " + size_name(bytes));
    p.reads.push_back({bytes, rates(pool, patience, read_work(peaks, memory.buffer.data(), bytes))});
  }
  if (options.kernels && memory.written >= kLeastForKernels) {
    p.kernels = kernel_rates(pool, options, memory);
    raise_reads(p);
  }
  // Again, some seconds later: whoever kept the threads from meeting may be gone.
  p.barrier_seconds = std::min(p.barrier_seconds, barrier_seconds(pool, patience));
  const CpuShares shares = shares_between(before, read_cpu_times());
  p.others = shares.others;
  p.steal = shares.stolen;
  return p;
}

Result<MachineProber> MachineProber::make(ThreadPool& pool, Isa isa, uint64_t read_bytes) {
  const uint64_t bytes = std::max(read_bytes / kMiB * kMiB, kMiB);
  KVASIR_ASSIGN_OR_RETURN(Memory memory, written_memory(pool, bytes, kQuick.memory_seconds));
  return MachineProber(pool, isa, std::move(memory));
}

MachineProbe MachineProber::look() {
  const PeakTable& peaks = peak_table(isa_);
  const Work read = read_work(peaks, memory_.buffer.data(), memory_.written);
  MachineProbe probe;
  probe.read_bytes = memory_.written;
  probe.int8_macs = best_rate(*pool_, pool_->size(), kQuick, int8_work(peaks));
  probe.clock_hz = clock_of(*pool_, kQuick);
  probe.read_rate = best_rate(*pool_, pool_->size(), kQuick, read);
  return probe;
}

}  // namespace kvasir
