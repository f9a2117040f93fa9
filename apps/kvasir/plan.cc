#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "apps/kvasir/cli.h"
#include "apps/kvasir/number_flag.h"
#include "apps/kvasir/output.h"
#include "apps/kvasir/plan_check.h"
#include "apps/kvasir/plan_page.h"
#include "apps/kvasir/plan_report.h"
#include "perf/published_results.h"

namespace kvasir {
namespace {

struct PlanVerbFlags {
  PlanFlags plan;
  std::string output = "md";
  std::string report;
  std::string explain;  // "" with explain_given: list the ids
  bool explain_given = false;
  bool list = false;
  bool published = false;
  bool check = false;
};

constexpr const char* kHelpHint = "`kvasir plan --help` explains the flags.";
constexpr size_t kPlainColumns = 100;

size_t terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return kPlainColumns;
  return size.ws_col;
}

int print_lists() {
  std::string text = "models\n";
  for (const std::string& name : known_shape_names()) text += "  " + name + "\n";
  text += "machines\n";
  for (const std::string& name : known_machine_names()) text += "  " + name + "\n";
  return print_or_fail(text);
}

int fail_to_find_model(const Status& status) {
  const bool unknown = status.code() == ErrorCode::kNotFound;
  return fail(
      kExitModel, status.message(),
      unknown ? "MODEL is a GGUF file, a config.json or its folder, or a name of `kvasir plan --list`." : "");
}

int print_explanation(const PlanVerbFlags& f, const PlanReport& report) {
  if (f.explain.empty()) return print_or_fail(plan_quantities(report));
  const Result<std::string> text = report.derivation.explain(f.explain, true);
  if (!text.ok()) return fail(kExitUsage, "--explain: " + text.message(), "`--explain` alone lists the ids.");
  return print_or_fail(*text);
}

int print_report(const PlanVerbFlags& f, const PlanReport& report) {
  if (!f.report.empty()) {
    if (const Status written =
            write_report(f.report, f.report.ends_with(".svg") ? plan_svg(report) : plan_page(report));
        !written.ok())
      return fail(kExitFailure, written.message());
    tell("kvasir: wrote {}\n", f.report);
  }
  if (f.explain_given) return print_explanation(f, report);
  if (f.output == "json") return print_or_fail(plan_json(report));
  return print_or_fail(plan_text(report, terminal_columns(), isatty(STDOUT_FILENO) != 0));
}

int plan(const PlanVerbFlags& f) {
  if (f.list) return print_lists();
  if (f.published) return print_or_fail(published_table());
  if (f.plan.model.empty())
    return fail(kExitUsage,
                "which model? `kvasir plan MODEL`, where MODEL is a GGUF file, a config.json or a name",
                "`kvasir plan --list` lists the names.");
  if (!f.report.empty() && !f.report.ends_with(".html") && !f.report.ends_with(".svg"))
    return fail(kExitUsage, fmt::format("--report: {} ends neither in .html nor in .svg", f.report));
  Result<PlanModel> model = plan_model(f.plan.model);
  if (!model.ok()) return fail_to_find_model(model.status());
  if (f.check && !model->shape.stored_bytes.has_value())
    return fail(kExitUsage, fmt::format("--check runs the model, and {} is no GGUF file", f.plan.model));
  if (f.check) return run_plan_check(f.plan, f.output);
  Result<MachineSpec> machine = plan_machine(f.plan, model->engine.ok());
  if (!machine.ok())
    return fail(machine.status().code() == ErrorCode::kResourceExhausted ? kExitMemory : kExitUsage,
                machine.message(),
                "A name of `kvasir plan --list`, a file of `kvasir bench machine --output FILE`, or `here`.");
  Result<PlanRequest> request = plan_request(f.plan, std::move(model).value(), std::move(machine).value());
  if (!request.ok()) return fail(kExitUsage, request.message(), kHelpHint);
  Result<PlanReport> report = make_plan_report(std::move(request).value());
  if (!report.ok()) return fail(kExitUsage, report.message(), kHelpHint);
  return print_report(f, *report);
}

void add_question_flags(CLI::App& verb, PlanFlags& f) {
  constexpr const char* kQuestion = "What is asked";
  const auto number = [&](const char* name, uint64_t& target, const char* help, int64_t most) {
    verb.add_option(name, target, help)->type_name("N")->transform(integer_range(1, most))->group(kQuestion);
  };
  number("-c,--context,--max-model-len", f.context,
         "Tokens that a conversation holds (default: the model's, at most 4096)", 1u << 30);
  number("-p,--prompt", f.prompt, "Tokens before the first answer (default: the context)", 1u << 30);
  number("--shared-prefix", f.shared_prefix, "First tokens that all prompts have in common (default: none)",
         1u << 30);
  number("-u,--users", f.users, "Conversations at once", 1u << 20);
  const auto milliseconds = [&](const char* name, double& target, const char* help) {
    verb.add_option(name, target, help)->type_name("MS")->check(number_range(1e-3, 1e9))->group(kQuestion);
  };
  milliseconds("--ttft", f.ttft_ms, "Longest time to first token, in milliseconds");
  milliseconds("--tpot", f.tpot_ms, "Longest time per output token, in milliseconds");
}

void add_way_flags(CLI::App& verb, PlanFlags& f) {
  constexpr const char* kWay = "How it is served";
  verb.add_option("--machine", f.machine,
                  "Name of --list, profile of `kvasir bench machine`, or here (default: here)")
      ->type_name("M")
      ->check(not_empty())
      ->group(kWay);
  verb.add_option("--memory", f.memory,
                  "Memory for weights and KV cache (default: the machine's; here: what is free)")
      ->type_name("SIZE")
      ->check(not_empty())
      ->group(kWay);
  verb.add_option("--weights", f.weights, "Format of the weights, e.g. Q8_0 (default: as the model has them)")
      ->type_name("FORMAT")
      ->check(not_empty())
      ->group(kWay);
  verb.add_option("--kv-cache-dtype", f.kv_cache_dtype,
                  "f16 (auto), int8, and other engines' bf16, fp8, q8_0, q4_0")
      ->type_name("TYPE")
      ->group(kWay);
  verb.add_option("-t,--threads", f.threads, "Threads, of a measured machine (default: all)")
      ->type_name("N")
      ->transform(integer_range(1, 1024))
      ->group(kWay);
  verb.add_option("--acceptance", f.acceptance,
                  "Chance that a token copied from the prompt is right, for speculation (default 0.425)")
      ->type_name("A")
      ->check(number_range(0, 1))
      ->group(kWay);
}

}  // namespace

Verb add_plan_verb(CLI::App& root) {
  CLI::App* verb =
      root.add_subcommand("plan", "Say what a model needs, how fast it can be and what would help");
  const auto f = std::make_shared<PlanVerbFlags>();
  verb->add_option("MODEL,-m,--model", f->plan.model,
                   "GGUF file, config.json or its folder, or a name of --list");
  add_question_flags(*verb, f->plan);
  add_way_flags(*verb, f->plan);
  verb->add_option("-o,--output", f->output, "md or json (default md)")->check(CLI::IsMember({"md", "json"}));
  CLI::Option* report =
      verb->add_option("--report", f->report, "Also write a page with charts (.html) or the charts (.svg)");
  report->type_name("FILE");
  CLI::Option* explain =
      verb->add_option("--explain", f->explain, "How a number came about; without an ID: every number's id")
          ->type_name("[ID]")
          ->expected(0, 1);
  verb->add_flag("--list", f->list, "Names of the models and machines that are built in");
  verb->add_flag("--check", f->check,
                 "Run MODEL here with short fixed loads: predicted beside measured times, and the errors")
      ->excludes(explain)
      ->excludes(report);
  verb->add_flag("--published", f->published, "Published results beside what the formulas say");
  verb->footer(
      "Reads headers only: no weight is loaded and nothing runs. A GGUF file on a machine that `kvasir\n"
      "bench machine` measured is predicted from what the kernels reach there, as a server predicts its\n"
      "steps; every other time is a floor, the least that memory bandwidth and arithmetic allow (the\n"
      "roofline). The report says which, and shows floors beside predictions; docs/plan.md says how to\n"
      "read the tables.\n\n"
      "--check times the kernels alone between the tests and predicts each test from that; beside it stand\n"
      "what the plan says, from the kept profile, and how well a server does that adapts step by step.\n\n"
      "Examples:\n"
      "  kvasir plan model.gguf                                      this machine, as it was measured\n"
      "  kvasir plan model.gguf --users 10 --tpot 100                may it serve ten people?\n"
      "  kvasir plan \"Llama 3.1 8B\" --machine \"EPYC 9654\" -c 32768   before buying\n"
      "  kvasir plan model.gguf --explain ttft                       where a number comes from\n"
      "  kvasir plan model.gguf --explain predicted_ttft             and a prediction: rates x work\n"
      "  kvasir plan model.gguf --check                              a minute: predicted and measured\n"
      "  kvasir plan model.gguf --report plan.html                   rooflines and curves\n\n" +
      std::string(kExitCodesHelp));
  return {verb, [f, explain] {
            f->explain_given = explain->count() > 0;
            return plan(*f);
          }};
}

}  // namespace kvasir
