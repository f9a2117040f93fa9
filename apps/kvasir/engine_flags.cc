#include "apps/kvasir/engine_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/kvasir/cli.h"
#include "apps/kvasir/human_size.h"
#include "apps/kvasir/number_flag.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "engine/drafters.h"

namespace kvasir {

void EngineFlags::add_to(CLI::App& verb) {
  verb_name = verb.get_name();
  verb.add_option("MODEL,-m,--model", model, "GGUF file; of a split one, the first part");
  verb.add_option("--chat-template", chat_template,
                  "File with a Jinja chat template to use instead of the model's own")
      ->type_name("FILE")
      ->check(not_empty());

  constexpr const char* kMemory = "Memory and batching";
  verb.add_option("-c,--max-model-len,--ctx-size", engine.max_model_len,
                  "Most tokens of prompt and answer together (default: the model's context, as far as memory "
                  "reaches)")
      ->type_name("N")
      ->check(CLI::Range(2u, 1u << 30))
      ->group(kMemory);
  verb.add_option("--kv-memory", kv_memory,
                  "Size of the KV cache, e.g. 512M or 2G (default: from the memory that is free)")
      ->type_name("SIZE")
      ->check(not_empty())
      ->group(kMemory);
  add_kv_cache_dtype(verb, kv_cache_dtype)->group(kMemory);
  verb.add_option("--max-num-seqs", engine.max_num_seqs, "Most answers in the making at once")
      ->type_name("N")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str()
      ->group(kMemory);
  verb.add_option("--max-num-batched-tokens", engine.max_num_batched_tokens,
                  "Most tokens per step: more reads prompts faster, less keeps running answers smoother")
      ->type_name("N")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str()
      ->group(kMemory);
  verb.add_option("--block-size", engine.block_size, "Tokens per KV block, a multiple of 16")
      ->type_name("N")
      ->check(CLI::Range(16u, 4096u))
      ->capture_default_str()
      ->group(kMemory);
  verb.add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", engine.enable_prefix_caching,
                "Share the KV cache of equal beginnings (on by default)")
      ->group(kMemory);

  add_speculation_flags(verb);

  constexpr const char* kCompute = "Computing";
  verb.add_option("-t,--threads", threads, kThreadsHelp)
      ->type_name("N")
      ->check(CLI::Range(1u, 1024u))
      ->group(kCompute);
  verb.add_option(
          "--isa", isa,
          fmt::format("Instruction set, of {}; all give the same bits (default: the best of this machine)",
                      isa_names()))
      ->type_name("NAME")
      ->check(not_empty())
      ->group(kCompute);
  verb.add_option("--log-level", log_level, "trace, debug, info, warn, error or off")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str()
      ->group(kCompute);
}

void EngineFlags::add_speculation_flags(CLI::App& verb) {
  constexpr const char* kGuesses = "Speculation (changes how fast answers come, never what they say)";
  std::string help =
      "Who guesses tokens ahead, to be verified together: auto, off, or names separated by commas:";
  for (const DrafterKind& kind : drafter_kinds())
    help += fmt::format("\n  {}{}{}: {}{}", kind.name, kind.argument.empty() ? "" : "=", kind.argument,
                        kind.help, kind.automatic ? " (in auto)" : "");
  help += "\nGuesses are verified only as long as the predicted cost of the step makes that pay";
  verb.add_option("--speculate", speculate, help)
      ->type_name("LIST")
      ->capture_default_str()
      ->check(not_empty())
      ->group(kGuesses);
  verb.add_option("--speculate-tokens", engine.speculation.most,
                  "Most tokens guessed ahead per answer and step")
      ->type_name("N")
      ->check(CLI::Range(1u, Draft::kMost))
      ->capture_default_str()
      ->group(kGuesses);
  verb.add_option(
          "--spec-accept", spec_accept,
          "When a guess becomes a token of a sampled answer: match, if it is the token that would have come "
          "anyway; or rejection, as often as the probabilities allow, for other answers of the same "
          "distribution")
      ->check(CLI::IsMember({"match", "rejection"}))
      ->capture_default_str()
      ->group(kGuesses);
  verb.add_flag("--speculate-always", engine.speculation.always,
                "Verify every guess, whether or not that pays (to measure what it costs)")
      ->group(kGuesses);
}

Result<Isa> isa_of_flag(const std::string& flag) {
  if (flag.empty()) return best_isa();
  const Result<Isa> isa = parse_isa(flag);
  if (!isa.ok()) return invalid_argument("--isa: " + isa.message());
  if (!isa_supported(*isa)) {
    return invalid_argument(fmt::format("--isa: this machine does not have {}; the best it has is {}", flag,
                                        isa_name(best_isa())));
  }
  return *isa;
}

Result<uint32_t> threads_of_flag(uint32_t flag, uint32_t cpus) {
  if (flag == 0) return cpus;
  const uint32_t most = std::max(16u, 4 * cpus);
  const std::string both =
      fmt::format("--threads is {}, and this process may use {} CPU{}", flag, cpus, cpus == 1 ? "" : "s");
  if (flag > most) return invalid_argument(fmt::format("{}: at most {} threads are taken", both, most));
  if (flag > cpus) warn(both + ": threads without a CPU of their own make every step slower");
  return flag;
}

CLI::Option* add_kv_cache_dtype(CLI::App& verb, std::string& target) {
  return verb
      .add_option(
          "--kv-cache-dtype", target,
          "How the KV cache keeps its values: f16 (auto), or int8, which holds almost twice the tokens")
      ->type_name("TYPE")
      ->capture_default_str();
}

Result<KvType> kv_type_of_flag(const std::string& flag) {
  const Result<KvType> type = parse_kv_type(flag);
  if (!type.ok()) return invalid_argument("--kv-cache-dtype: " + type.message());
  return *type;
}

Result<Llm::Options> EngineFlags::options() const {
  KVASIR_RETURN_IF_ERROR(require_model(model, verb_name));
  init_logging(spdlog::level::from_str(log_level));
  Llm::Options options;
  options.engine = engine;
  KVASIR_ASSIGN_OR_RETURN(options.threads, threads_of_flag(threads, usable_cpus()));
  KVASIR_ASSIGN_OR_RETURN(options.isa, isa_of_flag(isa));
  KVASIR_ASSIGN_OR_RETURN(options.engine.kv_type, kv_type_of_flag(kv_cache_dtype));
  const auto drafters = parse_drafters(speculate);
  if (!drafters.ok()) return invalid_argument("--speculate: " + drafters.message());
  options.engine.speculation.drafters = *drafters;
  if (spec_accept == "rejection") options.engine.speculation.accept = SpeculationConfig::Accept::kRejection;
  if (options.engine.speculation.drafters.empty() && (engine.speculation.always || spec_accept != "match"))
    warn(fmt::format("{} has no effect: --speculate {} leaves nobody to guess",
                     engine.speculation.always ? "--speculate-always" : "--spec-accept " + spec_accept,
                     speculate));
  if (engine.block_size % 16 != 0)
    return invalid_argument(
        fmt::format("--block-size is {}; it must be a multiple of 16", engine.block_size));
  if (!kv_memory.empty()) {
    const Result<uint64_t> size = parse_size(kv_memory);
    if (!size.ok()) return invalid_argument("--kv-memory: " + size.message());
    options.engine.kv_bytes = *size;
  }
  return options;
}

}  // namespace kvasir
