#include <fmt/format.h>

#include <memory>

#include "apps/kvasir/cli.h"
#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/human_size.h"
#include "apps/kvasir/model_facts.h"
#include "base/thread_pool.h"
#include "engine/memory_plan.h"
#include "server/json_writer.h"

namespace kvasir {
namespace {

struct InspectFlags {
  std::string model;
  std::string isa;
  std::string kv_cache_dtype = "auto";
  bool json = false;
};

void print_formats(const ModelFacts& facts, Isa isa) {
  fmt::print("\n{:<10} {:>8} {:>12}  kernel\n", "format", "tensors", "bytes");
  for (const ModelFacts::Format& format : facts.formats) {
    fmt::print("{:<10} {:>8} {:>12}  {}\n", dtype_info(format.type).name, format.tensors,
               size_text(format.bytes), linear_kernel_name(isa, format.type));
  }
}

void print_memory(const ModelFacts& facts) {
  const uint64_t context = facts.kv_bytes_per_token * facts.config.context_length;
  fmt::print("\nmemory\n");
  fmt::print("  weights        {}\n", size_text(facts.packed_bytes));
  fmt::print("  KV cache       {} per token as {}; {} for one full context\n",
             size_text(facts.kv_bytes_per_token), kv_type_name(facts.kv_type), size_text(context));
  fmt::print("  free here      {}\n", size_text(usable_memory(read_memory())));
}

void print_text(const ModelFacts& facts, Isa isa) {
  const ModelConfig& c = facts.config;
  fmt::print("{}\n", facts.name);
  fmt::print("  file           {} ({}, GGUF version {}, {} tensors)\n", facts.path,
             size_text(facts.file_bytes), facts.gguf_version, facts.tensors);
  fmt::print("  architecture   {}, {} parameters{}{}\n", c.architecture, count_text(c.parameter_count),
             facts.quantization.empty() ? "" : ", ", facts.quantization);
  fmt::print("  layers         {} of width {}, feed-forward {}\n", c.layers, c.hidden_dim, c.ffn_dim);
  fmt::print("  attention      {} heads, {} KV heads, head size {}{}\n", c.heads, c.kv_heads, c.head_dim,
             c.local_rope ? ", some layers with a sliding window" : "");
  fmt::print("  context        {} tokens\n", c.context_length);
  fmt::print("  vocabulary     {} tokens, {}\n", c.vocab_size, facts.tokenizer);
  fmt::print("  chat template  {}\n", facts.has_chat_template ? "yes" : "none: completions only");
  print_formats(facts, isa);
  print_memory(facts);
  fmt::print("\nhere: {} CPUs, {}\n", usable_cpus(), isa_name(isa));
}

void print_json(const ModelFacts& facts, Isa isa) {
  const ModelConfig& c = facts.config;
  JsonWriter out;
  out.begin_object()
      .field("name", facts.name)
      .field("path", facts.path)
      .field("file_bytes", facts.file_bytes);
  out.field("gguf_version", facts.gguf_version)
      .field("architecture", c.architecture)
      .field("quantization", facts.quantization);
  out.field("parameters", c.parameter_count)
      .field("layers", c.layers)
      .field("hidden_dim", c.hidden_dim)
      .field("ffn_dim", c.ffn_dim);
  out.field("heads", c.heads)
      .field("kv_heads", c.kv_heads)
      .field("head_dim", c.head_dim)
      .field("context_length", c.context_length);
  out.field("vocab_size", c.vocab_size)
      .field("tokenizer", facts.tokenizer)
      .field("chat_template", facts.has_chat_template);
  out.field("weight_bytes", facts.packed_bytes).field("kv_bytes_per_token", facts.kv_bytes_per_token);
  out.field("kv_cache_dtype", kv_type_name(facts.kv_type));
  out.field("isa", isa_name(isa)).key("formats").begin_array();
  for (const ModelFacts::Format& format : facts.formats) {
    out.begin_object().field("format", dtype_info(format.type).name).field("tensors", format.tensors);
    out.field("bytes", format.bytes).field("kernel", linear_kernel_name(isa, format.type)).end_object();
  }
  out.end_array().end_object();
  fmt::print("{}\n", out.text());
}

int inspect(const InspectFlags& flags) {
  const Result<Isa> isa = isa_of_flag(flags.isa);
  if (!isa.ok()) return fail(kExitUsage, isa.message());
  const Result<KvType> kv_type = kv_type_of_flag(flags.kv_cache_dtype);
  if (!kv_type.ok()) return fail(kExitUsage, kv_type.message());
  const auto facts = read_model_facts(flags.model, *kv_type);
  if (!facts.ok()) return fail_to_open(facts.status());
  flags.json ? print_json(*facts, *isa) : print_text(*facts, *isa);
  return kExitOk;
}

}  // namespace

Verb add_inspect_verb(CLI::App& root) {
  CLI::App* verb = root.add_subcommand("inspect", "Show what a model file holds and what it will need");
  const auto flags = std::make_shared<InspectFlags>();
  verb->add_option("MODEL,-m,--model", flags->model, "GGUF file")->required();
  verb->add_option("--isa", flags->isa, "Instruction set to name kernels for (default: the best)")
      ->type_name("NAME");
  add_kv_cache_dtype(*verb, flags->kv_cache_dtype);
  verb->add_flag("--json", flags->json, "As JSON");
  verb->footer("Example:\n  kvasir inspect models/smollm2-135m-instruct-q4_1.gguf\n\n" +
               std::string(kExitCodesHelp));
  return {verb, [flags] { return inspect(*flags); }};
}

}  // namespace kvasir
