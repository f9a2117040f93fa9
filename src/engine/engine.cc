#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine_core.h"
#include "engine/queue_bound.h"
#include "engine/request_check.h"
#include "engine/watchdog.h"

namespace kvasir {
namespace {

constexpr uint32_t kMinLogitRows = 64;  // so that scoring a prompt goes in sensible chunks

// So long nothing must have happened before the idle engine checks its invariants, so that nobody waits for
// that.
constexpr std::chrono::milliseconds kQuiet{20};

// The thread around an EngineCore. `mutex_` guards the inbox; it is held for moments, never during a step.
class ThreadedEngine final : public Engine {
 public:
  ThreadedEngine(const EngineConfig& config, const KvLayout& layout, uint32_t blocks, CausalLm& model,
                 const Tokenizer& tokenizer, const KernelTable& kernels, ThreadPool& pool,
                 std::unique_ptr<PerfModel> perf, std::vector<std::unique_ptr<Drafter>> drafters,
                 std::unique_ptr<KvDirectory> directory)
      : config_(config),
        limits_{model.config().vocab_size, config.max_model_len, config.max_num_seqs, tokenizer.end_tokens()},
        token_capacity_(uint64_t{blocks / layout.units()} * layout.block_size()),
        drafters_(names_of(drafters)),
        queued_(config.max_queued_requests, config.max_queued_per_user),
        core_(config, layout, blocks, model, tokenizer, kernels, pool, random_seed(), std::move(perf),
              std::move(drafters)) {
    if (directory != nullptr) core_.keep_prefixes(std::move(directory), [this] { wake_for_tick(); });
    stats_ = core_.update_stats();
    thread_ = std::thread([this] { run(); });
    if (config.stall_seconds > 0)
      watchdog_.emplace(Watchdog::Options{.seconds = config.stall_seconds}, core_.trace(),
                        [this] { return oldest_arrival(); });
  }

  ~ThreadedEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  Result<RequestId> submit(Request request, TokenSink sink) override {
    KVASIR_RETURN_IF_ERROR(check_request(request, limits_));
    if (Status ill = health(); !ill.ok()) return ill;
    const double now = monotonic_seconds();
    RequestId id{};
    {
      const std::lock_guard lock(mutex_);
      if (draining_) return unavailable("the engine is draining and takes no new requests");
      KVASIR_RETURN_IF_ERROR(queued_.enter(request.user));
      ++active_;
      id = RequestId{++last_id_};
      inbox_.push_back({id, std::move(request), std::move(sink), now});
    }
    wake_.notify_one();
    return id;
  }

  void cancel(RequestId id) override {
    {
      const std::lock_guard lock(mutex_);
      cancels_.push_back(id);
    }
    wake_.notify_one();
  }

  void drain() override {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }

  bool drained() const override {
    const std::lock_guard lock(mutex_);
    return draining_ && active_ == 0;
  }

  EngineStats stats() const override {
    EngineStats stats;
    {
      const std::lock_guard lock(stats_mutex_);
      stats = stats_;
    }
    if (watchdog_) stats.stalls_seen = watchdog_->stalls();
    return stats;
  }

  std::vector<std::string> drafters() const override { return drafters_; }
  Status health() const override { return watchdog_ ? watchdog_->health() : Status(); }

  const EngineConfig& config() const override { return config_; }
  uint64_t kv_token_capacity() const override { return token_capacity_; }

 private:
  struct Arrival {
    RequestId id;
    Request request;
    TokenSink sink;
    double time;
  };

  static std::vector<std::string> names_of(const std::vector<std::unique_ptr<Drafter>>& drafters) {
    std::vector<std::string> names;
    names.reserve(drafters.size());
    for (const auto& drafter : drafters) names.emplace_back(drafter->name());
    return names;
  }

  static uint64_t random_seed() {
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
  }

  void run();
  bool take_inbox();
  void sleep(std::unique_lock<std::mutex>& lock);
  void wake_for_tick();
  double oldest_arrival() const;
  void account();
  void check_idle() const;

  const EngineConfig config_;
  const RequestLimits limits_;
  const uint64_t token_capacity_;
  const std::vector<std::string> drafters_;
  QueueBound queued_;  // those accepted and not yet computed for the first time
  EngineCore core_;    // the thread's, once it runs

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Arrival> inbox_;
  std::vector<RequestId> cancels_;
  bool stop_ = false;
  bool draining_ = false;
  bool tick_due_ = false;
  uint64_t last_id_ = 0;
  uint32_t active_ = 0;  // accepted and not yet ended

  std::vector<Arrival> arrivals_;  // the thread's side of the inbox
  std::vector<RequestId> cancelled_;
  uint64_t ended_seen_ = 0;
  QueueBound::Refused refused_;

  mutable std::mutex stats_mutex_;
  EngineStats stats_;
  std::thread thread_;
  std::optional<Watchdog> watchdog_;  // ends first
};

void ThreadedEngine::run() {
  while (take_inbox()) {
    for (Arrival& a : arrivals_) core_.add(a.id, std::move(a.request), std::move(a.sink), a.time);
    arrivals_.clear();
    for (const RequestId id : cancelled_) core_.cancel(id);
    cancelled_.clear();
    if (core_.has_work()) core_.step();
    core_.tick(monotonic_seconds());
    account();
  }
  core_.cancel_all();
  check_idle();
  core_.trace().enter(EngineTrace::Phase::kIdle, monotonic_seconds());  // a long save is no illness
  core_.save_prefixes();
  account();
}

// Moves what has arrived to the thread's side; sleeps while there is nothing to do. False when the engine
// ends.
bool ThreadedEngine::take_inbox() {
  std::unique_lock lock(mutex_);
  if (!core_.has_work()) sleep(lock);
  tick_due_ = false;
  std::swap(inbox_, arrivals_);
  std::swap(cancels_, cancelled_);
  if (!stop_) return true;
  // Requests that the core never saw get their end too.
  lock.unlock();
  for (Arrival& a : arrivals_) core_.add(a.id, std::move(a.request), std::move(a.sink), a.time);
  return false;
}

// Until there is something to do.
void ThreadedEngine::sleep(std::unique_lock<std::mutex>& lock) {
  const auto something = [this] { return stop_ || tick_due_ || !inbox_.empty() || !cancels_.empty(); };
  core_.trace().enter(EngineTrace::Phase::kIdle, monotonic_seconds());
  if (!wake_.wait_for(lock, kQuiet, something)) {
    lock.unlock();
    check_idle();
    bool more = true;
    while (more) {
      more = core_.ready_memory();
      const std::lock_guard again(mutex_);
      more = more && !something();
    }
    const std::optional<double> next = core_.next_tick();
    lock.lock();
    if (next)
      wake_.wait_for(lock, std::chrono::duration<double>(*next - monotonic_seconds()), something);
    else
      wake_.wait(lock, something);
  }
  core_.trace().move(monotonic_seconds());
}

void ThreadedEngine::wake_for_tick() {
  {
    const std::lock_guard lock(mutex_);
    tick_due_ = true;
  }
  wake_.notify_one();
}

// When the oldest request came that the thread has not taken; 0: there is none.
double ThreadedEngine::oldest_arrival() const {
  const std::lock_guard lock(mutex_);
  return inbox_.empty() ? 0 : inbox_.front().time;
}

// Publishes what the last step changed.
void ThreadedEngine::account() {
  {
    const std::lock_guard lock(stats_mutex_);
    stats_ = core_.update_stats();
    stats_.refused_full = refused_.full;
    stats_.refused_user = refused_.user;
  }
  const std::lock_guard lock(mutex_);
  for (const std::string& user : core_.left_queue()) queued_.leave(user);
  core_.forget_left_queue();
  refused_ = queued_.refused();
  active_ -= static_cast<uint32_t>(core_.requests_ended() - ended_seen_);
  ended_seen_ = core_.requests_ended();
}

void ThreadedEngine::check_idle() const {
  const Status status = core_.check_integrity();
  if (!status.ok()) spdlog::critical("{}", status.message());
  CHECK(status.ok());
}

// The longest sequence of at most `wanted` tokens that fits a pool of `blocks` alone.
uint32_t longest_sequence(const KvLayout& layout, uint32_t blocks, uint32_t wanted) {
  uint32_t low = 0;
  uint32_t high = wanted;
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    if (layout.blocks_for(middle) <= blocks)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

Status check_config(const EngineConfig& config, uint32_t context_length) {
  if (config.max_num_seqs == 0 || config.max_num_batched_tokens == 0 || config.max_queued_requests == 0)
    return invalid_argument(
        fmt::format("max_num_seqs {}, max_num_batched_tokens {} and max_queued_requests {} must be above 0",
                    config.max_num_seqs, config.max_num_batched_tokens, config.max_queued_requests));
  if (config.speculation.most > Draft::kMost)
    return invalid_argument(fmt::format("{} guesses per step were asked for; at most {} are possible",
                                        config.speculation.most, Draft::kMost));
  if (!(config.max_itl_seconds >= 0))
    return invalid_argument(
        fmt::format("max_itl_seconds is {}; it must not be below 0", config.max_itl_seconds));
  if (!(config.stall_seconds >= 0) || !(config.kv_persistence.interval_seconds >= 0))
    return invalid_argument(
        fmt::format("stall_seconds is {} and the interval between saves {}; they must not be below 0",
                    config.stall_seconds, config.kv_persistence.interval_seconds));
  if (config.max_model_len == 1)
    return invalid_argument("max_model_len is 1; a prompt and its answer have 2 tokens at least");
  if (config.max_model_len > context_length)
    return invalid_argument(fmt::format("max_model_len {} is longer than the model's context of {} tokens",
                                        config.max_model_len, context_length));
  return {};
}

}  // namespace

uint32_t max_queued_of_one_user(const EngineConfig& config) {
  return QueueBound::most_of_one(config.max_queued_requests, config.max_queued_per_user);
}

CausalLm::Limits model_limits(const EngineConfig& config) {
  return {config.max_num_batched_tokens,
          std::min(config.max_num_batched_tokens, std::max(config.max_num_seqs, kMinLogitRows)),
          config.max_model_len};
}

Result<std::unique_ptr<Engine>> Engine::start(const EngineConfig& config, CausalLm& model,
                                              const Tokenizer& tokenizer, const KernelTable& kernels,
                                              ThreadPool& pool, std::unique_ptr<PerfModel> perf,
                                              std::vector<std::unique_ptr<Drafter>> drafters,
                                              std::unique_ptr<KvDirectory> directory) {
  KVASIR_RETURN_IF_ERROR(check_config(config, model.config().context_length));
  KVASIR_ASSIGN_OR_RETURN(const KvLayout layout,
                          KvLayout::make(model.config().kv_layers(), config.block_size, config.kv_type));
  const uint64_t blocks = std::min<uint64_t>(config.kv_bytes / layout.block_bytes(), UINT32_MAX / 2);
  EngineConfig complete = config;
  if (complete.max_model_len == 0) complete.max_model_len = model.config().context_length;
  complete.max_model_len = longest_sequence(layout, static_cast<uint32_t>(blocks), complete.max_model_len);
  if (complete.max_model_len < 2)
    return invalid_argument(
        fmt::format("a KV pool of {} bytes holds {} blocks; a sequence needs at least {} of {} bytes each",
                    config.kv_bytes, blocks, layout.blocks_for(2), layout.block_bytes()));
  if (config.max_model_len != 0 && complete.max_model_len < config.max_model_len)
    spdlog::warn("max_model_len is {} instead of {}: the KV pool holds no longer sequence",
                 complete.max_model_len, config.max_model_len);
  spdlog::info(
      "KV pool: {} MiB of {}, {} blocks of {} tokens, {} tokens in all; sequences of up to {} tokens",
      blocks * layout.block_bytes() >> 20, kv_type_name(layout.type()), blocks, layout.block_size(),
      blocks / layout.units() * layout.block_size(), complete.max_model_len);
  try {
    return std::unique_ptr<Engine>(std::make_unique<ThreadedEngine>(
        complete, layout, static_cast<uint32_t>(blocks), model, tokenizer, kernels, pool, std::move(perf),
        std::move(drafters), std::move(directory)));
  } catch (const std::bad_alloc&) {
    return resource_exhausted(
        fmt::format("the machine does not give {} bytes for the KV pool", config.kv_bytes));
  }
}

}  // namespace kvasir
