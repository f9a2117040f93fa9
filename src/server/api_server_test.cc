#include "server/api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <thread>

#include "base/log.h"
#include "server/fake_engine.h"
#include "server/json_input.h"
#include "server/raw_client.h"

namespace kvasir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ByteTokenizer;
using testing::FakeEngine;
using testing::RawClient;
using namespace std::chrono_literals;
namespace json = boost::json;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kHi = R"("messages":[{"role":"user","content":"Hi"}])";

json::value parsed(const std::string& text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value.ok()) << value.message() << " in " << text;
  return value.ok() ? std::move(*value) : json::value(json::object());
}

// The JSON of every event; checks the framing on the way.
std::vector<json::value> events_of(std::string body) {
  std::vector<json::value> events;
  EXPECT_EQ(body.find('\r'), std::string::npos);
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n")) << body;
  for (size_t end = body.find("\n\n"); end != std::string::npos; end = body.find("\n\n")) {
    const std::string line = body.substr(0, end);
    body.erase(0, end + 2);
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    if (line.starts_with(":") || line == "data: [DONE]") continue;
    EXPECT_TRUE(line.starts_with("data: {")) << line;
    events.push_back(parsed(line.substr(6)));
  }
  EXPECT_TRUE(body.empty());
  return events;
}

class ApiServerTest : public ::testing::Test {
 protected:
  ApiServerTest() {
    init_logging(spdlog::level::off);
    auto parsed_template = ChatTemplate::parse(kChatMl);
    template_ = std::make_unique<ChatTemplate>(std::move(*parsed_template));
    model_.engine = &engine_;
    model_.tokenizer = &tokenizer_;
    model_.chat_template = template_.get();
    model_.name = "fake";
    model_.aliases = {"models/fake.gguf"};
    config_.http.port = 0;
  }
  ~ApiServerTest() override {
    if (server_) server_->stop();
  }

  void listen() {
    auto server = ApiServer::listen(config_);
    ASSERT_TRUE(server.ok()) << server.message();
    server_ = std::move(*server);
  }
  void start() {
    listen();
    server_->serve(model_);
  }
  static std::string request(std::string_view method, std::string_view path, std::string_view body = "",
                             std::string_view headers = "") {
    std::string text = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(headers);
    if (method == "POST") text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    return text + "\r\n" + std::string(body);
  }
  RawClient::Answer send(const std::string& bytes) {
    RawClient client(server_->port());
    EXPECT_TRUE(client.send(bytes));
    return client.receive_answer();
  }
  RawClient::Answer get(std::string_view path, std::string_view headers = "") { return send(request("GET", path, "", headers)); }
  RawClient::Answer post(std::string_view path, std::string_view body, std::string_view headers = "") {
    return send(request("POST", path, body, headers));
  }
  json::object chat(const std::string& more = "", const std::string& messages = kHi) {
    const auto answer = post("/v1/chat/completions", "{" + messages + (more.empty() ? "" : "," + more) + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return parsed(answer.body).as_object();
  }
  json::object complete(const std::string& more = "") {
    const auto answer = post("/v1/completions", "{\"prompt\":\"ab\"" + (more.empty() ? "" : "," + more) + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return parsed(answer.body).as_object();
  }
  std::vector<json::value> stream(std::string_view path, const std::string& members) {
    const auto answer = post(path, "{\"stream\":true," + members + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.header("Content-Type"), "text/event-stream");
    EXPECT_EQ(answer.header("Cache-Control"), "no-cache");
    EXPECT_EQ(answer.header("X-Accel-Buffering"), "no");
    return events_of(answer.body);
  }
  void expect_error(const RawClient::Answer& answer, int status, const std::string& type, const std::string& code = "") {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_FALSE(answer.header("X-Request-Id").empty());
    const json::value body = parsed(answer.body);
    const json::object& error = body.at("error").as_object();
    for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(error.contains(key)) << key;
    EXPECT_FALSE(error.at("message").as_string().empty());
    EXPECT_EQ(error.at("type").as_string(), type);
    if (code.empty()) return;
    EXPECT_EQ(error.at("code").as_string(), code);
  }
  template <class Condition>
  bool eventually(Condition condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }

  ByteTokenizer tokenizer_;
  FakeEngine engine_{tokenizer_};
  std::unique_ptr<ChatTemplate> template_;
  ServedModel model_;
  ApiServerConfig config_;
  std::unique_ptr<ApiServer> server_;
};

const json::object& choice_of(const json::object& event) { return event.at("choices").at(0).as_object(); }
const json::object& choice_of(const json::value& event) { return choice_of(event.as_object()); }

std::string text_of(const std::vector<json::value>& events) {
  std::string text;
  for (const json::value& event : events) {
    if (event.at("choices").as_array().empty()) continue;
    const json::object& choice = choice_of(event);
    if (const json::value* plain = choice.if_contains("text")) text += std::string(plain->as_string());
    const json::value* delta = choice.if_contains("delta");
    const json::value* content = delta != nullptr ? delta->as_object().if_contains("content") : nullptr;
    if (content != nullptr && content->is_string()) text += std::string(content->as_string());
  }
  return text;
}

// --- whole answers ---

TEST_F(ApiServerTest, Chat) {
  start();
  const json::object answer = chat();
  EXPECT_EQ(answer.at("object").as_string(), "chat.completion");
  EXPECT_TRUE(answer.at("id").as_string().starts_with("chatcmpl-"));
  EXPECT_EQ(answer.at("model").as_string(), "fake");
  const json::object& choice = choice_of(answer);
  EXPECT_EQ(choice.at("message").at("role").as_string(), "assistant");
  EXPECT_EQ(choice.at("message").at("content").as_string(), "Hello there!");
  EXPECT_EQ(choice.at("finish_reason").as_string(), "stop");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  const json::value& usage = answer.at("usage");
  EXPECT_EQ(usage.at("completion_tokens").as_int64(), 13);
  EXPECT_EQ(usage.at("total_tokens").as_int64(), usage.at("prompt_tokens").as_int64() + 13);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int64(), 3);
}

TEST_F(ApiServerTest, CompletionOfSeveralPromptsTimesN) {
  start();
  engine_.answer = [](const Request& r, uint32_t c) {
    return std::string(1, static_cast<char>(r.prompt[0])) + std::to_string(c);
  };
  const auto answer = post("/completions", R"({"prompt":["x","y"],"n":2})");
  const json::value body = parsed(answer.body);
  EXPECT_EQ(body.at("object").as_string(), "text_completion");
  std::vector<std::string> texts;
  for (const json::value& choice : body.at("choices").as_array()) {
    EXPECT_EQ(choice.at("index").as_int64(), static_cast<int64_t>(texts.size()));
    texts.emplace_back(choice.at("text").as_string());
  }
  EXPECT_THAT(texts, ElementsAre("x0", "x1", "y0", "y1"));
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 2);
  EXPECT_EQ(body.at("usage").at("completion_tokens").as_int64(), 12);
}

TEST_F(ApiServerTest, SeedsAreFreshAndReturned) {
  start();
  EXPECT_EQ(chat("\"seed\":-5").at("seed").as_int64(), -5);
  EXPECT_EQ(engine_.last_request.sampling.seed, static_cast<uint64_t>(-5));
  const int64_t first = chat().at("seed").as_int64(), second = chat().at("seed").as_int64();
  EXPECT_NE(first, second);
  EXPECT_EQ(engine_.last_request.sampling.seed, static_cast<uint64_t>(second));
}

TEST_F(ApiServerTest, StopReasonSaysWhatStopped) {
  start();
  const json::object answer = chat("\"stop\":[\"zz\",\"lo t\"]");
  EXPECT_EQ(choice_of(answer).at("message").at("content").as_string(), "Hel");
  EXPECT_EQ(choice_of(answer).at("stop_reason").as_string(), "lo t");
  const json::object cut = chat("\"max_tokens\":4");
  EXPECT_EQ(choice_of(cut).at("finish_reason").as_string(), "length");
}

TEST_F(ApiServerTest, LogprobsOfChat) {
  start();
  const json::object answer = chat("\"logprobs\":true,\"top_logprobs\":2,\"max_tokens\":3");
  const json::array& content = choice_of(answer).at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0].at("token").as_string(), "H");
  EXPECT_THAT(content[0].at("bytes").as_array(), ElementsAre(72));
  EXPECT_EQ(content[0].at("top_logprobs").as_array().size(), 2u);
  EXPECT_EQ(content[0].at("logprob"), content[0].at("top_logprobs").at(0).at("logprob"));
}

TEST_F(ApiServerTest, EchoWithLogprobsIsTheLegacyObject) {
  start();
  const json::object answer = complete("\"echo\":true,\"logprobs\":1,\"max_tokens\":1,\"temperature\":0");
  const json::object& choice = choice_of(answer);
  EXPECT_EQ(choice.at("text").as_string(), "abH");
  const json::object& logprobs = choice.at("logprobs").as_object();
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    EXPECT_EQ(logprobs.at(key).as_array().size(), 3u) << key;
  }
  EXPECT_EQ(json::serialize(logprobs.at("tokens")), R"(["a","b","H"])");
  EXPECT_EQ(json::serialize(logprobs.at("text_offset")), "[0,1,2]");
  EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
  EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
  EXPECT_EQ(logprobs.at("token_logprobs").at(1), logprobs.at("top_logprobs").at(1).at("b"));
}

TEST_F(ApiServerTest, EchoOfNothingMore) {
  start();
  const json::object answer = complete("\"echo\":true,\"max_tokens\":0,\"logprobs\":0");
  EXPECT_EQ(choice_of(answer).at("text").as_string(), "ab");
  EXPECT_EQ(choice_of(answer).at("finish_reason").as_string(), "length");
  EXPECT_EQ(choice_of(answer).at("logprobs").at("tokens").as_array().size(), 2u);
  EXPECT_EQ(answer.at("usage").at("completion_tokens").as_int64(), 0);
}

TEST_F(ApiServerTest, PromptLogprobsAndTokenIds) {
  start();
  const json::object answer = complete("\"prompt_logprobs\":1,\"return_token_ids\":true,\"max_tokens\":2");
  const json::object& choice = choice_of(answer);
  EXPECT_EQ(json::serialize(choice.at("prompt_token_ids")), "[97,98]");
  EXPECT_EQ(json::serialize(choice.at("token_ids")), "[72,101]");
  EXPECT_TRUE(choice.at("prompt_logprobs").at(0).is_null());
  EXPECT_EQ(choice.at("prompt_logprobs").at(1).at("98").at("decoded_token").as_string(), "b");
  EXPECT_EQ(choice.at("prompt_logprobs").at(1).at("98").at("rank").as_int64(), 1);
}

TEST_F(ApiServerTest, ToolCallsOfAWholeAnswer) {
  engine_.answer = [](const Request&, uint32_t) { return "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"; };
  start();
  const json::object answer = chat(R"("tools":[{"type":"function","function":{"name":"f"}}])");
  const json::object& choice = choice_of(answer);
  EXPECT_EQ(choice.at("finish_reason").as_string(), "tool_calls");
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  const json::value& call = choice.at("message").at("tool_calls").at(0);
  EXPECT_TRUE(call.at("id").as_string().starts_with("call_"));
  EXPECT_EQ(call.at("function").at("arguments").as_string(), "{\"a\":1}");
  EXPECT_THAT(std::string(choice_of(chat()).at("message").at("content").as_string()), HasSubstr("<tool_call>"));
}

TEST_F(ApiServerTest, TimingsOnRequest) {
  start();
  EXPECT_TRUE(chat("\"timings_per_token\":true").contains("timings"));
  EXPECT_FALSE(chat().contains("timings"));
}

// --- streams ---

TEST_F(ApiServerTest, StreamedChatFollowsTheRules) {
  start();
  const auto events = stream("/v1/chat/completions", kHi);
  ASSERT_GT(events.size(), 2u);
  for (const json::value& event : events) {
    EXPECT_EQ(event.at("object").as_string(), "chat.completion.chunk");
    EXPECT_EQ(event.at("id"), events[0].at("id"));
    EXPECT_EQ(event.at("created"), events[0].at("created"));
    EXPECT_FALSE(event.as_object().contains("usage"));
    EXPECT_EQ(event.at("choices").as_array().size(), 1u);
    EXPECT_EQ(choice_of(event).at("delta").as_object().contains("role"), &event == &events[0]);
    EXPECT_EQ(choice_of(event).at("finish_reason").is_null(), &event != &events.back());
  }
  EXPECT_EQ(choice_of(events[0]).at("delta").at("content").as_string(), "H");
  EXPECT_EQ(choice_of(events.back()).at("finish_reason").as_string(), "stop");
  EXPECT_EQ(text_of(events), "Hello there!");
}

TEST_F(ApiServerTest, StreamedCompletionEqualsTheWhole) {
  engine_.answer = [](const Request&, uint32_t) { return "caf\xC3\xA9 \xF0\x9F\x98\x80 \xE6\xAD\xAA ??stop"; };
  start();
  const std::string fields = "\"prompt\":\"ab\",\"max_tokens\":100,\"stop\":[\"?st\"],\"echo\":true,\"logprobs\":1";
  const auto events = stream("/v1/completions", fields);
  const auto whole = parsed(post("/v1/completions", "{" + fields + "}").body);
  EXPECT_EQ(text_of(events), "abcaf\xC3\xA9 \xF0\x9F\x98\x80 \xE6\xAD\xAA ?");
  EXPECT_EQ(text_of(events), choice_of(whole).at("text").as_string());
  json::array tokens, offsets;
  for (const json::value& event : events) {
    if (choice_of(event).at("logprobs").is_null()) continue;
    for (const json::value& t : choice_of(event).at("logprobs").at("tokens").as_array()) tokens.push_back(t);
    for (const json::value& t : choice_of(event).at("logprobs").at("text_offset").as_array()) offsets.push_back(t);
  }
  EXPECT_EQ(json::value(tokens), choice_of(whole).at("logprobs").at("tokens"));
  EXPECT_EQ(json::value(offsets), choice_of(whole).at("logprobs").at("text_offset"));
}

TEST_F(ApiServerTest, UsageComesLastAndOnlyWhenAskedFor) {
  start();
  auto events = stream("/v1/chat/completions", std::string(kHi) + R"(,"stream_options":{"include_usage":true})");
  EXPECT_TRUE(events.back().at("choices").as_array().empty());
  EXPECT_EQ(events.back().at("usage").at("completion_tokens").as_int64(), 13);
  events.pop_back();
  for (const json::value& event : events) EXPECT_TRUE(event.at("usage").is_null());

  events = stream("/v1/chat/completions",
                  std::string(kHi) + R"(,"stream_options":{"include_usage":true,"continuous_usage_stats":true})");
  EXPECT_EQ(events[0].at("usage").at("completion_tokens").as_int64(), 1);
  EXPECT_EQ(events.back().at("usage").at("completion_tokens").as_int64(), 13);
}

TEST_F(ApiServerTest, StreamedChoicesKeepTheirIndex) {
  engine_.answer = [](const Request&, uint32_t c) { return "answer " + std::to_string(c); };
  start();
  const auto events = stream("/v1/chat/completions", std::string(kHi) + ",\"n\":3");
  std::vector<std::string> texts(3);
  std::vector<int> roles(3), ends(3);
  for (const json::value& event : events) {
    const auto index = static_cast<size_t>(choice_of(event).at("index").as_int64());
    texts[index] += text_of({event});
    roles[index] += choice_of(event).at("delta").as_object().contains("role");
    ends[index] += !choice_of(event).at("finish_reason").is_null();
  }
  EXPECT_THAT(texts, ElementsAre("answer 0", "answer 1", "answer 2"));
  EXPECT_THAT(roles, ElementsAre(1, 1, 1));
  EXPECT_THAT(ends, ElementsAre(1, 1, 1));
}

TEST_F(ApiServerTest, StreamedToolCalls) {
  engine_.answer = [](const Request&, uint32_t) {
    return "Wait.<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call><tool_call>{\"name\": \"g\"}</tool_call>";
  };
  start();
  const auto events = stream("/v1/chat/completions", std::string(kHi) + R"(,"tools":[{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(text_of(events), "Wait.");
  std::vector<std::string> names;
  for (const json::value& event : events) {
    const json::value* calls = choice_of(event).at("delta").as_object().if_contains("tool_calls");
    if (calls == nullptr) continue;
    for (const json::value& call : calls->as_array()) {
      EXPECT_EQ(call.at("index").as_int64(), static_cast<int64_t>(names.size()));
      EXPECT_EQ(call.at("type").as_string(), "function");
      EXPECT_TRUE(call.at("id").is_string());
      EXPECT_TRUE(call.at("function").at("arguments").is_string());
      names.emplace_back(call.at("function").at("name").as_string());
    }
  }
  EXPECT_THAT(names, ElementsAre("f", "g"));
  EXPECT_EQ(choice_of(events.back()).at("finish_reason").as_string(), "tool_calls");
}

TEST_F(ApiServerTest, ConnectionSurvivesAStream) {
  start();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.send(request("POST", "/v1/chat/completions", std::string("{\"stream\":true,") + kHi + "}"));
    EXPECT_EQ(text_of(events_of(client.receive_answer().body)), "Hello there!");
  }
}

TEST_F(ApiServerTest, SilentStreamIsKeptAlive) {
  config_.http.quiet_time = 20ms;
  engine_.step_ms = 150;
  start();
  const auto answer = post("/v1/chat/completions", std::string("{\"stream\":true,\"max_tokens\":2,") + kHi + "}");
  EXPECT_THAT(answer.body, HasSubstr(": ping\n\n"));
  EXPECT_EQ(text_of(events_of(answer.body)), "He");
}

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
  for (const std::string body : {"", "{", "[]", "\"text\"", "nul", "{\"messages\": \"\xff\"}", "{\"messages\": [}"}) {
    expect_error(post("/v1/chat/completions", body), 400, "invalid_request_error");
  }
  const auto deep = post("/v1/chat/completions", "{\"tools\": " + std::string(3000, '[') + std::string(3000, ']') + "}");
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
  start();
  const auto answer = post("/v1/completions", R"({"prompt":["a","b","c"],"max_tokens":500})");
  expect_error(answer, 429, "rate_limit_error", "server_overloaded");
  EXPECT_FALSE(answer.header("Retry-After").empty());
  EXPECT_TRUE(eventually([&] { return engine_.running() == 0; }));
}

TEST_F(ApiServerTest, PathsAndMethods) {
  start();
  expect_error(get("/v1/nothing"), 404, "not_found_error");
  expect_error(get("/../../etc/passwd"), 404, "not_found_error");
  expect_error(get("/%2e%2e/etc/passwd"), 404, "not_found_error");
  expect_error(get("//health"), 404, "not_found_error");
  expect_error(get("/v1/chat/completions"), 405, "invalid_request_error");
  expect_error(post("/health", "{}"), 405, "invalid_request_error");
  expect_error(send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}"),
               415, "invalid_request_error");
  for (const char* path : {"/health", "/v1/health", "/livez", "/readyz", "/ping", "/version", "/metrics", "/models", "/v1/models",
                           "/v1/models/fake", "/v1/models/models/fake.gguf", "/v1/models/models%2Ffake.gguf", "/tokenizer_info"}) {
    EXPECT_EQ(get(path).status, 200) << path;
  }
  expect_error(get("/v1/models/other"), 404, "not_found_error", "model_not_found");
}

TEST_F(ApiServerTest, UnknownModels) {
  start();
  expect_error(post("/v1/chat/completions", std::string("{\"model\":\"gpt\",") + kHi + "}"), 404, "not_found_error", "model_not_found");
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
  for (const char* path : {"/v1/chat/completions", "/tokenize", "/detokenize"}) EXPECT_EQ(post(path, "{}").status, 401) << path;
  for (const char* path : {"/health", "/livez", "/readyz", "/ping", "/v1/health"}) EXPECT_EQ(get(path).status, 200) << path;
  EXPECT_EQ(get("/v1/models", "Authorization: Bearer secret\r\n").status, 200);
  EXPECT_EQ(get("/v1/models", "X-Api-Key: other\r\n").status, 200);
}

TEST_F(ApiServerTest, ForeignHostsAndOriginsAreRefused) {
  config_.access.cors_origins = {"https://good.example"};
  config_.access.allowed_hosts = {"box.lan"};
  start();
  for (const char* host : {"evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]"}) {
    const auto answer = send(std::string("GET /v1/models HTTP/1.1\r\nHost: ") + host + "\r\n\r\n");
    expect_error(answer, 403, "permission_error");
  }
  for (const char* host : {"localhost", "127.0.0.1:8000", "[::1]:8000", "box.lan:1"}) {
    EXPECT_EQ(send(std::string("GET /v1/models HTTP/1.1\r\nHost: ") + host + "\r\n\r\n").status, 200) << host;
  }
  const std::string body = std::string("{") + kHi + "}";
  expect_error(post("/v1/chat/completions", body, "Origin: https://evil.example\r\n"), 403, "permission_error");
  expect_error(post("/v1/chat/completions", body, "Origin: null\r\n"), 403, "permission_error");
  EXPECT_EQ(post("/v1/chat/completions", body, "Origin: http://localhost\r\n").status, 200);
  const auto good = post("/v1/chat/completions", body, "Origin: https://good.example\r\n");
  EXPECT_EQ(good.header("Access-Control-Allow-Origin"), "https://good.example");
  EXPECT_EQ(get("/health", "Origin: https://evil.example\r\n").header("Access-Control-Allow-Origin"), "");
}

TEST_F(ApiServerTest, Preflight) {
  config_.access.cors_origins = {"https://good.example"};
  config_.access.api_keys = {"secret"};
  start();
  RawClient client(server_->port());
  client.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://good.example\r\n"
              "Access-Control-Request-Method: POST\r\n\r\n");
  const auto answer = client.receive_answer(false);
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.header("Access-Control-Allow-Origin"), "https://good.example");
  EXPECT_THAT(answer.header("Access-Control-Allow-Headers"), HasSubstr("Authorization"));
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
    leaver.send(request("POST", "/v1/completions", std::string("{\"prompt\":[\"a\",\"b\"],") + mode + "\"max_tokens\":900}"));
    ASSERT_TRUE(eventually([&] { return engine_.running() == 3; }));
    leaver.close();
    EXPECT_TRUE(eventually([&] { return engine_.running() == 1 && engine_.cancelled == before + 2; }));
  }
  EXPECT_EQ(text_of(events_of(survivor.receive_answer().body)).size(), 400u);
}

TEST_F(ApiServerTest, SlowReaderIsCancelled) {
  config_.http.stall_time = 150ms;
  engine_.answer = [](const Request&, uint32_t) { return std::string(900, 'x'); };
  engine_.step_ms = 1;
  start();
  RawClient reader(server_->port(), 2048);
  reader.send(request("POST", "/v1/completions", R"({"prompt":"a","stream":true,"n":16,"max_tokens":900,"logprobs":20})"));
  EXPECT_TRUE(eventually([&] { return engine_.cancelled == 1; }));
  EXPECT_TRUE(eventually([&] { return engine_.running() == 0; }));
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
  EXPECT_EQ(events_of(streamed.receive_answer().body).back().at("error").at("type").as_string(), "unavailable_error");
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

// --- tokens and metrics ---

TEST_F(ApiServerTest, TokenizesInBothDialects) {
  start();
  tokenizer_.set_add_bos(true);
  const auto vllm = parsed(post("/tokenize", R"({"prompt":"ab","return_token_strs":true})").body);
  EXPECT_EQ(json::serialize(vllm.at("tokens")), "[258,97,98]");
  EXPECT_EQ(vllm.at("count").as_int64(), 3);
  EXPECT_EQ(vllm.at("max_model_len").as_int64(), 1000);
  EXPECT_EQ(vllm.at("token_strs").at(1).as_string(), "a");
  const auto plain = parsed(post("/v1/tokenize", R"({"prompt":"<s>b","add_special_tokens":false,"parse_special":false})").body);
  EXPECT_EQ(plain.at("count").as_int64(), 4);
  const auto llama = parsed(post("/tokenize", R"({"content":"a\u00e9","with_pieces":true})").body);
  EXPECT_EQ(json::serialize(llama.at("tokens").at(0)), R"({"id":97,"piece":"a"})");
  EXPECT_EQ(json::serialize(llama.at("tokens").at(1)), R"({"id":195,"piece":[195]})");
  const auto messages = parsed(post("/tokenize", std::string("{") + kHi + "}").body);
  EXPECT_EQ(messages.at("tokens").at(1).as_int64(), ByteTokenizer::kStart);
  const auto text = parsed(post("/detokenize", R"({"tokens":[97,98]})").body);
  EXPECT_EQ(text.at("prompt").as_string(), "ab");
  EXPECT_EQ(text.at("content").as_string(), "ab");
  for (const char* bad : {"{}", R"({"prompt":3})", R"({"prompt":"a","add_special_tokens":1})"}) {
    expect_error(post("/tokenize", bad), 400, "invalid_request_error");
  }
  for (const char* bad : {"{}", R"({"tokens":[259]})", R"({"tokens":[-1]})", R"({"tokens":"a"})"}) {
    expect_error(post("/detokenize", bad), 400, "invalid_request_error");
  }
}

// Name, labels and value of every sample; fails on a line that is not the text format 0.0.4.
std::map<std::string, double> samples_of(const std::string& text) {
  std::map<std::string, double> samples;
  std::map<std::string, std::string> types;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) continue;
    if (line.starts_with("# TYPE ")) {
      const size_t space = line.find(' ', 7);
      EXPECT_TRUE(types.emplace(line.substr(7, space - 7), line.substr(space + 1)).second) << line;
      continue;
    }
    const size_t space = line.rfind(' ');
    EXPECT_NE(space, std::string::npos) << line;
    const std::string name = line.substr(0, line.find_first_of("{ "));
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:"), std::string::npos) << line;
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second) << "twice: " << line;
  }
  return samples;
}

TEST_F(ApiServerTest, MetricsAreWellFormed) {
  start();
  chat("\"no_such_field\":1");
  const auto answer = get("/metrics");
  EXPECT_EQ(answer.header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  const auto samples = samples_of(answer.body);
  const std::string labels = "{model_name=\"fake\",engine=\"0\"";
  EXPECT_EQ(samples.at("vllm:num_requests_running" + labels + "}"), 0);
  EXPECT_EQ(samples.at("vllm:kv_cache_usage_perc" + labels + "}"), 0.25);
  EXPECT_EQ(samples.at("vllm:prefix_cache_hits_total" + labels + "}"), 10);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"1\"}"), 5);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_bucket" + labels + ",le=\"+Inf\"}"), 6);
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_count" + labels + "}"), 6);
  EXPECT_EQ(samples.at("kvasir_unknown_request_fields_total"), 1);
  EXPECT_EQ(samples.at("http_requests_total{handler=\"/chat/completions\",method=\"POST\",status=\"2xx\"}"), 1);
  EXPECT_GT(samples.at("process_resident_memory_bytes"), 0);
}

}  // namespace
}  // namespace kvasir
