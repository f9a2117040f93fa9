#include "apps/kvasir/serve_summary.h"

#include <fmt/format.h>

#include <cstdio>

#include "apps/kvasir/human_size.h"

namespace kvasir {

void print_serve_summary(Llm& llm, const ModelFacts& facts, const ApiServer& server, bool needs_key) {
  const Engine& engine = llm.engine();
  const uint64_t tokens = engine.kv_token_capacity();
  const uint64_t window = std::min<uint64_t>(engine.config().max_model_len, tokens);
  const bool bracketed = server.address().find(':') != std::string::npos;
  const std::string url = fmt::format(fmt::runtime(bracketed ? "http://[{}]:{}/v1" : "http://{}:{}/v1"),
                                      server.address(), server.port());
  fmt::print("\nKvasir {}\n", KVASIR_VERSION);
  fmt::print("  model     {} ({}, {} parameters{}{}, {} in memory)\n", facts.name, facts.config.architecture,
             count_text(facts.config.parameter_count), facts.quantization.empty() ? "" : ", ",
             facts.quantization, size_text(llm.model().weight_bytes()));
  fmt::print("  context   {} tokens{}\n", window,
             window < facts.config.context_length
                 ? fmt::format(" (the model could take {})", facts.config.context_length)
                 : "");
  fmt::print("  KV cache  {}: {} tokens in blocks of {}, {} per token ({})\n",
             size_text(engine.config().kv_bytes), tokens, engine.config().block_size,
             size_text(facts.kv_bytes_per_token), kv_type_name(facts.kv_type));
  fmt::print("  compute   {} threads, {}\n", llm.pool().size(), isa_name(llm.kernels().isa));
  fmt::print("  serving   {}\n\n", url);
  fmt::print("Try it:\n  curl -s {}/chat/completions -H 'Content-Type: application/json' {}\\\n", url,
             needs_key ? "-H 'Authorization: Bearer KEY' " : "");
  fmt::print(
      "    -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"What is the capital of "
      "France?\"}}]}}'\n");
  std::fflush(stdout);
}

}  // namespace kvasir
