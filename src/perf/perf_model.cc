#include "perf/perf_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "kernels/table.h"
#include "models/step_buffers.h"
#include "perf/parameter_formulas.h"

namespace kvasir {
namespace {

constexpr uint32_t kGrain = 2;  // panels that threads get together (models/transformer.cc)
// Of a layer: q, k and v; attention's output; gate and up; down. Each ends at a barrier. With experts the
// router comes before.
constexpr uint32_t kPhasesPerLayer = 4;
// Pieces that attention is cut into for each thread (models/attention_plan.cc).
constexpr uint32_t kPiecesPerThread = 8;
constexpr uint32_t kTilePositions = 16;  // that lie together in K (kernels/generic/kv_address.h)

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

// What part of a working set comes from memory: where its read time lies between that of a set as large as
// the kernels' rates from cache were measured with and that of the largest that was read.
double part_from_memory(const HardwareProfile& machine, uint64_t bytes, uint32_t threads) {
  const double cached = 1 / machine.read_rate(HardwareProfile::kCachedBytes, threads);
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

PerfModel::PerfModel(const ModelConfig& config, const WeightSizes& weights, const HardwareProfile& machine,
                     const Options& options)
    : config_(config), options_(options) {
  CHECK(options.threads >= 1 && options.max_rows >= 1);
  rates_ = machine.kernels ? *machine.kernels : derived_rates(machine, weights.formats());
  const double measured = part_from_memory(machine, rates_.memory_bytes, options.threads);
  const double ours = part_from_memory(machine, weights.working_set(), options.threads);
  away_ = measured > 0 ? std::min(1.0, ours / measured) : 1;
  speed_ = machine.int8_rate(machine.threads) / machine.int8_rate(options.threads);
  read_ = machine.read_rate(weights.working_set(), options.threads);
  read_scale_ = std::max(1.0, machine.read_rate(machine.reads.back().bytes, machine.threads) /
                                  machine.read_rate(machine.reads.back().bytes, options.threads));
  std::map<uint32_t, uint32_t> windows;
  for (const uint32_t window : config.windows) ++windows[window];
  for (const auto& [window, layers] : windows) {
    if (groups_.size() < StepLoad::kWindows)
      groups_.push_back({window, layers});
    else
      groups_.back().layers += layers;
    if (window == config.windows.back()) last_group_ = groups_.size() - 1;
  }
  if (weights.layer_macs > 0)
    last_part_ = static_cast<double>(weights.last_macs) / static_cast<double>(weights.layer_macs);
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

double PerfModel::logits_bytes(uint32_t whole_rows) const {
  return logits_bytes_[std::min<size_t>(whole_rows, logits_bytes_.size() - 1)];
}

PerfModel::Calls& PerfModel::Calls::operator+=(const Calls& other) {
  all += other.all;
  longest += other.longest;
  count += other.count;
  positions += other.positions;
  fixed += other.fixed;
  return *this;
}

// Of the phase that a matrix belongs to. What experts make of their rows is one list of panels, cut evenly.
double PerfModel::phase_unevenness(const WeightSizes::Matrices& m) const {
  using enum WeightSizes::Phase;
  if (m.experts > 0 && m.phase == kGateUp) return 1;
  return unevenness(m.phase == kQkv ? config_.q_dim() + 2 * config_.kv_dim() : m.n, options_.threads);
}

void PerfModel::tabulate_linear(const WeightSizes& weights, const HardwareProfile& machine) {
  const auto add = [&](const WeightSizes::Matrices& m, double uneven, bool head) {
    const double values = double{divide_up(m.n, kPanelCols) * kPanelCols} * m.k;
    const double count = m.count * std::max(1.0, static_cast<double>(m.experts));
    const double scale = count * uneven;
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
  for (const WeightSizes::Matrices& m : weights.matrices) add(m, phase_unevenness(m), false);
  add({.type = weights.head_type,
       .n = weights.head_n,
       .k = weights.head_k,
       .count = 1,
       .bytes = weights.head_bytes},
      unevenness(weights.head_n, options_.threads), true);
  // Logits: each line is fetched before it is written, and written back.
  logits_bytes_.assign(by_logit_rows_.size(), 0);
  for (size_t rows = 1; rows < by_logit_rows_.size(); ++rows) {
    const double bytes = 2.0 * sizeof(float) * weights.head_n * static_cast<double>(rows);
    logits_bytes_[rows] = bytes * part_from_memory(machine, static_cast<uint64_t>(bytes), options_.threads);
  }
}

bool PerfModel::norms_alone(uint32_t rows) const {
  return rows <= StepBuffers::kOwnRows && !post_norms_;
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
  post_norms_ = weights.branch_norms > 0 || c.branch_norms || c.residual_scale != 1.0f;
  norms_ = 2.0 * c.layers - weights.shared_inputs;
  const double alone = weights.branch_norms * c.hidden_dim * (r.norm + r.add) +
                       c.hidden_dim * rates_.of(weights.embedding_type).unpack +
                       (c.has_local_rope() ? 2 : 1) * c.rope_dim / 2.0 * r.trig;
  const double ready = turned * heads * c.rope_dim * r.rope + c.layers * c.kv_dim() * store +
                       weights.head_norms * heads * c.head_dim * r.norm;
  const double with_experts = c.layers_with_experts();
  const double activated = (c.layers - with_experts) * c.ffn_dim +
                           with_experts * (static_cast<double>(c.mixture.router.used) * c.mixture.ffn_dim +
                                           c.mixture.shared_ffn_dim);
  // Results of experts are weighed and added one by one.
  const double added =
      with_experts * c.hidden_dim * (c.mixture.router.used + (c.mixture.shared_ffn_dim > 0 ? 1 : 0));
  // With MLA single heads' parts are quantised too, before they are absorbed and after attention.
  const double absorbed = c.mla ? c.mla->query + 1.0 * c.heads * (c.mla->nope_dim + c.mla->latent) : 0.0;
  const double shared = c.layers * absorbed * r.quantize + activated * (act + r.quantize) + 2 * added * r.add;
  rest_ = {.norms = norms_ * norm_quantised * speed_,
           .alone = alone * speed_,
           .shared = shared * speed_ / threads,
           .ready = ready * speed_,
           .head = norm_quantised * speed_,
           .scan = weights.head_n * r.scan * speed_ / threads,
           .barrier = options_.threads > 1 ? machine.barrier_seconds : 0,
           .phases = double{kPhasesPerLayer} * c.layers + with_experts,
           .phase = rates_.begin_cached + away_ * (rates_.begin_memory - rates_.begin_cached)};
  const auto rest = static_cast<size_t>(StepPart::kRest);
  for (size_t rows = 1; rows < by_rows_.size(); ++rows) {
    const auto x = static_cast<double>(rows);
    const bool own = norms_alone(static_cast<uint32_t>(rows));
    by_rows_[rows][rest] += divide_up(x, threads) * rest_.alone +
                            (own ? x : divide_up(x, threads)) * rest_.norms + x * rest_.shared +
                            rest_.phases * rest_.phase;
  }
  for (size_t rows = 1; rows < by_logit_rows_.size(); ++rows)
    by_logit_rows_[rows][rest] += divide_up(static_cast<double>(rows), threads) * rest_.head + rest_.phase;
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
    const double quantise = rows * config_.head_dim * rates_.rows.quantize * speed_;
    call_.push_back(tokens == 0 ? 0 : scale * interpolate(rates_.attention_rows, r.call, rows) + quantise);
    position_.push_back(scale * cached);
    call_from_memory_.push_back(scale * away_ * interpolate(rates_.attention_rows, r.begin, rows));
    from_memory_.push_back(scale * away_ * (memory - cached));
  }
  const RowRates& stores = rates_.rows;
  const double open = options_.kv_type == KvType::kInt8 ? stores.open_int8 : stores.open_f16;
  open_ = scale * away_ * config_.head_dim * open;
}

// Seconds of a call's positions, for `tokens` that come after `done` of the sequence's in this step.
double PerfModel::positions_of(const StepRows& s, uint32_t tokens, uint32_t done, const Group& group) const {
  const uint32_t first = s.context + done;
  const uint32_t hidden = first_visible(group.window, first);
  const uint32_t positions = first + tokens - hidden;
  const double each = position_[tokens] + (done == 0 ? from_memory_[tokens] : 0);
  const uint32_t with = s.beside + tokens;
  if (s.shared == 0 || with > call_tokens_ || hidden > 0) return positions * each;
  // Beside others, tokens cost what they make the common call longer.
  const auto common = [&](uint32_t t) { return position_[t] + from_memory_[t]; };
  return s.shared * (common(with) - common(s.beside)) + (positions - s.shared) * each;
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
    const double walked = positions_of(s, tokens, done, group);
    const double waited = done == 0 && s.shared == 0 ? call_from_memory_[tokens] : 0;
    const double fixed = call_[tokens] + waited;
    calls.all += fixed + walked;
    calls.fixed += fixed;
    ++calls.count;
    calls.positions += positions;
    calls.longest =
        std::max(calls.longest, fixed + walked * std::min(1.0, static_cast<double>(uncut) / positions));
    done += tokens;
  }
  const double opened = open_ * divide_up(s.context % kTilePositions + s.rows, kTilePositions);
  calls.all += opened;
  calls.fixed += opened;
  for (double* sum : {&calls.all, &calls.fixed, &calls.count, &calls.positions})
    *sum *= group.layers * config_.kv_heads;
  calls.longest *= group.layers;
  return calls;
}

void PerfModel::add(StepLoad& load, const StepRows& sequence, LogitRows logits) const {
  if (sequence.rows == 0) return;
  load.rows += sequence.rows;
  ++load.sequences;
  load.most_rows = std::max(load.most_rows, sequence.rows);
  load.most_positions = std::max(load.most_positions, sequence.context + sequence.rows);
  load.logits.rows += logits.rows;
  load.logits.whole += logits.whole;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Calls calls = calls_of(sequence, groups_[g]);
    load.attention[g].all += calls.all;
    load.attention[g].longest = std::max(load.attention[g].longest, calls.longest);
  }
  const uint32_t wanted = std::min(sequence.rows, logits.rows);
  if (wanted == sequence.rows) return;
  load.left_out += sequence.rows - wanted;
  const Group last = {.window = groups_[last_group_].window, .layers = 1};
  load.left_out_attention += calls_of(sequence, last).all;
  if (wanted == 0) return;
  StepRows end = sequence;
  end.rows = wanted;
  end.context += sequence.rows - wanted;
  load.left_out_attention -= calls_of(end, last).all;
}

bool PerfModel::rows_stand_alone(const StepLoad& load, const Group& group) const {
  if (load.most_rows > 1) return false;
  const uint32_t seen = load.most_positions - first_visible(group.window, load.most_positions - 1);
  const bool cut = options_.threads > 1 && seen > kAttnSplit &&
                   load.sequences * config_.kv_heads < kPiecesPerThread * options_.threads;
  return !cut;
}

double PerfModel::ready_part(const StepLoad& load) const {
  uint32_t layers = 0;
  for (const Group& group : groups_) layers += rows_stand_alone(load, group) ? 0 : group.layers;
  return static_cast<double>(layers) / config_.layers;
}

// Threads take calls as they become free: the last of them ends up to one call after the others.
double PerfModel::attention_seconds(const StepLoad& load) const {
  const double threads = options_.threads;
  double sum = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    StepLoad::Attention a = load.attention[g];
    if (rows_stand_alone(load, groups_[g])) {
      const double ready = rest_.ready * groups_[g].layers / config_.layers;
      a.all += load.rows * ready;
      a.longest += ready / config_.kv_heads;
    }
    const double idle = config_.kv_heads % options_.threads == 0 ? 0 : (1 - 1 / threads) / 2 * a.longest;
    sum += std::max(divide_up(config_.kv_heads, threads) * a.longest, a.all / threads + idle);
  }
  return sum;
}

// Barriers that end no phase of matrices: after attention, norms and rows made ready; after the choice of
// experts for many rows; around the head's rows.
double PerfModel::barriers_of(const StepLoad& load) const {
  if (options_.threads == 1) return 0;
  const bool own = norms_alone(load.rows);
  const double head = load.logits.rows == 0 ? 0 : load.logits.rows > load.logits.whole ? 3 : 2;
  const double choices = load.rows <= StepBuffers::kOwnRows ? 0 : config_.layers_with_experts();
  return config_.layers * (1 + ready_part(load)) + (own ? 1 : norms_) + choices + head;
}

// What by_rows_ and by_logit_rows_ do not know.
double PerfModel::rest_seconds(const StepLoad& load) const {
  return divide_up(load.rows, options_.threads) * rest_.ready * ready_part(load) +
         barriers_of(load) * rest_.barrier + (load.logits.rows - load.logits.whole) * rest_.scan;
}

StepPrediction PerfModel::predict(const StepLoad& load) const {
  StepPrediction p;
  p.rows = load.rows;
  if (load.rows == 0) return p;
  const auto add_row = [&p](const std::vector<StepSeconds>& table, uint32_t rows) {
    const size_t at = std::min<size_t>(rows, table.size() - 1);
    const double beyond = at == 0 ? 1 : rows / static_cast<double>(at);
    for (uint32_t i = 0; i < kStepParts; ++i) p.unadapted[i] += beyond * table[at][i];
  };
  add_row(by_rows_, load.rows);
  add_row(by_logit_rows_, load.logits.rows);
  p.unadapted[static_cast<size_t>(StepPart::kStream)] += logits_bytes(load.logits.whole) / read_;
  p.unadapted[static_cast<size_t>(StepPart::kRest)] += rest_seconds(load);
  p.unadapted[static_cast<size_t>(StepPart::kAttention)] = attention_seconds(load);
  const double of_rows = drift_.rows_factor(load.rows);
  const StepSeconds less = left_out_seconds(load);
  for (uint32_t i = 0; i < kStepParts; ++i) {
    p.unadapted[i] -= less[i];
    p.parts[i] = p.unadapted[i] * drift_.factor(static_cast<StepPart>(i)) * of_rows;
    p.seconds += p.parts[i];
  }
  return p;
}

StepPrediction PerfModel::predict(std::span<const StepRows> sequences, LogitRows logits) const {
  StepLoad load;
  add_all(load, sequences, logits);
  return predict(load);
}

void PerfModel::observe(const StepPrediction& prediction, double measured) {
  if (!(measured > 0) || !(prediction.seconds > 0)) return;
  double unadapted = 0;
  for (const double s : prediction.unadapted) unadapted += s;
  adapted_.add((prediction.seconds - measured) / measured);
  unadapted_.add((unadapted - measured) / measured);
  drift_.observe(prediction.parts, prediction.rows, measured);
}

}  // namespace kvasir
