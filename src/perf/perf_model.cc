#include "perf/perf_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "kernels/table.h"
#include "perf/parameter_formulas.h"

namespace kvasir {
namespace {

constexpr uint32_t kGrain = 2;             // panels that threads get together (models/transformer.cc)
constexpr uint32_t kBarriersPerLayer = 8;  // one more where there are experts

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

uint32_t StepCosts::most_rows(const StepLoad& load, uint32_t context, uint32_t limit, double target,
                              uint32_t unscored) const {
  const auto fits = [&](uint32_t rows) {
    StepLoad with = load;
    add(with, {.rows = rows, .context = context}, rows > unscored ? rows - unscored : 1);
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
  const uint64_t set = weights.layer_bytes + weights.expert_bytes + weights.head_bytes;
  rates_ = machine.kernels ? *machine.kernels : derived_rates(machine, weights.formats());
  away_ = part_from_memory(machine, set, options.threads);
  speed_ = machine.int8_rate(machine.threads) / machine.int8_rate(options.threads);
  read_ = machine.read_rate(set, options.threads);
  read_scale_ = std::max(1.0, machine.read_rate(machine.reads.back().bytes, machine.threads) /
                                  machine.read_rate(machine.reads.back().bytes, options.threads));
  std::map<uint32_t, uint32_t> windows;
  for (const uint32_t window : config.windows) ++windows[window];
  for (const auto& [window, layers] : windows) groups_.push_back({window, layers});
  by_rows_.assign(size_t{options.max_rows} + 1, {});
  by_logit_rows_.assign(size_t{options.max_logit_rows} + 1, {});
  tabulate_linear(weights, machine);
  tabulate_rest(weights, machine);
  tabulate_attention(machine);
}

PerfModel::Rates PerfModel::rates_at(DType type, double rows) const {
  const LinearRates& r = rates_.of(type);
  const double cached = interpolate(rates_.linear_rows, r.cached, rows) * speed_;
  return {cached, std::max(cached, interpolate(rates_.linear_rows, r.memory, rows) * read_scale_)};
}

double PerfModel::chosen_part(const Linear& l, double rows) const {
  return l.experts == 0 ? 1.0 : expected_experts(l.experts, l.used, rows) / l.experts;
}

// Of all its weights, although only some experts' are multiplied.
PerfModel::Rates PerfModel::rates_of(const Linear& l, double rows) const {
  if (l.experts == 0) return rates_at(l.type, rows);
  const double part = chosen_part(l, rows);
  const Rates rates = rates_at(l.type, rows * l.used / (part * l.experts));
  return {part * rates.cached, part * rates.memory};
}

double PerfModel::logits_bytes(uint32_t logit_rows) const {
  return logits_bytes_[std::min<size_t>(logit_rows, logits_bytes_.size() - 1)];
}

PerfModel::Calls& PerfModel::Calls::operator+=(const Calls& other) {
  all += other.all;
  longest += other.longest;
  count += other.count;
  positions += other.positions;
  fixed += other.fixed;
  return *this;
}

void PerfModel::tabulate_linear(const WeightSizes& weights, const HardwareProfile& machine) {
  const auto add = [&](const WeightSizes::Matrices& m, bool head) {
    const double values = double{divide_up(m.n, kPanelCols) * kPanelCols} * m.k;
    // The panels of all experts go into the threads together.
    const double count = m.count * std::max(1.0, static_cast<double>(m.experts));
    const double scale = count * (m.experts > 0 ? 1.0 : unevenness(m.n, options_.threads));
    auto same = std::find_if(linear_.begin(), linear_.end(), [&](const Linear& l) {
      return l.type == m.type && l.head == head && l.experts == m.experts && l.used == m.used;
    });
    if (same == linear_.end())
      same = linear_.insert(same, {.type = m.type, .head = head, .experts = m.experts, .used = m.used});
    same->values += count * values;
    same->weighed += scale * values;
    std::vector<StepSeconds>& table = head ? by_logit_rows_ : by_rows_;
    for (size_t rows = 1; rows < table.size(); ++rows) {
      const auto r = static_cast<double>(rows);
      const Rates rates = rates_of(*same, r);
      const double cached = values * rates.cached, memory = values * rates.memory;
      const double reading = static_cast<double>(m.bytes) * chosen_part(*same, r) / read_;
      split(cached, cached + away_ * (memory - cached), reading, scale, table[rows]);
    }
  };
  for (const WeightSizes::Matrices& m : weights.matrices) add(m, false);
  add({.type = weights.head_type,
       .n = weights.head_n,
       .k = weights.head_k,
       .count = 1,
       .bytes = weights.head_bytes},
      true);
  // Logits: each line is fetched before it is written, and written back.
  logits_bytes_.assign(by_logit_rows_.size(), 0);
  for (size_t rows = 1; rows < by_logit_rows_.size(); ++rows) {
    const double bytes = 2.0 * sizeof(float) * weights.head_n * static_cast<double>(rows);
    logits_bytes_[rows] = bytes * part_from_memory(machine, static_cast<uint64_t>(bytes), options_.threads);
    by_logit_rows_[rows][static_cast<size_t>(StepPart::kStream)] += logits_bytes_[rows] / read_;
  }
}

void PerfModel::tabulate_rest(const WeightSizes& weights, const HardwareProfile& machine) {
  const RowRates& r = rates_.rows;
  const ModelConfig& c = config_;
  const double threads = options_.threads;
  const double norm_quantised = c.hidden_dim * (r.norm + r.quantize);
  const double store = options_.kv_type == KvType::kInt8 ? r.store_int8 : r.store_f16;
  const double act = c.activation == Activation::kGeluTanh ? r.gelu
                     : c.activation == Activation::kRelu   ? r.add
                                                           : r.silu;
  const double heads = c.heads + c.kv_heads;
  const double turned =
      c.layers - static_cast<double>(std::count(c.ropes.begin(), c.ropes.end(), LayerRope::kNone));
  // Rows that a thread does alone, in all layers.
  const double alone = (2.0 * c.layers - weights.shared_inputs) * norm_quantised +
                       turned * heads * c.rope_dim * r.rope + c.layers * c.kv_dim() * store +
                       weights.head_norms * heads * c.head_dim * r.norm +
                       weights.branch_norms * c.hidden_dim * (r.norm + r.add) +
                       c.hidden_dim * rates_.of(weights.embedding_type).unpack +
                       (c.has_local_rope() ? 2 : 1) * c.rope_dim / 2.0 * r.trig;
  // Columns and heads of rows, which go evenly into the threads.
  const double with_experts = c.layers_with_experts();
  const double activated = (c.layers - with_experts) * c.ffn_dim +
                           with_experts * (static_cast<double>(c.mixture.router.used) * c.mixture.ffn_dim +
                                           c.mixture.shared_ffn_dim);
  // Results of experts are weighed and added one by one.
  const double added =
      with_experts * c.hidden_dim * (c.mixture.router.used + (c.mixture.shared_ffn_dim > 0 ? 1 : 0));
  // With MLA single heads' parts are quantised too, before they are absorbed and after attention.
  const double absorbed = c.mla ? c.mla->query + 1.0 * c.heads * (c.mla->nope_dim + c.mla->latent) : 0.0;
  const double shared =
      c.layers * (c.attn_dim() + absorbed) * r.quantize + activated * (act + r.quantize) + 2 * added * r.add;
  rest_ = {.alone = alone * speed_,
           .shared = shared * speed_,
           .head = norm_quantised * speed_,
           .barriers = options_.threads > 1 ? c.layers * double{kBarriersPerLayer} + with_experts : 0,
           .barrier_seconds = machine.barrier_seconds};
  const auto rest = static_cast<size_t>(StepPart::kRest);
  for (size_t rows = 1; rows < by_rows_.size(); ++rows) {
    const auto x = static_cast<double>(rows);
    by_rows_[rows][rest] += divide_up(x, threads) * rest_.alone + x / threads * rest_.shared +
                            rest_.barriers * rest_.barrier_seconds;
  }
  for (size_t rows = 1; rows < by_logit_rows_.size(); ++rows)
    by_logit_rows_[rows][rest] += divide_up(static_cast<double>(rows), threads) * rest_.head;
}

void PerfModel::tabulate_attention(const HardwareProfile& machine) {
  const uint32_t group = config_.heads / std::max(1u, config_.kv_heads);
  call_tokens_ = std::max(1u, (config_.mla ? kLatentMaxRows : kAttnMaxRows) / std::max(1u, group));
  // What is done with a position goes by the values of K and V together.
  const AttentionRates r = rates_.of(options_.kv_type, (config_.head_dim + config_.value_dim()) / 2);
  // A thread of fewer is no slower alone than among all.
  const double scale = speed_ * options_.threads / machine.threads;
  for (uint32_t tokens = 0; tokens <= call_tokens_; ++tokens) {
    const double rows = tokens * group;
    const double cached = interpolate(rates_.attention_rows, r.cached, rows);
    const double memory = std::max(cached, interpolate(rates_.attention_rows, r.memory, rows));
    call_.push_back(tokens == 0 ? 0 : scale * interpolate(rates_.attention_rows, r.call, rows));
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
    calls.fixed += call_[tokens];
    ++calls.count;
    calls.positions += positions;
    calls.longest = std::max(calls.longest, call_[tokens] + std::min(positions, uncut) * position);
    done += tokens;
  }
  for (double* sum : {&calls.all, &calls.fixed, &calls.count, &calls.positions})
    *sum *= group.layers * config_.kv_heads;
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

// Threads take calls as they become free: the last of them ends up to one call after the others.
double PerfModel::attention_seconds(const StepLoad& load) const {
  const double threads = options_.threads;
  const double idle = config_.kv_heads % options_.threads == 0 ? 0 : (1 - 1 / threads) / 2 * load.longest;
  return std::max(divide_up(config_.kv_heads, threads) * load.longest, load.attention / threads + idle);
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
  p.unadapted[static_cast<size_t>(StepPart::kAttention)] = attention_seconds(load);
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
