#include "apps/kvasir/serve_summary.h"

#include <fmt/format.h>

#include <iterator>
#include <string>

#include "apps/kvasir/human_size.h"
#include "apps/kvasir/output.h"
#include "base/log.h"

namespace kvasir {

namespace {

// How many conversations the pool holds at once, if all are as long as can be and if they are shorter.
std::string conversations_text(const Llm& llm, uint64_t window) {
  const uint64_t longest = llm.sequences_of(window);
  std::string text =
      fmt::format("{} conversation{} of all {} tokens", longest, longest == 1 ? "" : "s", window);
  for (const uint64_t tokens : {4000u, 1000u}) {
    if (tokens < window) text += fmt::format(", or {} of {}", llm.sequences_of(tokens), tokens);
  }
  return text;
}

}  // namespace

void print_serve_summary(Llm& llm, const ModelFacts& facts, const ApiServer& server, const MemoryNodes& nodes,
                         bool needs_key) {
  const Engine& engine = llm.engine();
  const uint64_t tokens = engine.kv_token_capacity();
  const uint64_t window = engine.config().max_model_len;
  const bool bracketed = server.address().find(':') != std::string::npos;
  const std::string url = fmt::format(fmt::runtime(bracketed ? "http://[{}]:{}/v1" : "http://{}:{}/v1"),
                                      server.address(), server.port());
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "\nKvasir {}\n", KVASIR_VERSION);
  fmt::format_to(out, "  model     {} ({}, {} parameters{}{}, {} in memory)\n", facts.name,
                 facts.config.architecture, count_text(facts.config.parameter_count),
                 facts.quantization.empty() ? "" : ", ", facts.quantization,
                 size_text(llm.model().weight_bytes()));
  fmt::format_to(out, "  context   {} tokens{}\n", window,
                 window < facts.config.context_length
                     ? fmt::format(" (the model could take {})", facts.config.context_length)
                     : "");
  fmt::format_to(out, "  KV cache  {} ({}): {} tokens in blocks of {}, {} per token ({})\n",
                 size_text(engine.config().kv_bytes), llm.kv_pool().reason, tokens,
                 engine.config().block_size, size_text(facts.kv_bytes_per_token),
                 kv_type_name(facts.kv_type));
  fmt::format_to(out, "            room for {}\n", conversations_text(llm, window));
  fmt::format_to(out, "  compute   {} threads, {}\n", llm.pool().size(), isa_name(llm.kernels().isa));
  if (nodes.nodes > 1)
    fmt::format_to(out, "  memory    {}\n",
                   nodes.interleaved
                       ? fmt::format("of {} NUMA nodes in turn", nodes.nodes)
                       : fmt::format("not spread over {} NUMA nodes: {}", nodes.nodes, nodes.reason));
  fmt::format_to(out, "  serving   {}\n\n", url);
  fmt::format_to(out, "Try it:\n  curl -s {}/chat/completions -H 'Content-Type: application/json' {}\\\n",
                 url, needs_key ? "-H 'Authorization: Bearer KEY' " : "");
  text +=
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]}'\n";
  // The server serves all the same.
  if (const Status written = write_output(text); !written.ok()) spdlog::warn("{}", written.message());
}

}  // namespace kvasir
