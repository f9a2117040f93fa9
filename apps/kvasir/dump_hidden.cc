#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/kvasir/cli.h"
#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/hidden_dump.h"
#include "apps/kvasir/human_size.h"
#include "apps/kvasir/load_progress.h"
#include "apps/kvasir/model_facts.h"
#include "apps/kvasir/number_flag.h"
#include "apps/kvasir/output.h"
#include "base/text_file.h"
#include "gguf/fingerprint.h"

namespace kvasir {
namespace {

struct DumpFlags {
  EngineFlags engine;
  std::string prompts;
  std::string output;
  std::string points = "output";
  std::string type = "f16";
  bool raw = false;  // no chat template: the prompts are continued
  HiddenDumpOptions dump;
};

Result<std::vector<std::string>> read_prompts(const std::string& path) {
  KVASIR_ASSIGN_OR_RETURN(const std::string text, read_text_file(path));
  auto prompts = parse_prompts(text);
  if (!prompts.ok()) return invalid_argument(fmt::format("'{}': {}", path, prompts.message()));
  if (prompts->empty()) return invalid_argument(fmt::format("'{}' holds no prompt", path));
  return prompts;
}

void show_count(const char* what, uint64_t done, uint64_t all) {
  show_progress(fmt::format("{}: {} of {}{}", what, done, all, done < all ? " ..." : ""));
  if (done == all && ::isatty(STDERR_FILENO) == 1) tell("\n");
}

int dump(const DumpFlags& flags) {
  auto options = flags.engine.options();
  if (!options.ok()) return fail(kExitUsage, options.message());
  if (flags.prompts.empty()) return fail(kExitUsage, "which prompts? --prompts FILE, with one prompt a line");
  if (flags.output.empty()) return fail(kExitUsage, "where to? --output FILE");
  const auto prompts = read_prompts(flags.prompts);
  if (!prompts.ok()) return fail(kExitUsage, "--prompts: " + prompts.message());
  auto chat_template = read_chat_template(flags.engine.chat_template);
  if (!chat_template.ok()) return fail(kExitUsage, chat_template.message());
  const auto facts = read_model_facts(flags.engine.model, options->engine.kv_type);
  if (!facts.ok()) return fail_to_open(facts.status(), false);
  HiddenDumpOptions dump = flags.dump;
  const auto points = parse_points(flags.points, facts->config.layers);
  if (!points.ok()) return fail(kExitUsage, "--points: " + points.message());
  dump.points = *points;
  dump.halves = flags.type == "f16";
  LoadProgress progress(facts->name);
  options->progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
  options->engine.speculation = {};
  options->engine.max_queued_requests = static_cast<uint32_t>(prompts->size());
  options->engine.max_queued_per_user = options->engine.max_queued_requests;
  auto llm = Llm::open(flags.engine.model, *options);
  if (!llm.ok()) return fail_to_open(llm.status(), true);
  progress.finish();
  const auto file = GgufFile::open(flags.engine.model);
  if (!file.ok()) return fail_to_open(file.status(), true);
  if (chat_template->parsed == nullptr) *chat_template = model_chat_template((*llm)->tokenizer());
  if (flags.raw) *chat_template = {};
  const ServedModel served = served_model(**llm, *facts, *chat_template, "");
  const auto counts =
      dump_hidden_states(**llm, served, *prompts, dump, model_fingerprint(*file), flags.output, show_count);
  if (!counts.ok())
    return fail(counts.status().code() == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure,
                counts.message());
  return print_or_fail(fmt::format("{}: {} prompts, {} tokens, {} of them answers, {} of hidden states\n",
                                   flags.output, counts->prompts, counts->tokens, counts->answer_tokens,
                                   size_text(counts->bytes)));
}

void add_answer_flags(CLI::App& verb, DumpFlags& flags) {
  constexpr const char* kAnswers = "The answers";
  verb.add_flag("--raw", flags.raw, "Continue the prompts as they are, without the chat template")
      ->group(kAnswers);
  verb.add_option("-n,--max-tokens", flags.dump.max_tokens, "Most tokens of an answer")
      ->type_name("N")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str()
      ->group(kAnswers);
  verb.add_option("--temperature", flags.dump.temperature, "0 always takes the likeliest token")
      ->transform(field_range("temperature"))
      ->type_name("X")
      ->capture_default_str()
      ->group(kAnswers);
  verb.add_option("--seed", flags.dump.seed, "Of the first answer; the next one's is one more")
      ->transform(field_range("seed", 0))
      ->type_name("N")
      ->capture_default_str()
      ->group(kAnswers);
}

}  // namespace

Verb add_dump_hidden_verb(CLI::App& root) {
  CLI::App* verb = root.add_subcommand(
      "dump-hidden", "Write a model's answers and hidden states to a file, to train heads that draft for it");
  const auto flags = std::make_shared<DumpFlags>();
  flags->engine.log_level = "warn";
  flags->engine.engine.max_model_len = 2048;
  flags->engine.speculate = "off";
  flags->engine.add_to(*verb);
  constexpr const char* kDump = "The dump";
  verb->add_option("--prompts", flags->prompts,
                   "File with one prompt a line; a line that begins with a double quote is a JSON string")
      ->type_name("FILE")
      ->check(not_empty())
      ->group(kDump);
  verb->add_option("-o,--output", flags->output, "Safetensors file to write")
      ->type_name("FILE")
      ->check(not_empty())
      ->group(kDump);
  verb->add_option("--points", flags->points,
                   "Which hidden states, ascending: numbers of layers for what enters the layer, output for "
                   "what the output head reads (after the last norm)")
      ->type_name("LIST")
      ->capture_default_str()
      ->group(kDump);
  verb->add_option("--type", flags->type, "How they are kept: f16 or f32")
      ->check(CLI::IsMember({"f16", "f32"}))
      ->capture_default_str()
      ->group(kDump);
  add_answer_flags(*verb, *flags);
  verb->footer(
      "The model answers every prompt; then its hidden states at every token of prompts and answers are\n"
      "written, the very bits that its passes have when it serves. The file is in the safetensors format:\n"
      "  tokens [N], starts [S+1], answers [S], hidden [N, points, width]\n"
      "for N tokens in S sequences. tools/train_heads makes draft heads of it.\n\n"
      "Example:\n"
      "  kvasir dump-hidden model.gguf --prompts prompts.txt -n 200 -o answers.safetensors\n\n" +
      std::string(kExitCodesHelp));
  return {verb, [flags] { return dump(*flags); }};
}

}  // namespace kvasir
