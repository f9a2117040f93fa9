#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "apps/kvasir/cli.h"
#include "apps/kvasir/output.h"

namespace kvasir {
namespace {

// A standard descriptor that came closed would be given to the next file or socket. Something that refuses to
// be read or written takes its place, so that it is still noticed.
void hold_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) == -1)
      (void)::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

std::vector<std::string> spellings(const CLI::App& app) {
  std::vector<std::string> all;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) all.push_back("--" + name);
    for (const std::string& name : option->get_fnames()) all.push_back("--" + name);
  }
  return all;
}

// What a word that no flag or verb takes was meant to be, in words; "" when nothing is near.
std::string did_you_mean(const std::vector<Verb>& verbs, const CLI::App& root, int argc, char** argv) {
  const auto verb = std::find_if(verbs.begin(), verbs.end(), [](const Verb& v) { return v.app->parsed(); });
  const std::vector<std::string> known = spellings(verb != verbs.end() ? *verb->app : root);
  for (int i = 1; i < argc; ++i) {
    const std::string word = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
    if (!word.starts_with("--") || std::find(known.begin(), known.end(), word) != known.end()) continue;
    const std::string meant = nearest_word(word, known);
    if (!meant.empty()) return fmt::format("Did you mean {} instead of {}?", meant, word);
  }
  return "";
}

int wrong_verb(const std::vector<Verb>& verbs, const std::string& word) {
  std::vector<std::string> names;
  for (const Verb& verb : verbs) names.push_back(verb.app->get_name());
  const std::string meant = nearest_word(word, names);
  const std::string hint = !meant.empty()            ? fmt::format("Did you mean `kvasir {}`?", meant)
                           : word.ends_with(".gguf") ? fmt::format("To chat with it: kvasir run {}", word)
                                                     : "`kvasir --help` lists the verbs.";
  return fail(kExitUsage, fmt::format("'{}' is no verb; there are {}", word, fmt::join(names, ", ")), hint);
}

int run(int argc, char** argv) {
  CLI::App root("Kvasir runs a language model for many people at once, on the processors you have.",
                "kvasir");
  root.set_version_flag("--version", "kvasir " KVASIR_VERSION, "Show the version");
  root.require_subcommand(0, 1);
  root.footer(
      "Examples:\n"
      "  kvasir serve model.gguf                    an OpenAI-compatible server on http://127.0.0.1:8000/v1\n"
      "  kvasir run model.gguf                      a chat in the terminal\n"
      "  kvasir run model.gguf -p \"Why is it so?\"   one answer\n"
      "  kvasir inspect model.gguf                  what the file holds and what it needs\n"
      "  kvasir bench model.gguf                    how fast it reads and writes here\n"
      "  kvasir plan model.gguf --users 10          how fast it can be at most, and what would help\n\n"
      "`kvasir VERB --help` explains the flags of a verb.\n" +
      std::string(kExitCodesHelp));
  const std::vector<Verb> verbs = {add_serve_verb(root), add_run_verb(root),  add_inspect_verb(root),
                                   add_bench_verb(root), add_plan_verb(root), add_dump_hidden_verb(root)};
  const bool names_verb = argc > 1 && argv[1][0] != '-';
  const bool known = std::any_of(verbs.begin(), verbs.end(),
                                 [&](const Verb& v) { return names_verb && v.app->get_name() == argv[1]; });
  if (names_verb && !known) return wrong_verb(verbs, argv[1]);
  try {
    root.parse(argc, argv);
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    root.exit(help, text);
    return print_or_fail(text.str());
  } catch (const CLI::ParseError& error) {
    std::string hint = did_you_mean(verbs, root, argc, argv);
    if (hint.empty())
      hint = fmt::format("`kvasir{}{} --help` explains the flags.", names_verb ? " " : "",
                         names_verb ? argv[1] : "");
    return fail(kExitUsage, error.what(), hint);
  }
  for (const Verb& verb : verbs) {
    if (verb.app->parsed()) return verb.run();
  }
  print_or_fail(root.help());
  return kExitUsage;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  try {
    kvasir::hold_standard_descriptors();
    return kvasir::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return kvasir::fail(kvasir::kExitMemory, "out of memory",
                        "A smaller --kv-memory or --max-model-len needs less.");
  } catch (const std::exception& error) {
    return kvasir::fail(kvasir::kExitFailure, error.what());
  }
}
