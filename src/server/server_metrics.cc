#include "server/server_metrics.h"

#include <fmt/format.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace kvasir {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Collects families that all carry the same labels.
class Exposition {
 public:
  explicit Exposition(Labels labels) : labels_(std::move(labels)) {}

  void gauge(const char* name, const char* help, double value, const Labels& more = {}) {
    ClientMetric metric = labelled(more);
    metric.gauge.value = value;
    add(name, help, MetricType::Gauge, std::move(metric));
  }
  void counter(const char* name, const char* help, double value, const Labels& more = {}) {
    ClientMetric metric = labelled(more);
    metric.counter.value = value;
    add(name, help, MetricType::Counter, std::move(metric));
  }
  void histogram(const char* name, const char* help, const HistogramSnapshot& snapshot) {
    ClientMetric metric = labelled({});
    uint64_t count = 0;
    for (size_t i = 0; i < snapshot.counts.size(); ++i) {
      count += snapshot.counts[i];
      if (i < snapshot.bounds.size()) metric.histogram.bucket.push_back({count, snapshot.bounds[i]});
    }
    metric.histogram.sample_count = count;
    metric.histogram.sample_sum = snapshot.sum;
    add(name, help, MetricType::Histogram, std::move(metric));
  }

  std::vector<MetricFamily> families;

 private:
  ClientMetric labelled(const Labels& more) const {
    ClientMetric metric;
    metric.label = labels_;
    metric.label.insert(metric.label.end(), more.begin(), more.end());
    return metric;
  }
  void add(const char* name, const char* help, MetricType type, ClientMetric metric) {
    if (families.empty() || families.back().name != name) families.push_back({name, help, type, {}});
    families.back().metric.push_back(std::move(metric));
  }

  Labels labels_;
};

void add_requests(Exposition& out, const EngineStats& s) {
  out.gauge("vllm:num_requests_running", "Sequences in the running batch.", s.running);
  out.gauge("vllm:num_requests_waiting", "Sequences waiting to run.", s.waiting);
  constexpr const char* kClasses[] = {"below_0", "0", "above_0"};
  for (size_t i = 0; i < s.queue.by_class.size(); ++i)
    out.gauge("kvasir_queue_sequences", "Sequences waiting to run, by their priority.", s.queue.by_class[i],
              {{"priority", kClasses[i]}});
  out.gauge("kvasir_queue_users", "Users with sequences waiting to run.", s.queue.users);
  out.gauge("kvasir_queue_longest_of_user", "Most sequences of one user that wait to run.", s.queue.longest);
  out.gauge("kvasir_service_gap_tokens",
            "Largest difference of the service (priced tokens through weight) of two users who wait.",
            s.queue.service_gap);
  out.gauge("kvasir_backlog_seconds", "Estimated time until all that was taken on is done.",
            s.backlog_seconds);
  out.gauge("kvasir_queue_seconds", "Estimated time until all that waits now has begun.", s.queue_seconds);
  const auto refused = [&](const char* reason, uint64_t count) {
    out.counter("kvasir_requests_refused_total",
                "Requests answered 429: the queue was full, or of their user.", static_cast<double>(count),
                {{"reason", reason}});
  };
  refused("queue", s.refused_full);
  refused("user", s.refused_user);
  const auto finished = [&](const char* reason, uint64_t count) {
    out.counter("vllm:request_success_total", "Sequences that ended, by reason.", static_cast<double>(count),
                {{"finished_reason", reason}});
  };
  finished("stop", s.finished_stop);
  finished("length", s.finished_length);
  finished("abort", s.finished_abort);
  finished("error", s.finished_error);
  out.counter("vllm:num_preemptions_total", "Sequences taken back to make room.",
              static_cast<double>(s.preemptions));
  out.counter("vllm:prompt_tokens_total", "Prompt tokens processed.", static_cast<double>(s.prompt_tokens));
  out.counter("vllm:generation_tokens_total", "Tokens generated.", static_cast<double>(s.generation_tokens));
}

void add_cache(Exposition& out, const EngineStats& s) {
  const double total = s.blocks_total > 0 ? s.blocks_total : 1;
  const double queries = static_cast<double>(s.prefix_queries), hits = static_cast<double>(s.prefix_hits);
  out.gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks that sequences hold, 0 to 1.",
            s.blocks_used / total);
  out.gauge("vllm:gpu_cache_usage_perc", "The older name of vllm:kv_cache_usage_perc.",
            s.blocks_used / total);
  out.counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.", queries);
  out.counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.", hits);
  out.counter("vllm:prompt_tokens_cached_total", "Prompt tokens taken from the prefix cache.", hits);
  out.gauge("vllm:gpu_prefix_cache_hit_rate", "Hits per query since the start.",
            queries > 0 ? hits / queries : 0);
  const auto blocks = [&](const char* state, uint32_t count) {
    out.gauge("kvasir_kv_blocks", "KV blocks, by what they are used for.", count, {{"state", state}});
  };
  blocks("used", s.blocks_used);
  blocks("cached", s.blocks_cached);
  blocks("free", s.blocks_free);
  out.gauge("kvasir_kv_waste_ratio", "Share of the used blocks' slots that hold no token.", s.kv_waste);
}

// vLLM's names; an acceptance length counts the token chosen after the accepted guesses.
void add_speculation(Exposition& out, const EngineStats::Speculation& s) {
  for (const DrafterStats& d : s.drafters) {
    const Labels who{{"drafter", std::string(d.name)}};
    out.counter("vllm:spec_decode_num_drafts_total", "Drafts verified.", static_cast<double>(d.drafts), who);
  }
  for (const DrafterStats& d : s.drafters) {
    const Labels who{{"drafter", std::string(d.name)}};
    out.counter("vllm:spec_decode_num_draft_tokens_total", "Tokens guessed ahead and verified.",
                static_cast<double>(d.drafted), who);
  }
  for (const DrafterStats& d : s.drafters) {
    const Labels who{{"drafter", std::string(d.name)}};
    out.counter("vllm:spec_decode_num_accepted_tokens_total", "Guesses that became part of an answer.",
                static_cast<double>(d.accepted), who);
  }
  for (const DrafterStats& d : s.drafters) {
    for (uint32_t place = 0; place < Draft::kMost; ++place)
      out.counter("vllm:spec_decode_num_accepted_tokens_per_pos_total", "The same by place in the draft.",
                  static_cast<double>(d.accepted_at[place]),
                  {{"drafter", std::string(d.name)}, {"position", std::to_string(place)}});
  }
  for (uint32_t i = 0; i < kNoDrafts; ++i) {
    if (static_cast<NoDraft>(i) == NoDraft::kOutbid) continue;  // of drafters, not of tokens
    out.counter(
        "kvasir_spec_without_draft_total",
        "Tokens chosen without a draft: nobody had a guess, none was worth its row, prompts were being "
        "read, or the request refused.",
        static_cast<double>(s.without_draft[i]),
        {{"reason", std::string(no_draft_name(static_cast<NoDraft>(i)))}});
  }
  for (const DrafterStats& d : s.drafters) {
    for (uint32_t i = 0; i < kNoDrafts; ++i)
      out.counter("kvasir_spec_drafter_off_total",
                  "The same for each drafter, also where another was chosen.", static_cast<double>(d.off[i]),
                  {{"drafter", std::string(d.name)},
                   {"reason", std::string(no_draft_name(static_cast<NoDraft>(i)))}});
  }
  out.gauge("kvasir_spec_predicted_gain_ratio",
            "Tokens per second expected of the last step, over those of the same step without drafts.",
            s.predicted_gain);
  out.gauge("kvasir_spec_saved_seconds",
            "Estimate of the time that guesses have saved answers since the start: what tokens of steps with "
            "guesses would have taken in steps without, less what they took.",
            s.saved_seconds);
}

void add_steps(Exposition& out, const EngineStats& s) {
  out.counter("kvasir_steps_total", "Steps of the engine.", static_cast<double>(s.steps));
  out.counter("kvasir_step_seconds_total", "Time inside steps.", s.step_seconds);
  out.counter("kvasir_computed_tokens_total", "Rows run through the model.",
              static_cast<double>(s.computed_tokens));
  out.histogram("vllm:iteration_tokens_total", "Rows per step.", s.iteration_tokens);
}

void add_persistence(Exposition& out, const EngineStats::Persistence& p) {
  out.gauge("kvasir_kv_persist_restored_tokens",
            "Tokens of cached prefixes taken from the file at the start.",
            static_cast<double>(p.restored_tokens));
  out.gauge("kvasir_kv_persist_dropped_blocks", "Blocks of that file that were damaged or had no use.",
            static_cast<double>(p.dropped_blocks));
  out.counter("kvasir_kv_persist_saves_total", "Saves of the cached prefixes.", static_cast<double>(p.saves));
  out.counter("kvasir_kv_persist_failures_total", "Saves that failed.", static_cast<double>(p.failures));
  out.gauge("kvasir_kv_persist_saved_bytes", "Size of the file of the last save.",
            static_cast<double>(p.saved_bytes));
  out.gauge("kvasir_kv_persist_saved_seconds", "Time that the last save took.", p.saved_seconds);
}

void add_health(Exposition& out, const ServedModel& model, const EngineStats& s) {
  out.gauge("kvasir_engine_stalled", "1 while the engine does not move although it has work.",
            model.engine->health().ok() ? 0 : 1);
  const auto stalls = [&](const char* kind, uint64_t count) {
    out.counter(
        "kvasir_engine_stalls_total",
        "Stalls, by kind: seen (nothing moved within the bound), replanned (no step could be planned, all "
        "was admitted anew), failed (that did not help, and a request ended with an error).",
        static_cast<double>(count), {{"kind", kind}});
  };
  stalls("seen", s.stalls_seen);
  stalls("replanned", s.stalls_resolved);
  stalls("failed", s.stalls_failed_requests);
}

void add_forecast(Exposition& out, const EngineStats::Forecast& f) {
  out.counter("kvasir_predicted_steps_total", "Steps whose time was predicted before.",
              static_cast<double>(f.steps));
  out.counter("kvasir_predicted_step_seconds_total", "What they were predicted to take.",
              f.predicted_seconds);
  out.counter("kvasir_predicted_step_measured_seconds_total", "What they took.", f.measured_seconds);
  out.histogram("kvasir_step_prediction_error_ratio", "|predicted - measured| / measured, per step.",
                f.error);
  const auto recent = [&](const char* quantile, double error) {
    out.gauge("kvasir_step_prediction_recent_error_ratio", "The same over the last 256 steps, by quantile.",
              error, {{"quantile", quantile}});
  };
  recent("0.5", f.recent.median);
  recent("0.9", f.recent.p90);
  out.gauge("kvasir_step_prediction_recent_bias_ratio",
            "Median of (predicted - measured) / measured over the last 256 steps.", f.recent.bias);
  for (uint32_t i = 0; i < kStepParts; ++i)
    out.gauge("kvasir_step_slowdown_ratio",
              "Time of a part of steps now over what was measured of the machine.", f.factors[i],
              {{"part", step_part_name(static_cast<StepPart>(i))}});
}

void add_latencies(Exposition& out, const EngineStats& s) {
  out.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.",
                s.time_to_first_token);
  out.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a sequence.", s.inter_token);
  out.histogram("vllm:time_per_output_token_seconds", "The older name of vllm:inter_token_latency_seconds.",
                s.inter_token);
  out.histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", s.end_to_end);
  out.histogram("vllm:request_queue_time_seconds", "From arrival to the first step.", s.queue_time);
  out.histogram("vllm:request_prefill_time_seconds", "From the first step to the first token.",
                s.prefill_time);
  out.histogram("vllm:request_decode_time_seconds", "From the first token to the last.", s.decode_time);
  out.histogram("vllm:request_prompt_tokens", "Tokens per prompt.", s.request_prompt_tokens);
  out.histogram("vllm:request_generation_tokens", "Tokens per answer.", s.request_generation_tokens);
}

std::vector<MetricFamily> engine_families(const ServedModel& model) {
  const EngineStats stats = model.engine->stats();
  Exposition out({{"model_name", model.name}, {"engine", "0"}});
  add_requests(out, stats);
  add_cache(out, stats);
  if (!stats.speculation.drafters.empty()) add_speculation(out, stats.speculation);
  add_steps(out, stats);
  add_health(out, model, stats);
  if (stats.persistence.enabled) add_persistence(out, stats.persistence);
  if (stats.forecast.steps > 0) add_forecast(out, stats.forecast);
  add_latencies(out, stats);

  const EngineConfig& config = model.engine->config();
  Exposition info({{"engine", "0"},
                   {"block_size", std::to_string(config.block_size)},
                   {"num_gpu_blocks", std::to_string(stats.blocks_total)},
                   {"cache_dtype", config.kv_type == KvType::kInt8 ? "int8_per_token_head" : "float16"},
                   {"enable_prefix_caching", config.enable_prefix_caching ? "True" : "False"},
                   {"kv_cache_size_tokens", std::to_string(model.engine->kv_token_capacity())}});
  info.gauge("vllm:cache_config_info", "The KV cache's configuration, as labels.", 1);
  out.families.push_back(std::move(info.families.front()));
  return std::move(out.families);
}

double resident_bytes() {
  unsigned long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return static_cast<double>(pages) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

prometheus::Histogram::BucketBoundaries http_bounds() {
  return {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
}

}  // namespace

ServerMetrics::ServerMetrics()
    : http_requests_(prometheus::BuildCounter()
                         .Name("http_requests_total")
                         .Help("HTTP requests answered.")
                         .Register(registry_)),
      http_seconds_(prometheus::BuildHistogram()
                        .Name("http_request_duration_seconds")
                        .Help("From the end of the headers to the end of the answer.")
                        .Register(registry_)),
      unknown_fields_(prometheus::BuildCounter()
                          .Name("kvasir_unknown_request_fields_total")
                          .Help("Request fields that were not known and skipped.")
                          .Register(registry_)
                          .Add({})),
      params_n_(prometheus::BuildHistogram()
                    .Name("vllm:request_params_n")
                    .Help("Answers asked for per request.")
                    .Register(registry_)
                    .Add({}, prometheus::Histogram::BucketBoundaries{1, 2, 5, 10, 20})),
      params_max_tokens_(
          prometheus::BuildHistogram()
              .Name("vllm:request_params_max_tokens")
              .Help("Most tokens per answer.")
              .Register(registry_)
              .Add({}, prometheus::Histogram::BucketBoundaries{1, 10, 100, 1000, 10000, 100000})),
      start_seconds_(
          std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()) {}

void ServerMetrics::count_http(std::string_view handler, std::string_view method, int status,
                               double seconds) {
  const prometheus::Labels labels{{"handler", std::string(handler)}, {"method", std::string(method)}};
  prometheus::Labels with_status = labels;
  with_status["status"] = fmt::format("{}xx", status / 100);
  http_requests_.Add(with_status).Increment();
  http_seconds_.Add(labels, http_bounds()).Observe(seconds);
}

void ServerMetrics::count_generation(uint32_t choices, uint32_t max_tokens) {
  params_n_.Observe(choices);
  params_max_tokens_.Observe(max_tokens);
}

void ServerMetrics::count_unknown_fields(uint32_t count) {
  unknown_fields_.Increment(count);
}

std::string ServerMetrics::render(const ServedModel* model, const HttpServerCounters& http,
                                  std::string_view state) const {
  Exposition out({});
  for (const char* name : {"loading", "ready", "draining"}) {
    out.gauge("kvasir_state", "1 for the state the server is in.", state == name, {{"state", name}});
  }
  out.gauge("kvasir_http_connections", "Open connections.", static_cast<double>(http.connections));
  out.gauge("kvasir_http_requests_in_progress", "Requests being answered.",
            static_cast<double>(http.exchanges));
  out.counter("kvasir_http_connections_total", "Connections accepted.",
              static_cast<double>(http.accepted_total));
  out.counter("kvasir_http_slow_readers_total", "Clients dropped because they did not read their answer.",
              static_cast<double>(http.dropped_readers_total));
  out.gauge("process_resident_memory_bytes", "Resident memory.", resident_bytes());
  out.counter("process_cpu_seconds_total", "CPU time used.", cpu_seconds());
  out.gauge("process_start_time_seconds", "Start of the process since the epoch.", start_seconds_);
  std::vector<MetricFamily> families = registry_.Collect();
  const auto append = [&](std::vector<MetricFamily> more) {
    families.insert(families.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
  };
  append(std::move(out.families));
  if (model != nullptr) append(engine_families(*model));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace kvasir
