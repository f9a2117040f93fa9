#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "server/api_server.h"
#include "server/fake_engine.h"
#include "server/json_input.h"
#include "server/raw_client.h"

namespace kvasir::testing {

using testing::ByteTokenizer;
using ::testing::ElementsAre;
using testing::FakeEngine;
using ::testing::HasSubstr;
using testing::RawClient;
using namespace std::chrono_literals;
namespace json = boost::json;

inline constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
inline constexpr const char* kHi = R"("messages":[{"role":"user","content":"Hi"}])";

inline json::value parsed(const std::string& text) {
  auto value = parse_json(text);
  EXPECT_TRUE(value.ok()) << value.message() << " in " << text;
  return value.ok() ? std::move(*value) : json::value(json::object());
}

// The JSON of every event; checks the framing on the way.
inline std::vector<json::value> events_of(std::string body) {
  std::vector<json::value> events;
  EXPECT_EQ(body.find('\r'), std::string::npos);
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n")) << body;
  for (size_t end = body.find("\n\n"); end != std::string::npos; end = body.find("\n\n")) {
    const std::string line = body.substr(0, end);
    body.erase(0, end + 2);
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    if (line.empty() || line == "data: [DONE]") continue;
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
    std::string text = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" +
                       std::string(headers);
    if (method == "POST")
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    return text + "\r\n" + std::string(body);
  }
  RawClient::Answer send(const std::string& bytes) {
    RawClient client(server_->port());
    EXPECT_TRUE(client.send(bytes));
    return client.receive_answer();
  }
  RawClient::Answer get(std::string_view path, std::string_view headers = "") {
    return send(request("GET", path, "", headers));
  }
  RawClient::Answer post(std::string_view path, std::string_view body, std::string_view headers = "") {
    return send(request("POST", path, body, headers));
  }
  json::object chat(const std::string& more = "", const std::string& messages = kHi) {
    const auto answer = post("/v1/chat/completions", "{" + messages + (more.empty() ? "" : "," + more) + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return parsed(answer.body).as_object();
  }
  json::object complete(const std::string& more = "") {
    const auto answer =
        post("/v1/completions", "{\"prompt\":\"ab\"" + (more.empty() ? "" : "," + more) + "}");
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
  void expect_error(const RawClient::Answer& answer, int status, const std::string& type,
                    const std::string& code = "") {
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
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
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

inline const json::object& choice_of(const json::object& event) {
  return event.at("choices").at(0).as_object();
}
inline const json::object& choice_of(const json::value& event) {
  return choice_of(event.as_object());
}

inline std::string text_of(const std::vector<json::value>& events) {
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

}  // namespace kvasir::testing
