#include "models/attention_runner.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/check.h"

namespace kvasir {
namespace {

std::unique_ptr<std::atomic<uint32_t>[]> counters(size_t count) {
  return std::make_unique<std::atomic<uint32_t>[]>(count);
}

}  // namespace

AttentionRunner::AttentionRunner(const ModelConfig& config, const CausalLm::Limits& limits,
                                 const KernelTable& kernels, uint32_t threads)
    : config_(config),
      kernels_(kernels),
      query_group_(config.heads / config.kv_heads),
      max_rows_(limits.max_rows),
      quantizes_items_(config.mla || query_group_ * config.head_dim % kGroup == 0),
      next_item_(counters(config.layers)) {
  const size_t bytes = attention_partial_floats(config.value_dim()) * sizeof(float);
  const uint64_t splits = config.context_length / kAttnSplit + 1;
  const uint64_t needed = splits * limits.max_rows * config.heads;
  const auto most = static_cast<uint32_t>(std::min<uint64_t>(needed, kMaxPartialBytes / bytes));
  if (threads > 1) partials_ = AlignedBuffer(most * bytes);
  const auto specs = config.kv_layers();
  // Groups come in the order in which KvLayout meets their windows.
  std::vector<uint32_t> windows;
  for (const KvLayerSpec& spec : specs) {
    if (std::find(windows.begin(), windows.end(), spec.window) == windows.end())
      windows.push_back(spec.window);
  }
  for (const uint32_t window : windows) {
    const AttentionPlan::Shape shape = {.kv_heads = config.kv_heads,
                                        .group = query_group_,
                                        .window = window,
                                        .threads = threads,
                                        .max_rows = limits.max_rows,
                                        .max_partials = threads > 1 ? most : 0,
                                        .call_rows = config.mla ? kLatentMaxRows : kAttnMaxRows,
                                        .lanes = config.mla ? kLatentLanes : 1};
    for (auto* groups : {&groups_, &last_groups_})
      groups->push_back({AttentionPlan(shape), counters(size_t{limits.max_rows} * config.kv_heads)});
  }
}

void AttentionRunner::plan(const ForwardBatch& batch, const KvStore& kv, const ForwardBatch* last) {
  CHECK(kv.layout().groups().size() == groups_.size());
  for (uint32_t g = 0; g < groups_.size(); ++g) plan_group(groups_[g], g, batch, kv);
  if (last != nullptr) {
    const uint32_t layer = batch.layers.empty() ? config_.layers - 1 : batch.layers.back();
    const uint32_t g = kv.layout().layer(layer).group;
    plan_group(last_groups_[g], g, *last, kv);
  }
  for (uint32_t l = 0; l < config_.layers; ++l) next_item_[l].store(0, std::memory_order_relaxed);
}

void AttentionRunner::plan_group(Group& group, uint32_t index, const ForwardBatch& batch,
                                 const KvStore& kv) const {
  const auto& place = kv.layout().groups()[index];
  CHECK(group.plan.shape().window == place.window);
  group.plan.plan(batch, index, place.units, kv.layout().block_size());
  const auto units = group.plan.units();
  for (size_t u = 0; u < units.size(); ++u) {
    for (uint32_t h = 0; h < config_.kv_heads; ++h)
      group.pending[u * config_.kv_heads + h].store(units[u].pieces, std::memory_order_relaxed);
  }
}

void AttentionRunner::ready_all(Worker& worker, const ForwardBatch& batch, const LayerHeads& heads) const {
  const auto [begin, end] = worker.share(batch.tokens.size());
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const ForwardBatch::Sequence& seq = batch.sequences[s];
    const auto lo = static_cast<uint32_t>(std::max<uint64_t>(begin, seq.first_row));
    const auto hi = static_cast<uint32_t>(std::min<uint64_t>(end, seq.first_row + seq.rows));
    for (uint32_t row = lo; row < hi; ++row) {
      for (uint32_t h = 0; h < config_.kv_heads; ++h) heads.ready(s, row, h);
    }
  }
  worker.barrier();
}

void AttentionRunner::run(Worker& worker, const ForwardBatch& batch, const KvStore& kv, uint32_t layer,
                          const StepBuffers& buffers, const LayerHeads* heads, const float* sinks) {
  Group& group = groups_[kv.layout().layer(layer).group];
  const bool alone = group.plan.rows_stand_alone();
  if (heads != nullptr && !alone) ready_all(worker, batch, *heads);
  run_items(worker, {batch, kv, buffers, layer, group, alone ? heads : nullptr, sinks, quantizes_items_});
  worker.barrier();
  if (!quantizes_items_) quantize_rows(worker, batch, buffers);
}

void AttentionRunner::run_last(Worker& worker, const ForwardBatch& last, const KvStore& kv, uint32_t layer,
                               const StepBuffers& buffers, const float* sinks) {
  Group& group = last_groups_[kv.layout().layer(layer).group];
  run_items(worker, {last, kv, buffers, layer, group, nullptr, sinks, false});
  worker.barrier();
}

void AttentionRunner::run_items(const Worker& worker, const Layer& layer) {
  const auto items = layer.group.plan.items();
  for (;;) {
    const uint32_t i = next_item_[layer.index].fetch_add(1, std::memory_order_relaxed);
    if (i >= items.size()) break;
    run_item(items[i], layer, layer.buffers.scratch(worker.index()));
  }
}

// All rows, where the columns of a KV head are no whole groups. Ends at a barrier.
void AttentionRunner::quantize_rows(Worker& worker, const ForwardBatch& batch,
                                    const StepBuffers& buffers) const {
  const uint32_t columns = config_.q_dim();
  const auto [begin, end] = worker.share(batch.tokens.size());
  const auto first = static_cast<uint32_t>(begin), count = static_cast<uint32_t>(end - begin);
  kernels_.quantize_rows(buffers.attn + begin * columns, columns, count, columns, buffers.attn_q, first);
  worker.barrier();
}

void AttentionRunner::run_item(const AttentionPlan::Item& item, const Layer& layer, std::byte* scratch) {
  const KvLayout::Layer& place = layer.kv.layout().layer(layer.index);
  const auto units = layer.group.plan.units().subspan(item.unit_begin, item.unit_count);
  constexpr uint32_t kMaxRows = std::max(kAttnMaxRows, kLatentMaxRows);
  std::array<AttentionSequence, kMaxRows> sequences;
  std::array<const float*, kMaxRows> q;
  std::array<float*, kMaxRows> out;
  std::array<int32_t, kMaxRows> positions;
  std::array<float, kMaxRows> sinks;
  uint32_t n = 0;
  for (size_t u = 0; u < units.size(); ++u) {
    const AttentionPlan::Unit& unit = units[u];
    const uint32_t rows = unit.tokens * query_group_;
    if (layer.heads != nullptr) layer.heads->ready(unit.sequence, unit.first_row, item.kv_head);
    sequences[u] = {layer.batch.sequences[unit.sequence].tables[place.group] + place.unit, rows};
    for (uint32_t r = 0; r < rows; ++r, ++n) {
      q[n] = layer.buffers.q + query_of(unit, item.kv_head, r);
      out[n] = result_of(unit, item.kv_head, r, layer);
      if (layer.sinks != nullptr) sinks[n] = layer.sinks[item.kv_head * query_group_ + r % query_group_];
      positions[n] = layer.batch.positions[unit.first_row + r / query_group_];
      if (item.partial) {
        const uint32_t first = layer.group.plan.partials_of(unit, item.kv_head, r);
        out[n] = partial(first + item.split_begin - unit.first_split);
      }
    }
  }
  kernels_.attention({.kv = kv_planes(layer.kv, layer.index),
                      .kv_head = item.kv_head,
                      .sequences = sequences.data(),
                      .sequence_count = item.unit_count,
                      .block_stride = layer.kv.layout().groups()[place.group].units,
                      .shared = item.shared,
                      .rows = n,
                      .q = q.data(),
                      .out = item.partial ? nullptr : out.data(),
                      .positions = positions.data(),
                      .window = config_.windows[layer.index],
                      .scale = config_.attention_scale,
                      .softcap = config_.attention_softcap,
                      .sinks = layer.sinks == nullptr ? nullptr : sinks.data(),
                      .partials = item.partial ? out.data() : nullptr,
                      .split_begin = item.split_begin,
                      .split_end = item.split_end,
                      .scratch = scratch});
  if (item.partial)
    end_piece(item, layer);
  else
    for (const AttentionPlan::Unit& unit : units) quantize(unit, item.kv_head, layer);
}

// Whoever ends the last piece of a unit merges it, and makes its counter ready for the next layer: nobody
// looks at it again before the barrier.
void AttentionRunner::end_piece(const AttentionPlan::Item& item, const Layer& layer) {
  const auto units = layer.group.plan.units();
  for (uint32_t u = item.unit_begin; u < item.unit_begin + item.unit_count; ++u) {
    std::atomic<uint32_t>& pending = layer.group.pending[u * config_.kv_heads + item.kv_head];
    if (pending.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    pending.store(units[u].pieces, std::memory_order_relaxed);
    merge(units[u], item.kv_head, layer);
    quantize(units[u], item.kv_head, layer);
  }
}

void AttentionRunner::merge(const AttentionPlan::Unit& unit, uint32_t kv_head, const Layer& layer) {
  for (uint32_t r = 0; r < unit.tokens * query_group_; ++r) {
    const uint32_t position = unit.first_position + r / query_group_;
    const uint32_t first = first_visible(config_.windows[layer.index], position) / kAttnSplit;
    const uint32_t at = layer.group.plan.partials_of(unit, kv_head, r) + first - unit.first_split;
    const float sink = layer.sinks == nullptr ? -std::numeric_limits<float>::infinity()
                                              : layer.sinks[kv_head * query_group_ + r % query_group_];
    kernels_.merge_attention(partial(at), position / kAttnSplit + 1 - first, config_.value_dim(), sink,
                             result_of(unit, kv_head, r, layer));
  }
}

void AttentionRunner::quantize(const AttentionPlan::Unit& unit, uint32_t kv_head, const Layer& layer) {
  if (!layer.quantized) return;
  if (config_.mla) {
    const uint32_t n = config_.value_dim();
    for (uint32_t h = 0; h < config_.heads; ++h)
      kernels_.quantize_rows(result_of(unit, kv_head, h, layer), n, unit.tokens, n,
                             layer.buffers.mla.latent_q[h], unit.first_row);
    return;
  }
  const uint32_t columns = query_group_ * config_.head_dim;
  kernels_.quantize_rows(result_of(unit, kv_head, 0, layer), config_.q_dim(), unit.tokens, columns,
                         advance_groups(layer.buffers.attn_q, kv_head * columns / kGroup), unit.first_row);
}

float* AttentionRunner::result_of(const AttentionPlan::Unit& unit, uint32_t kv_head, uint32_t row,
                                  const Layer& layer) const {
  if (!config_.mla) return layer.buffers.attn + query_of(unit, kv_head, row);
  const uint32_t token = unit.first_row + row / query_group_;
  const uint32_t head = row % query_group_;
  return layer.buffers.mla.latent + (size_t{head} * max_rows_ + token) * config_.value_dim();
}

size_t AttentionRunner::query_of(const AttentionPlan::Unit& unit, uint32_t kv_head, uint32_t row) const {
  const uint32_t token = unit.first_row + row / query_group_;
  const uint32_t head = kv_head * query_group_ + row % query_group_;
  return token * static_cast<size_t>(config_.q_dim()) + size_t{head} * config_.head_dim;
}

float* AttentionRunner::partial(uint32_t index) const {
  return reinterpret_cast<float*>(partials_.data()) +
         size_t{index} * attention_partial_floats(config_.value_dim());
}

}  // namespace kvasir
