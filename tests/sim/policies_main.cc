// Plays loads on a virtual clock under different policies of scheduling, with the times of steps that the
// engine's own model predicts for a machine whose kernels were measured (kvasir bench machine), and writes a
// table, its numbers as JSON, and plots. The same profile gives the same numbers.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

#include "apps/kvasir/human_size.h"
#include "apps/kvasir/machine_file.h"
#include "apps/kvasir/plan_request.h"
#include "apps/kvasir/svg_chart.h"
#include "engine/engine.h"
#include "policy_sim.h"
#include "server/json_writer.h"

namespace kvasir::sim {
namespace {

struct Flags {
  std::string model = "models/smollm2-135m-instruct-q4_1.gguf";
  std::string profile = default_machine_path();
  std::string out;
  std::string kv_memory = "1G";
  std::vector<double> rates = {0.5, 1, 1.5, 2, 3, 4, 6};
  uint32_t requests = 256;
  uint32_t block_size = EngineConfig().block_size;
  uint32_t max_num_seqs = EngineConfig().max_num_seqs;
  uint32_t max_num_batched_tokens = EngineConfig().max_num_batched_tokens;
  uint64_t seed = 1;
};

struct Run {
  const Policy* policy;
  double rate;
  PolicyResult result;
};

struct Setting {
  PlanPredictor::Model model;
  HardwareProfile profile;
  std::optional<KvLayout> layout;
  std::optional<PerfModel> costs;
  PolicyMachine machine;
};

constexpr uint32_t kManySeats = 1024;

Result<std::unique_ptr<Setting>> open_setting(const Flags& flags) {
  auto s = std::make_unique<Setting>();
  KVASIR_ASSIGN_OR_RETURN(PlanModel named, plan_model(flags.model));
  KVASIR_ASSIGN_OR_RETURN(s->model, std::move(named.engine));
  KVASIR_ASSIGN_OR_RETURN(s->profile, load_machine(flags.profile));
  if (!s->profile.kernels)
    return invalid_argument(
        fmt::format("{} says nothing of kernels; run kvasir bench machine", flags.profile));
  KVASIR_ASSIGN_OR_RETURN(s->layout, KvLayout::make(s->model.config.kv_layers(), flags.block_size));
  const uint32_t context = s->model.config.context_length;
  s->costs.emplace(
      s->model.config, s->model.weights, s->profile,
      PerfModel::Options{
          .threads = s->profile.threads, .max_rows = context + kManySeats, .max_logit_rows = kManySeats});
  KVASIR_ASSIGN_OR_RETURN(const uint64_t bytes, parse_size(flags.kv_memory));
  s->machine = {&*s->layout, &*s->costs, bytes, context, flags.max_num_seqs, flags.max_num_batched_tokens};
  if (bytes / s->layout->block_bytes() < s->layout->blocks_for(context))
    return invalid_argument(
        fmt::format("--kv-memory {} does not hold one sequence of {} tokens ({} bytes each)", flags.kv_memory,
                    context, s->layout->bytes_per_token()));
  return s;
}

LoadShape shape_of(const Flags& flags, double rate) {
  LoadShape shape;
  shape.requests = flags.requests;
  shape.rate = rate;
  shape.seed = flags.seed;
  return shape;
}

std::string md_row(const Run& run) {
  const PolicyResult& r = run.result;
  return fmt::format(
      "| {} | {} | {:.1f} | {:.2f} | {:.2f} | {:.2f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.2f} |\n",
      run.policy->name, run.rate == 0 ? "at once" : fmt::format("{}", run.rate), r.output_per_second(),
      r.ttft.mean, r.ttft.p50, r.ttft.p99, 1e3 * r.itl.p50, 1e3 * r.itl.p99, 100 * r.wasted, r.running_mean,
      static_cast<double>(r.computed_tokens) / static_cast<double>(r.prompt_tokens + r.output_tokens));
}

std::string table_md(const Flags& flags, const Setting& s, const std::vector<Run>& runs) {
  const LoadShape shape = shape_of(flags, 1);
  std::string md = fmt::format(
      "Simulated: the real scheduler, pool and prefix cache on a virtual clock; steps take what the engine's "
      "model predicts for {} on {} ({} threads, measured {}). {} requests; one of {} system prompts of {} "
      "tokens, own text of log-normal length (median {}, sigma {}), answers likewise (median {}, sigma {}); "
      "KV "
      "pool {}, blocks of {}; seed {}.\n\n",
      flags.model, s.profile.cpu, s.profile.threads, s.profile.measured_at, shape.requests,
      shape.system_prompts, shape.system_tokens, shape.prompt_median, shape.prompt_spread,
      shape.output_median, shape.output_spread, flags.kv_memory, flags.block_size, flags.seed);
  for (const Policy& policy : policies()) md += fmt::format("- `{}`: {}\n", policy.name, policy.idea);
  md +=
      "\n| policy | requests/s | tokens/s | TTFT mean s | p50 | p99 | ITL p50 ms | p99 | KV wasted % | "
      "sequences, mean | computed / (prompt + output) |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Run& run : runs) md += md_row(run);
  return md;
}

std::string runs_json(const Flags& flags, const Setting& s, const std::vector<Run>& runs) {
  JsonWriter json;
  json.begin_object().field("model", flags.model).field("cpu", s.profile.cpu);
  json.field("measured_at", s.profile.measured_at)
      .field("requests", flags.requests)
      .field("seed", flags.seed);
  json.key("runs").begin_array();
  const auto quantiles_of = [&](std::string_view name, const Quantiles& q) {
    json.key(name).begin_object().field("mean", q.mean).field("p50", q.p50).field("p99", q.p99);
    json.field("max", q.max).end_object();
  };
  for (const Run& run : runs) {
    const PolicyResult& r = run.result;
    json.begin_object().field("policy", run.policy->name).field("rate", run.rate);
    json.field("seconds", r.seconds).field("output_tokens", r.output_tokens);
    json.field("prompt_tokens", r.prompt_tokens).field("computed_tokens", r.computed_tokens);
    json.field("output_per_second", r.output_per_second()).field("steps", r.steps);
    json.field("preemptions", r.preemptions).field("kv_wasted", r.wasted);
    json.field("running_mean", r.running_mean).field("running_most", r.running_most);
    quantiles_of("ttft_seconds", r.ttft);
    quantiles_of("itl_seconds", r.itl);
    json.end_object();
  }
  json.end_array().end_object();
  return json.take() + "\n";
}

constexpr const char* kColours[] = {"#b8b8b8", "#707070", "#c4451c", "#a07400",
                                    "#8a3fb0", "#1f8a4c", "#0b6fb8"};

Chart chart_of(const std::vector<Run>& runs, std::string title, std::string unit, bool logarithmic,
               double (*value)(const PolicyResult&)) {
  Chart chart{.title = std::move(title),
              .x_title = "requests per second",
              .y_title = std::move(unit),
              .log_y = logarithmic};
  size_t colour = 0;
  for (const Policy& policy : policies()) {
    ChartSeries series{.name = policy.name,
                       .colour = kColours[colour++ % std::size(kColours)],
                       .mark = ChartSeries::Mark::kDisc,
                       .size = 3};
    for (const Run& run : runs) {
      if (run.policy == &policy && run.rate > 0) series.points.emplace_back(run.rate, value(run.result));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

std::string plots_svg(const std::vector<Run>& runs) {
  constexpr double kWidth = 560, kHeight = 380;
  const Chart charts[] = {chart_of(runs, "Time to the first token, 99th percentile", "seconds", true,
                                   [](const PolicyResult& r) { return r.ttft.p99; }),
                          chart_of(runs, "Time between tokens, 99th percentile", "milliseconds", true,
                                   [](const PolicyResult& r) { return 1e3 * r.itl.p99; }),
                          chart_of(runs, "Throughput", "output tokens per second", false,
                                   [](const PolicyResult& r) { return r.output_per_second(); }),
                          chart_of(runs, "KV memory wasted", "percent of what is allocated", false,
                                   [](const PolicyResult& r) { return 100 * r.wasted; })};
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"white\"/>\n",
      2 * kWidth + 40, 2 * kHeight + 60);
  for (size_t i = 0; i < std::size(charts); ++i)
    svg += svg_chart(charts[i], {10 + (kWidth + 20) * static_cast<double>(i % 2),
                                 10 + (kHeight + 30) * static_cast<double>(i / 2), kWidth, kHeight});
  return svg + "</svg>\n";
}

// What a fixed KV budget holds when more want in than fit: a reservation of the context for each, or blocks.
std::string memory_md(const Flags& flags, const Setting& s) {
  PolicyMachine machine = s.machine;
  machine.max_num_seqs = kManySeats;
  LoadShape shape = shape_of(flags, 0);
  shape.requests = std::max(flags.requests, kManySeats);
  const std::vector<LoadRequest> load = make_load(shape);
  const uint64_t reserved = machine.kv_bytes / s.layout->bytes_per_token() / machine.context;
  std::string md = fmt::format(
      "\nSequences that a KV pool of {} holds at once, {} requests waiting from the start; reserving the "
      "context "
      "of {} tokens for each, it holds {}:\n\n| policy | most | mean | of what reserving holds | preemptions "
      "|\n"
      "|---|---|---|---|---|\n",
      flags.kv_memory, shape.requests, machine.context, reserved);
  for (const Policy& policy : policies()) {
    if (policy.in_batches) continue;
    const PolicyResult r = simulate(policy, load, machine);
    md += fmt::format("| {} | {} | {:.1f} | {:.1f}x | {} |\n", policy.name, r.running_most, r.running_mean,
                      r.running_mean / static_cast<double>(reserved), r.preemptions);
  }
  return md;
}

// 64 conversations of several turns each: longer histories, all at once.
std::string waste_md(const Flags& flags, const Setting& s) {
  std::string md =
      "\nKV memory wasted (allocated - used) by 64 conversations at once, by block size; histories of median "
      "400 "
      "tokens after a system prompt:\n\n| block | wasted % |\n|---|---|\n";
  LoadShape shape = shape_of(flags, 0);
  shape.requests = 64;
  shape.prompt_median = 400;
  const std::vector<LoadRequest> load = make_load(shape);
  for (const uint32_t size : {16u, 32u, 64u}) {
    const Result<KvLayout> layout = KvLayout::make(s.model.config.kv_layers(), size);
    PolicyMachine machine = s.machine;
    machine.layout = &*layout;
    machine.max_num_seqs = 64;
    md += fmt::format("| {} | {:.2f} |\n", size, 100 * simulate(policies().back(), load, machine).wasted);
  }
  return md;
}

bool write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file.fail()) return true;
  fmt::print(stderr, "{}: cannot be written\n", path.string());
  return false;
}

int compare(const Flags& flags) {
  const auto setting = open_setting(flags);
  if (!setting.ok()) {
    fmt::print(stderr, "{}\n", setting.message());
    return 1;
  }
  const Setting& s = **setting;
  std::vector<double> rates = flags.rates;
  rates.push_back(0);
  std::vector<Run> runs;
  for (const double rate : rates) {
    const std::vector<LoadRequest> load = make_load(shape_of(flags, rate));
    for (const Policy& policy : policies())
      runs.push_back({&policy, rate, simulate(policy, load, s.machine)});
  }
  const std::string md = table_md(flags, s, runs) + memory_md(flags, s) + waste_md(flags, s);
  fmt::print("{}", md);
  if (flags.out.empty()) return 0;
  const std::filesystem::path out(flags.out);
  std::error_code error;
  std::filesystem::create_directories(out, error);
  const bool written = write_file(out / "policies.md", md) &&
                       write_file(out / "policies.json", runs_json(flags, s, runs)) &&
                       write_file(out / "policies.svg", plots_svg(runs));
  return written ? 0 : 1;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Compares policies of scheduling on a virtual clock: static batching, continuous batching, and so on "
      "to this "
      "engine. Steps take what the engine's model predicts for a model and a measured machine."};
  Flags flags;
  app.add_option("--model", flags.model, "GGUF file; its header is read")->capture_default_str();
  app.add_option("--profile", flags.profile, "what kvasir bench machine left")->capture_default_str();
  app.add_option("--rates", flags.rates, "requests per second")->delimiter(',')->check(CLI::PositiveNumber);
  app.add_option("--requests", flags.requests)->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--kv-memory", flags.kv_memory)->capture_default_str();
  app.add_option("--block-size", flags.block_size)->capture_default_str();
  app.add_option("--max-num-seqs", flags.max_num_seqs)
      ->check(CLI::Range(1u, kManySeats))
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens", flags.max_num_batched_tokens)
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--seed", flags.seed)->capture_default_str();
  app.add_option("--out", flags.out, "folder for policies.md, .json and .svg");
  CLI11_PARSE(app, argc, argv);
  return compare(flags);
}

}  // namespace
}  // namespace kvasir::sim

int main(int argc, char** argv) {
  return kvasir::sim::run(argc, argv);
}
