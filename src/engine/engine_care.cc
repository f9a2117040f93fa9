// EngineCore's care for itself: what the watchdog sees, what is done where no step can be planned, and cached
// prefixes kept over restarts.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/engine_core.h"
#include "kernels/numerics_version.h"

namespace kvasir {

// What the watchdog may want to say of the step.
void EngineCore::trace_step(const SchedulerOutput& plan) {
  trace_.describe([&](EngineTrace::State& s) {
    s.predicted = forecast_ != nullptr ? forecast_->predicted() : 0;
    s.running = static_cast<uint32_t>(scheduler_.running().size());
    s.waiting = static_cast<uint32_t>(scheduler_.queue().size());
    s.rows = plan.rows;
    s.blocks_used = pool_.owned();
    s.blocks_cached = pool_.cached();
    s.blocks_free = pool_.free();
    s.listed = static_cast<uint32_t>(std::min(s.work.size(), plan.items.size()));
    for (uint32_t i = 0; i < s.listed; ++i) {
      const SchedulerOutput::Item& item = plan.items[i];
      const Choice& choice = static_cast<const Choice&>(*item.sequence);
      EngineTrace::Work& w = s.work[i];
      w.request = static_cast<uint64_t>(choice.request.id);
      w.choice = choice.index;
      w.rows = item.rows;
      w.computed = choice.computed;
      w.known = choice.known();
      const std::string& name = choice.request.request.external_id;
      w.name[name.copy(w.name.data(), w.name.size() - 1)] = 0;
    }
  });
}

// The scheduler found no row to compute although somebody wants some.
void EngineCore::resolve_stall() {
  const std::vector<Sequence*> held =
      scheduler_.running().empty() ? scheduler_.waiting() : scheduler_.running();
  const Choice& oldest = static_cast<const Choice&>(*held.front());
  const uint64_t id = static_cast<uint64_t>(oldest.request.id);
  const std::string state = fmt::format(
      "{} running, {} waiting; {} KV blocks used, {} cached, {} free; the oldest, request {} ({}), knows {} "
      "tokens, for which it needs {} blocks",
      scheduler_.running().size(), scheduler_.queue().size(), pool_.owned(), pool_.cached(), pool_.free(), id,
      oldest.request.request.external_id, oldest.known(), layout_.blocks_for(oldest.known() + 1));
  if (!std::exchange(started_over_, true)) {
    spdlog::error("no step could be planned: {}. Everything is taken back and admitted anew", state);
    scheduler_.start_over();
    ++recorder_.stats().stalls_resolved;
    return;
  }
  spdlog::error("no step could be planned again: {}. The oldest request ends with an error", state);
  started_over_ = false;
  ++recorder_.stats().stalls_failed_requests;
  const Status error = internal_error(fmt::format(
      "no step could be planned for the request: it needs {} KV blocks, and {} of {} are to be had",
      layout_.blocks_for(oldest.known() + 1), pool_.available(), pool_.total()));
  end_request(RequestId{id}, FinishReason::kError, error);
}

bool EngineCore::ready_memory() {
  constexpr size_t kAhead = size_t{64} << 20;
  return runner_.store().ready_one(pool_.reached() + static_cast<uint32_t>(kAhead / layout_.block_bytes()));
}

void EngineCore::keep_prefixes(std::unique_ptr<KvDirectory> directory, std::function<void()> wake) {
  const EngineConfig::KvPersistence& c = config_.kv_persistence;
  persist_ = std::make_unique<KvPersist>(
      std::move(directory), kv_file_key(layout_, c.model, kNumericsVersion),
      KvPersist::Options{c.max_bytes, c.interval_seconds, vocab_, std::move(wake)}, layout_, pool_, cache_,
      runner_.store());
  persist_->restore();
}

void EngineCore::tick(double now) {
  if (persist_ == nullptr || !persist_->due(now)) return;
  trace_.enter(EngineTrace::Phase::kSaving, now);
  persist_->tick(now);
}

std::optional<double> EngineCore::next_tick() const {
  return persist_ == nullptr ? std::nullopt : persist_->next_due();
}

void EngineCore::save_prefixes() {
  if (persist_ != nullptr) persist_->save();
}

}  // namespace kvasir
