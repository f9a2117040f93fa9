#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "decoding/draft_stats.h"
#include "perf/drift.h"

namespace kvasir {

// A histogram with fixed upper bounds (seconds or tokens); counts has one more cell than bounds, the last for
// +Inf.
struct HistogramSnapshot {
  std::vector<double> bounds;
  std::vector<uint64_t> counts;
  double sum = 0;
};

// What the engine has done since it started, and what it holds now.
struct EngineStats {
  // Gauges.
  uint32_t running = 0, waiting = 0;
  struct Queue {
    std::array<uint32_t, 3> by_class{};  // of the waiting: priority below 0, 0, above
    uint32_t users = 0;                  // whose they are
    uint32_t longest = 0;                // most of one user
    double service_gap = 0;              // largest difference of two waiting users' service (fair_queue.h)
  };
  Queue queue;
  double backlog_seconds = 0;  // estimated, until everything taken on is done,
  double queue_seconds = 0;    // and until what waits now has begun (backlog.h)
  uint32_t blocks_total = 0, blocks_used = 0, blocks_cached = 0, blocks_free = 0;
  double kv_waste = 0;  // share of the used blocks' slots that hold no token (last blocks)
  // Counters.
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0, generation_tokens = 0;
  uint64_t computed_tokens = 0;                  // rows run through the model
  uint64_t prefix_queries = 0, prefix_hits = 0;  // tokens asked of and served by the prefix cache
  uint64_t preemptions = 0;
  uint64_t refused_full = 0, refused_user = 0;  // requests: the queue was full, or held enough of their user
  uint64_t finished_stop = 0, finished_length = 0, finished_abort = 0, finished_error = 0;
  double step_seconds = 0;  // time inside steps
  // No step that ended within the bound (Watchdog); steps that could not be planned, and requests that were
  // ended with an error because of that.
  uint64_t stalls_seen = 0, stalls_resolved = 0, stalls_failed_requests = 0;
  // Cached prefixes kept in a file (KvPersist).
  struct Persistence {
    bool enabled = false;
    uint64_t restored_tokens = 0, restored_blocks = 0, dropped_blocks = 0;  // at the start
    uint64_t saves = 0, failures = 0;
    uint64_t saved_bytes = 0, saved_blocks = 0;  // of the last save
    double saved_seconds = 0;                    // that it took
  };
  Persistence persistence;
  // How steps were predicted (engine/step_forecast.h).
  struct Forecast {
    uint64_t steps = 0;
    double predicted_seconds = 0, measured_seconds = 0;  // of those steps
    HistogramSnapshot error;                             // |predicted - measured| / measured
    ErrorWindow::Summary recent;                         // of the last steps
    StepSeconds factors{};  // by StepPart: seconds now over what was measured of the machine
  };
  Forecast forecast;
  // What drafters did, and why sequences' steps carried no draft (engine/speculator.h).
  struct Speculation {
    std::vector<DrafterStats> drafters;
    std::array<uint64_t, kNoDrafts> without_draft{};
    double predicted_gain = 1;  // of the last step, in tokens per second
    double saved_seconds = 0;   // estimated (DraftCounts)
  };
  Speculation speculation;
  // Latencies, in seconds, by vLLM's definitions.
  HistogramSnapshot time_to_first_token, inter_token, end_to_end, queue_time, prefill_time, decode_time;
  HistogramSnapshot request_prompt_tokens, request_generation_tokens, iteration_tokens;
};

}  // namespace kvasir
