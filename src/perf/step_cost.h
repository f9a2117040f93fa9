#pragma once

#include <cstdint>
#include <span>

#include "base/kv_type.h"
#include "models/model_config.h"
#include "models/weight_sizes.h"
#include "perf/hardware_profile.h"

namespace kvasir {

// One sequence's share of a step: `rows` new tokens at the positions context .. context + rows - 1.
struct StepRows {
  uint32_t rows = 0;
  uint32_t context = 0;  // tokens computed before
  // Of a shared prefix: so many positions from 0 on lie in the same KV blocks as those of sequences that were
  // named before, which have `beside` rows together. They are read once for all of these.
  uint32_t shared = 0;
  uint32_t beside = 0;
};

// Positions that the rows see in a layer with this window (0: no window), each counted once: context + rows,
// less those before the first row's window.
uint64_t seen_positions(const StepRows& rows, uint32_t window);
// Pairs of a row and a position that it sees: the sum over the rows at position p of p + 1, at most the
// window.
uint64_t visible_pairs(const StepRows& rows, uint32_t window);

// The work that a forward pass cannot avoid, whatever the kernels. Formulas, with R rows, of which G want
// logits; L layers, H query heads, H_kv KV heads, D values per head:
//
//   weight_bytes    layer_bytes + (head_bytes if G > 0) + R * embedding_row_bytes
//                   Every matrix once: kernels keep a panel in cache for all rows. Of E experts of which a
//                   row uses A those that R rows choose if they choose evenly, E (1 - (1 - A/E)^R).
//   kv_read_bytes   sum over sequences and layers: seen * H_kv * (D * 2 planes * 2 bytes; int8: D * 2 + 8)
//                   `seen` counts the positions that any of the sequence's rows sees: context + rows, less
//                   those before the first row's window. Each once, as if rows and query heads that share a
//                   position shared its load; the step's own rows count, for they are read back; a shared
//                   prefix counts for the first of its sequences.
//                   Of latent rows (MLA) H_kv = 1, D = latent + rotated key, and one plane.
//   kv_write_bytes  R * L * H_kv * the same
//   linear_macs     R * layer_macs - (R - G) * last_macs + G * head_macs
//                   (int8 times int8 for quantised weights; nobody reads what the last layer would make of
//                   the other rows behind its K and V)
//   attention_macs  sum over sequences, layers and rows: visible(row) * H * D * 2   (f32: q.k and p.v)
//                   Of the last layer G / R of it, as if all rows saw alike.
//                   visible(row at position p) = p + 1, at most the layer's window. Of MLA, which is always
//                   absorbed: H * (2 latent + rotated key) in place of H * D * 2.
//
// Left out, as small: norms, RoPE, activations and their quantisation, the exponentials of attention, logits
// (4 bytes each), the residual stream, which stays in cache. Roofline model: Williams, Waterman and
// Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
struct StepCost {
  uint64_t weight_bytes = 0;
  uint64_t kv_read_bytes = 0;
  uint64_t kv_write_bytes = 0;
  uint64_t linear_macs = 0;
  uint64_t attention_macs = 0;

  uint64_t read_bytes() const { return weight_bytes + kv_read_bytes; }
  StepCost& operator+=(const StepCost& other);
};

StepCost step_cost(const ModelConfig& config, const WeightSizes& weights, std::span<const StepRows> sequences,
                   uint32_t logit_rows, KvType kv_type = KvType::kF16);

// The least seconds a machine needs for it: its bytes at the machine's read rate for a working set of this
// size, its multiply-adds at the peaks of their kinds. Reading and computing overlap, so the larger bounds.
struct StepFloor {
  double read_seconds = 0;
  double compute_seconds = 0;

  bool memory_bound() const { return read_seconds >= compute_seconds; }
  double seconds() const { return memory_bound() ? read_seconds : compute_seconds; }
};
// `threads`: how many of the machine's the step runs on. For the sum of several like steps give their number:
// the working set is that of one.
StepFloor step_floor(const StepCost& cost, const HardwareProfile& machine, uint32_t threads,
                     uint64_t steps = 1);

}  // namespace kvasir
