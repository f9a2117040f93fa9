#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/llm.h"
#include "gguf/gguf_file.h"
#include "kernels/table.h"
#include "models/model_config.h"
#include "server/served_model.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

// What a model file says about itself, without loading its weights.
struct ModelFacts {
  struct Format {
    DType type;
    uint64_t tensors = 0;
    uint64_t bytes = 0;
  };
  std::string path;
  std::string name;          // general.name, or the file's
  std::string quantization;  // of general.file_type: "Q4_K_M"
  uint64_t file_bytes = 0;
  uint32_t gguf_version = 0;
  uint64_t tensors = 0;
  ModelConfig config;
  std::string tokenizer;  // "gpt2 (smollm)"
  bool has_chat_template = false;
  std::vector<Format> formats;     // most bytes first
  uint64_t packed_bytes = 0;       // the weights in memory
  uint64_t expert_bytes = 0;       // of them, those of experts that a router chooses from
  uint64_t active_parameters = 0;  // that one token makes use of: all but the experts it does not choose
  uint64_t bytes_per_token = 0;    // of weights that its step reads, alone
  KvType kv_type = KvType::kF16;
  uint64_t kv_bytes_per_token = 0;        // in a pool of that type
  uint64_t plain_kv_bytes_per_token = 0;  // the same if every query head had K and V of its own

  uint64_t active_expert_bytes() const {  // that one token uses
    const RouterShape& router = config.mixture.router;
    return router.experts == 0 ? 0 : expert_bytes / router.experts * router.used;
  }
};
Result<ModelFacts> read_model_facts(const std::string& path, KvType kv_type);

struct LoadedTemplate {
  std::unique_ptr<ChatTemplate> parsed;  // nullptr: there is none, or none that can be used
  std::string source;
};
// The chat template in a file; none for "". Errors name the path and what is wrong: it cannot be read, is
// empty or is no template.
Result<LoadedTemplate> read_chat_template(const std::string& file);
// The model's own. That it cannot be parsed is a warning.
LoadedTemplate model_chat_template(const Tokenizer& tokenizer);

// What the server is to know about an open model. name "" takes the file's, and then answers to every name.
ServedModel served_model(Llm& llm, const ModelFacts& facts, const LoadedTemplate& chat_template,
                         const std::string& name);

}  // namespace kvasir
