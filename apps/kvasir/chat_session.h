#pragma once

#include <boost/json/array.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/prompt.h"
#include "server/served_model.h"

namespace kvasir {

struct ChatSettings {
  std::string system;
  double temperature = 0.7;
  double top_p = 0.95;
  int32_t top_k = 0;
  std::optional<int64_t> seed;
  std::optional<int64_t> max_tokens;
};

// One conversation with a model: every turn is rendered with the chat template and starts from the cached
// beginning. A model without a template continues the text of the message instead, each time afresh.
class ChatSession {
 public:
  ChatSession(const ServedModel& model, const ChatSettings& settings);

  bool has_template() const { return model_.chat_template != nullptr; }

  struct Answer {
    std::string text;
    bool interrupted = false;
    bool cut = false;  // ended by the token limit
    uint32_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
    DraftCounts drafting;  // of this answer
    double prompt_seconds = 0, output_seconds = 0;
    // "[34 tokens, 52.1 tokens/s; prompt 120 tokens, 96 from the cache, 310.0 tokens/s]"
    std::string summary() const;
  };
  // Waits for the whole answer. `on_text` is called from another thread, never again once it has failed: that
  // stops the answer and is what is returned. `stop` is asked some ten times per second.
  Result<Answer> say(const std::string& message, const std::function<Status(std::string_view)>& on_text,
                     const std::function<bool()>& stop);

 private:
  Result<Request> request_for(const std::string& message);

  ServedModel model_;
  PromptBuilder prompts_;
  ChatSettings settings_;
  boost::json::array messages_;
};

}  // namespace kvasir
