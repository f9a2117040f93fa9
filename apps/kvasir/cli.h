#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir {

// What the process ends with; every --help says so.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitModel = 3,   // the model file cannot be read or run
  kExitMemory = 4,  // it does not fit
  kExitInterrupted = 130,
};
inline constexpr std::string_view kExitCodesHelp =
    "Exit codes: 0 ok, 1 failure, 2 usage, 3 model file, 4 not enough memory, 130 interrupted.\n";

// A verb of the command line: its flags, and what it does once they are parsed.
struct Verb {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

Verb add_serve_verb(CLI::App& root);
Verb add_run_verb(CLI::App& root);
Verb add_inspect_verb(CLI::App& root);
Verb add_bench_verb(CLI::App& root);
Verb add_plan_verb(CLI::App& root);
Verb add_dump_hidden_verb(CLI::App& root);

// Prints "kvasir: message" and, on its own line, what to do next; returns `code`.
int fail(int code, std::string_view message, std::string_view hint = "");

// The same for something that does not stop the verb.
void warn(std::string_view message);

// The exit code of a model that would not open, its message and a hint printed. `described`: what the file
// says about itself could be read, so that `kvasir inspect` can show it.
int fail_to_open(const Status& status, bool described);

// kInvalidArgument, with the way the verb is called, when no model was given.
Status require_model(const std::string& model, std::string_view verb);

// The candidate that `word` was probably meant to be; "" when none is near (edit distance with swaps, at most
// a third of the word).
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace kvasir
