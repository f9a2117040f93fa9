#include "apps/kvasir/engine_flags.h"

#include <fmt/format.h>

#include "apps/kvasir/human_size.h"
#include "base/log.h"

namespace kvasir {

void EngineFlags::add_to(CLI::App& verb) {
  verb.add_option("MODEL,-m,--model", model, "GGUF file; of a split one, the first part");
  verb.add_option("--chat-template", chat_template,
                  "File with a Jinja chat template to use instead of the model's own")
      ->type_name("FILE");

  constexpr const char* kMemory = "Memory and batching";
  verb.add_option("-c,--max-model-len,--ctx-size", engine.max_model_len,
                  "Most tokens of prompt and answer together (default: the model's context, as far as memory "
                  "reaches)")
      ->type_name("N")
      ->check(CLI::Range(1u, 1u << 30))
      ->group(kMemory);
  verb.add_option("--kv-memory", kv_memory,
                  "Size of the KV cache, e.g. 512M or 2G (default: from the memory that is free)")
      ->type_name("SIZE")
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

  constexpr const char* kCompute = "Computing";
  verb.add_option("-t,--threads", threads, "Threads (default: the CPUs this process may use)")
      ->type_name("N")
      ->check(CLI::Range(1u, 1024u))
      ->group(kCompute);
  verb.add_option("--isa", isa,
                  "Instruction set: scalar, avx2 or avx512-vnni; all give the same bits (default: the best)")
      ->type_name("NAME")
      ->group(kCompute);
  verb.add_option("--log-level", log_level, "trace, debug, info, warn, error or off")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str()
      ->group(kCompute);
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
  if (model.empty()) return invalid_argument("which model? Give the path of a GGUF file");
  init_logging(spdlog::level::from_str(log_level));
  Llm::Options options;
  options.threads = threads;
  options.engine = engine;
  KVASIR_ASSIGN_OR_RETURN(options.isa, isa_of_flag(isa));
  KVASIR_ASSIGN_OR_RETURN(options.engine.kv_type, kv_type_of_flag(kv_cache_dtype));
  if (engine.block_size % 16 != 0) return invalid_argument("--block-size must be a multiple of 16");
  if (!kv_memory.empty()) {
    const Result<uint64_t> size = parse_size(kv_memory);
    if (!size.ok()) return invalid_argument("--kv-memory: " + size.message());
    options.engine.kv_bytes = *size;
  }
  return options;
}

}  // namespace kvasir
