#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perf/derivation.h"
#include "perf/plan.h"

namespace kvasir {

// The numbers of a plan as quantities. derive_performance() for one conversation (perf/performance_report.h),
// and then, each the value of the function of perf/plan.h:
//   exact_parameters          of a file's directory, or counted with norms and biases
//   memory_available, shared_prefix_bytes (with a shared prefix), conversations    where memory is known
//   weights_as_<format> of plan_weight_formats(), kv_as_<format>_token and kv_as_<format>_conversation of
//   plan_kv_formats()
//   matrix_rate, attention_rate                             FLOPs per second that are reachable
//   projections_weights, ffn_weights, expert_weights, head_weights    of the kinds that the model has
//   prefill_pairs, prefill_seen, prefill_<kind>_flops, _bytes, _seconds of every kind, prefill_bytes,
//   prefill_bandwidth, prefill_read_seconds, prefill_compute_seconds, ttft
//   batch_<B>_<kind>_flops ... batch_<B>_compute_seconds likewise, batch_<B>_tpot, batch_<B>_throughput,
//   batch_<B>_memory          for every batch
//   predicted_<prefix>_linear_<format>, _head_<format>, _logits, _attention, _rows, _barriers (what it has),
//   predicted_ttft, ttft_reached, and the same of batch_<B>_tpot, predicted_batch_<B>_throughput   with a
//                             predictor: prefix is prefill or batch_<B>
//   context_<C>_ttft, _tpot, _throughput of plan_contexts(), for the goals' batch, and
//   predicted_context_<C>_... users_ttft                the last first token when all the users' prompts come
//   at once longest_prompt, batch_limit    what is within the goals
// <kind> is kind_id() of step_work()'s names. Errors are those of derive_performance().
Result<Derivation> derive_plan(const PlanInput& input, const PlanGoals& goals,
                               std::span<const uint64_t> batches);

// Formats to compare: the one the plan uses first, then those that people choose among.
std::vector<WeightFormat> plan_weight_formats(const PlanInput& input);
std::vector<KvFormat> plan_kv_formats(const PlanInput& input);
// "Q4_K mostly" -> "Q4_K_mostly": letters, digits and '_', as ids have them.
std::string id_part(std::string_view name);

// "attention projections" -> "projections", "feed-forward" -> "ffn", "output head" -> "head"; others as they
// are.
std::string kind_id(std::string_view kind);
// "batch_8_tpot" for 8 and "tpot".
std::string batch_id(uint64_t batch, std::string_view what);
// "context_512_tpot" for 512 and "tpot".
std::string context_id(uint64_t context, std::string_view what);
// "predicted_ttft" and "ttft_reached" of "ttft".
std::string predicted_id(std::string_view floor);
std::string reached_id(std::string_view floor);
// The prediction of a floor where the plan has one, else the floor.
std::string best_id(const Derivation& derivation, std::string_view floor);

}  // namespace kvasir
