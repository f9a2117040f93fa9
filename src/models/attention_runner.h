#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/table.h"
#include "kvcache/kv_store.h"
#include "models/attention_plan.h"
#include "models/causal_lm.h"
#include "models/layer_heads.h"
#include "models/step_buffers.h"

namespace kvasir {

// Plans and runs the attention of a step: one plan per KV group, one cursor per layer from which threads take
// items, and the buffer of partial results. Everything is allocated at construction.
class AttentionRunner {
 public:
  AttentionRunner(const ModelConfig& config, const CausalLm::Limits& limits, const KernelTable& kernels,
                  uint32_t threads);

  // Before the parallel region of a step. `last`: what run_last() computes; null: it is not called.
  void plan(const ForwardBatch& batch, const KvStore& kv, const ForwardBatch* last = nullptr);

  // Makes all rows of the batch ready, each thread its share. Ends at a barrier: rows of a sequence see one
  // another.
  void ready_all(Worker& worker, const ForwardBatch& batch, const LayerHeads& heads) const;

  // One layer of the planned batch: reads buffers.q and the pool, writes buffers.attn (with MLA
  // buffers.mla.latent) and its quantised form. Before that makes the rows `heads` ready, each where its
  // attention is computed if nobody else sees it, as in a step of single decodes; else all of them first.
  // Null: they are ready. `sinks` is null or has one score per head. Items go to whichever worker is free:
  // the order cannot touch a result. Ends at a barrier.
  void run(Worker& worker, const ForwardBatch& batch, const KvStore& kv, uint32_t layer,
           const StepBuffers& buffers, const LayerHeads* heads, const float* sinks);

  // The layer behind which only the rows of `last`, as planned, go on: reads and writes these rows of the
  // buffers as run() does, all of whose rows are ready. Nothing is quantised. Ends at a barrier.
  void run_last(Worker& worker, const ForwardBatch& last, const KvStore& kv, uint32_t layer,
                const StepBuffers& buffers, const float* sinks);

  size_t bytes() const { return partials_.size(); }

  // The buffer of partial results is no larger than a step of max_rows rows over the whole context needs, and
  // never larger than this; what finds no place in it is not cut.
  static constexpr size_t kMaxPartialBytes = size_t{8} << 20;

 private:
  struct Group {
    AttentionPlan plan;
    // Pieces of each cut unit that are not done yet, per KV head: [units][kv_heads].
    std::unique_ptr<std::atomic<uint32_t>[]> pending;
  };
  struct Layer {
    const ForwardBatch& batch;
    const KvStore& kv;
    const StepBuffers& buffers;
    uint32_t index;
    Group& group;
    const LayerHeads* heads;  // null: all rows are ready
    const float* sinks;       // [heads] or null
    bool quantized;           // whether results are quantised where they are computed
  };

  void plan_group(Group& group, uint32_t index, const ForwardBatch& batch, const KvStore& kv) const;
  void run_items(const Worker& worker, const Layer& layer);
  void run_item(const AttentionPlan::Item& item, const Layer& layer, std::byte* scratch);
  void end_piece(const AttentionPlan::Item& item, const Layer& layer);
  void merge(const AttentionPlan::Unit& unit, uint32_t kv_head, const Layer& layer);
  void quantize(const AttentionPlan::Unit& unit, uint32_t kv_head, const Layer& layer);
  void quantize_rows(Worker& worker, const ForwardBatch& batch, const StepBuffers& buffers) const;
  // Where a row of a unit lies in buffers.q, and its result; `row` counts (token, query head) pairs.
  size_t query_of(const AttentionPlan::Unit& unit, uint32_t kv_head, uint32_t row) const;
  float* result_of(const AttentionPlan::Unit& unit, uint32_t kv_head, uint32_t row, const Layer& layer) const;
  float* partial(uint32_t index) const;

  const ModelConfig& config_;
  const KernelTable& kernels_;
  uint32_t query_group_;  // query heads per KV head
  uint32_t max_rows_;     // of a step
  bool quantizes_items_;  // whether a KV head's results are whole groups of quantised columns
  std::vector<Group> groups_;
  std::vector<Group> last_groups_;                      // of the layer that run_last() computes
  std::unique_ptr<std::atomic<uint32_t>[]> next_item_;  // per layer
  AlignedBuffer partials_;
};

}  // namespace kvasir
