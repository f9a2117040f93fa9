#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

// What the server knows about the model it serves. The pointers outlive the server.
struct ServedModel {
  Engine* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;  // null: chat completions are refused
  std::string chat_template_source;

  std::string name;                  // the one it answers with
  std::vector<std::string> aliases;  // further names that requests may use
  bool any_name = false;             // every other name too
  std::string architecture;
  std::string quantization;  // as general.file_type says, e.g. "Q4_K_M"
  uint64_t parameters = 0;
  uint64_t file_bytes = 0;
  uint32_t trained_context = 0;

  // Tokens that prompt and answer may have together. The engine has seen to it that the pool holds them; of a
  // model with windows that may be more than it holds in all, for what left a window is given back.
  uint64_t context_window() const { return engine->config().max_model_len; }
  bool answers_to(std::string_view model) const;
};

}  // namespace kvasir
