#include <unistd.h>

#include <memory>

#include "apps/kvasir/chat_session.h"
#include "apps/kvasir/cli.h"
#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/load_progress.h"
#include "apps/kvasir/machine_reference.h"
#include "apps/kvasir/model_facts.h"
#include "apps/kvasir/number_flag.h"
#include "apps/kvasir/output.h"
#include "apps/kvasir/terminal_input.h"
#include "base/numa.h"

namespace kvasir {
namespace {

struct RunFlags {
  EngineFlags engine;
  ChatSettings chat;
  std::string prompt;
};

// Says one message and prints the answer as it comes; what is to be said about it goes to stderr. The exit
// code; kIo when the answer cannot be written.
Result<int> say(ChatSession& session, TerminalInput& input, const std::string& message) {
  const auto answer = session.say(
      message, [](std::string_view text) { return write_output(text); }, [&] { return input.interrupted(); });
  if (!answer.ok()) return answer.status();
  KVASIR_RETURN_IF_ERROR(write_output("\n"));
  tell("{}\n", answer->summary());
  return answer->interrupted ? kExitInterrupted : kExitOk;
}

int say_once(ChatSession& session, TerminalInput& input, const std::string& message) {
  const Result<int> code = say(session, input, message);
  return code.ok() ? *code : fail(kExitFailure, code.message());
}

int converse(ChatSession& session, TerminalInput& input) {
  tell("Ctrl-C stops an answer, Ctrl-D or Ctrl-C at the prompt ends the chat.\n");
  while (const auto line = input.read_line("\n> ")) {
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    const Result<int> code = say(session, input, *line);
    if (code.ok()) continue;
    fail(kExitFailure, code.message());
    if (code.status().code() == ErrorCode::kIo) return kExitFailure;
  }
  tell("\n");
  return kExitOk;
}

int run(const RunFlags& flags) {
  TerminalInput input;
  const auto options = flags.engine.options();
  if (!options.ok()) return fail(kExitUsage, options.message());
  auto chat_template = read_chat_template(flags.engine.chat_template);
  if (!chat_template.ok()) return fail(kExitUsage, chat_template.message());
  const auto facts = read_model_facts(flags.engine.model, options->engine.kv_type);
  if (!facts.ok()) return fail_to_open(facts.status(), false);
  interleave_memory();
  LoadProgress progress(facts->name);
  Llm::Options with_progress = *options;
  with_progress.progress = [&](uint64_t done, uint64_t total) {
    if (input.interrupted()) std::_Exit(kExitInterrupted);
    progress.update(done, total);
  };
  if (!with_progress.engine.speculation.drafters.empty()) {
    // Whether guesses pay is a question of what steps cost here.
    with_progress.machine = [&](ThreadPool& pool, const ModelConfig& config, const WeightSizes& weights) {
      return serving_machine(pool, options->isa.value_or(best_isa()), config, weights,
                             options->engine.kv_type);
    };
  }
  auto llm = Llm::open(flags.engine.model, with_progress);
  if (!llm.ok()) return fail_to_open(llm.status(), true);
  if (chat_template->parsed == nullptr) *chat_template = model_chat_template((*llm)->tokenizer());
  progress.finish();
  ChatSession session(served_model(**llm, *facts, *chat_template, ""), flags.chat);
  if (!session.has_template()) tell("This model has no chat template: it continues what you write.\n");
  if (!session.has_template() && !flags.chat.system.empty())
    warn("--system has no effect on a model without a chat template");

  std::string message = flags.prompt;
  if (::isatty(STDIN_FILENO) == 0) {
    const auto piped = input.read_all();
    if (!piped.ok()) return fail(kExitFailure, piped.message());
    if (!*piped) return kExitInterrupted;
    if (!message.empty() && !(*piped)->empty()) message += "\n\n";
    message += **piped;
    if (message.empty())
      return fail(kExitUsage, "nothing to say: the input is empty", "Give -p PROMPT, or type in a terminal.");
  }
  return message.empty() ? converse(session, input) : say_once(session, input, message);
}

}  // namespace

Verb add_run_verb(CLI::App& root) {
  CLI::App* verb = root.add_subcommand("run", "Chat with a model in the terminal");
  const auto flags = std::make_shared<RunFlags>();
  flags->engine.log_level = "warn";
  flags->engine.engine.max_num_seqs = 1;
  flags->engine.add_to(*verb);
  verb->add_option("-p,--prompt", flags->prompt,
                   "Say this, print the answer and end; piped input is added to it");
  constexpr const char* kAnswer = "The answer";
  verb->add_option("--system", flags->chat.system, "System message")->group(kAnswer);
  verb->add_option("--temperature", flags->chat.temperature, "0 always takes the likeliest token")
      ->transform(field_range("temperature"))
      ->type_name("X")
      ->capture_default_str()
      ->group(kAnswer);
  verb->add_option("--top-p", flags->chat.top_p, "Keep the likeliest tokens that make up this share")
      ->transform(field_range("top_p"))
      ->type_name("X")
      ->capture_default_str()
      ->group(kAnswer);
  verb->add_option("--top-k", flags->chat.top_k, "Keep so many of the likeliest tokens (0 or -1: all)")
      ->transform(field_range("top_k"))
      ->type_name("N")
      ->capture_default_str()
      ->group(kAnswer);
  verb->add_option("--seed", flags->chat.seed, "Same seed, same answer (default: a fresh one)")
      ->transform(field_range("seed"))
      ->type_name("N")
      ->group(kAnswer);
  verb->add_option("-n,--max-tokens", flags->chat.max_tokens,
                   "Most tokens of an answer (default: the rest of the context; 16 without a chat template)")
      ->transform(field_range("max_completion_tokens", 1))
      ->type_name("N")
      ->group(kAnswer);
  verb->footer(
      "Examples:\n"
      "  kvasir run model.gguf\n"
      "  kvasir run model.gguf -p \"Write a haiku about rain.\" --temperature 0\n"
      "  git diff | kvasir run model.gguf -p \"Summarise this change:\"\n\n" +
      std::string(kExitCodesHelp));
  return {verb, [flags] { return run(*flags); }};
}

}  // namespace kvasir
