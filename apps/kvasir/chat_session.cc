#include "apps/kvasir/chat_session.h"

#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "server/request_id.h"

namespace kvasir {
namespace {

using Clock = std::chrono::steady_clock;

// What the engine's thread fills in while the caller waits.
struct Turn {
  std::mutex mutex;
  std::condition_variable wake;
  ChatSession::Answer answer;
  Status error;
  Status unwritten;  // of on_text; only the engine's thread sets it
  bool done = false;
  Clock::time_point begun = Clock::now(), first, last;
};

boost::json::object message_of(const char* role, const std::string& text) {
  return {{"role", role}, {"content", text}};
}

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

void take(Turn& turn, const TokenEvent& event, const Status& written) {
  const std::lock_guard lock(turn.mutex);
  if (!written.ok()) {
    turn.unwritten = written;
    turn.wake.notify_one();
  }
  turn.last = Clock::now();
  if (turn.answer.output_tokens == 0) turn.first = turn.last;
  turn.answer.text += event.text;
  turn.answer.prompt_tokens = event.prompt_tokens;
  turn.answer.cached_tokens = event.cached_tokens;
  turn.answer.output_tokens = event.output_tokens;
  turn.answer.drafting = event.drafting;
  if (event.finish == FinishReason::kNone) return;
  turn.answer.cut = event.finish == FinishReason::kLength;
  turn.error = event.error;
  turn.done = true;
  turn.wake.notify_one();
}

}  // namespace

std::string ChatSession::Answer::summary() const {
  const uint32_t read = prompt_tokens - cached_tokens;
  const double reading = prompt_seconds > 0 ? read / prompt_seconds : 0;
  const double writing = output_seconds > 0 && output_tokens > 1 ? (output_tokens - 1) / output_seconds : 0;
  std::string guessed;
  if (drafting.drafts > 0) {
    guessed = fmt::format(", {} of {} guesses right, {:.2f} tokens per step", drafting.accepted,
                          drafting.drafted, static_cast<double>(output_tokens) / drafting.steps);
    if (drafting.saved_seconds != 0)
      guessed += fmt::format(", {:.1f} s {}", std::abs(drafting.saved_seconds),
                             drafting.saved_seconds > 0 ? "saved" : "lost");
  }
  return fmt::format("[{} tokens, {:.1f} tokens/s{}; prompt {} tokens, {} from the cache, {:.1f} tokens/s{}]",
                     output_tokens, writing, guessed, prompt_tokens, cached_tokens, reading,
                     interrupted ? "; stopped"
                     : cut       ? "; cut at the token limit"
                                 : "");
}

ChatSession::ChatSession(const ServedModel& model, const ChatSettings& settings)
    : model_(model), prompts_(model_), settings_(settings) {
  if (!settings.system.empty()) messages_.push_back(message_of("system", settings.system));
}

Result<Request> ChatSession::request_for(const std::string& message) {
  GenerationRequest asked;
  asked.chat = has_template();
  asked.messages = messages_;
  asked.messages.push_back(message_of("user", message));
  asked.prompt = boost::json::string(message);
  asked.max_tokens = settings_.max_tokens;
  asked.sampling.temperature = static_cast<float>(settings_.temperature);
  asked.sampling.top_p = static_cast<float>(settings_.top_p);
  asked.sampling.top_k = settings_.top_k;
  std::vector<Prompt> prompts;
  if (const Problem problem = prompts_.build(&asked, &prompts)) return invalid_argument(problem->message);
  Request request;
  request.prompt = std::move(prompts.front().tokens);
  request.sampling = asked.sampling;
  request.sampling.seed = settings_.seed ? static_cast<uint64_t>(*settings_.seed) : random_bits();
  return request;
}

Result<ChatSession::Answer> ChatSession::say(const std::string& message,
                                             const std::function<Status(std::string_view)>& on_text,
                                             const std::function<bool()>& stop) {
  KVASIR_ASSIGN_OR_RETURN(Request request, request_for(message));
  const auto turn = std::make_shared<Turn>();
  const auto id = model_.engine->submit(std::move(request), [turn, on_text](TokenEvent&& event) {
    const bool wanted = !event.text.empty() && turn->unwritten.ok();
    take(*turn, event, wanted ? on_text(event.text) : Status());
  });
  if (!id.ok()) return id.status();
  std::unique_lock lock(turn->mutex);
  while (!turn->done) {
    turn->wake.wait_for(lock, std::chrono::milliseconds(50));
    if (turn->done || turn->answer.interrupted || (turn->unwritten.ok() && !stop())) continue;
    turn->answer.interrupted = true;
    lock.unlock();  // an engine may wait for its sink before it cancels
    model_.engine->cancel(*id);
    lock.lock();
  }
  if (!turn->unwritten.ok()) return turn->unwritten;
  if (!turn->error.ok() && !turn->answer.interrupted) return turn->error;
  Answer answer = turn->answer;
  answer.prompt_seconds = seconds(turn->first - turn->begun);
  answer.output_seconds = seconds(turn->last - turn->first);
  messages_.push_back(message_of("user", message));
  messages_.push_back(message_of("assistant", answer.text));
  return answer;
}

}  // namespace kvasir
