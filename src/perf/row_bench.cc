#include "perf/row_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "perf/kernel_bench.h"

namespace kvasir {
namespace {

constexpr uint32_t kInputs = kBenchInputs, kOutputs = kBenchOutputs;
constexpr uint32_t kRowsPerThread = 64, kLanes = 512;  // lanes: rows that the operands have
constexpr uint32_t kHead = 64, kHeads = kInputs / kHead, kBlockSize = 32;
constexpr uint32_t kOpenRows = 16;  // of a thread, that open a tile of positions in each of kHeads blocks
constexpr size_t kStride = 4 * size_t{kBlockSize} * kHead + 256;  // of blocks: K and V as f16, scales
constexpr size_t kTypes = 2;                                      // of KV

// An element written by one thread alone, and lines away from the next.
struct alignas(64) Sum {
  double value = 0;
};

}  // namespace

RowBench::RowBench(ThreadPool& pool, const KernelTable& kernels, const BenchOperands& space)
    : pool_(pool),
      kernels_(kernels),
      space_(space),
      kv_(kTypes * pool.size() * kOpenRows * kHeads * kStride) {
  std::memset(kv_.data(), kOrdinaryByte, kv_.size());
}

float* RowBench::x(uint32_t thread, uint32_t row) const {
  return space_.floats() + size_t{(thread * kRowsPerThread + row) % kLanes} * kInputs;
}

float* RowBench::y(uint32_t thread, uint32_t row) const {
  return space_.out() + size_t{(thread * kRowsPerThread + row) % kLanes} * kOutputs;
}

// Thread-seconds per value of fn, which every thread does for rows of its own. `foreign`: their columns were
// written by all threads just before, as those of a product are, and come from the other threads' caches.
double RowBench::seconds(const RowFn& fn, uint32_t values, bool foreign) {
  const auto write_columns = [&](Worker& worker) {
    const auto [begin, end] = worker.share(kInputs, kPanelCols);
    for (uint32_t r = 0; foreign && r < kRowsPerThread * worker.count(); ++r) {
      for (float* base : {space_.floats(), space_.out()}) {
        float* row = base + size_t{r % kLanes} * kInputs;
        for (uint64_t c = begin; c < end; ++c) row[c] = row[c] * 0.5f + 0.25f;
      }
    }
  };
  const auto all = [&](Worker& worker) {
    for (uint32_t r = 0; r < kRowsPerThread; ++r) fn(worker.index(), r);
  };
  seconds_of(pool_, all);
  seconds_of(pool_, write_columns);
  return seconds_of(pool_, all) / kRowsPerThread / values;
}

// Stores K and V of the row, a head to a block. `open`: to blocks that are this row's alone.
RowBench::RowFn RowBench::store(KvType type, bool open) const {
  return [this, type, open](uint32_t thread, uint32_t row) {
    const size_t head_bytes = size_t{kBlockSize} * kHead * kv_element_bytes(type);
    const size_t area =
        (size_t{type == KvType::kInt8} * pool_.size() + thread) * kOpenRows + (open ? row : 0);
    const KvPlanes planes{.base = kv_.data() + area * kHeads * kStride,
                          .block_stride = kStride,
                          .block_size = kBlockSize,
                          .kv_heads = 1,
                          .head_dim = kHead,
                          .type = type,
                          .v_offset = head_bytes,
                          .scale_offset = 2 * head_bytes};
    for (uint32_t h = 0; h < kHeads; ++h) {
      const float* head = x(thread, row) + size_t{h} * kHead;
      kernels_.store_kv(planes, 0, BlockId{h}, row % kBlockSize, head, head);
    }
  };
}

// Per value, what it takes more to store where nothing was for long.
double RowBench::open_seconds(KvType type) {
  const auto time_of = [&](const RowFn& fn) {
    return seconds_of(pool_, [&](Worker& worker) {
      for (uint32_t r = 0; r < kOpenRows; ++r) fn(worker.index(), r);
    });
  };
  const double opened = time_of(store(type, true));
  time_of(store(type, false));
  return std::max(0.0, opened - time_of(store(type, false))) / (double{kOpenRows} * kInputs);
}

RowBench::RowFn RowBench::kernel(Kind kind) {
  static constexpr float kWeight = 0.5f;
  const auto weights = [](uint32_t count, float value) { return std::vector<float>(count, value); };
  switch (kind) {
    case kNorm:
      return [this, w = weights(kInputs, kWeight)](uint32_t t, uint32_t r) {
        kernels_.rms_norm(x(t, r), w.data(), kInputs, 1e-5f, y(t, r));
      };
    case kQuantize:
      return [this](uint32_t t, uint32_t r) {
        kernels_.quantize_rows(x(t, r), kInputs, 1, kInputs, space_.x, (t * kRowsPerThread + r) % kLanes);
      };
    case kRope:
      return [this, trig = weights(kHead, 0.7f)](uint32_t t, uint32_t r) {
        for (uint32_t h = 0; h < kHeads; ++h)
          kernels_.rope(RopeKind::kNeox, y(t, r) + size_t{h} * kHead, kHead, trig.data(),
                        trig.data() + kHead / 2);
      };
    case kSilu:
    case kGelu: {
      const Activation activation = kind == kSilu ? Activation::kSilu : Activation::kGeluTanh;
      return [this, activation](uint32_t t, uint32_t r) {
        kernels_.gated_act(activation, x(t, r), x(t, r), kInputs, y(t, r));
      };
    }
    case kAdd:
      return [this](uint32_t t, uint32_t r) { kernels_.add(x(t, r), kInputs, y(t, r)); };
    case kStoreF16:
    case kStoreInt8:
      return store(kind == kStoreF16 ? KvType::kF16 : KvType::kInt8, false);
    case kTrig:
      return [sums = std::make_shared<std::vector<Sum>>(pool_.size())](uint32_t t, uint32_t r) {
        for (uint32_t i = 0; i < kInputs / 16; ++i) {
          const double angle = (r + 1000) * 0.37 / (i + 1);
          (*sums)[t].value += std::cos(angle) + std::sin(angle);
        }
      };
    case kScan:
      break;
  }
  return [this, sums = std::make_shared<std::vector<Sum>>(pool_.size())](uint32_t t, uint32_t r) {
    (*sums)[t].value += kernels_.scan_logits(x(t, r), kInputs).largest;
  };
}

void RowBench::pass() {
  for (size_t i = 0; i < kKinds; ++i) {
    const auto kind = static_cast<Kind>(i);
    const uint32_t values = kind == kTrig ? kInputs / 16 : kInputs;
    kinds_[i].values.push_back(seconds(kernel(kind), values, kForeign[i]));
  }
  open_[0].values.push_back(open_seconds(KvType::kF16));
  open_[1].values.push_back(open_seconds(KvType::kInt8));
}

RowRates RowBench::rates(PassRange passes) const {
  const auto of = [&](Kind kind) { return kinds_[kind].value(passes); };
  return {.norm = of(kNorm),
          .quantize = of(kQuantize),
          .rope = of(kRope),
          .silu = of(kSilu),
          .gelu = of(kGelu),
          .add = of(kAdd),
          .store_f16 = of(kStoreF16),
          .store_int8 = of(kStoreInt8),
          .open_f16 = open_[0].value(passes),
          .open_int8 = open_[1].value(passes),
          .trig = of(kTrig),
          .scan = of(kScan)};
}

}  // namespace kvasir
