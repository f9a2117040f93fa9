#include "perf/kernel_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kvcache/kv_layout.h"
#include "perf/bench_operands.h"
#include "perf/row_bench.h"

namespace kvasir {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint32_t kInputs = kBenchInputs, kOutputs = kBenchOutputs;
constexpr uint64_t kValues = uint64_t{kInputs} * kOutputs;
// Bytes of weights per measurement: as steps read them, for the first few megabytes come faster than what
// follows where many share the memory (58 against 36 GB/s were seen); short against a time slice.
constexpr uint64_t kStreamBytes = 24 * kMiB;
// Seconds that a measurement should take at most, if that is more than one matrix; and in any case: what
// would take longer is extrapolated.
constexpr double kEnoughCached = 0.0015, kEnoughMoving = 0.004, kLongest = 0.03;
constexpr uint32_t kBlockSize = 16;  // as the engine has it by default
constexpr uint32_t kBeginMatrices = 12;

}  // namespace

class KernelBench {
 public:
  KernelBench(ThreadPool& pool, const KernelTable& kernels, std::span<const std::byte> memory,
              const KernelBenchOptions& options)
      : pool_(pool),
        kernels_(kernels),
        memory_(memory),
        formats_(options.formats.begin(), options.formats.end()),
        space_(pool.size(), measured_linear_rows().back()),
        rows_(pool, kernels, space_) {
    CHECK(memory.size() >= 4 * kValues);
    kernels_.quantize_rows(space_.floats(), kInputs, measured_linear_rows().back(), kInputs, space_.x, 0);
    linear_.resize(formats_.size());
    for (const KvType type : options.kv_types) {
      for (const uint32_t head_dim : options.head_dims)
        attention_.push_back({type, head_dim, {}, {}, {}, {}});
    }
  }

  void pass();
  KernelRates rates(PassRange passes) const;

 private:
  struct LinearSamples {
    std::vector<Samples> cached, memory;
    Samples unpack;
  };
  struct AttentionSamples {
    KvType type;
    uint32_t head_dim;
    std::vector<Samples> short_call, begin, cached, memory;
  };

  void linear_pass(DType type, LinearSamples& samples);
  enum class Threads { kMeet, kApart };
  double linear_seconds(const PackedMatrix& first, uint32_t rows, uint32_t matrices, bool moving,
                        Threads threads);
  void begin_pass(const PackedMatrix& m, uint32_t matrices);
  double unpack_seconds(const PackedMatrix& m);
  void attention_pass(AttentionSamples& samples);
  double attention_seconds(const AttentionSamples& what, uint32_t rows, uint32_t positions, uint32_t calls,
                           bool moving);

  // `bytes` of the memory that were not read lately.
  const std::byte* fresh(uint64_t bytes) {
    if (next_ + bytes > memory_.size()) next_ = 0;
    const std::byte* at = memory_.data() + next_;
    next_ += (bytes + 4095) / 4096 * 4096;
    return at;
  }

  ThreadPool& pool_;
  const KernelTable& kernels_;
  std::span<const std::byte> memory_;
  const std::vector<DType> formats_;
  BenchOperands space_;
  uint64_t next_ = 0;
  std::vector<LinearSamples> linear_;
  std::vector<AttentionSamples> attention_;
  std::array<Samples, 2> begins_;  // from cache and from memory
  std::array<Samples, 2> begins_of_pass_;
  RowBench rows_;
};

// The product of `matrices` like `first`; each other than the one before if `moving`. Where threads meet, one
// after the other with a barrier after each, as small matrices in a step; where they are apart, each goes
// through its panels of all of them in one stretch, as of one large matrix.
double KernelBench::linear_seconds(const PackedMatrix& first, uint32_t rows, uint32_t matrices, bool moving,
                                   Threads threads) {
  const uint64_t bytes = uint64_t{first.panels()} * first.panel_bytes;
  const std::byte* base = moving ? fresh(bytes * matrices) : first.data;
  return seconds_of(pool_, [&](Worker& worker) {
    const auto [begin, end] = worker.share(first.panels(), 2);
    PackedMatrix m = first;
    const uint64_t before = begin * first.panel_bytes, own = (end - begin) * first.panel_bytes;
    for (uint32_t i = 0; i < matrices; ++i) {
      if (moving) m.data = base + (threads == Threads::kMeet ? i * bytes : before * (matrices - 1) + i * own);
      if (begin < end)
        kernels_.linear({.w = &m,
                         .x = &space_.x,
                         .xf = space_.floats(),
                         .rows = rows,
                         .panel_begin = static_cast<uint32_t>(begin),
                         .panel_end = static_cast<uint32_t>(end),
                         .out = space_.out(),
                         .ldo = kOutputs,
                         .bias = nullptr,
                         .mode = LinearOutput::kStore,
                         .scratch = space_.scratch(worker.index())});
      if (threads == Threads::kMeet) worker.barrier();
    }
  });
}

// What a matrix of its own takes more than as part of a large one: hardly different by format.
void KernelBench::begin_pass(const PackedMatrix& m, uint32_t matrices) {
  for (const bool moving : {false, true}) {
    const double meeting = linear_seconds(m, 1, matrices, moving, Threads::kMeet);
    const double apart = linear_seconds(m, 1, matrices, moving, Threads::kApart);
    begins_of_pass_[moving].values.push_back((meeting - apart) / matrices);
  }
}

// One thread takes every sixteenth column or so out of panels, as tokens of a vocabulary lie.
double KernelBench::unpack_seconds(const PackedMatrix& m) {
  constexpr uint32_t kColumns = 64;
  PackedMatrix moved = m;
  moved.data = fresh(uint64_t{m.panels()} * m.panel_bytes);
  const double begin = bench_seconds_now();
  for (uint32_t i = 0; i < kColumns; ++i) unpack_column(moved, i * 397 % m.n, space_.out());
  return (bench_seconds_now() - begin) / (kColumns * kInputs);
}

void KernelBench::linear_pass(DType type, LinearSamples& samples) {
  PackedMatrix m{.type = type, .n = kOutputs, .k = kInputs, .panel_bytes = packed_panel_bytes(type, kInputs)};
  const uint64_t bytes = uint64_t{m.panels()} * m.panel_bytes;
  m.data = memory_.data();
  const auto many =
      static_cast<uint32_t>(std::clamp<uint64_t>(kStreamBytes / bytes, 1, memory_.size() / bytes));
  const auto rows = measured_linear_rows();
  samples.cached.resize(rows.size());
  samples.memory.resize(rows.size());
  samples.unpack.values.push_back(unpack_seconds(m));
  double expected = 0;  // of one matrix
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i > 0) expected *= static_cast<double>(rows[i]) / rows[i - 1];
    if (expected > kLongest) {
      const double scale = static_cast<double>(rows[i]) / rows[i - 1];
      samples.cached[i].values.push_back(samples.cached[i - 1].values.back() * scale);
      samples.memory[i].values.push_back(samples.memory[i - 1].values.back() * scale);
      continue;
    }
    if (i == 0) begin_pass(m, std::min(many, kBeginMatrices));
    const auto within = [&](double seconds) {
      return static_cast<uint32_t>(
          std::clamp(seconds / std::max(expected, 1e-9), 1.0, static_cast<double>(many)));
    };
    linear_seconds(m, rows[i], 1, false, Threads::kApart);  // brings it into the caches
    const uint32_t again = within(kEnoughCached);
    expected = linear_seconds(m, rows[i], again, false, Threads::kApart) / again;
    samples.cached[i].values.push_back(expected / static_cast<double>(kValues));
    const uint32_t moving = within(kEnoughMoving);
    samples.memory[i].values.push_back(linear_seconds(m, rows[i], moving, true, Threads::kApart) /
                                       static_cast<double>(moving * kValues));
  }
}

// Every thread makes `calls` calls over `positions` positions, with KV as a pool lays it out: the blocks of
// four KV heads of four layers between a head's block and its next. `moving`: each over other KV.
double KernelBench::attention_seconds(const AttentionSamples& what, uint32_t rows, uint32_t positions,
                                      uint32_t calls, bool moving) {
  constexpr uint32_t kLayers = 4, kHeads = 4;
  const size_t head_bytes = size_t{kBlockSize} * what.head_dim * kv_element_bytes(what.type);
  const size_t layer_bytes = kHeads * (2 * head_bytes + kBlockSize * kv_scale_bytes(what.type)) + 63;
  const size_t stride = moving ? (kLayers * layer_bytes + 63) / 64 * 64 : (layer_bytes + 63) / 64 * 64;
  const uint32_t blocks = (positions + kBlockSize - 1) / kBlockSize;
  const uint64_t area = uint64_t{blocks} * stride;
  const uint64_t per_thread = moving ? area * ((calls + kLayers * kHeads - 1) / (kLayers * kHeads)) : area;
  const uint64_t all = per_thread * pool_.size();
  if (all > memory_.size()) return -1;
  const std::byte* base = moving ? fresh(all) : memory_.data();
  std::vector<BlockId> table(blocks);
  for (uint32_t b = 0; b < blocks; ++b) table[b] = BlockId{b * 7919 % blocks};
  const double seconds = seconds_of(pool_, [&](Worker& worker) {
    std::array<const float*, kAttnMaxRows> q;
    std::array<float*, kAttnMaxRows> out;
    std::array<int32_t, kAttnMaxRows> at;
    for (uint32_t r = 0; r < rows; ++r) {
      q[r] = space_.floats() + size_t{r} * kInputs;
      out[r] = space_.out() + (size_t{worker.index()} * kAttnMaxRows + r) * kAttnMaxHeadDim;
      at[r] = static_cast<int32_t>(positions) - 1;
    }
    const AttentionSequence sequence{table.data(), rows};
    for (uint32_t c = 0; c < calls; ++c) {
      const uint32_t layer = moving ? c / kHeads % kLayers : 0;
      const std::byte* area_base =
          base + worker.index() * per_thread + (moving ? c / (kLayers * kHeads) * area : 0);
      kernels_.attention({.kv = {.base = const_cast<std::byte*>(area_base) + layer * (layer_bytes / 64 * 64),
                                 .block_stride = stride,
                                 .block_size = kBlockSize,
                                 .kv_heads = kHeads,
                                 .head_dim = what.head_dim,
                                 .type = what.type,
                                 .v_offset = kHeads * head_bytes,
                                 .scale_offset = 2 * kHeads * head_bytes},
                          .kv_head = moving ? c % kHeads : 0,
                          .sequences = &sequence,
                          .sequence_count = 1,
                          .block_stride = 1,
                          .shared = 0,
                          .rows = rows,
                          .q = q.data(),
                          .out = out.data(),
                          .positions = at.data(),
                          .window = 0,
                          .scale = 0.1f,
                          .softcap = 0.0f,
                          .partials = nullptr,
                          .split_begin = 0,
                          .split_end = UINT32_MAX,
                          .scratch = space_.scratch(worker.index())});
    }
  });
  return seconds / calls;
}

void KernelBench::attention_pass(AttentionSamples& samples) {
  const auto rows = measured_attention_rows();
  samples.short_call.resize(rows.size());
  samples.begin.resize(rows.size());
  samples.cached.resize(rows.size());
  samples.memory.resize(rows.size());
  constexpr uint32_t kShort = 64, kLong = 512;
  // Whatever the head, half a second-level cache of 1 MiB at most.
  const uint32_t cached = samples.head_dim > 128 ? kLong / 2 : kLong;
  for (size_t i = 0; i < rows.size(); ++i) {
    attention_seconds(samples, rows[i], cached, 1, false);
    const uint32_t calls = rows[i] > 16 ? 2 : 8;
    const double brief = attention_seconds(samples, rows[i], kShort, 2 * calls, false);
    const double whole = attention_seconds(samples, rows[i], cached, calls, false);
    const double per_position = std::max((whole - brief) / (cached - kShort), whole / cached / 4);
    samples.cached[i].values.push_back(per_position);
    samples.short_call[i].values.push_back(std::max(0.0, brief - kShort * per_position));
    const double first = attention_seconds(samples, rows[i], kShort, 32, true);
    const double moving = attention_seconds(samples, rows[i], kLong, 16, true);
    const double streamed =
        first < 0 || moving < 0 ? per_position : std::max((moving - first) / (kLong - kShort), per_position);
    samples.memory[i].values.push_back(streamed);
    const double call = samples.short_call[i].values.back();
    samples.begin[i].values.push_back(first < 0 ? 0 : std::max(0.0, first - call - kShort * streamed));
  }
}

void KernelBench::pass() {
  begins_of_pass_ = {};
  for (size_t i = 0; i < formats_.size(); ++i) linear_pass(formats_[i], linear_[i]);
  for (size_t i = 0; i < begins_.size(); ++i) begins_[i].values.push_back(begins_of_pass_[i].value({}));
  for (AttentionSamples& samples : attention_) attention_pass(samples);
  rows_.pass();
}

KernelRates KernelBench::rates(PassRange passes) const {
  KernelRates rates;
  rates.linear_rows.assign(measured_linear_rows().begin(), measured_linear_rows().end());
  rates.attention_rows.assign(measured_attention_rows().begin(), measured_attention_rows().end());
  for (size_t i = 0; i < linear_.size(); ++i)
    rates.linear.push_back({formats_[i], linear_[i].unpack.value(passes), curve(linear_[i].cached, passes),
                            curve(linear_[i].memory, passes)});
  for (const AttentionSamples& a : attention_)
    rates.attention.push_back({a.type, a.head_dim, curve(a.short_call, passes), medians(a.begin, passes),
                               curve(a.cached, passes), curve(a.memory, passes)});
  rates.begin_cached = std::max(0.0, begins_[0].value(passes));
  rates.begin_memory = std::max(rates.begin_cached, begins_[1].value(passes));
  rates.memory_bytes = memory_.size();
  rates.rows = rows_.rates(passes);
  return rates;
}

KernelSampler::KernelSampler(ThreadPool& pool, const KernelTable& kernels, std::span<const std::byte> memory,
                             const KernelBenchOptions& options)
    : bench_(std::make_unique<KernelBench>(pool, kernels, memory, options)) {}
KernelSampler::KernelSampler(KernelSampler&&) noexcept = default;
KernelSampler::~KernelSampler() = default;

void KernelSampler::pass() {
  bench_->pass();
}

KernelRates KernelSampler::rates(PassRange passes) const {
  return bench_->rates(passes);
}

KernelRates measure_kernel_rates(ThreadPool& pool, const KernelTable& kernels,
                                 std::span<const std::byte> memory, const KernelBenchOptions& options) {
  KernelSampler sampler(pool, kernels, memory, options);
  for (uint32_t pass = 0; pass < options.passes; ++pass) {
    if (options.progress) options.progress(fmt::format("kernels, {} of {}", pass + 1, options.passes));
    sampler.pass();
  }
  return sampler.rates();
}

}  // namespace kvasir
