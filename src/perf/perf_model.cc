#include "perf/perf_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "kernels/table.h"

namespace kvasir {
namespace {

constexpr uint32_t kGrain = 2;  // panels that threads get together (models/transformer.cc)
constexpr uint32_t kBarriersPerLayer = 8;

double divide_up(double a, double b) {
  return std::ceil(a / b);
}

// How much longer the thread with most panels takes than if they went evenly into the threads.
double unevenness(uint32_t n, uint32_t threads) {
  if (n == 0) return 1;
  const double panels = divide_up(n, kPanelCols);
  const double most = std::min(divide_up(divide_up(panels, kGrain), threads) * kGrain, panels);
  return most * threads / panels;
}

// What part of a working set comes from memory: where its read time lies between that of a cached set and
// that of the largest that was measured.
double part_from_memory(const HardwareProfile& machine, uint64_t bytes, uint32_t threads) {
  const double cached = 1 / machine.read_rate(machine.reads.front().bytes, threads);
  const double away = 1 / machine.read_rate(machine.reads.back().bytes, threads);
  if (!(away > cached)) return 1;
  return std::clamp((1 / machine.read_rate(bytes, threads) - cached) / (away - cached), 0.0, 1.0);
}

// Splits the seconds of streaming weights: where they take no longer than in cache, arithmetic bounds, where
// no longer than reading takes, memory.
void split(double cached, double seconds, double reading, double scale, StepSeconds& into) {
  const double over_cached = std::max(0.0, seconds - cached), over_reading = std::max(0.0, seconds - reading);
  const double sum = over_cached + over_reading;
  const double streaming = sum > 0 ? over_cached / sum : 0;
  into[static_cast<size_t>(StepPart::kStream)] += scale * streaming * seconds;
  into[static_cast<size_t>(StepPart::kCompute)] += scale * (1 - streaming) * seconds;
}

}  // namespace

StepPart StepPrediction::bound() const {
  const auto largest = std::max_element(parts.begin(), parts.end());
  return static_cast<StepPart>(largest - parts.begin());
}

uint32_t StepCosts::most_rows(const StepLoad& load, uint32_t context, uint32_t limit, double target) const {
  const auto fits = [&](uint32_t rows) {
    StepLoad with = load;
    add(with, {.rows = rows, .context = context}, 1);
    return seconds(with) <= target;
  };
  if (limit > 0 && fits(limit)) return limit;
  uint32_t low = 0, high = limit;  // low fits, high does not
  while (low + 1 < high) {
    const uint32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

PerfModel::PerfModel(const ModelConfig& config, const WeightSizes& weights, const HardwareProfile& machine,
                     const Options& options)
    : config_(config), options_(options) {
  CHECK(options.threads >= 1 && options.max_rows >= 1);
  const KernelRates rates = machine.kernels ? *machine.kernels : derived_rates(machine, weights.formats());
  away_ = part_from_memory(machine, weights.layer_bytes + weights.head_bytes, options.threads);
  speed_ = machine.int8_rate(machine.threads) / machine.int8_rate(options.threads);
  std::map<uint32_t, uint32_t> windows;
  for (const uint32_t window : config.windows) ++windows[window];
  for (const auto& [window, layers] : windows) groups_.push_back({window, layers});
  by_rows_.assign(size_t{options.max_rows} + 1, {});
  by_logit_rows_.assign(size_t{options.max_logit_rows} + 1, {});
  tabulate_linear(weights, machine, rates);
  tabulate_rest(weights, machine, rates);
  tabulate_attention(machine, rates);
}

void PerfModel::tabulate_linear(const WeightSizes& weights, const HardwareProfile& machine,
                                const KernelRates& rates) {
  const double read = machine.read_rate(weights.layer_bytes + weights.head_bytes, options_.threads);
  const double read_scale = machine.read_rate(machine.reads.back().bytes, machine.threads) /
                            machine.read_rate(machine.reads.back().bytes, options_.threads);
  const auto add = [&](DType type, uint32_t n, uint32_t k, uint32_t count, double bytes,
                       std::vector<StepSeconds>& table) {
    const LinearRates& r = rates.of(type);
    const double values = double{divide_up(n, kPanelCols) * kPanelCols} * k;
    const double scale = count * unevenness(n, options_.threads);
    for (size_t rows = 1; rows < table.size(); ++rows) {
      const auto x = static_cast<double>(rows);
      const double cached = values * interpolate(rates.linear_rows, r.cached, x) * speed_;
      const double memory =
          std::max(cached, values * interpolate(rates.linear_rows, r.memory, x) * std::max(1.0, read_scale));
      split(cached, cached + away_ * (memory - cached), bytes / read, scale, table[rows]);
    }
  };
  for (const WeightSizes::Matrices& m : weights.matrices)
    add(m.type, m.n, m.k, m.count, static_cast<double>(m.bytes), by_rows_);
  add(weights.head_type, weights.head_n, weights.head_k, 1, static_cast<double>(weights.head_bytes),
      by_logit_rows_);
  // Logits: each line is fetched before it is written, and written back.
  for (size_t rows = 1; rows < by_logit_rows_.size(); ++rows) {
    const double bytes = 2.0 * sizeof(float) * weights.head_n * static_cast<double>(rows);
    by_logit_rows_[rows][static_cast<size_t>(StepPart::kStream)] +=
        bytes * part_from_memory(machine, static_cast<uint64_t>(bytes), options_.threads) / read;
  }
}

void PerfModel::tabulate_rest(const WeightSizes& weights, const HardwareProfile& machine,
                              const KernelRates& rates) {
  const RowRates& r = rates.rows;
  const ModelConfig& c = config_;
  const double threads = options_.threads;
  const double norm_quantised = c.hidden_dim * (r.norm + r.quantize);
  const double store = options_.kv_type == KvType::kInt8 ? r.store_int8 : r.store_f16;
  const double act = c.activation == Activation::kSilu ? r.silu : r.gelu;
  const double heads = c.heads + c.kv_heads;
  // Rows that a thread does alone, in all layers.
  const double alone = c.layers * (2 * norm_quantised + heads * c.rope_dim * r.rope + c.kv_dim() * store) +
                       weights.head_norms * heads * c.head_dim * r.norm +
                       weights.branch_norms * c.hidden_dim * (r.norm + r.add) +
                       c.hidden_dim * rates.of(weights.embedding_type).unpack +
                       (c.local_rope ? 2 : 1) * c.rope_dim / 2.0 * r.trig;
  // Columns and heads of rows, which go evenly into the threads.
  const double shared = c.layers * (c.q_dim() * r.quantize + c.ffn_dim * (act + r.quantize));
  const double barriers = options_.threads > 1 ? c.layers * kBarriersPerLayer * machine.barrier_seconds : 0;
  const auto rest = static_cast<size_t>(StepPart::kRest);
  for (size_t rows = 1; rows < by_rows_.size(); ++rows) {
    const auto x = static_cast<double>(rows);
    by_rows_[rows][rest] += (divide_up(x, threads) * alone + x / threads * shared) * speed_ + barriers;
  }
  for (size_t rows = 1; rows < by_logit_rows_.size(); ++rows)
    by_logit_rows_[rows][rest] += divide_up(static_cast<double>(rows), threads) * norm_quantised * speed_;
}

void PerfModel::tabulate_attention(const HardwareProfile& machine, const KernelRates& rates) {
  const uint32_t group = config_.heads / std::max(1u, config_.kv_heads);
  call_tokens_ = std::max(1u, kAttnMaxRows / std::max(1u, group));
  const AttentionRates r = rates.of(options_.kv_type, config_.head_dim);
  // A thread of fewer is no slower alone than among all.
  const double scale = speed_ * options_.threads / machine.threads;
  for (uint32_t tokens = 0; tokens <= call_tokens_; ++tokens) {
    const double rows = tokens * group;
    const double cached = interpolate(rates.attention_rows, r.cached, rows);
    const double memory = std::max(cached, interpolate(rates.attention_rows, r.memory, rows));
    call_.push_back(tokens == 0 ? 0 : scale * interpolate(rates.attention_rows, r.call, rows));
    position_.push_back(scale * cached);
    from_memory_.push_back(scale * away_ * (memory - cached));
  }
}

// The calls of one sequence in the layers of one window, and the longest that is not cut: where threads would
// wait, calls are cut at splits.
PerfModel::Calls PerfModel::calls_of(const StepRows& s, const Group& group) const {
  Calls calls;
  const uint32_t uncut = options_.threads > 1 ? kAttnSplit : UINT32_MAX;
  for (uint32_t done = 0; done < s.rows;) {
    const uint32_t tokens = std::min(call_tokens_, s.rows - done);
    const uint32_t first = s.context + done;
    const uint32_t positions = first + tokens - first_visible(group.window, first);
    const double position = position_[tokens] + (done == 0 ? from_memory_[tokens] : 0);
    calls.all += call_[tokens] + positions * position;
    calls.longest = std::max(calls.longest, call_[tokens] + std::min(positions, uncut) * position);
    done += tokens;
  }
  calls.all *= group.layers * config_.kv_heads;
  calls.longest *= group.layers;
  return calls;
}

void PerfModel::add(StepLoad& load, const StepRows& sequence, uint32_t logit_rows) const {
  if (sequence.rows == 0) return;
  load.rows += sequence.rows;
  load.logit_rows += logit_rows;
  double longest = 0;
  for (const Group& group : groups_) {
    const Calls calls = calls_of(sequence, group);
    load.attention += calls.all;
    longest += calls.longest;
  }
  load.longest = std::max(load.longest, longest);
}

StepPrediction PerfModel::predict(const StepLoad& load) const {
  StepPrediction p;
  if (load.rows == 0) return p;
  const auto add_row = [&p](const std::vector<StepSeconds>& table, uint32_t rows) {
    const size_t at = std::min<size_t>(rows, table.size() - 1);
    const double beyond = at == 0 ? 1 : rows / static_cast<double>(at);
    for (uint32_t i = 0; i < kStepParts; ++i) p.unadapted[i] += beyond * table[at][i];
  };
  add_row(by_rows_, load.rows);
  add_row(by_logit_rows_, load.logit_rows);
  // Threads take calls as they become free: the last of them ends up to one call after the others.
  const double threads = options_.threads;
  const double idle = config_.kv_heads % options_.threads == 0 ? 0 : (1 - 1 / threads) / 2 * load.longest;
  p.unadapted[static_cast<size_t>(StepPart::kAttention)] =
      std::max(divide_up(config_.kv_heads, threads) * load.longest, load.attention / threads + idle);
  for (uint32_t i = 0; i < kStepParts; ++i) {
    p.parts[i] = p.unadapted[i] * drift_.factor(static_cast<StepPart>(i));
    p.seconds += p.parts[i];
  }
  return p;
}

StepPrediction PerfModel::predict(std::span<const StepRows> sequences, uint32_t logit_rows) const {
  StepLoad load;
  for (const StepRows& s : sequences) add(load, s, 0);
  load.logit_rows = logit_rows;
  return predict(load);
}

void PerfModel::observe(const StepPrediction& prediction, double measured) {
  if (!(measured > 0) || !(prediction.seconds > 0)) return;
  double unadapted = 0;
  for (const double s : prediction.unadapted) unadapted += s;
  adapted_.add((prediction.seconds - measured) / measured);
  unadapted_.add((unadapted - measured) / measured);
  drift_.observe(prediction.parts, measured);
}

}  // namespace kvasir
