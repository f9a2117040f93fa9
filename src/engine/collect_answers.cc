#include "engine/collect_answers.h"

#include <chrono>
#include <condition_variable>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {

// What the engine's thread fills in while the caller waits.
struct Collection {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<CollectedAnswer> answers;
  size_t unfinished = 0, finished = 0;
  Status error;
  std::function<void(size_t)> on_answer;

  void take(size_t index, TokenEvent&& event) {
    const std::lock_guard lock(mutex);
    CollectedAnswer& answer = answers[index];
    answer.tokens.insert(answer.tokens.end(), event.tokens.begin(), event.tokens.end());
    std::move(event.logprobs.begin(), event.logprobs.end(), std::back_inserter(answer.logprobs));
    answer.text += event.text;
    answer.finish = event.finish;
    if (event.finish == FinishReason::kNone) return;
    if (!event.error.ok()) error = event.error;
    ++finished;
    if (on_answer) on_answer(finished);
    if (--unfinished == 0) done.notify_one();
  }
};

}  // namespace

Result<std::vector<CollectedAnswer>> collect_answers(Engine& engine, const std::vector<Request>& requests,
                                                     std::function<void(size_t)> on_answer) {
  const auto all = std::make_shared<Collection>();
  all->answers.resize(requests.size());
  all->unfinished = requests.size();
  all->on_answer = std::move(on_answer);
  Status refused;
  for (size_t i = 0; i < requests.size() && refused.ok(); ++i) {
    CHECK(requests[i].n == 1);
    const auto id =
        engine.submit(requests[i], [all, i](TokenEvent&& event) { all->take(i, std::move(event)); });
    if (id.ok()) continue;
    refused = id.status();
    const std::lock_guard lock(all->mutex);
    all->unfinished -= requests.size() - i;
  }
  std::unique_lock lock(all->mutex);
  all->done.wait(lock, [&] { return all->unfinished == 0; });
  if (!refused.ok()) return refused;
  if (!all->error.ok()) return all->error;
  return std::move(all->answers);
}

EngineStats stats_when_idle(const Engine& engine) {
  for (;;) {
    EngineStats stats = engine.stats();
    if (stats.running == 0 && stats.waiting == 0) return stats;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace kvasir
