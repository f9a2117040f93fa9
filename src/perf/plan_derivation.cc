#include "perf/plan_derivation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perf/kv_formulas.h"
#include "perf/parameter_formulas.h"
#include "perf/performance_report.h"
#include "perf/plan_parts.h"

namespace kvasir {
namespace {

using namespace plan_parts;  // NOLINT: this file is one of its parts

void add_exact_parameters(const Parts& p) {
  const ModelShape& s = p.input.shape;
  if (s.stored_parameters) {
    p.out.add({.id = "exact_parameters",
               .title = "parameters, exactly",
               .value = static_cast<double>(*s.stored_parameters),
               .formula = "t",
               .inputs = {given("t", "numbers of all tensors of the file",
                                static_cast<double>(*s.stored_parameters))},
               .source = s.source});
    return;
  }
  const ParameterCount count = count_parameters(s);
  p.out.add(
      {.id = "exact_parameters",
       .title = "parameters, with norms and biases",
       .value = static_cast<double>(count.total()),
       .formula = "n + v",
       .inputs = {of("n", "parameters"), given("v", "norms and biases", static_cast<double>(count.vectors))},
       .source = s.source});
}

// The experts of a decode step of that many conversations.
void add_touched_experts(const Parts& p, uint64_t batch) {
  const ModelShape::Moe& moe = *p.input.shape.moe;
  const auto b = static_cast<double>(batch);
  p.out.add({.id = "touched_expert_bytes",
             .title = fmt::format("routed experts that a step of {} touches, if chosen evenly", batch),
             .value = p.out.value("expert_bytes") * expected_experts(moe.experts, moe.experts_used, b) /
                      moe.experts,
             .unit = "bytes",
             .formula = "X * (1 - (1 - A / E)^B)",
             .inputs = {of("X", "expert_bytes"), given("A", "experts per token", moe.experts_used),
                        given("E", "experts of a layer", moe.experts), given("B", "conversations", b)},
             .source = "expectation of independent, even choices"});
}

void add_memory(const Parts& p) {
  const PlanInput& in = p.input;
  if (in.shared_prefix > 0) {
    p.out.add({.id = "shared_prefix_bytes",
               .title = "KV cache of the shared prefix, kept once",
               .value = kv_bytes_per_sequence(in.shape, in.kv, in.shared_prefix),
               .unit = "bytes",
               .formula = "b * n",
               .inputs = {of("b", "kv_bytes_per_token_layer"),
                          given("n", "positions of the prefix, summed over the layers",
                                static_cast<double>(kv_positions(in.shape, in.shared_prefix)))},
               .source = kPrefix});
  }
  if (in.machine.memory_bytes == 0) return;
  p.out.add({.id = "memory_available",
             .title = "memory for weights and KV cache",
             .value = static_cast<double>(in.machine.memory_bytes),
             .unit = "bytes",
             .formula = "M",
             .inputs = {given("M", fmt::format("memory of {}", in.machine.name),
                              static_cast<double>(in.machine.memory_bytes), "bytes")},
             .source = in.machine.source});
  Quantity fits{
      .id = "conversations",
      .title = "conversations of the whole context that fit in memory",
      .value = static_cast<double>(*conversations_in_memory(in)),
      .formula = "max(0, floor((M - P) / C))",
      .inputs = {of("M", "memory_available"), of("P", "parameter_bytes"), of("C", "kv_bytes_per_sequence")},
      .source = kBook};
  if (in.shared_prefix > 0) {
    fits.formula = "max(0, floor((M - P - s) / (C - s)))";
    fits.inputs.push_back(of("s", "shared_prefix_bytes"));
  }
  p.out.add(std::move(fits));
}

void add_formats(const Parts& p) {
  const PlanInput& in = p.input;
  for (const WeightFormat& format : plan_weight_formats(in)) {
    if (format.name == in.weight_format().name) continue;  // parameter_bytes
    p.out.add({.id = fmt::format("weights_as_{}", id_part(format.name)),
               .title = fmt::format("weights as {}", format.name),
               .value = parameter_bytes(in.shape, &format),
               .unit = "bytes",
               .formula = "n * w / 8",
               .inputs = {of("n", "parameters"), given("w", "bits per weight", format.bits)},
               .source = "bits per weight: ggml's block formats (src/base/dtype.h) or llama.cpp "
                         "tools/quantize/README.md"});
  }
  for (const KvFormat& format : plan_kv_formats(in)) {
    const std::string id = fmt::format("kv_as_{}", id_part(format.name));
    Quantity token{.id = id + "_token",
                   .title = fmt::format("KV cache of a token as {}", format.name),
                   .value = kv_bytes_per_token(in.shape, format),
                   .unit = "bytes",
                   .formula = in.shape.mla ? "L * ((C + R) * e + c)" : "L * K * (2 * H * e + c)",
                   .inputs = {given("L", "layers", in.shape.layers),
                              given("e", "bytes per value", format.value_bytes())},
                   .source = in.shape.mla ? kDeepSeek : kBook};
    const auto scales = in.shape.mla ? format.mla_scale_bytes : format.scale_bytes;
    token.inputs.push_back(
        given("c", in.shape.mla ? "scales of a row" : "scales of a KV head", scales, "bytes"));
    if (in.shape.mla) {
      token.inputs.push_back(given("C", "rank of the latent", in.shape.mla->kv_lora_rank));
      token.inputs.push_back(given("R", "rotated part of a key", in.shape.mla->qk_rope_head_dim));
    } else {
      token.inputs.push_back(given("K", "KV heads", in.shape.kv_heads));
      token.inputs.push_back(given("H", "head size", in.shape.head_dim));
    }
    p.out.add(std::move(token));
    p.out.add(
        {.id = id + "_conversation",
         .title = fmt::format("KV cache of a conversation as {}", format.name),
         .value = kv_bytes_per_sequence(in.shape, format, in.context),
         .unit = "bytes",
         .formula = "t / L * n",
         .inputs = {of("t", id + "_token"), given("L", "layers", in.shape.layers), of("n", "kv_positions")},
         .source = in.shape.mla ? kDeepSeek : kBook});
  }
}

void add_rates(const Parts& p) {
  const MachineSpec& m = p.input.machine;
  const auto add = [&](const char* id, const char* what, uint32_t bits) {
    p.out.add({.id = id,
               .title = fmt::format("FLOPs per second of {}", what),
               .value = reachable_flops(m, bits),
               .unit = "1/s",
               .formula = "2 * m * a",
               .inputs = {given("m", fmt::format("multiply-adds per second for {} bits by {}", bits, m.name),
                                m.macs(bits), "1/s"),
                          given("a", "part that is reachable", m.reachable_compute)},
               .source = m.source});
  };
  add("matrix_rate", "the matrices", matrix_bits(p.input));
  add("attention_rate", "attention", attention_bits(p.input));
}

// What was searched for has no formula but what it was found by.
void add_limits(const Parts& p, const PlanGoals& goals) {
  const auto add = [&](const char* id, const char* title, uint64_t value, const std::string& what) {
    const auto number = static_cast<double>(value);
    p.out.add({.id = id,
               .title = title,
               .value = number,
               .formula = "n",
               .inputs = {given("n", what, number)},
               .source = "found by bisection"});
  };
  if (goals.ttft_seconds)
    add("longest_prompt", "longest prompt within the time to first token",
        longest_prompt_within(p.input, *goals.ttft_seconds),
        fmt::format("most tokens whose first answer comes within {:.6g} s", *goals.ttft_seconds));
  if (goals.tpot_seconds)
    add("batch_limit", "most conversations within the time per output token",
        largest_batch_within(p.input, *goals.tpot_seconds, kMostSequences),
        fmt::format("most that fit and whose tokens come within {:.6g} s", *goals.tpot_seconds));
}

// Each is a plan of its own; `--context C` derives it.
void add_context(const Parts& p, uint64_t context, uint64_t batch, bool predicted) {
  const PlanInput filled = filled_to(p.input, context);
  const PlanInput in = predicted ? filled : floor_of(filled);
  const auto add = [&](const char* what, const std::string& title, double value, const char* unit) {
    const std::string id = context_id(context, what);
    p.out.add({.id = predicted ? predicted_id(id) : id,
               .title = title + (predicted ? ", predicted" : ""),
               .value = value,
               .unit = unit,
               .formula = "v",
               .inputs = {given("v", "of that plan", value, unit)},
               .source = fmt::format("the plan, run again with a context and a prompt of {}", context)});
  };
  const double tpot = time_per_token(in, batch);
  add("ttft", fmt::format("time to first token of a prompt of {}", context), time_to_first_token(in), "s");
  add("tpot", fmt::format("time per output token of {} at once behind {}", batch, context), tpot, "s");
  add("throughput", fmt::format("tokens per second of {} at once behind {}", batch, context),
      static_cast<double>(batch) / tpot, "tokens/s");
}

void add_point(const Parts& p, uint64_t batch) {
  const std::string prefix = batch_id(batch, "");
  const Step step{decode_step(p.input, batch), prefix, fmt::format("a step of {}", batch)};
  const std::string title = fmt::format("time per output token of {} at once", batch);
  add_step(p, step, prefix + "tpot", title);
  add_predicted(p, step, prefix + "tpot", title);
  const auto b = static_cast<double>(batch);
  const auto throughput = [&](const std::string& id, const std::string& time, const char* which) {
    p.out.add({.id = id,
               .title = fmt::format("tokens per second of {} at once{}", batch, which),
               .value = b / p.out.value(time),
               .unit = "tokens/s",
               .formula = "B / T",
               .inputs = {given("B", "conversations", b), of("T", time)},
               .source = kBook});
  };
  throughput(prefix + "throughput", prefix + "tpot", "");
  if (p.input.predictor)
    throughput(predicted_id(prefix + "throughput"), predicted_id(prefix + "tpot"), ", predicted");
  Quantity memory{.id = prefix + "memory",
                  .title = fmt::format("memory for weights and {} KV caches", batch),
                  .value = memory_needed(p.input, batch),
                  .unit = "bytes",
                  .formula = "P + B * C",
                  .inputs = {of("P", "parameter_bytes"), given("B", "conversations", b),
                             of("C", "kv_bytes_per_sequence")},
                  .source = kBook};
  if (p.input.shared_prefix > 0) {
    memory.formula = "P + s + B * (C - s)";
    memory.inputs.push_back(of("s", "shared_prefix_bytes"));
  }
  p.out.add(std::move(memory));
}

}  // namespace

std::vector<WeightFormat> plan_weight_formats(const PlanInput& input) {
  std::vector<WeightFormat> formats = {input.weight_format()};
  for (const char* name : {"F16", "Q8_0", "Q5_K_M", "Q4_K_M"}) {
    const Result<WeightFormat> format = parse_weight_format(name);
    CHECK(format.ok());
    if (format->name != formats[0].name) formats.push_back(*format);
  }
  return formats;
}

std::vector<KvFormat> plan_kv_formats(const PlanInput& input) {
  std::vector<KvFormat> formats = {input.kv};
  for (const char* name : {"f16", "int8"}) {
    const Result<KvFormat> format = parse_kv_format(name);
    CHECK(format.ok());
    if (format->name != input.kv.name) formats.push_back(*format);
  }
  return formats;
}

std::string id_part(std::string_view name) {
  std::string id(name);
  std::replace_if(
      id.begin(), id.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return id;
}

std::string batch_id(uint64_t batch, std::string_view what) {
  return fmt::format("batch_{}_{}", batch, what);
}

std::string context_id(uint64_t context, std::string_view what) {
  return fmt::format("context_{}_{}", context, what);
}

std::string predicted_id(std::string_view floor) {
  return fmt::format("predicted_{}", floor);
}

std::string reached_id(std::string_view floor) {
  return fmt::format("{}_reached", floor);
}

std::string best_id(const Derivation& derivation, std::string_view floor) {
  std::string predicted = predicted_id(floor);
  return derivation.find(predicted) != nullptr ? std::move(predicted) : std::string(floor);
}

Result<Derivation> derive_plan(const PlanInput& input, const PlanGoals& goals,
                               std::span<const uint64_t> batches) {
  KVASIR_RETURN_IF_ERROR(check_plan(input));
  const PerformanceOptions options{.batch = 1,
                                   .sequence = input.context,
                                   .weights = input.weights,
                                   .kv = input.kv,
                                   .bandwidth = 0,
                                   .compute_bits = matrix_bits(input)};
  KVASIR_ASSIGN_OR_RETURN(Derivation derivation, derive_performance(input.shape, options, &input.machine));
  const Parts parts{input, derivation};
  add_exact_parameters(parts);
  if (input.shape.moe) add_touched_experts(parts, goals.batch());
  add_memory(parts);
  add_formats(parts);
  add_rates(parts);
  add_weights(parts);
  add_prefill_positions(parts);
  const Step prompt{prefill_step(input), "prefill_", "the prompt", false};
  add_step(parts, prompt, "ttft", "time to first token");
  add_predicted(parts, prompt, "ttft", "time to first token");
  const std::string ttft = best_id(derivation, "ttft");
  if (goals.users)
    derivation.add({.id = "users_ttft",
                    .title = "the last first token when all prompts come at once",
                    .value = static_cast<double>(*goals.users) * derivation.value(ttft),
                    .unit = "s",
                    .formula = "n * T",
                    .inputs = {given("n", "users", static_cast<double>(*goals.users)), of("T", ttft)},
                    .source = "prompts are computed one after the other"});
  for (const uint64_t batch : batches) add_point(parts, batch);
  for (const uint64_t context : plan_contexts(input)) {
    add_context(parts, context, goals.batch(), false);
    if (input.predictor) add_context(parts, context, goals.batch(), true);
  }
  add_limits(parts, goals);
  return derivation;
}

}  // namespace kvasir
