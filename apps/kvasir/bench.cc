#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <memory>

#include "apps/kvasir/cli.h"
#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/model_bench.h"
#include "base/thread_pool.h"
#include "server/json_writer.h"

namespace kvasir {
namespace {

struct BenchFlags {
  std::string model;
  std::string isa;
  std::string kv_cache_dtype = "auto";
  std::string output = "md";
  uint32_t threads = 0;
  uint32_t chunk = 512;
  uint32_t block_size = 32;
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

void print_row(const BenchFlags& f, const BenchResult& r) {
  if (f.output == "md")
    fmt::print("| {:<16} | {:>10.2f} | {:>7.1f} % |\n", r.shape.name(), r.median, 100 * r.spread);
  if (f.output == "csv") fmt::print("{},{:.3f},{:.4f}\n", r.shape.name(), r.median, r.spread);
  std::fflush(stdout);
}

void print_json(const ModelBench& bench, const BenchFlags& f, Isa isa, uint32_t threads,
                const std::vector<BenchResult>& results) {
  JsonWriter out;
  out.begin_array();
  for (const BenchResult& r : results) {
    out.begin_object().field("test", r.shape.name()).field("model", f.model).field("threads", threads);
    out.field("isa", isa_name(isa)).field("parameters", bench.config().parameter_count);
    out.field("tokens_per_second", r.median).field("spread", r.spread).key("samples").begin_array();
    for (double sample : r.tokens_per_second) out.value(sample);
    out.end_array().end_object();
  }
  out.end_array();
  fmt::print("{}\n", out.text());
}

int bench(const BenchFlags& f) {
  const Result<Isa> isa = isa_of_flag(f.isa);
  if (!isa.ok()) return fail(kExitUsage, isa.message());
  const uint32_t threads = f.threads == 0 ? usable_cpus() : f.threads;
  const Result<KvType> kv_type = kv_type_of_flag(f.kv_cache_dtype);
  if (!kv_type.ok()) return fail(kExitUsage, kv_type.message());
  auto opened = ModelBench::open(f.model, {*isa, threads, f.chunk, f.block_size, *kv_type});
  if (!opened.ok()) return fail_to_open(opened.status());
  ModelBench& model = **opened;
  if (f.output == "md")
    fmt::print("{}, {} threads, {}\n\n| {:<16} | {:>10} | {:>9} |\n|{:-<18}|{:->11}:|{:->10}:|\n",
               model.config().name, threads, isa_name(*isa), "test", "tokens/s", "spread", "", "", "");
  if (f.output == "csv") fmt::print("test,tokens_per_second,spread\n");
  std::vector<BenchResult> results;
  for (const BenchShape& shape : shapes(f)) {
    if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r{} ...\x1b[K", shape.name());
    auto result = model.measure(shape, f.repetitions);
    if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\x1b[K");
    if (!result.ok()) {
      const bool memory = result.status().code() == ErrorCode::kResourceExhausted;
      return fail(memory ? kExitMemory : kExitUsage, result.message(),
                  memory ? "Fewer sequences (-b) or tokens (-p, -n, -d) need less." : "");
    }
    print_row(f, *result);
    results.push_back(std::move(result).value());
  }
  if (f.output == "json") print_json(model, f, *isa, threads, results);
  return kExitOk;
}

}  // namespace

Verb add_bench_verb(CLI::App& root) {
  CLI::App* verb = root.add_subcommand("bench", "Measure how fast a model reads and writes here");
  const auto f = std::make_shared<BenchFlags>();
  verb->add_option("MODEL,-m,--model", f->model, "GGUF file")->required();
  const auto list = [&](const char* name, std::vector<uint32_t>& target, const char* help, uint32_t min) {
    verb->add_option(name, target, help)
        ->delimiter(',')
        ->type_name("N,...")
        ->check(CLI::Range(min, 1u << 20));
  };
  list("-p,--n-prompt", f->prompts, "Tokens to read (0: none; default 512)", 0);
  list("-n,--n-gen", f->generates, "Tokens to write (0: none; default 64)", 0);
  list("-b,--batch", f->batches, "Sequences at once (default 1)", 1);
  list("-d,--n-depth", f->depths, "Tokens each sequence already holds (default 0)", 0);
  const auto number = [&](const char* name, uint32_t& target, const char* help, uint32_t min, uint32_t max) {
    verb->add_option(name, target, help)->type_name("N")->check(CLI::Range(min, max));
  };
  number("-r,--repetitions", f->repetitions, "Runs of each test; the median is shown (default 5)", 1, 1000);
  number("-t,--threads", f->threads, "Compute threads (default: the CPUs this process may use)", 1, 1024);
  number("--max-num-batched-tokens", f->chunk, "Rows per step (default 512)", 1, 4096);
  number("--block-size", f->block_size, "Tokens per KV block, a multiple of 16 (default 32)", 16, 1024);
  verb->add_option("--isa", f->isa, "Instruction set (default: the best)")->type_name("NAME");
  add_kv_cache_dtype(*verb, f->kv_cache_dtype);
  verb->add_option("-o,--output", f->output, "md, json or csv (default md)")
      ->check(CLI::IsMember({"md", "json", "csv"}));
  verb->footer(
      "Times forward passes alone, as llama-bench does: no tokenizer and no sampling. pp512 reads 512 "
      "tokens, tg64@b8\n"
      "writes 64 tokens in each of 8 sequences, @d4096 after 4,096 others; all count tokens of all "
      "sequences.\n"
      "Spread is (fastest - slowest) / median.\n\n"
      "Example:\n  kvasir bench model.gguf -p 512 -n 64 -b 1,8,32 -o json\n\n" +
      std::string(kExitCodesHelp));
  return {verb, [f] { return bench(*f); }};
}

}  // namespace kvasir
