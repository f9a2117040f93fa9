#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <utility>

#include "apps/kvasir/cli.h"
#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/human_size.h"
#include "apps/kvasir/load_progress.h"
#include "apps/kvasir/machine_reference.h"
#include "apps/kvasir/model_facts.h"
#include "apps/kvasir/number_flag.h"
#include "apps/kvasir/serve_process.h"
#include "apps/kvasir/serve_summary.h"
#include "base/log.h"
#include "base/numa.h"
#include "server/api_server.h"

namespace kvasir {
namespace {

struct ServeFlags {
  EngineFlags engine;
  ApiServerConfig server;
  std::string name;
  std::string key_file;
  bool insecure = false;
  uint32_t max_itl_ms = 0;  // 0: chosen
  std::string kv_directory, kv_size;
  double keep_alive_seconds = 10;
  uint32_t shutdown_seconds = 30;
};

// What browsers send as Origin: a scheme and a host, perhaps a port, and nothing behind them.
CLI::Validator web_origin() {
  return CLI::Validator(
      [](std::string& text) -> std::string {
        const size_t host = text.find("://");
        const bool whole = host != std::string::npos && host > 0 && host + 3 < text.size() &&
                           text.find_first_of("/?#* ", host + 3) == std::string::npos;
        if (text == "*" || whole) return "";
        return fmt::format(
            "'{}' is no origin: write SCHEME://HOST or SCHEME://HOST:PORT, as browsers send it", text);
      },
      "");
}

void add_network_flags(CLI::App& verb, ServeFlags& flags) {
  constexpr const char* kNetwork = "Network";
  verb.add_option("--host", flags.server.http.host, "Address to listen on")
      ->check(not_empty())
      ->capture_default_str()
      ->group(kNetwork);
  verb.add_option("--port", flags.server.http.port, "Port; 0 takes a free one")
      ->type_name("N")
      ->check(integer_range(0, 65535))
      ->capture_default_str()
      ->group(kNetwork);
  verb.add_option("--api-key", flags.server.access.api_keys,
                  "Key that clients must send; may be given several times")
      ->type_name("KEY")
      ->expected(1)
      ->check(not_empty())
      ->check(CLI::Validator([](std::string& key) { return std::string(fault_of_key(key)); }, ""))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(kNetwork);
  verb.add_option("--api-key-file", flags.key_file,
                  "File with one key per line; behind a key may stand weight=W, for a share of the engine W "
                  "times that of others, and best-priority=N, below which its requests may not ask; # begins "
                  "a line that is a comment")
      ->type_name("FILE")
      ->check(not_empty())
      ->group(kNetwork);
  verb.add_flag("--share-cache-between-keys", flags.server.keys_share_cache,
                "Let a cached prefix serve every key (default: only the key it was computed for, so that "
                "nobody can "
                "find out what another asked)")
      ->group(kNetwork);
  verb.add_flag("--insecure-no-auth", flags.insecure, "Listen beyond this machine without a key")
      ->group(kNetwork);
  verb.add_option("--cors-origin", flags.server.access.cors_origins,
                  "Web origin that may use the API, such as https://chat.example:8443, or *; several times")
      ->type_name("ORIGIN")
      ->expected(1)
      ->check(not_empty())
      ->check(web_origin())
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(kNetwork);
  verb.add_option("--allowed-host", flags.server.access.allowed_hosts,
                  "Further Host name to answer to; several times")
      ->type_name("NAME")
      ->expected(1)
      ->check(not_empty())
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(kNetwork);
  verb.add_option("--stream-keep-alive", flags.keep_alive_seconds,
                  "Seconds without a token after which a stream gets an empty line, so that nobody on the "
                  "way takes it for dead; 0: never")
      ->type_name("SECONDS")
      ->check(number_range(0, 3600))
      ->capture_default_str()
      ->group(kNetwork);
  verb.add_option("--shutdown-timeout", flags.shutdown_seconds,
                  "Seconds that running requests get after SIGTERM")
      ->type_name("SECONDS")
      ->check(integer_range(0, 86400))
      ->capture_default_str()
      ->group(kNetwork);
}

void add_persistence_flags(CLI::App& verb, ServeFlags& flags) {
  constexpr const char* kKeep = "Over restarts and faults";
  CLI::Option* const directory = verb.add_option("--kv-persist", flags.kv_directory,
                                                 "Directory to keep the KV cache's prefixes in, so that a "
                                                 "restarted server still knows its system "
                                                 "prompts; they are written there when it ends and now and "
                                                 "then. Prompts can be read from it: it is "
                                                 "made for its owner only")
                                     ->type_name("DIR")
                                     ->check(not_empty())
                                     ->group(kKeep);
  verb.add_option("--kv-persist-size", flags.kv_size,
                  "Most bytes of it, the most recently used prefixes first")
      ->type_name("SIZE")
      ->check(not_empty())
      ->default_str("4G")
      ->needs(directory)
      ->group(kKeep);
  verb.add_option("--kv-persist-interval", flags.engine.engine.kv_persistence.interval_seconds,
                  "Seconds between writes while the server runs; 0 writes only when it ends")
      ->type_name("S")
      ->check(number_range(0, 1e7))
      ->needs(directory)
      ->capture_default_str()
      ->group(kKeep);
  verb.add_option(
          "--stall-timeout", flags.engine.engine.stall_seconds,
          "Seconds without any progress, though there is work, after which /health says 503 and why; 0 "
          "never does")
      ->type_name("S")
      ->check(number_range(0, 1e7))
      ->capture_default_str()
      ->group(kKeep);
}

// What the flags say about keeping prefixes.
Status set_persistence(const ServeFlags& flags, Llm::Options* options) {
  if (!flags.kv_size.empty()) {
    const Result<uint64_t> size = parse_size(flags.kv_size);
    if (!size.ok()) return invalid_argument("--kv-persist-size: " + size.message());
    options->engine.kv_persistence.max_bytes = *size;
  }
  if (!flags.kv_directory.empty() && !options->engine.enable_prefix_caching)
    return invalid_argument(
        "--kv-persist keeps the prefix cache, which --no-enable-prefix-caching turns off");
  options->kv_directory = flags.kv_directory;
  return {};
}

// Flags that say opposite things, or nothing.
Status check_together(const ServeFlags& flags) {
  const EngineConfig& engine = flags.engine.engine;
  if (engine.max_queued_per_user > engine.max_queued_requests)
    return invalid_argument(
        fmt::format("--max-queued-per-user is {}, and the whole queue has {} places (--max-num-queued-reqs)",
                    engine.max_queued_per_user, engine.max_queued_requests));
  if (flags.server.keys_share_cache && flags.server.access.api_keys.empty())
    warn("--share-cache-between-keys has no effect: there are no API keys");
  return {};
}

// Request bodies in flight must not outgrow a small machine or container.
void bound_bodies(ApiServerConfig* config) {
  HttpServerConfig& http = config->http;
  const size_t share = usable_memory(read_memory()) / 16;
  http.inflight_body_bytes = std::min(http.inflight_body_bytes, std::max(share, http.limits.body_bytes));
}

// Refuses what would put an open server on a network.
int check_exposure(const ApiServer& server, const ServeFlags& flags) {
  if (server.loopback() || flags.insecure || !flags.server.access.api_keys.empty()) return kExitOk;
  return fail(
      kExitUsage,
      fmt::format("{} can be reached from other machines, and no key protects it", flags.server.http.host),
      "Give --api-key KEY, or --insecure-no-auth if everyone there may use it.");
}

int serve(ServeFlags flags) {
  const ServeProcess process;
  auto options = flags.engine.options();
  if (!options.ok()) return fail(kExitUsage, options.message());
  options->engine.max_itl_seconds = 1e-3 * flags.max_itl_ms;
  if (Status status = set_persistence(flags, &*options); !status.ok())
    return fail(kExitUsage, status.message());
  bound_bodies(&flags.server);
  flags.server.http.quiet_time = std::chrono::milliseconds(std::lround(1e3 * flags.keep_alive_seconds));
  if (Status status = read_key_file(flags.key_file, &flags.server.access); !status.ok()) {
    return fail(kExitUsage, status.message());
  }
  if (Status status = check_together(flags); !status.ok()) return fail(kExitUsage, status.message());
  auto chat_template = read_chat_template(flags.engine.chat_template);
  if (!chat_template.ok()) return fail(kExitUsage, chat_template.message());
  const auto facts = read_model_facts(flags.engine.model, options->engine.kv_type);
  if (!facts.ok()) return fail_to_open(facts.status(), false);

  auto listening = ApiServer::listen(flags.server);
  if (!listening.ok())
    return fail(kExitFailure, listening.message(),
                "--host and --port say where to listen; --port 0 takes a free port.");
  ApiServer& server = **listening;
  if (const int code = check_exposure(server, flags); code != kExitOk) return code;

  const MemoryNodes nodes = interleave_memory();
  LoadProgress progress(facts->name);
  options->progress = [&](uint64_t done, uint64_t total) {
    process.exit_if_signalled();
    progress.update(done, total);
    server.set_loading_progress(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0);
  };
  options->machine = [&](ThreadPool& pool, const ModelConfig& config, const WeightSizes& weights) {
    return serving_machine(pool, options->isa.value_or(best_isa()), config, weights, options->engine.kv_type);
  };
  auto llm = Llm::open(flags.engine.model, *options);
  if (!llm.ok()) return fail_to_open(llm.status(), true);
  if (chat_template->parsed == nullptr) *chat_template = model_chat_template((*llm)->tokenizer());
  progress.finish();

  if (chat_template->parsed != nullptr && chat_template->source.find("tools") == std::string::npos)
    spdlog::info("the chat template names no tools: those of requests are left out");
  server.serve(served_model(**llm, *facts, *chat_template, flags.name));
  print_serve_summary(**llm, *facts, server, nodes, !flags.server.access.api_keys.empty());
  process.serve_until_signalled(server, std::chrono::seconds(flags.shutdown_seconds));
  server.stop();
  return kExitOk;
}

}  // namespace

Verb add_serve_verb(CLI::App& root) {
  CLI::App* verb = root.add_subcommand("serve", "Serve a model over HTTP with the OpenAI API");
  const auto flags = std::make_shared<ServeFlags>();
  flags->engine.add_to(*verb);
  verb->add_option("--max-num-queued-reqs,--max-queued-requests", flags->engine.engine.max_queued_requests,
                   "Most requests waiting; one more is told to come back (429)")
      ->type_name("N")
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str()
      ->group("Memory and batching");
  verb->add_option("--max-queued-per-user", flags->engine.engine.max_queued_per_user,
                   "Most of them of one user: of an API key, or on a server without keys of a request's "
                   "'user' field (default: an eighth of the queue stays free for others)")
      ->type_name("N")
      ->check(CLI::Range(1u, 1u << 20))
      ->group("Memory and batching");
  verb->add_option(
          "--max-itl", flags->max_itl_ms,
          "Most milliseconds between two tokens of a running answer while other prompts are read, as "
          "far as the time of steps can be predicted (default: 50, or three times what the running "
          "answers' step takes where that is more)")
      ->type_name("MS")
      ->check(CLI::Range(1u, 600'000u))
      ->group("Memory and batching");
  verb->add_option("--served-model-name", flags->name,
                   "Name of the model in the API; other names are then refused (default: the file's name, "
                   "and any is taken)")
      ->type_name("NAME")
      ->check(not_empty());
  add_persistence_flags(*verb, *flags);
  add_network_flags(*verb, *flags);
  verb->footer(
      "Examples:\n"
      "  kvasir serve model.gguf\n"
      "  kvasir serve model.gguf --kv-memory 2G --max-num-seqs 32 --kv-cache-dtype int8\n"
      "  kvasir serve model.gguf --kv-persist ~/.cache/kvasir\n"
      "  kvasir serve model.gguf --host 0.0.0.0 --api-key secret\n"
      "  kvasir serve model.gguf --host 0.0.0.0 --api-key-file keys.txt   (a line: KEY weight=2)\n\n"
      "SIGTERM or Ctrl-C lets running requests finish, a second one ends them. docs/api.md describes the "
      "API.\n" +
      std::string(kExitCodesHelp));
  return {verb, [flags] { return serve(*flags); }};
}

}  // namespace kvasir
