#include <algorithm>
#include <string_view>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

// Names of general.architecture that people meet, by what a model of that kind would need here.
struct Missing {
  std::string_view what;
  std::string_view names;  // separated by spaces
};

constexpr Missing kMissing[] = {
    {"layers that carry a state in place of attention",
     "mamba mamba2 rwkv6 rwkv6qwen2 rwkv7 arwkv7 jamba falcon-h1 granitehybrid nemotron_h nemotron_h_moe "
     "lfm2 "
     "lfm2moe plamo2 qwen3next qwen35 qwen35moe kimi-linear"},
    {"an encoder", "t5 t5encoder"},
    {"an encoder that embeds text and writes none",
     "bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 gemma-embedding "
     "llama-embed"},
    {"positions that are learned", "gpt2 starcoder"},
    {"scores that fall with the distance in place of rotated positions", "bloom mpt"},
    {"feed-forward parts of GELU without a gate", "gptj gptneox phi2 falcon starcoder2 codeshell"},
    {"positions in several dimensions", "qwen2vl qwen3vl qwen3vlmoe glm4v"},
    {"attention within chunks", "llama4"},
    {"embeddings for each layer", "gemma3n"},
    {"norms of what attention and feed-forward part compute, before their last matrix", "bitnet"},
    {"a cross-attention to images or sound", "mllama whisper"},
    {"an order of tokens other than from left to right", "dream llada llada-moe rnd1"},
};

bool lists(std::string_view names, std::string_view name) {
  for (size_t at = 0; at < names.size();) {
    const size_t end = std::min(names.find(' ', at), names.size());
    if (names.substr(at, end - at) == name) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::string_view what_is_missing(std::string_view architecture) {
  for (const Missing& m : kMissing)
    if (lists(m.names, architecture)) return m.what;
  return "";
}

}  // namespace kvasir
