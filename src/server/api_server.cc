#include "server/api_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <new>

#include "base/log.h"
#include "server/cache_domain.h"
#include "server/json_input.h"
#include "server/json_writer.h"
#include "server/request_fields.h"
#include "server/request_owner.h"
#include "server/tokenize_api.h"

namespace kvasir {
namespace {

// What a client wrote, for a log line: no line of its own, and not long.
std::string loggable(std::string_view text) {
  std::string out(text.substr(0, 128));
  std::ranges::replace_if(
      out, [](char c) { return c <= ' ' || c > '~'; }, '?');
  return out;
}

}  // namespace

const ApiServer::Route ApiServer::kRoutes[] = {
    {"GET", "/livez", "/livez", true, false, &ApiServer::answer_live},
    {"GET", "/health", "/health", true, false, &ApiServer::answer_health},
    {"GET", "/readyz", "/readyz", true, false, &ApiServer::answer_health},
    {"GET", "/ping", "/ping", true, false, &ApiServer::answer_health},
    {"POST", "/ping", "/ping", true, false, &ApiServer::answer_health},
    {"GET", "/version", "/version", false, false, &ApiServer::answer_version},
    {"GET", "/metrics", "/metrics", false, false, &ApiServer::answer_metrics},
    {"GET", "/models", "/v1/models", false, true, &ApiServer::answer_models},
    {"GET", "/models/", "/v1/models/{id}", false, true, &ApiServer::answer_model},
    {"GET", "/tokenizer_info", "/tokenizer_info", false, true, &ApiServer::answer_tokenizer_info},
    {"POST", "/chat/completions", "/v1/chat/completions", false, true, &ApiServer::answer_chat},
    {"POST", "/completions", "/v1/completions", false, true, &ApiServer::answer_completion},
    {"POST", "/tokenize", "/tokenize", false, true, &ApiServer::answer_tokenize},
    {"POST", "/detokenize", "/detokenize", false, true, &ApiServer::answer_detokenize},
};

Result<std::unique_ptr<ApiServer>> ApiServer::listen(const ApiServerConfig& config) {
  std::unique_ptr<ApiServer> server(new ApiServer(config));
  KVASIR_ASSIGN_OR_RETURN(server->http_, HttpServer::listen(config.http, *server));
  server->config_.access.check_host = server->http_->loopback();
  server->workers_ = std::make_unique<WorkerPool>(config.workers, config.max_waiting_jobs);
  server->http_->start();
  return server;
}

ApiServer::ApiServer(const ApiServerConfig& config) : config_(config), created_(std::time(nullptr)) {}

ApiServer::~ApiServer() {
  stop();
}

void ApiServer::serve(const ServedModel& model) {
  model_ = std::make_unique<const Model>(model);
  ready_model_ = model_.get();
  state_ = State::kReady;
}

void ApiServer::drain() {
  state_ = State::kDraining;
  http_->close_after_answers();
}

void ApiServer::stop() {
  workers_.reset();
  if (http_) http_->stop();
}

std::string_view ApiServer::state_word() const {
  switch (state_.load()) {
    case State::kLoading:
      return "loading";
    case State::kReady:
      return "ready";
    case State::kDraining:
      break;
  }
  return "draining";
}

// --- routing ---

// The path as the route table writes it: every route is there with and without "/v1"; "/models/{id}" is
// "/models/".
std::string_view ApiServer::route_path(std::string_view path) {
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  return path.starts_with("/models/") && path.size() > 8 ? path.substr(0, 8) : path;
}

const ApiServer::Route* ApiServer::find_route(std::string_view method, std::string_view path) {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  for (const Route& route : kRoutes) {
    if (route.method == wanted && route.path == route_path(path)) return &route;
  }
  return nullptr;
}

// The answer where no route is: 405 on a path that other methods are for, else 404.
HttpResponse ApiServer::no_route(const HttpRequest& head) {
  ApiError error;
  std::string allowed;
  for (const Route& other : kRoutes) {
    if (other.path != route_path(head.path)) continue;
    if (!allowed.empty()) allowed += ", ";
    allowed += other.method == "GET" ? std::string_view("GET, HEAD") : other.method;
  }
  if (allowed.empty()) {
    error.status = 404;
    error.type = "not_found_error";
    error.message = "there is nothing at this path; the API is described in docs/api.md";
    return error_response(error);
  }
  error.status = 405;
  error.message = fmt::format("{} is not allowed here; use {}", head.method, allowed);
  HttpResponse response = error_response(error);
  response.headers.push_back({"Allow", allowed + ", OPTIONS"});
  return response;
}

Problem ApiServer::check_state(const Route& route, const HttpRequest& head) const {
  ApiError error;
  error.status = 503;
  error.type = "unavailable_error";
  error.retry_after_seconds = 5;
  if (route.needs_model && ready_model_ == nullptr) {
    error.message = "Loading model";
    return error;
  }
  if (state_ == State::kDraining && head.method == "POST" && !route.open) {
    error.message = "the server is shutting down";
    return error;
  }
  return std::nullopt;
}

std::optional<HttpResponse> ApiServer::screen(const HttpRequest& head) {
  const Route* route = find_route(head.method, head.path);
  if (Problem problem = config_.access.check(head, route != nullptr && route->open))
    return error_response(*problem);
  if (head.method == "OPTIONS") return HttpResponse{204, "", {{"Allow", "GET, HEAD, POST, OPTIONS"}}, ""};
  if (route == nullptr) return no_route(head);
  if (head.method == "POST" && head.has_header("Content-Type") &&
      lower_case(head.header("Content-Type")).find("json") == std::string::npos && !route->open) {
    return transport_error(415, "the request body must be JSON: send 'Content-Type: application/json'");
  }
  if (Problem problem = check_state(*route, head)) return error_response(*problem);
  return std::nullopt;
}

void ApiServer::handle(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  const Route* route = find_route(request.method, request.path);
  (this->*route->answer)(exchange);
}

HttpResponse ApiServer::transport_error(int status, std::string_view message) {
  ApiError error;
  error.status = status;
  error.message = std::string(message);
  if (status == 408) error.type = "timeout_error";
  if (status == 500) error.type = "server_error";
  if (status == 501) error.type = "not_supported_error";
  if (status == 503) error.type = "unavailable_error";
  return error_response(error);
}

std::vector<HttpHeader> ApiServer::common_headers(const HttpRequest& request) {
  std::vector<HttpHeader> headers = config_.access.cors_headers(request);
  headers.push_back({"X-Request-Id", request.id});
  headers.push_back({"X-Content-Type-Options", "nosniff"});
  return headers;
}

void ApiServer::finished(const HttpRequest& head, int status, double seconds) {
  const Route* route = find_route(head.method, head.path);
  const std::string_view handler = route != nullptr ? route->label : "other";
  const std::string_view method = route != nullptr ? std::string_view(head.method) : "other";
  metrics_.count_http(handler, method, status, seconds);
  const bool chatty = route != nullptr && (route->open || route->path == "/metrics");
  spdlog::log(chatty ? spdlog::level::debug : spdlog::level::info, "{} {} {} {:.1f} ms {} {}",
              loggable(head.method), route != nullptr ? std::string(handler) : loggable(head.path), status,
              seconds * 1e3, head.remote, head.id);
}

// --- answers on the I/O thread ---

void ApiServer::answer_live(const Exchange& exchange) {
  exchange->respond({200, "application/json", {}, R"({"status":"ok"})"});
}

void ApiServer::answer_health(const Exchange& exchange) {
  const State state = state_;
  const Model* model = ready_model_;
  const Status engine = model != nullptr ? model->served.engine->health() : Status();
  if (state == State::kReady && engine.ok()) return answer_live(exchange);
  std::string message = state == State::kLoading ? "Loading model" : "Shutting down";
  if (!engine.ok()) message = engine.message();
  JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.field("message", message);
  json.field("type", "unavailable_error").null_field("param").field("code", 503).end_object();
  json.field("status", engine.ok() ? state_word() : std::string_view("stalled"));
  if (state == State::kLoading) json.field("progress", progress_.load());
  json.end_object();
  exchange->respond({503, "application/json", {{"Retry-After", "1"}}, json.take()});
}

void ApiServer::answer_version(const Exchange& exchange) {
  exchange->respond({200, "application/json", {}, R"({"version":")" KVASIR_VERSION R"("})"});
}

void ApiServer::answer_metrics(const Exchange& exchange) {
  const Model* model = ready_model_;
  exchange->respond(
      {200,
       std::string(ServerMetrics::kContentType),
       {},
       metrics_.render(model != nullptr ? &model->served : nullptr, http_->counters(), state_word())});
}

void ApiServer::answer_models(const Exchange& exchange) {
  exchange->respond({200, "application/json", {}, model_list_json(ready_model_.load()->served, created_)});
}

void ApiServer::answer_model(const Exchange& exchange) {
  const ServedModel& model = ready_model_.load()->served;
  const std::string& path = exchange->request().path;
  const std::string id = path.substr(path.find("/models/") + 8);
  if (model.answers_to(id))
    return exchange->respond({200, "application/json", {}, model_json(model, created_)});
  ApiError error = api_error_of(not_found(fmt::format("The model `{}` does not exist.", id)));
  error.param = "model";
  error.code = "model_not_found";
  exchange->respond(error_response(error));
}

void ApiServer::answer_tokenizer_info(const Exchange& exchange) {
  exchange->respond({200, "application/json", {}, tokenizer_info_json(ready_model_.load()->served)});
}

// --- answers that need a worker ---

void ApiServer::run_on_worker(const Exchange& exchange, std::function<Problem()> job) {
  const bool posted = workers_->post([exchange, job = std::move(job)] {
    Problem problem;
    try {
      problem = job();
    } catch (const std::bad_alloc&) {
      problem = api_error_of(internal_error("out of memory while reading the request"));
    }
    if (problem) exchange->respond(error_response(*problem));
  });
  if (!posted)
    exchange->respond(error_response(api_error_of(resource_exhausted(
        fmt::format("{} requests are waiting to be read; no more are taken in", config_.max_waiting_jobs)))));
}

void ApiServer::answer_tokenize(const Exchange& exchange) {
  run_on_worker(exchange, [this, exchange]() -> Problem {
    const auto body = parse_json(exchange->request().body);
    if (!body.ok()) return api_error_of(body.status());
    const Model& model = *ready_model_;
    HttpResponse response;
    if (Problem problem = tokenize(model.served, model.prompts, *body, &response.body)) return problem;
    exchange->respond(std::move(response));
    return std::nullopt;
  });
}

void ApiServer::answer_detokenize(const Exchange& exchange) {
  run_on_worker(exchange, [this, exchange]() -> Problem {
    const auto body = parse_json(exchange->request().body);
    if (!body.ok()) return api_error_of(body.status());
    HttpResponse response;
    if (Problem problem = detokenize(ready_model_.load()->served, *body, &response.body)) return problem;
    exchange->respond(std::move(response));
    return std::nullopt;
  });
}

void ApiServer::start_generation(const Exchange& exchange, bool chat) {
  run_on_worker(exchange, [this, exchange, chat] { return prepare_generation(exchange, chat); });
}

Problem ApiServer::prepare_generation(const Exchange& exchange, bool chat) {
  const auto body = parse_json(exchange->request().body);
  if (!body.ok()) return api_error_of(body.status());
  const Model& model = *ready_model_;
  GenerationRequest request;
  uint32_t unknown = 0;
  if (Problem problem = read_request(*body, chat ? kChatField : kCompletionField, &request, &unknown))
    return problem;
  if (!model.served.any_name && !request.model.empty() && !model.served.answers_to(request.model)) {
    ApiError error = api_error_of(not_found(fmt::format(
        "The model `{}` does not exist; this server has `{}`.", request.model, model.served.name)));
    error.param = "model";
    error.code = "model_not_found";
    return error;
  }
  const std::string_view key =
      config_.keys_share_cache ? std::string_view() : config_.access.key_of(exchange->request());
  request.cache_salt = cache_domain(key, request.cache_salt);
  if (Problem problem = settle_owner(config_.access, exchange->request(), &request)) return problem;
  std::vector<Prompt> prompts;
  if (Problem problem = model.prompts.build(&request, &prompts)) return problem;
  const auto choices = static_cast<uint32_t>(request.n);
  const uint32_t max_tokens = request.sampling.max_tokens;
  auto generation =
      std::make_shared<Generation>(model.served, exchange, std::move(request), std::move(prompts));
  exchange->post([this, generation = std::move(generation), choices, max_tokens, unknown] {
    metrics_.count_generation(choices, max_tokens);
    metrics_.count_unknown_fields(unknown);
    std::erase_if(generations_, [](const auto& weak) { return weak.expired(); });
    generations_.push_back(generation);
    generation->start();
  });
  return std::nullopt;
}

void ApiServer::abort_all() {
  http_->post([this] {
    for (const auto& weak : generations_) {
      if (const auto generation = weak.lock())
        generation->fail(api_error_of(unavailable("the server is shutting down")));
    }
  });
}

}  // namespace kvasir
