#include "apps/kvasir/batch_answers.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "server/prompt.h"

namespace kvasir {
namespace {

// What the engine's thread fills in while the round waits.
struct Answers {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<std::vector<TokenId>> tokens;
  size_t unfinished = 0;
  Status error;
};

}  // namespace

Result<Request> request_for(const ServedModel& model, const std::string& message) {
  GenerationRequest asked;
  asked.chat = model.chat_template != nullptr;
  asked.messages.push_back(boost::json::object{{"role", "user"}, {"content", message}});
  asked.prompt = boost::json::string(message);
  std::vector<Prompt> built;
  if (const Problem problem = PromptBuilder(model).build(&asked, &built))
    return invalid_argument(problem->message);
  Request request;
  request.prompt = std::move(built.front().tokens);
  request.sampling = asked.sampling;
  return request;
}

Result<std::vector<std::vector<TokenId>>> answers_of(Engine& engine, const std::vector<Request>& requests,
                                                     std::function<void(size_t)> on_answer) {
  const auto answers = std::make_shared<Answers>();
  answers->tokens.resize(requests.size());
  answers->unfinished = requests.size();
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = engine.submit(requests[i], [answers, i, on_answer](TokenEvent&& event) {
      const std::lock_guard lock(answers->mutex);
      auto& tokens = answers->tokens[i];
      tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
      if (event.finish == FinishReason::kNone) return;
      if (!event.error.ok()) answers->error = event.error;
      --answers->unfinished;
      if (on_answer) on_answer(answers->tokens.size() - answers->unfinished);
      if (answers->unfinished == 0) answers->done.notify_one();
    });
    if (!id.ok()) return id.status();
  }
  std::unique_lock lock(answers->mutex);
  answers->done.wait(lock, [&] { return answers->unfinished == 0; });
  if (!answers->error.ok()) return answers->error;
  return answers->tokens;
}

}  // namespace kvasir
