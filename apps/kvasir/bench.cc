#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "apps/kvasir/bench_machine.h"
#include "apps/kvasir/bench_report.h"
#include "apps/kvasir/bench_speculate.h"
#include "apps/kvasir/cli.h"
#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/machine_file.h"
#include "apps/kvasir/machine_reference.h"
#include "apps/kvasir/model_bench.h"
#include "apps/kvasir/number_flag.h"
#include "apps/kvasir/output.h"
#include "base/numa.h"
#include "base/thread_pool.h"

namespace kvasir {
namespace {

struct BenchFlags {
  std::string model;
  std::string isa;
  std::string kv_cache_dtype = "auto";
  std::string output = "md";
  std::string machine;
  bool no_machine = false;
  bool profile = false;
  uint32_t threads = 0;
  uint32_t chunk = 512;
  uint32_t block_size = EngineConfig{}.block_size;
  uint32_t repetitions = 5;
  std::vector<uint32_t> prompts = {512};
  std::vector<uint32_t> generates = {64};
  std::vector<uint32_t> batches = {1};
  std::vector<uint32_t> depths = {0};
};

std::vector<BenchShape> shapes(const BenchFlags& f) {
  std::vector<BenchShape> all;
  for (uint32_t depth : f.depths)
    for (uint32_t batch : f.batches) {
      for (uint32_t p : f.prompts)
        if (p > 0) all.push_back({.prompt = p, .generate = 0, .batch = batch, .depth = depth});
      for (uint32_t n : f.generates)
        if (n > 0) all.push_back({.prompt = 0, .generate = n, .batch = batch, .depth = depth});
    }
  return all;
}

constexpr uint64_t kProbeBytes = uint64_t{256} << 20;

std::string row_text(const BenchFlags& f, const BenchRow& row) {
  if (f.output == "md") return md_row(row);
  return f.output == "csv" ? csv_row(row) : "";
}

std::string head_text(const BenchFlags& f, const BenchSetting& setting) {
  if (f.output == "md") return md_head(setting);
  return f.output == "csv" ? csv_head() : "";
}

int fail_to_measure(const Status& status) {
  if (status.code() != ErrorCode::kResourceExhausted) return fail(kExitUsage, status.message());
  return fail(kExitMemory, status.message(), "Fewer sequences (-b) or tokens (-p, -n, -d) need less.");
}

// kInvalidArgument for flags that leave nothing to do or contradict themselves.
Status check_flags(const BenchFlags& f) {
  const Status model = require_model(f.model, "bench");
  if (!model.ok()) return invalid_argument(model.message() + "; `kvasir bench machine` measures the machine");
  if (shapes(f).empty()) return invalid_argument("-p and -n are both 0: there is nothing to measure");
  if (f.block_size % 16 != 0) return invalid_argument("--block-size must be a multiple of 16");
  return {};
}

// Fills the setting's machine, if one is wanted, and the prober that is to look at it again.
Status find_machine(const BenchFlags& f, std::optional<HardwareProfile> named, ModelBench& model, Isa isa,
                    BenchSetting& setting, std::optional<MachineProber>& prober) {
  if (f.no_machine) return {};
  MachineReference reference;
  if (named) {
    reference = named_machine(*std::move(named), f.machine, model.pool(), isa);
  } else {
    KVASIR_ASSIGN_OR_RETURN(reference, machine_reference(model.pool(), isa, false));
  }
  setting.machine = std::move(reference.profile);
  setting.machine_source = std::move(reference.source);
  const uint64_t bytes = std::min(kProbeBytes, machine_bench_memory());
  KVASIR_ASSIGN_OR_RETURN(prober, MachineProber::make(model.pool(), isa, bytes));
  setting.before = prober->look();
  return {};
}

int run_tests(const BenchFlags& f, ModelBench& model, BenchSetting& setting, MachineProber* prober) {
  const HardwareProfile* machine = setting.machine ? &*setting.machine : nullptr;
  if (const int code = print_or_fail(head_text(f, setting)); code != kExitOk) return code;
  std::vector<BenchRow> rows;
  const CpuTimes begin = read_cpu_times();
  for (const BenchShape& shape : shapes(f)) {
    show_progress(shape.name() + " ...");
    auto result = model.measure(shape, f.repetitions);
    end_progress();
    if (!result.ok()) return fail_to_measure(result.status());
    rows.push_back(bench_row(*result, machine, setting.threads));
    if (const int code = print_or_fail(row_text(f, rows.back())); code != kExitOk) return code;
  }
  setting.meanwhile = shares_between(begin, read_cpu_times());
  if (prober != nullptr) setting.after = prober->look();
  if (f.output == "md") return print_or_fail(md_foot(setting) + (f.profile ? md_profile(rows) : ""));
  return f.output == "json" ? print_or_fail(rows_json(setting, rows)) : kExitOk;
}

int bench(const BenchFlags& f) {
  if (const Status sound = check_flags(f); !sound.ok())
    return fail(kExitUsage, sound.message(), "`kvasir bench --help` explains the flags.");
  const Result<Isa> isa = isa_of_flag(f.isa);
  if (!isa.ok()) return fail(kExitUsage, isa.message());
  // Before minutes may go into a model.
  std::optional<HardwareProfile> named;
  if (!f.machine.empty()) {
    auto read = load_machine(f.machine);
    if (!read.ok())
      return fail(kExitUsage, "--machine: " + read.message(),
                  "`kvasir bench machine --output FILE` writes one.");
    named = std::move(read).value();
  }
  const Result<uint32_t> threads = threads_of_flag(f.threads, usable_cpus());
  if (!threads.ok()) return fail(kExitUsage, threads.message());
  const Result<KvType> kv_type = kv_type_of_flag(f.kv_cache_dtype);
  if (!kv_type.ok()) return fail(kExitUsage, kv_type.message());
  interleave_memory();
  auto opened = ModelBench::open(f.model, {*isa, *threads, f.chunk, f.block_size, *kv_type});
  if (!opened.ok()) return fail_to_open(opened.status(), false);
  ModelBench& model = **opened;
  model.set_profiling(f.profile);
  BenchSetting setting{.model = f.model,
                       .model_name = model.config().name,
                       .parameters = model.config().parameter_count,
                       .threads = *threads,
                       .isa = *isa};
  std::optional<MachineProber> prober;
  const Status found = find_machine(f, std::move(named), model, *isa, setting, prober);
  if (!found.ok()) return fail(kExitMemory, found.message(), "--no-machine does without.");
  return run_tests(f, model, setting, prober ? &*prober : nullptr);
}

}  // namespace

Verb add_bench_verb(CLI::App& root) {
  CLI::App* verb =
      root.add_subcommand("bench", "Measure how fast a model reads and writes here, or the machine");
  const auto f = std::make_shared<BenchFlags>();
  verb->add_option("MODEL,-m,--model", f->model, "GGUF file (of a split one, the first part), or `machine`");
  const auto list = [&](const char* name, std::vector<uint32_t>& target, const char* help, uint32_t min) {
    verb->add_option(name, target, help)
        ->delimiter(',')
        ->type_name("N,...")
        ->check(CLI::Range(min, 1u << 20));
  };
  list("-p,--n-prompt", f->prompts, "Tokens to read (0: none; default 512)", 0);
  list("-n,--n-gen", f->generates, "Tokens to write (0: none; default 64)", 0);
  list("-b,--batch", f->batches, "Sequences at once (default 1)", 1);
  list("-d,--depth,--n-depth", f->depths, "Tokens each sequence already holds (default 0)", 0);
  const auto number = [&](const char* name, uint32_t& target, const char* help, uint32_t min, uint32_t max) {
    verb->add_option(name, target, help)->type_name("N")->check(CLI::Range(min, max));
  };
  number("-r,--repetitions", f->repetitions, "Runs of each test; the median is shown (default 5)", 1, 1000);
  number("-t,--threads", f->threads, kThreadsHelp, 1, 1024);
  number("--max-num-batched-tokens", f->chunk, "Rows per step (default 512)", 1, 4096);
  number("--block-size", f->block_size, "Tokens per KV block, a multiple of 16 (default 16)", 16, 1024);
  verb->add_option("--isa", f->isa, "Instruction set (default: the best)")
      ->type_name("NAME")
      ->check(not_empty());
  add_kv_cache_dtype(*verb, f->kv_cache_dtype);
  verb->add_option("-o,--output", f->output, "md, json or csv (default md)")
      ->check(CLI::IsMember({"md", "json", "csv"}));
  CLI::Option* file =
      verb->add_option("--machine", f->machine,
                       "What the machine can do, from `kvasir bench machine` (default: the file it "
                       "left, or a quick measurement)");
  file->type_name("FILE");
  verb->add_flag("--no-machine", f->no_machine, "Do not compare with the machine")->excludes(file);
  verb->add_flag("--profile", f->profile, "Also show where the time of each test went (md only)");
  verb->footer(
      "Times forward passes alone, as llama-bench does: no tokenizer, and no sampling but the largest\n"
      "logit. pp512 reads 512 tokens, tg64@b8 writes 64 tokens in each of 8 sequences, @d4096 after\n"
      "4,096 others; all count the tokens of all sequences. Spread is (fastest - slowest) / median.\n\n"
      "GB/s counts the weights and the KV cache that a step has to read, GMAC/s the multiply-adds\n"
      "of the linear layers. \"of reads\" and \"of compute\" say what part of the machine's own read\n"
      "rate and arithmetic peaks that is. The larger one bounds: at 100 % no kernel could be\n"
      "faster.\n\n"
      "The machine is looked at before and after. Where its clock or memory changed in between, so\n"
      "did the meaning of the table.\n\n"
      "Examples:\n"
      "  kvasir bench machine                          measure the machine once, for all later tables\n"
      "  kvasir bench model.gguf                       pp512 and tg64\n"
      "  kvasir bench model.gguf -b 1,8,32 -o json     more sequences at once\n"
      "  kvasir bench model.gguf -p 2048 -b 8 -n 0     read 8 prompts of 2,048 tokens\n"
      "  kvasir bench model.gguf -d 2048 -b 8 -p 0     write in 8 sequences of 2,048 tokens\n\n" +
      std::string(kExitCodesHelp));
  const Verb machine = add_machine_verb(*verb);
  const Verb speculate = add_speculate_verb(*verb);
  return {verb, [f, machine, speculate] {
            if (machine.app->parsed()) return machine.run();
            return speculate.app->parsed() ? speculate.run() : bench(*f);
          }};
}

}  // namespace kvasir
