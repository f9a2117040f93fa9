// The verbs as command lines: what the parser refuses, what a verb says and ends with.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "apps/kvasir/cli.h"
#include "apps/kvasir/number_flag.h"
#include "apps/kvasir/plan_report.h"
#include "apps/kvasir/test_file.h"
#include "engine/memory_plan.h"
#include "models/tiny_model.h"

namespace kvasir {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Outcome {
  int code = kExitOk;
  std::string errors;  // standard error, or the parser's refusal
};

Outcome run(std::vector<std::string> words, bool parse_only = false) {
  CLI::App root("test", "kvasir");
  const std::vector<Verb> verbs = {add_serve_verb(root), add_run_verb(root),  add_inspect_verb(root),
                                   add_bench_verb(root), add_plan_verb(root), add_dump_hidden_verb(root)};
  std::reverse(words.begin(), words.end());
  try {
    root.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return {kExitUsage, error.what()};
  }
  if (parse_only) return {};
  testing::internal::CaptureStderr();
  int code = kExitUsage;
  for (const Verb& verb : verbs) {
    if (verb.app->parsed()) code = verb.run();
  }
  return {code, testing::internal::GetCapturedStderr()};
}

std::string refusal(const std::vector<std::string>& words) {
  return run(words, true).errors;
}

// Standard output is another file for as long as this lives.
class StdoutTo {
 public:
  explicit StdoutTo(const char* path) : kept_(::dup(STDOUT_FILENO)) {
    std::fflush(stdout);
    const int file = ::open(path, O_WRONLY);
    ::dup2(file, STDOUT_FILENO);
    ::close(file);
  }
  ~StdoutTo() {
    ::dup2(kept_, STDOUT_FILENO);
    ::close(kept_);
  }

 private:
  int kept_;
};

TEST(RunFlags, TakeTheNumbersOfTheApi) {
  const std::vector<std::pair<const char*, const char*>> taken = {
      {"--temperature", "0"}, {"--temperature", "5"},
      {"--top-p", "0.01"},    {"--top-p", "1"},
      {"--top-k", "-1"},      {"--top-k", "2147483647"},
      {"--seed", "-5"},       {"--seed", "9223372036854775807"},
      {"--max-tokens", "1"},  {"--max-tokens", "2147483647"}};
  for (const auto& [flag, value] : taken) EXPECT_EQ(refusal({"run", "m.gguf", flag, value}), "");
}

TEST(RunFlags, RefuseOtherNumbersByNameAndRange) {
  const auto expect = [](const char* flag, const std::string& range, const std::vector<std::string>& values) {
    for (const std::string& value : values)
      EXPECT_EQ(refusal({"run", "m.gguf", flag, value}),
                std::string(flag) + ": '" + value + "' is not " + range);
  };
  expect("--temperature", "a number from 0 to 5", {"nan", "inf", "-0.1", "5.1", "1x", "1e999"});
  expect("--top-p", "a number from 0 to 1", {"-0.1", "nan", "1.01", "-1"});
  expect("--top-k", "an integer from -1 to 2147483647", {"-5", "2147483648", "1.5", "many"});
  expect("--seed", "an integer from -9223372036854775808 to 9223372036854775807",
         {"9223372036854775808", "99999999999999999999", "0x10", "1.5"});
  expect("--max-tokens", "an integer from 1 to 2147483647", {"0", "-1", "18446744073709551617"});
}

TEST(RunFlags, AreDecimal) {
  std::string text = "010";
  EXPECT_EQ(field_range("seed")(text), "");
  EXPECT_EQ(text, "10");
}

TEST(Flags, MayNotBeEmpty) {
  for (const char* flag : {"--api-key", "--api-key-file", "--cors-origin", "--allowed-host", "--host",
                           "--served-model-name", "--chat-template", "--kv-memory", "--isa"})
    EXPECT_EQ(refusal({"serve", "m.gguf", flag, ""}), std::string(flag) + ": it is empty");
}

TEST(Flags, AKeyIsOneThatAClientCanSend) {
  for (const char* key : {" ", " a", "a ", "a\nb", "a\tb", "a\x7f"}) {
    const std::string error = refusal({"serve", "m.gguf", "--api-key", key});
    EXPECT_EQ(error.rfind("--api-key: no client can send it", 0), 0u) << error;
  }
}

TEST(Flags, NameTheirRange) {
  EXPECT_THAT(refusal({"serve", "m.gguf", "--port", "99999"}),
              HasSubstr("'99999' is not an integer from 0 to 65535"));
  EXPECT_THAT(refusal({"serve", "m.gguf", "--shutdown-timeout", "abc"}),
              HasSubstr("'abc' is not an integer"));
  for (const char* origin : {"foo", "https://", "://host", "https://a.example/", "https://a.example/path"})
    EXPECT_THAT(refusal({"serve", "m.gguf", "--cors-origin", origin}), HasSubstr("is no origin")) << origin;
}

TEST(Verbs, SayHowTheyAreCalledWithoutAModel) {
  for (const char* verb : {"inspect", "bench"}) {
    const Outcome outcome = run({verb});
    EXPECT_EQ(outcome.code, kExitUsage);
    EXPECT_THAT(outcome.errors, HasSubstr(std::string("`kvasir ") + verb + " MODEL`"));
  }
}

TEST(Verbs, HintAtThePathOfAMissingFileOnly) {
  const Outcome missing = run({"inspect", "/no-such-file.gguf"});
  EXPECT_EQ(missing.code, kExitModel);
  EXPECT_THAT(missing.errors, HasSubstr("Is the path right"));
  const TestFile damaged("not a model");
  const Outcome refused = run({"inspect", damaged.path()});
  EXPECT_EQ(refused.code, kExitModel);
  EXPECT_THAT(refused.errors, Not(HasSubstr("Is the path right")));
  EXPECT_THAT(refused.errors, Not(HasSubstr("kvasir inspect")));
}

TEST(Verbs, AMissingTensorIsNoMissingFile) {
  const TestFile file(TinyModel{.without = "blk.0.ffn_up.weight"}.bytes());
  const Outcome outcome = run({"bench", file.path(), "-t", "1"});
  EXPECT_EQ(outcome.code, kExitModel);
  EXPECT_THAT(outcome.errors, HasSubstr("tensor 'blk.0.ffn_up.weight' is missing"));
  EXPECT_THAT(outcome.errors, Not(HasSubstr("Is the path right")));
}

TEST(Verbs, AFullDeviceIsAFailure) {
  const TestFile file(TinyModel{}.bytes());
  const std::vector<std::vector<std::string>> commands = {
      {"inspect", file.path()},
      {"inspect", file.path(), "--json"},
      {"plan", file.path(), "--machine", "M1", "-c", "16"},
      {"bench", file.path(), "-t", "1", "-p", "8", "-n", "0", "-r", "1", "--no-machine"},
      {"bench", file.path(), "-t", "1", "-p", "8", "-n", "0", "-r", "1", "--no-machine", "-o", "json"}};
  for (const auto& command : commands) {
    Outcome full, sink;
    {
      const StdoutTo device("/dev/full");
      full = run(command);
    }
    {
      const StdoutTo device("/dev/null");
      sink = run(command);
    }
    EXPECT_EQ(full.code, kExitFailure);
    EXPECT_EQ(full.errors, "kvasir: cannot write standard output: No space left on device\n");
    EXPECT_EQ(sink.code, kExitOk);
    EXPECT_EQ(sink.errors, "");
  }
}

TEST(Plan, SaysWhatIsWrongAndWhatIsNear) {
  const Outcome none = run({"plan"});
  EXPECT_EQ(none.code, kExitUsage);
  EXPECT_THAT(none.errors, HasSubstr("`kvasir plan MODEL`"));
  const Outcome model = run({"plan", "Llama 3.1 9B", "--machine", "H100"});
  EXPECT_EQ(model.code, kExitModel);
  EXPECT_THAT(model.errors, HasSubstr("Llama 3.1 8B"));
  EXPECT_THAT(model.errors, HasSubstr("--list"));
  const Outcome machine = run({"plan", "Llama 3.1 8B", "--machine", "H10"});
  EXPECT_EQ(machine.code, kExitUsage);
  EXPECT_THAT(machine.errors, HasSubstr("H100"));
  const Outcome context = run({"plan", "Llama 2 7B", "--machine", "H100", "-c", "4097"});
  EXPECT_EQ(context.code, kExitUsage);
  EXPECT_THAT(context.errors, HasSubstr("the context is 4097 and Llama 2 7B was made for at most 4096"));
  const Outcome id = run({"plan", "Llama 2 7B", "--machine", "H100", "--explain", "ttftt"});
  EXPECT_EQ(id.code, kExitUsage);
  EXPECT_THAT(id.errors, HasSubstr("did you mean ttft"));
  const Outcome page = run({"plan", "Llama 2 7B", "--machine", "H100", "--report", "plan.pdf"});
  EXPECT_EQ(page.code, kExitUsage);
  EXPECT_THAT(page.errors, HasSubstr("neither in .html nor in .svg"));
  EXPECT_THAT(refusal({"plan", "m", "-o", "csv"}), HasSubstr("csv"));
}

TEST(Plan, TakesNumbersOnly) {
  EXPECT_EQ(refusal({"plan", "m", "--users", "0"}), "--users: '0' is not an integer from 1 to 1048576");
  EXPECT_EQ(refusal({"plan", "m", "-c", "0x10"}), "--context: '0x10' is not an integer from 1 to 1073741824");
  for (const char* flag : {"--ttft", "--tpot", "--acceptance"})
    for (const char* value : {"nan", "inf", "-1"})
      EXPECT_THAT(refusal({"plan", "m", flag, value}),
                  HasSubstr(std::string(flag) + ": '" + value + "' is not a number from "));
  EXPECT_EQ(refusal({"plan", "m", "--users", "010", "--ttft", "0.5", "--acceptance", "1"}), "");
}

TEST(Plan, OffersOnlyFlagsThatServeTakes) {
  PlanFlags flags{
      .model = "Llama 3.1 8B", .machine = "EPYC 9654", .kv_cache_dtype = "int8", .users = 10, .tpot_ms = 100};
  const auto report =
      make_plan_report(*plan_request(flags, *plan_model(flags.model), *machine_by_name(flags.machine)));
  ASSERT_TRUE(report.ok());
  ASSERT_TRUE(report->serve.starts_with("kvasir "));
  EXPECT_THAT(report->serve, HasSubstr("--kv-cache-dtype int8"));
  std::istringstream text(report->serve.substr(7));
  const std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
  EXPECT_EQ(refusal(words), "");
  for (const PlanAdvice& advice : report->advice) {
    if (!advice.how.starts_with("--") || advice.id.starts_with("machine_")) continue;
    std::istringstream how(advice.how.substr(0, advice.how.find(',')));
    std::vector<std::string> line = {"serve", "m.gguf"};
    line.insert(line.end(), std::istream_iterator<std::string>(how), {});
    EXPECT_EQ(refusal(line), "") << advice.how;
  }
}

TEST(Plan, WorksFromAFileAndAConfig) {
  const TestFile gguf(TinyModel{}.bytes());
  const StdoutTo sink("/dev/null");
  EXPECT_EQ(run({"plan", gguf.path(), "--machine", "M1", "-c", "16"}).code, kExitOk);
  EXPECT_EQ(run({"plan", gguf.path(), "--machine", "M1", "-c", "16", "-o", "json"}).code, kExitOk);
  EXPECT_EQ(run({"plan", gguf.path(), "--machine", "M1", "-c", "16", "--explain"}).code, kExitOk);
  EXPECT_EQ(run({"plan", "Gemma 3 1B", "--machine", "M1", "--explain", "ttft"}).code, kExitOk);
  EXPECT_EQ(run({"plan", "--list"}).code, kExitOk);
}

TEST(Plan, ChecksOnlyWhatItCanRun) {
  const TestFile gguf(TinyModel{}.bytes());
  const Outcome name = run({"plan", "Llama 2 7B", "--check"});
  EXPECT_EQ(name.code, kExitUsage);
  EXPECT_THAT(name.errors, HasSubstr("Llama 2 7B is no GGUF file"));
  const Outcome machine = run({"plan", gguf.path(), "--check", "--machine", "M1"});
  EXPECT_EQ(machine.code, kExitUsage);
  EXPECT_THAT(machine.errors, HasSubstr("--machine M1 cannot be checked"));
  const Outcome weights = run({"plan", gguf.path(), "--check", "--weights", "Q8_0"});
  EXPECT_EQ(weights.code, kExitUsage);
  EXPECT_THAT(weights.errors, HasSubstr("--weights cannot be checked"));
  for (const char* flag : {"--context", "--prompt", "--shared-prefix", "--users", "--ttft", "--tpot",
                           "--memory", "--acceptance"}) {
    const Outcome question = run({"plan", gguf.path(), "--check", flag, "1"});
    EXPECT_EQ(question.code, kExitUsage) << flag;
    EXPECT_THAT(question.errors, HasSubstr(std::string("it takes no ") + flag));
  }
  const Outcome file = run({"plan", gguf.path(), "--check", "--machine", "./none.json"});
  EXPECT_EQ(file.code, kExitUsage);
  EXPECT_THAT(file.errors, HasSubstr("./none.json"));
}

TEST(Plan, ChecksAModelHere) {
  HardwareProfile p;
  p.threads = 1;
  p.clock_hz = 3e9;
  p.measured_at = "2026-11-30T00:00:00Z";
  p.int8_macs = p.f32_macs = {1e11, 1e11};
  p.reads = {{uint64_t{1} << 20, {1e10, 1e10}}};
  p.kernels = derived_rates(p, std::vector<DType>{DType::kF32});
  const TestFile gguf(TinyModel{.context = 600}.bytes()), profile(p.to_json());
  const StdoutTo sink("/dev/null");
  for (const char* output : {"md", "json"}) {
    const Outcome outcome =
        run({"plan", gguf.path(), "--check", "--machine", profile.path(), "-t", "1", "-o", output});
    EXPECT_EQ(outcome.code, kExitOk) << outcome.errors;
  }
}

TEST(DumpHidden, SaysWhatIsMissingOrWrong) {
  const TestFile gguf(TinyModel{}.bytes()), prompts("one\n"), none("\n"), broken("\"one\n");
  const auto errors = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"dump-hidden", gguf.path()});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, kExitUsage);
    return outcome.errors;
  };
  EXPECT_THAT(errors({}), HasSubstr("which prompts? --prompts FILE"));
  EXPECT_THAT(errors({"--prompts", prompts.path()}), HasSubstr("where to? --output FILE"));
  EXPECT_THAT(errors({"--prompts", none.path(), "-o", "x"}), HasSubstr("holds no prompt"));
  EXPECT_THAT(errors({"--prompts", broken.path(), "-o", "x"}), HasSubstr("line 1"));
  EXPECT_THAT(errors({"--prompts", "/nowhere", "-o", "x"}), HasSubstr("'/nowhere'"));
  EXPECT_THAT(errors({"--prompts", prompts.path(), "-o", "x", "--points", "7"}),
              HasSubstr("--points: '7' is no point of this model; there are 0 to 1"));
}

TEST(Bench, RefusesToMeasureNothing) {
  const Outcome outcome = run({"bench", "m.gguf", "-p", "0", "-n", "0"});
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_THAT(outcome.errors, HasSubstr("nothing to measure"));
}

TEST(Bench, RefusesAKvCacheThatMemoryCannotHold) {
  if (usable_memory(read_memory()) >> 39 != 0) GTEST_SKIP() << "this machine could hold it";
  const TestFile file(TinyModel{}.bytes());
  Outcome outcome;
  {
    const StdoutTo sink("/dev/null");
    outcome = run({"bench", file.path(), "-t", "1", "-p", "1048576", "-n", "0", "-b", "4096", "-d", "1048576",
                   "-r", "1", "--max-num-batched-tokens", "4096"});
  }
  EXPECT_EQ(outcome.code, kExitMemory);
  EXPECT_THAT(outcome.errors, HasSubstr("of memory are free"));
}

}  // namespace
}  // namespace kvasir
