#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/answer_json.h"
#include "server/api_error.h"
#include "server/generation_request.h"
#include "server/http_types.h"
#include "server/logprob_json.h"
#include "server/prompt.h"
#include "server/served_model.h"
#include "server/tool_calls.h"

namespace kvasir {

// One chat or text completion being answered: hands its prompts to the engine, collects the events of all
// choices and writes them as a stream or as one answer, and cancels them when the client leaves. Choice c of
// prompt p has index p * drawn + c here, and p * n + its rank in the answer. Everything runs on the
// exchange's I/O thread but the sink, which only passes events on to it. Where more answers are drawn than
// given (best_of), the best of each prompt are chosen when all have ended.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(const ServedModel& model, std::shared_ptr<HttpExchange> exchange, GenerationRequest request,
             std::vector<Prompt> prompts);

  void start();

  // Ends an unfinished answer with an error.
  void fail(const ApiError& error);

 private:
  struct Choice {
    std::string text;                    // not yet sent
    std::vector<ToolCall> calls;         // not yet sent
    std::vector<SampledToken> logprobs;  // not yet sent
    std::vector<TokenId> tokens;         // not yet sent
    std::optional<ToolCallParser> parser;
    bool started = false;  // something was sent
    size_t calls_sent = 0;
    int64_t text_offset = 0;  // characters before the next token's text
    FinishReason finish = FinishReason::kNone;
    std::string stop_reason;  // JSON
    uint32_t cached_tokens = 0;
    DraftCounts drafting;
    uint32_t output_tokens = 0;
    double logprob = 0;  // of all its tokens together; kept where the best are chosen

    double mean_logprob() const { return output_tokens == 0 ? 0 : logprob / output_tokens; }
  };
  struct Mail {
    size_t prompt = 0;
    std::variant<TokenEvent, std::vector<SampledToken>> content;  // an event, or the prompt's logprobs
  };

  Request engine_request(size_t prompt);
  ApiError refusal(const Status& status) const;
  void deliver(Mail mail);
  void read_mail();
  void on_event(size_t prompt, TokenEvent&& event);
  void collect(Choice& choice, TokenEvent&& event);
  void send_part(size_t index);
  void send_whole();
  std::vector<size_t> given_choices() const;
  void end_stream();
  ChoicePart take_part(size_t index);
  size_t drawn() const { return static_cast<size_t>(request_.drawn()); }
  bool chooses() const { return request_.drawn() > request_.n; }
  void add_prompt(size_t prompt, ChoicePart* part);
  std::string take_logprobs(size_t index, bool with_prompt);
  std::span<const SampledToken> prompt_logprobs(size_t prompt, int64_t top,
                                                std::vector<SampledToken>* storage) const;
  std::string finish_word(const Choice& choice) const;
  bool all_finished() const;
  Usage usage() const;
  std::optional<Timings> timings() const;
  void cancel_all();

  const ServedModel& model_;
  std::shared_ptr<HttpExchange> exchange_;
  GenerationRequest request_;
  std::vector<Prompt> prompts_;
  std::vector<std::optional<std::vector<SampledToken>>>
      prompt_logprobs_;  // per prompt, after the first token
  std::vector<Choice> choices_;
  std::vector<RequestId> ids_;
  AnswerHead head_;
  LogprobJson logprob_json_;
  uint32_t drafters_ = 0;  // as Request::drafters
  bool streaming_ = false;
  bool ended_ = false;
  std::chrono::steady_clock::time_point started_, first_token_, last_token_;

  std::mutex mail_mutex_;
  std::vector<Mail> mail_;
  bool mail_posted_ = false;
};

}  // namespace kvasir
