#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "apps/kvasir/chat_session.h"
#include "apps/kvasir/cli.h"
#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/load_progress.h"
#include "apps/kvasir/model_facts.h"
#include "apps/kvasir/terminal_input.h"

namespace kvasir {
namespace {

struct RunFlags {
  EngineFlags engine;
  ChatSettings chat;
  std::string prompt;
};

// Says one message and prints the answer as it comes; what is to be said about it goes to stderr.
int say(ChatSession& session, TerminalInput& input, const std::string& message) {
  const auto answer = session.say(
      message,
      [](std::string_view text) {
        fmt::print("{}", text);
        std::fflush(stdout);
      },
      [&] { return input.interrupted(); });
  if (!answer.ok()) return fail(kExitFailure, answer.message());
  fmt::print("\n");
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", answer->summary());
  return answer->interrupted ? kExitInterrupted : kExitOk;
}

int converse(ChatSession& session, TerminalInput& input) {
  fmt::print(stderr, "Ctrl-C stops an answer, Ctrl-D or Ctrl-C at the prompt ends the chat.\n");
  while (true) {
    const auto line = input.read_line("\n> ");
    if (!line) break;
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    say(session, input, *line);
  }
  fmt::print(stderr, "\n");
  return kExitOk;
}

int run(const RunFlags& flags) {
  TerminalInput input;
  const auto options = flags.engine.options();
  if (!options.ok()) return fail(kExitUsage, options.message());
  const auto facts = read_model_facts(flags.engine.model, options->engine.kv_type);
  if (!facts.ok()) return fail_to_open(facts.status());
  LoadProgress progress(facts->name);
  Llm::Options with_progress = *options;
  with_progress.progress = [&](uint64_t done, uint64_t total) {
    if (input.interrupted()) std::_Exit(kExitInterrupted);
    progress.update(done, total);
  };
  auto llm = Llm::open(flags.engine.model, with_progress);
  if (!llm.ok()) return fail_to_open(llm.status());
  const auto chat_template = load_chat_template(flags.engine.chat_template, (*llm)->tokenizer());
  if (!chat_template.ok()) return fail(kExitUsage, chat_template.message());
  progress.finish();
  ChatSession session(served_model(**llm, *facts, *chat_template, ""), flags.chat);
  if (!session.has_template())
    fmt::print(stderr, "This model has no chat template: it continues what you write.\n");

  std::string message = flags.prompt;
  if (::isatty(STDIN_FILENO) == 0) {
    const std::string piped = input.read_all();
    if (!message.empty() && !piped.empty()) message += "\n\n";
    message += piped;
    if (message.empty())
      return fail(kExitUsage, "nothing to say: the input is empty", "Give -p PROMPT, or type in a terminal.");
  }
  return message.empty() ? converse(session, input) : say(session, input, message);
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
      ->check(CLI::Range(0.0, 5.0))
      ->capture_default_str()
      ->group(kAnswer);
  verb->add_option("--top-p", flags->chat.top_p, "Keep the likeliest tokens that make up this share")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->group(kAnswer);
  verb->add_option("--top-k", flags->chat.top_k, "Keep so many of the likeliest tokens (0: all)")
      ->capture_default_str()
      ->group(kAnswer);
  verb->add_option("--seed", flags->chat.seed, "Same seed, same answer (default: a fresh one)")
      ->type_name("N")
      ->group(kAnswer);
  verb->add_option("-n,--max-tokens", flags->chat.max_tokens,
                   "Most tokens of an answer (default: the rest of the context)")
      ->check(CLI::Range(1u, 1u << 30))
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
