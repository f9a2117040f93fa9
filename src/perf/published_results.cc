#include "perf/published_results.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "perf/kv_formulas.h"
#include "perf/parameter_formulas.h"
#include "perf/performance_formulas.h"
#include "perf/plan.h"
#include "perf/speculation_formulas.h"

namespace kvasir {
namespace {

constexpr double kGiga = 1e9, kGiB = 1073741824.0;
constexpr const char* kVllm = "Kwon et al. 2023, section 3: https://arxiv.org/abs/2309.06180";
constexpr const char* kBookTable =
    "Book, \"Modeling throughput and latency for LLaMA 2-13B\": "
    "https://jax-ml.github.io/scaling-book/inference";
constexpr const char* kGptFast = "https://github.com/pytorch-labs/gpt-fast, README, \"Benchmarks\"";
constexpr const char* kLlama31 = "https://huggingface.co/blog/llama31, \"Inference Memory Requirements\"";
constexpr const char* kDai =
    "https://github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference, README (llama.cpp)";
constexpr const char* kIkLlama = "https://github.com/ikawrakow/ik_llama.cpp/pull/534 (Kimi-Dev-72B)";
constexpr const char* kKernels =
    "a bound, not a prediction: the kernels reach a part of the data sheet's bandwidth";

ModelShape model(const char* name) {
  Result<ModelShape> shape = shape_by_name(name);
  CHECK(shape.ok());
  return std::move(shape).value();
}

MachineSpec machine(const char* name) {
  Result<MachineSpec> spec = machine_by_name(name);
  CHECK(spec.ok());
  return std::move(spec).value();
}

WeightFormat weights(const char* name) {
  const Result<WeightFormat> format = parse_weight_format(name);
  CHECK(format.ok());
  return *format;
}

// Layers, heads and widths of attention only: what KV arithmetic needs.
ModelShape attention_shape(uint32_t layers, uint32_t heads, uint32_t kv_heads, uint32_t head_dim) {
  ModelShape s;
  s.layers = layers, s.heads = heads, s.kv_heads = kv_heads, s.head_dim = head_dim;
  s.windows.assign(layers, 0);
  return s;
}

// Tokens per second of one sequence when a step takes as long as its bytes at this bandwidth.
double read_bound_rate(const ModelShape& shape, const WeightFormat& format, const char* kv, uint64_t context,
                       double bandwidth) {
  const Result<KvFormat> cache = parse_kv_format(kv);
  CHECK(cache.ok());
  const StepShape step{.sequences = 1, .rows = 1, .context = context, .logit_rows = 1};
  const StepFormats formats{.weights = &format, .kv = *cache, .activation_bytes = 0};
  return bandwidth / total_work(step_work(shape, step, formats)).bytes();
}

void add_sizes(std::vector<PublishedResult>& out) {
  const ModelShape opt = attention_shape(40, 40, 40, 128);
  out.push_back({"KV cache of a token of OPT-13B, f16", "bytes", 819200, kv_bytes_per_token(opt, {}), kVllm});
  out.push_back({"KV cache of 2,048 tokens of OPT-13B", "GB", 1.6,
                 kv_bytes_per_sequence(opt, {}, 2048) / kGiga, kVllm});
  for (const auto& [name, published] : {std::pair("Llama 3.1 8B", 15.62), std::pair("Llama 3.1 70B", 39.06)})
    out.push_back({fmt::format("KV cache of 128,000 tokens of {}, f16", name), "GiB", published,
                   kv_bytes_per_sequence(model(name), {}, 128000) / kGiB, kLlama31});
  out.push_back({"KV cache of 128,000 tokens of Llama 3.1 405B, f16", "GiB", 123.05,
                 kv_bytes_per_sequence(model("Llama 3.1 405B"), {}, 128000) / kGiB, kLlama31,
                 "the blog counts 16 KV heads (huggingface/blog#2345), config.json has 8"});
  out.push_back({"KV cache of 8,192 tokens of Llama 2 13B, bf16", "GB", 6.7,
                 kv_bytes_per_sequence(model("Llama 2 13B"), {}, 8192) / kGiga, kBookTable});
  ModelShape v2 = attention_shape(60, 128, 128, 128);
  v2.mla = ModelShape::Mla{.kv_lora_rank = 512,
                           .qk_rope_head_dim = 64,
                           .qk_nope_head_dim = 128,
                           .v_head_dim = 128,
                           .q_lora_rank = 1536};
  const KvFormat six{.name = "6 bits", .bits = 6};
  const double grouped = kv_bytes_per_token(attention_shape(95, 64, 8, 128), {});
  out.push_back({"KV cache that DeepSeek-V2 (6 bits) saves against DeepSeek 67B", "%", 93.3,
                 100 * (1 - kv_bytes_per_token(v2, six) / grouped),
                 "DeepSeek-V2, abstract and section 3.2.3: https://arxiv.org/abs/2405.04434"});
}

void add_counts(std::vector<PublishedResult>& out) {
  const auto total = [](const char* name) {
    return static_cast<double>(count_parameters(model(name)).total()) / kGiga;
  };
  const auto active = [](const char* name) {
    return static_cast<double>(active_parameters(model(name))) / kGiga;
  };
  constexpr const char* kV3 = "DeepSeek-V3, abstract: https://arxiv.org/abs/2412.19437";
  out.push_back({"parameters of DeepSeek-V3", "billion", 671, total("DeepSeek-V3"), kV3});
  out.push_back({"of them used by a token", "billion", 37, active("DeepSeek-V3"), kV3});
  constexpr const char* kMixtral = "https://mistral.ai/news/mixtral-of-experts";
  out.push_back({"parameters of Mixtral 8x7B", "billion", 46.7, total("Mixtral 8x7B"), kMixtral});
  out.push_back({"of them used by a token", "billion", 12.9, active("Mixtral 8x7B"), kMixtral});
}

// Eight TPU v5e, read at 0.82 TB/s each, with 8,192 positions a sequence.
void add_book(std::vector<PublishedResult>& out) {
  constexpr double kBandwidth = 8 * 8.2e11, kFlops = 1.97e14;
  for (const auto& [batch, milliseconds] : {std::pair(1, 4.98), std::pair(8, 12.13), std::pair(16, 20.30),
                                            std::pair(64, 69.33), std::pair(240, 249.09)}) {
    const auto stats =
        compute_transformer_performance_stats(model("Llama 2 13B"), {.batch = static_cast<uint64_t>(batch),
                                                                     .sequence = 8192,
                                                                     .weights = {},
                                                                     .kv = {},
                                                                     .bandwidth = kBandwidth});
    CHECK(stats.ok());
    out.push_back({fmt::format("a step of {} x 8,192 positions, Llama 2 13B on 8 TPU v5e", batch), "ms",
                   milliseconds, 1e3 * stats->latency_seconds, kBookTable});
  }
  MachineSpec tpu;
  tpu.bandwidth = 8.2e11;
  tpu.peaks.f16_macs = kFlops / 2;
  out.push_back({"batch at which bf16 matrices turn compute-bound on a TPU v5e", "", 240,
                 critical_batch(model("Llama 2 13B"), tpu, 16, 16),
                 "Book, \"Linear operations\": https://jax-ml.github.io/scaling-book/inference"});
}

// Engines that say what bandwidth they had, or reached: gpt-fast computes that as the model's bytes times the
// rate, so its rows compare the bytes of a token.
void add_at_known_bandwidth(std::vector<PublishedResult>& out) {
  const auto gpt_fast = [&](const char* name, const char* format, double published, double gb_per_second) {
    out.push_back(
        {fmt::format("{} as {}, gpt-fast on an A100 at {:.0f} GB/s reached", name, format, gb_per_second),
         "tokens/s", published,
         read_bound_rate(model(name), weights(format), "bf16", 100, gb_per_second * kGiga), kGptFast});
  };
  gpt_fast("Llama 2 7B", "BF16", 104.9, 1397.31);
  gpt_fast("Llama 2 7B", "int8", 155.58, 1069.20);
  gpt_fast("Llama 2 70B", "int8", 19.13, 1322.58);
  const auto cpu = [&](const char* what, double bits, double published, double gb_per_second,
                       const char* gap) {
    out.push_back({what, "tokens/s", published,
                   read_bound_rate(model("Qwen2.5 72B"), {"mixed", bits}, "q8_0", 256, gb_per_second * kGiga),
                   kIkLlama, gap});
  };
  cpu("72B at 3.813 bits, ik_llama.cpp on a Ryzen 9950X at 87 GB/s measured", 3.813, 2.50, 87, "");
  cpu("72B at 4.501 bits, ik_llama.cpp on a Threadripper 7965WX at 256 GB/s", 4.501, 4.74, 256,
      "four dies behind one NUMA node: the source doubts that 256 GB/s are reached");
  cpu("72B at 4.501 bits, ik_llama.cpp on a Xeon 6980P at 512 GB/s", 4.501, 5.47, 512,
      "three dies behind one NUMA node: the source sees that the bandwidth is not used up");
}

// Engines on machines known by their data sheets.
void add_at_data_sheets(std::vector<PublishedResult>& out) {
  out.push_back(
      {"Llama 2 7B as BF16, gpt-fast on an A100", "tokens/s", 104.9,
       read_bound_rate(model("Llama 2 7B"), weights("BF16"), "bf16", 100, machine("A100").bandwidth),
       kGptFast, "it reports 1,397 of the data sheet's 2,039 GB/s, at 330 of 400 W"});
  const auto decode = [&](const char* name, const char* format, double published, uint64_t tokens) {
    out.push_back(
        {fmt::format("{} as {}, {} tokens written on an RTX 4090", name, format, tokens), "tokens/s",
         published,
         read_bound_rate(model(name), weights(format), "f16", tokens / 2, machine("RTX 4090").bandwidth),
         kDai, kKernels});
  };
  decode("Llama 3 8B", "F16", 54.34, 1024);
  decode("Llama 3 8B", "Q4_K_M", 127.74, 1024);
  for (const auto& [tokens, published] : {std::pair(512, 9382.00), std::pair(1024, 9056.26)}) {
    PlanInput in;
    in.shape = model("Llama 3 8B");
    in.machine = machine("RTX 4090");
    in.weights = weights("F16");
    in.context = in.prompt = static_cast<uint64_t>(tokens);
    out.push_back({fmt::format("Llama 3 8B as F16, a prompt of {} on an RTX 4090", tokens), "tokens/s",
                   published, static_cast<double>(tokens) / time_to_first_token(in), kDai,
                   "a bound, not a prediction: the kernels reach a part of the data sheet's arithmetic"});
  }
}

}  // namespace

std::vector<PublishedResult> published_results() {
  std::vector<PublishedResult> results;
  add_sizes(results);
  add_counts(results);
  add_book(results);
  add_at_known_bandwidth(results);
  add_at_data_sheets(results);
  // 10 drafts of which 0.425 are right are the 1.74 tokens a step that it measured; drafts are free.
  results.push_back({"speed-up by prompt lookup at 1.74 tokens a step, Spec-Bench, Vicuna 7B", "x", 1.55,
                     speculation_speedup(0.425, 10, 0, 1),
                     "Xia et al. 2024: https://arxiv.org/abs/2401.07851"});
  return results;
}

std::string published_table() {
  std::string out =
      "| what | published | by the formulas | error | source "
      "|\n|------|----------:|----------------:|------:|--------|\n";
  for (const PublishedResult& r : published_results()) {
    const bool explained = std::abs(r.error()) > 0.2;
    const std::string unit = r.unit.empty() ? "" : " " + r.unit;
    out += fmt::format("| {} | {:.6g}{} | {:.5g}{} | {:+.1f} %{} | {} |\n", r.what, r.published, unit,
                       r.predicted, unit, 100 * r.error(), explained ? ": " + r.gap : "", r.source);
  }
  return out;
}

}  // namespace kvasir
