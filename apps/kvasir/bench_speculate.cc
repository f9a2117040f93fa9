#include "apps/kvasir/bench_speculate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/machine_reference.h"
#include "apps/kvasir/output.h"
#include "apps/kvasir/speculation_bench.h"
#include "apps/kvasir/speculation_prompts.h"
#include "apps/kvasir/speculation_report.h"
#include "engine/drafters.h"

namespace kvasir {
namespace {

struct SpeculateFlags {
  EngineFlags engine;
  std::vector<uint32_t> guesses = {1, 2, 4, 8};
  std::vector<uint32_t> batches = {1, 4, 16};
  std::vector<std::string> workloads;
  uint32_t tokens = 128;
  uint32_t rounds = 3;
  double temperature = 0;
  bool only_auto = false;
  bool adversary = false;
  std::string output = "md";
  std::string report;
};

// "off", each drafter alone with each number of guesses, and with the controller's choice all together and
// the adversary.
std::vector<SpeculationVariant> variants(const SpeculateFlags& f) {
  std::vector<SpeculationVariant> all = {{.drafter = "off", .k = std::nullopt}};
  std::string names;
  const std::vector<DrafterSpec> specs = parse_drafters(f.engine.speculate).value();
  for (const DrafterSpec& spec : specs) {
    const std::string name = spec.argument.empty() ? spec.name : spec.name + "=" + spec.argument;
    names += (names.empty() ? "" : ",") + name;
    for (const uint32_t k : f.guesses) {
      if (!f.only_auto) all.push_back({.drafter = name, .k = k});
    }
  }
  all.push_back({.drafter = names, .k = std::nullopt});
  if (f.adversary) all.push_back({.drafter = std::string(kAdversary), .k = std::nullopt});
  return all;
}

int finish(const SpeculateFlags& f, const SpeculationSetting& setting,
           const std::vector<SpeculationRow>& rows) {
  if (!f.report.empty()) {
    if (const Status written = write_report(f.report, speculation_svg(setting, rows)); !written.ok())
      return fail(kExitFailure, written.message());
  }
  if (f.output == "json") return print_or_fail(speculation_json(setting, rows));
  if (f.output == "csv") return print_or_fail(speculation_csv(rows));
  return print_or_fail(speculation_md_foot(rows));
}

int measure(const SpeculateFlags& f, SpeculationBench& bench, const SpeculationSetting& setting) {
  const std::vector<std::string> workloads = f.workloads.empty() ? speculation_workloads() : f.workloads;
  if (f.output == "md") {
    if (const int code = print_or_fail(speculation_md_head(setting)); code != kExitOk) return code;
  }
  std::vector<SpeculationRow> rows;
  for (const std::string& workload : workloads) {
    const auto prompts = prompts_of_workload(workload);
    if (!prompts.ok()) return fail(kExitUsage, "-w: " + prompts.message());
    for (const uint32_t batch : f.batches) {
      show_progress(fmt::format("{}, {} at once ...", workload, batch));
      auto measured = bench.measure(workload, *prompts, batch, variants(f));
      end_progress();
      if (!measured.ok()) return fail(kExitFailure, measured.message());
      if (f.output == "md") {
        if (const int code = print_or_fail(speculation_md_rows(*measured)); code != kExitOk) return code;
      }
      rows.insert(rows.end(), measured->begin(), measured->end());
    }
  }
  return finish(f, setting, rows);
}

int speculate(const SpeculateFlags& f) {
  const auto options = f.engine.options();
  if (!options.ok()) return fail(kExitUsage, options.message());
  for (const std::string& workload : f.workloads) {
    if (const auto prompts = prompts_of_workload(workload); !prompts.ok())
      return fail(kExitUsage, "-w: " + prompts.message());
  }
  if (!f.report.empty()) {
    if (const Status writable = check_report(f.report); !writable.ok())
      return fail(kExitUsage, writable.message());
  }
  if (options->engine.speculation.drafters.empty())
    return fail(kExitUsage, "--speculate is off: there is nothing to compare");
  SpeculationBench::Options bench_options{
      .llm = *options, .tokens = f.tokens, .rounds = f.rounds, .temperature = f.temperature};
  bench_options.llm.machine = [&](ThreadPool& pool, const ModelConfig& config, const WeightSizes& weights) {
    return serving_machine(pool, options->isa.value_or(best_isa()), config, weights, options->engine.kv_type);
  };
  auto bench = SpeculationBench::open(f.engine.model, bench_options,
                                      *std::max_element(f.batches.begin(), f.batches.end()));
  if (!bench.ok()) return fail_to_open(bench.status(), false);
  if (const Status ready = (*bench)->prepare(variants(f)); !ready.ok()) return fail_to_open(ready, false);
  return measure(f, **bench,
                 {.model = f.engine.model,
                  .threads = options->threads,
                  .tokens = f.tokens,
                  .rounds = f.rounds,
                  .temperature = f.temperature});
}

}  // namespace

Verb add_speculate_verb(CLI::App& bench) {
  CLI::App* verb =
      bench.add_subcommand("speculate", "Measure what speculative decoding gains on this machine");
  const auto f = std::make_shared<SpeculateFlags>();
  f->engine.log_level = "warn";
  f->engine.engine.max_model_len = 2048;
  f->engine.add_to(*verb);
  const auto list = [&](const char* name, std::vector<uint32_t>& target, const char* help, uint32_t least,
                        uint32_t most) {
    verb->add_option(name, target, help)
        ->delimiter(',')
        ->type_name("N,...")
        ->check(CLI::Range(least, most))
        ->capture_default_str();
  };
  list("-k,--guesses", f->guesses,
       "Guesses per step to try each drafter with; 0: they are made and none is verified", 0, Draft::kMost);
  list("-b,--batch", f->batches, "Answers at once", 1, 256);
  verb->add_option("-w,--workload", f->workloads,
                   fmt::format("Prompts: {} (default: all)", fmt::join(speculation_workloads(), ", ")))
      ->delimiter(',')
      ->type_name("NAME,...");
  verb->add_option("-n,--tokens", f->tokens, "Most tokens of an answer")
      ->type_name("N")
      ->check(CLI::Range(2u, 65536u))
      ->capture_default_str();
  verb->add_option("-r,--rounds", f->rounds,
                   "Rounds, each with the workload's next prompts; medians are shown")
      ->type_name("N")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  verb->add_option("--temperature", f->temperature, "0 always takes the likeliest token")
      ->type_name("X")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  verb->add_flag("--only-auto", f->only_auto, "Only the controller's choice against none");
  verb->add_flag("--adversary", f->adversary,
                 "Also one whose guesses are sure and never right: the controller is to lose nothing to it");
  verb->add_option("-o,--output", f->output, "md, json or csv")
      ->check(CLI::IsMember({"md", "json", "csv"}))
      ->capture_default_str();
  verb->add_option("--report", f->report, "Also draw it, as SVG")->type_name("FILE");
  verb->footer(
      "Answers the same prompts without speculation and with each drafter in turns, from cached prompts, "
      "and\n"
      "checks that the answers are the same.\n\n"
      "Examples:\n"
      "  kvasir bench speculate model.gguf                       all drafters, guesses and workloads\n"
      "  kvasir bench speculate model.gguf -w code-edit -b 1     one workload, one answer at a time\n"
      "  kvasir bench speculate model.gguf --only-auto -r 5      what the default does\n"
      "  kvasir bench speculate model.gguf -w story -k 0         what it costs where it gains nothing\n\n" +
      std::string(kExitCodesHelp));
  return {verb, [f] { return speculate(*f); }};
}

}  // namespace kvasir
