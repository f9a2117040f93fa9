#pragma once

#include <optional>

#include "perf/derivation.h"
#include "perf/machine_spec.h"
#include "perf/model_shape.h"
#include "perf/performance_formulas.h"

namespace kvasir {

// compute_transformer_performance_stats() as quantities, with what a report about a model on a machine adds
// to it. Ids, in this order:
//   parameters                 and, of mixtures and MLA, the parts it is the sum of: embedding_parameters,
//                              attention_parameters, ffn_parameters, expert_parameters
//   parameter_bytes, kv_bytes_per_token_layer, kv_bytes_per_token, kv_positions, kv_bytes_per_sequence,
//   memory_bytes
//   step_weight_bytes          of mixtures, with expert_bytes, active_expert_bytes, active_parameters and
//                              experts_touched
//   weight_bytes_read          where that is not parameter_bytes: of mixtures, and with embedding_bytes of
//                              models whose embedding is not the output head
//   read_bytes, bandwidth, latency_seconds, throughput
// and with a machine
//   largest_batch              where its memory is known
//   ridge_point, critical_batch
//   flops_per_token, compute_seconds, compute_bound_batch    of dense models without MLA; the last where
//   there
//                              is such a batch
// Without options.bandwidth the machine's is taken: that of a working set of read_bytes, times what is
// reachable. Every value is what the function of that name in perf/*_formulas.h returns. Errors are theirs,
// and kInvalidArgument where there is neither a bandwidth nor a machine.
Result<Derivation> derive_performance(const ModelShape& shape, PerformanceOptions options,
                                      const MachineSpec* machine);

// Appends expected tokens per step and speed-up of speculative decoding with k drafts. Ids: tokens_per_step,
// accepted_drafts, speculation_speedup.
void derive_speculation(Derivation& derivation, double acceptance, uint32_t drafts, double draft_cost,
                        double verify_cost);

// Appends the waste of contiguous and paged KV allocation. Ids: contiguous_waste, paged_waste, paging_gain.
void derive_paging(Derivation& derivation, uint64_t sequence, uint64_t reserved, uint64_t block);

}  // namespace kvasir
