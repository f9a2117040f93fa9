#include "perf/performance_report.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "perf/kv_formulas.h"
#include "perf/parameter_formulas.h"
#include "perf/report_parts.h"
#include "perf/work_formulas.h"

namespace kvasir {
namespace {

using namespace report;  // NOLINT: this file is one of its parts

// What the cache would be if every query head kept K and V of its own.
void add_kv_of_mha(const Report& r) {
  const ModelShape& s = r.shape;
  const KvFormat& kv = r.options.kv;
  if (s.attention() == AttentionKind::kMha) return;
  Quantity q{.id = "mha_bytes_per_token",
             .title = "KV cache of a token if every query head had K and V of its own",
             .value = mha_kv_bytes_per_token(s, kv),
             .unit = "bytes",
             .formula = s.mla ? "L * N * ((P + R + U) * e + c)" : "L * N * (2 * H * e + c)",
             .inputs = {layer_count(s), query_heads(s),
                        given("e", fmt::format("bytes per value as {}", kv.name), kv.value_bytes()),
                        given("c", "scales of a KV head", kv.scale_bytes, "bytes")},
             .source = s.mla ? kDeepSeek : kBook};
  if (s.mla) {
    q.inputs.push_back(given("P", "other part of a key", s.mla->qk_nope_head_dim));
    q.inputs.push_back(given("R", "rotated part of a key", s.mla->qk_rope_head_dim));
    q.inputs.push_back(given("U", "value size", s.mla->v_head_dim));
  } else {
    q.inputs.push_back(given("H", "head size", s.head_dim));
  }
  r.out.add(std::move(q));
}

void add_kv_per_token(const Report& r) {
  const ModelShape& s = r.shape;
  const KvFormat& kv = r.options.kv;
  Quantity q{.id = "kv_bytes_per_token_layer",
             .title = "KV cache of a token in one layer",
             .value = kv_bytes_per_token_layer(s, kv),
             .unit = "bytes",
             .formula = s.mla ? "(C + R) * e" : "2 * K * H * e",
             .inputs = {given("e", fmt::format("bytes per value as {}", kv.name), kv.value_bytes())},
             .source = s.mla ? kDeepSeek : kBook};
  const uint32_t scales = s.mla ? kv.mla_scale_bytes : kv.scale_bytes;
  if (s.mla) {
    q.inputs.push_back(given("C", "rank of the latent", s.mla->kv_lora_rank));
    q.inputs.push_back(given("R", "rotated part of a key", s.mla->qk_rope_head_dim));
  } else {
    q.inputs.push_back(given("K", "KV heads", s.kv_heads));
    q.inputs.push_back(given("H", "head size", s.head_dim));
  }
  if (scales > 0) {
    q.formula += s.mla ? " + c" : " + K * c";
    q.inputs.push_back(given("c", s.mla ? "scales" : "scales of a KV head", scales, "bytes"));
  }
  r.out.add(std::move(q));
  r.out.add({.id = "kv_bytes_per_token",
             .title = "KV cache of a token",
             .value = r.stats.kv_bytes_per_token,
             .unit = "bytes",
             .formula = "L * t",
             .inputs = {layer_count(s), of("t", "kv_bytes_per_token_layer")},
             .source = kBook});
  add_kv_of_mha(r);
}

void add_kv_per_sequence(const Report& r) {
  Quantity q{.id = "kv_positions",
             .title = "positions kept, summed over the layers",
             .value = static_cast<double>(kv_positions(r.shape, r.options.sequence)),
             .unit = "",
             .formula = "",
             .inputs = {length(r)},
             .source = kBook};
  for (const WindowGroup& group : window_groups(r.shape)) {
    const std::string symbol = group.window == 0 ? "L" : fmt::format("L{}", group.window);
    const std::string limit = fmt::format("W{}", group.window);
    q.formula += q.formula.empty() ? "" : " + ";
    q.formula += group.window == 0 ? symbol + " * S" : fmt::format("{} * min(S, {})", symbol, limit);
    q.inputs.push_back(given(
        symbol, group.window == 0 ? "layers that see everything" : "layers with a window", group.layers));
    if (group.window > 0) q.inputs.push_back(given(limit, "window", group.window));
  }
  r.out.add(std::move(q));
  r.out.add({.id = "kv_bytes_per_sequence",
             .title = "KV cache of one sequence",
             .value = r.stats.kv_bytes_per_sequence,
             .unit = "bytes",
             .formula = "t * n",
             .inputs = {of("t", "kv_bytes_per_token_layer"), of("n", "kv_positions")},
             .source = kBook});
}

void add_memory(const Report& r) {
  r.out.add({.id = "memory_bytes",
             .title = "memory for weights and KV cache",
             .value = r.stats.memory_bytes,
             .unit = "bytes",
             .formula = "B * C + P",
             .inputs = {batch(r), of("C", "kv_bytes_per_sequence"), of("P", "parameter_bytes")},
             .source = kBook});
}

// Of all experts, of those that a token uses, and of those that the batch touches.
void add_expert_bytes(const Report& r) {
  const ModelShape& s = r.shape;
  const double all = expert_bytes(s, r.format());
  Quantity q{.id = "expert_bytes", .title = "routed experts", .value = all, .unit = "bytes"};
  if (!r.options.weights && s.stored_expert_bytes) {
    q.formula = "T";
    q.inputs = {given("T", "tensors of routed experts of the file", all, "bytes")};
    q.source = s.source;
  } else {
    q.formula = "P * X / n";
    q.inputs = {of("P", "parameter_bytes"), of("X", "expert_parameters"), of("n", "parameters")};
    q.source = "counts of matrices";
  }
  r.out.add(std::move(q));
  const QuantityInput count = given("E", "experts of a layer", s.moe->experts);
  const QuantityInput used = given("A", "experts per token", s.moe->experts_used);
  r.out.add({.id = "active_expert_bytes",
             .title = "routed experts that one token uses",
             .value = all * s.moe->experts_used / s.moe->experts,
             .unit = "bytes",
             .formula = "X * A / E",
             .inputs = {of("X", "expert_bytes"), used, count},
             .source = kDeepSeek});
  r.out.add({.id = "active_parameters",
             .title = "parameters that one token uses",
             .value = static_cast<double>(active_parameters(s)),
             .formula = "n - X * (E - A) / E",
             .inputs = {of("n", "parameters"), of("X", "expert_parameters"), count, used},
             .source = kDeepSeek});
}

// The weights of a step as the formula counts them: those of experts that the batch touches.
void add_step_weights(const Report& r) {
  const ModelShape::Moe& moe = *r.shape.moe;
  add_expert_bytes(r);
  r.out.add({.id = "experts_touched",
             .title = "experts of a layer that a step touches, if chosen evenly",
             .value = expected_experts(moe.experts, moe.experts_used, static_cast<double>(r.options.batch)),
             .unit = "",
             .formula = "E * (1 - (1 - A / E)^B)",
             .inputs = {given("E", "experts of a layer", moe.experts),
                        given("A", "experts per token", moe.experts_used), batch(r)},
             .source = "expectation of independent, even choices"});
  r.out.add({.id = "step_weight_bytes",
             .title = "weights of a step, by the formula",
             .value = step_weight_bytes(r.shape, r.format(), static_cast<double>(r.options.batch)),
             .unit = "bytes",
             .formula = "P - X * (1 - T / E)",
             .inputs = {of("P", "parameter_bytes"), of("X", "expert_bytes"), of("T", "experts_touched"),
                        given("E", "experts of a layer", moe.experts)},
             .source = kBook});
}

void add_embedding_bytes(const Report& r) {
  const ModelShape& s = r.shape;
  const WeightFormat& format = r.options.weights ? *r.options.weights : s.weights;
  Quantity q{.id = "embedding_bytes",
             .title = "the embedding",
             .value = embedding_bytes(s, r.format()),
             .unit = "bytes",
             .formula = "V * D * w / 8",
             .inputs = {given("V", "vocabulary", s.vocab), width(s),
                        given("w", fmt::format("bits per weight as {}", format.name), format.bits)},
             .source = kTransformers};
  if (!r.options.weights && s.stored_embedding_bytes) {
    q.formula = "T";
    q.inputs = {given("T", "the file's tensor token_embd.weight", q.value, "bytes")};
    q.source = s.source;
  }
  r.out.add(std::move(q));
}

// `counted`: what the formula counts.
void add_weight_bytes_read(const Report& r, const std::string& counted) {
  Quantity q{.id = "weight_bytes_read",
             .title = "weights that a step reads",
             .value = weight_bytes_read(r.shape, r.format(), static_cast<double>(r.options.batch)),
             .unit = "bytes",
             .formula = "P",
             .inputs = {of("P", counted)},
             .source = "a token looks up one row of an embedding that is not the output head"};
  if (!r.shape.tied_embeddings) {
    add_embedding_bytes(r);
    q.formula = "P - e * (1 - min(B, V) / V)";
    q.inputs.insert(q.inputs.end(),
                    {of("e", "embedding_bytes"), batch(r), given("V", "vocabulary", r.shape.vocab)});
  }
  r.out.add(std::move(q));
}

void add_speed(const Report& r, const MachineSpec* machine, double published) {
  const std::string counted = r.shape.moe ? "step_weight_bytes" : "parameter_bytes";
  if (r.shape.moe) add_step_weights(r);
  if (r.shape.moe || !r.shape.tied_embeddings) add_weight_bytes_read(r, counted);
  r.out.add({.id = "read_bytes",
             .title = r.shape.tied_embeddings
                          ? "bytes that a decode step reads"
                          : "bytes of a decode step by the formula, which counts the whole embedding",
             .value = r.stats.read_bytes,
             .unit = "bytes",
             .formula = "B * C + P",
             .inputs = {batch(r), of("C", "kv_bytes_per_sequence"), of("P", counted)},
             .source = kBook});
  Quantity bandwidth{.id = "bandwidth",
                     .title = "memory bandwidth",
                     .value = r.options.bandwidth,
                     .unit = "bytes/s",
                     .formula = "w",
                     .inputs = {given("w", "given", r.options.bandwidth, "bytes/s")},
                     .source = "as given"};
  if (published > 0) {
    bandwidth.formula = "w * r";
    bandwidth.inputs = {given("w", fmt::format("bandwidth of {}", machine->name), published, "bytes/s"),
                        given("r", "part that is typically reached", machine->reachable_bandwidth)};
    bandwidth.source = machine->reachable_source.empty() ? machine->source : machine->reachable_source;
  }
  r.out.add(std::move(bandwidth));
  r.out.add({.id = "latency_seconds",
             .title = "a decode step at the limit of memory",
             .value = r.stats.latency_seconds,
             .unit = "s",
             .formula = "M / W",
             .inputs = {of("M", "read_bytes"), of("W", "bandwidth")},
             .source = kBook});
  r.out.add({.id = "throughput",
             .title = "tokens per second of all sequences",
             .value = r.stats.throughput,
             .unit = "tokens/s",
             .formula = "B / T",
             .inputs = {batch(r), of("T", "latency_seconds")},
             .source = kBook});
}

QuantityInput peak(const Report& r, const MachineSpec& machine) {
  return given("m", fmt::format("multiply-adds of {} bits by {}", r.options.compute_bits, machine.name),
               machine.macs(r.options.compute_bits), "1/s");
}

void add_compute(const Report& r, const MachineSpec& machine) {
  const ModelShape& s = r.shape;
  Quantity flops{.id = "flops_per_token",
                 .title = "FLOPs of one token",
                 .value = decode_flops(s, r.options.sequence),
                 .unit = "",
                 .formula = s.tied_embeddings ? "2 * n + 4 * N * H * v" : "2 * (n - V * D) + 4 * N * H * v",
                 .inputs = {of("n", "parameters"), query_heads(s), given("H", "head size", s.head_dim),
                            of("v", "kv_positions")},
                 .source = kFlops};
  if (!s.tied_embeddings)
    flops.inputs.insert(flops.inputs.end(), {given("V", "vocabulary", s.vocab), width(s)});
  r.out.add(std::move(flops));
  r.out.add({.id = "compute_seconds",
             .title = "a decode step at the limit of computing",
             .value = static_cast<double>(r.options.batch) * r.out.value("flops_per_token") /
                      (2 * machine.macs(r.options.compute_bits)),
             .unit = "s",
             .formula = "B * f / (2 * m)",
             .inputs = {batch(r), of("f", "flops_per_token"), peak(r, machine)},
             .source = kRoofline});
  const auto bound = compute_bound_batch(s, machine, r.options);
  if (!bound) return;
  r.out.add(
      {.id = "compute_bound_batch",
       .title = "batch at which computing takes as long as reading",
       .value = *bound,
       .unit = "",
       .formula = "P / w / (f / (2 * m) - C / w)",
       .inputs = {of("P", "parameter_bytes"), given("w", "published bandwidth", machine.bandwidth, "bytes/s"),
                  of("f", "flops_per_token"), peak(r, machine), of("C", "kv_bytes_per_sequence")},
       .source = kBook});
}

void add_machine(const Report& r, const MachineSpec& machine) {
  const ModelShape& s = r.shape;
  if (machine.memory_bytes > 0)
    r.out.add(
        {.id = "largest_batch",
         .title = "sequences of that length that fit in memory",
         .value = static_cast<double>(largest_batch(static_cast<double>(machine.memory_bytes),
                                                    r.stats.parameter_bytes, r.stats.kv_bytes_per_sequence)),
         .unit = "",
         .formula = "max(0, floor((M - P) / C))",
         .inputs = {given("M", fmt::format("memory of {}", machine.name),
                          static_cast<double>(machine.memory_bytes), "bytes"),
                    of("P", "parameter_bytes"), of("C", "kv_bytes_per_sequence")},
         .source = kBook});
  r.out.add({.id = "ridge_point",
             .title = "FLOPs per byte from which computing is the limit",
             .value = ridge_point(machine, r.options.compute_bits),
             .unit = "",
             .formula = "2 * m / w",
             .inputs = {peak(r, machine), given("w", "published bandwidth", machine.bandwidth, "bytes/s")},
             .source = kRoofline});
  const WeightFormat& format = r.options.weights ? *r.options.weights : s.weights;
  Quantity critical{.id = "critical_batch",
                    .title = "batch at which the matrices turn compute-bound",
                    .value = critical_batch(s, machine, format.bits, r.options.compute_bits),
                    .unit = "",
                    .formula = "r * w / 16",
                    .inputs = {of("r", "ridge_point"),
                               given("w", fmt::format("bits per weight as {}", format.name), format.bits)},
                    .source = kBook};
  if (s.moe) {
    critical.formula += " * E / A";
    critical.inputs.push_back(given("E", "experts of a layer", s.moe->experts));
    critical.inputs.push_back(given("A", "experts per token", s.moe->experts_used));
  }
  r.out.add(std::move(critical));
  if (!s.moe && !s.mla) add_compute(r, machine);
}

}  // namespace

Result<Derivation> derive_performance(const ModelShape& shape, PerformanceOptions options,
                                      const MachineSpec* machine) {
  double published = 0;  // the machine's, where it is what counts
  if (options.bandwidth == 0 && machine != nullptr) {
    options.bandwidth = 1;
    KVASIR_ASSIGN_OR_RETURN(const PerformanceStats sizes,
                            compute_transformer_performance_stats(shape, options));
    published = machine->read_rate(static_cast<uint64_t>(sizes.read_bytes));
    options.bandwidth = published * machine->reachable_bandwidth;
  }
  KVASIR_ASSIGN_OR_RETURN(const PerformanceStats stats,
                          compute_transformer_performance_stats(shape, options));
  Derivation derivation;
  const Report r{shape, options, stats, derivation};
  add_parameters(r);
  add_kv_per_token(r);
  add_kv_per_sequence(r);
  add_memory(r);
  add_speed(r, machine, published);
  if (machine != nullptr) add_machine(r, *machine);
  return derivation;
}

}  // namespace kvasir
