#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>

#include "apps/kvasir/cli.h"
#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/human_size.h"
#include "apps/kvasir/model_facts.h"
#include "apps/kvasir/number_flag.h"
#include "apps/kvasir/output.h"
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

using Text = std::back_insert_iterator<std::string>;

void add_formats(Text out, const ModelFacts& facts, Isa isa) {
  fmt::format_to(out, "\n{:<10} {:>8} {:>12}  kernel\n", "format", "tensors", "bytes");
  for (const ModelFacts::Format& format : facts.formats) {
    fmt::format_to(out, "{:<10} {:>8} {:>12}  {}\n", dtype_info(format.type).name, format.tensors,
                   size_text(format.bytes), linear_kernel_name(isa, format.type));
  }
}

// What sharing KV heads, or a latent, leaves of the cache that K and V of each query head would need.
std::string sharing_text(const ModelFacts& facts) {
  const uint64_t plain = facts.plain_kv_bytes_per_token;
  if (plain == facts.kv_bytes_per_token) return "";
  const double ratio = static_cast<double>(plain) / static_cast<double>(facts.kv_bytes_per_token);
  return fmt::format(", 1/{:.3g} of the {} that K and V of {} heads would take", ratio, size_text(plain),
                     facts.config.heads);
}

// "; 12 layers see 4096 positions" for layers with a window, or nothing.
std::string window_text(const ModelConfig& c) {
  const uint32_t window = *std::max_element(c.windows.begin(), c.windows.end());
  const auto windowed = c.layers - std::count(c.windows.begin(), c.windows.end(), 0u);
  return windowed == 0 ? "" : fmt::format("; {} layers see {} positions", windowed, window);
}

// ", feed-forward 5632", of as many layers as have no experts.
std::string dense_text(const ModelConfig& c) {
  const uint32_t dense = c.layers - c.layers_with_experts();
  if (dense == 0) return "";
  const std::string where = dense == c.layers ? "" : fmt::format(" in the first {}", dense);
  return fmt::format(", feed-forward {}{}", c.ffn_dim, where);
}

void add_experts(Text out, const ModelFacts& facts) {
  const MixtureShape& m = facts.config.mixture;
  if (facts.config.layers_with_experts() == 0) return;
  fmt::format_to(out, "  experts        {} of width {} in each of {} layers, a token goes to {}",
                 m.router.experts, m.ffn_dim, facts.config.layers_with_experts(), m.router.used);
  if (m.shared_ffn_dim > 0) fmt::format_to(out, " and to a shared one of width {}", m.shared_ffn_dim);
  fmt::format_to(out, ": {} parameters\n", count_text(facts.active_parameters));
}

void add_memory(Text out, const ModelFacts& facts) {
  const uint64_t context = facts.kv_bytes_per_token * facts.config.context_length;
  fmt::format_to(out, "\nmemory\n");
  uint64_t stored = 0;
  for (const ModelFacts::Format& format : facts.formats) stored += format.bytes;
  fmt::format_to(out, "  weights        {} as kernels read them, {} in the file\n",
                 size_text(facts.packed_bytes), size_text(stored));
  if (facts.config.layers_with_experts() > 0)
    fmt::format_to(out, "  experts        {} of them, of which a token alone reads {}\n",
                   size_text(facts.expert_bytes), size_text(facts.active_expert_bytes()));
  if (facts.bytes_per_token < facts.packed_bytes)
    fmt::format_to(out, "  read           {} of them for a token alone\n", size_text(facts.bytes_per_token));
  fmt::format_to(out, "  KV cache       {} per token as {}{}; {} for one full context\n",
                 size_text(facts.kv_bytes_per_token), kv_type_name(facts.kv_type), sharing_text(facts),
                 size_text(context));
  fmt::format_to(out, "  free here      {}\n", size_text(usable_memory(read_memory())));
}

std::string as_text(const ModelFacts& facts, Isa isa) {
  const ModelConfig& c = facts.config;
  std::string text;
  const Text out(text);
  fmt::format_to(out, "{}\n", facts.name);
  fmt::format_to(out, "  file           {} ({}, GGUF version {}, {} tensors)\n", facts.path,
                 size_text(facts.file_bytes), facts.gguf_version, facts.tensors);
  fmt::format_to(out, "  architecture   {}, {} parameters{}{}\n", c.architecture,
                 count_text(c.parameter_count), facts.quantization.empty() ? "" : ", ", facts.quantization);
  fmt::format_to(out, "  layers         {} of width {}{}\n", c.layers, c.hidden_dim, dense_text(c));
  add_experts(out, facts);
  if (c.mla)
    fmt::format_to(out,
                   "  attention      MLA: {} heads of {}, latent of {} and rotated key of {} for all{}\n",
                   c.heads, c.mla->nope_dim + c.rope_dim, c.mla->latent, c.rope_dim, window_text(c));
  else
    fmt::format_to(out, "  attention      {} heads, {} KV heads, head size {}{}\n", c.heads, c.kv_heads,
                   c.head_dim, window_text(c));
  fmt::format_to(out, "  context        {} tokens\n", c.context_length);
  fmt::format_to(out, "  vocabulary     {} tokens, {}\n", c.vocab_size,
                 facts.tokenizer.empty() ? "no tokenizer" : facts.tokenizer);
  fmt::format_to(out, "  chat template  {}\n", facts.has_chat_template ? "yes" : "none: completions only");
  add_formats(out, facts, isa);
  add_memory(out, facts);
  fmt::format_to(out, "\nhere: {} CPUs, {}\n", usable_cpus(), isa_name(isa));
  return text;
}

std::string as_json(const ModelFacts& facts, Isa isa) {
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
      .field("mla_latent", c.mla ? c.mla->latent : 0u)
      .field("context_length", c.context_length)
      .field("sliding_window", *std::max_element(c.windows.begin(), c.windows.end()))
      .field("sliding_window_layers",
             static_cast<uint64_t>(c.layers - std::count(c.windows.begin(), c.windows.end(), 0u)));
  out.field("vocab_size", c.vocab_size)
      .field("tokenizer", facts.tokenizer)
      .field("chat_template", facts.has_chat_template);
  out.field("active_parameters", facts.active_parameters)
      .field("experts", c.mixture.router.experts)
      .field("experts_used", c.mixture.router.used)
      .field("expert_ffn_dim", c.mixture.ffn_dim)
      .field("shared_ffn_dim", c.mixture.shared_ffn_dim)
      .field("layers_with_experts", c.layers_with_experts())
      .field("expert_bytes", facts.expert_bytes)
      .field("active_expert_bytes", facts.active_expert_bytes())
      .field("weight_bytes_per_token", facts.bytes_per_token);
  out.field("weight_bytes", facts.packed_bytes).field("kv_bytes_per_token", facts.kv_bytes_per_token);
  out.field("plain_kv_bytes_per_token", facts.plain_kv_bytes_per_token);
  out.field("kv_cache_dtype", kv_type_name(facts.kv_type));
  out.field("isa", isa_name(isa)).key("formats").begin_array();
  for (const ModelFacts::Format& format : facts.formats) {
    out.begin_object().field("format", dtype_info(format.type).name).field("tensors", format.tensors);
    out.field("bytes", format.bytes).field("kernel", linear_kernel_name(isa, format.type)).end_object();
  }
  out.end_array().end_object();
  return out.text() + "\n";
}

int inspect(const InspectFlags& flags) {
  if (const Status given = require_model(flags.model, "inspect"); !given.ok())
    return fail(kExitUsage, given.message());
  const Result<Isa> isa = isa_of_flag(flags.isa);
  if (!isa.ok()) return fail(kExitUsage, isa.message());
  const Result<KvType> kv_type = kv_type_of_flag(flags.kv_cache_dtype);
  if (!kv_type.ok()) return fail(kExitUsage, kv_type.message());
  const auto facts = read_model_facts(flags.model, *kv_type);
  if (!facts.ok()) return fail_to_open(facts.status(), false);
  return print_or_fail(flags.json ? as_json(*facts, *isa) : as_text(*facts, *isa));
}

}  // namespace

Verb add_inspect_verb(CLI::App& root) {
  CLI::App* verb = root.add_subcommand("inspect", "Show what a model file holds and what it will need");
  const auto flags = std::make_shared<InspectFlags>();
  verb->add_option("MODEL,-m,--model", flags->model, "GGUF file; of a split one, the first part");
  verb->add_option("--isa", flags->isa, "Instruction set to name kernels for (default: the best)")
      ->type_name("NAME")
      ->check(not_empty());
  add_kv_cache_dtype(*verb, flags->kv_cache_dtype);
  verb->add_flag("--json", flags->json, "As JSON");
  verb->footer("Example:\n  kvasir inspect models/smollm2-135m-instruct-q4_1.gguf\n\n" +
               std::string(kExitCodesHelp));
  return {verb, [flags] { return inspect(*flags); }};
}

}  // namespace kvasir
