#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/access_policy.h"
#include "server/generation.h"
#include "server/http_server.h"
#include "server/prompt.h"
#include "server/served_model.h"
#include "server/server_metrics.h"
#include "server/worker_pool.h"

namespace kvasir {

struct ApiServerConfig {
  HttpServerConfig http;
  AccessPolicy access;  // check_host is set by the server: only when it listens on loopback
  bool keys_share_cache =
      false;  // cached prefixes serve every API key, not only the one they were computed for
  unsigned workers = 2;
  size_t max_waiting_jobs = 1024;
};

// The OpenAI-compatible API over HTTP. States: loading (health says 503 with the progress) -> ready ->
// draining (health 503, no new work, what runs goes on) -> stopped. Health, metrics and the model list are
// answered on the I/O thread from snapshots; bodies are parsed and tokenised on worker threads; answers are
// written on the I/O thread.
class ApiServer : private HttpHandler {
 public:
  // Listens and answers at once, in state loading.
  static Result<std::unique_ptr<ApiServer>> listen(const ApiServerConfig& config);
  ~ApiServer() override;  // stops; the engine must still be there, or have ended all its requests

  uint16_t port() const { return http_->port(); }
  std::string address() const { return http_->address(); }
  bool loopback() const { return http_->loopback(); }

  void set_loading_progress(double share) { progress_ = share; }

  // The model is loaded: from now on requests are served. Once only.
  void serve(const ServedModel& model);

  // No new work; drained() tells when everything in progress has been answered.
  void drain();
  bool drained() const { return http_->counters().exchanges == 0; }

  // Ends everything in progress with an error.
  void abort_all();

  // Closes all connections. Call it while the engine lives.
  void stop();

 private:
  enum class State : uint8_t { kLoading, kReady, kDraining };
  struct Model {
    explicit Model(const ServedModel& m) : served(m), prompts(served) {}
    ServedModel served;
    PromptBuilder prompts;
  };
  using Exchange = std::shared_ptr<HttpExchange>;
  struct Route {
    std::string_view method;
    std::string_view path;   // without "/v1"
    std::string_view label;  // in metrics and logs
    bool open;               // without an API key
    bool needs_model;        // 503 until there is one
    void (ApiServer::*answer)(const Exchange&);
  };
  static const Route kRoutes[];

  explicit ApiServer(const ApiServerConfig& config);

  std::optional<HttpResponse> screen(const HttpRequest& head) override;
  void handle(std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse transport_error(int status, std::string_view message) override;
  std::vector<HttpHeader> common_headers(const HttpRequest& request) override;
  void finished(const HttpRequest& head, int status, double seconds) override;

  static std::string_view route_path(std::string_view path);
  static const Route* find_route(std::string_view method, std::string_view path);
  static HttpResponse no_route(const HttpRequest& head);
  Problem check_state(const Route& route, const HttpRequest& head) const;
  std::string_view state_word() const;

  void answer_live(const Exchange& exchange);
  void answer_health(const Exchange& exchange);
  void answer_version(const Exchange& exchange);
  void answer_metrics(const Exchange& exchange);
  void answer_models(const Exchange& exchange);
  void answer_model(const Exchange& exchange);
  void answer_tokenizer_info(const Exchange& exchange);
  void answer_chat(const Exchange& exchange) { start_generation(exchange, true); }
  void answer_completion(const Exchange& exchange) { start_generation(exchange, false); }
  void answer_tokenize(const Exchange& exchange);
  void answer_detokenize(const Exchange& exchange);

  void start_generation(const Exchange& exchange, bool chat);
  Problem prepare_generation(const Exchange& exchange, bool chat);
  void run_on_worker(const Exchange& exchange, std::function<Problem()> job);

  ApiServerConfig config_;
  const int64_t created_;
  ServerMetrics metrics_;
  std::atomic<State> state_{State::kLoading};
  std::atomic<double> progress_{0.0};
  std::unique_ptr<const Model> model_;
  std::atomic<const Model*> ready_model_{nullptr};
  std::vector<std::weak_ptr<Generation>> generations_;  // I/O thread only
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<WorkerPool> workers_;
};

}  // namespace kvasir
