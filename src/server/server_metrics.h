#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>
#include <string_view>

#include "server/http_server.h"
#include "server/served_model.h"

namespace kvasir {

// What /metrics shows: the server's own counters and a snapshot of the engine's, in the Prometheus text
// format 0.0.4, under vLLM's names where vLLM has one. Rendering takes no engine lock and never waits for a
// step.
class ServerMetrics {
 public:
  ServerMetrics();

  void count_http(std::string_view handler, std::string_view method, int status, double seconds);
  void count_generation(uint32_t choices, uint32_t max_tokens);
  void count_unknown_fields(uint32_t count);

  // `model` may be null while it loads. state: "loading", "ready" or "draining".
  std::string render(const ServedModel* model, const HttpServerCounters& http, std::string_view state) const;

  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& http_requests_;
  prometheus::Family<prometheus::Histogram>& http_seconds_;
  prometheus::Counter& unknown_fields_;
  prometheus::Histogram& params_n_;
  prometheus::Histogram& params_max_tokens_;
  double start_seconds_;  // since the epoch
};

}  // namespace kvasir
