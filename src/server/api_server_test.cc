#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api_fixture.h"

namespace kvasir::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

// --- errors ---

TEST_F(ApiServerTest, ErrorsInTheMiddleOfAStream) {
  engine_.step_ms = 5;
  engine_.answer = [](const Request&, uint32_t) { return std::string(200, 'x'); };
  start();
  RawClient client(server_->port());
  client.send(request("POST", "/v1/chat/completions", std::string("{\"stream\":true,") + kHi + "}"));
  ASSERT_TRUE(client.receive_until("\"x\""));
  engine_.fail = true;
  const auto events = events_of(client.receive_answer().body);
  EXPECT_THAT(std::string(events.back().at("error").at("message").as_string()), HasSubstr("NaN"));
  EXPECT_EQ(events.back().at("error").at("type").as_string(), "server_error");
}

TEST_F(ApiServerTest, FailedRequestIs500AndOthersGoOn) {
  start();
  engine_.fail = true;
  const auto answer = post("/v1/chat/completions", std::string("{") + kHi + "}");
  expect_error(answer, 500, "server_error");
  EXPECT_EQ(answer.header("x-should-retry"), "false");
  engine_.fail = false;
  chat();
}

TEST_F(ApiServerTest, BadRequests) {
  start();
  for (const std::string body :
       {"", "{", "[]", "\"text\"", "nul", "{\"messages\": \"\xff\"}", "{\"messages\": [}"}) {
    expect_error(post("/v1/chat/completions", body), 400, "invalid_request_error");
  }
  const auto deep =
      post("/v1/chat/completions", "{\"tools\": " + std::string(3000, '[') + std::string(3000, ']') + "}");
  expect_error(deep, 400, "invalid_request_error");
  EXPECT_THAT(deep.body, HasSubstr("64"));
  const auto hot = post("/v1/chat/completions", std::string("{\"temperature\":\"hot\",") + kHi + "}");
  EXPECT_EQ(parsed(hot.body).at("error").at("param").as_string(), "temperature");
  const auto too_long = post("/v1/completions", "{\"prompt\":\"" + std::string(2000, 'x') + "\"}");
  expect_error(too_long, 400, "invalid_request_error", "context_length_exceeded");
  EXPECT_EQ(parsed(too_long.body).at("error").at("n_ctx").as_int64(), 1000);
  EXPECT_EQ(engine_.submitted, 0);
}

TEST_F(ApiServerTest, FullQueueIs429AndTakesNothing) {
  engine_.max_requests = 2;
  engine_.step_ms = 20;
  engine_.queue_seconds = 6.2;
  start();
  const auto answer = post("/v1/completions", R"({"prompt":["a","b","c"],"max_tokens":500})");
  expect_error(answer, 429, "rate_limit_error", "server_overloaded");
  EXPECT_EQ(answer.header("Retry-After"), "7");
  EXPECT_TRUE(eventually([&] { return engine_.running() == 0; }));
}

TEST(RetryAfter, IsWholeSecondsFromOneToSixty) {
  EXPECT_EQ(retry_after(0), 1);
  EXPECT_EQ(retry_after(1.01), 2);
  EXPECT_EQ(retry_after(59.5), 60);
  EXPECT_EQ(retry_after(1e9), 60);
}

TEST_F(ApiServerTest, PriorityAndUserReachTheEngine) {
  start();
  complete(R"("priority":-3,"user":"anna")");
  EXPECT_EQ(engine_.last_request.priority, -3);
  EXPECT_EQ(engine_.last_request.user, "user anna");
  chat(R"("safety_identifier":"ben","priority":7.0)");
  EXPECT_EQ(engine_.last_request.priority, 7);
  EXPECT_EQ(engine_.last_request.user, "user ben");
  complete();
  EXPECT_EQ(engine_.last_request.priority, 0);
  EXPECT_EQ(engine_.last_request.user, "");
  for (const char* bad : {"1.5", "\"high\"", "2147483648", "-2147483649"})
    expect_error(post("/v1/completions", std::string(R"({"prompt":"a","priority":)") + bad + "}"), 400,
                 "invalid_request_error");
}

TEST_F(ApiServerTest, TheKeyIsTheUserAndHasItsTerms) {
  config_.access.api_keys = {"one", "two"};
  config_.access.terms["two"] = {.weight = 3, .best_priority = 1};
  start();
  const std::string body = R"({"prompt":"a","user":"anna"})";
  EXPECT_EQ(post("/v1/completions", body, "Authorization: Bearer two\r\n").status, 200);
  EXPECT_EQ(engine_.last_request.user, "key 1");
  EXPECT_EQ(engine_.last_request.weight, 3);
  EXPECT_EQ(engine_.last_request.priority, 1);
  EXPECT_EQ(post("/v1/completions", body, "x-api-key: one\r\n").status, 200);
  EXPECT_EQ(engine_.last_request.user, "key 0");
  const auto bold = post("/v1/completions", R"({"prompt":"a","priority":0})", "x-api-key: two\r\n");
  expect_error(bold, 400, "invalid_request_error");
  EXPECT_EQ(parsed(bold.body).at("error").at("param").as_string(), "priority");
}

TEST_F(ApiServerTest, PromptsThatNeverFitTheQueueAreNoReasonToTryAgain) {
  engine_.limits.max_queued_requests = 2;
  start();
  const auto answer = post("/v1/completions", R"({"prompt":["a","b","c"]})");
  expect_error(answer, 400, "invalid_request_error");
  EXPECT_EQ(parsed(answer.body).at("error").at("param").as_string(), "prompt");
  EXPECT_EQ(answer.header("Retry-After"), "");
  EXPECT_EQ(engine_.submitted, 0);
}

TEST_F(ApiServerTest, WhatTheEngineRefusesNamesItsField) {
  engine_.refusal = invalid_argument("n is 9; this engine runs 1 to 8 sequences at once").about("n");
  start();
  const auto answer = post("/v1/completions", R"({"prompt":"a","n":9})");
  expect_error(answer, 400, "invalid_request_error");
  EXPECT_EQ(parsed(answer.body).at("error").at("param").as_string(), "n");
}

TEST_F(ApiServerTest, PathsAndMethods) {
  start();
  expect_error(get("/v1/nothing"), 404, "not_found_error");
  expect_error(get("/../../etc/passwd"), 404, "not_found_error");
  expect_error(get("/%2e%2e/etc/passwd"), 404, "not_found_error");
  expect_error(get("//health"), 404, "not_found_error");
  expect_error(get("/v1/chat/completions"), 405, "invalid_request_error");
  EXPECT_EQ(get("/v1/chat/completions").header("Allow"), "POST, OPTIONS");
  expect_error(post("/health", "{}"), 405, "invalid_request_error");
  EXPECT_EQ(post("/health", "{}").header("Allow"), "GET, HEAD, OPTIONS");
  expect_error(send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                    "text/plain\r\nContent-Length: 2\r\n\r\n{}"),
               415, "invalid_request_error");
  EXPECT_EQ(send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                 "Application/JSON\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}")
                .status,
            200);
  for (const char* path : {"/health", "/v1/health", "/livez", "/readyz", "/ping", "/version", "/metrics",
                           "/models", "/v1/models", "/v1/models/fake", "/v1/models/models/fake.gguf",
                           "/v1/models/models%2Ffake.gguf", "/tokenizer_info"}) {
    EXPECT_EQ(get(path).status, 200) << path;
  }
  expect_error(get("/v1/models/other"), 404, "not_found_error", "model_not_found");
}

TEST_F(ApiServerTest, UnknownModels) {
  start();
  expect_error(post("/v1/chat/completions", std::string("{\"model\":\"gpt\",") + kHi + "}"), 404,
               "not_found_error", "model_not_found");
  chat("\"model\":\"models/fake.gguf\"");
  model_.any_name = true;
  server_->stop();
  start();
  EXPECT_EQ(chat("\"model\":\"gpt\"").at("model").as_string(), "fake");
}

TEST_F(ApiServerTest, RequestIdsAreKept) {
  start();
  EXPECT_EQ(get("/health", "X-Request-Id: mine-1\r\n").header("X-Request-Id"), "mine-1");
  EXPECT_TRUE(get("/health", "X-Request-Id: a b\r\n").header("X-Request-Id").starts_with("req_"));
}

// --- who may ask ---

TEST_F(ApiServerTest, KeysGuardEverythingButHealth) {
  config_.access.api_keys = {"secret", "other"};
  start();
  for (const char* path : {"/v1/models", "/metrics", "/version", "/tokenizer_info", "/nothing"}) {
    const auto answer = get(path);
    expect_error(answer, 401, "authentication_error", "invalid_api_key");
    EXPECT_EQ(answer.header("WWW-Authenticate"), "Bearer");
    EXPECT_EQ(get(path, "Authorization: Bearer secre\r\n").status, 401);
  }
  for (const char* path : {"/v1/chat/completions", "/tokenize", "/detokenize"})
    EXPECT_EQ(post(path, "{}").status, 401) << path;
  for (const char* path : {"/health", "/livez", "/readyz", "/ping", "/v1/health"})
    EXPECT_EQ(get(path).status, 200) << path;
  EXPECT_EQ(get("/v1/models", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(get("/v1/models", "X-Api-Key: other\r\n").status, 200);
  for (const char* scheme : {"bearer ", "BEARER ", "Bearer   "}) {
    const std::string header = std::string("Authorization: ") + scheme;
    EXPECT_EQ(get("/v1/models", header + "secret\r\n").status, 200) << scheme;
    EXPECT_EQ(get("/v1/models", header + "Secret\r\n").status, 401) << scheme;
  }
  for (const char* other : {"Basic secret", "secret", "Bearer", "Bearersecret"})
    EXPECT_EQ(get("/v1/models", std::string("Authorization: ") + other + "\r\n").status, 401) << other;
}

TEST_F(ApiServerTest, ForeignHostsAndOriginsAreRefused) {
  config_.access.cors_origins = {"https://good.example"};
  config_.access.allowed_hosts = {"box.lan"};
  start();
  for (const char* host : {"evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]"}) {
    const auto answer = send(std::string("GET /v1/models HTTP/1.1\r\nHost: ") + host + "\r\n\r\n");
    expect_error(answer, 403, "permission_error");
  }
  for (const char* host :
       {"localhost", "LocalHost:80", "127.0.0.1:8000", "127.0.0.2", "[::1]:8000", "box.lan:1", "Box.LAN"}) {
    EXPECT_EQ(send(std::string("GET /v1/models HTTP/1.1\r\nHost: ") + host + "\r\n\r\n").status, 200) << host;
  }
  const std::string body = std::string("{") + kHi + "}";
  expect_error(post("/v1/chat/completions", body, "Origin: https://evil.example\r\n"), 403,
               "permission_error");
  expect_error(post("/v1/chat/completions", body, "Origin: null\r\n"), 403, "permission_error");
  EXPECT_EQ(post("/v1/chat/completions", body, "Origin: http://localhost\r\n").status, 200);
  const auto good = post("/v1/chat/completions", body, "Origin: https://good.example\r\n");
  EXPECT_EQ(good.header("Access-Control-Allow-Origin"), "https://good.example");
}

// What changes nothing is answered, but no page of that origin can read it.
TEST_F(ApiServerTest, ForeignOriginsCannotReadWhatTheyMayGet) {
  config_.access.cors_origins = {"https://good.example"};
  start();
  const std::string evil = "Origin: https://evil.example\r\n";
  for (const char* path : {"/health", "/v1/models"}) {
    const auto answer = get(path, evil);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "");
  }
  RawClient client(server_->port());
  client.send(
      request("OPTIONS", "/v1/chat/completions", "", evil + "Access-Control-Request-Method: POST\r\n"));
  const auto preflight = client.receive_answer(false);
  EXPECT_EQ(preflight.status, 204);
  for (const char* header : {"Access-Control-Allow-Origin", "Access-Control-Allow-Methods"})
    EXPECT_EQ(preflight.header(header), "") << header;
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize", "/ping"})
    expect_error(post(path, "{}", evil), 403, "permission_error");
}

TEST_F(ApiServerTest, Preflight) {
  config_.access.cors_origins = {"https://good.example"};
  config_.access.api_keys = {"secret"};
  start();
  RawClient client(server_->port());
  client.send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://good.example\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n");
  const auto answer = client.receive_answer(false);
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "https://good.example");
  EXPECT_THAT(answer.header("Access-Control-Allow-Headers"), HasSubstr("Authorization"));
}

// OpenAI's client for JavaScript sends headers of its own, and a browser asks for each of them.
TEST_F(ApiServerTest, PreflightAllowsTheHeadersThatAreAskedFor) {
  config_.access.cors_origins = {"https://good.example"};
  start();
  const std::string asked = "authorization,content-type,x-stainless-arch,x-stainless-retry-count";
  const auto preflight = [&](const std::string& origin) {
    RawClient client(server_->port());
    client.send(request("OPTIONS", "/v1/chat/completions", "",
                        "Origin: " + origin + "\r\nAccess-Control-Request-Method: POST\r\n" +
                            "Access-Control-Request-Headers: " + asked + "\r\n"));
    return client.receive_answer(false);
  };
  EXPECT_EQ(preflight("https://good.example").header("Access-Control-Allow-Headers"), asked);
  EXPECT_EQ(preflight("https://evil.example").header("Access-Control-Allow-Headers"), "");
  const auto answer = get("/v1/models", "Origin: https://good.example\r\n");
  EXPECT_THAT(answer.header("Access-Control-Expose-Headers"), HasSubstr("Retry-After"));
}

// --- leaving, loading, ending ---

TEST_F(ApiServerTest, LeavingCancelsThatRequestOnly) {
  engine_.step_ms = 5;
  engine_.answer = [](const Request&, uint32_t) { return std::string(400, 'x'); };
  start();
  RawClient survivor(server_->port());
  survivor.send(request("POST", "/v1/chat/completions", std::string("{\"stream\":true,") + kHi + "}"));
  ASSERT_TRUE(eventually([&] { return engine_.running() == 1; }));
  for (const char* mode : {"\"stream\":true,", ""}) {
    const int before = engine_.cancelled;
    RawClient leaver(server_->port());
    leaver.send(request("POST", "/v1/completions",
                        std::string("{\"prompt\":[\"a\",\"b\"],") + mode + "\"max_tokens\":900}"));
    ASSERT_TRUE(eventually([&] { return engine_.running() == 3; }));
    leaver.close();
    EXPECT_TRUE(eventually([&] { return engine_.running() == 1 && engine_.cancelled == before + 2; }));
  }
  EXPECT_EQ(text_of(events_of(survivor.receive_answer().body)).size(), 400u);
}

TEST_F(ApiServerTest, FloodingCancelsTheRequest) {
  engine_.step_ms = 10;
  engine_.answer = [](const Request&, uint32_t) { return std::string(900, 'x'); };
  start();
  for (const char* mode : {"\"stream\":true,", ""}) {
    const int before = engine_.cancelled;
    RawClient flooder(server_->port());
    flooder.send(
        request("POST", "/v1/completions", std::string("{\"prompt\":\"a\",") + mode + "\"max_tokens\":900}"));
    ASSERT_TRUE(eventually([&] { return engine_.running() == 1; }));
    flooder.send(std::string(1 << 20, 'x'));  // the connection may be closed in the middle of it
    EXPECT_TRUE(eventually([&] { return engine_.cancelled == before + 1 && engine_.running() == 0; }));
  }
}

TEST_F(ApiServerTest, SlowReaderIsCancelled) {
  config_.http.stall_time = 150ms;
  engine_.answer = [](const Request&, uint32_t) { return std::string(900, 'x'); };
  engine_.step_ms = 1;
  start();
  RawClient reader(server_->port(), 2048);
  reader.send(request("POST", "/v1/completions",
                      R"({"prompt":"a","stream":true,"n":16,"max_tokens":900,"logprobs":20})"));
  EXPECT_TRUE(eventually([&] { return engine_.cancelled == 1; }));
  EXPECT_TRUE(eventually([&] { return engine_.running() == 0; }));
}

TEST_F(ApiServerTest, PortInUseIsAnError) {
  listen();
  config_.http.port = server_->port();
  const auto second = ApiServer::listen(config_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.message(), HasSubstr("127.0.0.1:" + std::to_string(config_.http.port)));
}

TEST_F(ApiServerTest, LoadingSaysSo) {
  listen();
  server_->set_loading_progress(0.25);
  const auto health = get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(parsed(health.body).at("progress").as_double(), 0.25);
  EXPECT_EQ(parsed(health.body).at("error").at("code").as_int64(), 503);
  EXPECT_EQ(get("/livez").status, 200);
  EXPECT_EQ(get("/metrics").status, 200);
  expect_error(get("/v1/models"), 503, "unavailable_error");
  expect_error(post("/v1/chat/completions", "{}"), 503, "unavailable_error");
  server_->serve(model_);
  EXPECT_EQ(get("/health").status, 200);
  chat();
}

TEST_F(ApiServerTest, DrainFinishesWhatRunsAndRefusesTheRest) {
  engine_.step_ms = 10;
  start();
  RawClient running(server_->port());
  running.send(request("POST", "/v1/chat/completions", std::string("{\"stream\":true,") + kHi + "}"));
  ASSERT_TRUE(eventually([&] { return engine_.running() == 1; }));
  server_->drain();
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(get("/livez").status, 200);
  const auto refused = post("/v1/chat/completions", std::string("{") + kHi + "}");
  expect_error(refused, 503, "unavailable_error");
  EXPECT_FALSE(refused.header("Retry-After").empty());
  EXPECT_EQ(text_of(events_of(running.receive_answer().body)), "Hello there!");
  EXPECT_TRUE(eventually([&] { return server_->drained(); }));
}

TEST_F(ApiServerTest, AbortEndsStreamsWithAnError) {
  engine_.step_ms = 20;
  engine_.answer = [](const Request&, uint32_t) { return std::string(500, 'x'); };
  start();
  RawClient streamed(server_->port()), whole(server_->port());
  streamed.send(request("POST", "/v1/chat/completions", std::string("{\"stream\":true,") + kHi + "}"));
  whole.send(request("POST", "/v1/chat/completions", std::string("{") + kHi + "}"));
  ASSERT_TRUE(eventually([&] { return engine_.running() == 2; }));
  server_->drain();
  server_->abort_all();
  EXPECT_EQ(events_of(streamed.receive_answer().body).back().at("error").at("type").as_string(),
            "unavailable_error");
  expect_error(whole.receive_answer(), 503, "unavailable_error");
  EXPECT_TRUE(eventually([&] { return server_->drained() && engine_.running() == 0; }));
}

TEST_F(ApiServerTest, HealthDoesNotWaitForWorkers) {
  config_.workers = 1;
  start();
  RawClient heavy(server_->port());
  heavy.send(request("POST", "/tokenize", "{\"prompt\":\"" + std::string(7 << 20, 'x') + "\"}"));
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(get("/health").status, 200);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 500ms);
  }
  EXPECT_EQ(heavy.receive_answer().status, 200);
}

}  // namespace
}  // namespace kvasir::testing
