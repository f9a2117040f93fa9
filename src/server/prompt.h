#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/chat_messages.h"
#include "server/generation_request.h"
#include "server/served_model.h"

namespace kvasir {

struct Prompt {
  std::vector<TokenId> tokens;
  // For echo; filled for text completions only. The tokens may spell more in front than the text shows: the
  // beginning-of-text token, SentencePiece's space.
  std::string text;
  int64_t hidden_characters = 0;
};

// Whether a template reads content as text or as parts, found out by rendering a message of each form.
ContentForm template_content_form(const ChatTemplate& chat_template);

// Makes tokens of requests, for one model. Thread-safe.
class PromptBuilder {
 public:
  explicit PromptBuilder(const ServedModel& model);

  // The prompts of a checked request: one for a chat, up to 256 for text completions. Checks everything that
  // depends on the model (token ids, the context window, the length of the queue) and sets
  // sampling.max_tokens. A template's own refusal is a 400.
  Problem build(GenerationRequest* request, std::vector<Prompt>* prompts) const;

  // A conversation's tokens: the template's text with its control tokens, the users' words without, one
  // beginning-of-text token.
  Problem chat(const GenerationRequest& request, Prompt* prompt) const;

 private:
  Problem render(const GenerationRequest& request, const std::string& tag,
                 std::vector<ChatTemplate::Part>* parts) const;
  Problem completions(const GenerationRequest& request, std::vector<Prompt>* prompts) const;
  Problem read_prompt(const boost::json::value& value, const std::string& where,
                      const GenerationRequest& request, Prompt* prompt) const;
  Problem check_token_ids(const GenerationRequest& request) const;
  Problem fit(GenerationRequest* request, const std::vector<Prompt>& prompts) const;
  void one_beginning(std::vector<TokenId>* tokens, bool wanted) const;

  const ServedModel& model_;
  ContentForm form_ = ContentForm::kText;
};

}  // namespace kvasir
