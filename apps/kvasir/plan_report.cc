#include "apps/kvasir/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/kvasir/human_size.h"
#include "engine/engine.h"
#include "models/model_config.h"
#include "perf/parameter_formulas.h"
#include "perf/plan_derivation.h"

namespace kvasir {
namespace {

constexpr double kMiB = 1048576.0;

// The architecture by GGUF's name, of a Hugging Face model type as well.
std::string gguf_architecture(const std::string& type) {
  if (type == "mistral" || type == "mixtral") return "llama";
  if (type == "gemma3_text") return "gemma3";
  if (type == "olmo3") return "olmo2";
  if (type == "cohere") return "command-r";
  if (type == "deepseek_v2" || type == "deepseek_v3") return "deepseek2";
  if (type == "granitemoeshared") return "granitemoe";
  if (type == "qwen2_moe") return "qwen2moe";
  if (type == "qwen3_moe") return "qwen3moe";
  if (type == "gpt_oss") return "gpt-oss";
  return type;
}

std::string quoted(const std::string& path) {
  const bool plain = std::all_of(path.begin(), path.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '/' || c == '.' || c == '-' || c == '_';
  });
  if (plain) return path;
  std::string out = "'";
  for (const char c : path) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Of the KV cache, in whole blocks.
double cache_bytes(PlanInput in, uint64_t batch) {
  const uint64_t block = EngineConfig().block_size;
  in.context = (in.context + block - 1) / block * block;
  return memory_needed(in, batch) - parameter_bytes(in.shape, in.weights ? &*in.weights : nullptr);
}

struct Serve {
  std::string text;
  bool serves = false;
};

// Why kvasir serve cannot do that; "" where it can.
std::string why_not_served(const PlanInput& in) {
  if (!find_architecture(gguf_architecture(in.shape.architecture)).ok())
    return fmt::format("kvasir serve does not run the architecture {}", in.shape.architecture);
  if (in.machine.memory_bytes > 0 && conversations_in_memory(in) == 0u)
    return fmt::format(
        "It cannot be served so: weights and one conversation need {}, and there is {} of memory",
        size_text(static_cast<uint64_t>(memory_needed(in, 1))), size_text(in.machine.memory_bytes));
  if (in.machine.kind == MachineSpec::Kind::kGpu)
    return fmt::format("kvasir serve runs on CPUs, and {} is a GPU: these are the limits of any engine there",
                       in.machine.name);
  if (!parse_kv_type(in.kv.name).ok())
    return fmt::format("kvasir serve keeps no KV cache as {}: plan with --kv-cache-dtype f16 or int8",
                       in.kv.name);
  return "";
}

Serve serve_line(const PlanRequest& request) {
  const PlanInput& in = request.input;
  if (std::string why = why_not_served(in); !why.empty()) return {std::move(why), false};
  const std::optional<uint64_t> most = conversations_in_memory(in);
  // Other weights than the file's are those of another file.
  const std::string model = request.is_file && !in.weights ? quoted(request.model) : "MODEL.gguf";
  std::string line = fmt::format("kvasir serve {} --max-model-len {}", model, in.context);
  uint64_t batch = request.goals.users.value_or(0);
  if (batch == 0) batch = most ? std::clamp<uint64_t>(*most, 1, 64) : 16;
  if (most) batch = std::min(batch, *most);
  if (request.goals.tpot_seconds) {
    const uint64_t within = largest_batch_within(in, *request.goals.tpot_seconds, batch);
    if (within > 0) batch = within;
  }
  batch = std::min(batch, kMostSequences);
  line += fmt::format(" --max-num-seqs {}", batch);
  if (request.goals.users)
    line += fmt::format(" --kv-memory {:.0f}M", std::ceil(cache_bytes(in, batch) / kMiB));
  if (in.kv.name == "int8") line += " --kv-cache-dtype int8";
  // The engine then reads prompts in pieces that leave running answers their pace.
  if (request.goals.tpot_seconds)
    line +=
        fmt::format(" --max-itl {:.0f}", std::clamp(std::ceil(1e3 * *request.goals.tpot_seconds), 1.0, 6e5));
  if (request.threads > 0) line += fmt::format(" --threads {}", request.threads);
  return {line, true};
}

}  // namespace

std::string duration_text(double seconds) {
  if (seconds >= 120) {
    const auto whole = static_cast<uint64_t>(std::lround(seconds));
    if (whole >= 7200) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
    return fmt::format("{} min {} s", whole / 60, whole % 60);
  }
  const auto digits = [](double value) {
    return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
  };
  if (seconds >= 0.9995) return digits(seconds) + " s";
  if (seconds >= 0.9995e-3) return digits(seconds * 1e3) + " ms";
  return digits(seconds * 1e6) + " us";
}

Result<PlanReport> make_plan_report(PlanRequest request) {
  PlanReport report;
  const PlanInput& input = request.input;
  const PlanGoals& goals = request.goals;
  report.batches = plan_batches(input, goals);
  KVASIR_ASSIGN_OR_RETURN(report.derivation, derive_plan(input, goals, report.batches));
  report.outcome = plan_outcome(input, goals);
  report.objective = plan_objective(input, goals);
  report.advice = plan_advice(input, goals, request.advice);
  derive_advice(report.derivation, report.objective, report.outcome, report.advice);
  report.speculation = plan_speculation(input, goals.batch(), request.advice.acceptance);
  derive_plan_speculation(report.derivation, report.speculation);
  Serve serve = serve_line(request);
  report.serve = std::move(serve.text);
  report.serves = serve.serves;
  report.request = std::move(request);
  return report;
}

std::string plan_quantities(const PlanReport& report) {
  size_t id = 0;
  for (const Quantity& q : report.derivation.quantities()) id = std::max(id, q.id.size());
  std::string text;
  for (const Quantity& q : report.derivation.quantities())
    text += fmt::format("{:<{}}  {}{}{}  ({})\n", q.id, id, number_text(q.value), q.unit.empty() ? "" : " ",
                        q.unit, q.title);
  return text;
}

}  // namespace kvasir
